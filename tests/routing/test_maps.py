"""Maps: search path, meaning of their files, and missing data."""

from __future__ import annotations

import importlib.util
import json
import math
from pathlib import Path

import numpy as np
import pytest

from milkrun.core.errors import ConfigError, MapError
from milkrun.routing.distance import great_circle
from milkrun.routing.maps import BIN_M3, EUR_PER_KG, EUR_PER_KM, KG_PER_M3, available_maps, load_map
from milkrun.routing.maps.files import BUNDLED
from tests.routing.map_files import DEGREES, GEO, KM, ROADS, put

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(autouse=True)
def no_maps_of_the_user(monkeypatch):
    monkeypatch.delenv("MILKRUN_MAPS", raising=False)


def test_a_map_in_kilometres(tmp_path):
    """The box is 4 by 4 km; the depot comes first, without other data."""
    town = load_map("town", put(tmp_path, "town.csv", KM))
    assert town.ids == ("yard", "a", "b", "c")
    assert (town.n, town.km_per_unit, town.width_km, town.height_km) == (3, 4, 4, 4)
    assert town.locs.tolist() == [[0, 0.5], [0.25, 0], [1, 0], [0, 1]]
    assert town.stream == ("", "glass", "paper", "glass")
    assert town.volume_m3.tolist() == [0, 2.5, 3, 2.5]
    assert (town.fill_mean.tolist(), town.fill_std.tolist()) == ([0, 0.1, 0.2, 0], [0, 0.05, 0, 0])
    assert (town.title, town.synthetic, town.dist) == ("town", False, None)


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_a_table_of_a_spreadsheet_with_decimal_commas_is_read(tmp_path, end):
    """Semicolons between cells, 2,5 for 2.5, empty columns at the end; roads likewise."""

    def decimal_commas(text, last):
        return text.replace(",", ";").replace(".", ",").replace("\n", f"{last}{end}").encode("utf-8-sig")

    put(put(tmp_path, "town.csv", decimal_commas(KM, ";")), "town.dist.csv", decimal_commas(ROADS, ""))
    put(put(tmp_path, "plain.csv", KM), "plain.dist.csv", ROADS)
    town, plain = load_map("town", tmp_path), load_map("plain", tmp_path)
    for name in ("locs", "volume_m3", "fill_mean", "fill_std", "dist"):
        np.testing.assert_array_equal(getattr(town, name), getattr(plain, name))
    assert (town.ids, town.stream) == (plain.ids, plain.stream)


def test_unknown_columns_are_skipped(tmp_path, caplog):
    """An additional address changes nothing; a name one letter off a known column is logged."""
    rows = KM.splitlines()
    more = "".join(f"{row},{cell}\n" for row, cell in zip(rows, ["address", "a", "b", "", "c"], strict=True))
    assert load_map("more", put(tmp_path, "more.csv", more)).ids == ("yard", "a", "b", "c")
    assert not caplog.text
    load_map(
        "slip",
        put(
            tmp_path,
            "slip.csv",
            DEGREES.replace("kind,", "kind,steam,").replace("t,6", "t,x,6").replace("n,6", "n,x,6"),
        ),
    )
    assert "slip.csv, line 1, column 'steam' is not read; did you mean 'stream'?" in caplog.text
    put(tmp_path, "g.geojson", json.dumps(GEO).replace('"stream"', '"height"'))
    assert load_map("g", tmp_path).stream is None


def test_degrees_are_projected(tmp_path):
    """0.01 degrees north is 1.112 km; 0.03 east at a mean latitude of 60.0033 is 3.33585 cos(60.0033) = 1.66775."""
    town = load_map("t", put(tmp_path, "t.csv", DEGREES))
    assert town.y[1] == pytest.approx(6371.0088 * math.radians(0.01), abs=1e-9)
    assert town.y[1] == pytest.approx(1.11195, abs=1e-5)
    assert town.x[2] == pytest.approx(1.66775, abs=1e-5)
    assert town.km_per_unit == town.x[2]
    assert town.locs.max() == 1
    assert town.degrees.tolist() == [[60, 10], [60.01, 10], [60, 10.03]]
    assert town.side("haversine") == pytest.approx(math.sqrt(1.11195 * 1.66775), abs=1e-4)
    assert town.side() == pytest.approx(math.sqrt(1.11195 / 1.66775), abs=1e-4)


def test_the_projection_agrees_with_the_great_circle():
    """Within tan(40 deg) times 0.03 deg times 8.3 km = 3.65 m: the cosine of the mean latitude is used for all."""
    town = load_map("synthetic-town").filter("glass")
    flat = np.hypot(town.x[:, None] - town.x, town.y[:, None] - town.y)
    round_ = [[great_circle(*p, *q) for q in town.degrees] for p in town.degrees]
    assert np.abs(flat - round_).max() < 0.00365


def test_a_map_may_lie_across_the_180th_meridian(tmp_path):
    """0.2 degrees of longitude on the equator are 22.239 km, not the way around the globe."""
    text = "id,kind,lat,lon\nd,depot,0,179.9\nb,bin,0,-179.9\n"
    assert load_map("f", put(tmp_path, "f.csv", text)).width_km == pytest.approx(22.239, abs=1e-3)


def test_geojson_gives_the_same_map(tmp_path):
    """Longitude first, height ignored, a number as an id."""
    town = load_map("g", put(tmp_path, "g.geojson", json.dumps(GEO)))
    assert (town.ids, town.stream) == (("yard", "1"), ("", "glass"))
    assert town.degrees.tolist() == [[60, 10], [60.01, 10]]


def test_roads_come_from_the_matrix_file_of_the_map(tmp_path):
    """Rows and columns in any order, with asymmetric distances."""
    town = load_map("t", put(put(tmp_path, "t.csv", KM), "t.dist.csv", ROADS))
    assert town.dist.tolist() == [[0, 3, 6, 4], [2.5, 0, 3, 5], [5, 3, 0, 8], [1, 2, 3, 0]]
    assert town.matrix([3, 1]).tolist() == [[0, 4, 3], [1, 0, 2], [2.5, 5, 0]]
    assert town.filter("glass").dist.tolist() == [[0, 3, 4], [2.5, 0, 5], [1, 2, 0]]


def test_a_stream_keeps_the_unit_of_the_whole_map(tmp_path):
    """Without the paper bin the box would be 1 km by 4."""
    glass = load_map("t", put(tmp_path, "t.csv", KM)).filter(stream="glass")
    assert (glass.ids, glass.km_per_unit) == (("yard", "a", "c"), 4)
    assert glass.locs.tolist() == [[0, 0.5], [0.25, 0], [0, 1]]
    assert glass.volume_m3.tolist() == [0, 2.5, 2.5]
    assert glass.filter(None) is glass


def test_bins_are_chosen_in_the_order_given(tmp_path):
    """By number, starting at 1."""
    some = load_map("t", put(tmp_path, "t.csv", KM)).choose([3, 1])
    assert (some.ids, some.x.tolist()) == (("yard", "c", "a"), [0, 0, 1])


def test_a_map_is_read_only(tmp_path):
    """Its arrays cannot be written to."""
    town = load_map("t", put(tmp_path, "t.csv", KM))
    with pytest.raises(ValueError, match="read-only"):
        town.x[0] = 1


def test_the_sidecar_has_the_origin_of_a_map(tmp_path):
    """Missing keys are empty."""
    put(put(tmp_path, "t.csv", KM), "t.json", '{"title": "A town", "synthetic": true, "licence": "CC0"}')
    town = load_map("t", tmp_path)
    assert (town.title, town.synthetic, town.source, town.licence) == ("A town", True, "", "CC0")


@pytest.mark.parametrize("name", ["Rio Maior", "rio maior", "RIOMAIOR", "rio-maior", "rio_maior"])
@pytest.mark.parametrize("file", ["Rio Maior.csv", "rio_maior.csv", "riomaior.CSV"])
def test_names_ignore_case_and_spaces(tmp_path, name, file):
    """And - and _ are equivalent."""
    assert load_map(name, put(tmp_path, file, KM)).n == 3


def test_the_search_goes_from_the_folder_given_to_the_variable_to_the_bundled(tmp_path, monkeypatch):
    """The first match is used."""
    given, named = tmp_path / "given", tmp_path / "named"
    given.mkdir()
    named.mkdir()
    one_bin = "id,kind,x,y\nd,depot,0,0\nb,bin,1,1\n"
    assert load_map("synthetic-town").n == 150
    put(named, "Synthetic Town.csv", KM)
    monkeypatch.setenv("MILKRUN_MAPS", str(named))
    assert load_map("synthetic-town").n == 3
    put(given, "synthetic_town.csv", one_bin)
    put(given, "other.geojson", json.dumps(GEO))
    put(given, "other.json", "{}")
    put(given, "synthetic_town.dist.csv", "km,d,b\nd,0,1\nb,1,0\n")
    assert load_map("synthetic-town", given).n == 1
    assert load_map("synthetic-town").n == 3
    assert available_maps(given) == ["other", "synthetic_town"]
    assert available_maps() == ["Synthetic Town"]
    monkeypatch.delenv("MILKRUN_MAPS")
    assert available_maps() == ["synthetic-town"]


def test_the_error_on_a_missing_map_lists_the_available_ones(tmp_path):
    """And the page of the format; a MapError is a ConfigError."""
    put(tmp_path, "lisbon.csv", KM)
    said = r"no map 'Rio Maior' in .*available: lisbon, synthetic-town.*docs/maps\.md"
    with pytest.raises(ConfigError, match=said) as refused:
        load_map("Rio Maior", tmp_path)
    assert type(refused.value) is MapError
    assert (ROOT / "docs" / "maps.md").is_file()


def test_two_files_of_one_name_are_refused(tmp_path):
    """Two files of one name are ambiguous."""
    put(put(tmp_path, "t.csv", KM), "T.geojson", json.dumps(GEO))
    with pytest.raises(MapError, match=r"'t' may be T\.geojson or t\.csv"):
        load_map("t", tmp_path)


def test_an_invalid_folder_is_refused(tmp_path, monkeypatch):
    """Given as argument or by the variable."""
    with pytest.raises(MapError, match=r"map_path names .*nowhere.*not a folder"):
        load_map("synthetic-town", tmp_path / "nowhere")
    monkeypatch.setenv("MILKRUN_MAPS", str(tmp_path / "gone"))
    with pytest.raises(MapError, match=r"MILKRUN_MAPS names .*gone.*not a folder"):
        available_maps()


def test_missing_data_of_a_map_is_refused_by_name(tmp_path):
    """Degrees, a matrix, a stream, a bin."""
    town = load_map("t", put(tmp_path, "t.csv", KM))
    with pytest.raises(MapError, match="drawn in kilometres"):
        town.degrees  # noqa: B018
    with pytest.raises(MapError, match=r"no distance matrix: put t\.dist\.csv next to it"):
        town.matrix()
    with pytest.raises(MapError, match="no stream 'glas'; did you mean 'glass'"):
        town.filter("glas")
    with pytest.raises(MapError, match=r"no bin 4: bins are 1\.\.3"):
        town.choose([1, 4])
    with pytest.raises(MapError, match="chosen twice"):
        town.choose([1, 1])


def test_the_bundled_town_equals_the_output_of_its_script():
    """Otherwise run python scripts/make_synthetic_town.py."""
    spec = importlib.util.spec_from_file_location("make_synthetic_town", ROOT / "scripts" / "make_synthetic_town.py")
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    drawn = script.files()
    assert {path.name for path in BUNDLED.iterdir()} == drawn.keys()
    for name, text in drawn.items():
        assert (BUNDLED / name).read_text(encoding="utf-8") == text


def test_the_bundled_town_is_marked_as_synthetic():
    """1 depot, 50 sites of three streams, about 9 by 7 km, plausible fills."""
    town = load_map("synthetic-town")
    assert town.synthetic
    assert "synthetic" in town.title
    assert (town.n, town.streams) == (150, ("paper", "plastic", "glass"))
    assert [town.filter(s).n for s in town.streams] == [50, 50, 50]
    assert 8 < town.width_km < 9
    assert 6 < town.height_km < 7
    assert 40.00 <= town.lat.min() < town.lat.max() <= 40.06
    assert -0.05 <= town.lon.min() < town.lon.max() <= 0.05
    assert set(town.volume_m3[1:]) == {BIN_M3}
    assert (town.fill_mean[1:] >= 0.03).all()
    assert (town.fill_mean <= 0.30).all()
    assert (town.fill_std[1:] > 0).all()


def test_units_for_reports():
    """A full bin of glass weighs 475 kg and is worth 35.91 EUR, the cost of 35.91 km."""
    assert BIN_M3 * KG_PER_M3["glass"] == 475
    assert BIN_M3 * KG_PER_M3["glass"] * EUR_PER_KG["glass"] == pytest.approx(35.91 * EUR_PER_KM)
    assert BIN_M3 * KG_PER_M3["paper"] * EUR_PER_KG["paper"] == pytest.approx(8.53125)
    assert BIN_M3 * KG_PER_M3["plastic"] * EUR_PER_KG["plastic"] == pytest.approx(27.72575)
