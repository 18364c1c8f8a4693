"""What Milkrun promises beside others, measured: each bar is the target with a fifth of slack, since the machine is
shared. Both sides play in turns, so that a slow moment meets both. Promises that a busy core breaks (processes that
wait for each other, copies of much memory) are measured by the benchmarks `api` and `workers` only."""

import pytest

import milkrun
from bench.api import sync_ratio
from bench.contestants import TorchRL
from bench.episodes import record_random_episodes

SLACK = 0.8


def how_many_times_as_fast(ours, theirs, rounds=5):
    """In rounds in which both play for a twentieth of a second each, by the fastest of each: the least disturbed."""
    taken = [[one.seconds(repeats=1, min_seconds=0.05) for one in (ours, theirs)] for _ in range(rounds)]
    return min(other for _, other in taken) / min(own for own, _ in taken)


def test_a_vector_environment_is_far_faster_than_single_ones():
    """64 rows of CVRP-50 against Gymnasium's SyncVectorEnv of the same environments: 30 times as fast is the target."""
    assert sync_ratio(rounds=3) >= SLACK * 30


@pytest.fixture
def threads():
    """Puts back the numbers of threads, which benchmarks set to one."""
    torch = pytest.importorskip("torch")
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)
    milkrun.set_num_threads(None)


def test_stepping_beats_rl4co(threads):
    """The same episodes through the same TorchRL interface, 1,024 rows: twice as fast is the target."""
    pytest.importorskip("rl4co")
    from bench.peers.rl4co import StepRL4CO

    episodes = record_random_episodes("cvrp", 50, 1024, seed=0)
    theirs = StepRL4CO("cvrp", 50, 1024, episodes=episodes)
    assert how_many_times_as_fast(TorchRL(episodes), theirs) >= SLACK * 2
