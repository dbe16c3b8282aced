"""The command line: ``dpcd --help``."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

try:
    import typer
    from rich.console import Console
    from rich.markup import escape
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
    from rich.table import Column, Table
except ImportError as error:  # pragma: no cover - depends on what is installed
    raise SystemExit(f"the command line needs {error.name}: pip install 'dpcd[cli]'") from error

import dpcd
from dpcd.privacy import Ledger, LedgerError, PrivacyBudget
from dpcd.privacy.accounting import ORDERS

if TYPE_CHECKING:
    from dpcd.experiments.compare import FromFile, Row, Source

app = typer.Typer(add_completion=False, no_args_is_help=True, help="Linear models with differential privacy.")
ledger_app = typer.Typer(no_args_is_help=True, help="Budgets that last: what was ever spent on a data set.")
app.add_typer(ledger_app, name="ledger")


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
    quick: Annotated[bool, typer.Option("--quick", help="A thinned grid, for a look; about two minutes.")] = False,
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


@app.command()
def compare(
    data: Annotated[Path | None, typer.Option(help="Your table, CSV or Parquet.", show_default=False)] = None,
    target: Annotated[str | None, typer.Option(help="The column of it to predict.", show_default=False)] = None,
    loss: Annotated[
        str | None, typer.Option(help="squared or logistic; default: logistic for two classes.", show_default=False)
    ] = None,
    penalty: Annotated[str, typer.Option(help="l1 or l2, for your table.")] = "l2",
    alpha: Annotated[float | None, typer.Option(help="Its strength; default: 1/n.", show_default=False)] = None,
    raw: Annotated[bool, typer.Option("--raw", help="Do not standardise your table.")] = False,
    problem: Annotated[
        list[str] | None,
        typer.Option(help="A built-in problem; repeat it for several, or say all or list.", show_default=False),
    ] = None,
    epsilon: Annotated[
        list[float] | None, typer.Option(help="Repeat it for several; default: 0.05 to 10.", show_default=False)
    ] = None,
    declared: Annotated[
        bool | None,
        typer.Option(
            "--declared/--undeclared",
            help="Smoothness for free, or nothing; default: both.",
            show_default=False,
        ),
    ] = None,
    tuned: Annotated[
        bool, typer.Option("--tuned", help="With smoothness declared, methods tuned at no cost too; slow.")
    ] = False,
    out: Annotated[Path, typer.Option(help="Folder for results; an interrupted run goes on there.")] = Path(
        "comparison"
    ),
    again: Annotated[
        list[str] | None, typer.Option(help="Forget what is stored of a method, by name.", show_default=False)
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Fewer runs and two values of epsilon, for a look.")] = False,
    jobs: Annotated[int, typer.Option(min=1, help="Processes; default: one for each core.")] = os.cpu_count() or 1,
    seed: Annotated[int, typer.Option(min=0, help="Every random choice comes from it.")] = 0,
) -> None:
    """Compare all methods that apply to a problem: one table, one plot of error against epsilon.

    A study that is not private: it shows optima, and on your own data nobody but those who may see the data may see it.
    The table of all methods on all problems is dpcd compare --problem all --tuned --out results/methods.
    """
    from dpcd.experiments import methods_report
    from dpcd.experiments.compare import DEFAULT, EPSILONS, FULL, QUICK, STUDY, Unit, units, work
    from dpcd.experiments.compare import compare as run
    from dpcd.experiments.methods import METHODS

    console = Console()
    if problem and "list" in problem and data is None:
        for source in STUDY:
            console.print(f"{source.key}  ({source.title})", highlight=False, soft_wrap=True)
        return
    with _explained():
        if data is not None:
            console.print(
                "[bold yellow]Not private:[/bold yellow] this shows the optimum on your data and errors measured "
                "against it. Do not publish any of it unless the data are public.",
                soft_wrap=True,
            )
            sources: list[Source] = [_user_table(data, target, loss, penalty, alpha, not raw)]
        else:
            sources = _built_in(problem) if problem else [DEFAULT]
        unknown = set(again or ()) - {method.name for method in METHODS}
        if unknown:
            names = ", ".join(repr(method.name) for method in METHODS)
            raise ValueError(f"there is no method {', '.join(sorted(unknown))}: choose from {names}")
        methods = [method for method in METHODS if tuned or not method.tuned]
        known = (False, True) if declared is None else (declared,)
        effort = QUICK if quick else FULL
        epsilons = sorted(set(epsilon)) if epsilon else (0.3, 3.0) if quick else EPSILONS
        for value in epsilons:
            PrivacyBudget(value, 1e-9)
        if quick:
            out = out.with_name(f"{out.name}-quick")
        every = units(sources, methods, epsilons, known)
        for unit in every:
            if unit.method in (again or ()):
                (out / "units" / unit.name).unlink(missing_ok=True)
        columns = TextColumn("{task.description}"), BarColumn(), TextColumn("{task.percentage:>3.0f}%")
        with Progress(
            *columns, TimeElapsedColumn(), TextColumn("left"), TimeRemainingColumn(), console=console
        ) as progress:
            task = progress.add_task("compare", total=sum(work(unit) for unit in every))

            def on_unit(unit: Unit, seconds: float) -> None:
                progress.advance(task, work(unit))

            rows = run(sources, methods, epsilons, known, effort, out / "units", seed, jobs, on_unit)
        flags = {"--declared": declared, "--undeclared": declared is False, "--tuned": tuned, "--quick": quick}
        options = [f"--problem {name}" for name in problem or ()] + [flag for flag, given in flags.items() if given]
        page = methods_report.write(
            rows, sources, out, " ".join(["dpcd compare", *options]), dpcd.__version__, effort.runs
        )
    if len(sources) == 1:
        for path, some in methods_report.by_path(rows).items():
            console.print(_mean_losses(f"{sources[0].title}, {path}", some, epsilons))
    console.print(f"Wrote {page}", soft_wrap=True)


def _built_in(names: list[str]) -> list[Source]:
    """The problems of these names."""
    from dpcd.experiments.compare import STUDY, FromPaper
    from dpcd.experiments.settings import PROBLEMS

    unknown = set(names) - {source.key for source in STUDY} - {"all"}
    if unknown:
        raise ValueError(f"there is no problem {', '.join(sorted(unknown))}: see dpcd compare --problem list")
    sources = [source for source in STUDY if source.key in names or "all" in names]
    for source in sources:
        if isinstance(source, FromPaper):
            # Here, and not in some process, is where to hear of data that are missing.
            PROBLEMS[source.key].load()
    return sources


def _mean_losses(title: str, rows: list[Row], epsilons: Sequence[float]) -> Table:
    """What each method loses on average, with both ends of the scale."""
    table = Table("method", *(f"ε = {value:g}" for value in epsilons), title=f"{title}: mean part lost")
    for method in dict.fromkeys(row.method for row in rows):
        table.add_row(method, *(f"{row.mean:.2g}" for row in rows if row.method == method))
    table.add_row("zero model", *("1" for _ in epsilons))
    table.add_row("non-private optimum", *("0" for _ in epsilons))
    return table


def _user_table(
    data: Path, target: str | None, loss: str | None, penalty: str, alpha: float | None, standardize: bool
) -> FromFile:
    """Refuse what cannot be, in words."""
    from dpcd.experiments.compare import FromFile

    if not data.is_file():
        raise ValueError(f"there is no file {data}")
    if target is None:
        raise ValueError("say which column of your table to predict, as in --target price")
    if loss not in (None, "squared", "logistic"):
        raise ValueError(f"--loss is squared or logistic, not {loss}")
    if penalty not in ("l1", "l2"):
        raise ValueError(f"--penalty is l1 or l2, not {penalty}")
    if alpha is not None and not 0.0 <= alpha < math.inf:
        raise ValueError(f"--alpha is a number of at least 0, not {alpha}")
    source = FromFile(data, target, loss, penalty, alpha, standardize)
    source.read()
    return source


LedgerArgument = Annotated[
    str, typer.Argument(metavar="LEDGER", help="The file, as a path or as in sqlite:///ledger.db.", show_default=False)
]


def _ledger(path_or_url: str) -> Ledger:
    return Ledger(path_or_url if "://" in path_or_url else f"sqlite:///{path_or_url}")


@contextmanager
def _explained() -> Iterator[None]:
    """Errors as one message and exit status 1, not as a traceback."""
    try:
        yield
    except (LedgerError, OSError, ValueError) as error:
        Console(stderr=True).print(f"[red]{escape(str(error))}[/red]", soft_wrap=True)
        raise typer.Exit(1) from error


def _rounded_down(epsilon: float) -> str:
    """Four digits that do not promise more than there is."""
    if epsilon == 0.0:
        return "0"
    unit = 10.0 ** (math.floor(math.log10(epsilon)) - 3)
    return f"{math.floor(epsilon / unit * (1.0 + 1e-12)) * unit:.4g}"


@ledger_app.command("create")
def create_ledger(
    ledger: LedgerArgument,
    dataset: Annotated[str, typer.Option(help="Name of the data set, which is public.")],
    epsilon: Annotated[float, typer.Option(help="Budget for everything ever released about it.")],
    delta: Annotated[float, typer.Option(help="Probability with which that may fail; well below 1/n.")],
    batches: Annotated[
        bool, typer.Option("--batches", help="Admit PrivateSearch and secret batches (DPSGD …), at looser accounting.")
    ] = False,
    network_folder: Annotated[
        bool, typer.Option("--network-folder", help="The file is new, and several machines will use it. Slower.")
    ] = False,
) -> None:
    """Fix the budget of a data set, once. Makes the file if there is none."""
    with _explained():
        opened, budget = _ledger(ledger), PrivacyBudget(epsilon, delta)
        if batches:
            # The order that leaves most room for Gaussian noise is near the best one for batches too.
            budgets = (PrivacyBudget(epsilon, delta, order) for order in ORDERS.tolist())
            budget = max(budgets, key=PrivacyBudget.gaussian_room)
        opened.create(dataset, budget, network_folder)
    url = f"sqlite:///{opened.path.absolute()}"
    Console().print(
        f"Dataset {dataset!r} has epsilon = {epsilon:g} at delta = {delta:g}. Spend it with\n"
        f"DPLasso(ledger={url!r}, dataset={dataset!r})",
        soft_wrap=True,
        markup=False,
        highlight=False,
    )


@ledger_app.command("show")
def show_ledger(
    ledger: LedgerArgument,
    dataset: Annotated[str | None, typer.Option(help="Only this one.", show_default=False)] = None,
) -> None:
    """Show what was spent and what is left."""
    table = Table(Column("dataset", overflow="fold"))
    for column in ("epsilon", "delta", "spent epsilon", "left epsilon", "charges"):
        table.add_column(column, justify="right")
    with _explained():
        opened = _ledger(ledger)
        for name in opened.datasets() if dataset is None else (dataset,):
            standing = opened.standing(name)
            table.add_row(
                escape(name),
                f"{standing.budget.epsilon:g}",
                f"{standing.budget.delta:g}",
                f"{standing.epsilon_spent:.4g}",
                _rounded_down(standing.epsilon_left),
                str(standing.n_charges),
            )
    console = Console()
    console.print(table)
    console.print("left: what one more fit may ask for at this delta. Costs add in μ², so spent + left > epsilon.")


@ledger_app.command("history")
def show_history(
    ledger: LedgerArgument, dataset: Annotated[str, typer.Option(help="Whose charges to list.", show_default=False)]
) -> None:
    """List every charge."""
    table = Table(Column("time (UTC)", no_wrap=True), Column("released", overflow="fold"))
    for column in ("times", "epsilon alone", "μ²", "process"):
        table.add_column(column, justify="right")
    with _explained():
        opened = _ledger(ledger)
        delta = opened.standing(dataset).budget.delta
        for charge in opened.history(dataset):
            table.add_row(
                f"{charge.time:%Y-%m-%d %H:%M:%S}",
                escape(charge.description),
                "" if charge.releases is None else str(charge.releases),
                f"{charge.cost.epsilon(delta):.4g}",
                f"{charge.cost.mu_squared:.4g}",
                str(charge.process),
            )
    Console().print(table)


@app.command()
def plan(
    n: Annotated[int, typer.Option("--n", help="Number of records.", show_default=False)],
    p: Annotated[int, typer.Option("--p", help="Number of features.", show_default=False)],
    epsilon: Annotated[float, typer.Option(help="The budget; smaller is more private.")] = 1.0,
    delta: Annotated[float | None, typer.Option(help="Default: 1/n².", show_default=False)] = None,
    loss: Annotated[str, typer.Option(help="squared or logistic.")] = "squared",
    penalty: Annotated[str, typer.Option(help="l1 or l2.")] = "l2",
    no_intercept: Annotated[bool, typer.Option("--no-intercept", help="There is none to fit.")] = False,
    bounds: Annotated[bool, typer.Option("--bounds", help="Bounds of features and target will be declared.")] = False,
    smoothness: Annotated[bool, typer.Option("--smoothness", help="Second moments will be declared.")] = False,
    classes: Annotated[int, typer.Option(help="Number of classes, with --loss logistic.")] = 2,
    kind: Annotated[
        str | None, typer.Option(help="Of columns, if you know: regular, long-tailed or flags.", show_default=False)
    ] = None,
    signal: Annotated[
        float | None,
        typer.Option(
            help="Part of the loss that features explain, as R²; default: 0.67, logistic 0.4.", show_default=False
        ),
    ] = None,
) -> None:
    """Say what a private fit would be worth, before anything is spent: from public numbers, without data."""
    with _explained():
        found = dpcd.plan(
            n,
            p,
            epsilon,
            delta,
            loss=loss,
            penalty=penalty,
            fit_intercept=not no_intercept,
            bounds_declared=bounds,
            smoothness_declared=smoothness,
            n_classes=classes,
            kind=kind,
            signal=signal,
        )
        Console().print(str(found), markup=False, highlight=False, soft_wrap=True)


@app.command()
def audit(
    epsilon: Annotated[float, typer.Option(help="The claim to test.")] = 1.0,
    delta: Annotated[float, typer.Option(help="Its delta.")] = 1e-5,
    solver: Annotated[str, typer.Option(help="auto (what fits do by default) or cd (DP-CD).")] = "auto",
    loss: Annotated[str, typer.Option(help="squared or logistic.")] = "squared",
    passes: Annotated[int, typer.Option(min=1, help="Passes, with --solver cd.")] = 2,
    trials: Annotated[int, typer.Option(min=50, help="Runs on each of the two data sets.")] = 2_000,
    confidence: Annotated[float, typer.Option(min=0.5, max=0.9999, help="Of the lower bound.")] = 0.99,
    plot: Annotated[Path | None, typer.Option(help="Save the trade-off curve here.")] = None,
) -> None:
    """Measure a lower bound on the epsilon that a fit really provides, seen by an adversary who sees every release.

    Two data sets that differ in one record as much as they can, secure noise, and what an estimator does by default:
    ranges are learnt, and solver "auto" spends the rest. Exit status 1 if the claim is refuted. To audit other solvers,
    losses or libraries see dpcd.audit.
    """
    from dpcd.audit import white_box
    from dpcd.losses import Logistic, Loss, Squared
    from dpcd.solvers import DPCD

    console = Console()
    solvers = {"auto": None, "cd": DPCD(n_passes=passes, clip=1.0)}
    losses: dict[str, Loss] = {"squared": Squared(), "logistic": Logistic()}
    if solver not in solvers or loss not in losses:
        console.print("[red]--solver is auto or cd, and --loss is squared or logistic[/red]")
        raise typer.Exit(2)
    columns = TextColumn("audit"), BarColumn(), TextColumn("{task.percentage:>3.0f}%"), TimeRemainingColumn()
    with Progress(*columns, console=console, disable=not console.is_terminal) as progress:
        task = progress.add_task("audit", total=2 * trials)
        try:
            result = white_box(
                solvers[solver],
                epsilon,
                delta,
                losses[loss],
                n_trials=trials,
                confidence=confidence,
                method="gaussian",
                on_trial=lambda: progress.advance(task),
            )
        except ValueError as error:
            console.print(f"[red]{escape(str(error))}[/red]")
            raise typer.Exit(2) from error
    console.print(str(result), highlight=False)
    if plot is not None:
        result.plot(plot)
        console.print(f"Wrote {plot}")
    if result.refuted:
        raise typer.Exit(1)


@app.command()
def verify(
    statement: Annotated[Path, typer.Argument(help="A file written with model.privacy_.to_json().")],
) -> None:
    """Check a privacy statement: hold what it says against itself, and compute its epsilon anew.

    Not by the library's accounting: from the listed noise multipliers and counts alone, in closed form or with
    dp-accounting. It cannot see releases that the statement leaves out, nor whether the program did what it says.

    Exit status 0 if it holds, 1 if it does not, 2 if the file is no statement.
    """
    from dpcd.verify import StatementError
    from dpcd.verify import verify as check

    console = Console()
    try:
        result = check(statement.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, StatementError) as error:
        console.print(f"[red]{escape(str(error))}[/red]")
        raise typer.Exit(2) from error
    console.print(escape(str(result)), highlight=False)
    if not result.verified:
        raise typer.Exit(1)
