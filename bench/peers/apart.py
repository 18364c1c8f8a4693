"""Peers that have a Python of their own: run the script of one there and read the line of JSON that it prints last."""

import json
import subprocess
from pathlib import Path
from typing import Any


def report_of(name: str, script: str, *arguments: str) -> dict[str, Any] | None:
    """What `bench/peers/<script>` says under `.venv-<name>`; None, with a printed reason, if it cannot be asked."""
    python = Path(f".venv-{name}/bin/python")
    if not python.exists():
        print(f"{name} skipped: {python} is not there (make bench builds it)")
        return None
    command = [str(python), str(Path(__file__).parent / script), *arguments]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        print(f"{name} skipped: {done.stderr.strip().splitlines()[-1] if done.stderr.strip() else done.returncode}")
        return None
    return json.loads(done.stdout.splitlines()[-1])
