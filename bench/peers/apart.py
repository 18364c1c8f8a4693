"""Peers in a virtual environment of their own: runs their script there and reads the JSON of its last line."""

import json
import subprocess
from pathlib import Path
from typing import Any


def report_of(name: str, script: str, *arguments: str) -> dict[str, Any] | None:
    """The report of `bench/peers/<script>` under `.venv-<name>`; None, with a printed reason, if it cannot run."""
    report = run_script(name, script, *arguments)
    if isinstance(report, str):
        print(f"{name} {report}")
        return None
    return report


def run_script(name: str, script: str, *arguments: str) -> dict[str, Any] | str:
    """The same; "skipped: " and the reason if it cannot run."""
    python = Path(f".venv-{name}/bin/python")
    if not python.exists():
        return f"skipped: {python} is not there (make bench builds it)"
    command = [str(python), str(Path(__file__).parent / script), *arguments]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        return f"skipped: {done.stderr.strip().splitlines()[-1] if done.stderr.strip() else done.returncode}"
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found
