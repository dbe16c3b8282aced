"""Objective and optimum without privacy, for experiments and tests only.

Nothing here is charged: do not show its results to anyone who may not see the data.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpcd.compilation import compiled, derivative, penalty_value, value
from dpcd.losses import Loss, Squared
from dpcd.penalties import Penalty
from dpcd.privacy.kernels import descend
from dpcd.privacy.lattice import Unclipped


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
    features = np.asarray(X, dtype=float)
    n_records, n_features = features.shape
    if fit_intercept:
        features = np.column_stack([features, np.ones(n_records)])
    weights = _descended(features, np.asarray(y, dtype=float), loss, penalty, n_features, tol, max_passes)
    return weights[:n_features], float(weights[n_features]) if fit_intercept else 0.0


def _descended(
    features: NDArray[np.float64],
    y: NDArray[np.float64],
    loss: Loss,
    penalty: Penalty,
    n_penalized: int,
    tol: float,
    max_passes: int,
) -> NDArray[np.float64]:
    """Weights of the minimum; the penalty is for the first `n_penalized` of them."""
    features, n_records = np.asfortranarray(features), len(features)
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
        arguments: tuple[Any, ...] = (features, y, loss, penalty, Unclipped(), order, n_penalized)
        kernel(*arguments, ones, ones / n_records, steps, np.zeros(len(order)), weights)
        moved = np.max(np.abs(weights - before) * scale, initial=0.0)
        if moved <= tol * max(1.0, np.max(np.abs(weights) * scale, initial=0.0)):
            return weights
    raise RuntimeError(f"coordinate descent has not converged in {max_passes} passes: raise max_passes or tol")


def newton_optimum(
    X: ArrayLike,
    y: ArrayLike,
    loss: Loss,
    penalty: Penalty,
    fit_intercept: bool = False,
    tol: float = 1e-9,
    max_steps: int = 50,
) -> tuple[NDArray[np.float64], float]:
    """Coefficients and intercept of the minimum, by proximal Newton steps: fast for many more rows than columns.

    Each step minimises a quadratic model of the loss plus the penalty. The model is a least-squares problem, and a QR
    decomposition shrinks it to as many rows as there are columns: coordinate descent is cheap there, however slow.

    Raises
    ------
    RuntimeError
        If the objective still falls by more than `tol` of its value in the last of `max_steps`.
    """
    X, y = np.asarray(X, dtype=float), np.asarray(y, dtype=float)
    slopes, n_features = compiled(_slopes, type(loss)), X.shape[1]
    # Around their means columns are not aligned with an intercept, which absorbs the shift.
    center = X.mean(axis=0)
    columns = np.column_stack([X - center, np.ones(len(X))]) if fit_intercept else X

    def model(weights: NDArray[np.float64]) -> tuple[NDArray[np.float64], float]:
        coef = weights[:n_features]
        return coef, float(weights[n_features] - center @ coef) if fit_intercept else 0.0

    weights = np.zeros(columns.shape[1])
    best = objective(X, y, loss, penalty, *model(weights))
    for _ in range(max_steps):
        predictor = columns @ weights
        gradient = slopes(loss, y, predictor)
        # The curvature decides how fast this converges, not where to: a difference quotient will do. The floor keeps
        # records on which the loss is flat from vanishing.
        quotient = (slopes(loss, y, predictor + 1e-4) - slopes(loss, y, predictor - 1e-4)) / 2e-4
        curvature = np.maximum(quotient, 1e-4 * loss.curvature)
        root = np.sqrt(curvature)
        triangle, rest = _triangle(root[:, None] * columns, root * predictor - gradient / root)
        target = _descended(triangle, rest, Squared(), penalty, n_features, tol=1e-10, max_passes=1_000_000)
        before, share = best, 1.0
        while share > 1e-6:
            candidate = weights + share * (target - weights)
            with np.errstate(over="ignore"):
                value = objective(X, y, loss, penalty, *model(candidate))
            if value <= best:
                weights, best = candidate, value
                break
            share /= 2.0
        if before - best <= tol * abs(best):
            return model(weights)
    raise RuntimeError(f"Newton's method has not converged in {max_steps} steps: raise max_steps or tol")


def _slopes(loss, target, predictor):
    result = np.empty(target.shape[0])
    for i in range(target.shape[0]):
        result[i] = derivative(loss, target[i], predictor[i])
    return result


def _triangle(rows: NDArray[np.float64], target: NDArray[np.float64]) -> tuple[NDArray[np.float64], ...]:
    """A least-squares problem of p rows with the same mean square, up to a constant, as one of n ≥ p rows."""
    n_records, n_features = rows.shape
    if n_records <= n_features:
        return rows, target
    joint = np.asarray(np.linalg.qr(np.column_stack([rows, target]), mode="r"))
    joint *= np.sqrt(n_features / n_records)
    return joint[:n_features, :-1], joint[:n_features, -1]
