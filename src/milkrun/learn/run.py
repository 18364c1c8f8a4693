"""`train`: the loop around an algorithm. Budget, references, evaluation, checkpoints, interrupts and resuming.

A run is a folder. `last.safetensors` continues it, `best.safetensors` is the policy, `curve.csv` and `curve.png` show
it, and `run.json` describes it for people.
"""

from __future__ import annotations

import json
import math
import os
import platform
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol

import torch

from milkrun._version import __version__
from milkrun.core.arguments import check_count, check_seconds, check_seed
from milkrun.core.engine import EngineWorld
from milkrun.core.errors import ConfigError
from milkrun.core.features import Features, derive, fits
from milkrun.core.files import file_name, name_of
from milkrun.core.layouts import layouts
from milkrun.core.registry import make, named_world
from milkrun.core.threads import set_num_threads
from milkrun.learn import checkpoint
from milkrun.learn.checkpoint import SUFFIX, replace_file
from milkrun.learn.log import Bar, Events, clock_text, draw_curve, write_curve
from milkrun.learn.reinforce import Options
from milkrun.learn.trained import ReinforceRun, load, read_run
from milkrun.solvers import evaluate, policies_for
from milkrun.solvers.named import SolverPolicy

HELD_OUT, HELD_OUT_SEED = 256, 4321
FEW_HELD_OUT = 32  # in worlds whose steps are slow
TRIAL = 20  # at most so many steps turn minutes into steps
TRIAL_SHARE = 0.04  # of the budget
EVALUATIONS, EVALUATION_SHARE = 20, 0.2  # at most
TRAINING_SHARE = 0.92  # with evaluations
REFERENCE_SHARE = 0.05  # of the budget
LEAST_REFERENCES = 1.0  # seconds, of a run of few steps
QUICK_SOLVERS = ("ls", "savings")  # need no extra
LEAST_SEARCH = 0.05  # seconds of PyVRP for an instance
FLAT = 50  # steps without a difference between the rows of any instance
FEWEST_ROWS, MOST_ROWS = 16, 65
LAST, BEST = f"last{SUFFIX}", f"best{SUFFIX}"
COLLAPSED = (
    "collapsed: for {flat} steps all rows of each instance had equal returns, so there is nothing to learn from; the "
    "policy plays one plan. Try --starts yes, or a smaller --lr"
)


class Algorithm(Protocol):
    """The state of a run as the loop sees it: `ReinforceRun` and `PPORun`."""

    world: Any
    options: Any
    """a dataclass with `steps` and `seed`"""
    step: int
    title: str
    unit: str
    """what a step is counted in: "instances", or "steps" of rows"""

    @property
    def per_step(self) -> int: ...
    @property
    def episodes(self) -> int: ...
    def train_step(self) -> Any: ...
    def policy(self) -> Any: ...
    def after_evaluation(self, number: int) -> None: ...
    def describe(self, **more: Any) -> dict[str, Any]: ...
    def explain(self) -> dict[str, Any]: ...
    def weights(self) -> dict[str, torch.Tensor]: ...
    def tensors(self) -> dict[str, torch.Tensor]: ...


Builder = Callable[[Any], Algorithm]
"""Makes an untrained algorithm from its options."""


@dataclass
class Run:
    """A run and its results."""

    folder: Path
    world: str
    references: dict[str, float] = field(default_factory=dict)
    """mean return of each reference on the held-out instances"""
    curve: list[dict[str, Any]] = field(default_factory=list)
    step: int = 0
    steps: int = 0
    recent: list[float] = field(default_factory=list)
    """mean returns of the last training batches"""
    counts: dict[str, int] = field(default_factory=lambda: {"flat": 0, "truncated": 0, "played": 0})
    """steps in a row without a difference between rows; truncated rows; rows"""
    ended: str = ""
    """why the run stopped before its last step: "interrupted", "collapsed: ..."; empty for a finished run"""

    @property
    def policy(self) -> Any:
        """The best policy so far."""
        return load(self.folder / BEST)

    @property
    def best(self) -> float:
        """The best mean return on the held-out instances."""
        return max((row["held_out"] for row in self.curve), default=-math.inf)

    @property
    def gap(self) -> float | None:
        """The gap of the best policy to the best reference, in percent of the reference."""
        if not self.references or not self.curve:
            return None
        reference = max(self.references.values())
        return 100 * (reference - self.best) / abs(reference) if reference else None


def train(
    world: str,
    *,
    minutes: float | None = None,
    steps: int | None = None,
    algorithm: str | None = None,
    baseline: str = "shared",
    batch: int | None = None,
    rows_each: int | None = None,
    starts: bool | str | None = None,
    lr: float | None = None,
    layers: int = 3,
    width: int = 128,
    heads: int = 8,
    entropy: float = 0.0,
    seed: int = 0,
    device: str = "auto",
    threads: int | None = None,
    every: int | None = None,
    out: str | os.PathLike[str] | None = None,
    features: Features | None = None,
    preset: str | None = None,
    config: Any = None,
    progress: bool = True,
    **options: Any,
) -> Run:
    """Trains a policy for a world and writes the run's folder.

    `minutes` (10 by default) or `steps` is the budget; minutes are turned into steps once. A step of `ppo` is
    one update, and `batch` its rows. `options`, `preset` and `config` configure the world as in `milkrun.make`. Ctrl-C
    ends the running step and keeps everything.
    """
    spec = named_world(world)
    made = make(spec.id, 1, preset=preset, config=config, seed=0, autoreset="disabled", **options)
    why = fits(made)
    algorithm = algorithm or ("ppo" if why else "reinforce")
    if algorithm not in ("reinforce", "ppo"):
        raise ConfigError(f"algorithm={algorithm!r}: must be 'reinforce' or 'ppo'")
    if algorithm == "reinforce" and why:
        raise ConfigError(f"algorithm='reinforce' does not work for {spec.id}: {why}; 'ppo' does")
    if minutes is not None and steps is not None:
        raise ConfigError("give minutes or steps, not both")
    seconds = None if steps is not None else 60 * check_seconds("minutes", 10 if minutes is None else minutes)
    given = check_count("steps", steps, 1) if steps is not None else TRIAL
    seed = check_seed(seed)
    device = choose_device(device)
    chosen: Any
    build: Builder
    if algorithm == "ppo":
        from milkrun.learn import sb3

        own: dict[str, Any] = {"rows_each": rows_each, "starts": starts, "features": features}
        own |= {
            "baseline": baseline != "shared",
            "layers": layers != 3,
            "width": width != 128,
            "heads": heads != 8,
            "entropy": entropy,
        }
        if unused := [name for name, is_given in own.items() if is_given]:
            raise ConfigError(f"{unused[0]} is an option of reinforce; {spec.id} is trained by ppo")
        rows = None if batch is None else check_count("batch", batch, 1)
        chosen = sb3.default_options(made, given, rows=rows, lr=lr, seed=seed)

        def build(options: Any) -> Algorithm:
            return sb3.PPORun(made, options, device)
    else:
        chosen = Options(
            steps=given,
            baseline=baseline,
            batch=check_count("batch", batch or (512 if baseline == "rollout" else 32), 1),
            rows_each=check_count("rows_each", rows_each or default_rows_each(made), 1),
            starts=read_starts(starts, type(made)),
            lr=lr or (1e-4 if baseline == "rollout" else 5e-4),
            layers=check_count("layers", layers, 1, 16),
            width=check_count("width", width, 8, 1024),
            heads=check_count("heads", heads, 1, 64),
            entropy=entropy,
            seed=seed,
        )
        if chosen.width % chosen.heads:
            raise ConfigError(f"width={chosen.width} is not divisible by heads={chosen.heads}")
        derived = features or derive(made)

        def build(options: Any) -> Algorithm:
            return ReinforceRun(made, derived, options, device)

    folder = new_folder(out, spec.id)
    with computing(threads):
        bar = Bar() if progress else None
        if algorithm == "reinforce" and starts == "try":
            chosen = try_starts(build, chosen, bar)
        evaluations = EVALUATIONS
        if seconds is not None:
            chosen, evaluations = in_time(build, chosen, seconds)
        state = build(chosen)
        run = Run(folder, spec.id, steps=chosen.steps)
        run.references = references_of(made, seconds or estimate(build, chosen), bar)
        plan = {"every": every or max(1, chosen.steps // evaluations), "threads": threads, "device": device}
        write_about(run, state, plan)
        return loop(run, state, plan, bar)


def resume(folder: str | os.PathLike[str], *, progress: bool = True, threads: int | None = None) -> Run:
    """Continues an interrupted or killed run in its folder: `reinforce` on one thread to the same bits,
    `ppo` with new episodes."""
    path = Path(name_of(folder))
    about, state = read_run(path / LAST)
    run = Run(path, about["world"], about["references"], about["curve"], about["step"], state.options.steps)
    run.recent, run.counts = about["recent"], about["counts"]
    plan = {**about["plan"], "threads": threads or about["plan"]["threads"]}
    with computing(plan["threads"]):
        return loop(run, state, plan, Bar() if progress else None)


def loop(run: Run, state: Algorithm, plan: Mapping[str, Any], bar: Bar | None) -> Run:
    """Trains to the last step, or until an interrupt."""
    options, every = state.options, plan["every"]
    judge = judge_of(state.world)
    rows = run.counts
    events = Events(run.folder)
    clock, first = time.perf_counter(), state.step
    spent = run.curve[-1]["seconds"] if run.curve else 0.0
    shown = 0.0
    with interruptible() as stopping:
        while state.step < options.steps and not stopping and not run.ended:
            outcome = state.train_step()
            run.step = state.step
            if outcome.returns.numel():
                run.recent = [*run.recent[-19:], float(outcome.returns.mean())]
            rows["flat"] = rows["flat"] + 1 if is_flat(outcome.returns) else 0
            rows["truncated"] += outcome.truncated
            rows["played"] += outcome.returns.numel()
            if rows["flat"] >= FLAT:
                run.ended = COLLAPSED.format(flat=FLAT)
            seconds = spent + time.perf_counter() - clock
            if state.step % every == 0 or state.step == options.steps:
                found = evaluate(judge, state.policy(), judge.num_envs, HELD_OUT_SEED).mean
                state.after_evaluation(state.step // every)
                better = found > run.best
                row = {
                    "step": state.step,
                    "seconds": round(seconds, 2),
                    "instances": state.episodes,
                    "train": sum(run.recent) / len(run.recent) if run.recent else None,
                    "held_out": found,
                    "best": max(found, run.best),
                    "gap": None,
                    "gradient": outcome.gradient,
                }
                run.curve.append(row)
                row["gap"] = run.gap
                if better:
                    save_policy(run, state)
                save(run, state, plan)
                events.add(row)
            if bar is not None and (
                (run.curve and run.curve[-1]["step"] == state.step) or time.perf_counter() - shown > 0.5
            ):
                shown = time.perf_counter()
                lasting = bool(run.curve) and run.curve[-1]["step"] == state.step
                done = state.step - first
                bar.show(progress_line(run, state, done, time.perf_counter() - clock), lasting=lasting)
        if state.step < options.steps and not run.ended:
            run.ended = "interrupted"
        if not run.curve or run.curve[-1]["step"] != state.step:
            save(run, state, plan)
        events.close()
        title = f"{run.world}, {state.title}, {run.step:,} steps"
        draw_curve(run.folder / "curve.png", run.curve, run.references, title) if run.curve else None
    return run


def save(run: Run, state: Algorithm, plan: Mapping[str, Any]) -> None:
    """Writes the state of the run and its curve."""
    about = state.describe(
        kind="run",
        plan=dict(plan),
        references=run.references,
        curve=run.curve,
        recent=run.recent,
        counts=run.counts,
    )
    checkpoint.write(run.folder / LAST, about, state.tensors())
    write_curve(run.folder, run.curve)


def save_policy(run: Run, state: Algorithm) -> None:
    """Writes the weights alone."""
    about = state.describe(kind="policy", references=run.references, held_out=run.best)
    checkpoint.write(run.folder / BEST, about, state.weights())


def is_flat(returns: torch.Tensor) -> bool:
    """Whether the rows of every instance have equal returns. Returns of single episodes, (E,), say nothing."""
    return returns.ndim == 2 and returns.shape[1] > 1 and bool((returns == returns[:, :1]).all())


def progress_line(run: Run, state: Algorithm, steps: int, seconds: float) -> str:
    """step, return, best, gap, speed and time left."""
    line, rows = f"step {run.step:,}/{run.steps:,}", run.counts
    if run.recent:
        line += f"  return {sum(run.recent) / len(run.recent):.4g}"
    if run.curve:
        line += f"  best {run.best:.4g}"
    if run.gap is not None:
        name = max(run.references, key=lambda k: run.references[k])
        line += f"  gap to {name} {run.gap:+.1f} %"
    line += f"  {steps * state.per_step / max(seconds, 1e-9):,.0f} {state.unit}/s"
    line += f"  {clock_text((run.steps - run.step) * seconds / max(steps, 1))} left"
    if rows["truncated"] > 0.01 * rows["played"]:
        line += f"  {100 * rows['truncated'] / rows['played']:.0f} % of rows truncated"
    return line


# -- before the first step --------------------------------------------------------------------------------------------


def read_starts(starts: Any, cls: Any) -> bool:
    """yes, no, or the default of the class; "try" begins from that, too."""
    if starts in (None, "try"):
        return bool(cls.policy_starts)
    if isinstance(starts, bool):
        return starts
    if starts in ("yes", "no"):
        return bool(starts == "yes")
    raise ConfigError(f"starts={starts!r}: must be yes, no or try")


def choose_device(device: str) -> str:
    """auto is cuda where torch has one."""
    if device == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    try:
        return str(torch.empty(0, device=device).device)
    except (RuntimeError, AssertionError) as e:
        raise ConfigError(f"device={device!r}: torch cannot use it ({str(e).splitlines()[0]})") from None


def held_out_of(world: Any) -> int:
    """The number of held-out instances: fewer where an engine or a picture makes steps slow."""
    return FEW_HELD_OUT if isinstance(world, EngineWorld) or "view" in layouts(world) else HELD_OUT


def judge_of(world: Any) -> Any:
    """A world with a row for each held-out instance."""
    return type(world)(held_out_of(world), world.config, seed=HELD_OUT_SEED, autoreset="disabled")


def time_steps(build: Builder, options: Any, limit: float) -> tuple[float, Algorithm]:
    """Seconds of a training step after the first, which compiles; of as many as fit the limit, at least one."""
    state = build(options)
    times: list[float] = []
    while len(times) < TRIAL and (len(times) < 2 or sum(times) < limit):
        start = time.perf_counter()
        state.train_step()
        times.append(time.perf_counter() - start)
    return sorted(times[1:])[len(times[1:]) // 2], state


def in_time(build: Builder, options: Any, seconds: float) -> tuple[Any, int]:
    """The options with as many steps as the budget allows, and the number of evaluations, whose time is deducted."""
    each, state = time_steps(build, options, TRIAL_SHARE * seconds)
    start = time.perf_counter()
    evaluate(judge_of(state.world), state.policy(), held_out_of(state.world), HELD_OUT_SEED)
    judged = time.perf_counter() - start
    evaluations = min(EVALUATIONS, max(1, int(EVALUATION_SHARE * seconds / judged)))
    return replace(options, steps=max(1, int((TRAINING_SHARE * seconds - evaluations * judged) / each))), evaluations


def estimate(build: Builder, options: Any) -> float:
    """Seconds that a run of given steps may take."""
    return float(options.steps * time_steps(build, options, limit=1.0)[0])


def default_rows_each(world: Any) -> int:
    return min(max(world.sizes[world.action.n] + 1, FEWEST_ROWS), MOST_ROWS)


def try_starts(build: Builder, options: Options, bar: Bar | None) -> Options:
    """Trains 100 steps with and without given starts, and keeps what is better on held-out instances."""
    means = {}
    for starts in (True, False):
        if bar is not None:
            bar.show(f"trying starts={'yes' if starts else 'no'}")
        state = build(replace(options, steps=100, starts=starts))
        for _ in range(100):
            state.train_step()
        means[starts] = evaluate(judge_of(state.world), state.policy(), HELD_OUT, HELD_OUT_SEED).mean
    return replace(options, starts=max(means, key=lambda k: means[k]))


def references_of(world: Any, seconds: float, bar: Bar | None) -> dict[str, float]:
    """Mean returns on the held-out instances: every policy of the world and one solver, within their share of the
    budget. Slower ones are left out."""
    cls = type(world)
    found: dict[str, float] = {}
    limit = max(LEAST_REFERENCES, REFERENCE_SHARE * seconds)
    start = time.perf_counter()
    players = {name: factory(0) for name, factory in policies_for(world.id).items()}
    each = 0.8 * limit / held_out_of(world)
    for name in solvers_of(cls, each):
        players[name] = SolverPolicy(name, 0, time_limit=max(0.01, each))
    for name, player in players.items():
        if time.perf_counter() - start > limit and found:
            break
        if bar is not None:
            bar.show(f"reference {name} (at most {clock_text(limit)} for all)")
        judge = judge_of(world)
        found[name] = evaluate(judge, player, judge.num_envs, HELD_OUT_SEED).mean
    return found


def solvers_of(cls: Any, seconds: float) -> list[str]:
    """PyVRP if it is installed, plays this world and has time for each instance; else a quick solver."""
    if not cls.plans_are_actions:
        return []
    if "pyvrp" in cls.solvers and find_spec("pyvrp") is not None and seconds >= LEAST_SEARCH:
        return ["pyvrp"]
    return [name for name in QUICK_SOLVERS if name in cls.solvers][:1]


def new_folder(out: Any, world_id: str) -> Path:
    """An empty folder for a run."""
    name = (
        f"runs/{file_name(world_id.rpartition('/')[2])}-{datetime.now():%Y%m%d-%H%M%S}" if out is None else name_of(out)
    )
    folder = Path(name)
    if (folder / LAST).exists() or (folder / BEST).exists():
        raise ConfigError(f"out={name!r} holds a run: resume it, or take another folder")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as e:
        raise ConfigError(f"out={name!r}: cannot be made: {e.strerror}") from None
    return folder


def write_about(run: Run, state: Algorithm, plan: Mapping[str, Any]) -> None:
    """run.json."""
    about = {
        "world": run.world,
        "config": {k: v for k, v in state.world.config.as_json().items() if not callable(v)},
        "options": asdict(state.options),
        "plan": dict(plan),
        "references": run.references,
        "held_out": {"instances": held_out_of(state.world), "seed": HELD_OUT_SEED},
        **state.explain(),
        "milkrun": __version__,
        "torch": torch.__version__,
        "torch_threads": torch.get_num_threads(),
        "machine": f"{platform.machine()}, {platform.processor() or platform.system()}, {os.cpu_count()} cores",
    }
    replace_file(run.folder / "run.json", (json.dumps(about, indent=1) + "\n").encode())


@contextmanager
def computing(threads: int | None) -> Iterator[None]:
    """The number of threads of torch and of the worlds, and float32 products of full precision, which other trainers of
    the same process may have switched off; all are restored."""
    before, precision = torch.get_num_threads(), torch.get_float32_matmul_precision()
    try:
        torch.set_float32_matmul_precision("highest")
        if threads is not None:
            torch.set_num_threads(check_count("threads", threads, 1))
            set_num_threads(threads)
        yield
    finally:
        torch.set_num_threads(before)
        torch.set_float32_matmul_precision(precision)
        if threads is not None:
            set_num_threads(None)


@contextmanager
def interruptible() -> Iterator[list[int]]:
    """A list that the first SIGINT or SIGTERM fills. The second of the same kind stops at once."""
    received: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield received
        return
    before: dict[int, Any] = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def stop(number: int, frame: Any) -> None:
        received.append(number)
        signal.signal(number, before[number])

    try:
        for number in before:
            signal.signal(number, stop)
        yield received
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
