"""Broken map files: each fault is a FormatError with file, line and column, and no bytes raise another exception."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from milkrun.core.errors import FormatError
from milkrun.routing.maps import load_map
from milkrun.routing.maps.files import read_map
from tests.routing.map_files import GEO, KM, ROADS, put


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("a,bin,2,1", "a,bin,2,nan", "line 2, column y: 'nan' is not a number"),
        ("a,bin,2,1", "a,bin,2,", "line 2, column y: a number is needed here"),
        ("a,bin,2,1", "a,bin,2,1e9", "line 2, column y: 1000000000.0 is not within -100000..100000"),
        ("a,bin", "a,tree", "line 2, column kind: 'tree' is neither depot nor bin"),
        ("a,bin", ",bin", "line 2, column id: a text is needed here"),
        ("b,bin", "a,bin", "line 3, column id: 'a' is also in line 2"),
        ("yard,depot", "yard,bin", "column kind: a map has exactly one depot, this has 0"),
        ("c,bin,1,5,glass,2.5,0,0", "c,depot,1,5,,,,", "exactly one depot, this has 2: line 4, line 5"),
        (
            "0.1,0.05",
            "10,5",
            "line 2, column fill_mean: 10.0 is not within 0..1: a share of the bin a day, not percent",
        ),
        ("0.1,0.05", "0.1,-1", "line 2, column fill_std: -1.0 is not within 0..10"),
        ("0.1,0.05", ",0.05", "line 2, column fill_mean: a number is needed here"),
        ("2.5,0,0", "2.5,0,0.1", "line 5, column fill_std: 0.1 around a mean of 0"),
        ("2.5,0.1", "0,0.1", "line 2, column volume_m3: 0.0 is not within 1e-06..1e+06"),
        ("a,bin,2,1,glass", "a,bin,2,1,", "line 2, column stream: a text is needed here"),
        ("1,3,,,,", "1,3,glass,,,", "line 4, column stream: the depot has none"),
        ("c,bin,1,5,glass,2.5,0,0", "c,bin,1,5,glass,2.5,0", "line 5: 7 cells under 8 columns"),
        ("fill_mean", "fil_mean", "line 2, column fill_mean: fill_mean and fill_std go together"),
        ("x,y,", "x,x,", "line 1, column 4: 'x' is there twice"),
        ("x,y,", "x,lat,", "line 1: the header needs id, kind and either lat and lon or x and y"),
        ("a,bin", '"a,bin', "not a CSV table"),
        (KM, "", "line 1: the header needs id, kind"),
        (KM, "id,kind,x,y\nd,depot,0,0\n", "a map has 1..10000 bins, this has 0"),
        (KM, "id,kind,x,y\nd,depot,1,1\nb,bin,1,1\n", "all places are the same one"),
        (KM, "id,kind,lat,lon\nd,depot,91,0\nb,bin,1,1\n", "line 2, column lat: 91.0 is not within -90..90"),
        (KM, "id,kind,lat,lon\nd,depot,1,0\nb,bin,1,200\n", "line 3, column lon: 200.0 is not within -180..180"),
        (
            KM,
            "id,kind,x,y,fill_mean\nd,depot,0,0,\nb,bin,1,1,0.1\n",
            "line 3, column fill_std: fill_mean and fill_std go",
        ),
        (KM, b"id,kind,x,y\nd,depot,0,0\nb\xff,bin,1,1\n", "line 3: byte 0xff is not UTF-8 text"),
    ],
)
def test_a_broken_table_is_refused(tmp_path, old, new, said):
    """With line and column, and the file."""
    text = new if old == KM else KM.replace(old, new, 1)
    assert text != KM
    with pytest.raises(FormatError) as refused:
        load_map("t", put(tmp_path, "t.csv", text))
    assert str(refused.value).startswith(str(tmp_path / "t.csv"))
    assert said in str(refused.value)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("yard,4,0,3,6", "yard,4,0,3", "line 2: 3 distances for 4 ids"),
        ("yard,4,0", "yard,4,1", "line 2, column yard: '1' must be 0 from a place to itself"),
        ("a,5", "a,-5", "line 3, column c: '-5' is not within 0..1e6 km"),
        ("a,5", "a,nan", "line 3, column c: 'nan' is not within 0..1e6 km"),
        ("km,c", "km,d", "line 1: the first row must name each id of the map once; see 'c', 'd'"),
        ("b,8", "a,8", "the first column must name each id of the map once; see 'b'"),
        (ROADS, "", "the first row must name each id of the map once"),
    ],
)
def test_a_broken_matrix_is_refused(tmp_path, old, new, said):
    """With line and column, and the file."""
    put(put(tmp_path, "t.csv", KM), "t.dist.csv", ROADS.replace(old, new, 1))
    with pytest.raises(FormatError) as refused:
        load_map("t", tmp_path)
    assert str(refused.value).startswith(str(tmp_path / "t.dist.csv"))
    assert said in str(refused.value)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[", "line 1, column 2: not JSON"),
        ("{}", "a GeoJSON map is a FeatureCollection"),
        (json.dumps(GEO).replace("60.01", "NaN"), "NaN is not a number of JSON"),
        (json.dumps(GEO).replace("60.01", "1e999"), "feature 2, property lat: inf is not within -90..90"),
        (json.dumps(GEO).replace("60.01", "true"), "feature 2, property lat: True is not a number"),
        (json.dumps(GEO).replace("[10, 60]", "[10]"), "feature 1, property coordinates: must be [longitude, latitude]"),
        (json.dumps(GEO).replace('"Point"', '"Line"', 1), "feature 1: each feature has properties and a Point"),
        ("[" * 100_000, "not a map: its brackets are nested too deeply"),
        (json.dumps(GEO).replace("60.01", "1" * 5000), "not JSON: a number of 5000 digits; at most 300 are allowed"),
        (json.dumps(GEO).replace("60.01", "[" * 400 + "]" * 400), "feature 2, property lat: [[[[[["),
        (json.dumps(GEO).replace('"id": 1', '"id": null'), "feature 2, property id: a text is needed here"),
        (json.dumps(GEO).replace('"id": 1', '"id": []'), "feature 2, property id: [] is not a text"),
    ],
)
def test_broken_geojson_is_refused(tmp_path, text, said):
    """With feature and property, and the file."""
    with pytest.raises(FormatError) as refused:
        load_map("g", put(tmp_path, "g.geojson", text))
    assert str(refused.value).startswith(str(tmp_path / "g.geojson"))
    assert said in str(refused.value)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"synthetic": "yes"}', "key synthetic: 'yes' is not a true or false"),
        ('{"license": "CC0"}', "key license: is not known; did you mean 'licence'"),
        ("[]", "must be an object with title, synthetic, source, licence"),
        ("{", "not JSON"),
    ],
)
def test_a_broken_sidecar_is_refused(tmp_path, text, said):
    """With its key."""
    put(put(tmp_path, "t.csv", KM), "t.json", text)
    with pytest.raises(FormatError, match=r"t\.json") as refused:
        load_map("t", tmp_path)
    assert said in str(refused.value)


@given(
    st.sampled_from(["t.csv", "t.geojson", "t.dist.csv", "t.json"]),
    st.one_of(st.binary(max_size=80), st.text(alphabet=',;"\n\r{}[]:abkmxyidn.0-1', max_size=60).map(str.encode)),
    st.integers(0, 200),
)
def test_random_bytes_raise_only_format_errors(tmp_path_factory, name, raw, place):
    """Random bytes inserted into any of the files of a map."""
    folder = tmp_path_factory.mktemp("map")
    whole = {"t.csv": KM, "t.geojson": json.dumps(GEO), "t.dist.csv": ROADS, "t.json": '{"title": "t"}'}
    table = "t.geojson" if name == "t.geojson" else "t.csv"
    good = whole[name].encode()
    put(put(folder, table, whole[table]), name, good[:place] + raw + good[place:])
    try:
        read_map(folder / table)
    except FormatError as refused:
        assert str(refused).startswith(str(folder))
