"""Separable penalties ψ(w) = Σ_j ψ_j(w_j).

A penalty is a NamedTuple with two scalar methods, `value(w, j)` = ψ_j(w) and `prox(v, step, j)` =
argmin_u ½(u − v)² + step·ψ_j(u), compiled into the kernels as they stand. They are told the coordinate j, so that a
penalty may differ from one coordinate to the next; most ignore it. Write your own in your own file, with nothing to
register:

>>> import math
>>> from typing import NamedTuple
>>> class LogBarrier(NamedTuple):         # keeps every coefficient positive
...     alpha: float
...     def value(self, w, j):
...         return -self.alpha * math.log(w)
...     def prox(self, v, step, j):
...         return 0.5 * (v + math.sqrt(v * v + 4.0 * step * self.alpha))
"""

from __future__ import annotations

import math
from typing import NamedTuple, Protocol

import numpy as np
from numba.extending import register_jitable


class Penalty(Protocol):
    """What a solver needs of a penalty."""

    def value(self, w: float, j: int) -> float:
        """ψ_j(w)."""

    def prox(self, v: float, step: float, j: int) -> float:
        """argmin_u ½(u − v)² + step·ψ_j(u)."""


@register_jitable
def soft_threshold(v, threshold):
    """Shrink v towards zero by threshold."""
    return max(v - threshold, 0.0) - max(-v - threshold, 0.0)


class Zero(NamedTuple):
    """No penalty."""

    def value(self, w, j):
        """0."""
        return 0.0

    def prox(self, v, step, j):
        """Return v itself."""
        return v


class L1(NamedTuple):
    """alpha · |w|."""

    alpha: float

    def value(self, w, j):
        """ψ(w) = alpha · |w|."""
        return self.alpha * abs(w)

    def prox(self, v, step, j):
        """Soft thresholding."""
        return soft_threshold(v, step * self.alpha)


class WeightedL1(NamedTuple):
    """alpha · weights[j] · |w|, for adaptive and reweighted l1.

    Parameters
    ----------
    alpha
        Overall strength.
    weights
        Array of non-negative weights, one for each coordinate. They are public: do not compute them from the data.
    """

    alpha: float
    weights: np.ndarray

    def value(self, w, j):
        """ψ_j(w) = alpha · weights[j] · |w|."""
        return self.alpha * self.weights[j] * abs(w)

    def prox(self, v, step, j):
        """Soft thresholding at the coordinate's own level."""
        return soft_threshold(v, step * self.alpha * self.weights[j])


class L2(NamedTuple):
    """½ alpha · w²."""

    alpha: float

    def value(self, w, j):
        """½ alpha · w²."""
        return 0.5 * self.alpha * w * w

    def prox(self, v, step, j):
        """Shrinkage by a constant factor."""
        return v / (1.0 + step * self.alpha)


class ElasticNet(NamedTuple):
    """alpha · (l1_ratio · |w| + ½ (1 − l1_ratio) · w²)."""

    alpha: float
    l1_ratio: float = 0.5

    def value(self, w, j):
        """ψ(w), the weighted sum of both."""
        return self.alpha * (self.l1_ratio * abs(w) + 0.5 * (1.0 - self.l1_ratio) * w * w)

    def prox(self, v, step, j):
        """Soft thresholding, then shrinkage."""
        shrunk = soft_threshold(v, step * self.alpha * self.l1_ratio)
        return shrunk / (1.0 + step * self.alpha * (1.0 - self.l1_ratio))


class Box(NamedTuple):
    """0 for lower ≤ w ≤ upper, infinite elsewhere."""

    lower: float = -math.inf
    upper: float = math.inf

    def value(self, w, j):
        """0 inside, infinite outside."""
        return 0.0 if self.lower <= w <= self.upper else math.inf

    def prox(self, v, step, j):
        """Projection."""
        return min(max(v, self.lower), self.upper)


def non_negative() -> Box:
    """The constraint w ≥ 0."""
    return Box(0.0, math.inf)
