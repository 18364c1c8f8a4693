"""Small instance files, and functions that create more, for the tests of the reader and of the replay."""

from __future__ import annotations

SQUARE = "1 0 0\n2 3 0\n3 3 4\n4 0 4\n"
TSP = f"NAME : square\nTYPE : TSP\nDIMENSION : 4\nEDGE_WEIGHT_TYPE : EUC_2D\nNODE_COORD_SECTION\n{SQUARE}EOF\n"
CVRP = (
    "NAME : A-n4-k2\nCOMMENT : (No of trucks: 2, Optimal value: 18)\nTYPE : CVRP\nDIMENSION : 4\n"
    f"EDGE_WEIGHT_TYPE : EUC_2D\nCAPACITY : 10\nNODE_COORD_SECTION\n{SQUARE}"
    "DEMAND_SECTION\n1 0\n2 5\n3 5\n4 5\nDEPOT_SECTION\n1\n-1\nEOF\n"
)
SOLOMON = """T4

VEHICLE
NUMBER     CAPACITY
  3         10

CUSTOMER
CUST NO.  XCOORD.   YCOORD.    DEMAND   READY TIME  DUE DATE   SERVICE   TIME

    0      0          0          0          0         100          0
    1      3          0          5         20          30          9
    2      3          4          5          0          40          9
    3      1          1          5          0          50          9
"""
PCVRPTW = (
    "NAME : T\nTYPE : PCVRPTW\nDIMENSION : 3\nVEHICLES : 2\nCAPACITY : 7\nSERVICE_TIME : 9\nEDGE_WEIGHT_TYPE : EUC_2D\n"
    "NODE_COORD_SECTION\n1 0 0\n2 1 1\n3 5 0\nDEMAND_SECTION\n1 0\n2 3\n3 4\n"
    "TIME_WINDOW_SECTION\n1 0 90\n2 5 10\n3 0 80\nPRIZE_SECTION\n1 0\n2 21\n3 18\nDEPOT_SECTION\n1\n-1\nEOF\n"
)
MDVRP = """2 3 2
15 10
0 8
1 3 0 1 5 1 2 1 2
2 3 4 1 5 1 2 1 2
3 0 4 1 5 1 2 1 2
4 0 0 0 0 0 0
5 3 5 0 0 0 0
"""
MDVRPTW = (
    "NAME : D\nTYPE : MDVRPTW\nDIMENSION : 5\nVEHICLES : 3\nCAPACITY : 10\nVEHICLES_MAX_DURATION : 40\n"
    "EDGE_WEIGHT_TYPE : EUC_2D\nNODE_COORD_SECTION\n1 0 0\n2 3 5\n3 1 1\n4 3 4\n5 0 4\n"
    "DEMAND_SECTION\n1 0\n2 0\n3 5\n4 5\n5 5\nSERVICE_TIME_SECTION\n1 0\n2 0\n3 2\n4 2\n5 2.5\n"
    "TIME_WINDOW_SECTION\n1 0 60\n2 0 60\n3 5 30\n4 0 40\n5 0 50\n"
    "VEHICLES_DEPOT_SECTION\n1 2\n2 1\n3 2\nDEPOT_SECTION\n1\n2\n-1\nEOF\n"
)
HFVRP = (
    f"NAME : H\nTYPE : HFVRP\nDIMENSION : 4\nVEHICLES : 3\nEDGE_WEIGHT_TYPE : EUC_2D\nNODE_COORD_SECTION\n{SQUARE}"
    "DEMAND_SECTION\n1 0\n2 5\n3 5\n4 5\nCAPACITY_SECTION\n1 10\n2 5\n3 10\n"
    "VEHICLES_FIXED_COST_SECTION\n1 500\n2 50\n3 500\nVEHICLES_UNIT_DISTANCE_COST_SECTION\n1 100\n2 200\n3 100\n"
    "DEPOT_SECTION\n1\n-1\nEOF\n"
)
VRPB = (
    f"NAME : B\nTYPE : VRPB\nDIMENSION : 4\nCAPACITY : 10\nEDGE_WEIGHT_TYPE : EUC_2D\nNODE_COORD_SECTION\n{SQUARE}"
    "DEMAND_SECTION\n1 0\n2 5\n3 5\n4 0\nBACKHAUL_SECTION\n1 0\n2 0\n3 0\n4 5\nDEPOT_SECTION\n1\n-1\nEOF\n"
)
VRPSPD = (
    f"NAME : S\nTYPE : VRPSPD\nDIMENSION : 4\nCAPACITY : 10\nEDGE_WEIGHT_TYPE : EUC_2D\nNODE_COORD_SECTION\n{SQUARE}"
    "LINEHAUL_SECTION\n# deliveries\n1 0\n2 5\n3 3\n4 2\nBACKHAUL_SECTION\n1 0\n2 2\n3 4\n4 6\n"
    "DEPOT_SECTION\n1\n-1\nEOF\n"
)
VRPTW = (
    "NAME : T4\nTYPE : VRPTW\nDIMENSION : 4\nVEHICLES : 3\nCAPACITY : 10\nSERVICE_TIME : 9\nEDGE_WEIGHT_TYPE : EUC_2D\n"
    "NODE_COORD_SECTION\n1 0 0\n2 3 0\n3 3 4\n4 1 1\nDEMAND_SECTION\n1 0\n2 5\n3 5\n4 5\n"
    "TIME_WINDOW_SECTION\n1 0 100\n2 20 30\n3 0 40\n4 0 50\nDEPOT_SECTION\n1\n-1\nEOF\n"
)
ORIENTEERING = (
    f"NAME : O\nTYPE : OP\nDIMENSION : 4\nCOST_LIMIT : 12\nEDGE_WEIGHT_TYPE : EUC_2D\nNODE_COORD_SECTION\n{SQUARE}"
    "NODE_SCORE_SECTION\n1 1\n2 4\n3 5\n4 2\nDEPOT_SECTION\n1\n-1\nEOF\n"
)
RES = "10\n14\n1\t1\t12\t10\t1\t3 1\n2\t1\t2\t5\t2\t2\n"
SCORE = (
    "NAME : O\nTYPE : OP\nDIMENSION : 4\nCOST_LIMIT : 12\nROUTE_NODES : 3\nROUTE_SCORE : 10\nROUTE_COST : 12\n"
    "NODE_SEQUENCE_SECTION\n1\n2\n3\n-1\nDEPOT_SECTION\n1\n-1\nEOF\n"
)


def legs(kind, places):
    rows = "".join(f"{k} {x} {y}\n" for k, (x, y) in enumerate(places, start=1))
    return (
        f"NAME : t\nTYPE : TSP\nDIMENSION : {len(places)}\nEDGE_WEIGHT_TYPE : {kind}\nNODE_COORD_SECTION\n{rows}EOF\n"
    )


def explicit(form, numbers, n=3, kind="ATSP"):
    return (
        f"NAME : t\nTYPE : {kind}\nDIMENSION : {n}\nEDGE_WEIGHT_TYPE : EXPLICIT\nEDGE_WEIGHT_FORMAT : {form}\n"
        f"EDGE_WEIGHT_SECTION\n{numbers}\nEOF\n"
    )


SERVED = explicit("UPPER_ROW", "3 5\n4\nDEMAND_SECTION\n1 0\n2 1\n3 1\nDEPOT_SECTION\n1\n-1", kind="CVRP").replace(
    "DIMENSION", "CAPACITY : 2\nSERVICE_TIME : 1\nDISTANCE : 14\nDIMENSION"
)


def put(path, text):
    """Writes a text or bytes, and returns the path."""
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path
