"""Coverage of confidence intervals on public tables and synthetic ones, and their widths.

What they are for is the minimum of the mean loss on all records of a fit, columns clipped as the fit clipped them.
Widths are relative to those of intervals without privacy, from the same clipped columns: least squares' own, or maximum
likelihood's. Columns of tables that can be computed from others are left out, for their weights are not determined.

    python benchmarks/intervals.py --runs 20 --save now.csv
    python benchmarks/intervals.py --group families --against before.csv
"""

import argparse
import csv
import math
import warnings
from concurrent.futures import ProcessPoolExecutor
from itertools import product
from pathlib import Path
from typing import NamedTuple

import numpy as np
from public_tables import FRESH, SEEN, load
from scipy.special import expit

EPSILONS = (1.0, 3.0)
# Tables on which the default is proximal Newton at ε = 1, with 1500 records or more.
TABLES = (
    "california",
    "electricity",
    "keel/magic",
    "keel/phoneme",
    "DAAG/spam7",
    "DAAG/nassCDS",
    "ggplot2/diamonds",
    "ggplot2/txhousing",
    "nycflights13/weather",
    "wooldridge/census2000",
    "wooldridge/gpa2",
    "wooldridge/airfare",
    "wooldridge/meap01",
    "wooldridge/k401k",
    "crch/RainIbk",
    "Ecdat/Computers",
    "Ecdat/BudgetUK",
    "nlme/Remifentanil",
)
# Designs of docs/postprocessing.md beside the families: normal columns in pairs with these correlations.
_PAIRS = (0.9, 0.99, 0.999)
_NORMAL = 1.959963984540054


class Problem(NamedTuple):
    """Something to fit: the name of a public table, of a family, or "pairs 0.9"; with labels or without."""

    name: str
    labels: bool
    epsilon: float
    runs: int
    seed: int
    size: tuple[int, int]


def data(problem, seed):
    """Features and target."""
    from dpcd.experiments.families import FAMILIES, family
    from dpcd.losses import Logistic, Squared

    n, p = problem.size
    if problem.name in FAMILIES:
        sample = family(problem.name, n, p, Logistic() if problem.labels else Squared(), seed)
        X, y = np.array(sample.X), sample.y > 0.0 if problem.labels else sample.y
    elif problem.name.startswith("pairs "):
        rng, correlation = np.random.default_rng(seed), float(problem.name.split()[1])
        half = rng.normal(size=(n, p // 2))
        X = np.hstack([half, correlation * half + math.sqrt(1.0 - correlation**2) * rng.normal(size=half.shape)])
        scores = X @ rng.normal(size=X.shape[1])
        y = scores + rng.logistic(size=n) > 0.0 if problem.labels else scores + rng.normal(size=n)
    else:
        X, y = load(next(table for table in (*SEEN, *FRESH) if table.source == problem.name))
        return X[:, _independent(X)], y
    return X, y


def _independent(X):
    """Columns that are neither constant nor computed from those before them."""
    Z = X - X.mean(axis=0)
    Z /= np.where(Z.std(axis=0) > 0.0, Z.std(axis=0), 1.0)
    return np.flatnonzero(np.abs(np.diag(np.linalg.qr(Z)[1])) > 1e-6 * math.sqrt(len(X)))


def minimum(model, X, y, labels):
    """What the intervals are for, and the half widths of intervals without privacy."""
    design = np.column_stack([np.clip(X, *model.feature_ranges_.T), np.ones(len(X))])
    n = len(X)
    scales = np.where(design.std(axis=0) > 0.0, design.std(axis=0), 1.0)
    shifts = np.append(design[:, :-1].mean(axis=0), 0.0)
    scaled = (design - shifts) / scales
    if labels:
        weights, sign = np.zeros(scaled.shape[1]), np.where(y == model.classes_[1], 1.0, -1.0)
        for _ in range(200):
            doubt = expit(-sign * (scaled @ weights))
            hessian = (scaled.T * (doubt * (1.0 - doubt))) @ scaled / n
            move = np.linalg.lstsq(hessian, scaled.T @ (sign * doubt) / n, rcond=1e-12)[0]
            weights += move * min(1.0, 1.0 / np.sqrt(np.mean((scaled @ move) ** 2)))
            if np.max(np.abs(move)) < 1e-10:
                break
        covariance = np.linalg.pinv(hessian) / n
    else:
        target = np.clip(y, *model.target_range_)
        weights = np.linalg.lstsq(scaled, target)[0]
        covariance = np.linalg.pinv(scaled.T @ scaled) * np.mean((target - scaled @ weights) ** 2)
    back = np.diag(1.0 / scales)
    back[-1] -= shifts / scales
    return back @ weights, _NORMAL * np.sqrt(np.diag(back @ covariance @ back.T))


def measured(problem):
    """For each run and coefficient: whether it is covered, and two widths; None where intervals were refused."""
    from threadpoolctl import threadpool_limits

    from dpcd import DPLogisticRegression, DPRidge

    threadpool_limits(1)
    warnings.simplefilter("ignore")
    rows = []
    X, y = data(problem, 0)
    for run in range(problem.runs):
        seed = 1000 * problem.seed + run
        if problem.name.startswith("pairs "):
            X, y = data(problem, seed)
        kind = DPLogisticRegression if problem.labels else DPRidge
        model = kind(epsilon=problem.epsilon, random_state=seed).fit(X, y)
        try:
            names, lower, upper = model.confidence_intervals(0.95)
        except ValueError:
            rows.append((run, "", math.nan, math.nan, math.nan))
            continue
        truth, own = minimum(model, X, y, problem.labels)
        # What is constant once it is clipped has no weight of its own.
        told = np.append(np.clip(X, *model.feature_ranges_.T).std(axis=0) > 0.0, True) & np.isfinite(lower)
        for j in np.flatnonzero(told):
            covered = float(lower[j] <= truth[j] <= upper[j])
            rows.append((run, names[j], covered, (upper[j] - lower[j]) / 2.0, own[j]))
    return rows


def report(problem, rows, before):
    """A line of the table."""
    runs = {run for run, name, *_ in rows if name}
    line = f"| {problem.name}{' (labels)' if problem.labels else ''} | {problem.epsilon:g} |"
    if not runs:
        print(f"{line} refused |")
        return
    columns = {}
    for _, name, covered, *_ in rows:
        if name:
            columns.setdefault(name, []).append(covered)
    # A column that seldom takes part says nothing by itself.
    often = [np.mean(covered) for covered in columns.values() if len(covered) >= problem.runs / 2]
    every = np.mean([row[2] for row in rows if row[1]])
    ratio = np.median([width / own for _, name, _, width, own in rows if name and own > 0.0])
    line += f" {problem.runs - len(runs)} | {min(often, default=math.nan):.2f} | {every:.2f} | {ratio:.1f} |"
    earlier = {(run, name): width for run, name, _, width, _ in before}
    common = [(w, earlier[run, name]) for run, name, _, w, _ in rows if name and earlier.get((run, name), 0.0) > 0.0]
    if common:
        line += f" {math.exp(np.mean([math.log(now / then) for now, then in common])):.2f} |"
    print(line, flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--group", choices=("tables", "families", "all"), default="all")
    parser.add_argument("--names", nargs="+", help="these only")
    parser.add_argument("--epsilons", nargs="+", type=float, default=EPSILONS)
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--size", nargs=2, type=int, default=(20_000, 8), help="records and columns of families")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--save", type=Path, help="write all intervals to this file")
    parser.add_argument("--against", type=Path, help="compare widths with those of another version")
    options = parser.parse_args()
    from dpcd.experiments.families import FAMILIES

    labelled = {table.source for table in (*SEEN, *FRESH) if table.labels is not None}
    wanted = [(name, name in labelled) for name in TABLES] if options.group != "families" else []
    if options.group != "tables":
        wanted += product((*FAMILIES, *(f"pairs {correlation:g}" for correlation in _PAIRS)), (False, True))
    wanted = [pair for pair in wanted if not options.names or pair[0] in options.names]
    problems = [
        Problem(*pair, epsilon, options.runs, options.seed, tuple(options.size))
        for pair, epsilon in product(wanted, options.epsilons)
    ]
    before = _read(options.against) if options.against else {}
    print(f"{options.runs} runs each; coverage of .95 intervals, median width relative to that without privacy\n")
    print(
        "| problem | ε | refused | least covered coefficient | all | width |" + (" against before |" if before else "")
    )
    print("|---|---|---|---|---|---|" + ("---|" if before else ""))
    found = {}
    with ProcessPoolExecutor(options.workers) as pool:
        for problem, rows in zip(problems, pool.map(measured, problems), strict=True):
            found[problem] = rows
            report(problem, rows, before.get(_key(problem), []))
    if options.save:
        with options.save.open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerows([*_key(problem), *row] for problem, rows in found.items() for row in rows)


def _key(problem):
    return problem.name, str(problem.labels), f"{problem.epsilon:g}"


def _read(path):
    found = {}
    with path.open(newline="") as file:
        for name, labels, epsilon, run, column, covered, width, own in csv.reader(file):
            row = int(run), column, float(covered), float(width), float(own)
            found.setdefault((name, labels, epsilon), []).append(row)
    return found


if __name__ == "__main__":
    main()
