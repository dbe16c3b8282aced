"""Objective and optimum without privacy, for experiments and tests only.

Nothing here is charged: do not show its results to anyone who may not see the data.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpcd.compilation import compiled, penalty_value, value
from dpcd.losses import Loss
from dpcd.penalties import Penalty
from dpcd.privacy.kernels import Unclipped, descend


def _total_loss(loss, target, predictor):
    total = 0.0
    for i in range(target.shape[0]):
        total += value(loss, target[i], predictor[i])
    return total


def _total_penalty(penalty, weights):
    total = 0.0
    for j in range(weights.shape[0]):
        total += penalty_value(penalty, weights[j], j)
    return total


def objective(
    X: ArrayLike, y: ArrayLike, loss: Loss, penalty: Penalty, coef: ArrayLike, intercept: float = 0.0
) -> float:
    """Mean loss plus penalty of a linear model; labels are ±1 for classification losses."""
    X, y, coef = (np.asarray(array, dtype=float) for array in (X, y, coef))
    mean_loss = compiled(_total_loss, type(loss))(loss, y, X @ coef + intercept) / len(y)
    return float(mean_loss + compiled(_total_penalty, type(penalty))(penalty, coef))


def optimum(
    X: ArrayLike,
    y: ArrayLike,
    loss: Loss,
    penalty: Penalty,
    fit_intercept: bool = False,
    tol: float = 1e-12,
    max_passes: int = 100_000,
) -> tuple[NDArray[np.float64], float]:
    """Coefficients and intercept of the minimum, by coordinate descent until no pass moves the predictor.

    Raises
    ------
    RuntimeError
        If `max_passes` are not enough.
    """
    features = np.asfortranarray(X, dtype=float)
    n_records, n_features = features.shape
    if fit_intercept:
        features = np.column_stack([features, np.ones(n_records)]).copy(order="F")
    y = np.asarray(y, dtype=float)
    moments = np.einsum("ij,ij->j", features, features) / n_records
    active = np.flatnonzero(moments)
    steps = np.divide(1.0, loss.curvature * moments, out=np.zeros_like(moments), where=moments > 0)
    weights = np.zeros(features.shape[1])
    scale = np.sqrt(moments)
    kernel = compiled(descend, type(loss), type(penalty), Unclipped)
    ones, passes = np.ones_like(moments), 20
    order = np.tile(active, passes)
    for _ in range(0, max_passes, passes):
        before = weights.copy()
        arguments: tuple[Any, ...] = (features, y, loss, penalty, Unclipped(), order, n_features)
        kernel(*arguments, ones, ones / n_records, steps, np.zeros(len(order)), weights)
        moved = np.max(np.abs(weights - before) * scale, initial=0.0)
        if moved <= tol * max(1.0, np.max(np.abs(weights) * scale, initial=0.0)):
            return weights[:n_features], float(weights[n_features]) if fit_intercept else 0.0
    raise RuntimeError(f"coordinate descent has not converged in {max_passes} passes: raise max_passes or tol")
