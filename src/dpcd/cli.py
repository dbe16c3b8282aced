"""The command line: ``dpcd --help``."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

try:
    import typer
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
except ImportError as error:  # pragma: no cover - depends on what is installed
    raise SystemExit(f"the command line needs {error.name}: pip install 'dpcd[cli]'") from error

import dpcd

app = typer.Typer(add_completion=False, no_args_is_help=True, help="Linear models with differential privacy.")


def _version(show: bool) -> None:
    if show:
        typer.echo(f"dpcd {dpcd.__version__}")
        raise typer.Exit


@app.callback()
def main(
    version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Show it.")] = False,
) -> None:
    """Linear models with differential privacy."""


@app.command()
def reproduce(
    output: Annotated[Path, typer.Option(help="Folder for results; an interrupted run goes on there.")] = Path(
        "results/paper"
    ),
    quick: Annotated[bool, typer.Option("--quick", help="A thinned grid, for a look; under two minutes.")] = False,
    jobs: Annotated[int, typer.Option(min=1, help="Processes; default: one for each core.")] = os.cpu_count() or 1,
    seed: Annotated[int, typer.Option(min=0, help="Every random choice comes from it.")] = 0,
) -> None:
    """Run the paper's experiments: Tables 2 and 3, Figures 1 to 3, and more.

    Needs the California and Electricity data: downloaded, or read from the folder that DPCD_DATA names.
    """
    # Slow to import, and of use to this command only.
    from dpcd.experiments.reproduce import reproduce as run
    from dpcd.experiments.runs import FULL, QUICK, Unit, units, work
    from dpcd.experiments.settings import PROBLEMS

    grid = QUICK if quick else FULL
    if quick:
        output = output.with_name(f"{output.name}-quick")
    console = Console()
    try:
        for problem in PROBLEMS.values():
            problem.load()
    except (OSError, ValueError) as error:
        console.print(f"[red]{error}[/red]")
        raise typer.Exit(1) from error
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.percentage:>3.0f}%"),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, disable=not console.is_terminal) as progress:
        task = progress.add_task("grid", total=sum(work(unit, grid) for unit in units(grid)))

        def on_unit(unit: Unit, seconds: float) -> None:
            progress.advance(task, work(unit, grid))

        page = run(
            grid,
            output,
            seed,
            jobs,
            3 if quick else 10,
            "dpcd reproduce" + (" --quick" if quick else ""),
            on_unit,
            lambda stage: progress.update(task, description=stage),
        )
    console.print(f"Wrote {page}")
