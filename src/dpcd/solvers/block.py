"""One-block DP-CD: all coordinates at once, with one clip for the whole record."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from dpcd.privacy import Curator
from dpcd.solvers.joint import Scaled, WholeRecordSolver, check_growth, check_share, checked_count
from dpcd.solvers.problem import Floats, Problem, Solution

# Noise grows with the number of steps and bias falls with it: best near nμ/(3p) steps of full length. Below .3 of one
# step nothing is left of them but noise, nor is with a budget of so few records, however few columns there are.
_HORIZON, _LOST, _TOO_FEW_RECORDS = 3.0, 0.3, 8.0
_FEWEST_STEPS, _LONGEST_STEP = 4, 1.5
# Eigenvalues of noisy moments below so many times their noise are not believed, but for those above 1, the mean.
_BELIEVED = 2.0
# A steepest direction up to so many times as steep as the flattest ones is not told from noise.
_STANDS_OUT = 1.5
# Part of the steps at the end whose average is the answer: more of them where there are more full steps than a few, and
# noise is worse than being underway.
_TAIL, _LONG_TAIL, _FEW_FULL_STEPS = 0.3, 0.5, 6.0
# Part of the way to the minimum that a full step does, and of earlier noise that it is sure to forget: losses have less
# curvature than the moments say, and in some directions much less.
_DONE, _FORGOTTEN = 0.7, 0.5
# A point is stretched only if it is longer than noise by so many deviations.
_SURE = 2.0


def full_steps(records: float, size: int) -> float:
    """How many steps of full length suit a budget in records and so many columns; 0 where all they find is noise."""
    return max(0.0, records / (_HORIZON * size) - _LOST) if records > _TOO_FEW_RECORDS else 0.0


@dataclass(frozen=True, eq=False)
class DPBlockCD(WholeRecordSolver):
    """Proximal gradient steps with all coordinates in one block, in a private metric: for tens to hundreds of columns.

    Records are clipped as vectors, so noise grows as √p where clipping each coordinate by itself makes it grow as p.
    The second moments of the columns, released first with a small part of the budget, tell which directions are
    steeper than the rest; steps are shorter there. Directions too flat to be told from noise get the step that is safe
    for all of them.

    Parameters
    ----------
    n_steps
        Gradients to release. None: from n, p and the budget (0, the zero model, where it buys nothing but noise).
    most_steps
        Limit for ``n_steps=None``.
    growth
        Each gradient gets so many times the budget of the one before it.
    moments
        Share of the budget for the second moments.

    Notes
    -----
    Privacy. Everything goes through the mechanisms of `dpcd.privacy.joint`, all Gaussian.
    """

    n_steps: int | None = None
    most_steps: int = 40
    growth: float = 1.02
    moments: float = 0.05

    def __post_init__(self) -> None:
        for name in ("n_steps", "most_steps"):
            if getattr(self, name) is not None:
                object.__setattr__(self, name, checked_count(name, getattr(self, name)))
        if not 1.0 <= self.growth <= 1.2:
            raise ValueError(f"growth must be between 1 and 1.2, got {self.growth!r}")
        check_growth(self.n_steps or self.most_steps, self.growth)
        check_share("moments", self.moments)

    def solve(self, curator: Curator, problem: Problem, parts: int, choices: np.random.Generator) -> Solution:
        """Spend one of `parts` equal parts of what is left."""
        scaled = Scaled.of(curator, problem, parts)
        if scaled.size == 0 or scaled.mu == 0.0:
            return scaled.zero_model()
        if scaled.noiseless:
            return scaled.without_noise()
        wanted = full_steps(scaled.records, scaled.size)
        if wanted == 0.0 and self.n_steps is None:
            return scaled.zero_model()
        moments = scaled.moments(self.moments, rounds=1)
        metric, flattest = _metric(moments.matrix, moments.noise * math.sqrt(2.0 * scaled.size))
        whitening = _whitening(metric)
        # In this metric a full step moves the flattest directions by 1/flattest of what their gradient asks for.
        steps = wanted * flattest
        n_steps = self.n_steps or math.ceil(min(max(steps, _FEWEST_STEPS), self.most_steps))
        step = min(_LONGEST_STEP, steps / n_steps) if wanted > 0.0 else 1.0
        hessian = problem.loss.curvature * metric / step

        clips = scaled.clips(tuple(t for t in (1, 2, 4, 8, 16) if t < n_steps))
        shares = self.growth ** np.arange(n_steps)
        shares *= (1.0 - self.moments - clips.total) / shares.sum()
        point, path, noises = np.zeros(scaled.size), [], []
        for t in range(n_steps):
            clip = clips.at(t, whitening, point)
            if clip is None:
                return scaled.zero_model()
            gradient, noise = scaled.gradient(whitening, point, clip, shares[t])
            point = scaled.step(hessian, hessian @ point - gradient, point)
            path.append(point)
            noises.append(noise)
        last = max(1, math.floor((_LONG_TAIL if wanted > _FEW_FULL_STEPS else _TAIL) * n_steps))
        point = np.average(path[-last:], axis=0, weights=shares[-last:])
        length = float(point @ metric @ point)
        if length > 0.0:
            full = min(1.0, step / max(1.0, flattest))
            # Shrink towards zero as James and Stein do, by the part of the length that noise explains.
            steps_noise = step * np.array(noises) / problem.loss.curvature
            variance = float(_weights_in_average(1.0 - _FORGOTTEN * full, n_steps, last) ** 2 @ steps_noise**2)
            explained = scaled.size * variance / length
            stretch = 1.0
            if full < 1.0 and (1.0 + _SURE * math.sqrt(2.0 / scaled.size)) * explained < 1.0:
                # Short steps that end early leave part of the way undone: it is made up for if what they found is
                # surely more than noise.
                undone = float(np.mean((1.0 - _DONE * full) ** np.arange(n_steps - last + 1, n_steps + 1)))
                stretch = min(1.0 / (1.0 - undone), 1.0 + wanted)
            point = scaled.admitted(point * stretch * max(0.0, 1.0 - explained))
        points = np.array([*(scaled.weights(u) for u in path), scaled.weights(point)])
        return Solution(points[-1], n_steps, points)


def _weights_in_average(kept: float, n_steps: int, last: int) -> Floats:
    """How much of each step's noise is in the average of the last points, if a step keeps this part of what was there.

    Noise of step t is in point s ≥ t with weight kept^(s − t).
    """
    ages = np.arange(n_steps - last, n_steps)[:, None] - np.arange(n_steps)[None, :]
    return np.asarray(np.where(ages >= 0, kept ** np.maximum(ages, 0), 0.0).mean(axis=0))


def _metric(moments: Floats, noise: float) -> tuple[Floats, float]:
    """Second moments whose flat directions, in which noise could be all there is, are raised to the same level.

    Where even the steepest direction could be noise, all of them are.
    """
    flattest = min(1.0, _BELIEVED * noise) + noise
    values, vectors = np.linalg.eigh(moments)
    if values[-1] <= _STANDS_OUT * flattest:
        return max(flattest, float(values[-1])) * np.eye(len(values)), flattest
    return (vectors * np.maximum(values, flattest)) @ vectors.T, flattest


def _whitening(metric: Floats) -> Floats:
    """B with B·M·Bᵀ = I: lower triangular, or its diagonal, which is faster, if M is diagonal."""
    diagonal = np.diag(metric)
    if np.array_equal(metric, np.diag(diagonal)):
        return 1.0 / np.sqrt(diagonal)
    return np.tril(np.linalg.inv(np.linalg.cholesky(metric)))
