"""Theorem 2's upper bounds, and Remark 1 on inexact coordinate descent."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from dpcd.privacy.accounting import Accounting
from dpcd.theory.constants import Floats, m_inverse_norm, noise_scales, not_negative, positive, vector, whole


def initial_radius(distance: float, gap: float) -> float:
    """R_M = max(‖w⁰ − w*‖_M, (F(w⁰) − F(w*))^½).

    Notes
    -----
    For ψ = 0 the paper drops the gap, since f(w⁰) − f(w*) ≤ ½‖w⁰ − w*‖_M² for an f that is M-smooth in every direction
    at once. With M_j smoothness along the axes alone, as linear models have it, that inequality can fail by a factor p
    (see `relative_spectrum`), so the gap stays here.
    """
    return max(not_negative("distance", distance), math.sqrt(not_negative("gap", gap)))


def convex_bound(n_updates: int, distance: float, gap: float, scales: ArrayLike, smoothness: ArrayLike) -> float:
    """Bound on E F(w¹) − F(w*), w¹ the average of K noisy updates from w⁰: p(‖w⁰−w*‖_M² + 2 gap)/(2K) + ‖σ‖²_{M⁻¹}.

    Parameters
    ----------
    n_updates
        K, with coordinates drawn independently and uniformly.
    distance, gap
        ‖w⁰ − w*‖_M and F(w⁰) − F(w*).
    scales
        σ_j: update j is given ∂_j f plus centered noise of this standard deviation. 0 is no noise.
    smoothness
        M_j; steps are 1/M_j.

    Notes
    -----
    The appendix's convergence lemma, whose proof holds as it stands up to signs. The sketch in the main text drops the
    factors ½ and once writes ‖σ‖_M for ‖σ‖_{M⁻¹}, which is the one that the proof gives.
    """
    M = vector("smoothness", smoothness)
    start = not_negative("distance", distance) ** 2 + 2.0 * not_negative("gap", gap)
    return M.size * start / (2.0 * whole("n_updates", n_updates)) + m_inverse_norm(scales, M) ** 2


def strongly_convex_bound(
    n_updates: int, n_loops: int, gap: float, strong_convexity: float, scales: ArrayLike, smoothness: ArrayLike
) -> float:
    """Bound on E F(wᵀ) − F(w*) after T loops of K updates: qᵀ gap + (1 − qᵀ)/(1 − q) ‖σ‖²_{M⁻¹}, q = p(1 + 1/μ_M)/K.

    Parameters
    ----------
    n_updates, n_loops
        K and T. Each loop starts from the average of the previous one's iterates.
    gap
        F(w⁰) − F(w*).
    strong_convexity
        μ_M of F with respect to ‖·‖_M.
    scales, smoothness
        As for `convex_bound`.

    Notes
    -----
    Strong convexity gives ‖w − w*‖_M² ≤ (2/μ_M)(F(w) − F(w*)); the proof prints this the other way round but uses it
    rightly. Its ‖σ‖_M is the lemma's ‖σ‖_{M⁻¹}.
    """
    M = vector("smoothness", smoothness)
    T = whole("n_loops", n_loops)
    least = M.size * (1.0 + 1.0 / positive("strong_convexity", strong_convexity))
    q = least / whole("n_updates", n_updates)
    if q >= 1.0:
        raise ValueError(
            f"a loop of {n_updates} updates need not contract: K must exceed p(1 + 1/strong_convexity) = {least:g}, "
            f"the paper takes twice that"
        )
    return q**T * not_negative("gap", gap) + (1.0 - q**T) / (1.0 - q) * m_inverse_norm(scales, M) ** 2


@dataclass(frozen=True, eq=False)
class UtilityGuarantee:
    """How to run DP-CD, and what Theorem 2 promises of it.

    Attributes
    ----------
    n_updates, n_loops
        K and T, whole numbers.
    scales
        σ_j for these K and T.
    optimization_error, privacy_error
        The two parts of the bound: what is left of the start, and what the noise adds.
    """

    n_updates: int
    n_loops: int
    scales: Floats
    optimization_error: float
    privacy_error: float

    @property
    def bound(self) -> float:
        """E F(w) − F(w*) is at most this."""
        return self.optimization_error + self.privacy_error


def convex_guarantee(
    lipschitz: ArrayLike,
    smoothness: ArrayLike,
    radius: float,
    n_records: int,
    epsilon: float,
    delta: float,
    accounting: Accounting = "closed-form",
) -> UtilityGuarantee:
    """Theorem 2, convex case: T = 1 and the K that minimizes 3pR_M²/(2K) + ‖σ(K)‖²_{M⁻¹}.

    Parameters
    ----------
    lipschitz, smoothness
        L_j and M_j.
    radius
        R_M, see `initial_radius`.
    n_records, epsilon, delta, accounting
        As for `noise_scales`.

    Notes
    -----
    With the closed form, K = R_M √p nε / (‖L‖_{M⁻¹} √(8 log(1/δ))) makes both terms equal and the bound
    6√2 √(p log(1/δ)) ‖L‖_{M⁻¹} R_M / (nε). The appendix writes the first term with 2√8 for (3/2)√8; its sum, 8.48, is
    that of the right one. The stated constant 9 is exactly what rounding K ≥ 1 to a whole number can cost.
    """
    R = positive("radius", radius)
    L, M = vector("lipschitz", lipschitz), vector("smoothness", smoothness, np.size(lipschitz))
    one = m_inverse_norm(noise_scales(L, n_records, 1, epsilon, delta, accounting), M) ** 2
    start = 1.5 * M.size * R**2
    # start/K + one·K is convex in K: the best whole number is next to its minimum. No noise: no finite K is best.
    if one == 0.0:
        raise ValueError("epsilon is infinite: without noise more updates are always better; use convex_bound")
    ideal = math.sqrt(start / one)
    K = min((max(1, math.floor(ideal)), math.ceil(ideal)), key=lambda k: start / k + one * k)
    return UtilityGuarantee(K, 1, noise_scales(L, n_records, K, epsilon, delta, accounting), start / K, one * K)


def strongly_convex_guarantee(
    lipschitz: ArrayLike,
    smoothness: ArrayLike,
    gap: float,
    strong_convexity: float,
    n_records: int,
    epsilon: float,
    delta: float,
    accounting: Accounting = "closed-form",
) -> UtilityGuarantee:
    """Theorem 2, strongly convex case: K = 2p(1 + 1/μ_M), and T where both errors meet.

    Parameters
    ----------
    lipschitz, smoothness
        L_j and M_j.
    gap
        F(w⁰) − F(w*).
    strong_convexity
        μ_M of F with respect to ‖·‖_M.
    n_records, epsilon, delta, accounting
        As for `noise_scales`.

    Notes
    -----
    With the closed form the bound is gap/2ᵀ + c·T with c = 48 p(1 + 1/μ_M) ‖L‖²_{M⁻¹} log(1/δ)/(n²ε²). The appendix
    has 24: it forgets the 2 that its own geometric series contributes. The paper gives three values of T; the one that
    its proof uses, log₂(gap/c), balances the terms (with 48 for 24), the one in the statement has 32 in the place of
    1/24. T and K are rounded up, T to at least 1.
    """
    positive("gap", gap)
    L, M = vector("lipschitz", lipschitz), vector("smoothness", smoothness, np.size(lipschitz))
    K = math.ceil(2.0 * M.size * (1.0 + 1.0 / positive("strong_convexity", strong_convexity)))
    loop = m_inverse_norm(noise_scales(L, n_records, K, epsilon, delta, accounting), M) ** 2
    if loop == 0.0:
        raise ValueError("epsilon is infinite: without noise more loops are better; use strongly_convex_bound")
    T = max(1, math.ceil(math.log2(gap / (2.0 * loop))))
    scales = noise_scales(L, n_records, K * T, epsilon, delta, accounting)
    noiseless = strongly_convex_bound(K, T, gap, strong_convexity, np.zeros_like(L), M)
    noise = strongly_convex_bound(K, T, 0.0, strong_convexity, scales, M)
    return UtilityGuarantee(K, T, scales, noiseless, noise)


@dataclass(frozen=True)
class InexactComparison:
    """Updates that reach an expected precision ξ, by the paper's analysis and by Tappenden et al. (2016).

    Attributes
    ----------
    updates, tappenden_updates
        Whole numbers; infinite where an analysis does not promise ξ at all.
    floor, tappenden_floor
        The precisions that each can approach.
    """

    updates: float
    tappenden_updates: float
    floor: float
    tappenden_floor: float

    @property
    def gain(self) -> float:
        """Ratio of the floors: below 1 where the paper's analysis promises better precision."""
        return self.floor / self.tappenden_floor


def _iterations(count: float) -> float:
    return float(max(0, math.ceil(count)))


def inexact_convex(precision: float, n_features: int, radius: float, error: float) -> InexactComparison:
    """Remark 1, convex case, for updates with expected additive error β = ‖σ‖²_{M⁻¹}/p.

    Parameters
    ----------
    precision
        ξ, the expected F(w) − F(w*) that is asked for.
    n_features
        p.
    radius
        R_M. Tappenden et al. measure it over the whole level set of w⁰, so that using one number for both is kind to
        them.
    error
        β.

    Notes
    -----
    The convergence lemma gives (3/2)pR_M²/(ξ − pβ) updates; the remark writes 2 for 3/2, which is true and looser. The
    other count, 2pR_M²/(ξ − √(2pR_M²β)), is as the paper quotes it. The gain is √(pβ/2R_M²), as the paper says.
    """
    p, R = whole("n_features", n_features), positive("radius", radius)
    floor, other = p * positive("error", error), math.sqrt(2.0 * p * R**2 * error)
    return InexactComparison(
        _iterations(1.5 * p * R**2 / (precision - floor)) if precision > floor else math.inf,
        _iterations(2.0 * p * R**2 / (precision - other)) if precision > other else math.inf,
        floor,
        other,
    )


def inexact_strongly_convex(
    precision: float, n_features: int, strong_convexity: float, gap: float, error: float
) -> InexactComparison:
    """Remark 1, strongly convex case, for updates with expected additive error β = ‖σ‖²_{M⁻¹}/p.

    Parameters
    ----------
    precision, n_features, error
        As for `inexact_convex`.
    strong_convexity
        μ_M.
    gap
        F(w⁰) − F(w*).

    Notes
    -----
    T loops of K = 2p(1 + 1/μ_M) updates leave gap/2ᵀ + 2pβ, so the floor is 2pβ as in the appendix (the remark has pβ,
    approached by longer loops only), the logarithm is to base 2, and K ≥ 4/μ_M in the appendix lacks a factor p.
    Against the floor pβ/μ_M of Tappenden et al. the gain is 2μ_M, not μ_M/2: it is one for μ_M < ½ only, and each
    halving of the error takes up to 4/log 2 times as many updates.
    """
    p, mu = whole("n_features", n_features), positive("strong_convexity", strong_convexity)
    positive("gap", gap)
    floor = 2.0 * p * positive("error", error)
    other = p * error / mu
    updates = tappenden = math.inf
    if precision > floor:
        loops = _iterations(math.log2(gap / (precision - floor)))
        updates = loops * math.ceil(2.0 * p * (1.0 + 1.0 / mu))
    if precision > other:
        tappenden = _iterations(p / mu * math.log((gap - other) / (precision - other))) if gap > precision else 0.0
    return InexactComparison(updates, tappenden, floor, other)
