"""`milkrun train`: trains a policy for a world, or continues a run."""

from __future__ import annotations

from pathlib import Path

import typer

from milkrun.cli.output import PRESET, SETTINGS, read_settings

COLLAPSED = 3  # exit code
INTERRUPTED = 130


def train(
    id: str | None = typer.Argument(None, metavar="ID", help="A world, e.g. CVRP-v0.", show_default=False),
    minutes: float | None = typer.Option(None, "--minutes", min=0.05, show_default="10", help="Budget of time."),
    steps: int | None = typer.Option(None, "--steps", min=1, help="Budget in training steps instead of minutes."),
    out: Path | None = typer.Option(None, "--out", show_default="runs/<world>-<date>", help="Folder of the run."),
    resume: Path | None = typer.Option(None, "--resume", metavar="DIR", help="Continue the run in this folder."),
    explain: bool = typer.Option(False, "--explain", help="Print what the network sees of each field; train nothing."),
    preset: str | None = PRESET,
    settings: list[str] = SETTINGS,
    algorithm: str | None = typer.Option(None, "--algorithm", show_default="by the world", help="reinforce or ppo."),
    baseline: str | None = typer.Option(
        None, "--baseline", show_default="shared", help="shared (POMO) or rollout (attention model)."
    ),
    batch: int | None = typer.Option(None, "--batch", min=1, show_default="32", help="Instances a step."),
    rows_each: int | None = typer.Option(
        None, "--rows-each", min=1, show_default="by the world", help="Rows an instance, with the shared baseline."
    ),
    starts: str | None = typer.Option(
        None, "--starts", show_default="by the world", help="Different first actions of these rows: yes, no or try."
    ),
    lr: float | None = typer.Option(None, "--lr", min=0.0, show_default="5e-4", help="Highest learning rate."),
    layers: int | None = typer.Option(None, "--layers", min=1, max=16, show_default="3", help="Layers of the encoder."),
    width: int | None = typer.Option(
        None, "--width", min=8, max=1024, show_default="128", help="Width of the network."
    ),
    heads: int | None = typer.Option(None, "--heads", min=1, max=64, show_default="8", help="Heads of the attention."),
    entropy: float | None = typer.Option(None, "--entropy", min=0.0, show_default="0", help="Weight of the entropy."),
    seed: int = typer.Option(0, "--seed", min=0, help="Seed of the weights, the instances and the draws."),
    device: str = typer.Option("auto", "--device", help="cpu, cuda, ...; auto: cuda where torch has one."),
    threads: int | None = typer.Option(None, "--threads", min=1, show_default="all cores", help="Threads."),
    every: int | None = typer.Option(
        None, "--every", min=1, show_default="a 20th of the budget", help="Steps between evaluations."
    ),
) -> int:
    """Train a policy for a world.

    Shows the mean return of the last batches, the best mean on 256 held-out instances, and its gap to the best
    reference: the policies of the world and a solver, computed before the first step. Ctrl-C keeps everything.

    The folder holds best.safetensors, a policy by its path in every command (run, eval, replay, solve), and
    last.safetensors, which --resume continues: on one thread to the same bits.

    \b
    Examples:
      milkrun train CVRP-v0 --set num_loc=20 --minutes 10 --out runs/cvrp20
      milkrun train --resume runs/cvrp20
      milkrun eval CVRP-v0 --set num_loc=20 --policies nearest,runs/cvrp20/best.safetensors:starts,x8
      milkrun train SDWCVRP-v0 --explain
    """
    from milkrun.core.errors import ConfigError

    if resume is not None:
        if id is not None:
            raise ConfigError("--resume continues the run in its folder: give no ID with it")
        from milkrun import learn

        return _report(learn.resume(resume))
    if id is None:
        raise ConfigError("give the ID of a world, or --resume with the folder of a run")
    if explain:
        import milkrun
        from milkrun.core.features import derive, fits
        from milkrun.core.registry import named_world

        world = milkrun.make(named_world(id).id, 1, preset=preset, config=read_settings(settings), seed=0)
        why = fits(world)
        typer.echo(f"features cannot be derived, because {why}: `ppo` trains this world" if why else str(derive(world)))
        return 0
    from milkrun import learn

    return _report(
        learn.train(
            id,
            minutes=minutes,
            steps=steps,
            algorithm=algorithm,
            baseline=baseline,
            batch=batch,
            rows_each=rows_each,
            starts=starts,
            lr=lr,
            layers=layers,
            width=width,
            heads=heads,
            entropy=entropy,
            seed=seed,
            device=device,
            threads=threads,
            every=every,
            out=out,
            preset=preset,
            config=read_settings(settings),
        )
    )


def _report(run: object) -> int:
    """Prints where the run is, and how to go on."""
    from milkrun.learn import Run
    from milkrun.learn.run import BEST

    assert isinstance(run, Run)
    for name, value in sorted(run.references.items(), key=lambda item: -item[1]):
        typer.echo(f"{name:>12}  {value:.4f}")
    if run.curve:
        typer.echo(f"{'trained':>12}  {run.best:.4f}  {run.folder / BEST}")
    if run.ended:
        typer.echo(f"{run.ended} after {run.step:,} of {run.steps:,} steps")
    if run.ended == "interrupted":
        typer.echo(f"continue with: milkrun train --resume {run.folder}")
        return INTERRUPTED
    return COLLAPSED if run.ended else 0
