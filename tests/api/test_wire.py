"""The messages between a pool and its workers arrive whole, whatever their size and however they were cut."""

import os
import socket
import threading

import pytest

from milkrun.api.workers.wire import AHEAD, LENGTH, receive, send


@pytest.fixture
def ends():
    """Both ends of a pair of sockets, by their descriptors."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield ours.fileno(), theirs.fileno()


@pytest.mark.parametrize("size", [0, 1, AHEAD - LENGTH - 1, AHEAD - LENGTH, AHEAD - LENGTH + 1, AHEAD, 5_000_000])
def test_a_message_arrives_as_it_was_sent(ends, size):
    """Also one that is longer than what is read at once, and than what the system holds on the way."""
    message = os.urandom(size)
    sender = threading.Thread(target=send, args=(ends[0], message))
    sender.start()
    assert receive(ends[1]) == message
    sender.join()


def test_a_message_that_comes_byte_by_byte_is_put_together(ends):
    """The length, too, may come in pieces."""
    whole = (3).to_bytes(LENGTH, "little") + b"abc"

    def trickle():
        for k in range(len(whole)):
            os.write(ends[0], whole[k : k + 1])
            threading.Event().wait(0.002)

    sender = threading.Thread(target=trickle)
    sender.start()
    assert receive(ends[1]) == b"abc"
    sender.join()


def test_no_byte_behind_a_message_is_read_where_that_is_asked(ends):
    """What follows the first command is not a message: a descriptor rides on it."""
    send(ends[0], b"abc")
    os.write(ends[0], b".")
    assert receive(ends[1], LENGTH) == b"abc"
    assert os.read(ends[1], 10) == b"."


def test_a_closed_end_is_told():
    """Before a message, and within one."""
    for sent in (b"", (3).to_bytes(LENGTH, "little") + b"a"):
        ours, theirs = socket.socketpair()
        ours.sendall(sent)
        ours.close()
        with theirs, pytest.raises(EOFError, match="closed"):
            receive(theirs.fileno())
