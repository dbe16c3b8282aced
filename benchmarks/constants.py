"""What halving and doubling the constants of private ranges does to models on public tables.

Scores are those of ``public_tables.py``, with nothing declared, on tables of its group "seen" with fewer than 6000
records. Runs are the same ones for all values, so that a constant that changes nothing shows zeros.

    python benchmarks/constants.py --runs 5
    python benchmarks/constants.py --only looks._NARROW histograms._MISFIT
"""

import argparse
import importlib
from concurrent.futures import ProcessPoolExecutor
from itertools import product

import numpy as np
from public_tables import SEEN, Cell, load, scores

EPSILONS = (0.1, 0.3, 1.0)
CONSTANTS = (
    *(f"looks.{name}" for name in ("_SHOWS_COLUMNS", "_SHOWS_TAILS", "_NOISE_IN_MEAN", "_MEAN_WITHIN")),
    *(f"looks.{name}" for name in ("_HIDES_COLUMNS", "_MOST_LOOKS", "_ACCEPT", "_DOUBT", "_NARROW", "DEVIATIONS")),
    *(f"looks.FEATURES.{name}" for name in ("look", "looks", "means", "tails")),
    *(f"looks.TARGET.{name}" for name in ("look", "looks", "means", "tails")),
    "looks.TARGET_ALONE.look",
    *(f"histograms.{name}" for name in ("_MISFIT", "_USUAL_OCTAVES", "_NEAR", "_ONE_SIZE", "_STANDS_OUT")),
    *(f"histograms.{name}" for name in ("_MUCH_SMALLER", "_OUTERMOST")),
    *(f"scales.{name}" for name in ("_NOISE_IN_MOMENT", "_MOST_FOR_MOMENTS", "_UNCERTAIN")),
)
_LARGE = 6_000


def multiplied(constant, factor):
    """Multiply a constant of the library, in this process; probabilities stay below 1, and so do all parts together."""
    module, name, *field = constant.split(".")
    holder = importlib.import_module(f"dpcd.solvers.{module}")
    old = getattr(holder, name)
    value = getattr(old, field[0]) if field else old
    most = max(value, 0.45 if field == ["looks"] else 0.95)
    new = type(value)(value * factor) if value >= 1 else min(value * factor, most)
    setattr(holder, name, old._replace(**{field[0]: new}) if field else new)
    if module == "looks" and name in ("FEATURES", "TARGET", "TARGET_ALONE"):
        # They are handed over by the module that asks for ranges.
        setattr(importlib.import_module("dpcd.ranges.scales"), name, getattr(holder, name))


def means(tables, options, constant=None, factor=1.0):
    """Mean over tables of max(score, −1), for each kind of table and ε."""
    setting = (constant, factor) if constant else None
    cells = [
        Cell(table, epsilon, "nothing", options.runs, options.seed) for table, epsilon in product(tables, EPSILONS)
    ]
    # New processes, with the constant as it shall be before anything is derived from it.
    with ProcessPoolExecutor(
        options.workers, initializer=multiplied if setting else None, initargs=setting or ()
    ) as pool:
        found = list(pool.map(scores, cells))
    return {
        (labels, epsilon): np.mean(
            [
                np.mean(np.maximum(values, -1.0))
                for cell, values in zip(cells, found, strict=True)
                if (cell.table.labels is not None, cell.epsilon) == (labels, epsilon)
            ]
        )
        for labels, epsilon in product((False, True), EPSILONS)
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=CONSTANTS, default=CONSTANTS, metavar="CONSTANT")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--workers", type=int, default=2)
    options = parser.parse_args()
    tables = [table for table in SEEN if "/" in table.source and len(load(table)[0]) <= _LARGE]
    plain = means(tables, options)
    head = [f"{'AUC' if labels else 'R²'}, ε = {epsilon:g}" for labels, epsilon in plain]
    print(f"| constant | times | {' | '.join(head)} |")
    print("|---|---|" + "---|" * len(head))
    print(f"| none | | {' | '.join(f'{value:.3f}' for value in plain.values())} |", flush=True)
    for constant, factor in product(options.only, (0.5, 2.0)):
        changed = means(tables, options, constant, factor)
        row = [f"{value - plain[key]:+.3f}" for key, value in changed.items()]
        print(f"| `{constant}` | {factor:g} | {' | '.join(row)} |", flush=True)


if __name__ == "__main__":
    main()
