"""Names -> worlds: ids and their short forms, versions, plugins of other packages."""

from __future__ import annotations

import sys
import types
import warnings
from dataclasses import dataclass
from typing import Any

import gymnasium
import pytest

import milkrun
from milkrun.core import registry
from milkrun.core.config import RESERVED, option
from milkrun.core.errors import ConfigError, MissingExtra, RegistryError
from milkrun.core.world import World
from milkrun.routing.cvrp import CVRP
from tests.core.toys import Lantern, LanternConfig


@pytest.fixture(autouse=True)
def own_registry(monkeypatch):
    """A registry of this test alone: what it registers, loads or warns about is gone afterwards."""
    monkeypatch.setattr(registry, "_worlds", dict(registry._worlds))
    monkeypatch.setattr(registry, "_warned", set())
    monkeypatch.setattr(registry, "_plugins_loaded", True)
    known = set(gymnasium.registry)
    yield
    for id in set(gymnasium.registry) - known:
        del gymnasium.registry[id]


@dataclass
class Entry:
    """A packaging entry point, with the attributes that the registry reads."""

    load: Any
    name: str = "worlds"
    value: str = "pack:worlds"
    dist: Any = None


@pytest.fixture
def plugins(monkeypatch):
    """Pretends that other packages are installed."""

    def install(*entries: Entry) -> None:
        monkeypatch.setattr(registry, "_plugins_loaded", False)
        monkeypatch.setattr(registry, "entry_points", lambda group: entries if group == "milkrun.worlds" else ())

    return install


# -- ids -----------------------------------------------------------------------------------------------------------


def test_the_worlds_of_this_library():
    """Sorted, by family, with what can be known without importing them."""
    worlds = milkrun.list_worlds()
    assert worlds == sorted(worlds) and {"milkrun/CVRP-v0", "milkrun/TSP-v0"} <= set(milkrun.list_worlds("routing"))
    assert milkrun.list_worlds("no such family") == []
    spec = milkrun.world_spec("milkrun/CVRP-v0")
    assert (spec.namespace, spec.name, spec.version, spec.family) == ("milkrun", "CVRP", 0, "routing")
    assert (spec.agents, spec.action, spec.entry_point) == ("single", "discrete", "milkrun.routing.cvrp:CVRP")
    assert "kool50" in spec.presets and set(spec.presets) == set(CVRP.Config.presets)


@pytest.mark.parametrize("id", ["CVRP-v0", "cvrp-v0", "milkrun/cvrp-v0", "MILKRUN/CVRP-V0", "Milkrun/Cvrp-v0"])
def test_short_forms_with_a_version_are_silent(id):
    """Without the namespace, in any letter case."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert milkrun.world_spec(id).id == "milkrun/CVRP-v0"


@pytest.mark.parametrize("id", ["CVRP", "milkrun/cvrp", "cvrp"])
def test_a_missing_version_means_the_newest_and_warns_once(id):
    """The warning names the full id; the second use is silent."""
    with pytest.warns(UserWarning, match="milkrun/CVRP-v0"):
        assert milkrun.world_spec(id).id == "milkrun/CVRP-v0"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert milkrun.make(id, 2).num_envs == 2


def test_versions():
    """v2 is newer than v1, and v10 than both; an older one works and warns once; one never registered does not."""
    for version in (1, 10, 2):
        milkrun.register(f"shop/Cart-v{version}", Lantern, kwargs={"longest": 10 + version})
    with pytest.warns(UserWarning, match="shop/Cart-v10"):
        assert milkrun.world_spec("shop/cart").version == 10
    with pytest.warns(UserWarning, match=r"shop/Cart-v2 .*shop/Cart-v10"):
        assert milkrun.make("shop/Cart-v2").config.longest == 12
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        milkrun.make("shop/Cart-v2")
        milkrun.make("shop/Cart-v10")
    with pytest.raises(RegistryError):
        milkrun.world_spec("shop/Cart-v3")


@pytest.mark.parametrize(
    ("id", "close"),
    [("milkrun/CVPR-v0", "milkrun/CVRP-v0"), ("CVPR", "CVRP"), ("milkrun/TSP-v1", "milkrun/TSP-v0"), ("TPS", "TSP")],
)
def test_an_unknown_id_is_refused_with_close_ones(id, close):
    """It is a KeyError too, for callers that do not know our errors; the text is a plain sentence."""
    with pytest.raises(KeyError) as caught:
        milkrun.make(id)
    assert isinstance(caught.value, RegistryError)
    assert f"no world '{id}'" in str(caught.value) and close in str(caught.value)


@pytest.mark.parametrize("id", ["", "/", "a/b/c-v0", "nonsense", 5, None, ["TSP"]])
def test_invalid_ids_are_refused(id):
    """The error is one of the library."""
    with pytest.raises(RegistryError):
        milkrun.world_spec(id)


# -- register ------------------------------------------------------------------------------------------------------


def test_registering_a_world_of_ones_own():
    """By class or by name; make and list find it, Gymnasium knows its id, keyword defaults reach the configuration."""
    spec = milkrun.register("shop/Lamp-v0", Lantern, title="Lamps", kwargs={"longest": 9})
    milkrun.register("shop/Later-v0", "tests.core.toys:Lantern")
    assert spec.family == "user" and milkrun.list_worlds("user") == ["shop/Lamp-v0", "shop/Later-v0"]
    assert milkrun.make("shop/Lamp-v0").config == LanternConfig(longest=9)
    assert milkrun.make("shop/Lamp-v0", longest=4).config == LanternConfig(longest=4)
    world = milkrun.make("shop/Later-v0", 3)
    assert isinstance(world, Lantern) and world.spec.id == "shop/Later-v0"
    assert "shop/Lamp-v0" in gymnasium.registry
    assert gymnasium.registry["shop/Lamp-v0"].kwargs == {"world_id": "shop/Lamp-v0"}
    milkrun.register("shop/Quiet-v0", Lantern, gymnasium=False)
    assert "shop/Quiet-v0" not in gymnasium.registry


def test_declarations_of_the_class_are_no_keywords_of_register():
    """`presets`, `agents` and `action` come from the class; unknown keywords are refused by name."""
    spec = milkrun.register("shop/Lamp-v0", CVRP)
    assert spec.presets == tuple(CVRP.Config.presets) and (spec.agents, spec.action) == ("single", "discrete")
    with pytest.raises(RegistryError, match="no keyword 'gymnasum'; did you mean 'gymnasium'"):
        milkrun.register("shop/Typo-v0", CVRP, gymnasum=False)
    assert "shop/Typo-v0" not in milkrun.list_worlds()


def test_the_same_line_twice_is_one():
    """A module that registers on import and an entry point may say the same."""
    first = milkrun.register("shop/Lamp-v0", Lantern, title="a lamp")
    assert milkrun.register("shop/Lamp-v0", Lantern, title="a lamp") is first
    with pytest.raises(RegistryError, match="registered already"):
        milkrun.register("shop/Lamp-v0", Lantern, title="another lamp")


def test_a_name_that_one_other_package_has_needs_no_namespace():
    """And what is offered for a wrong name is a name that is accepted."""
    spec = milkrun.register("shop/Lamp-v0", Lantern)
    assert milkrun.world_spec("Lamp-v0") is milkrun.world_spec("lamp-v0") is spec
    milkrun.register("garden/Lamp-v0", CVRP)
    with pytest.raises(RegistryError, match=r"no world 'Lamp-v0'; did you mean '\w+/Lamp-v0' or '\w+/Lamp-v0'\?"):
        milkrun.world_spec("Lamp-v0")


def test_a_taken_id_is_refused_unless_forced():
    """The first stays until force=True replaces it."""
    milkrun.register("shop/Lamp-v0", Lantern)
    with pytest.raises(RegistryError, match=r"shop/Lamp-v0.*force=True"):
        milkrun.register("shop/Lamp-v0", CVRP)
    assert milkrun.world_spec("shop/Lamp-v0").load() is Lantern
    milkrun.register("shop/Lamp-v0", CVRP, force=True)
    assert milkrun.world_spec("shop/Lamp-v0").load() is CVRP


@pytest.mark.parametrize(
    "id", ["Lamp-v0", "shop/Lamp", "shop/Lamp-v", "shop/Lamp-vx", "a/b/Lamp-v0", "shop/La mp-v0", "", 5]
)
def test_a_malformed_id_is_refused(id):
    """It must read namespace/Name-vN."""
    before = milkrun.list_worlds()
    with pytest.raises(RegistryError, match="namespace/Name-vN"):
        milkrun.register(id, Lantern)
    assert milkrun.list_worlds() == before


@dataclass(frozen=True, kw_only=True)
class GreedyConfig(LanternConfig):
    seed: int = option(0, "a keyword of make")
    layout: str = option("", "and another")


class Greedy(Lantern):
    Config = GreedyConfig


def test_reserved_names_are_refused():
    """A configuration cannot use make's keywords, whether the class is given or named."""
    assert RESERVED == set(
        "id num_envs api preset config seed first_row autoreset autoreset_mode illegal threads debug layout copy "
        "render_mode seed_rule max_episode_steps world world_id infos monitor device batch_size generator "
        "generator_params stepping pad_actions features data_dir train_file val_file test_file val_dataloader_names "
        "test_dataloader_names dataset_cls".split()
    )
    with pytest.raises(ConfigError, match=r"\['layout', 'seed'\]"):
        milkrun.register("shop/Greedy-v0", Greedy)
    assert "shop/Greedy-v0" not in milkrun.list_worlds()
    with pytest.raises(ConfigError, match="layout"):
        milkrun.register("shop/Greedy-v0", f"{__name__}:Greedy")
        milkrun.make("shop/Greedy-v0")


def test_no_world_of_this_library_uses_a_reserved_name():
    """Neither do their synonyms."""
    for id in milkrun.list_worlds():
        config = milkrun.world_spec(id).load().Config
        assert not RESERVED & ({*config.__dataclass_fields__} | {*config.synonyms})


def test_an_entry_point_that_does_not_lead_to_a_world(monkeypatch):
    """A missing package of a world with extras names the extra; anything else that is no World is a RegistryError."""
    milkrun.register("shop/Heavy-v0", "no_such_package.worlds:Heavy", extras=("clutter",))
    with pytest.raises(MissingExtra, match=r"no_such_package.*\.\[clutter\]"):
        milkrun.make("shop/Heavy-v0")
    hollow = types.ModuleType("hollow")
    hollow.Thing = dict
    monkeypatch.setitem(sys.modules, "hollow", hollow)
    milkrun.register("shop/Wrong-v0", "hollow:Other")
    with pytest.raises(RegistryError, match="hollow:Other"):
        milkrun.make("shop/Wrong-v0")
    milkrun.register("shop/Thing-v0", "hollow:Thing")
    with pytest.raises(RegistryError, match="hollow:Thing"):
        milkrun.make("shop/Thing-v0")
    with pytest.raises(RegistryError, match="World"):
        milkrun.register("shop/Dict-v0", dict)


# -- bindings and listeners -----------------------------------------------------------------------------------------


def test_bindings_and_listeners_are_registered_from_outside(monkeypatch):
    """Core names none: `make` passes its arguments to the entry of `api`, `register` calls the listeners requested."""
    heard = []
    monkeypatch.setitem(registry.bindings, "mine", lambda id, num_envs, **keywords: (id, num_envs, keywords["seed"]))
    monkeypatch.setitem(registry.on_register, "choir", lambda spec, force: heard.append((spec.id, force)))
    milkrun.register("shop/Lamp-v0", Lantern)
    milkrun.register("shop/Quiet-v0", Lantern, choir=False)
    milkrun.register("shop/Lamp-v0", Lantern, force=True)
    assert heard == [("shop/Lamp-v0", False), ("shop/Lamp-v0", True)]
    assert milkrun.make("shop/Lamp-v0", 3, api="mine", seed=5) == ("shop/Lamp-v0", 3, 5)
    monkeypatch.delitem(registry.bindings, "mine")
    with pytest.raises(ConfigError, match="api='mine' is unknown"):
        milkrun.make("shop/Lamp-v0", api="mine")


def test_a_world_is_made_and_checked_without_any_binding(monkeypatch):
    """`check_world` needs none: it finds in this toy, which documents nothing, what it finds with them."""
    findings = milkrun.check_world(Lantern)
    monkeypatch.setattr(registry, "bindings", {})
    monkeypatch.setattr(registry, "on_register", {})
    milkrun.register("shop/Lamp-v0", Lantern)
    assert "shop/Lamp-v0" not in gymnasium.registry
    assert milkrun.check_world("shop/Lamp-v0") == findings


# -- plugins -------------------------------------------------------------------------------------------------------


def test_plugins_are_loaded_at_the_first_listing(plugins):
    """Once; a known id does not load them."""
    woken = []

    def worlds() -> None:
        woken.append(1)
        milkrun.register("pack/Crane-v0", Lantern)

    plugins(Entry(lambda: worlds))
    milkrun.world_spec("milkrun/TSP-v0")
    assert woken == []
    assert "pack/Crane-v0" in milkrun.list_worlds()
    milkrun.list_worlds()
    assert woken == [1]


def test_plugins_are_loaded_for_an_unknown_id(plugins):
    """`make` of a plugin's world works without listing first."""
    plugins(Entry(lambda: lambda: milkrun.register("pack/Crane-v0", Lantern)))
    assert isinstance(milkrun.make("pack/Crane-v0"), World)


def test_a_plugin_that_raises_becomes_a_warning(plugins):
    """It names the distribution; the others are registered all the same."""

    def broken() -> None:
        raise ValueError("no cranes today")

    def unloadable() -> Any:
        raise ImportError("cranelib is missing")

    plugins(
        Entry(lambda: broken, dist=types.SimpleNamespace(name="cranes")),
        Entry(unloadable, value="hoists:worlds"),
        Entry(lambda: lambda: milkrun.register("pack/Lift-v0", Lantern), dist=types.SimpleNamespace(name="lifts")),
    )
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert "pack/Lift-v0" in milkrun.list_worlds()
    texts = [str(w.message) for w in caught]
    assert len(texts) == 2
    assert "cranes" in texts[0] and "no cranes today" in texts[0]
    assert "hoists:worlds" in texts[1] and "cranelib is missing" in texts[1]
