"""Text of a file, a world or a policy never becomes a path: a command writes only into the folder of `--out`."""

from __future__ import annotations

import json
import os

import pytest

from milkrun.core.files import file_name

SQUARE = """NAME : {name}
TYPE : TSP
DIMENSION : 4
EDGE_WEIGHT_TYPE : EUC_2D
NODE_COORD_SECTION
1 0 0
2 0 3
3 4 3
4 4 0
EOF
"""


def everything_under(path):
    return {os.path.relpath(os.path.join(at, name), path) for at, _, names in os.walk(path) for name in names}


@pytest.mark.parametrize("name", ["../../escaped", "..", "{tmp}/escaped", "a/b", ".hidden", "é" * 300, "\\x"])
def test_the_name_in_a_file_does_not_say_where_a_solution_is_written(call, tmp_path, name):
    """Relative, absolute, hidden and endless names: three files in the folder, none anywhere else."""
    file = tmp_path / "square.tsp"
    file.write_text(SQUARE.format(name=name.format(tmp=tmp_path)))
    code, message, _ = call("solve", str(file), "--method", "nearest", "--out", str(tmp_path / "a" / "b" / "out"))
    assert code == 0 and "14" in message
    written = everything_under(tmp_path) - {"square.tsp"}
    assert {os.path.dirname(path) for path in written} == {"a/b/out"}
    assert sorted(os.path.splitext(path)[1] for path in written) == [".json", ".png", ".tour"]
    assert not any(os.path.basename(path).startswith(".") for path in written)


def test_the_policy_of_an_episode_file_does_not_say_where_it_is_written(call, tmp_path):
    """An episode whose policy is called ../../escaped is written next to its page."""
    out = tmp_path / "a" / "out"
    code, _, _ = call("replay", "TSP-v0", "--policies", "nearest", "--set", "num_loc=4", "--out", str(out), "--json")
    assert code == 0
    (file,) = out.glob("*.json")
    data = json.loads(file.read_text())
    file.unlink()
    changed = tmp_path / "changed.json"
    changed.write_text(json.dumps({**data, "policy": "../../escaped"}))
    assert call("replay", str(changed), "--out", str(out), "--json")[0] == 0
    assert everything_under(tmp_path) == {"changed.json", *(f"a/out/{path.name}" for path in out.iterdir())}
    assert any("escaped" in path.name for path in out.glob("*.json"))


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("CVRP-v0", "CVRP-v0"),
        ("A-n32-k5_pyvrp", "A-n32-k5_pyvrp"),
        ("my/World-v0", "my_World-v0"),
        ("../..", "_.."),
        ("/etc/passwd", "_etc_passwd"),
        ("...", "_"),
        ("", "_"),
        ("pkg.mod:f", "pkg.mod_f"),
        ("Lyon é 1", "Lyon_é_1"),
        ("a\x00b\nc", "a_b_c"),
        ("x" * 300, "x" * 100),
    ],
)
def test_any_text_is_one_name_in_a_folder(text, name):
    """Letters, digits and . + = - _ stay."""
    assert file_name(text) == name
