"""`train` and `resume`: the loop around an algorithm, with evaluations, checkpoints and interrupts.

A run is a folder. `last.safetensors` continues it, `best.safetensors` is the policy, `curve.csv` and `curve.png` show
it, and `run.json` describes it for people.
"""

from __future__ import annotations

import json
import math
import os
import platform
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import torch

from milkrun._version import __version__
from milkrun.core.arguments import check_count, check_seconds, check_seed
from milkrun.core.errors import ConfigError
from milkrun.core.features import Features, derive, fits
from milkrun.core.files import file_name, name_of
from milkrun.core.registry import make, named_world
from milkrun.learn import checkpoint
from milkrun.learn.budget import (
    EVALUATIONS,
    HELD_OUT_SEED,
    TRIAL,
    Algorithm,
    Builder,
    estimate,
    held_out_of,
    in_time,
    judge,
    judge_of,
    references_of,
    try_starts,
)
from milkrun.learn.checkpoint import SUFFIX, write_file
from milkrun.learn.log import Bar, Events, clock_text, draw_curve, write_curve
from milkrun.learn.network import Network, NetworkClass
from milkrun.learn.process import computing, interruptible
from milkrun.learn.reinforce import default_options
from milkrun.learn.trained import ReinforceRun, load, read_run

FLAT = 50  # steps without a difference between the rows of any instance
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
    recent: list[float] = field(default_factory=list)
    """mean returns of the last training batches"""
    counts: dict[str, int] = field(default_factory=lambda: {"flat": 0, "truncated": 0, "played": 0})
    """steps in a row without a difference between rows; truncated rows; rows"""
    network: NetworkClass = Network
    """the class of the network"""
    ended: str = ""
    """why the run stopped before its last step: "interrupted", "collapsed: ..."; empty for a finished run"""

    def note(self, step: int, returns: torch.Tensor, truncated: int) -> None:
        """Counts a training step."""
        self.step = step
        if returns.numel():
            self.recent = [*self.recent[-19:], float(returns.mean())]
        self.counts["flat"] = self.counts["flat"] + 1 if _is_flat(returns) else 0
        self.counts["truncated"] += truncated
        self.counts["played"] += returns.numel()
        if self.counts["flat"] >= FLAT:
            self.ended = COLLAPSED.format(flat=FLAT)

    def add(self, held_out: float, seconds: float, episodes: int, gradient: float | None) -> None:
        """Adds an evaluation to the curve."""
        row: dict[str, Any] = {
            "step": self.step,
            "seconds": round(seconds, 2),
            "instances": episodes,
            "train": sum(self.recent) / len(self.recent) if self.recent else None,
            "held_out": held_out,
            "best": max(held_out, self.best),
        }
        self.curve.append(row)
        row |= {"gap": self.gap, "gradient": gradient}

    @property
    def policy(self) -> Any:
        """The best policy so far."""
        return load(self.folder / BEST, network=self.network)

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


def _is_flat(returns: torch.Tensor) -> bool:
    """Whether the rows of every instance have equal returns. Returns of single episodes, (E,), say nothing."""
    return returns.ndim == 2 and returns.shape[1] > 1 and bool((returns == returns[:, :1]).all())


def train(
    world: str,
    *,
    minutes: float | None = None,
    steps: int | None = None,
    out: str | os.PathLike[str] | None = None,
    algorithm: str | None = None,
    batch: int | None = None,
    lr: float | None = None,
    seed: int = 0,
    baseline: str | None = None,
    rows_each: int | None = None,
    starts: bool | str | None = None,
    layers: int | None = None,
    width: int | None = None,
    heads: int | None = None,
    entropy: float | None = None,
    features: Features | None = None,
    network: NetworkClass | None = None,
    every: int | None = None,
    device: str = "auto",
    threads: int | None = None,
    progress: bool = True,
    preset: str | None = None,
    config: Any = None,
    **options: Any,
) -> Run:
    """Trains a policy for a world and writes the run's folder.

    `minutes` (10 by default) or `steps` is the budget; minutes are turned into steps once. `algorithm` is "reinforce"
    where it fits the world, else "ppo", whose step is one update and whose `batch` is its rows. The options from
    `baseline` to `entropy` are those of `reinforce`: see `milkrun.learn.reinforce.Options`. `features` and `network`
    replace the derived features and the attention model (`milkrun.learn.network.Network`). `options`, `preset` and
    `config` configure the world as in `milkrun.make`. Ctrl-C ends the running step and keeps everything.
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
    batch = None if batch is None else check_count("batch", batch, 1)
    seed, device = check_seed(seed), choose_device(device)
    own: dict[str, Any] = {
        "baseline": baseline,
        "rows_each": rows_each,
        "layers": layers,
        "width": width,
        "heads": heads,
    }
    own = {name: value for name, value in {**own, "entropy": entropy}.items() if value is not None}
    chosen: Any
    build: Builder
    if algorithm == "ppo":
        from milkrun.learn import sb3

        others = {"starts": starts, "features": features, "network": network}
        if unused := [*own, *(name for name, value in others.items() if value is not None)]:
            raise ConfigError(f"{unused[0]} is an option of reinforce; {spec.id} is trained by ppo")
        chosen = sb3.default_options(made, given, rows=batch, lr=lr, seed=seed)

        def build(options: Any) -> Algorithm:
            return sb3.PPORun(made, options, device)
    else:
        first = bool(type(made).policy_starts) if starts in (None, "try") else read_starts(starts)
        chosen = default_options(made, given, batch=batch, lr=lr, seed=seed, starts=first, **own)
        derived = features or derive(made)

        def build(options: Any) -> Algorithm:
            return ReinforceRun(made, derived, options, device, network or Network)

    folder = new_folder(out, spec.id)
    with computing(threads):
        bar = Bar() if progress else None
        if starts == "try":
            chosen = try_starts(build, chosen, bar)
        evaluations = EVALUATIONS
        if seconds is not None:
            chosen, evaluations = in_time(build, chosen, seconds)
        state = build(chosen)
        run = Run(folder, spec.id, steps=chosen.steps, network=network or Network)
        run.references = references_of(made, seconds or estimate(build, chosen), bar)
        plan = {"every": every or max(1, chosen.steps // evaluations), "threads": threads, "device": device}
        write_about(run, state, plan)
        return loop(run, state, plan, bar)


def read_starts(starts: Any) -> bool:
    """yes or no."""
    if isinstance(starts, bool):
        return starts
    if starts not in ("yes", "no"):
        raise ConfigError(f"starts={starts!r}: must be yes, no or try")
    return bool(starts == "yes")


def choose_device(device: str) -> str:
    """auto is cuda where torch has one."""
    if device == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    try:
        return str(torch.empty(0, device=device).device)
    except (RuntimeError, AssertionError) as e:
        raise ConfigError(f"device={device!r}: torch cannot use it ({str(e).splitlines()[0]})") from None


def resume(
    folder: str | os.PathLike[str],
    *,
    progress: bool = True,
    threads: int | None = None,
    network: NetworkClass = Network,
) -> Run:
    """Continues an interrupted or killed run in its folder: `reinforce` on one thread to the same bits,
    `ppo` with new episodes. `network` is the class with which it was begun."""
    path = Path(name_of(folder))
    about, state = read_run(path / LAST, network=network)
    run = Run(path, about["world"], about["references"], about["curve"], about["step"], state.options.steps)
    run.recent, run.counts, run.network = about["recent"], about["counts"], network
    plan = {**about["plan"], "threads": threads or about["plan"]["threads"]}
    with computing(plan["threads"]):
        return loop(run, state, plan, Bar() if progress else None)


def loop(run: Run, state: Algorithm, plan: Mapping[str, Any], bar: Bar | None) -> Run:
    """Trains to the last step, or until an interrupt."""
    steps, every = state.options.steps, plan["every"]
    held_out, events = judge_of(state.world), Events(run.folder)
    start, first = time.perf_counter(), state.step
    spent = run.curve[-1]["seconds"] if run.curve else 0.0  # before a run was resumed
    shown = 0.0
    with interruptible() as stopping:
        while state.step < steps and not stopping and not run.ended:
            outcome = state.train_step()
            run.note(state.step, outcome.returns, outcome.truncated)
            seconds = time.perf_counter() - start
            is_evaluated = state.step % every == 0 or state.step == steps
            if is_evaluated:
                found = judge(held_out, state.policy())
                state.after_evaluation(state.step // every)
                is_better = found > run.best
                run.add(found, spent + seconds, state.episodes, outcome.gradient)
                if is_better:
                    save_policy(run, state)
                save(run, state, plan)
                events.add(run.curve[-1])
            if bar is not None and (is_evaluated or seconds - shown > 0.5):
                shown = seconds
                bar.show(progress_line(run, state, state.step - first, seconds), lasting=is_evaluated)
        if state.step < steps and not run.ended:
            run.ended = "interrupted"
        if not run.curve or run.curve[-1]["step"] != state.step:
            save(run, state, plan)
        events.close()
        if run.curve:
            title = f"{run.world}, {state.title}, {run.step:,} steps"
            draw_curve(run.folder / "curve.png", run.curve, run.references, title)
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
    write_file(run.folder / "run.json", (json.dumps(about, indent=1) + "\n").encode())
