"""The options of clusters on the command line, as far as they need none."""

import numpy as np
import pytest

from milkrun import scale


@pytest.mark.parametrize(
    "arguments, sentence",
    [
        (["eval", "CVRP-v0", "--keep", "x"], "--keep belongs to --on ray"),
        (["eval", "CVRP-v0", "--on", "slurm"], "--on slurm: must be ray"),
        (["solve", "x.vrp", "--address", "auto"], "--address belongs to --on ray"),
        (
            ["dataset", "CVRP-v0", "--instances", "5", "--out", "d", "--address", "auto"],
            "--address belongs to --on ray",
        ),
        (["solve", "."], "has no instance file"),
        (["dataset", "CVRP-v0", "--instances", "0", "--out", "d"], "--instances"),
    ],
)
def test_invalid_options_are_refused(call, tmp_path, monkeypatch, arguments, sentence):
    """One line, exit code 2, and nothing is written."""
    monkeypatch.chdir(tmp_path)
    code, _, message = call(*arguments)
    assert code == 2 and sentence in message
    assert not list(tmp_path.iterdir())


def test_dataset_writes_what_generate_draws(call, tmp_path):
    """The same instances, of the configuration given to the command; a second call does nothing."""
    arguments = ["dataset", "CVRP-v0", "--instances", 30, "--out", tmp_path / "a", "--seed", 3, "--set", "num_loc=6"]
    assert call(*arguments)[0] == 0
    code, message, _ = call(*arguments)
    assert code == 0 and "30 instances in 1 file" in message
    scale.generate("milkrun/CVRP-v0", 30, tmp_path / "b", 3, config={"num_loc": 6}, on="local")
    (one,), (other,) = scale.instances(tmp_path / "a"), scale.instances(tmp_path / "b")
    assert one.keys() == other.keys() and all(np.array_equal(one[name], other[name]) for name in one)
    code, _, message = call(*arguments[:-1], "num_loc=7")
    assert code == 2 and "config.num_loc is 6 there and 7 here" in message
