"""Are the forecasts of `dpcd.plan` right? Measured errors of the estimators against what was said without data.

    python benchmarks/forecasts.py [--calibrate] [--runs 1] [--csv results/plan/forecasts.csv]

Fits `DPRidge` and `DPLogisticRegression` as they come to synthetic tables, with nothing declared and with smoothness
constants declared, with an intercept and without. The error is (F − F*)/(F(0) − F*), F being the objective of what the
model predicts, and F(0) that of the best model without features. A forecast is right if it is within a factor of
`dpcd.planning.FACTOR` of it, both counted as `dpcd.planning.RESOLUTION` at least. Tables of half of the kinds serve to
calibrate: ``--calibrate`` fits the constants in `dpcd.planning` anew and prints them (many are nearly as good: take new
ones only if the share rises). The check is on all kinds, with other seeds. It takes about four minutes on one core for
each run. Seeded, so not private: an experiment.
"""

from __future__ import annotations

import argparse
import csv
import itertools
import math
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
from scipy.optimize import minimize

from dpcd import DPLogisticRegression, DPRidge, Plan, plan
from dpcd.experiments.families import family
from dpcd.losses import Logistic, Loss, Squared
from dpcd.nonprivate import newton_optimum, objective
from dpcd.planning import FACTOR, RESOLUTION, Calibration

CALIBRATED_ON = ("correlated", "scales", "heavy-tails", "mixed")
NEVER_FITTED = ("strongly-correlated", "duplicates", "lognormal", "one-hot")


# What somebody who knows the columns would say; "regular" of the rest.
KINDS = {"heavy-tails": "long-tailed", "lognormal": "long-tailed", "mixed": "flags", "one-hot": "flags"}


class Table(NamedTuple):
    """Whose data to fit; the family's name, sizes, loss and seed as in `family`."""

    name: str
    n: int
    p: int
    loss: Loss
    seed: int
    intercept: bool


class Case(NamedTuple):
    """A fit, what was measured, and what was said before."""

    table: Table
    epsilon: float
    declared: bool
    lost: float
    forecast: Plan

    @property
    def informed(self) -> Plan:
        """The forecast of somebody who knows what the columns are like."""
        return replace(self.forecast, kind=KINDS.get(self.table.name, "regular"))

    def right(self, informed: bool = False) -> bool:
        """Whether the forecast is within the factor."""
        said = self.informed if informed else self.forecast
        return 1.0 / FACTOR <= max(said.lost, RESOLUTION) / max(self.lost, RESOLUTION) <= FACTOR


def tables(names, seeds, sizes=(5000, 20_000), widths=(3, 8, 30), intercepts=(True, False)) -> Iterator[Table]:
    return itertools.starmap(Table, itertools.product(names, sizes, widths, (Squared(), Logistic()), seeds, intercepts))


def cases(table: Table, epsilons=(0.1, 0.3, 1.0, 3.0), declarations=(False, True)) -> Iterator[Case]:
    """Measure and forecast on one table."""
    sample = family(table.name, table.n, table.p, table.loss, table.seed)
    X, y, loss, penalty = sample.X, sample.y, sample.loss, sample.penalty
    constant = 0.0
    if table.intercept:
        positive = np.mean(y > 0.0)
        constant = float(np.mean(y)) if isinstance(loss, Squared) else math.log(positive / (1.0 - positive))
    worst = objective(X, y, loss, penalty, np.zeros(table.p), constant)
    best = objective(X, y, loss, penalty, *newton_optimum(X, y, loss, penalty, table.intercept))
    kind = DPRidge if isinstance(loss, Squared) else DPLogisticRegression
    for epsilon, declared in itertools.product(epsilons, declarations):
        model = kind(
            epsilon=epsilon,
            alpha=penalty.alpha,
            fit_intercept=table.intercept,
            smoothness=loss.curvature * np.mean(X**2, axis=0) if declared else None,
            random_state=table.seed,
        ).fit(X, y)
        seen = X if model.feature_ranges_ is None else np.clip(X, *model.feature_ranges_.T)
        error = objective(seen, y, loss, penalty, model.coef_.ravel(), float(np.ravel(model.intercept_)[0]))
        said = plan(table.n, table.p, epsilon, loss=loss, fit_intercept=table.intercept, smoothness_declared=declared)
        yield Case(table, epsilon, declared, (error - best) / (worst - best), said)


def calibrated(measured: list[Case], old: Calibration) -> Calibration:
    """Factor and exponents that bring forecasts closest to what was measured; being far off costs no more than e²."""
    lost = np.maximum([case.lost for case in measured], RESOLUTION)
    public = [
        np.array([getattr(case.informed, name) for case in measured], dtype=float)
        for name in ("columns", "records", "signal", "seen", "clipped")
    ]

    def distance(constants):
        new = old._replace(factor=math.exp(constants[0]), columns=constants[1], records=constants[2])
        said = np.maximum(new.lost(*public), RESOLUTION)
        return np.mean(np.minimum(np.abs(np.log(said / lost)), 2.0))

    start = [math.log(old.factor), old.columns, old.records]
    found = minimize(distance, start, method="Nelder-Mead", options={"maxfev": 3000}).x
    return old._replace(
        factor=round(math.exp(found[0])), columns=round(float(found[1]), 2), records=round(float(found[2]), 2)
    )


def report(title: str, measured: list[Case]) -> None:
    """Share of right forecasts, without knowing the kind of the columns / knowing it."""
    print(f"{title}, {len(measured)} forecasts within {FACTOR:g}×: kind of columns unknown / known")
    for name, key in {
        "all": lambda case: "",
        "family": lambda case: case.table.name,
        "loss": lambda case: type(case.table.loss).__name__,
        "n": lambda case: case.table.n,
        "p": lambda case: case.table.p,
        "epsilon": lambda case: case.epsilon,
        "declared": lambda case: "smoothness" if case.declared else "nothing",
        "intercept": lambda case: case.table.intercept,
        "defaults": lambda case: case.table.intercept and not case.declared,
    }.items():
        groups = defaultdict(list)
        for case in measured:
            groups[key(case)].append((case.right(), case.right(informed=True)))
        shares = ((group, np.mean(right, axis=0)) for group, right in groups.items())
        print(f"  {name:<10}", ", ".join(f"{group} {share[0]:.0%}/{share[1]:.0%}" for group, share in shares))


def write(measured: list[Case], path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(
            ["family", "n", "p", "loss", "seed", "intercept", "epsilon", "smoothness", "lost", "forecast", "informed"]
        )
        for case in measured:
            table = case.table
            setting = (table.name, table.n, table.p, type(table.loss).__name__, table.seed, table.intercept)
            numbers = (case.lost, case.forecast.lost, case.informed.lost)
            smoothness = "declared" if case.declared else "learnt"
            rows.writerow([*setting, case.epsilon, smoothness, *(f"{number:.3g}" for number in numbers)])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--calibrate", action="store_true", help="fit the constants, on half of the kinds")
    parser.add_argument("--runs", type=int, default=1, help="tables of each kind and size")
    parser.add_argument("--csv", type=Path, help="where to write what was measured")
    options = parser.parse_args()
    names, first = (CALIBRATED_ON, 0) if options.calibrate else (CALIBRATED_ON + NEVER_FITTED, 100)
    seeds = range(first, first + options.runs)
    measured = [case for table in tables(names, seeds) for case in cases(table)]
    if options.csv:
        write(measured, options.csv)
    if options.calibrate:
        for loss in (Squared, Logistic):
            half = [case for case in measured if isinstance(case.table.loss, loss)]
            print(calibrated(half, half[0].forecast.calibration))
    report("calibration" if options.calibrate else "check", measured)
    if not options.calibrate:
        report("kinds to which nothing was fitted", [case for case in measured if case.table.name in NEVER_FITTED])


if __name__ == "__main__":
    main()
