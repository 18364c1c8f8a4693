"""The `milkrun` command line: one application with all commands."""

from __future__ import annotations

import typer

from milkrun.cli.bench import bench
from milkrun.cli.dataset import dataset
from milkrun.cli.demo import demo
from milkrun.cli.evaluate import eval_
from milkrun.cli.replay import replay, report
from milkrun.cli.run import run
from milkrun.cli.simulate import simulate
from milkrun.cli.solve import solve
from milkrun.cli.train import train
from milkrun.cli.worlds import check, info, list_

app = typer.Typer(
    name="milkrun",
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)


# A line of \b alone in these docstrings: the help shows the lines of the paragraph as they stand.
@app.callback(invoke_without_command=True)
def milkrun(
    context: typer.Context,
    version: bool = typer.Option(False, "--version", help="Print the version and exit.", is_eager=True),
) -> None:
    """Fast, batched reinforcement-learning worlds for machines that move things.

    \b
    Examples:
      milkrun list
      milkrun info milkrun/CVRP-v0
      milkrun run CVRP-v0 --num-envs 512 --policy nearest --set num_loc=50
      milkrun eval CVRP-v0 --policies random,nearest
      milkrun solve A-n32-k5.vrp --method pyvrp
      milkrun replay CVRP-v0 --policies random,nearest
      milkrun train CVRP-v0 --set num_loc=20 --minutes 10
      milkrun dataset CVRP-v0 --instances 10000 --out data/cvrp
      milkrun demo --out out
    """
    if version:
        from milkrun._version import __version__

        typer.echo(f"milkrun {__version__}")
    elif context.invoked_subcommand is None:
        typer.echo(context.get_help())


app.command("list")(list_)
app.command()(info)
app.command()(run)
app.command("eval")(eval_)
app.command()(solve)
app.command()(replay)
app.command()(report)
app.command()(dataset)
app.command()(bench)
app.command()(check)
app.command()(demo)
app.command()(simulate)
app.command()(train)
