"""Every file with long tests is in one part of `make truth`, so none is forgotten and none runs twice."""

import re
import subprocess

import pytest

from tests.truth_parts import PARTS, TESTS, check_part, main, parts_of

LONG = {path for path in TESTS.rglob("test_*.py") if re.search(r"pytest\.mark\.long", path.read_text())}
LONG.discard(TESTS / "test_truth_parts.py")


@pytest.mark.parametrize("path", sorted(LONG), ids=lambda path: str(path.relative_to(TESTS)))
def test_a_file_with_long_tests_is_in_one_part(path):
    """A new file needs a line in `tests/truth_parts.py`."""
    assert len(parts_of(path)) == 1, parts_of(path)


@pytest.mark.parametrize("part", PARTS)
def test_every_pattern_of_a_part_matches_a_long_file(part):
    """A file that was renamed or has no long test any more leaves its part."""
    names = [path.relative_to(TESTS).with_suffix("") for path in LONG]
    assert [pattern for pattern in PARTS[part].split() if not any(name.match(pattern) for name in names)] == []


def test_an_unknown_part_is_refused_with_a_list(capsys):
    """All names are in the error, for the command and for pytest's option."""
    assert main(["fuz"]) == 2
    message = capsys.readouterr().err
    assert "no part 'fuz'" in message and all(part in message for part in PARTS)
    with pytest.raises(ValueError, match="the parts are clutter, darp"):
        check_part("fuz")


def test_a_part_is_run_with_the_options_of_the_command(monkeypatch, capsys):
    """Each part is a run of pytest; the command fails if one of them does, and prints a line for each."""
    commands = []

    def run(command):
        commands.append(command[1:])
        return subprocess.CompletedProcess(command, returncode="masks" in command)

    monkeypatch.setattr(subprocess, "run", run)
    assert main(["--workers", "3", "fuzz", "masks", "--", "-k", "tsp"]) == 1
    start = ["-m", "pytest", "-m", "long", "--truth-part"]
    assert commands == [[*start, part, "-n", "3", "-k", "tsp", str(TESTS)] for part in ("fuzz", "masks")]
    *_, first, second = capsys.readouterr().out.splitlines()
    assert first.split() == ["fuzz", "passed", "0.0", "min"] and second.split() == ["masks", "FAILED", "0.0", "min"]
    assert main([]) == 1 and [command[5] for command in commands[2:]] == list(PARTS)
