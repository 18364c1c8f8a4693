"""A keyboard interrupt at every line of a call, one after the other, each in a copy of what it is called on."""

import copy
import os
import sys

import numpy as np

import milkrun

ROOT = os.path.dirname(milkrun.__file__)
PLACES = tuple(os.path.join(ROOT, part) + os.sep for part in ("api", "tracking"))
COMPAT = (*PLACES, os.path.join(ROOT, "compat") + os.sep)


def interrupt():
    raise KeyboardInterrupt


def call_until(call, line, deliver=interrupt, places=PLACES):
    """Makes the call; at its line number `line`, of files in `places`, an interrupt comes: (came, its result)."""
    seen = 0

    def local(frame, event, arg):
        nonlocal seen
        if event == "line":
            seen += 1
            if seen == line:
                deliver()
        return local

    def enter(frame, event, arg):
        name = frame.f_code.co_filename
        return local if name.startswith(places) else None

    before = sys.gettrace()
    sys.settrace(enter)
    try:
        given = call()
    except KeyboardInterrupt:
        return True, None
    finally:
        sys.settrace(before)
    return seen >= line, given


def plain(value):
    """Anything that an environment returns, in a form that can be compared."""
    if isinstance(value, dict) or (hasattr(value, "keys") and not isinstance(value, np.ndarray)):
        return {str(key): plain(value[key]) for key in list(value.keys()) if key != "t"}  # "t": seconds of a Monitor
    if type(value).__name__ == "Tensor":
        return plain(value.numpy())
    if isinstance(value, np.ndarray) and value.dtype != object:
        return (str(value.dtype), value.tolist())
    if isinstance(value, (list, tuple, np.ndarray)) or type(value).__name__ == "Infos":
        return [plain(one) for one in value]
    return value.item() if isinstance(value, np.generic) else value


def assert_whole_or_not_at_all(base, call, following, every=1):
    """Interrupts `call(env)` at every so many of its lines; what `following(env)` gives afterwards is always what it
    gives after the whole call or without it."""
    whole = copy.deepcopy(base)
    call(whole)
    wanted = [plain(following(copy.deepcopy(base))), plain(following(whole))]
    assert wanted[0] != wanted[1], "the call changes nothing: this would prove nothing"
    line, came = 1, True
    while came:
        env = copy.deepcopy(base)
        came, _ = call_until(lambda e=env: call(e), line)
        assert plain(following(env)) in wanted, f"interrupted at line {line} of the call"
        line += every
