"""What tests of several folders lean on."""

import signal

import pytest


@pytest.fixture
def interrupts():
    """Ctrl-C is heard, also where the tests run in the background of a shell, which turns it off."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)
