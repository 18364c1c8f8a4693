"""The format `milkrun-episode`: columns decode by the format, files round-trip, invalid ones are refused."""

from __future__ import annotations

import base64
import copy
import json
import zlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from milkrun.core.errors import ConfigError, FormatError, UnknownName
from milkrun.replay.columns import decode, pack, ragged, unragged
from milkrun.replay.episode import Episode
from milkrun.replay.record_policies import compare

WRAPS = {
    "dtype": "int16",
    "shape": [3, 2],
    "delta": True,
    "scale": 0.5,
    "offset": 10.0,
    "data": "eNpjYHjBrMNo8ONK3fNmABexBP0=",
}
BITS = {"dtype": "uint8", "shape": [3, 2], "bits": 10, "xor": True, "data": "eNr7z8jE8IMZAAgAAf4="}
DOUBLES = {"dtype": "float64", "shape": [3], "data": "eNqbNRMEdtozMGzYx/RW58CcUoYOmyfmdQCTwgtH"}


@pytest.fixture(scope="module")
def episode():
    """A short one, of two trips."""
    return compare("milkrun/CVRP-v0", ["nearest"], seed=7, num_loc=8)[0][0]


def test_columns_decode_as_the_format_says():
    """Differences that wrap, bits that were combined, doubles to the last digit, plain numbers with one not finite."""
    assert decode(WRAPS).tolist() == [[10, 510], [160, -490], [-16374, 16393.5]]
    bits = ["".join(map(str, line)) for line in decode(BITS).astype(int).tolist()]
    assert bits == ["1111111110", "1011111110", "1010000001"]
    assert decode(DOUBLES).tolist() == [0.1, -14.462911566719413, 1e300]
    plain = decode({"shape": [2, 2], "values": [1, 2.5, None, -3]})
    assert plain[0].tolist() == [1, 2.5] and np.isnan(plain[1, 0]) and plain[1, 1] == -3


def test_lists_in_time():
    """Lists that keep, grow, restart and stay."""
    stored = {"keep": [0, 1, 2, 0, 1], "add": [1, 1, 1, 1, 0], "flat": [0, 4, 2, 0]}
    stored = {"ragged": True, **{key: {"shape": [len(v)], "values": v} for key, v in stored.items()}}
    lists = [[0], [0, 4], [0, 4, 2], [0], [0]]
    assert unragged(stored) == lists == unragged(ragged(lists))
    assert ragged(lists)["flat"]["values"] == [0, 4, 2]  # kept entries are not repeated


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_packed_arrays_are_restored(data):
    """Whole numbers, flags and floats exactly, of any size, with time first or not; rounded ones within half a step."""
    dtype = data.draw(st.sampled_from([np.bool_, np.uint8, np.int16, np.int32, np.int64, np.float32, np.float64]))
    shape = data.draw(st.lists(st.integers(1, 9), min_size=1, max_size=3))
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    if np.dtype(dtype).kind in "iu":
        span = min(np.iinfo(dtype).max, 2**52)
        array = rng.integers(max(np.iinfo(dtype).min, -span), span, shape).astype(dtype)
    else:
        array = (rng.random(shape) < 0.5) if dtype is np.bool_ else rng.normal(0, 1e3, shape).astype(dtype)
    delta = data.draw(st.booleans())
    written = json.loads(json.dumps(pack(array, delta=delta), allow_nan=False))
    assert np.array_equal(decode(written), array)
    if array.dtype.kind == "f":
        rounded = decode(json.loads(json.dumps(pack(array, delta=delta, scale=0.25))))
        assert np.abs(rounded - array).max() <= 0.125 + 1e-9


def test_rounding_is_that_of_the_step_alone():
    """Half a step at most: what float32 loses in the thousands does not come on top."""
    array = np.random.default_rng(9).normal(0, 1e3, (6, 8, 9)).astype(np.float32)
    assert np.abs(decode(pack(array, scale=0.25)) - array).max() <= 0.125


def test_a_number_that_is_not_finite_is_null():
    """JSON has no NaN; in a long column the bytes hold it."""
    assert pack(np.array([1.5, np.nan, -np.inf])) == {"shape": [3], "values": [1.5, None, None]}
    long = np.full(60, np.inf)
    assert np.array_equal(decode(pack(long)), long)


def test_a_file_comes_back_as_it_was(episode, tmp_path):
    """From text and from a file, with keys that a later version may add."""
    assert Episode.from_json(episode.to_json()) == episode
    episode.save(tmp_path / "one.json")
    assert Episode.load(tmp_path / "one.json") == episode
    more = {**episode.data, "flavour": "salt"}
    assert Episode.from_json(json.dumps(more)).data["flavour"] == "salt"


def test_an_episode_has_actions_masks_and_reasons(episode):
    """The truck's places, its mask and the reasons, read from the file alone."""
    actions, stops = episode.column("action"), [episode.mark("tour", "stops", f) for f in range(episode.frames + 1)]
    assert [s[-1] for s in stops[1:]] == actions.tolist() and stops[0] == [0]
    places, truck = episode.mark("customers", "xy", 0), episode.mark("truck", "xy", 1)
    assert truck == pytest.approx(places[actions[0]], abs=2 / 32768)
    mask = episode.column("mask")
    assert mask[np.arange(episode.steps), actions].all() and not mask[1, actions[0]]
    assert episode.why(1, actions[0]) == "visited" and episode.why(0, 0) == "the truck is at the depot"
    returns = episode.figure("return")
    assert returns[0] == 0 and returns[-1] == episode.objective
    assert np.diff(returns) == pytest.approx(episode.column("reward"), abs=1e-6)


@pytest.mark.parametrize(
    ("access", "error", "why"),
    [
        (lambda e: e.column("actions"), UnknownName, "no column 'actions'; it has action, reward, illegal, mask"),
        (lambda e: e.figure("cost"), UnknownName, "no figure 'cost'; it has .*return"),
        (lambda e: e.mark("lorry", "pos", 0), UnknownName, "no mark 'lorry'; it has .*truck"),
        (lambda e: e.mark("truck", "place", 0), UnknownName, "the mark 'truck' has no 'place'; it has .*xy"),
        (lambda e: e.mark("truck", "xy", e.frames + 1), ConfigError, r"frame=12: must be an integer in 0\.\.11"),
        (lambda e: e.mark("truck", "xy", -1), ConfigError, "frame=-1: must be an integer >= 0"),
        (lambda e: e.why(99, 0), ConfigError, r"step=99: must be an integer in 0\.\.11"),
        (lambda e: e.why(0, 1.5), ConfigError, "index=1.5: must be an integer >= 0"),
        (lambda e: e.save("/no/such/folder/one.json"), FormatError, "/no/such/folder/one.json: cannot be written"),
        (lambda e: e.save(None), ConfigError, "a path is a str or an os.PathLike, not a NoneType"),
    ],
)
def test_missing_parts_of_an_episode_are_named(episode, access, error, why):
    """The error has the known names, or the bound."""
    with pytest.raises(error, match=why):
        access(episode)


def broken(data, **changes):
    """The columns of a file, with one of its keys changed."""
    changed = copy.deepcopy(data)
    for path, value in changes.items():
        *way, last = path.split("__")
        place = changed
        for key in way:
            place = place[int(key) if key.isdigit() else key]
        place[last] = value
    return json.dumps(changed)


def packed(raw):
    return base64.b64encode(zlib.compress(raw)).decode()


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"format": "milkrun-page"}, "format: must be 'milkrun-episode', not 'milkrun-page'"),
        ({"version": 2}, "version: this reads version 1, not 2"),
        ({"steps": "many"}, "steps: must be a int, not 'many'"),
        ({"objective": "x"}, "objective: must be a number or null, not 'x'"),
        ({"frames": 99}, "ends: is missing for 11 steps in 99 frames"),
        ({"frames": 3}, "steps: 11 steps in 3 frames"),
        ({"reward": {"shape": [2], "values": [1, 2]}}, r"reward: the shape \(2,\) must begin with"),
        ({"reward": {"shape": [3], "values": [1, 2]}}, "reward: 2 values do not fit the shape"),
        ({"reward": {"dtype": "float16", "shape": [1], "data": ""}}, "reward: the dtype 'float16' is none of uint8"),
        (
            {"reward": {"dtype": "uint8", "shape": [9], "data": packed(b"12345")}},
            "reward: 5 bytes do not fit the shape",
        ),
        ({"reward": {"dtype": "uint8", "shape": [5], "data": "eNr7$"}}, "reward: data is broken"),
        (
            {"reward": {"dtype": "uint8", "shape": [5], "data": base64.b64encode(b"no zlib").decode()}},
            "reward: data is b",
        ),
        ({"reward": {"dtype": "uint8", "shape": [2**27], "data": packed(bytes(2**26 + 1))}}, "inflates past 64 MB"),
        ({"illegal_reasons": [[99, 0, "why"]]}, r"illegal_reasons: \[99, 0, 'why'\] in an episode of"),
        ({"marks__1__stops__keep": {"shape": [2], "values": [0, 5]}}, "mark 'tour', stops: 2 of keep and"),
        ({"why__texts": [""]}, r"why: 0\.\.\d+ is not within 0\.\.0"),
        ({"marks": [{"kind": "points"}]}, "marks: .* has no name"),
        ({"why": {}}, "a part is missing or of another type: KeyError"),
        ({"chart": {"lanes": 3}}, "a part is missing or of another type: TypeError"),
        ({"chart": {"lanes": ["truck"], "bars": [[1, "drive", 0, 1, "", 0]], "marks": []}}, "chart: lane 1 of 1"),
        (
            {"chart": {"lanes": [], "bars": [], "marks": [], "clock": {"shape": [12, 2], "values": [0] * 24}}},
            "chart, clock: must have 12 numbers",
        ),
    ],
)
def test_a_file_that_does_not_fit_is_refused(episode, changes, why):
    """The error names the key and its value; no partial episode is returned."""
    with pytest.raises(FormatError, match=f"one.json: .*{why}"):
        Episode.from_json(broken(episode.data, **changes), "one.json")


@pytest.mark.parametrize("text", ["", "{", "[1, 2]", '{"format": NaN}', b"\xff\xfe{", None, 3])
def test_text_that_is_no_episode_is_refused(text):
    """No JSON, no object, a word that JSON does not have."""
    with pytest.raises(FormatError, match=r"one\.json: "):
        Episode.from_json(text, "one.json")


def test_keep_beyond_the_list_is_refused():
    """Nothing can be kept of a list that is shorter."""
    column = {key: {"shape": [2], "values": v} for key, v in (("keep", [0, 3]), ("add", [1, 0]), ("flat", [5, 6]))}
    with pytest.raises(FormatError, match="keep 3 of a list of 1"):
        unragged({"ragged": True, **column})


@pytest.mark.parametrize(
    ("world", "policy", "options", "most"),
    [
        ("CVRP-v0", "nearest", {"num_loc": 50, "seed": 7, "rows": (3,)}, 12_000),
        ("CVRP-v0", "nearest", {"num_loc": 1000}, 130_000),
        ("TruckDrone-v0", "greedy", {"num_drones": 3, "num_customers": 10, "seed": 3, "rows": (5,)}, 35_000),
    ],
)
def test_episodes_are_small(world, policy, options, most):
    """So many bytes at most: a page with three of them is mostly its own code."""
    assert len(compare(f"milkrun/{world}", [policy], **options)[0][0].to_json()) <= most
