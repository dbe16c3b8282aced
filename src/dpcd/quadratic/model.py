"""A private quadratic: what can be computed from it is free.

A fit that releases a noisy Hessian H and a noisy linear term b has released the quadratic ½wᵀHw − bᵀw. Everything below
is post-processing of those two, and never looks at data: other penalties, constraints, whole paths of penalties and
confidence intervals cost no budget, however many are tried.

What a quadratic cannot give is another weighting of the *records*: a robust loss, or the next step of iteratively
reweighted least squares, changes the sum of x·xᵀ itself and has to be released anew, as `DPNewton` does. Weights of the
*coordinates* are free.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from numbers import Real
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtri

from dpcd.compilation import compiled, prox
from dpcd.penalties import Box, ElasticNet, Penalty, WeightedL1, Zero, sized

Floats = NDArray[np.float64]

# Reweighting tells a weight from zero at this part of the largest one.
_SMALL = 0.1


def _descend(hessian, gradient, weights, penalty, columns, n_penalized, tolerance, max_passes):
    """Coordinate descent until no coordinate moves the quadratic's root by more than the tolerance.

    `gradient` is H·w − b and is kept up to date; `weights` is overwritten.
    """
    for _ in range(max_passes):
        largest = 0.0
        for j in range(weights.shape[0]):
            if hessian[j, j] > 0.0:
                step = 1.0 / hessian[j, j]
                value = weights[j] - step * gradient[j]
                if columns[j] < n_penalized:
                    value = prox(penalty, value, step, columns[j])
                change = value - weights[j]
                if change != 0.0:
                    weights[j] = value
                    for k in range(weights.shape[0]):
                        gradient[k] += change * hessian[k, j]
                    largest = max(largest, abs(change) * np.sqrt(hessian[j, j]))
        if largest <= tolerance:
            break


def half_width(level: Any) -> float:
    """Half the width of a normal interval, in standard deviations."""
    if not (isinstance(level, Real) and 0.0 < float(level) < 1.0):
        raise ValueError(f"level must lie strictly between 0 and 1, got {level!r}")
    return float(ndtri(0.5 + 0.5 * float(level)))


class Evidence(Protocol):
    """What releases say of the minimum beyond a quadratic."""

    def located(self) -> tuple[Floats, Floats]:
        """The minimum in the order of a quadratic's coordinates, and the covariance of its error."""


@dataclass(frozen=True, eq=False)
class Quadratic:
    """½wᵀHw − bᵀw with H positive semi-definite, both released.

    Columns that stayed out of the fit are not in it: results are about its own coordinates, along the last axis, and
    `expand` puts them in the order of all columns. An intercept is the last coordinate; where features were shifted by
    a center before the fit, it is the intercept of the shifted ones.

    Parameters
    ----------
    hessian, linear
        H and b.
    columns
        Which column of the data each coordinate belongs to, as penalties may differ; None: all of them, in order.
    covariance
        Covariance of the error of b, from privacy noise, from the sampling of records and from what is not known of H;
        None if it is not known.
    n_penalized
        How many columns of the data penalties are for, unless a method is told otherwise: all but an intercept. None:
        all of them.
    evidence
        What the releases say of the minimum, more exactly than H, b and a covariance do; None if that is all.
    """

    hessian: Floats
    linear: Floats
    columns: NDArray[np.int64] | None = None
    covariance: Floats | None = None
    n_penalized: int | None = None
    evidence: Evidence | None = None

    def minimize(
        self,
        penalty: Penalty | None = None,
        n_penalized: int | None = None,
        start: Floats | None = None,
        tolerance: float = 1e-10,
        max_passes: int = 5000,
    ) -> Floats:
        """Weights at the minimum of the quadratic plus a separable penalty, by coordinate descent.

        Parameters
        ----------
        penalty, n_penalized
            ψ, none by default, for the first so many columns of the data (the quadratic's own number by default).
        start
            Where to start from.
        tolerance
            Stop when a pass moves no √H_jj·w_j by more than this part of the largest √H_jj·|b_j/H_jj|.
        max_passes
            Stop after so many passes in any case.
        """
        columns, count = self._places, self._n_penalized(n_penalized)
        penalty = Zero() if penalty is None else sized(penalty, min(count, int(columns[-1]) + 1))
        size = len(self.linear)
        weights = np.zeros(size) if start is None else np.array(start, dtype=np.float64)
        diagonal = np.diag(self.hessian)
        roots = np.sqrt(np.maximum(diagonal, 0.0))
        scale = np.max(np.abs(self.linear[roots > 0.0]) / roots[roots > 0.0], initial=0.0)
        kernel: Any = compiled(_descend, type(penalty))
        gradient = self.hessian @ weights - self.linear
        hessian = np.ascontiguousarray(self.hessian)
        kernel(hessian, gradient, weights, penalty, columns, count, tolerance * scale, max_passes)
        return weights

    def largest_alpha(self, l1_ratio: float = 1.0, n_penalized: int | None = None) -> float:
        """Strength of the elastic net from which on all penalised weights are zero: where a path begins.

        Parameters
        ----------
        l1_ratio, n_penalized
            As in `path`; a ridge penalty, ``l1_ratio=0``, makes no weight zero.
        """
        if not 0.0 < l1_ratio <= 1.0:
            raise ValueError(f"l1_ratio must be above 0 and at most 1 for weights to become zero, got {l1_ratio!r}")
        # Penalised weights are held at zero, the others are free.
        weights = self.minimize(Box(0.0, 0.0), n_penalized)
        slopes = np.abs(self.hessian @ weights - self.linear)
        return float(np.max(slopes[self._places < self._n_penalized(n_penalized)], initial=0.0)) / l1_ratio

    def path(self, alphas: ArrayLike, l1_ratio: float = 1.0, n_penalized: int | None = None) -> Floats:
        """Weights for all of these strengths of the lasso or the elastic net, a row for each.

        Parameters
        ----------
        alphas
            Strengths, in any order; see `largest_alpha`.
        l1_ratio
            1 is the lasso, 0 ridge regression.
        n_penalized
            How many columns of the data have a penalty; None: as many as the quadratic says.
        """
        strengths = np.array(alphas, dtype=np.float64, ndmin=1)
        if strengths.ndim != 1 or not np.all((strengths >= 0.0) & (strengths < math.inf)):
            raise ValueError(f"alphas must be numbers of at least 0, got {alphas!r}")
        if not 0.0 <= l1_ratio <= 1.0:
            raise ValueError(f"l1_ratio must lie between 0 and 1, got {l1_ratio!r}")
        path = np.zeros((len(strengths), len(self.linear)))
        weights = None
        for k in np.argsort(-strengths):
            # Each solution is close to the one before it.
            weights = path[k] = self.minimize(ElasticNet(float(strengths[k]), float(l1_ratio)), n_penalized, weights)
        return path

    def reweighted(
        self, alpha: float, n_rounds: int = 5, smoothing: ArrayLike | None = None, n_penalized: int | None = None
    ) -> Floats:
        """Weights after several rounds of reweighted l1 (Candès, Wakin and Boyd 2008).

        The first round is the lasso. In each round after it, the penalty of coordinate j is alpha·ε_j/(|w_j| + ε_j)
        times its size, w being what the round before found: large weights are hardly shrunk any more, small ones as
        much as by the lasso. Every round lowers the quadratic plus Σ alpha·ε_j·log(1 + |w_j|/ε_j).

        Parameters
        ----------
        alpha
            Strength at zero.
        n_rounds
            How many minimisations, at least 1.
        smoothing
            ε_j, in units of the weights: a number or one for each coordinate. None: a tenth of the lasso's largest
            weight, all measured in units of 1/√H_jj.
        n_penalized
            As in `path`.
        """
        if not 0.0 <= alpha < math.inf:
            raise ValueError(f"alpha must be a number of at least 0, got {alpha!r}")
        if n_rounds < 1 or n_rounds != int(n_rounds):
            raise ValueError(f"n_rounds must be a whole number of at least 1, got {n_rounds!r}")
        if smoothing is not None and not np.all(np.asarray(smoothing) > 0.0):
            raise ValueError(f"smoothing must be positive, got {smoothing!r}")
        columns = self._places
        strengths = np.ones(int(columns[-1]) + 1)
        weights = self.minimize(WeightedL1(float(alpha), strengths), n_penalized)
        if smoothing is None:
            roots = np.sqrt(np.maximum(np.diag(self.hessian), np.finfo(float).tiny))
            largest = np.max(roots * np.abs(weights) * (columns < self._n_penalized(n_penalized)))
            if largest == 0.0:
                # The lasso is zero, and with it every round.
                return weights
            small = _SMALL * largest / roots
        else:
            small = np.broadcast_to(np.asarray(smoothing, dtype=np.float64), len(weights))
        for _ in range(n_rounds - 1):
            strengths[columns] = small / (np.abs(weights) + small)
            weights = self.minimize(WeightedL1(float(alpha), strengths), n_penalized, weights)
        return weights

    def confidence_intervals(self, level: float = 0.95) -> Floats:
        """Lower and upper ends of an interval for each coordinate of the unpenalised weights, in two rows.

        They are for the weights at which the mean loss is smallest, without a penalty, over the population that the
        records are drawn from, its columns and its target clipped as the fit clipped them. Each interval holds by
        itself. Estimators have `confidence_intervals` too, with names and in the units of the data.

        Parameters
        ----------
        level
            Probability with which an interval shall cover.

        Notes
        -----
        Approximate, as good as the model of the errors is. Counted are privacy noise, the sampling of records, what
        noise and shortened rows hide of the curvature times the distance that is left to the minimum, guesses about
        rows too long to be seen, and what clips cut off of gradients, as far as the shape of their sizes tells. For
        `AdaSSP` and `BoostedAdaSSP` the last is not. Sampling counts as if gradients had the same spread in all
        directions of the columns' second moments, as they do for the squared loss if residuals do not depend on the
        features. Neither the penalty nor the shrinkage of the fitted weights is in the center, which may therefore
        differ from them. And choosing columns first, by screening or by looking at other results of the same quadratic,
        makes intervals too short, as it does without privacy.
        """
        factor = half_width(level)
        center, covariance = self.located()
        half = factor * np.sqrt(np.diag(covariance))
        return np.array([center - half, center + half])

    def located(self) -> tuple[Floats, Floats]:
        """The unpenalised minimum as far as it is known, and the covariance of its error."""
        if self.evidence is not None:
            try:
                return self.evidence.located()
            except (ArithmeticError, np.linalg.LinAlgError):
                raise ValueError(
                    "no confidence intervals: what the fit released is too many orders of magnitude apart"
                ) from None
        if self.covariance is None:
            raise ValueError("confidence intervals need the covariance of the error, which this quadratic lacks")
        try:
            np.linalg.cholesky(self.hessian)
        except np.linalg.LinAlgError:
            raise ValueError(
                "the Hessian is singular, so that some weights could be anything: leave out redundant columns"
            ) from None
        covariance = np.linalg.solve(self.hessian, np.linalg.solve(self.hessian, self.covariance).T)
        return np.asarray(np.linalg.solve(self.hessian, self.linear)), np.asarray(covariance)

    def expand(self, values: ArrayLike, n_columns: int, fill: float = 0.0) -> Floats:
        """Results in the order of all columns of the data, with `fill` for those that stayed out of the fit.

        Parameters
        ----------
        values
            With the coordinates of the quadratic along the last axis.
        n_columns
            How many columns there are, the intercept included.
        fill
            0 for weights, ``math.nan`` for what is not known.
        """
        values = np.asarray(values, dtype=np.float64)
        columns = self._places
        if n_columns <= columns[-1]:
            raise ValueError(f"n_columns must be at least {columns[-1] + 1}, got {n_columns!r}")
        expanded = np.full((*values.shape[:-1], n_columns), fill)
        expanded[..., columns] = values
        return expanded

    @property
    def _places(self) -> NDArray[np.int64]:
        return np.arange(len(self.linear)) if self.columns is None else self.columns

    def _n_penalized(self, n_penalized: int | None) -> int:
        told = self.n_penalized if n_penalized is None else n_penalized
        return int(self._places[-1]) + 1 if told is None else told
