"""Configuration: the order of its sources, refused values with their messages, and JSON."""

from __future__ import annotations

import json
import math
from contextlib import suppress
from dataclasses import dataclass, fields
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

import milkrun
from milkrun.core.config import Config, option
from milkrun.core.errors import ConfigError, MilkrunError, did_you_mean
from milkrun.routing.cvrp import CVRPConfig
from milkrun.routing.tsp import TSPConfig
from tests.core.toys import Lantern, LanternConfig


@dataclass(frozen=True, kw_only=True)
class VanConfig(Config):
    """One option of each kind."""

    presets: ClassVar[Any] = {"big": {"seats": 9, "colour": "red"}}
    synonyms: ClassVar[Any] = {"chairs": "seats"}

    seats: int = option(3, "places to sit", low=1, high=20)
    colour: str = option("blue", "of the paint", choices=("blue", "red"))
    range_km: float | None = option(None, "None = no limit", low=0)
    doors: int | str = option("auto", "how many", low=2, words=("auto",))
    electric: bool = option(False, "or not")


def test_later_sources_win():
    """defaults < preset < config < overrides, option by option."""
    assert VanConfig.build() == VanConfig(seats=3, colour="blue")
    assert VanConfig.build("big") == VanConfig(seats=9, colour="red")
    assert VanConfig.build("big", {"seats": 5}) == VanConfig(seats=5, colour="red")
    assert VanConfig.build("big", {"seats": 5, "doors": 4}, seats=6) == VanConfig(seats=6, colour="red", doors=4)


def test_a_whole_config_replaces_the_preset():
    """An instance says every option, its defaults too."""
    assert VanConfig.build("big", VanConfig(doors=4)) == VanConfig(seats=3, colour="blue", doors=4)


def test_make_builds_in_the_same_order(tmp_path):
    """Through the front door: the kool50 preset, a JSON file over it, a keyword over both."""
    path = tmp_path / "run.json"
    path.write_text(json.dumps({"capacity": 44, "max_demand": 5}))
    world = milkrun.make("milkrun/CVRP-v0", 2, preset="kool50", config=str(path), max_demand=7)
    assert (world.config.num_loc, world.config.capacity, world.config.max_demand) == (50, 44, 7)
    assert world.action_mask.shape == (2, 51)


@pytest.mark.parametrize(
    "config",
    [CVRPConfig(), CVRPConfig(num_loc=7, max_length=3.5, max_steps=None), TSPConfig(start="free"), VanConfig()],
)
def test_json_round_trip(config, tmp_path):
    """Written and read back it is equal, option by option, by string and by Path."""
    path = tmp_path / "c.json"
    config.to_json(path)
    assert type(config).build(config=path) == type(config).build(config=str(path)) == config
    assert set(json.loads(path.read_text())) == {f.name for f in fields(config)}


@pytest.mark.parametrize("id", milkrun.list_worlds())
def test_every_preset_is_written_and_read(id, tmp_path):
    """By `to_json`, and as the configuration that an episode keeps: JSON for any reader, and equal when it is read."""
    kind = milkrun.world_spec(id).load().Config
    for preset in (None, *kind.presets):
        config, path = kind.build(preset), tmp_path / "c.json"
        config.to_json(path)
        data = json.loads(path.read_text(), parse_constant=pytest.fail)
        assert kind.from_json(path) == config == kind.build(config=data), preset


@dataclass(frozen=True, kw_only=True)
class SpanConfig(Config):
    """Numbers without an end, several in one option, and texts that look like them."""

    reach: float = option(math.inf, "no limit")
    window: tuple[float, float] | None = option((-math.inf, math.inf), "open on both sides")
    name: str = option("inf", "a text")
    stop: float | str = option("inf", "a word of its own", words=("inf",))


def test_infinity_is_written_as_a_text_and_read_as_the_number(tmp_path):
    """JSON has no infinity; where an option takes a text, or lists the word, the text stays."""
    path = tmp_path / "c.json"
    SpanConfig().to_json(path)
    written = {"max_steps": None, "reach": "inf", "window": ["-inf", "inf"], "name": "inf", "stop": "inf"}
    assert json.loads(path.read_text()) == written
    read = SpanConfig.from_json(path)
    assert read == SpanConfig() and isinstance(read.window, tuple) and read.stop == "inf"
    with pytest.raises(ConfigError, match="reach = 'far': must be float"):
        SpanConfig(reach="far")


def test_numpy_numbers_are_numbers(tmp_path):
    """Sweeps hand them over; they are accepted, run, and can be written to JSON."""
    config = CVRPConfig(num_loc=np.int64(6), max_length=np.float32(9.0), capacity=np.int32(12))
    world = milkrun.make("milkrun/CVRP-v0", np.int64(2), config=config)
    world.reset(seed=np.uint32(3))
    assert world.locs.shape == (2, 7, 2) and world.max_length.tolist() == [9, 9]
    config.to_json(tmp_path / "c.json")
    assert CVRPConfig.build(config=tmp_path / "c.json") == config


def test_a_law_given_as_a_function_cannot_be_written_to_json(tmp_path):
    """The error names the option."""
    with pytest.raises(ConfigError, match="loc_distribution"):
        TSPConfig(loc_distribution=lambda rng, n: rng.random((n, 2))).to_json(tmp_path / "c.json")


@pytest.mark.parametrize(
    ("given", "close"),
    [({"num_locs": 5}, "num_loc"), ({"NUM_LOC": 5}, "num_loc"), ({"metrik": 5}, "metric")],
)
def test_an_unknown_key_is_refused_with_the_nearest_name(given, close):
    """By keyword, in a mapping, in a file, in replace: always the key and what was probably meant."""
    (key,) = given
    for attempt in (
        lambda: milkrun.make("milkrun/CVRP-v0", **given),
        lambda: milkrun.make("milkrun/CVRP-v0", config=given),
        lambda: CVRPConfig().replace(**given),
    ):
        with pytest.raises(ConfigError, match=f"'{key}'.*did you mean '{close}'"):
            attempt()


@pytest.mark.parametrize(
    ("word", "known", "offered"),
    [
        ("Foo", ["hfov", "size", "scene"], []),
        ("foo", ["fov", "hfov"], ["fov"]),
        ("config", ["token_file", "action_dim"], []),
        ("sed", ["seed", "side"], ["seed"]),
        ("'n51'", ["n20", "n50", "kool50"], ["n50"]),
        ("capcity", ["capacity", "vehicle_capacity"], ["capacity", "vehicle_capacity"]),
        ("map", ["map_path", "map_name", "max_steps"], ["map_name", "map_path"]),
        ("METRIK", ["metric"], ["metric"]),
        ("milkrun/Foo-v0", ["milkrun/TSP-v0", "milkrun/VRPP-v0"], []),
        ("milkrun/CVPR-v0", ["CVRP", "milkrun/CVRP-v0"], ["milkrun/CVRP-v0", "CVRP"]),
        ("lamp", ["a/Lamp-v0", "b/Lamp-v0"], ["a/Lamp-v0", "b/Lamp-v0"]),
    ],
)
def test_a_name_is_offered_only_if_it_is_close(word, known, offered):
    """A slip of a letter, or a part of a name, and nothing that shares some letters by chance or all ids' own."""
    hint = did_you_mean(word, known, listed=True)
    assert hint == (f"; did you mean {' or '.join(map(repr, offered))}?" if offered else "")


@pytest.mark.parametrize("word", ["n_envs", "num_env", "batch_size"])
def test_other_names_of_num_envs_are_recognised(word):
    with pytest.raises(ConfigError, match=f"'{word}': the number of rows is num_envs"):
        milkrun.make("milkrun/CVRP-v0", **{word: 4})


def test_replace_changes_some_options():
    """The rest stay, bounds are checked."""
    assert VanConfig(doors=4).replace(seats=8) == VanConfig(doors=4, seats=8)
    with pytest.raises(ConfigError, match=r"seats = 21: must be in 1\.\.20"):
        VanConfig().replace(seats=21)


def test_synonyms():
    """`vehicle_cap` is `capacity`; both at once is a contradiction."""
    assert milkrun.make("milkrun/CVRP-v0", vehicle_cap=40).config.capacity == 40
    assert VanConfig.build(config={"chairs": 4}).seats == 4
    with pytest.raises(ConfigError, match=r"(chairs|seats).*both"):
        VanConfig.build(config={"seats": 4, "chairs": 5})
    assert VanConfig.build(config={"seats": 4}, chairs=5).seats == 5


@pytest.mark.parametrize(
    ("option_name", "value", "words"),
    [
        ("seats", 0, r"in 1\.\.20"),
        ("seats", 2.0, "int"),
        ("seats", True, "int"),
        ("seats", "3", "int"),
        ("seats", None, "int"),
        ("colour", "rd", "'red'"),
        ("colour", 3, "str"),
        ("range_km", -1.0, ">= 0"),
        ("range_km", math.nan, ">= 0"),
        ("range_km", "far", "float or None"),
        ("doors", 1, ">= 2"),
        ("doors", "many", "'auto'"),
        ("electric", 1, "bool"),
        ("max_steps", 0, "1"),
        ("max_steps", 1.5, "int"),
        ("max_steps", "soon", "must be"),
        ("max_steps", 2**70, "must be"),
    ],
)
def test_a_bad_value_is_refused(option_name, value, words):
    """The option, the value and what is allowed stand in the sentence."""
    with pytest.raises(ConfigError, match=rf"VanConfig\.{option_name} = .*{words}"):
        VanConfig(**{option_name: value})


def test_values_at_their_bounds_are_fine():
    """1 and 20 seats, no range or an endless one, two doors or "auto", whole numbers for a float."""
    for given in ({"seats": 1}, {"seats": 20}, {"range_km": math.inf}, {"range_km": 0}, {"doors": 2}, {"max_steps": 1}):
        assert VanConfig(**given).as_dict() == {**VanConfig().as_dict(), **given}


@pytest.mark.parametrize("preset", ["n21", "KOOL20", 3, ["n20"]])
def test_an_unknown_preset_is_refused(preset):
    """With the close ones, or all."""
    with pytest.raises(ConfigError, match="preset"):
        milkrun.make("milkrun/CVRP-v0", preset=preset)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"{", "line 1"),
        (b'{\n"num_loc": 5,\n}', "line 3"),
        (b"[1, 2]", "JSON object"),
        (b"3", "JSON object"),
        (b"\xff\xfe\x00", "c.json"),
        (b'{"num_loc": "many"}', "num_loc"),
        (b'{"num_locs": 3}', "did you mean 'num_loc'"),
        (b'{"num_loc": NaN}', "num_loc"),
    ],
)
def test_a_bad_file_is_refused(tmp_path, content, words):
    """It names the file and line, or the option."""
    path = tmp_path / "c.json"
    path.write_bytes(content)
    with pytest.raises(ConfigError, match=words):
        milkrun.make("milkrun/CVRP-v0", config=path)


@pytest.mark.parametrize("path", ["no/such/file.json", ".", "", "nul\0byte"])
def test_a_file_that_cannot_be_read_is_refused(path):
    """In one sentence, whatever the operating system says."""
    with pytest.raises(ConfigError, match="configuration"):
        milkrun.make("milkrun/CVRP-v0", config=path)


@pytest.mark.parametrize("config", [3, [("num_loc", 5)], TSPConfig(), Path])
def test_something_else_is_no_config(config):
    """Not a list, not a class, not the configuration of another world."""
    with pytest.raises(ConfigError, match="CVRPConfig"):
        milkrun.make("milkrun/CVRP-v0", config=config)


def test_a_world_takes_only_its_own_config():
    """Also when made by its class."""
    with pytest.raises(ConfigError, match="LanternConfig"):
        Lantern(1, VanConfig())


def test_an_automatic_limit_where_there_is_none():
    """max_steps="auto" needs a world with a formula; routing has 4 (num_loc + 1)."""
    assert milkrun.make("milkrun/CVRP-v0", num_loc=9).max_steps == 40
    with pytest.raises(ConfigError, match="automatic max_steps"):
        Lantern(1, LanternConfig(max_steps="auto"))


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"min_loc": 1.0, "max_loc": 1.0}, "min_loc"),
        ({"max_loc": math.inf}, "max_loc"),
        ({"max_loc": 1e39}, "max_loc"),
        ({"capacity": 5}, "below max_demand = 9"),
        ({"num_loc": 0}, "num_loc = 0"),
        ({"num_loc": 10_001}, "num_loc"),
        ({"loc_distribution": "gaussian"}, "loc_distribution"),
        ({"metric": "euclidean"}, "did you mean 'euclid'"),
        ({"depot_type": "centre"}, "did you mean 'center'"),
    ],
)
def test_rules_of_routing(given, words):
    """Bounds and contradictions of the routing options; coordinates are float32, so the box must fit that."""
    with pytest.raises(ConfigError, match=words):
        milkrun.make("milkrun/CVRP-v0", **given)


@pytest.mark.parametrize("metric", ["euclid", "matrix", "manhattan"])
def test_a_trip_limit_must_reach_across_the_box(metric):
    """There and back across the unit square is 2.83, 4 in Manhattan; a drawn matrix is Euclidean."""
    least = 4.0 if metric == "manhattan" else 2 * math.sqrt(2)
    assert milkrun.make("milkrun/CVRP-v0", metric=metric, max_length=least + 0.1).config.max_length > least
    with pytest.raises(ConfigError, match="max_length"):
        milkrun.make("milkrun/CVRP-v0", metric=metric, max_length=least - 0.1)


def test_a_tsp_needs_two_nodes():
    """One node is no tour."""
    with pytest.raises(ConfigError, match=r"num_loc = 1: must be in 2"):
        milkrun.make("milkrun/TSP-v0", num_loc=1)


@pytest.mark.parametrize(
    ("keyword", "value"),
    [
        ("num_envs", 0),
        ("num_envs", -3),
        ("num_envs", 2.0),
        ("num_envs", True),
        ("num_envs", "4"),
        ("seed", -1),
        ("seed", 2**63),
        ("seed", 1.0),
        ("seed", True),
        ("seed", "7"),
        ("seed", [1, 2]),
        ("first_row", -1),
        ("first_row", 0.5),
        ("threads", 0),
        ("threads", 1.5),
        ("illegal", "ignore"),
        ("illegal", None),
        ("autoreset", "never"),
        ("api", "jax"),
        ("api", 3),
        ("api", [1]),
        ("illegal", np.zeros(2)),
        ("num_envs", 2**31),
        ("first_row", 2**63),
        ("first_row", 2**63 - 1),
        ("max_steps", 2**63),
        ("preset", [1]),
    ],
)
def test_keywords_of_make_are_checked(keyword, value):
    """Each is refused by its name."""
    with pytest.raises(ConfigError, match=keyword):
        milkrun.make("milkrun/TSP-v0", **{"num_envs": 2, keyword: value})


class Contrary:
    """Neither equal to anything, nor to be hashed, nor to be printed."""

    __hash__ = None  # type: ignore[assignment]

    def __eq__(self, other: object) -> bool:
        raise RuntimeError("eq")

    def __repr__(self) -> str:
        raise RuntimeError("repr")


STRANGE = [
    [1],
    [],
    {},
    {"a": 1},
    (),
    (None, None),
    (math.nan, 1.0),
    ("a", "b"),
    [[1]],
    set(),
    range(3),
    np.array([1, 2]),
    np.array(3),
    np.array([]),
    np.int8(3),
    np.uint64(2**64 - 1),
    np.float32(1.5),
    np.bool_(True),
    np.str_("x"),
    math.nan,
    math.inf,
    -math.inf,
    1e308,
    5e-324,
    0,
    -1,
    2**31,
    2**62,
    2**63,
    -(2**63) - 1,
    10**400,
    10**5000,
    1 + 2j,
    Decimal("NaN"),
    Decimal(3),
    Fraction(1, 3),
    Fraction(10**400),
    b"x",
    "",
    "x",
    "\0",
    None,
    True,
    object(),
    len,
    Contrary(),
    type,
    Ellipsis,
    np.datetime64("2020"),
    memoryview(b"abc"),
]


@pytest.mark.parametrize("keyword", "num_envs first_row seed threads autoreset illegal preset api".split())
def test_unusual_keywords_are_accepted_or_refused_in_a_sentence(keyword):
    """What `make` itself reads."""
    for value in STRANGE:
        if type(value) is int and keyword == "num_envs":
            value = max(value, 2**31)  # fewer rows may be too many for this machine, which is no error of ours
        with suppress(MilkrunError):
            milkrun.make("milkrun/TSP-v0", **{keyword: value})


@pytest.mark.parametrize("world_id", milkrun.list_worlds())
def test_unusual_values_are_accepted_or_refused_in_a_sentence(world_id):
    """Every option of every world: a configuration or an error of ours, never one of Python's."""
    config = milkrun.world_spec(world_id).load().Config
    for f in fields(config):
        for value in STRANGE:
            try:
                config.build(**{f.name: value})
            except MilkrunError as e:
                assert 0 < len(str(e)) < 1500
            except Exception as e:
                raise AssertionError(f"{f.name} given a {type(value).__name__}: {e!r}") from e


def test_numbers_become_pythons_own():
    """Where numpy's would wrap around in a rule: 4 * (40 + 1) does not fit 8 bits."""
    config = CVRPConfig(num_loc=np.int8(40), max_length=np.float32(3.5))
    assert type(config.num_loc) is int and config.max_length == 3.5 and type(config.max_length) is float
    assert milkrun.make("milkrun/CVRP-v0", config=config).max_steps == 164


def test_an_option_given_a_list_is_named():
    """A rule that is no word is refused as any other option is, in a configuration of several rules too."""
    with pytest.raises(ConfigError, match=r"TruckDroneConfig.rules = \[1\]: must be str"):
        milkrun.make("milkrun/TruckDrone-v0", rules=[1])
