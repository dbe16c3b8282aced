"""Tables and figures of `dpcd compare`."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from statistics import geometric_mean
from typing import Any

from dpcd.experiments.compare import FromPaper, Row, Source
from dpcd.experiments.methods import METHODS
from dpcd.experiments.report import legend_below, new_figure, save, tidy_csv
from dpcd.experiments.runs import write_atomically

# Okabe and Ito's colours and then some of Tol's; markers tell all of them apart in grey.
_COLORS = (
    *("#0072B2", "#D55E00", "#009E73", "#E69F00", "#56B4E9", "#CC79A7", "#7F7F7F"),
    *("#882255", "#999933", "#332288", "#117733", "#661100", "#AA4499"),
)
_MARKERS = "sP^vXDo<>*hpd8"

# Beyond this many times the zero model's error it no longer matters how much.
_TOP = 3.0
# What is lost below this counts as this where methods are compared. With clipped columns it can be below zero.
_NEGLIGIBLE = 1e-3
# Below this there is nothing to see any more.
_BOTTOM = 1e-7

#: What `solver="auto"` is held to: its mean against the best of the others, and its worst run against the zero model.
_WITHIN, _WORST = 2.0, 1.5
#: What is known for free, as it is called: nothing first, for that is how estimators come.
_PATHS = {False: "nothing declared", True: "smoothness declared"}
# Part of the optimum that the zero model must be above it for there to be a signal.
_SIGNAL = 0.01


def by_path(rows: Sequence[Row]) -> dict[str, list[Row]]:
    """The rows with nothing declared and those with smoothness constants, under these names, where there are any."""
    paths = {name: [row for row in rows if row.declared == declared] for declared, name in _PATHS.items()}
    return {name: some for name, some in paths.items() if some}


def _style(method: str) -> dict[str, Any]:
    """The same for a method in every figure: dashed as it comes, solid when tuned. ``auto`` stands out."""
    if method == "auto":
        return {"color": "black", "marker": "o", "linestyle": "-", "linewidth": 2.0, "markersize": 5, "zorder": 5}
    bases = list(dict.fromkeys(known.name.removesuffix(", tuned") for known in METHODS))
    rank = bases.index(method.removesuffix(", tuned")) - 1
    return {
        "color": _COLORS[rank % len(_COLORS)],
        "marker": _MARKERS[rank % len(_MARKERS)],
        "linestyle": "-" if method.endswith(", tuned") else "--",
        "linewidth": 1.1,
        "markersize": 4,
    }


def _draw(axes: Any, rows: Sequence[Row], title: str, lowest: float) -> None:
    """What is lost against ε, on logarithmic axes; curves that leave the picture at the top do so at its edge."""
    axes.axhline(1.0, color="black", linestyle=(0, (1, 1)), linewidth=1.2, label="zero model")
    for method in dict.fromkeys(row.method for row in rows):
        curve = [row for row in rows if row.method == method]
        values = [min(max(row.mean, _BOTTOM), _TOP) for row in curve]
        axes.plot([row.epsilon for row in curve], values, label=method, **_style(method))
    axes.set(yscale="log", ylim=(lowest / 1.6, 1.15 * _TOP), title=title)
    _against_epsilon(axes, rows)
    if lowest > 0.05:
        # Within so little more than a decade powers of ten would label one tick.
        ticks = [tick for tick in (0.05, 0.1, 0.2, 0.5, 1.0, 2.0) if tick >= lowest / 1.6]
        axes.set_yticks(ticks, [f"{tick:g}" for tick in ticks])


def _lowest(rows: Sequence[Row]) -> float:
    """Where the axis ends, the same for all panels of a problem."""
    return max(_BOTTOM, min(1.0, *(row.mean for row in rows)))


def figure_errors(rows: Sequence[Row], sources: Sequence[Source], folder: Path, name: str) -> None:
    """Panels for each problem, side by side: the part of what could be gained over the zero model that is lost."""
    drawn = []
    for source in sources:
        here = [row for row in rows if row.problem == source.key]
        drawn += [(some, f"{source.title}\n{path}", _lowest(here)) for path, some in by_path(here).items()]
    columns = min(len(drawn), 4)
    figure, grid = new_figure(columns, math.ceil(len(drawn) / columns), height=2.6, width=2.7)
    panels = list(grid.ravel())
    for axes, panel in zip(panels, drawn, strict=False):
        _draw(axes, *panel)
    for axes in panels[len(drawn) :]:
        axes.set_axis_off()
    for axes in grid[:, 0]:
        axes.set_ylabel("lost: (F − F*)/(F(0) − F*)")
    legend_below(figure, panels[: len(drawn)], columns)
    save(figure, folder, name)


def figure_one(rows: Sequence[Row], source: Source, folder: Path, name: str) -> None:
    """One problem: what is lost, and the objective itself between the non-private optimum and the zero model."""
    paths = by_path(rows)
    figure, grid = new_figure(2, len(paths), height=3.6, width=4.2)
    for (left, right), (path, some) in zip(grid, paths.items(), strict=True):
        _draw(left, some, f"what is lost, {path}", _lowest(rows))
        left.set_ylabel("(F − F*)/(F(0) − F*)")
        _draw_objective(right, some, f"objective, {path}")
    figure.suptitle(source.title)
    legend_below(figure, grid.ravel()[::-1], 4)
    save(figure, folder, name)


def _draw_objective(axes: Any, rows: Sequence[Row], title: str) -> None:
    optimum, zero = rows[0].optimum, rows[0].zero
    axes.axhline(zero, color="black", linestyle=(0, (1, 1)), linewidth=1.2, label="zero model")
    axes.axhline(optimum, color="black", linestyle=(0, (5, 2)), linewidth=1.2, label="non-private optimum")
    top = zero + 0.25 * (zero - optimum)
    for method in dict.fromkeys(row.method for row in rows):
        curve = [row for row in rows if row.method == method]
        values = [min(optimum + row.mean * (zero - optimum), top) for row in curve]
        axes.plot([row.epsilon for row in curve], values, label=method, **_style(method))
    axes.set(ylabel="objective F", title=title)
    axes.set_ylim(optimum - 0.05 * (zero - optimum), top + 0.02 * (zero - optimum))
    _against_epsilon(axes, rows)


def _against_epsilon(axes: Any, rows: Sequence[Row]) -> None:
    epsilons = sorted({row.epsilon for row in rows})
    axes.set(xscale="log", xlabel="privacy budget ε")
    axes.set_xticks(epsilons, [f"{epsilon:g}" for epsilon in epsilons])
    axes.minorticks_off()
    axes.grid(alpha=0.25, linewidth=0.5)


def _number(value: float) -> str:
    """Two digits, whatever the size."""
    if not math.isfinite(value):
        return "∞"
    if value >= 99.5:
        return f"{value:.0e}"
    digits = 1 - math.floor(math.log10(abs(value))) if abs(value) >= 1e-7 else 7
    return f"{value:.{max(digits, 0)}f}"


def table(rows: Sequence[Row], relative: bool = False) -> str:
    """One problem: methods down, ε across, mean and (worst) of the runs; the lowest mean of a column is bold."""
    epsilons = sorted({row.epsilon for row in rows})
    entries = {(row.method, row.epsilon): row for row in rows}

    def mean(row: Row) -> float:
        return row.relative_mean if relative else row.mean

    least = {epsilon: min(mean(row) for row in rows if row.epsilon == epsilon) for epsilon in epsilons}
    lines = [
        "| method | " + " | ".join(f"ε = {epsilon:g}" for epsilon in epsilons) + " |",
        "|---|" + "---|" * len(epsilons),
    ]
    for method in dict.fromkeys(row.method for row in rows):
        cells = []
        for epsilon in epsilons:
            row = entries.get((method, epsilon))
            if row is None:
                cells.append("–")
                continue
            text = _number(mean(row))
            worst = _number(row.relative_worst if relative else row.worst)
            cells.append(f"{f'**{text}**' if mean(row) == least[epsilon] else text} ({worst})")
        lines.append(f"| {method} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def summary(rows: Sequence[Row], sources: Sequence[Source], of: str = "auto") -> str:
    """For each problem and ε the best of the other methods, and how many times its error `of` has."""
    epsilons = sorted({row.epsilon for row in rows})
    lines = [
        "| problem | " + " | ".join(f"ε = {epsilon:g}" for epsilon in epsilons) + " |",
        "|---|" + "---|" * len(epsilons),
    ]
    for source in sources:
        cells = []
        for epsilon in epsilons:
            here = [row for row in rows if row.problem == source.key and row.epsilon == epsilon]
            others = [row for row in here if row.method != of]
            if not others:
                cells.append("–")
                continue
            best = min(others, key=lambda row: row.mean)
            own = [row for row in here if row.method == of]
            ratio = f", {of} × {_number(own[0].mean / best.mean)}" if own else ""
            cells.append(f"{best.method} {_number(best.mean)}{ratio}")
        lines.append(f"| {source.title} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def verdicts(rows: Sequence[Row], sources: Sequence[Source], of: str = "auto") -> str:
    """How `of` stands to the best others, and where it is not what it is held to; empty where it was not run."""
    own = {(row.problem, row.epsilon): row for row in rows if row.method == of}
    if not own:
        return ""
    titles = {source.key: source.title for source in sources}
    behind, wild, beaten, compared, silent = [], [], [], 0, []
    ratios: dict[float, list[float]] = {}
    for (problem, epsilon), row in own.items():
        others = [r for r in rows if (r.problem, r.epsilon) == (problem, epsilon) and r.method != of]
        where = f"{titles[problem]} at ε = {epsilon:g}"
        rival = [r for r in others if r.method == "DP-SGD, tuned"]
        compared += len(rival)
        if rival and row.mean > rival[0].mean:
            beaten.append(f"{where} ({_number(row.mean)}, DP-SGD {_number(rival[0].mean)})")
        if row.zero <= (1.0 + _SIGNAL) * row.optimum:
            # What the zero model loses is next to nothing, and ratios to it say nothing.
            silent.append(row.relative_worst)
            continue
        best = min(others, key=lambda r: r.mean, default=None)
        if best is not None:
            ratio = max(row.mean, _NEGLIGIBLE) / max(best.mean, _NEGLIGIBLE)
            ratios.setdefault(epsilon, []).append(ratio)
            if ratio > _WITHIN:
                behind.append(f"{where} ({_number(row.mean)}, {best.method} {_number(best.mean)})")
        if row.worst > _WORST:
            wild.append(f"{where} ({_number(row.worst)})")
    total = len(own) - len(silent)
    claims = [
        (f"{of} loses at most {_WITHIN:g} times what the best other method loses", behind, total),
        (f"The worst run of {of} loses at most {_WORST:g} times what the zero model loses", wild, total),
        (f"{of} is at or below tuned DP-SGD", beaten, compared),
    ]
    lines = [
        f"- {claim} in {count - len(cases)} of {count} cells{'; not in: ' + '; '.join(cases) if cases else ''}.\n"
        for claim, cases, count in claims
        if count
    ]
    if ratios:
        means = ", ".join(f"{geometric_mean(some):.2f} at ε = {epsilon:g}" for epsilon, some in ratios.items())
        lines.append(f"- What {of} loses over what the best other method loses, geometric mean: {means}.\n")
    if silent:
        lines.append(f"- Where there is no signal, the worst run of {of} is {max(silent):.1%} above the optimum.\n")
    return "".join(lines)


PAGE = """# Methods compared

Made by `{command}` with dpcd {version}. **Not private**: optima are shown, and the settings of methods called *tuned*
are chosen on the data at no cost, as in the paper. Neighbours replace one record; δ = 1/n²; no intercept (a table of
your own gets one).

With *nothing declared*, as estimators come, what a method wants to know of the columns it learns out of its budget.
With *smoothness declared*, as in the paper, it is given each column's constant for free. Tuned methods are run with
these alone: their settings are made from what is known for free, typical gradients and the largest curvature or row.

With nothing declared, a fit clips columns to ranges that it learns, and predictions clip to them, too. Models are
judged as they predict, so that *lost* can be below 0. In comparisons .001 is the least that counts.

How to read it: *lost* is (F − F*)/(F(0) − F*), the part of what could be gained over the zero model that privacy
costs. 0 is the non-private optimum, 1 the zero model (all weights 0), and what is above 1 is worse than nothing.
Tables give the mean and, in brackets, the worst of {runs} runs. A tuned method chooses on other runs than those. A
method that is missing does not apply to the problem: its solver refuses the loss, the penalty or an intercept. Without
signal in a table the optimum and the zero model nearly agree, so that *lost* magnifies differences that do not matter.

Tuned DP-SGD and DP-SVRG have the noise that numerical composition of the tight bound for one batch allows. This
library's own bound, which DP-SCD and the other DP-SGD go by, asks DP-SGD for 4 to 15 % more, and for up to 30 % more
where batches are small. All data: [table.csv](table.csv).

{verdicts}
{figures}
## The best other method, and auto beside it

{summaries}
{tables}"""


def _each(rows: Sequence[Row], told: Callable[[Sequence[Row]], str], about: str = "") -> str:
    """What is told of the rows of each path, if anything, under its name."""
    return "\n".join(f"{about}{path}:\n\n{text}" for path, some in by_path(rows).items() if (text := told(some)))


def write(rows: Sequence[Row], sources: Sequence[Source], folder: Path, command: str, version: str, runs: int) -> Path:
    """Store the table and its figures, and return the page that shows them."""
    write_atomically(folder / "table.csv", tidy_csv(rows).encode())
    figures = {}
    if len(sources) == 1:
        figures["figure"] = "What each method loses, and its objective, against ε."
        figure_one(rows, sources[0], folder, "figure")
    else:
        paper = [source for source in sources if isinstance(source, FromPaper)]
        others = [source for source in sources if not isinstance(source, FromPaper)]
        for name, some, kind in (("figure-paper", paper, "the paper's problems"), ("figure-others", others, "others")):
            if some:
                figures[name] = f"What each method loses, against ε: {kind}. Curves at the upper edge go beyond it."
                figure_errors(rows, some, folder, name)
    tables = []
    for source in sources:
        here = [row for row in rows if row.problem == source.key]
        tables.append(f"## {source.title}\n\n{_each(here, table, 'Lost, ')}")
        if isinstance(source, FromPaper):
            relative = partial(table, relative=True)
            tables.append(_each(here, relative, "Relative error (F − F*)/F* as in the paper, "))
    text = PAGE.format(
        command=command,
        version=version,
        runs=runs,
        verdicts=_each(rows, partial(verdicts, sources=sources), "Auto, "),
        figures="".join(f"![{caption}]({name}.png)\n*{caption}*\n\n" for name, caption in figures.items()),
        summaries=_each(rows, partial(summary, sources=sources), "With "),
        tables="\n".join(tables),
    )
    write_atomically(folder / "README.md", text.encode())
    return folder / "README.md"
