"""Errors of `milkrun simulate` before it opens its port."""

import socket


def test_simulate_says_that_a_port_is_taken(call):
    """A sentence, exit code 1."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        code, out, err = call("simulate", "--port", port)
    assert (code, out) == (1, "")
    assert err.startswith(f"error: port {port} of 127.0.0.1 is taken: another program listens there")


def test_simulate_needs_a_token_beyond_this_machine(call):
    """Usage error, and nothing listens."""
    code, out, err = call("simulate", "--host", "0.0.0.0", "--port", "0")
    assert (code, out) == (2, "")
    assert "0.0.0.0" in err and "--token-file" in err


def test_simulate_names_a_wrong_option(call, tmp_path):
    """An unknown scene, a missing token file, an invalid port."""
    assert call("simulate", "--scene", "dessert")[2].endswith("did you mean 'desert'?\n")
    code, _, err = call("simulate", "--token-file", tmp_path / "absent")
    assert code == 2 and "cannot be read: No such file" in err
    assert call("simulate", "--port", "70000")[0] == 2
