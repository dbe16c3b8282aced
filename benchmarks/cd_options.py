"""What DP-CD's options do to its error, M known, ε = 1: ratios of mean relative errors, above 1 where an option pays.

Run ``DPCD_DATA=folder python benchmarks/cd_options.py``; it takes a few minutes. Besides the options of `DPCD` it
measures two ideas that did not become options: coordinates drawn by importance, and blocks of coordinates that are
clipped jointly. The latter are simulated here, with floating-point noise and step sizes that are known for free.
"""

import argparse
import math
from dataclasses import dataclass

import numpy as np

from dpcd.experiments.families import FAMILIES, family
from dpcd.experiments.settings import Instance, instance
from dpcd.losses import Logistic, Squared
from dpcd.nonprivate import objective, optimum
from dpcd.penalties import L1, L2
from dpcd.privacy import Columns, Curator, PrivacyBudget, SeededNoise
from dpcd.solvers import DPCD, Problem, Solution

PAPER = ("california-raw", "california-std", "electricity-raw", "electricity-std")


@dataclass(frozen=True, eq=False)
class Importance(DPCD):
    """Coordinates drawn independently with probabilities ∝ M_j^exponent."""

    exponent: float = 0.5
    smoothness: np.ndarray | None = None

    def _coordinates(self, active, n_passes, choices):
        chances = self.smoothness[active] ** self.exponent
        return choices.choice(active, size=n_passes * len(active), p=chances / chances.sum())


@dataclass(frozen=True, eq=False)
class Blocks(DPCD):
    """Random blocks of coordinates, each updated at once with the joint clip 2·slope·sqrt(size) on g_j/sqrt(M_j)."""

    size: int = 4
    data: Instance | None = None

    def solve(self, curator, problem, parts, choices):
        """Blocks instead of coordinates."""
        data, loss = self.data, problem.loss
        n, p = data.X.shape
        mu_squared = curator.gaussian_room / parts
        n_passes, step = self._horizon(n, p, mu_squared)
        weights, iterates = np.zeros(p), [np.zeros(p)]
        rows = data.X / np.sqrt(problem.smoothness / loss.curvature)
        correlations = rows.T @ rows / n
        per_pass = math.ceil(p / self.size)
        for _ in range(n_passes):
            for block in np.array_split(choices.permutation(p), per_pass):
                slopes = _slopes(loss, data.y, data.X @ weights)
                gradients = slopes[:, None] * rows[:, block]
                clip = 2.0 * problem.slope * math.sqrt(len(block))
                gradients *= np.minimum(1.0, clip / np.maximum(np.linalg.norm(gradients, axis=1), 1e-300))[:, None]
                noise = 2.0 * clip * math.sqrt(n_passes * per_pass / mu_squared) / n
                mean = gradients.mean(axis=0) + noise * choices.normal(size=len(block))
                largest = np.linalg.eigvalsh(correlations[np.ix_(block, block)])[-1]
                for j, g in zip(block, mean, strict=True):
                    step_j = step / (problem.smoothness[j] * largest)
                    moved = weights[j] - step_j * g * math.sqrt(problem.smoothness[j] / loss.curvature)
                    weights[j] = problem.penalty.prox(moved, step_j, j)
                iterates.append(weights.copy())
        return Solution(np.mean(iterates[-math.ceil(len(iterates) / 4) :], axis=0), n_passes, weights[None, :])


def _slopes(loss, y, z):
    return z - y if isinstance(loss, Squared) else -y / (1.0 + np.exp(y * z))


def simulated(n, p, n_active, loss, penalty):
    """Normal columns, the first `n_active` of which matter."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, p))
    z = X[:, :n_active] @ rng.normal(size=n_active) / math.sqrt(n_active)
    y = z + 0.5 * rng.normal(size=n) if isinstance(loss, Squared) else np.sign(3.0 * z + rng.logistic(size=n))
    return known(X, y, loss, penalty)


def known(X, y, loss, penalty):
    """A table with its constants."""
    n = len(y)
    best = objective(X, y, loss, penalty, optimum(X, y, loss, penalty)[0])
    return Instance(
        Columns.copy_of(X, y),
        X,
        y,
        loss,
        penalty,
        1.0,
        1.0 / n**2,
        loss.curvature * np.mean(X**2, axis=0),
        loss.curvature * float(np.linalg.eigvalsh(X.T @ X / n)[-1]),
        np.abs(X).max(axis=0),
        float(np.linalg.norm(X, axis=1).max()),
        best,
    )


def slope(data):
    """What `DPCD` would learn."""
    return data.loss.lipschitz if math.isfinite(data.loss.lipschitz) else math.sqrt(np.mean(data.y**2))


def error(solver, data, runs, epsilon=1.0):
    """Mean relative error of so many runs."""
    errors = []
    for seed in range(runs):
        noise, choices = (np.random.default_rng(child) for child in np.random.SeedSequence(seed).spawn(2))
        curator = Curator(data.columns, PrivacyBudget(epsilon, data.delta), SeededNoise(noise))
        problem = Problem(data.loss, data.penalty, data.smoothness, data.X.shape[1], slope(data))
        errors.append(data.relative_error(solver.solve(curator, problem, 1, choices).weights))
    return float(np.mean(errors))


def quantile_clips(data):
    """A clip of its own for each coordinate: the 99 % quantile of its derivatives at 0, known for free."""
    slopes = _slopes(data.loss, data.y, np.zeros(len(data.y)))
    return np.quantile(np.abs(slopes[:, None] * data.X), 0.99, axis=0)


OPTIONS = {
    "adaptive clip": (lambda data, passes: DPCD(passes, clip="adaptive"), lambda data, passes: DPCD(passes)),
    "active set": (lambda data, passes: DPCD(passes, active_set=True), lambda data, passes: DPCD(passes)),
    "both": (
        lambda data, passes: DPCD(passes, clip="adaptive", active_set=True),
        lambda data, passes: DPCD(passes),
    ),
    "optimal allocation": (
        lambda data, passes: DPCD(passes, clip=quantile_clips(data)),
        lambda data, passes: DPCD(passes, clip=quantile_clips(data), allocation="equal"),
    ),
    "importance √M": (
        lambda data, passes: Importance(passes, smoothness=data.smoothness),
        lambda data, passes: DPCD(passes, order="random"),
    ),
    "importance ∜M": (
        lambda data, passes: Importance(passes, smoothness=data.smoothness, exponent=0.25),
        lambda data, passes: DPCD(passes, order="random"),
    ),
    "blocks of 4": (lambda data, passes: Blocks(passes, data=data), lambda data, passes: DPCD(passes)),
}


def over_families(runs):
    """Gains on small tables of all synthetic families: geometric mean, worst, and how many are below .9."""
    tables = []
    for loss in (Squared(), Logistic()):
        for name in FAMILIES:
            for p in (5, 20) if name in ("sparse", "outliers") else (5,):
                sample = family(name, 6000, p, loss)
                tables.append(known(sample.X, sample.y, loss, sample.penalty))
    for epsilon in (0.3, 1.0, 3.0):
        base = np.array([error(DPCD(), data, runs, epsilon) for data in tables])
        for name in ("adaptive clip", "active set", "both"):
            option = OPTIONS[name][0]
            gains = base / [error(option(data, None), data, runs, epsilon) for data in tables]
            mean, lost = math.exp(float(np.mean(np.log(gains)))), np.mean(gains < 0.9)
            print(f"epsilon {epsilon:3g}  {name:14} mean {mean:.2f}  worst {gains.min():.2f}  {lost:.0%} below .9")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=10)
    runs = parser.parse_args().runs
    over_families(runs)
    problems = {key: instance(key) for key in PAPER}
    problems["sparse, p=50"] = simulated(10_000, 50, 5, Squared(), L1(0.02))
    problems["dense logistic, p=10"] = simulated(20_000, 10, 10, Logistic(), L2(1e-3))
    for passes in (None, 20):
        print(f"\n{'default' if passes is None else passes} passes".ljust(25), *(f"{key:>21}" for key in problems))
        base = [error(DPCD(passes), data, runs) for data in problems.values()]
        print("error of the default".ljust(24), *(f"{value:>21.4f}" for value in base))
        for name, (option, otherwise) in OPTIONS.items():
            ratios = []
            for data in problems.values():
                with np.errstate(over="ignore"):
                    ratios.append(error(otherwise(data, passes), data, runs) / error(option(data, passes), data, runs))
            mean = math.exp(float(np.mean(np.log(ratios))))
            print(name.ljust(24), *(f"{ratio:>21.2f}" for ratio in ratios), f"   mean {mean:.2f}", flush=True)


if __name__ == "__main__":
    main()
