"""Output and objective perturbation: find the minimum once, and hide it (Chaudhuri et al. 2011; Kifer et al. 2012)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from dpcd.losses import Loss
from dpcd.penalties import L2, Penalty, Zero, bare, strengths
from dpcd.privacy import Curator, PrivacyBudget
from dpcd.privacy.accounting import ORDERS
from dpcd.privacy.rivals.minima import (
    MinimumOfNoisyObjective,
    NoisyMinimum,
    check_convex,
    determinant,
    tilt_divergence,
)
from dpcd.solvers.problem import ChargedAsGaussian, Floats, Problem, Solution, rehearse

# Slope beyond which a record's pull no longer grows, in units of the typical slope, for losses that have no limit.
_DEFAULT_CLIP = 2.5
# Parts of the divergence that objective perturbation spends on the determinant and on its output; the rest is noise.
# Excess ~ noise·(1 + a/total) + bias ∝ 1/a² is least near a quarter, whatever n, p and the budget, and is flat there.
_DETERMINANT_SHARE = 0.2
_OUTPUT_SHARE = 0.01
# Longest row, in units of √p·(nμ/p)^⅕: the more budget there is for a column, the more its bias weighs beside noise.
_OUTPUT_ROWS, _OBJECTIVE_ROWS = 0.25, 0.4


@dataclass(frozen=True)
class OutputPerturbation(ChargedAsGaussian):
    """The minimum of a strongly convex objective, plus Gaussian noise.

    Columns are divided by their root mean squares first. Noise is inversely proportional to the curvature of the
    penalty, so a penalty is added where the problem's own is weak; more noise or more bias, that is the choice.

    Parameters
    ----------
    strength
        ½ strength ‖u‖² is added to the objective, u_j being the weight of column j divided by its root mean square (the
        intercept's too). None: from n, p, the budget and the loss, less what an l2 penalty has already.
    row_bound
        Rows of divided columns that are longer than this times √p are scaled down. None: 1, or more where the budget is
        large for so many columns. `math.inf` switches that off, which is possible with epsilon = inf only.
    clip
        Slopes |∂ℓ/∂z| beyond this are clamped. None: the largest that the loss has or, for the squared loss, 2.5 times
        the typical one. `math.inf` as above.

    Notes
    -----
    Privacy. Everything goes through `dpcd.privacy.rivals.minima.NoisyMinimum`, which needs to know that the loss is
    convex and therefore takes the library's own losses only. Penalties are none or l2. At epsilon = inf nothing is
    added and, unless they are declared, rows and slopes are not bounded: what comes out is the minimum.
    """

    strength: float | None = None
    row_bound: float | None = None
    clip: float | None = None

    def __post_init__(self) -> None:
        _check_fields(self)

    @property
    def needs_slope(self) -> bool:
        """A clip that is not declared is set from the slope."""
        return self.clip is None

    def check(self, loss: Loss, penalty: Penalty, n_columns: int, intercept: bool, private: bool) -> None:
        """Raise unless the loss is one of the library's, the penalty none or l2, and bounds finite."""
        _check_problem(self, loss, penalty, private)
        rehearse(NoisyMinimum(**_REHEARSAL, loss=loss, noise_multiplier=0.0))

    def solve(self, curator: Curator, problem: Problem, parts: int, choices: np.random.Generator) -> Solution:
        """Spend one of `parts` equal parts of what is left on one release."""
        mu_squared = curator.gaussian_room / parts
        fields = _fields(self, curator, problem, mu_squared, _OUTPUT_ROWS)
        if fields is None or mu_squared <= 0.0:
            return _zero_model(curator)
        if math.isinf(mu_squared):
            strength = self.strength or 0.0
            return _solution(curator, NoisyMinimum(**fields, strength=strength, noise_multiplier=0.0))
        noise_multiplier = (1.0 + 1e-9) / math.sqrt(mu_squared)
        needed = self._needed(problem.loss.curvature, fields, noise_multiplier)
        if self.strength is None and needed > 2.0 / 3.0 * problem.loss.curvature:
            return _zero_model(curator)
        strength = max(0.0, needed - _least_ridge(fields)) if self.strength is None else self.strength
        return _solution(curator, NoisyMinimum(**fields, strength=strength, noise_multiplier=noise_multiplier))

    @staticmethod
    def _needed(curvature: float, fields: dict[str, Any], noise_multiplier: float) -> float:
        """λ at which bias and noise are least together.

        Bias is ½λ‖u‖², and noise of standard deviation 2zLR/(nλ) in p coordinates costs ½·curvature·p times its square.
        A typical minimum has ‖u‖ = typical slope/curvature, which is L/2.5 by the curvature. Beyond ⅔ of the curvature
        the sum of the two is more than the zero model loses.
        """
        p = np.count_nonzero(fields["scales"])
        spread = noise_multiplier * fields["row_norm"] / fields["n_records"]
        return float(2.0 * curvature * (_DEFAULT_CLIP**2 * p * spread**2) ** (1.0 / 3.0))


@dataclass(frozen=True)
class ObjectivePerturbation:
    """The minimum of an objective with a random linear term.

    Noise in the objective hits a flat direction hard and a curved one little, just as sampling does, so it needs a far
    weaker penalty than noise in the minimum. What is added to the objective is ½ strength ‖u‖², where u_j is the weight
    of column j divided by its root mean square.

    Parameters
    ----------
    strength
        Of that addition, which must not be too weak for the budget. None: what makes the change of the density's
        determinant, log(1 + curvature·R²/(n·strength)), a fifth of the budget, less what an l2 penalty has already.
    row_bound, clip
        As in `OutputPerturbation`.

    Notes
    -----
    Privacy. Everything goes through `dpcd.privacy.rivals.minima.MinimumOfNoisyObjective`; the theorem and its proof are
    in that module. The cost is a Rényi curve, so the budget has an order. Losses are the library's own; penalties are
    none or l2. At epsilon = inf it is what `OutputPerturbation` is.
    """

    strength: float | None = None
    row_bound: float | None = None
    clip: float | None = None

    def __post_init__(self) -> None:
        _check_fields(self)

    @property
    def needs_slope(self) -> bool:
        """A clip that is not declared is set from the slope."""
        return self.clip is None

    def renyi_order(
        self, n_records: int, n_columns: int, epsilon: float, delta: float, n_problems: int
    ) -> float | None:
        """The order at which the least noise is needed; it depends on public numbers alone."""
        if math.isinf(epsilon):
            return None
        rooms = np.array([PrivacyBudget(epsilon, delta, order).gaussian_room() for order in ORDERS.tolist()])
        usable = rooms > 0.0
        divergence = (1.0 - _DETERMINANT_SHARE) * rooms[usable] * ORDERS[usable] / (2.0 * n_problems)
        return float(ORDERS[usable][np.argmin(_least_multiplier(ORDERS[usable], divergence))])

    def check(self, loss: Loss, penalty: Penalty, n_columns: int, intercept: bool, private: bool) -> None:
        """Raise unless the loss is one of the library's, the penalty none or l2, and bounds finite."""
        _check_problem(self, loss, penalty, private)
        rehearse(MinimumOfNoisyObjective(**_REHEARSAL, loss=loss, noise_multiplier=0.0, output_multiplier=0.0))

    def solve(self, curator: Curator, problem: Problem, parts: int, choices: np.random.Generator) -> Solution:
        """Spend one of `parts` equal parts of what is left on one release."""
        mu_squared = curator.gaussian_room / parts
        fields = _fields(self, curator, problem, mu_squared, _OBJECTIVE_ROWS)
        if fields is None or mu_squared <= 0.0:
            return _zero_model(curator)
        if math.isinf(mu_squared):
            silent: dict[str, Any] = {
                "strength": self.strength or 0.0,
                "noise_multiplier": 0.0,
                "output_multiplier": 0.0,
            }
            return _solution(curator, MinimumOfNoisyObjective(**fields, **silent))
        order = curator.budget.order
        if order is None:
            raise ValueError(
                "objective perturbation is accounted for at a Rényi order: make the budget "
                "PrivacyBudget(epsilon, delta, solver.renyi_order(...))"
            )
        # A hair less than there is, for the rounding of sums.
        divergence = 0.5 * mu_squared * order * (1.0 - 1e-9)
        n_records, record = curator.n_records, problem.loss.curvature * fields["row_norm"] ** 2
        strength = self.strength
        if strength is None:
            needed = record / math.expm1(_DETERMINANT_SHARE * divergence) / n_records
            # Up, so that rounding cannot make the determinant dearer than planned.
            strength = max(0.0, needed * (1.0 + 1e-7) - _least_ridge(fields))
        convexity = n_records * (strength + _least_ridge(fields))
        for_output = _OUTPUT_SHARE * divergence
        for_noise = divergence - for_output - (determinant(record, convexity) if convexity > 0.0 else math.inf)
        if for_noise <= 0.0:
            raise ValueError(
                f"strength={self.strength} is too weak for this budget, whose divergence of {divergence:.3g} must "
                f"exceed log(1 + {record:.3g}/(n·strength)): make it larger, or leave it out"
            )
        noise_multiplier = float(_least_multiplier(np.array([order]), np.array([for_noise]))[0])
        # Noise of 2·s·L·R in p coordinates costs 2(L R s/n)²·p/curvature, against what the zero model loses: half of
        # the curvature times the square of a typical minimum, (L/2.5)/curvature.
        width = math.sqrt(np.count_nonzero(fields["scales"]))
        if self.strength is None and 2.0 * _DEFAULT_CLIP * fields["row_norm"] * width * noise_multiplier > n_records:
            return _zero_model(curator)
        noisy: dict[str, Any] = {
            "noise_multiplier": noise_multiplier,
            "output_multiplier": math.sqrt(0.5 * order / for_output),
        }
        return _solution(curator, MinimumOfNoisyObjective(**fields, strength=strength, **noisy))


_REHEARSAL: dict[str, Any] = {
    "scales": np.ones(2),
    "ridge": np.zeros(2),
    "strength": 1.0,
    "row_norm": 1.0,
    "clip": 1.0,
    "n_records": 2,
}


def _check_fields(solver: OutputPerturbation | ObjectivePerturbation) -> None:
    if solver.strength is not None and not 0.0 <= solver.strength < math.inf:
        raise ValueError(f"strength must be a finite number of at least 0, or None, got {solver.strength!r}")
    for name in ("row_bound", "clip"):
        value = getattr(solver, name)
        if value is not None and not value > 0.0:
            raise ValueError(f"{name} must be positive, got {value!r}")


def _check_problem(
    solver: OutputPerturbation | ObjectivePerturbation, loss: Loss, penalty: Penalty, private: bool
) -> None:
    check_convex(loss)
    own = bare(penalty)
    if type(own) not in (Zero, L2) or (isinstance(own, L2) and not own.alpha >= 0.0):
        raise ValueError(
            f"{type(solver).__name__} works with an l2 penalty or none, not with {penalty!r}: use penalty='l2', "
            f"DPRidge, or solver=DPCD()"
        )
    if private and math.inf in (solver.row_bound, solver.clip):
        raise ValueError(
            "without a bound on rows and slopes one record could move the minimum anywhere, which no noise can cover: "
            "give a finite row_bound and clip, or epsilon=math.inf for a fit without privacy"
        )


def _fields(
    solver: OutputPerturbation | ObjectivePerturbation,
    curator: Curator,
    problem: Problem,
    mu_squared: float,
    rows: float,
) -> dict[str, Any] | None:
    """What the mechanisms need of the problem; None if no column takes part."""
    scales = np.sqrt(problem.smoothness / problem.loss.curvature)
    n_active = np.count_nonzero(scales)
    if n_active == 0:
        return None
    ridge = np.zeros(len(scales))
    penalized = (np.arange(len(scales)) < problem.n_penalized) & (scales > 0.0)
    strength = strengths(problem.penalty, problem.n_penalized)[penalized[: problem.n_penalized]]
    ridge[penalized] = strength / scales[penalized] ** 2
    clip = solver.clip
    if clip is None:
        clip = problem.loss.lipschitz
        if math.isinf(clip):
            if problem.slope is None:
                raise ValueError("clip=None needs the slope of the loss to be known")
            clip = math.inf if math.isinf(mu_squared) else _DEFAULT_CLIP * problem.slope
    row_bound = solver.row_bound
    if row_bound is None:
        budget = curator.n_records * math.sqrt(mu_squared) / n_active
        row_bound = max(1.0, rows * budget**0.2)
    return {
        "loss": problem.loss,
        "scales": scales,
        "ridge": ridge,
        "row_norm": row_bound * math.sqrt(n_active),
        "clip": clip,
        "n_records": curator.n_records,
        "positive_class": problem.positive_class,
    }


def _least_ridge(fields: dict[str, Any]) -> float:
    return float(fields["ridge"][fields["scales"] > 0.0].min())


def _least_multiplier(orders: Floats, divergence: Floats) -> Floats:
    """The smallest s, rounded up, whose `tilt_divergence` at each order is no more than it may be."""
    low, high = np.full(len(orders), 1e-6), np.full(len(orders), 1e12)
    for _ in range(100):
        middle = np.sqrt(low * high)
        enough = tilt_divergence(orders, middle) <= divergence
        low, high = np.where(enough, low, middle), np.where(enough, middle, high)
    return high


def _zero_model(curator: Curator) -> Solution:
    weights = np.zeros(curator.n_columns)
    return Solution(weights, 0, weights[None, :])


def _solution(curator: Curator, mechanism: NoisyMinimum | MinimumOfNoisyObjective) -> Solution:
    weights = curator.release(mechanism)
    return Solution(weights, 1, weights[None, :])
