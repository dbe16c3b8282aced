"""What the gradients that a fit released say about the minimum, and how well that is known.

Everything here is post-processing of released numbers.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dpcd.policy import POLICY
from dpcd.privacy.lattice import Floats
from dpcd.quadratic.tails import Cut

# How much larger than the error of predictions they could be where they do not stand out from it, as squares.
_HIDES = 100.0
# The error of a gradient depends on where the minimum is, which depends on the error: so many rounds settle it.
_ROUNDS = 4
# More numbers than this are not looked at together: the last gradients alone are.
_MOST_NUMBERS = 600


@dataclass(frozen=True, eq=False)
class Evidence:
    """Gradients at some points of a nearly quadratic objective, and its curvature, as far as it is known.

    In coordinates in which the noise of gradients is alike in all directions.

    Parameters
    ----------
    points, gradients, variances
        Where gradients were released, these gradients, and the variance of the noise in each of their numbers.
    curvature, doubts
        The Hessian as it was seen. It is off by the sum of A·N·Aᵀ over some matrices A, for symmetric N with variance 1
        on the diagonal and ½ off it: first what noise hides of it, then what may be missing.
    metric
        Second moments of the columns, and where noise hides them what they could be: positive definite.
    sampling
        Covariance of the mean gradient of n records.
    change
        By how much a gradient at distance 1 may be another than the Hessian says, in each number.
    bias
        What clips may take from a mean gradient in any direction, as a standard deviation: a number, or read off sizes.
    reach
        The distance from which on it is another that clips take.
    start
        Where steps began.
    back
        The weights are this matrix times a point.
    """

    points: Floats
    gradients: Floats
    variances: Floats
    curvature: Floats
    doubts: tuple[Floats, ...]
    metric: Floats
    sampling: Floats
    change: float
    bias: float | Cut
    reach: float
    start: Floats
    back: Floats

    def located(self) -> tuple[Floats, Floats]:
        """The minimum, and the covariance of its error, in the units of the weights.

        The center is where the gradient is zero, as predicted by all gradients (kriging). Where the curvature is
        doubtful, gradients at different points tell of it, and a minimum far from all of them is doubtful too.
        """
        if isinstance(self.bias, Cut) and self.bias.noise > POLICY.too_hazy:
            raise ValueError(
                "no confidence intervals: at this budget the sizes of gradients cannot be told from noise, and nothing "
                "is known of what clips cut off; use a larger epsilon or more records"
            )
        size = self.points.shape[1]
        unit = np.sqrt(float(np.mean(self.variances)) + float(np.trace(self.sampling)) / size)
        if unit < np.finfo(float).tiny:
            return self.back @ self.points[-1], np.zeros_like(self.back)
        center, covariance = _Field(self, unit).minimum()
        return self.back @ center, self.back @ covariance @ self.back.T


class _Field:
    """The gradient as a random field: what is known of it everywhere, in units of the error."""

    def __init__(self, evidence: Evidence, unit: float) -> None:
        self.evidence, self.unit = evidence, unit
        size = evidence.points.shape[1]
        count = max(1, min(len(evidence.points), _MOST_NUMBERS // size))
        self.here = evidence.points[-1] / unit
        self.moves = evidence.points[-count:] / unit - self.here
        gradients = evidence.gradients[-count:] / unit
        # Noise is the first of them, and always there.
        self.doubts = [doubt for k, doubt in enumerate(evidence.doubts) if k == 0 or np.any(doubt)]
        deviation = evidence.bias.deviation if isinstance(evidence.bias, Cut) else evidence.bias
        self.bias = (deviation / unit) ** 2
        own = evidence.variances[-count:] / unit**2 + self._of_distance(np.sum(self.moves**2, axis=1))
        # Each gradient says what minus that here is, up to what is not known of the curvature between the two points.
        self.said = self.moves @ evidence.curvature - gradients
        self.inverse = np.linalg.inv(self._among_gradients() + np.kron(np.diag(own), np.eye(size)))
        self.alike = np.tile(np.eye(size), (count, 1))
        self.error_here = np.linalg.inv(self.alike.T @ self.inverse @ self.alike)
        self.pull = self.error_here @ (self.alike.T @ (self.inverse @ self.said.ravel()))
        rest = (self.inverse @ (self.said - self.pull).ravel()).reshape(self.said.shape)
        self.hessian = evidence.curvature + self._learnt(rest)

    def _of_distance(self, squares: Floats) -> Floats:
        """Variance of a gradient at such squared distances from here beside that of noise."""
        moved = squares * self.unit**2 / max(self.evidence.reach**2, np.finfo(float).tiny)
        return np.asarray(self.evidence.change**2 * squares + self.bias * np.minimum(1.0, moved))

    def _among_gradients(self) -> Floats:
        """Covariance of what doubts about the curvature do to all gradients."""
        count, size = self.moves.shape
        total = np.zeros((count, size, count, size))
        for doubt in self.doubts:
            turned = self.moves @ doubt
            there = turned @ doubt.T
            total += np.einsum("ij,rs->irjs", turned @ turned.T, doubt @ doubt.T) / 2.0
            total += np.einsum("jr,is->irjs", there, there) / 2.0
        return total.reshape(count * size, count * size)

    def _with_gradients(self, move: Floats, doubts: list[Floats]) -> Floats:
        """Covariance of what doubts do at a distance from here with what they do to all gradients."""
        count, size = self.moves.shape
        total = np.zeros((size, count, size))
        for doubt in doubts:
            turned, own = self.moves @ doubt, move @ doubt
            total += np.einsum("j,rs->rjs", turned @ own, doubt @ doubt.T) / 2.0
            total += np.einsum("jr,s->rjs", turned @ doubt.T, doubt @ own) / 2.0
        return total.reshape(size, count * size)

    def _learnt(self, rest: Floats) -> Floats:
        """What gradients that differ from what was expected of them say about the curvature."""
        learnt = np.zeros_like(self.evidence.curvature)
        for doubt in self.doubts:
            half = doubt @ doubt.T @ (rest.T @ (self.moves @ doubt)) @ doubt.T / 2.0
            learnt -= half + half.T
        return learnt

    def _error(self, move: Floats, doubts: list[Floats], here: float) -> Floats:
        """Covariance of what is not known of the gradient's change over a move, with so much of its error here."""
        own = np.zeros_like(self.hessian)
        for doubt in doubts:
            turned = doubt.T @ move
            there = doubt @ turned
            own += (turned @ turned * doubt @ doubt.T + np.outer(there, there)) / 2.0
        shared = self._with_gradients(move, doubts)
        left = here * np.eye(len(move)) - shared @ self.inverse @ self.alike
        return np.asarray(own - shared @ self.inverse @ shared.T + left @ self.error_here @ left.T)

    def _of_noise(self, inverse: Floats) -> Floats:
        """Mean of N·A·N, for what gradients leave open of the noise N in the curvature."""
        values, vectors = np.linalg.eigh(inverse)
        changes = (
            value * self._error(vector, self.doubts[:1], 0.0) for value, vector in zip(values, vectors.T, strict=True)
        )
        return np.asarray(sum(changes, start=np.zeros_like(inverse)))

    def minimum(self) -> tuple[Floats, Floats]:
        """Where the gradient is zero, and the covariance of the error of that.

        What is known of a direction is R·E⁻¹·R, for the curvature R and the covariance E of the gradient, less what
        noise in R adds to that on average. Where this leaves nothing, a weight could be anything; it is taken to be as
        large as if it made all predictions by itself.
        """
        evidence, hessian, size = self.evidence, self.hessian, len(self.pull)
        one, move = np.eye(size), np.zeros(size)
        # No direction makes more than all predictions: weights there are as large as the second moments admit.
        admitted = np.linalg.inv(np.linalg.cholesky(evidence.metric))
        level = max(float(np.trace(hessian)) / size, np.finfo(float).tiny)
        fixed = evidence.sampling / self.unit**2 + self.bias * one
        for _ in range(_ROUNDS):
            error = self._error(move, self.doubts, 1.0) + fixed + evidence.change**2 * float(move @ move) * one
            total = float(np.trace(error))
            inverse = np.asarray(np.linalg.inv((error + error.T) / (2.0 * total)), dtype=np.float64)
            away = self.here + move - evidence.start / self.unit
            largest = float(away @ evidence.metric @ away) + _HIDES * total / level**2
            seen: Floats = hessian @ inverse @ hessian
            move = np.linalg.solve(seen + total / largest * evidence.metric, hessian @ inverse @ self.pull)
        known = seen - self._of_noise(inverse)
        values, vectors = np.linalg.eigh(admitted @ (known + known.T) @ admitted.T / 2.0)
        spread = largest / (1.0 + np.maximum(values, 0.0) * (largest / total))
        vectors = admitted.T @ vectors
        return (self.here + move) * self.unit, (vectors * spread) @ vectors.T * self.unit**2
