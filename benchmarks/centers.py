"""How far off the center of a target is that a fit learns, and how much of the budget looks at it take.

Targets are of seven kinds, up to 60 deviations from zero, in units between 1e-3 and 1e6. Errors are in deviations of
the target; the intercept, where the budget buys one, corrects what is left.

    python benchmarks/centers.py --runs 300
"""

import argparse
import math
from itertools import takewhile

import numpy as np

from dpcd.losses import Squared
from dpcd.privacy import Columns, Curator, PrivacyBudget, SeededNoise
from dpcd.ranges.looks import hides_center
from dpcd.ranges.scales import Declared, prepare

N = 1000
KINDS = {
    "normal": lambda rng: rng.normal(size=N),
    "lognormal": lambda rng: np.exp(rng.normal(size=N)),
    "uniform": lambda rng: rng.random(N),
    "Student's": lambda rng: rng.standard_t(3.0, size=N),
    "counts": lambda rng: rng.poisson(2.0, size=N).astype(float),
    "with a spike": lambda rng: np.where(rng.random(N) < 0.4, 1.0, rng.normal(size=N)),
    "with zeros": lambda rng: np.exp(rng.normal(size=N)) * (rng.random(N) < 0.6),
}


def targets(runs, seed):
    """Targets of all kinds in turn. Amounts and counts start at zero, as they do."""
    for run, kind in zip(range(runs), [*KINDS] * runs, strict=False):
        rng = np.random.default_rng([seed, run])
        y = KINDS[kind](rng)
        if kind in ("normal", "uniform", "Student's", "with a spike"):
            y = y + rng.choice([-1.0, 1.0]) * rng.choice([0.0, 60.0 ** rng.random()]) * y.std()
        yield y * 10.0 ** rng.uniform(-3.0, 6.0), rng


def learnt(y, records, rng):
    """The error of the center, the part of the budget that histograms took, and whether the center takes all of it."""
    curator = Curator(
        Columns.copy_of(rng.normal(size=(N, 1)), y, True),
        PrivacyBudget(_epsilon(records), 1.0 / N**2),
        SeededNoise(rng),
    )
    room = curator.gaussian_room
    scales = prepare(curator, Squared(), Declared(None, None), 1, True, False)
    # The target comes first, and its mean after its histograms.
    looks = takewhile(lambda release: release.description != "means", curator.releases)
    share = sum(release.cost.mu_squared for release in looks) / room
    return abs(scales.target_center - y.mean()) / y.std(), share, hides_center(N, room)


def _epsilon(records):
    """The epsilon whose budget is worth so many records."""
    low, high = 1e-3, 1e3
    for _ in range(60):
        middle = math.sqrt(low * high)
        room = PrivacyBudget(middle, 1.0 / N**2).as_gaussian().mu
        low, high = (middle, high) if N * room < records else (low, middle)
    return middle


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    print("| nμ | histograms take | off by, median | 9 of 10 | more than .77 deviations off | nothing but a center |")
    print("|---|---|---|---|---|---|")
    for records in (12, 20, 35, 60, 120, 300, 1000):
        found = [learnt(y, records, rng) for y, rng in targets(options.runs, options.seed)]
        errors, shares, alone = (np.array(part) for part in zip(*found, strict=True))
        print(
            f"| {records} | {np.mean(shares):.0%} | {np.median(errors):.2f} | {np.quantile(errors, 0.9):.2f} | "
            f"{np.mean(errors > 0.77):.1%} | {'yes' if alone.all() else 'no'} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
