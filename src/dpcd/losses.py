"""Losses ℓ(y, z) of a linear model, z = x·w + intercept.

A loss is a NamedTuple with scalar methods in plain Python; kernels compile these very methods. Write your own in
your own file, with nothing to register:

>>> import math
>>> from typing import NamedTuple
>>> class Poisson(NamedTuple):
...     curvature = 10.0          # an upper bound on the second derivative where the model lives
...     lipschitz = math.inf      # an upper bound on |derivative|, if there is one
...     def value(self, y, z):
...         return math.exp(z) - y * z
...     def derivative(self, y, z):
...         return math.exp(z) - y

A wrong loss (or curvature) can cost accuracy but never privacy, as long as its derivative is pure and never raises: the
privacy core clips what each record contributes, whatever the derivative returns, but not what it does besides. So a
derivative may calculate with its arguments and with numbers, and compare. One that indexes anything, raises, asserts or
uses an array of the module around it is refused, and so are functions that it calls (plain ones, decorated with
`numba.extending.register_jitable`).
"""

from __future__ import annotations

import math
from typing import NamedTuple, Protocol

from dpcd.compilation import exp


class Loss(Protocol):
    """What a solver needs of a loss."""

    @property
    def curvature(self) -> float:
        """Supremum of ∂²ℓ/∂z²: coordinate j then has smoothness M_j = curvature · mean(x_j²)."""

    @property
    def lipschitz(self) -> float:
        """Supremum of |∂ℓ/∂z|, infinite for the squared loss."""

    def value(self, y: float, z: float) -> float:
        """ℓ(y, z)."""

    def derivative(self, y: float, z: float) -> float:
        """∂ℓ/∂z (y, z)."""


class Squared(NamedTuple):
    """½ (z − y)²."""

    @property
    def curvature(self):
        """1."""
        return 1.0

    @property
    def lipschitz(self):
        """Infinite."""
        return math.inf

    def value(self, y, z):
        """½ (z − y)²."""
        return 0.5 * (z - y) ** 2

    def derivative(self, y, z):
        """Z − y."""
        return z - y


class Logistic(NamedTuple):
    """log(1 + e^{−yz}) for labels y = ±1."""

    @property
    def curvature(self):
        """¼."""
        return 0.25

    @property
    def lipschitz(self):
        """1."""
        return 1.0

    def value(self, y, z):
        """log(1 + e^{−yz}), without overflow."""
        return max(-y * z, 0.0) + math.log1p(math.exp(-abs(y * z)))

    def derivative(self, y, z):
        """−y / (1 + e^{yz})."""
        return -y / (1.0 + exp(y * z))


class Huber(NamedTuple):
    """½ r² for |r| ≤ threshold and linear beyond, r = z − y.

    Parameters
    ----------
    threshold
        Residual, in units of the target, beyond which a record's pull no longer grows.
    """

    threshold: float = 1.35

    @property
    def curvature(self):
        """1."""
        return 1.0

    @property
    def lipschitz(self):
        """The threshold."""
        return self.threshold

    def value(self, y, z):
        """½ r², or threshold·(|r| − threshold/2)."""
        inner = min(abs(z - y), self.threshold)
        return inner * (abs(z - y) - 0.5 * inner)

    def derivative(self, y, z):
        """The residual z − y clipped to ± threshold."""
        return min(max(z - y, -self.threshold), self.threshold)


class SmoothedHinge(NamedTuple):
    """The hinge loss max(0, 1 − yz), labels y = ±1, its corner replaced by a parabola of the given width.

    Parameters
    ----------
    width
        The loss is quadratic for margins yz in [1 − width, 1], exact hinge less width/2 below.
    """

    width: float = 1.0

    @property
    def lipschitz(self):
        """1."""
        return 1.0

    @property
    def curvature(self):
        """1 / width."""
        return 1.0 / self.width

    def value(self, y, z):
        """0, (1 − m)²/(2 width) or 1 − m − width/2 for the margin m = yz."""
        gap = max(1.0 - y * z, 0.0)
        inner = min(gap, self.width)
        return inner * (gap - 0.5 * inner) / self.width

    def derivative(self, y, z):
        """−y · (1 − m)/width, the fraction clipped to [0, 1]."""
        return -y * min(max((1.0 - y * z) / self.width, 0.0), 1.0)


#: Losses whose target is a label, −1 or 1.
ABOUT_LABELS = (Logistic, SmoothedHinge)
