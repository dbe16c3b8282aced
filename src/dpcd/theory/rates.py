"""Table 1: DP-CD against DP-SGD and DP-SVRG."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np

from dpcd.privacy.accounting import check_delta, check_epsilon
from dpcd.theory.constants import SLACK, Floats, m_inverse_norm, positive, vector, whole


@dataclass(frozen=True, eq=False)
class ProblemConstants:
    """What Table 1 compares, each constant the smallest (for μ the largest) that holds.

    Parameters
    ----------
    lipschitz, smoothness
        L_j and M_j.
    global_lipschitz
        Λ, between max L_j and ‖L‖₂.
    radius_m, radius_i
        R_M and R_I: distance from the start to the optimum in ‖·‖_M and in ‖·‖₂.
    strong_convexity_m, strong_convexity_i
        μ_M and μ_I of F, or None for both; M_min μ_M ≤ μ_I ≤ M_max μ_M.
    """

    lipschitz: Floats
    smoothness: Floats
    global_lipschitz: float
    radius_m: float
    radius_i: float
    strong_convexity_m: float | None = None
    strong_convexity_i: float | None = None

    def __post_init__(self) -> None:
        L = vector("lipschitz", self.lipschitz)
        M = vector("smoothness", self.smoothness, L.size)
        positive("radius_m", self.radius_m)
        positive("radius_i", self.radius_i)
        largest, together = float(L.max()), float(np.linalg.norm(L))
        if not largest <= self.global_lipschitz * SLACK or not self.global_lipschitz <= together * SLACK:
            raise ValueError(
                f"global_lipschitz = {self.global_lipschitz!r} must lie between max L_j = {largest:g} and "
                f"‖L‖₂ = {together:g}: each of these follows from the other, so one of them is not the smallest"
            )
        if (self.strong_convexity_m is None) != (self.strong_convexity_i is None):
            raise ValueError("give both constants of strong convexity, or neither")
        if self.strong_convexity_m is not None and self.strong_convexity_i is not None:
            mu_m = positive("strong_convexity_m", self.strong_convexity_m)
            mu_i = positive("strong_convexity_i", self.strong_convexity_i)
            if not M.min() * mu_m <= mu_i * SLACK or not mu_i <= M.max() * mu_m * SLACK:
                raise ValueError(
                    f"strong_convexity_i = {mu_i:g} must lie between M_min and M_max times strong_convexity_m, "
                    f"{M.min() * mu_m:g} and {M.max() * mu_m:g}: each follows from the other, so one is not the largest"
                )


@dataclass(frozen=True)
class RateComparison:
    """Two rates up to constants and logarithms: only their ratio says something."""

    cd: float
    sgd: float

    @property
    def ratio(self) -> float:
        """DP-CD's rate over DP-SGD's."""
        return self.cd / self.sgd

    @property
    def favored(self) -> Literal["DP-CD", "DP-SGD", "neither"]:
        """The method whose rate is lower."""
        if math.isclose(self.ratio, 1.0, rel_tol=1e-9):
            return "neither"
        return "DP-CD" if self.ratio < 1.0 else "DP-SGD"


@dataclass(frozen=True)
class Table1:
    """The table's two columns; the second is None where no strong convexity was given."""

    convex: RateComparison
    strongly_convex: RateComparison | None


def compare_rates(constants: ProblemConstants, n_records: int, epsilon: float, delta: float) -> Table1:
    """Table 1: rates of DP-CD and of DP-SGD (or DP-SVRG), and whom the problem's constants favor.

    Convex: √(p log(1/δ))/(nε) times ‖L‖_{M⁻¹} R_M against Λ R_I. Strongly convex: p log(1/δ)/(n²ε²) times
    ‖L‖²_{M⁻¹}/μ_M against Λ²/μ_I.

    Notes
    -----
    Orders of magnitude: constants and logarithms are left out on both sides. The text takes μ_I from single losses
    ℓ(·; d); both analyses need that of F, and it is F's here.
    """
    check_epsilon(epsilon)
    check_delta(delta)
    p = np.size(constants.lipschitz)
    common = math.sqrt(p * math.log(1.0 / delta)) / (whole("n_records", n_records) * epsilon)
    L = m_inverse_norm(constants.lipschitz, constants.smoothness)
    convex = RateComparison(common * L * constants.radius_m, common * constants.global_lipschitz * constants.radius_i)
    if constants.strong_convexity_m is None or constants.strong_convexity_i is None:
        return Table1(convex, None)
    strongly_convex = RateComparison(
        (common * L) ** 2 / constants.strong_convexity_m,
        (common * constants.global_lipschitz) ** 2 / constants.strong_convexity_i,
    )
    return Table1(convex, strongly_convex)


def balanced_example(n_features: int, exclusive: bool = False) -> ProblemConstants:
    """Columns of one scale: L_j = M_j = 1.

    Parameters
    ----------
    n_features
        p.
    exclusive
        Whether a record has at most one feature that is not 0, as with one-hot columns. Then Λ = 1, DP-CD's worst
        case; otherwise some record has all features at their bound and Λ = √p = ‖L‖₂.

    Notes
    -----
    DP-CD's rate is worse by ‖L‖₂/Λ, up to √p, for convex problems and by its square, up to p, for strongly convex ones
    (the text says p for both). The text blames strongly correlated features; it is the other way round, columns that
    are copies of each other reach their bounds together and give ‖L‖₂ = Λ.
    """
    p = whole("n_features", n_features)
    return ProblemConstants(np.ones(p), np.ones(p), 1.0 if exclusive else math.sqrt(p), 1.0, 1.0, 1.0, 1.0)


def unbalanced_example(n_features: int, imbalance: float) -> ProblemConstants:
    """One column dominates: f = ½ Σ M_j (w_j − d_j)², |w_j − d_j| ≤ 1, M = (imbalance, 1, …, 1), w⁰_1 = w*_1.

    As the imbalance M_max/M_min grows, DP-CD's rate over DP-SGD's approaches (M_min/M_max)^½ for convex and
    M_min/M_max for strongly convex problems.

    Notes
    -----
    The main text has Λ for Λ², M_min R_I for √M_min R_I and μ_I M_min for μ_I/M_min; the appendix has them right. Its
    μ_M = μ_I/M_min is the largest that μ_M can be, attained here: in general the gain is smaller.
    """
    p = whole("n_features", n_features)
    if p < 2:
        raise ValueError("one column dominates others only if there are at least 2: raise n_features")
    if not 1.0 <= imbalance < math.inf:
        raise ValueError(f"imbalance is M_max / M_min, a finite number of at least 1, got {imbalance!r}")
    M = np.ones(p)
    M[0] = imbalance
    # |∂_j ℓ| = M_j |w_j − d_j| ≤ M_j, all of them at once at a corner of the box: Λ = ‖L‖₂.
    return ProblemConstants(M, M, float(np.linalg.norm(M)), 1.0, 1.0, 1.0, 1.0)
