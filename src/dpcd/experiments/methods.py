"""The methods that are compared: each a name and the settings to try, from what is known about a problem.

A method with several settings is tuned: the best of them is chosen for free, as in the paper, which favours the rivals
of anything that needs no tuning. To add a method, add a line to `METHODS`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from itertools import product
from typing import Any, NamedTuple

import numpy as np

from dpcd.experiments.settings import Instance
from dpcd.privacy import PrivacyBudget, noise_multiplier
from dpcd.solvers import (
    DPCD,
    DPGCD,
    DPSCD,
    DPSGD,
    DPSVRG,
    AdaSSP,
    Auto,
    BoostedAdaSSP,
    DPBlockCD,
    DPFrankWolfe,
    DPNewton,
    ObjectivePerturbation,
    OutputPerturbation,
    Screened,
    Solver,
)


class Setting(NamedTuple):
    """A solver, and the ε that it is told: the study's own, or infinity if its noise is calibrated elsewhere."""

    solver: Solver
    epsilon: float


Settings = Callable[[Instance, float], list[Setting]]


@dataclass(frozen=True)
class Method:
    """A row of the comparison.

    Parameters
    ----------
    name
        Its name in tables, figures and files.
    settings
        From a problem and ε to the settings to choose from.
    tuned
        Whether it is one that chooses.
    """

    name: str
    settings: Settings
    tuned: bool = False


def applicable(method: Method, problem: Instance, epsilon: float) -> list[Setting]:
    """The settings of a method, or none where its solver says that it cannot work on the problem."""
    settings = method.settings(problem, epsilon)
    try:
        # They differ in numbers only.
        for setting in settings[:1]:
            setting.solver.check(problem.loss, problem.penalty, problem.X.shape[1], problem.intercept, private=True)
    except ValueError:
        return []
    return settings


def _grid(make: Callable[..., Solver], /, **choices: tuple[Any, ...]) -> Settings:
    """All combinations of the given parameters of a solver; given none, the solver as it comes."""

    def settings(problem: Instance, epsilon: float) -> list[Setting]:
        combinations = product(*choices.values())
        return [Setting(make(**dict(zip(choices, values, strict=True))), epsilon) for values in combinations]

    return settings


def _slope(problem: Instance) -> float:
    """Root mean square of the loss's derivative at the zero model."""
    slopes = [problem.loss.derivative(y, 0.0) for y in problem.y.tolist()]
    return float(np.sqrt(np.mean(np.square(slopes))))


def _coordinate_descent(problem: Instance, epsilon: float) -> list[Setting]:
    typical = _slope(problem) * np.sqrt(problem.smoothness.sum() / problem.loss.curvature)
    return [
        Setting(DPCD(n_passes=passes, step_size=step, clip=float(clip * typical)), epsilon)
        for passes, step, clip in product((2, 5, 15, 50), (0.1, 0.3, 1.0, 2.0), (0.7, 1.5, 3.0, 6.0))
    ]


# Parts of the records in a batch, with the numbers of passes and the steps that suit it.
_BATCHES: tuple[tuple[float, int, tuple[float, ...]], ...] = (
    (1 / 256, 4, (0.01, 0.03, 0.1, 0.3)),
    (1 / 32, 10, (0.03, 0.1, 0.3, 1.0)),
    (1 / 32, 60, (0.01, 0.03, 0.1)),
    (1 / 8, 30, (0.03, 0.1, 0.3, 1.0)),
)


def _gradient_descent(problem: Instance, epsilon: float) -> list[Setting]:
    n_records = len(problem.y)
    typical = _slope(problem) * float(np.median(np.linalg.norm(problem.X, axis=1)))
    found = []
    for part, passes, steps in _BATCHES:
        size = max(1, round(part * n_records))
        multiplier, allowed = _tight_noise(problem, size, passes, epsilon)
        found += [
            Setting(
                DPSGD(
                    n_passes=passes,
                    step_size=step,
                    clip=clip * typical,
                    batch_size=size,
                    global_smoothness=problem.global_smoothness,
                    noise_multiplier=multiplier,
                ),
                allowed,
            )
            for step, clip in product(steps, (0.4, 1.0, 3.0))
        ]
    return found


def _tight_noise(problem: Instance, size: int, passes: int, epsilon: float) -> tuple[float | None, float]:
    """Least noise for batches of a fixed size, and the budget to run it under: it is accounted for here."""
    n_records = len(problem.y)
    if size == n_records:
        return None, epsilon
    count = max(1, round(n_records / size)) * passes
    return _numerical_multiplier(size / n_records, count, epsilon, problem.delta), math.inf


@cache
def _numerical_multiplier(rate: float, count: int, epsilon: float, delta: float, mu: float = 0.0) -> float:
    """Least noise for so many releases on batches of a fixed size, beside Gaussian releases of this μ together.

    A step's privacy profile is that of (1 − q)N(0, z²) + qN(1, z²) against N(0, z²), as `fixed_size_gaussian_curve`
    shows. Its Rényi curve, which the library goes by, asks for 4 to 15 % more noise, and up to 30 % where batches are
    small. Here the pair is composed numerically, in either order by itself, which is if anything generous to the rival.
    """
    from dp_accounting import GaussianDpEvent, NeighboringRelation, PoissonSampledDpEvent, SelfComposedDpEvent
    from dp_accounting.pld import PLDAccountant

    interval = max(1e-4, 5e-4 * epsilon)

    def spent(multiplier: float) -> float:
        accountant = PLDAccountant(NeighboringRelation.ADD_OR_REMOVE_ONE, value_discretization_interval=interval)
        accountant.compose(SelfComposedDpEvent(PoissonSampledDpEvent(rate, GaussianDpEvent(multiplier)), count))
        if mu > 0.0:
            accountant.compose(GaussianDpEvent(1.0 / mu))
        return float(accountant.get_epsilon(delta))

    # What the central limit theorem says is close to the truth, and below it.
    low = high = max(0.3, rate * math.sqrt(count) * noise_multiplier(epsilon, delta, 1))
    while spent(high) > epsilon:
        low, high = high, 1.25 * high
    while high / low > 1.005:
        middle = math.sqrt(low * high)
        low, high = (middle, high) if spent(middle) > epsilon else (low, middle)
    return high


def _small_batches(problem: Instance, epsilon: float) -> list[Setting]:
    size = max(1, len(problem.y) // 100)
    smoothness = problem.global_smoothness
    return [Setting(DPSGD(n_passes=10, step_size=0.3, batch_size=size, global_smoothness=smoothness), epsilon)]


def _variance_reduced(problem: Instance, epsilon: float) -> list[Setting]:
    n_records, n_features = problem.X.shape
    typical = _slope(problem) * float(np.median(np.linalg.norm(problem.X, axis=1)))
    mu_squared = PrivacyBudget(epsilon, problem.delta).gaussian_room()
    found = []
    for loops in (2, 5):
        plain = DPSVRG(n_loops=loops, global_smoothness=problem.global_smoothness)
        if not plain.worthwhile(n_records, n_features, mu_squared):
            found.append(Setting(plain, epsilon))
            continue
        for_gradients = math.sqrt(loops / (plain.snapshot_share * mu_squared))
        n_steps, part = plain.steps(n_records, mu_squared), plain.batches(n_records).size / n_records
        mu = math.sqrt(loops) / for_gradients
        for_steps = _numerical_multiplier(part, loops * n_steps, epsilon, problem.delta, mu)
        known = replace(plain, n_steps=n_steps, noise_multipliers=(for_gradients, for_steps))
        found += [
            Setting(replace(known, step_size=step, clip=clip * typical), math.inf)
            for step, clip in product((0.1, 0.3, 1.0), (0.4, 1.0, 3.0))
        ]
    return found


def _dual_descent(problem: Instance, epsilon: float) -> list[Setting]:
    return _grid(DPSCD, row_norm=(problem.row_norm,), n_passes=(1,), clip=(0.0001, 0.001, 0.01, 0.1))(problem, epsilon)


def _greedy(problem: Instance, epsilon: float) -> list[Setting]:
    typical = _slope(problem) * float(np.sqrt(problem.smoothness.sum() / problem.loss.curvature))
    return _grid(DPGCD, n_updates=(5, 20, 100), clip=(typical, 2.5 * typical))(problem, epsilon)


def _frank_wolfe(problem: Instance, epsilon: float) -> list[Setting]:
    scale = _slope(problem) / problem.loss.curvature
    return _grid(DPFrankWolfe, radius=(scale, 3.0 * scale, 10.0 * scale), n_steps=(5, 20, 80))(problem, epsilon)


def _screened(problem: Instance, epsilon: float) -> list[Setting]:
    kept = tuple(count for count in (5, 15, 40) if count < problem.X.shape[1] // 2)
    return _grid(Screened, n_kept=kept, solver=(DPCD(n_passes=4), DPCD(n_passes=15)))(problem, epsilon)


METHODS = (
    Method("auto", _grid(Auto)),
    Method("proximal Newton", _grid(DPNewton)),
    Method("one-block DP-CD", _grid(DPBlockCD)),
    Method("DP-CD", _grid(DPCD)),
    Method("DP-CD, tuned", _coordinate_descent, tuned=True),
    Method("DP-SGD", _small_batches),
    Method("DP-SGD, tuned", _gradient_descent, tuned=True),
    Method("DP-SVRG, tuned", _variance_reduced, tuned=True),
    Method("DP-SCD, tuned", _dual_descent, tuned=True),
    Method("screen and refine", _grid(Screened)),
    Method("screen and refine, tuned", _screened, tuned=True),
    Method("DP-GCD", _grid(DPGCD)),
    Method("DP-GCD, tuned", _greedy, tuned=True),
    Method("DP-Frank–Wolfe", _grid(DPFrankWolfe)),
    Method("DP-Frank–Wolfe, tuned", _frank_wolfe, tuned=True),
    Method("AdaSSP", _grid(AdaSSP)),
    Method("boosted AdaSSP", _grid(BoostedAdaSSP)),
    Method("objective perturbation", _grid(ObjectivePerturbation)),
    Method(
        "objective perturbation, tuned",
        _grid(ObjectivePerturbation, strength=(None, 1e-2, 0.1), row_bound=(None, 0.7)),
        tuned=True,
    ),
    Method("output perturbation", _grid(OutputPerturbation)),
    Method(
        "output perturbation, tuned",
        _grid(OutputPerturbation, strength=(None, 0.03, 0.3), row_bound=(None, 0.7)),
        tuned=True,
    ),
)
