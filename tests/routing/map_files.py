"""Files of small maps, for the tests of maps."""

from __future__ import annotations

KM = """id,kind,x,y,stream,volume_m3,fill_mean,fill_std
a,bin,2,1,glass,2.5,0.1,0.05
b,bin,5,1,paper,3,0.2,0
yard,depot,1,3,,,,
c,bin,1,5,glass,2.5,0,0
"""
DEGREES = "id,kind,lat,lon\nyard,depot,60,10\nnorth,bin,60.01,10\neast,bin,60,10.03\n"
ROADS = "km,c,yard,a,b\nyard,4,0,3,6\na,5,2.5,0,3\nb,8,5,3,0\nc,0,1,2,3\n"
GEO = {
    "type": "FeatureCollection",
    "features": [
        {
            "type": "Feature",
            "properties": {"id": "yard", "kind": "depot"},
            "geometry": {"type": "Point", "coordinates": [10, 60]},
        },
        {
            "type": "Feature",
            "properties": {"id": 1, "kind": "bin", "stream": "glass"},
            "geometry": {"type": "Point", "coordinates": [10, 60.01, 250.0]},
        },
    ],
}


def put(folder, name, text):
    """Writes a text or bytes under a name, and returns the folder."""
    (folder / name).write_bytes(text if isinstance(text, bytes) else text.encode())
    return folder
