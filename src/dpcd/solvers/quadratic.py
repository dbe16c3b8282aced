"""A private quadratic: what can be computed from it is free.

A fit that releases a noisy Hessian H and a noisy linear term b has released the quadratic ½wᵀHw − bᵀw. Everything below
is post-processing of those two, and never looks at data.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpcd.compilation import compiled, prox
from dpcd.penalties import Penalty, Zero

Floats = NDArray[np.float64]


def _descend(
    hessian, gradient, weights, penalty, columns, n_penalized, tolerance, max_passes
):
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


@dataclass(frozen=True, eq=False)
class Quadratic:
    """½wᵀHw − bᵀw with H positive semi-definite, both released.

    Parameters
    ----------
    hessian, linear
        H and b.
    columns
        Which column of the data each coordinate belongs to, as penalties may differ; None: all of them, in order.
    covariance
        Covariance of the error of b, from privacy noise and from the sampling of records; None if it is not known.
    """

    hessian: Floats
    linear: Floats
    columns: NDArray[np.int64] | None = None
    covariance: Floats | None = None

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
            ψ, none by default, for the first so many columns of the data (all of them by default).
        start
            Where to start from.
        tolerance
            Stop when a pass moves no √H_jj·w_j by more than this part of the largest √H_jj·|b_j/H_jj|.
        max_passes
            Stop after so many passes in any case.
        """
        penalty = Zero() if penalty is None else penalty
        size = len(self.linear)
        weights = np.zeros(size) if start is None else np.array(start, dtype=np.float64)
        diagonal = np.diag(self.hessian)
        roots = np.sqrt(np.maximum(diagonal, 0.0))
        scale = np.max(np.abs(self.linear[roots > 0.0]) / roots[roots > 0.0], initial=0.0)
        kernel: Any = compiled(_descend, type(penalty))
        gradient = self.hessian @ weights - self.linear
        columns = np.arange(size) if self.columns is None else self.columns
        count = int(columns[-1]) + 1 if n_penalized is None else n_penalized
        hessian = np.ascontiguousarray(self.hessian)
        kernel(hessian, gradient, weights, penalty, columns, count, tolerance * scale, max_passes)
        return weights
