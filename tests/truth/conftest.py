"""Fixtures for the tests of learners."""

import random

import numpy as np
import pytest


@pytest.fixture
def torch_alone():
    """Seeds torch and limits it to one thread. Restores the global generators, which learners seed."""
    import torch

    before, threads = (np.random.get_state(), random.getstate()), torch.get_num_threads()
    with torch.random.fork_rng():
        torch.manual_seed(0)
        torch.set_num_threads(1)
        yield
    torch.set_num_threads(threads)
    np.random.set_state(before[0])
    random.setstate(before[1])
