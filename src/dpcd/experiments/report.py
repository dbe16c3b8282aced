"""Tables and figures out of the grid's results, the paper's own numbers beside ours."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from dpcd.experiments.curves import BoundPoint, BudgetPoint, Point
from dpcd.experiments.runs import Cell, write_atomically
from dpcd.experiments.settings import METHODS, PAPER_ERRORS, PAPER_SECONDS, PROBLEMS

Best = Mapping[tuple[str, str, int], Cell]

# Colours of Okabe and Ito, told apart by the colour-blind; markers and dashes tell them apart in grey.
_STYLES: dict[str, dict[str, Any]] = {
    "DP-CD": {"color": "#0072B2", "marker": "o", "linestyle": "-"},
    "DP-CD-P": {"color": "#009E73", "marker": "P", "linestyle": "--"},
    "DP-SGD": {"color": "#E69F00", "marker": "^", "linestyle": "-"},
    "DP-SCD": {"color": "#D55E00", "marker": "X", "linestyle": ":"},
    "DP-CD, exact": {"color": "#000000", "marker": "s", "linestyle": "-."},
}


def tidy_csv(rows: Sequence[Any]) -> str:
    """Named tuples as CSV."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(rows[0]._fields)
    writer.writerows([f"{v:.4g}" if isinstance(v, float) else v for v in row] for row in rows)
    return text.getvalue()


def table_2(best: Best, passes: Sequence[int]) -> str:
    """Relative error after tuning, by passes; a star on the lowest of a row, the paper's value below ours."""
    lines = [
        "| problem | method | " + " | ".join(f"{count} passes" for count in passes) + " |",
        "|---|---|" + "---|" * len(passes),
    ]
    for problem in PROBLEMS:
        for method in METHODS:
            row = [best.get((problem, method, count)) for count in passes]
            if not any(row):
                continue
            lowest = min(cell.mean for cell in row if cell)
            entries = [
                f"{cell.mean:.4f} ± {cell.std:.0e}{' *' if cell.mean == lowest else ''}" if cell else "–"
                for cell in row
            ]
            lines.append(f"| {PROBLEMS[problem].title} | {method} | " + " | ".join(entries) + " |")
            paper = _paper_row(PAPER_ERRORS, problem, method, passes)
            if paper:
                lines.append("| | *in the paper* | " + " | ".join(f"*{value:.4f}*" for value in paper) + " |")
    return "\n".join(lines) + "\n"


def table_3(seconds: Mapping[tuple[str, str, int], float], passes: Sequence[int]) -> str:
    """Seconds of one run, by passes, the paper's value below ours (another machine)."""
    lines = [
        "| problem | method | " + " | ".join(f"{count} passes" for count in passes) + " |",
        "|---|---|" + "---|" * len(passes),
    ]
    for problem in PROBLEMS:
        for method in ("DP-CD", "DP-SGD"):
            ours = [seconds[problem, method, count] for count in passes]
            lines.append(f"| {PROBLEMS[problem].title} | {method} | " + " | ".join(f"{s:.4f}" for s in ours) + " |")
            paper = _paper_row(PAPER_SECONDS, problem, method, passes)
            lines.append("| | *in the paper* | " + " | ".join(f"*{s:.4f}*" for s in paper) + " |")
    return "\n".join(lines) + "\n"


def _paper_row(table: Mapping[Any, tuple[float, ...]], problem: str, method: str, passes: Sequence[int]) -> list[float]:
    columns = dict(zip((2, 5, 10, 20, 50), table.get((problem, method), ()), strict=False))
    return [columns[count] for count in passes if count in columns]


def agreement(best: Best, passes: Sequence[int]) -> str:
    """How DP-CD's errors compare with the paper's, in sentences."""
    ratios = {
        (problem, count): best[problem, "DP-CD", count].mean / value
        for problem in PROBLEMS
        for count, value in zip(passes, _paper_row(PAPER_ERRORS, problem, "DP-CD", passes), strict=True)
    }
    worst, farthest = max(ratios, key=lambda key: ratios[key]), min(ratios, key=lambda key: ratios[key])
    twice, thrice, half = (sum(ratio <= limit for ratio in ratios.values()) for limit in (2.0, 3.0, 0.5))
    lines = [
        f"- DP-CD's error is at most twice the paper's in {twice} and at most three times in {thrice} of {len(ratios)} "
        f"cells; {half} are at most half of it. The extremes are {PROBLEMS[worst[0]].title} at {worst[1]} passes with "
        f"{ratios[worst]:.2f} times the paper's error, and {PROBLEMS[farthest[0]].title} at {farthest[1]} passes with "
        f"{ratios[farthest]:.2f} times."
    ]
    for problem in PROBLEMS:
        lowest = {method: _lowest(best, problem, method, passes) for method in METHODS if problem in METHODS[method]}
        parts = ", ".join(f"{method} {value:.4f}" for method, value in lowest.items())
        lines.append(f"- {PROBLEMS[problem].title}, at the best number of passes: {parts}.")
    return "\n".join(lines) + "\n"


def _lowest(best: Best, problem: str, method: str, passes: Sequence[int]) -> float:
    return min(best[problem, method, count].mean for count in passes if (problem, method, count) in best)


def new_figure(columns: int, rows: int = 1, height: float = 2.6, width: float = 2.5):
    """A figure with a grid of axes, written to files only."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    plt.rcParams.update({"font.size": 8, "axes.titlesize": 8, "legend.fontsize": 7, "pdf.fonttype": 42})
    return plt.subplots(rows, columns, figsize=(width * columns, height * rows), layout="constrained", squeeze=False)


def save(figure: Any, folder: Path, name: str) -> None:
    """Write a figure as PNG and PDF."""
    import matplotlib.pyplot as plt

    for suffix in ("png", "pdf"):
        buffer = io.BytesIO()
        # No dates in the files: the same numbers make the same bytes.
        metadata = {"CreationDate": None} if suffix == "pdf" else {"Software": None}
        figure.savefig(buffer, format=suffix, dpi=200, metadata=metadata)
        write_atomically(folder / f"{name}.{suffix}", buffer.getvalue())
    plt.close(figure)


def legend_below(figure: Any, panels: Iterable[Any], columns: int) -> None:
    """One legend for all panels."""
    handles: dict[str, Any] = {}
    for axes in panels:
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
            handles.setdefault(label, handle)
    figure.legend(handles.values(), handles.keys(), loc="outside lower center", ncols=columns, frameon=False)


def figure_paths(points: Sequence[Point], folder: Path, name: str, problems: Sequence[str], against: str) -> None:
    """Figures 1 to 3: relative error along the path, against passes or seconds; mean and range of the runs."""
    figure, grid = new_figure(len(problems))
    for axes, problem in zip(grid[0], problems, strict=True):
        for method, style in _STYLES.items():
            path = [point for point in points if point.problem == problem and point.method == method]
            if against == "seconds":
                # Every curve starts at the zero model; a logarithmic axis of time has no place for it.
                path = [point for point in path if point.seconds > 0.0]
            if not path:
                continue
            x = [getattr(point, against) for point in path]
            mean = np.array([point.mean for point in path])
            every = max(1, len(path) // 6)
            axes.plot(x, mean, label=method, markevery=every, markersize=4, linewidth=1.2, **style)
            low, high = [point.low for point in path], [point.high for point in path]
            axes.fill_between(x, low, high, color=style["color"], alpha=0.15, linewidth=0)
        axes.set(yscale="log", title=PROBLEMS[problem].title)
        axes.set_xlabel("passes over the data" if against == "passes" else "seconds")
        if against == "seconds":
            axes.set_xscale("log")
        axes.grid(alpha=0.25, linewidth=0.5)
    grid[0][0].set_ylabel("relative error to the optimum")
    legend_below(figure, grid[0], 5)
    save(figure, folder, name)


def figure_epsilon(points: Sequence[BudgetPoint], folder: Path, name: str) -> None:
    """Relative error against ε."""
    figure, grid = new_figure(len(PROBLEMS))
    for axes, problem in zip(grid[0], PROBLEMS, strict=True):
        for method, style in _STYLES.items():
            curve = [point for point in points if point.problem == problem and point.method == method]
            if curve:
                x = [point.epsilon for point in curve]
                axes.plot(x, [p.mean for p in curve], label=method, markersize=4, linewidth=1.2, **style)
                low, high = [p.low for p in curve], [p.high for p in curve]
                axes.fill_between(x, low, high, color=style["color"], alpha=0.15, linewidth=0)
        axes.set(xscale="log", yscale="log", title=PROBLEMS[problem].title, xlabel="privacy budget ε")
        axes.grid(alpha=0.25, linewidth=0.5)
    grid[0][0].set_ylabel("relative error to the optimum")
    legend_below(figure, grid[0], 5)
    save(figure, folder, name)


def figure_bounds(points: Sequence[BoundPoint], folder: Path, name: str) -> None:
    """Theorem 2's bound above, the measured error, and Theorem 3's bound below, over n and over p."""
    figure, grid = new_figure(2, 2, height=2.4)
    curves = {
        "upper": ("Theorem 2, upper bound", {"color": "#D55E00", "marker": "v", "linestyle": "--"}),
        "measured": ("DP-CD, measured", {"color": "#0072B2", "marker": "o", "linestyle": "-"}),
        "lower": ("Theorem 3, lower bound", {"color": "#009E73", "marker": "^", "linestyle": ":"}),
    }
    for row, case in zip(grid, ("convex", "strongly convex"), strict=True):
        for axes, varied in zip(row, ("n", "p"), strict=True):
            some = [point for point in points if point.case == case and point.varied == varied]
            x = [point.n_records if varied == "n" else point.n_features for point in some]
            for field, (label, style) in curves.items():
                axes.plot(x, [getattr(p, field) for p in some], label=label, markersize=4, linewidth=1.2, **style)
            fixed = f"p = {some[0].n_features}" if varied == "n" else f"n = {some[0].n_records}"
            axes.set(xscale="log", yscale="log", title=f"{case}, {fixed}")
            axes.set_xlabel("records n" if varied == "n" else "features p")
            axes.grid(alpha=0.25, linewidth=0.5)
        row[0].set_ylabel("F(w) − F(w*)")
    legend_below(figure, [grid[0][0]], 3)
    save(figure, folder, name)


PAGE = """# The paper's experiments

Made by `{command}` in {minutes:.0f} minutes ({grid_minutes:.0f} of them for the grid) on {jobs} cores, with dpcd
{version}. Nothing here is private: settings are tuned on the data that errors are measured on, as in the paper, and
standardisation and smoothness constants are free unless a method says otherwise.

{notes}
## Agreement

{agreement}
{reasons}
## Table 2: relative error to the optimum, by passes

Mean ± standard deviation of {runs} runs at the best step size and clip. A star marks the lowest of a row.

{table_2}
## Table 3: seconds of one run

Median of {curve_runs} runs; the paper's times are from another machine.

{table_3}
{speed}
## Figures

Mean and range of {curve_runs} runs with seeds of their own, at each method's best number of passes.

![Figure 1](figure-1.png)
*Figure 1. Imbalanced problems.*

![Figure 2](figure-2.png)
*Figure 2. Balanced problems.*

![Figure 3](figure-3.png)
*Figure 3. All problems, against time.*

## Beyond the paper

![Error against ε](figure-epsilon.png)
*Error against ε. At each ε the best of the settings that were tuned for 2 to 50 passes at the paper's ε.*

![Bounds](figure-bounds.png)
*The problems of Theorem 3's proof (L_j = 1, ε = 1, δ = 1/n²): DP-CD as Theorem 2 sets it lies between the two bounds.
The lower bound's level is an order of magnitude only, because the result that it builds on gives no constant.*
"""
