"""What halving and doubling the numbers of the policy does to models on public tables.

Scores are those of ``public_tables.py``, with nothing declared, on tables of its group "seen" with fewer than 6000
records. Runs are the same ones for all values, so that a number that changes nothing shows zeros.

    python benchmarks/constants.py --runs 5
    python benchmarks/constants.py --only narrow misfit
"""

import argparse
from concurrent.futures import ProcessPoolExecutor
from dataclasses import fields
from itertools import product

import numpy as np
from public_tables import SEEN, Cell, load, scores

from dpcd.policy import POLICY
from dpcd.ranges.looks import FEATURES, TARGET, TARGET_ALONE

EPSILONS = (0.1, 0.3, 1.0)
# Arguments of solvers are their users' to change.
_ARGUMENTS = {"newton_steps", "newton_moments", "newton_hessians", "most_steps", "block_moments"}
CONSTANTS = tuple(
    field.name
    for field in fields(POLICY)
    if isinstance(getattr(POLICY, field.name), (int, float)) and field.name not in _ARGUMENTS
)
LIMITS = {"features": FEATURES, "target": TARGET, "alone": TARGET_ALONE}
#: Shares of the budget, of which all together must leave something.
_MOST = {"features_looks": 0.45, "target_looks": 0.45}
_LARGE = 6_000


def multiplied(constant, factor):
    """Multiply a number of the policy, in this process, before anything is made of it.

    Probabilities stay below 1, and so do all parts together.
    """
    value = getattr(POLICY, constant)
    most = max(value, _MOST.get(constant, 0.95))
    changed = type(value)(value * factor) if value >= 1 else min(value * factor, most)
    object.__setattr__(POLICY, constant, changed)
    # These are made of the policy when the library is loaded.
    kind, _, field = constant.partition("_")
    if kind in LIMITS:
        object.__setattr__(LIMITS[kind], field, changed)


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
