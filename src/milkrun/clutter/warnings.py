"""MuJoCo's warnings go to the log: by itself it prints them and writes a file into the user's folder."""

from __future__ import annotations

import logging

import mujoco


def quiet_warnings() -> None:
    """Sends them to the logger `milkrun`, unless somebody has set a handler already. The handler is the process's, and
    threads of the engine call it too."""
    if mujoco.get_mju_user_warning() is None:
        mujoco.set_mju_user_warning(_log)


def _log(text: str) -> None:
    logging.getLogger("milkrun").info("MuJoCo: %s", text)
