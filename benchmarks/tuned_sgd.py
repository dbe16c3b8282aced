"""Auto against tuned mini-batch DP-SGD, on tables of 30 to 100 standardised columns, where DP-SGD is strong.

    python benchmarks/tuned_sgd.py [--runs 48] [--epsilon 0.05 0.1 0.3 1]

Smoothness constants are declared. DP-SGD runs with the settings that were best for each table and ε in
results/methods/table.csv, under the noise that the tightest accounting asks for; auto runs as it comes. Printed are the
mean of (F − F*)/(F(0) − F*) of either, and the ratio of the two with its standard error. The seeds are none that
settings were chosen with.
Seeded, so not private: an experiment.
"""

from __future__ import annotations

import argparse
import ast
import csv
import math
from pathlib import Path

import numpy as np
from joblib import Parallel, delayed

from dpcd.experiments.compare import STUDY, fit
from dpcd.experiments.methods import Setting
from dpcd.solvers import DPSGD, Auto

TABLES = (
    "correlated-30000x100-squared",
    "one-hot-standardized-20000x60-squared",
    "one-hot-standardized-20000x80-logistic",
    "strongly-correlated-20000x30-logistic",
)
STUDIED = Path(__file__).parents[1] / "results" / "methods" / "table.csv"
FIRST_SEED = 1000


def best_settings():
    """The setting of DP-SGD that was chosen, by table and ε."""
    with STUDIED.open(encoding="utf-8", newline="") as lines:
        rows = [row for row in csv.DictReader(lines) if (row["method"], row["declared"]) == ("DP-SGD, tuned", "True")]
    return {(row["problem"], float(row["epsilon"])): solver(row["setting"]) for row in rows if row["problem"] in TABLES}


def solver(written):
    """DP-SGD as a table names it."""
    call = ast.parse(written, mode="eval").body
    return DPSGD(**{argument.arg: ast.literal_eval(argument.value) for argument in call.keywords})


def lost(problem, setting, runs):
    """What each run loses: 0 is the optimum, 1 the zero model."""
    zero = problem.objective(np.zeros(problem.X.shape[1]))
    fits = Parallel(n_jobs=-1)(delayed(fit)(problem, setting, FIRST_SEED + run, declared=True) for run in range(runs))
    return (np.array(fits) - problem.best) / (zero - problem.best)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=48)
    parser.add_argument("--epsilon", type=float, nargs="+", default=[0.05, 0.1, 0.3, 1.0])
    arguments = parser.parse_args()
    settings = best_settings()
    if unknown := sorted(set(arguments.epsilon) - {epsilon for _, epsilon in settings}):
        parser.error(f"no setting of DP-SGD is known for ε = {unknown}: see {STUDIED.name}")
    print(f"{'table':40}{'ε':>6}{'auto':>10}{'DP-SGD':>10}{'ratio':>9}")
    for source in STUDY:
        if source.key not in TABLES:
            continue
        problem = source.load()
        for epsilon in arguments.epsilon:
            auto = lost(problem, Setting(Auto(), epsilon), arguments.runs)
            # Its noise is accounted for already.
            rival = lost(problem, Setting(settings[source.key, epsilon], math.inf), arguments.runs)
            ratio = auto.mean() / rival.mean()
            error = ratio * math.sqrt(sum(x.var(ddof=1) / len(x) / x.mean() ** 2 for x in (auto, rival)))
            means = f"{auto.mean():>10.4f}{rival.mean():>10.4f}"
            print(f"{source.key:40}{epsilon:>6g}{means}{ratio:>9.2f} ± {error:.2f}", flush=True)


if __name__ == "__main__":
    main()
