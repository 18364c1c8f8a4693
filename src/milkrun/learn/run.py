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
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from datetime import datetime
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch

import milkrun
from milkrun.core.arguments import check_count, check_seconds, check_seed
from milkrun.core.errors import ConfigError
from milkrun.core.features import Features, derive, fits
from milkrun.core.files import file_name, name_of
from milkrun.core.registry import named_world
from milkrun.learn import checkpoint
from milkrun.learn.checkpoint import SUFFIX, replace_file
from milkrun.learn.log import Bar, Events, clock_text, draw_curve, write_curve
from milkrun.learn.policy import NetworkPolicy
from milkrun.learn.reinforce import Options, Reinforce
from milkrun.learn.trained import describe, load, read_run
from milkrun.solvers import evaluate, policies_for
from milkrun.solvers.named import SolverPolicy

HELD_OUT, HELD_OUT_SEED = 256, 4321
TRIAL = 20  # steps that turn minutes into steps
REFERENCE_SHARE = 0.05  # of the budget
QUICK_SOLVERS = ("ls", "savings")  # need no extra
LEAST_SEARCH = 0.05  # seconds of PyVRP for an instance
FLAT = 50  # steps without a difference between the rows of any instance
FEWEST_ROWS, MOST_ROWS = 16, 65
LAST, BEST = f"last{SUFFIX}", f"best{SUFFIX}"
COLLAPSED = (
    "collapsed: for {flat} steps all rows of each instance had equal returns, so there is nothing to learn from; the "
    "policy plays one plan. Try --starts yes, or a smaller --lr"
)


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

    `minutes` (10 by default) or `steps` is the budget; minutes are turned into steps once. `options`, `preset` and
    `config` configure the world as in `milkrun.make`. Ctrl-C ends the running step and keeps everything.
    """
    spec = named_world(world)
    made = milkrun.make(spec.id, 1, preset=preset, config=config, seed=0, autoreset="disabled", **options)
    why = fits(made)
    algorithm = algorithm or ("ppo" if why else "reinforce")
    if algorithm not in ("reinforce", "ppo"):
        raise ConfigError(f"algorithm={algorithm!r}: must be 'reinforce' or 'ppo'")
    if algorithm == "reinforce" and why:
        raise ConfigError(f"algorithm='reinforce' does not work for {spec.id}: {why}; 'ppo' does")
    if minutes is not None and steps is not None:
        raise ConfigError("give minutes or steps, not both")
    seconds = None if steps is not None else 60 * check_seconds("minutes", 10 if minutes is None else minutes)
    if algorithm == "ppo":
        from milkrun.learn import sb3

        return sb3.train(
            made,
            seconds=seconds,
            steps=steps,
            lr=lr,
            seed=check_seed(seed),
            device=device,
            threads=threads,
            every=every,
            out=new_folder(out, spec.id),
            progress=progress,
        )
    entries = made.sizes[made.action.n]
    chosen = Options(
        steps=check_count("steps", steps, 1) if steps is not None else TRIAL,
        baseline=baseline,
        batch=check_count("batch", batch or (512 if baseline == "rollout" else 32), 1),
        rows_each=check_count("rows_each", rows_each or min(max(entries + 1, FEWEST_ROWS), MOST_ROWS), 1),
        starts=read_starts(starts, type(made)),
        lr=lr or (1e-4 if baseline == "rollout" else 5e-4),
        layers=check_count("layers", layers, 1, 16),
        width=check_count("width", width, 8, 1024),
        heads=check_count("heads", heads, 1, 64),
        entropy=entropy,
        seed=check_seed(seed),
    )
    if chosen.width % chosen.heads:
        raise ConfigError(f"width={chosen.width} is not divisible by heads={chosen.heads}")
    folder = new_folder(out, spec.id)
    with computing(threads):
        features = features or derive(made)
        bar = Bar() if progress else None
        device = choose_device(device)
        if starts == "try":
            chosen = try_starts(made, features, chosen, device, bar)
        if seconds is not None:
            chosen = in_time(made, features, chosen, seconds, device)
        state = Reinforce(made, features, chosen, device)
        run = Run(folder, spec.id, steps=chosen.steps)
        run.references = references_of(made, seconds or estimate(made, features, chosen, device), bar)
        plan = {"every": every or max(1, chosen.steps // 20), "threads": threads, "device": device}
        write_about(run, state, plan)
        return loop(run, state, plan, bar)


def resume(folder: str | os.PathLike[str], *, progress: bool = True, threads: int | None = None) -> Run:
    """Continues an interrupted or killed run in its folder; on one thread to the same bits."""
    path = Path(name_of(folder))
    about, state = read_run(path / LAST)
    if about["algorithm"] == "ppo":
        from milkrun.learn import sb3

        return sb3.resume(path, about, progress=progress)
    run = Run(path, about["world"], about["references"], about["curve"], about["step"], state.options.steps)
    plan = {**about["plan"], "threads": threads or about["plan"]["threads"]}
    with computing(plan["threads"]):
        return loop(run, state, plan, Bar() if progress else None)


def loop(run: Run, state: Reinforce, plan: Mapping[str, Any], bar: Bar | None) -> Run:
    """Trains to the last step, or until an interrupt."""
    options, every = state.options, plan["every"]
    judge = type(state.world)(HELD_OUT, state.world.config, seed=HELD_OUT_SEED, autoreset="disabled")
    rows = {"flat": 0, "truncated": 0, "played": 0}
    recent: list[float] = []
    events = Events(run.folder)
    clock, first = time.perf_counter(), state.step
    spent = run.curve[-1]["seconds"] if run.curve else 0.0
    shown = 0.0
    with interruptible() as stopping:
        while state.step < options.steps and not stopping and not run.ended:
            outcome = state.train_step()
            run.step = state.step
            recent = [*recent[-19:], float(outcome.returns.mean())]
            rows["flat"] = rows["flat"] + 1 if is_flat(outcome.returns) else 0
            rows["truncated"] += outcome.truncated
            rows["played"] += outcome.returns.numel()
            if rows["flat"] >= FLAT:
                run.ended = COLLAPSED.format(flat=FLAT)
            seconds = spent + time.perf_counter() - clock
            if state.step % every == 0 or state.step == options.steps:
                policy = NetworkPolicy(state.network, state.features)
                found = evaluate(judge, policy, HELD_OUT, HELD_OUT_SEED).mean
                if state.baseline is not None:
                    state.renew_baseline(state.step // every)
                better = found > run.best
                row = {
                    "step": state.step,
                    "seconds": round(seconds, 2),
                    "instances": state.step * options.batch,
                    "train": sum(recent) / len(recent),
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
                bar.show(
                    progress_line(run, recent, state.step - first, options.batch, time.perf_counter() - clock, rows),
                    lasting=lasting,
                )
        if state.step < options.steps and not run.ended:
            run.ended = "interrupted"
        if not run.curve or run.curve[-1]["step"] != state.step:
            save(run, state, plan)
        events.close()
        title = f"{run.world}, {type(state).__name__}, {run.step:,} steps"
        draw_curve(run.folder / "curve.png", run.curve, run.references, title) if run.curve else None
    return run


def save(run: Run, state: Reinforce, plan: Mapping[str, Any]) -> None:
    """Writes the state of the run and its curve."""
    about = describe(state, kind="run", plan=dict(plan), references=run.references, curve=run.curve)
    checkpoint.write(run.folder / LAST, about, state.tensors())
    write_curve(run.folder, run.curve)


def save_policy(run: Run, state: Reinforce) -> None:
    """Writes the weights alone."""
    weights = {f"network.{name}": t for name, t in state.network.state_dict().items()}
    about = describe(state, kind="policy", references=run.references, held_out=run.best)
    checkpoint.write(run.folder / BEST, about, weights)


def is_flat(returns: torch.Tensor) -> bool:
    """Whether the rows of every instance have equal returns."""
    return returns.shape[1] > 1 and bool((returns == returns[:, :1]).all())


def progress_line(
    run: Run, recent: list[float], steps: int, batch: int, seconds: float, rows: Mapping[str, int]
) -> str:
    """step, return, best, gap, speed and time left."""
    line = f"step {run.step:,}/{run.steps:,}  return {sum(recent) / len(recent):.4g}"
    if run.curve:
        line += f"  best {run.best:.4g}"
    if run.gap is not None:
        name = max(run.references, key=lambda k: run.references[k])
        line += f"  gap to {name} {run.gap:+.1f} %"
    line += f"  {steps * batch / max(seconds, 1e-9):,.0f} instances/s"
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


def time_steps(world: Any, features: Features, options: Options, device: str, steps: int = TRIAL) -> float:
    """Seconds of a training step, after the first ones, which compile."""
    state = Reinforce(world, features, options, device)
    for _ in range(3):
        state.train_step()
    start = time.perf_counter()
    for _ in range(steps - 3):
        state.train_step()
    return (time.perf_counter() - start) / (steps - 3)


def in_time(world: Any, features: Features, options: Options, seconds: float, device: str) -> Options:
    """The options with as many steps as the budget allows, references and evaluation included."""
    each = time_steps(world, features, options, device)
    return Options(**{**asdict(options), "steps": max(1, int(0.92 * seconds / each))})


def estimate(world: Any, features: Features, options: Options, device: str) -> float:
    """Seconds that a run of given steps may take."""
    return options.steps * time_steps(world, features, options, device, steps=min(TRIAL, options.steps + 4))


def try_starts(world: Any, features: Features, options: Options, device: str, bar: Bar | None) -> Options:
    """Trains 100 steps with and without given starts, and keeps what is better on held-out instances."""
    means = {}
    for starts in (True, False):
        if bar is not None:
            bar.show(f"trying starts={'yes' if starts else 'no'}")
        state = Reinforce(world, features, Options(**{**asdict(options), "steps": 100, "starts": starts}), device)
        for _ in range(100):
            state.train_step()
        judge = type(world)(HELD_OUT, world.config, seed=HELD_OUT_SEED, autoreset="disabled")
        means[starts] = evaluate(judge, NetworkPolicy(state.network, features), HELD_OUT, HELD_OUT_SEED).mean
    return Options(**{**asdict(options), "starts": max(means, key=lambda k: means[k])})


def references_of(world: Any, seconds: float, bar: Bar | None) -> dict[str, float]:
    """Mean returns on the held-out instances: every policy of the world and one solver, within their share of the
    budget. Slower ones are left out."""
    cls = type(world)
    found: dict[str, float] = {}
    limit = REFERENCE_SHARE * seconds
    start = time.perf_counter()
    players = {name: factory(0) for name, factory in policies_for(world.id).items()}
    each = 0.8 * limit / HELD_OUT
    for name in solvers_of(cls, each):
        players[name] = SolverPolicy(name, 0, time_limit=max(0.01, each))
    for name, player in players.items():
        if time.perf_counter() - start > limit and found:
            break
        if bar is not None:
            bar.show(f"reference {name} (at most {clock_text(limit)} for all)")
        judge = cls(HELD_OUT, world.config, seed=HELD_OUT_SEED, autoreset="disabled")
        found[name] = evaluate(judge, player, HELD_OUT, HELD_OUT_SEED).mean
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


def write_about(run: Run, state: Reinforce, plan: Mapping[str, Any]) -> None:
    """run.json."""
    about = {
        "world": run.world,
        "config": {k: v for k, v in state.world.config.as_json().items() if not callable(v)},
        "options": asdict(state.options),
        "plan": dict(plan),
        "references": run.references,
        "held_out": {"instances": HELD_OUT, "seed": HELD_OUT_SEED},
        "features": str(state.features).splitlines(),
        "milkrun": milkrun.__version__,
        "torch": torch.__version__,
        "torch_threads": torch.get_num_threads(),
        "linear": "1x1 convolution on the CPU from 16 instances, float32",
        "machine": f"{platform.machine()}, {platform.processor() or platform.system()}, {os.cpu_count()} cores",
    }
    replace_file(run.folder / "run.json", (json.dumps(about, indent=1) + "\n").encode())


@contextmanager
def computing(threads: int | None) -> Iterator[None]:
    """The number of threads of torch and of the worlds; both are restored."""
    before = torch.get_num_threads()
    try:
        if threads is not None:
            torch.set_num_threads(check_count("threads", threads, 1))
            milkrun.set_num_threads(threads)
        yield
    finally:
        torch.set_num_threads(before)
        if threads is not None:
            milkrun.set_num_threads(None)


@contextmanager
def interruptible() -> Iterator[list[int]]:
    """A list that the first SIGINT or SIGTERM fills. The second stops at once."""
    received: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield received
        return
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def stop(number: int, frame: Any) -> None:
        received.append(number)
        restore()

    def restore() -> None:
        for number, handler in before.items():
            signal.signal(number, handler)

    try:
        for number in before:
            signal.signal(number, stop)
        yield received
    finally:
        restore()
