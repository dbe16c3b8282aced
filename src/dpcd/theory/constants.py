"""Norms, constants of regularity, and the noise scales of Theorem 1."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpcd.losses import Loss
from dpcd.privacy.accounting import Accounting, noise_multiplier

Floats = NDArray[np.float64]

# Comparisons of constants that a user computed in floating point.
SLACK = 1.0 + 1e-9


def positive(name: str, value: float) -> float:
    """The value, if it is positive and finite."""
    if not 0.0 < value < math.inf:
        raise ValueError(f"{name} must be positive and finite, got {value!r}")
    return float(value)


def not_negative(name: str, value: float) -> float:
    """The value, if it is finite and not negative."""
    if not 0.0 <= value < math.inf:
        raise ValueError(f"{name} must be finite and not negative, got {value!r}")
    return float(value)


def whole(name: str, value: int) -> int:
    """The value, if it is a whole number of at least 1."""
    if value < 1 or value != int(value):
        raise ValueError(f"{name} must be a whole number of at least 1, got {value!r}")
    return int(value)


def vector(name: str, values: ArrayLike, size: int | None = None) -> Floats:
    """Positive and finite numbers, one for each coordinate."""
    vector = np.atleast_1d(np.asarray(values, dtype=np.float64))
    if vector.ndim != 1 or not vector.size or not np.all((vector > 0.0) & np.isfinite(vector)):
        raise ValueError(
            f"{name} must hold one positive, finite number for each coordinate; drop coordinates where it is 0, they "
            f"do not move. Got {values!r}"
        )
    if size is not None and vector.size != size:
        raise ValueError(f"{name} has {vector.size} entries where the other constants have {size}: give one for each")
    return vector


def m_norm(w: ArrayLike, smoothness: ArrayLike) -> float:
    """‖w‖_M = (Σ M_j w_j²)^½."""
    M = vector("smoothness", smoothness, np.size(w))
    return float(np.sqrt(np.sum(M * np.asarray(w, dtype=float) ** 2)))


def m_inverse_norm(w: ArrayLike, smoothness: ArrayLike) -> float:
    """‖w‖_{M⁻¹} = (Σ w_j² / M_j)^½, the dual norm of ‖·‖_M."""
    M = vector("smoothness", smoothness, np.size(w))
    return float(np.sqrt(np.sum(np.asarray(w, dtype=float) ** 2 / M)))


def sensitivity_norm(lipschitz: ArrayLike, smoothness: ArrayLike) -> float:
    """2‖L‖_{M⁻¹}: the bound on Δ_{M⁻¹}(∇ℓ) = (Σ Δ(∂_j ℓ)² / M_j)^½ that the component-Lipschitz constants give."""
    return 2.0 * m_inverse_norm(vector("lipschitz", lipschitz), smoothness)


def slope_bound(loss: Loss, target_bound: float | None = None, predictor_bound: float | None = None) -> float:
    """Bound on |∂ℓ/∂z|: the loss's own, or the largest over |y| ≤ `target_bound`, |z| ≤ `predictor_bound`.

    Notes
    -----
    The derivative of a convex loss increases with z. It is assumed monotone in y too, as z − y is, so that the corners
    decide.
    """
    if math.isfinite(loss.lipschitz):
        return float(loss.lipschitz)
    if target_bound is None or predictor_bound is None:
        raise ValueError(
            f"the derivative of {type(loss).__name__} is unbounded, so it has Lipschitz constants on a bounded set "
            f"only: give target_bound and weight_bound (a box for the weights), or take a loss such as Huber"
        )
    y, z = not_negative("target_bound", target_bound), not_negative("predictor_bound", predictor_bound)
    return max(abs(float(loss.derivative(a, b))) for a in (-y, y) for b in (-z, z))


@dataclass(frozen=True, eq=False)
class Regularity:
    """Constants of the smooth part.

    Attributes
    ----------
    lipschitz, smoothness
        L_j of each record's loss, M_j of their mean.
    global_lipschitz, global_smoothness
        Λ and β, the constants with respect to the l2 norm.
    """

    lipschitz: Floats
    smoothness: Floats
    global_lipschitz: float
    global_smoothness: float


def regularity(
    loss: Loss,
    feature_bounds: ArrayLike,
    *,
    second_moments: ArrayLike | None = None,
    row_bound: float | None = None,
    target_bound: float | None = None,
    weight_bound: ArrayLike | None = None,
) -> Regularity:
    """L, M, Λ and β of a linear model whose features are bounded.

    Parameters
    ----------
    loss
        ℓ(y, z), with z = x·w.
    feature_bounds
        b_j ≥ |x_j| for every possible record (1 for an intercept's column).
    second_moments
        Means of x_j² where they are known; None takes b_j².
    row_bound
        Bound on ‖x‖₂ for every possible record; None takes ‖b‖₂.
    target_bound, weight_bound
        Bounds on |y| and |w_j|, needed where the loss's derivative is unbounded. The weights' bound must be enforced
        by the penalty, as `Box` does: the constants need to hold where iterates can be, and only there.

    Notes
    -----
    M_j = curvature · mean(x_j²) is smoothness along the axis j. The paper *defines* component smoothness by
    f(w) ≤ f(v) + ⟨∇f(v), w − v⟩ + ½‖w − v‖_M² for all v and w, which correlated columns violate for these M_j; but its
    proofs move one coordinate at a time and need the axes only. The exception is its R_M = ‖w⁰ − w*‖_M for ψ = 0,
    see `initial_radius`.
    """
    bounds = vector("feature_bounds", feature_bounds)
    row = float(np.linalg.norm(bounds))
    if row_bound is not None:
        row = min(row, positive("row_bound", row_bound))
    bounds = np.minimum(bounds, row)
    moments = bounds**2 if second_moments is None else vector("second_moments", second_moments, bounds.size)
    if np.any(moments > bounds**2 * SLACK):
        raise ValueError("second_moments exceed the square of feature_bounds: one of the two is wrong")
    predictor = None
    if weight_bound is not None:
        box = np.full(bounds.size, weight_bound) if np.ndim(weight_bound) == 0 else weight_bound
        box = vector("weight_bound", box, bounds.size)
        predictor = min(float(bounds @ box), row * float(np.linalg.norm(box)))
    slope = slope_bound(loss, target_bound, predictor)
    curvature = positive("the loss's curvature", loss.curvature)
    # The largest eigenvalue of the second moments is at most their trace, and at most the largest squared row.
    return Regularity(slope * bounds, curvature * moments, slope * row, curvature * min(row**2, float(moments.sum())))


def relative_spectrum(hessian: ArrayLike, smoothness: ArrayLike) -> tuple[float, float]:
    """Smallest and largest eigenvalue of M^{−½} H M^{−½}.

    For a quadratic objective the smallest is μ_M, its strong convexity with respect to ‖·‖_M (M = 1 gives μ_I). The
    largest is at most 1 exactly when M bounds the curvature in every direction, as the paper's definition of component
    smoothness asks; with M the diagonal of H it lies between 1 and p.
    """
    H = np.asarray(hessian, dtype=np.float64)
    root = np.sqrt(vector("smoothness", smoothness, len(H)))
    eigenvalues = np.linalg.eigvalsh(H / np.outer(root, root))
    return float(eigenvalues[0]), float(eigenvalues[-1])


def noise_scales(
    lipschitz: ArrayLike,
    n_records: int,
    n_releases: int,
    epsilon: float,
    delta: float,
    accounting: Accounting = "closed-form",
) -> Floats:
    """Theorem 1: standard deviations σ_j of the noise that makes `n_releases` = T·K updates (ε, δ)-private.

    The closed form is σ_j² = 12 L_j² TK log(1/δ) / (n²ε²), for ε ≤ 1 and δ < 1/3; other accountings have no such limit
    and less noise.

    Notes
    -----
    The sensitivity of ∂_j f is 2L_j/n. The appendix's lemma states Δ(∂_j ℓ) ≤ L_j, its proof and the theorem use 2L_j,
    and 2L_j is attained by two records that pull in opposite directions. The restated theorem asks for ε < 1; its
    proof covers ε = 1.
    """
    L = vector("lipschitz", lipschitz)
    return 2.0 * L / whole("n_records", n_records) * noise_multiplier(epsilon, delta, n_releases, accounting)
