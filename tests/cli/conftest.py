"""How the tests of the command line call it."""

import pytest

from milkrun.cli import main
from milkrun.core import registry


@pytest.fixture
def call(capsys, monkeypatch):
    """Runs a command line: (exit code, stdout, stderr)."""
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setattr(registry, "_warned", set())

    def run(*arguments):
        with pytest.raises(SystemExit) as exit:
            main([str(a) for a in arguments])
        captured = capsys.readouterr()
        return exit.value.code, captured.out, captured.err

    return run
