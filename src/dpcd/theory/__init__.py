"""The paper's results as functions: noise scales, utility bounds, rates and lower bounds.

Notation of Mangold, Bellet, Salmon & Tommasi (2022): the objective is F = f + ψ, f the mean over n records of a convex
loss ℓ(w; d), ψ separable and convex, w in Rᵖ. Record losses are L-component-Lipschitz (|∂_j ℓ| ≤ L_j), f is
M-component-smooth (∂_j f is M_j-Lipschitz along its own axis), ‖w‖_M² = Σ M_j w_j² and ‖w‖_{M⁻¹}² = Σ w_j²/M_j.

- Constants: `regularity`, `slope_bound`, `relative_spectrum`, `m_norm`, `m_inverse_norm`, `sensitivity_norm`.
- Theorem 1: `noise_scales`.
- Theorem 2: `convex_bound` and `strongly_convex_bound` for any K, T and σ; `convex_guarantee` and
  `strongly_convex_guarantee` with the K and T of the paper.
- Remark 1: `inexact_convex`, `inexact_strongly_convex`.
- Table 1: `compare_rates`, `balanced_example`, `unbalanced_example`.
- Theorem 3: `subset_ratio`, `convex_lower_bound`, `strongly_convex_lower_bound`, and the problems of its proof,
  `convex_instance` and `strongly_convex_instance`.

Statement, proof and appendix of the paper disagree in places. Each function's notes say which reading was taken; the
constants are re-derived, not copied. Nothing here looks at private data, apart from what a caller passes in.
"""

from dpcd.theory.constants import (
    Regularity,
    m_inverse_norm,
    m_norm,
    noise_scales,
    regularity,
    relative_spectrum,
    sensitivity_norm,
    slope_bound,
)
from dpcd.theory.lower_bounds import (
    BoxedL2,
    Linear,
    LowerBoundInstance,
    augmented,
    convex_instance,
    convex_lower_bound,
    fingerprinting_bits,
    hard_records,
    strongly_convex_instance,
    strongly_convex_lower_bound,
    subset_ratio,
)
from dpcd.theory.rates import (
    ProblemConstants,
    RateComparison,
    Table1,
    balanced_example,
    compare_rates,
    unbalanced_example,
)
from dpcd.theory.utility import (
    InexactComparison,
    UtilityGuarantee,
    convex_bound,
    convex_guarantee,
    inexact_convex,
    inexact_strongly_convex,
    initial_radius,
    strongly_convex_bound,
    strongly_convex_guarantee,
)

__all__ = [
    "BoxedL2",
    "InexactComparison",
    "Linear",
    "LowerBoundInstance",
    "ProblemConstants",
    "RateComparison",
    "Regularity",
    "Table1",
    "UtilityGuarantee",
    "augmented",
    "balanced_example",
    "compare_rates",
    "convex_bound",
    "convex_guarantee",
    "convex_instance",
    "convex_lower_bound",
    "fingerprinting_bits",
    "hard_records",
    "inexact_convex",
    "inexact_strongly_convex",
    "initial_radius",
    "m_inverse_norm",
    "m_norm",
    "noise_scales",
    "regularity",
    "relative_spectrum",
    "sensitivity_norm",
    "slope_bound",
    "strongly_convex_bound",
    "strongly_convex_guarantee",
    "strongly_convex_instance",
    "strongly_convex_lower_bound",
    "subset_ratio",
    "unbalanced_example",
]
