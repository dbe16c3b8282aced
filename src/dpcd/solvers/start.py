"""Where steps begin."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from dpcd.losses import Loss
from dpcd.privacy.records import JointGradient, View
from dpcd.solvers.joint import Scaled
from dpcd.solvers.moments import unexplained
from dpcd.solvers.problem import Floats

# A mean label is believed if it exceeds so many deviations of noise. No constant prediction is beyond the next number,
# and none is looked for with a loss that hardly has a slope.
_SURE_LABELS, _FARTHEST_CONSTANT, _LEAST_SLOPE = 3.0, 20.0, 1e-100
# How far second derivatives look to either side, as a part of the way on which a loss is curved, and the least part of
# its curvature that they are taken for.
_SHORT_WAY, _FLATTEST = 1e-3, 0.05


class Start(NamedTuple):
    """Where steps begin.

    Parameters
    ----------
    point
        The zero model, or a constant one.
    share
        Share of the budget that it took to find out.
    flatness
        Mean second derivative of the loss there, as a part of the largest that it has anywhere.
    """

    point: Floats
    share: float = 0.0
    flatness: float = 1.0

    @classmethod
    def of(cls, scaled: Scaled, share: float | None = None) -> Start:
        """The best constant model for labels with an intercept, else the zero model.

        The best constant takes one number, the mean label, where a gradient has noise in p of them. Where one class is
        rare, it is most of what a small budget can learn. Where predictions for several classes are compared, noise in
        their constants would decide. None: what is worth spending on it if steps follow.
        """
        point = np.zeros(scaled.size)
        intercept = np.flatnonzero(scaled.active == scaled.problem.n_penalized)
        if not scaled.even_handed or scaled.problem.compared or len(intercept) == 0 or scaled.mu == 0.0:
            return cls(point)
        if share is None:
            share = scaled.counting_share
        loss, weights = scaled.problem.loss, np.zeros(scaled.curator.n_columns)
        # At zero all slopes are equally large, so that the gradient of a column of ones is the mean label.
        slope = abs(loss.derivative(1.0, 0.0))
        if slope < _LEAST_SLOPE:
            return cls(point)
        ones = View(scaled.active[intercept], np.ones(1), weights, loss, scaled.problem.positive_class)
        mechanism = JointGradient(ones, scaled.multiplier(share), clip=slope)
        mean = -float(scaled.curator.release(mechanism)[0]) / slope
        noise = mechanism.noise_level(scaled.curator.n_records) / slope
        # Believed where it is surely more than noise, and never closer to certainty than noise allows.
        believed = abs(mean) > _SURE_LABELS * noise
        size = min(abs(mean) * unexplained(mean**2, noise**2), 1.0 - noise)
        mean = math.copysign(size, mean) if believed else 0.0
        constant = best_constant(loss, mean)
        point[intercept] = constant * scaled.roots[intercept]
        return cls(point, share, _flatness(loss, constant, mean))


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
    return min(max((high - low) / (4.0 * way * loss.curvature), _FLATTEST), 1.0)
