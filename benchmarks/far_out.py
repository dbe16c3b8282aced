"""Long-tailed columns with known second moments, a few records far out: what solvers lose on them.

    python benchmarks/far_out.py [--runs 10] [--epsilon 0.3 1 3 10]

Where the target *levels off*, records far out do not follow the model, and the least-squares line is theirs to bend;
where it *follows*, they do. No release tells the two apart by those records themselves. Mean of (F − F*)/(F(0) − F*):
0 is the minimum without privacy, 1 the zero model. AdaSSP counts what is known of the moments as a ridge; auto and
DP-CD believe the records that they see.
Seeded, so not private: an experiment.
"""

from __future__ import annotations

import argparse

import numpy as np

from dpcd.losses import Squared
from dpcd.nonprivate import newton_optimum, objective
from dpcd.penalties import L2
from dpcd.privacy import Columns, Curator, PrivacyBudget, SeededNoise
from dpcd.solvers import DPCD, AdaSSP, Auto, BoostedAdaSSP, Problem

SOLVERS = {"auto": Auto(), "AdaSSP": AdaSSP(), "boosted AdaSSP": BoostedAdaSSP(), "DP-CD": DPCD()}
RECORDS, NOISE = 20_000, 0.5


def tables(rng):
    """Name, columns and target of each table."""
    yield from (
        levels_off(rng, f"lognormal {spread:g}", np.exp(spread * rng.normal(size=(RECORDS, 8))), np.log)
        for spread in (1.0, 1.5, 2.0)
    )
    yield levels_off(
        rng, "Pareto 1.5", rng.pareto(1.5, size=(RECORDS, 6)), lambda X: np.tanh((X - X.mean(axis=0)) / 2.0)
    )
    for spread in (1.0, 1.5, 2.0):
        yield follows(rng, f"lognormal {spread:g}", np.exp(spread * rng.normal(size=(RECORDS, 8))))
    for freedom in (2.2, 3.0):
        yield follows(rng, f"Student {freedom:g}", rng.standard_t(freedom, size=(RECORDS, 8)))
    half = np.exp(1.5 * rng.normal(size=(RECORDS, 8)))
    half[:, 4:] = rng.normal(size=(RECORDS, 4))
    yield follows(rng, "half lognormal 1.5", half)


def levels_off(rng, name, X, bend):
    return f"levels off, {name}", X, target(rng, bend(X))


def follows(rng, name, X):
    return f"follows, {name}", X, target(rng, X)


def target(rng, columns):
    """A linear function of standardised columns, of variance 1, and noise."""
    signal = (columns - columns.mean(axis=0)) / columns.std(axis=0) @ rng.normal(size=columns.shape[1])
    return signal / signal.std() + NOISE * rng.normal(size=len(signal))


def lost(solver, X, y, epsilon, runs):
    """Mean loss of some runs on columns of second moment 1, whose mean is 0."""
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    problem = X, y, Squared(), L2(1.0 / len(y))
    values = []
    for seed in range(runs):
        noise = SeededNoise(np.random.default_rng([seed, 1]))
        curator = Curator(Columns.copy_of(X, y), PrivacyBudget(epsilon, 1.0 / len(y) ** 2), noise)
        known = Problem(Squared(), L2(1.0 / len(y)), np.ones(X.shape[1]), X.shape[1], slope=float(np.std(y)))
        values.append(objective(*problem, solver.solve(curator, known, 1, np.random.default_rng(seed)).weights))
    best, zero = (objective(*problem, w) for w in (newton_optimum(*problem)[0], np.zeros(X.shape[1])))
    return (np.mean(values) - best) / (zero - best)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--epsilon", type=float, nargs="+", default=[0.3, 1.0, 3.0, 10.0])
    options = parser.parse_args()
    print(f"{'':32}{'epsilon':>8}" + "".join(f"{name:>16}" for name in SOLVERS))
    for name, X, y in tables(np.random.default_rng(5)):
        for epsilon in options.epsilon:
            cells = [lost(solver, X, y, epsilon, options.runs) for solver in SOLVERS.values()]
            print(f"{name:32}{epsilon:8g}" + "".join(f"{cell:16.4g}" for cell in cells), flush=True)


if __name__ == "__main__":
    main()
