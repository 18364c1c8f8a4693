"""A bridge that replies in a thread of the test's process."""

import threading
from contextlib import contextmanager

from milkrun.tracking.link.bridge import Bridge, FakeSimulator

LIMIT = 60.0
"""Timeout of a test in seconds; replies take milliseconds."""


@contextmanager
def serving(simulator=FakeSimulator, **keys):
    """The bridge, until the block ends."""
    bridge, stop = Bridge(simulator, **keys), threading.Event()

    def answer():
        while not stop.is_set():
            bridge.poll(0.02)

    thread = threading.Thread(target=answer)
    thread.start()
    try:
        yield bridge
    finally:
        stop.set()
        thread.join(LIMIT)
        bridge.close()
