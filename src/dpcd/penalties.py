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

A penalty never sees data, and may hold arrays, with an entry for each column. Indices of its methods are checked, which
costs a little; functions that read entries for it must be decorated with ``numba.njit(boundscheck=True)``.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple, Protocol

import numpy as np
from numba.extending import register_jitable

from dpcd.compilation import from_elsewhere, penalty_value, prox
from dpcd.plugins import check_penalty_code


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


class Rescaled(NamedTuple):
    """Another penalty, of weights in units of their own: unit² · ψ_j(scales[j] · w / unit).

    With the columns' scales, and the target's as the unit, its strength means the same whatever units columns and
    target have: it is that of ψ for columns and a target of scale 1.

    Parameters
    ----------
    penalty
        ψ.
    scales
        Array of positive numbers, one for each coordinate. They are public or released.
    unit
        A positive number.
    """

    penalty: Any
    scales: np.ndarray
    unit: float = 1.0

    def value(self, w, j):
        """ψ_j of the rescaled weight, times unit²."""
        return self.unit * self.unit * penalty_value(self.penalty, self.scales[j] * w / self.unit, j)

    def prox(self, v, step, j):
        """ψ's own, at the rescaled point: unit² leaves the step alone."""
        scale = self.scales[j] / self.unit
        return prox(self.penalty, scale * v, step * self.scales[j] * self.scales[j], j) / scale


def bare(penalty: Any) -> Any:
    """The penalty itself, where it is in units of the columns' scales."""
    return penalty.penalty if isinstance(penalty, Rescaled) else penalty


def strengths(penalty: Any, n_columns: int) -> np.ndarray:
    """Strength of an l1 or an l2 penalty at each of so many columns, 0 for none."""
    own = bare(penalty)
    one = np.full(n_columns, 0.0 if isinstance(own, Zero) else float(own.alpha))
    if not isinstance(penalty, Rescaled):
        return one
    return one * (penalty.scales**2 if isinstance(own, L2) else penalty.scales * penalty.unit)


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


def sized(penalty: Any, n_columns: int) -> Penalty:
    """The penalty with copies of its arrays, once each of them has an entry for every one of so many columns.

    Compiled loops do not check where they read: behind a shorter array, weights would be functions of whatever lies
    there in memory. Penalties from elsewhere that read where nobody checks are refused altogether.
    """
    kind: Any = type(penalty)
    check_penalty_code(kind)
    if isinstance(penalty, Rescaled) and from_elsewhere(type(penalty.penalty)):
        raise ValueError(f"Rescaled is for penalties of dpcd.penalties, got {type(penalty.penalty).__name__}")
    parts: dict[str, Any] = {}
    for name in getattr(penalty, "_fields", ()):
        part = getattr(penalty, name)
        if hasattr(part, "prox"):
            parts[name] = sized(part, n_columns)
        elif isinstance(part, (np.ndarray, list)):
            parts[name] = _entries(f"{kind.__name__}.{name}", part, n_columns)
    return penalty._replace(**parts) if parts else penalty


def _entries(name: str, values: Any, n_columns: int) -> np.ndarray:
    """A copy, in the one layout that kernels are compiled for."""
    expected = f"{name} must be an array of one dimension with a number for each of {n_columns} columns"
    try:
        entries = np.array(values, dtype=np.float64, order="C")
    except (TypeError, ValueError):
        raise ValueError(expected) from None
    if entries.ndim != 1 or len(entries) < n_columns:
        raise ValueError(f"{expected}, got shape {entries.shape}")
    return entries
