"""Where steps begin: the best constant for labels, and an easier loss where targets are far away."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from dpcd.losses import Huber, Loss, Squared
from dpcd.policy import POLICY
from dpcd.privacy.records import GradientSizes, JointGradient, View
from dpcd.ranges.sizes import Sizes
from dpcd.solvers.allocation import Allocation
from dpcd.solvers.preconditioner import unexplained
from dpcd.solvers.problem import Floats
from dpcd.solvers.scaled import Scaled

# No constant prediction is beyond the first, and none is looked for with a loss that hardly has a slope.
_FARTHEST_CONSTANT, _LEAST_SLOPE = 20.0, 1e-100
# How far second derivatives look to either side, as a part of the way on which a loss is curved.
_SHORT_WAY = 1e-3
# So many thresholds away all targets are equally far.
_ABSURDLY_FAR = 1e30


class Start(NamedTuple):
    """Where steps begin.

    Parameters
    ----------
    point
        The zero model, or a constant one.
    flatness
        Mean second derivative of the loss there, as a part of the largest that it has anywhere.
    """

    point: Floats
    flatness: float = 1.0


def start_share(scaled: Scaled) -> float:
    """The share that is worth spending on the start if steps follow: nothing where it is known to be the zero model."""
    return scaled.counting_share if _has_constant(scaled) else 0.0


def _has_constant(scaled: Scaled) -> bool:
    """Whether labels have a best constant, and a loss with a slope to find it by.

    Where predictions for several classes are compared, noise in their constants would decide.
    """
    problem = scaled.problem
    if not scaled.even_handed or problem.compared or scaled.mu == 0.0 or problem.n_penalized not in scaled.active:
        return False
    return abs(problem.loss.derivative(1.0, 0.0)) >= _LEAST_SLOPE


def release_start(scaled: Scaled, share: float) -> Start:
    """The best constant model for labels with an intercept, else the zero model, which costs nothing.

    The best constant takes one number, the mean label, where a gradient has noise in p of them. Where one class is
    rare, it is most of what a small budget can learn.
    """
    point = np.zeros(scaled.size)
    if not _has_constant(scaled):
        return Start(point)
    loss, weights = scaled.problem.loss, np.zeros(scaled.curator.n_columns)
    intercept = np.flatnonzero(scaled.active == scaled.problem.n_penalized)
    # At zero all slopes are equally large, so that the gradient of a column of ones is the mean label.
    slope = abs(loss.derivative(1.0, 0.0))
    ones = View(scaled.active[intercept], np.ones(1), weights, loss, scaled.problem.positive_class)
    mechanism = JointGradient(ones, scaled.multiplier(share), clip=slope)
    mean = -float(scaled.curator.release(mechanism)[0]) / slope
    noise = mechanism.noise_level(scaled.curator.n_records) / slope
    # Believed where it is surely more than noise, and never closer to certainty than noise allows.
    believed = abs(mean) > POLICY.sure_labels * noise
    size = min(abs(mean) * unexplained(mean**2, noise**2), 1.0 - noise)
    mean = math.copysign(size, mean) if believed else 0.0
    constant = best_constant(loss, mean)
    point[intercept] = constant * scaled.roots[intercept]
    return Start(point, _flatness(loss, constant, mean))


def best_constant(loss: Loss, mean: float) -> float:
    """The prediction that is best for all records alike, whose labels ±1 have this mean."""
    if mean == 0.0:
        return 0.0
    more, less = 1.0 + abs(mean), 1.0 - abs(mean)
    low, high = 0.0, _FARTHEST_CONSTANT
    for _ in range(50):
        middle = (low + high) / 2.0
        slope = more * loss.derivative(1.0, middle) + less * loss.derivative(-1.0, middle)
        low, high = (middle, high) if slope < 0.0 else (low, middle)
    return math.copysign((low + high) / 2.0, mean)


def _flatness(loss: Loss, constant: float, mean: float) -> float:
    """Mean second derivative at a constant prediction for labels of this mean, as a part of the loss's curvature."""
    # A part of the way on which its slope changes from one end to the other.
    way = _SHORT_WAY * loss.lipschitz / loss.curvature
    ends = constant - way, constant + way
    low, high = ((1.0 + mean) * loss.derivative(1.0, end) + (1.0 - mean) * loss.derivative(-1.0, end) for end in ends)
    return min(max((high - low) / (4.0 * way * loss.curvature), POLICY.flattest_loss), 1.0)


@dataclass(frozen=True, eq=False)
class Continuation:
    """The problem of each step: with a Huber loss whose threshold comes down to its own from how far targets are away.

    Where targets are many thresholds away, hardly any record has curvature left, and steps that are safe are as short
    as a threshold. With a threshold as large as what is typical of them, one step does most of the way.

    Parameters
    ----------
    scaled
        The problem itself, that of the last steps.
    n_steps
        How many steps there are.
    away
        Mean distance of targets from the start, in thresholds; 0 where nothing is known of it.
    """

    scaled: Scaled
    n_steps: int
    away: float = 0.0

    @classmethod
    def release(cls, scaled: Scaled, shares: Allocation, n_steps: int) -> Continuation:
        """Find out how far targets are away, if there is a share for it."""
        loss = scaled.problem.loss
        if shares.distances == 0.0 or not isinstance(loss, Huber):
            return cls(scaled, n_steps)
        distances = replace(scaled, problem=replace(scaled.problem, loss=Squared()))
        view = distances.view(np.ones(scaled.size), np.zeros(scaled.size))
        multiplier = scaled.multiplier(shares.distances)
        sizes = Sizes.release(scaled.curator, GradientSizes(view, multiplier, per_octave=1, of="slopes"))
        typical = 0.0 if sizes.level is None else sizes.level[0]
        return cls(scaled, n_steps, min(typical / loss.threshold, _ABSURDLY_FAR))

    def at(self, step: int) -> Scaled:
        """The problem of a step: the last ones have their own."""
        problem = self.scaled.problem
        if self.away <= POLICY.far_targets or not isinstance(problem.loss, Huber):
            return self.scaled
        left = max(0.0, 1.0 - step / (self.n_steps - POLICY.own_threshold_steps))
        if left == 0.0:
            return self.scaled
        threshold = problem.loss.threshold
        return replace(self.scaled, problem=replace(problem, loss=Huber(threshold * self.away**left)))
