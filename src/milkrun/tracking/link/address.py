"""Where a simulator is: the option `link` read, and the secret that both sides know."""

from __future__ import annotations

import os
import re
import shlex
import stat
from pathlib import Path
from typing import NamedTuple

from milkrun.core.errors import ConfigError
from milkrun.tracking.config import TrackingConfig

LOOPBACK = ("127.0.0.1", "::1", "localhost")
HERE = "127.0.0.1"
GROUP = "main"
SHORTEST = 16
"""Bytes of a secret at least: 128 bits if they are random."""
_FORM = re.compile(r"tcp://(\[[^\]/]+\]|[^:/\[\]]+)(?::(\d{1,5}))?(?:/(.*))?", re.ASCII | re.DOTALL)


class Address(NamedTuple):
    """Host, port, and the group that an environment belongs to."""

    host: str
    port: int
    group: str = GROUP

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def read_address(config: TrackingConfig) -> Address:
    """The address of a configuration: `tcp` is this machine and the option `port`."""
    link = config.link
    if link is None or link == "tcp":
        found = Address(HERE, config.port)
    else:
        form = _FORM.fullmatch(link)
        if form is None or int(form[2] or 0) > 65535:
            raise ConfigError(
                f"TrackingConfig.link = {link!r}: must be 'tcp', 'tcp://host:port' or 'tcp://host:port/group'"
            )
        port = config.port if form[2] is None else int(form[2])
        found = Address(form[1].strip("[]"), port, form[3] or GROUP)
    if not 1 <= len(found.group.encode(errors="replace")) <= 128 or not found.group.isprintable():
        raise ConfigError(f"TrackingConfig.link = {link!r}: the name of a group has 1 to 128 bytes that can be printed")
    if config.auto_start and found.host not in LOOPBACK:
        raise ConfigError(
            f"TrackingConfig.link = {link!r}: auto_start starts a simulator on this machine: leave the "
            "host out, or set auto_start to false"
        )
    if not config.auto_start and found.port == 0:
        raise ConfigError("TrackingConfig.port = 0: a free port is taken with auto_start only")
    return found


def read_token(path: str | None) -> bytes | None:
    """The secret in a file, without white space at its ends; None: there is none. As ssh does with its keys, a file is
    refused that others may read or write."""
    if path is None:
        return None
    try:
        with Path(path).open("rb") as file:
            mode, token = stat.S_IMODE(os.fstat(file.fileno()).st_mode), file.read().strip()
    except (OSError, ValueError) as e:
        raise ConfigError(f"token_file {path!r}: cannot be read: {getattr(e, 'strerror', None) or e}") from None
    if mode & 0o077:
        raise ConfigError(
            f"token_file {path!r}: has the mode {mode:04o}, so other users may read or write it; "
            f"set it to 0600: chmod 600 {shlex.quote(str(path))}"
        )
    if len(token) < SHORTEST:
        raise ConfigError(
            f"token_file {path!r}: holds {len(token)} bytes; put a random secret of at least {SHORTEST} "
            "bytes in it, for example by: openssl rand -hex 32"
        )
    return token
