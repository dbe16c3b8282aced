"""Forecast of how good a private fit will be, from public numbers alone. Nothing here sees data or spends a budget.

The forecast combines three losses. The first is noise, which follows a power law in p and nμ: a solver that clips whole
records leaves noise in each of p directions, with a variance that falls with (nμ)² and grows with p. The second are
columns that the noise of this budget hides. The third are values beyond the learnt ranges. The constants are fitted to
errors measured on half of the synthetic tables in `dpcd.experiments.families`, and checked on all of these tables by
``benchmarks/forecasts.py``.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from scipy.special import ndtr

from dpcd.losses import ABOUT_LABELS, Logistic, Loss, Squared
from dpcd.penalties import L1, L2, Penalty, Zero
from dpcd.policy import POLICY
from dpcd.privacy import PrivacyBudget
from dpcd.privacy.accounting import LARGEST_EPSILON, SMALLEST_EPSILON
from dpcd.ranges.looks import TARGET_ALONE, hides_center, noise_in_counts
from dpcd.ranges.scales import only_center, usual_shares
from dpcd.solvers.allocation import counting_share
from dpcd.solvers.auto import Choice, choose
from dpcd.solvers.block import DPBlockCD, full_steps
from dpcd.solvers.clipping import clip_multiple
from dpcd.solvers.scaled import LEAST_RECORDS
from dpcd.solvers.screening import Screened
from dpcd.usefulness import MOST, large_delta, most_stay_out, no_update, too_many_classes

#: About four of five forecasts are right within this factor.
FACTOR = 3.0
#: Resolution of forecasts, as a part of the signal. Smaller losses depend on the table, and not on n, p and epsilon.
RESOLUTION = 0.01

# Part lost below which a fit is called good, usable, or at least better than the model without features.
_GOOD, _USABLE, _HOPELESS = 0.05, 0.5, 0.9
# Largest part of the loss that features are assumed to explain.
_NEARLY_ALL = 0.95
# Root of the sum of squares of the parts of a numeric column in each cell of a histogram, and how many deviations of
# the noise in one look it takes for a column to be seen: columns in doubt are looked at again.
_HEIGHT, _STANDS_OUT = 0.45, 2.0
# What a table of flags is taken to be: half flags that are 1 for so many of the records, half numbers.
_PART_OF_FLAGS, _PREVALENCES = 0.5, np.geomspace(0.01, 0.3, 25)
_KINDS = (None, "regular", "long-tailed", "flags")
_MOST_RECORDS = 10**13


class Calibration(NamedTuple):
    """Constants of the forecast for one kind of loss.

    Parameters
    ----------
    factor, columns, records
        Noise over signal is factor · p^columns / (nμ)^records, for the usual `signal`.
    long_tails, unknown_tails
        Part of the signal in values beyond the learnt ranges: for columns with long tails, and for columns of unknown
        kind.
    signal
        Usual part of the loss of a model without features that the columns explain.
    """

    factor: float
    columns: float
    records: float
    long_tails: float
    unknown_tails: float
    signal: float

    def lost(self, columns: Any, records: Any, signal: Any, seen: Any, clipped: Any, rarity: float = 1.0) -> Any:
        """Expected part lost, for numbers or arrays.

        Parameters
        ----------
        columns, records
            Number of columns that take part, and the solver's nμ.
        signal
            Part of the loss that the columns explain.
        seen
            Probability that a column is seen.
        clipped
            Part of the signal in values beyond the ranges.
        rarity
            Factor on the noise, 1 for two classes of equal size.
        """
        usual = (1.0 - self.signal) / self.signal
        noise = rarity * self.factor * columns**self.columns / records**self.records * (1.0 - signal) / signal / usual
        return 1.0 - seen * (1.0 - clipped) / (1.0 + noise)


REGRESSION = Calibration(factor=32.0, columns=1.79, records=2.03, long_tails=0.14, unknown_tails=0.025, signal=0.67)
CLASSIFICATION = Calibration(factor=22.0, columns=1.19, records=1.45, long_tails=0.03, unknown_tails=0.01, signal=0.4)


@dataclass(frozen=True)
class Plan:
    """How a fit with ``solver="auto"`` would spend its budget, and how good the model is likely to be.

    `plan` makes it and explains its fields. It prints as a report.
    """

    n: int
    p: int
    epsilon: float
    delta: float | None
    loss: Loss
    penalty: Penalty
    fit_intercept: bool
    bounds_declared: bool
    smoothness_declared: bool
    n_classes: int
    kind: str | None
    signal: float

    @cached_property
    def _budget(self) -> PrivacyBudget:
        return PrivacyBudget(self.epsilon, 1.0 / self.n**2 if self.delta is None else self.delta)

    @cached_property
    def _room(self) -> float:
        return self._budget.gaussian_room()

    @property
    def _classifies(self) -> bool:
        return isinstance(self.loss, ABOUT_LABELS)

    @property
    def calibration(self) -> Calibration:
        """Constants of the forecast."""
        return CLASSIFICATION if self._classifies else REGRESSION

    @property
    def mu(self) -> float:
        """The budget as one number: 1/μ is the noise multiplier of a single release that spends all of it."""
        return math.sqrt(self._room)

    @property
    def shares(self) -> dict[str, float]:
        """Parts of μ² by purpose, named as in a privacy statement. The last part is the solver's."""
        shares = {}
        if self._only_center:
            looks = 2.0 * TARGET_ALONE.look
            shares = {"histograms of values": looks, "means": 1.0 - looks - 1e-9}
        elif not self.smoothness_declared:
            shares = usual_shares(self.n, self.p, self._looks_at_target, self.fit_intercept, self._room)
        return {**shares, "solver": 1.0 - sum(shares.values())}

    @property
    def solver_shares(self) -> dict[str, float]:
        """Parts of the solver's μ² by what they buy. Fits whose first look shows nothing take more for sizes."""
        if math.isinf(self.records) or self._buys_nothing:
            return {}
        has_start = self._classifies and self.fit_intercept and self.n_classes == 2
        start = counting_share(self.records, self._classifies) if has_start else 0.0
        solver: Any = self.choice.solver
        if isinstance(solver, Screened):
            rest = replace(self, penalty=Zero()).solver_shares
            return {"choice of columns": solver.share, **{k: (1.0 - solver.share) * v for k, v in rest.items()}}
        return dict(solver.allocation(self.records, self.loss, start).to_dict())

    @property
    def _looks_at_target(self) -> bool:
        """Whether the fit learns a center of the target."""
        return self.fit_intercept and not self._classifies

    @property
    def _solver_mu(self) -> float:
        """The solver's μ for each problem: there is one problem, or one for each of three or more classes."""
        n_problems = 1 if self.n_classes == 2 else self.n_classes
        return self.mu * math.sqrt(self.shares["solver"] / n_problems)

    @property
    def records(self) -> float:
        """The solver's nμ: the noise of the solver is as large as the influence of one record among this many."""
        return self.n * self._solver_mu

    @property
    def columns(self) -> int:
        """Number of columns if all of them are seen, including the intercept's."""
        return self.p + self.fit_intercept

    @cached_property
    def choice(self) -> Choice:
        """The solver and the reason for it, if all columns are seen."""
        return choose(self.n, self.columns, self._solver_mu, self.penalty, self.loss)

    @property
    def solver(self) -> str:
        """Name of the solver."""
        return type(self.choice.solver).__name__

    @property
    def reason(self) -> str:
        """Reason for this solver, in the words of the privacy statement."""
        return self.choice.reason

    @property
    def noise(self) -> float:
        """Standard deviation of the noise in the gradient of a standardized column, for all steps together.

        The unit is the typical slope of the loss at one record. For regression, the noise is then about that of the
        coefficient of a standardized column, divided by the root mean square of the residuals.
        """
        if math.isinf(self.records):
            return 0.0
        used = POLICY.used if isinstance(self.choice.solver, DPBlockCD) else 1.0
        multiple = clip_multiple(math.sqrt(used) * self.records, self.columns, self._classifies)
        if self._classifies:
            # A clip below the typical size shortens all gradients alike, and what is left of them is scaled up again.
            multiple = max(1.0, multiple)
        return 2.0 * multiple * math.sqrt(self.columns) / self.records

    @cached_property
    def _noise_in_counts(self) -> float:
        """Noise in the histograms of the columns, as a part of the records; 0 if bounds or smoothness are declared."""
        if self.bounds_declared or self.smoothness_declared:
            return 0.0
        return noise_in_counts(self.n, self.p, self._room)

    @property
    def _only_center(self) -> bool:
        """Whether the whole budget goes to the center of the target."""
        if not self._looks_at_target or self.smoothness_declared:
            return False
        return only_center(self.n, self.p, self._room, self.bounds_declared)

    @property
    def bounds_help(self) -> bool:
        """Whether declared bounds would bring back columns that noise hides."""
        return not self.bounds_declared and not (self._looks_at_target and hides_center(self.n, self._room))

    @property
    def rarest_flag(self) -> float:
        """Smallest part of ones at which a 0/1 column is seen. Rarer flags get the coefficient 0."""
        return min(1.0, _STANDS_OUT * self._noise_in_counts)

    @property
    def seen(self) -> float:
        """Probability that a column is seen."""
        if self._only_center:
            return 0.0
        noise = self._noise_in_counts
        if noise == 0.0:
            return 1.0
        numeric = float(ndtr(_HEIGHT / noise - _STANDS_OUT))
        if self.kind != "flags":
            return numeric
        flags = np.minimum(numeric, ndtr(_PREVALENCES / noise - _STANDS_OUT))
        return _PART_OF_FLAGS * float(np.mean(flags)) + (1.0 - _PART_OF_FLAGS) * numeric

    @property
    def clipped(self) -> float:
        """Expected part of the signal in values beyond the ranges."""
        if self.smoothness_declared or self.kind in ("regular", "flags"):
            return 0.0
        return self.calibration.unknown_tails if self.kind is None else self.calibration.long_tails

    @property
    def _rarity(self) -> float:
        """Factor on the noise for one class against the rest, relative to two classes of equal size.

        Let a class have a share q of the records. The Hessian of the logistic loss is then q(1 − q) instead of ¼ times
        the second moments, so noise in gradients costs more. The loss of a model without features is the entropy of q,
        which is smaller than ln 2, so the same noise hides a larger part of the signal.
        """
        share = 1.0 / self.n_classes
        entropy = -share * math.log(share) - (1.0 - share) * math.log1p(-share)
        return 0.25 / (share * (1.0 - share)) * math.log(2.0) / entropy

    @property
    def _buys_nothing(self) -> bool:
        """Whether the budget is too small for one update."""
        no_clip = self.records < LEAST_RECORDS and not self._classifies
        no_step = isinstance(self.choice.solver, DPBlockCD) and full_steps(self.records, self.columns) == 0.0
        return no_clip or no_step or self._only_center

    @cached_property
    def lost(self) -> float:
        """Expected (F − F*)/(F(0) − F*): 0 is the fit without privacy, 1 the best model without features."""
        if math.isinf(self.records):
            return 0.0
        if self._buys_nothing:
            return 1.0
        arguments = self.columns, self.records, self.signal, self.seen, self.clipped, self._rarity
        return float(self.calibration.lost(*arguments))

    @property
    def likely(self) -> tuple[float, float]:
        """Range of the part lost in about four of five cases. Forecasts below 1 % count as 1 %."""
        return max(self.lost, RESOLUTION) / FACTOR, min(max(self.lost, RESOLUTION) * FACTOR, 1.0)

    @property
    def verdict(self) -> str:
        """``"good"``, ``"usable"``, ``"mostly noise"`` or ``"no better than the zero model"``."""
        if self.lost < _GOOD:
            return "good"
        if self.lost < _USABLE:
            return "usable"
        return "mostly noise" if self.lost < _HOPELESS else "no better than the zero model"

    def epsilon_for(self, lost: float = _GOOD) -> float | None:
        """Smallest epsilon with a forecast of at most `lost`; None if 1000 is not enough."""
        return _least(
            lambda epsilon: replace(self, epsilon=epsilon).lost <= _checked_part(lost),
            SMALLEST_EPSILON,
            LARGEST_EPSILON,
        )

    def n_for(self, lost: float = _GOOD) -> int | None:
        """Smallest number of records with a forecast of at most `lost`; None if 10¹³ is not enough."""
        found = _least(lambda n: replace(self, n=math.ceil(n)).lost <= _checked_part(lost), 2.0, float(_MOST_RECORDS))
        return None if found is None else math.ceil(found)

    @property
    def concerns(self) -> tuple[str, ...]:
        """Reasons why the model can be of little use, in the words of the fit's warning."""
        if math.isinf(self.epsilon):
            return ()
        out = round((1.0 - self.seen) * self.p)
        concerns = [most_stay_out(out, self.p, self.remedy, self.bounds_help)] if out > MOST * self.p else []
        if self._buys_nothing and not self.has_too_many_classes:
            concerns.append(no_update(self.remedy))
        return (*concerns, *self.public_concerns)

    @property
    def public_concerns(self) -> tuple[str, ...]:
        """The concerns that follow from public numbers alone, and not from what a fit releases."""
        if math.isinf(self.epsilon):
            return ()
        concerns = [too_many_classes(self.n_classes, self.remedy)] if self.has_too_many_classes else []
        return (*concerns, *([large_delta(self._budget.delta, self.n)] if self._budget.delta >= 1.0 / self.n else []))

    @property
    def has_too_many_classes(self) -> bool:
        """Whether most of the model is noise even with nearly perfect features, while two classes would work."""
        most = replace(self, signal=max(self.signal, _NEARLY_ALL)).lost
        return self.n_classes > 2 and most >= _USABLE and replace(self, n_classes=2).lost < _HOPELESS

    @property
    def remedy(self) -> str:
        """The change that would make the model good, in words."""
        return f"take about {self._ways}, or fewer features" if self._ways else "take fewer features"

    @cached_property
    def _ways(self) -> str:
        """Epsilon or number of records that would make the model good; empty if none would."""
        epsilon, n = self.epsilon_for(), self.n_for()
        ways = [] if epsilon is None else [f"epsilon = {_rounded_up(epsilon)}"]
        ways += [] if n is None else [f"{_rounded_up(n)} records"]
        return " or ".join(ways)

    def __str__(self) -> str:
        low, high = map(_percent, self.likely)
        task = f"{self.n_classes} classes" if self._classifies else "regression"
        kind = "" if self.kind is None else f"{self.kind} "
        lines = [
            f"{self.n} records, {self.p} features, epsilon = {self.epsilon:g}, delta = {self._budget.delta:.3g}: "
            f"{self.verdict}",
            f"  solver      {self.reason}",
        ]
        if math.isfinite(self.mu):
            spent = ", ".join(f"{name} {share:.1%}" for name, share in self.shares.items())
            bought = ", ".join(f"{name} {share:.1%}" for name, share in self.solver_shares.items())
            lines += [
                f"  budget      μ = {self.mu:.3g}: {spent}",
                *([f"  solver's    {bought}"] if bought else []),
                f"  noise       {self.noise:.2g} of a record's typical gradient, for each standardized column",
                f"  signal lost {_percent(self.lost)} ({low} to {high} in four of five cases), where 0% is the fit "
                f"without privacy and 100% a model without features",
                f"  assumed     {task}, {kind}features explain {self.signal:.0%} of the loss and all of them count",
            ]
        if self.rarest_flag > 0.0:
            lines.append(
                "  not seen    ordinary columns at this budget: declare feature_bounds"
                if self.seen < 0.5
                else f"  not seen    flags that are 1 for less than {_percent(self.rarest_flag)} of the records"
            )
        if self.lost >= _GOOD:
            lines.append(f"  to be good  {self._ways or 'no epsilon and no number of records would do'}")
        lines += [f"  warning     {concern}" for concern in self.concerns]
        return "\n".join(lines)


def plan(
    n: int,
    p: int,
    epsilon: float = 1.0,
    delta: float | None = None,
    *,
    loss: str | Loss = "squared",
    penalty: str | Penalty | None = "l2",
    fit_intercept: bool = True,
    bounds_declared: bool = False,
    smoothness_declared: bool = False,
    n_classes: int = 2,
    kind: str | None = None,
    signal: float | None = None,
) -> Plan:
    """Forecast a private fit from public numbers alone, before anything is spent.

    Parameters
    ----------
    n, p
        Numbers of records and features.
    epsilon, delta
        The privacy budget. A delta of None means 1/n².
    loss
        ``"squared"``, ``"logistic"``, or a loss from `dpcd.losses`.
    penalty
        ``"l1"``, ``"l2"``, a penalty from `dpcd.penalties`, or None. The strength of the penalty has no effect here.
    fit_intercept
        Whether to fit an intercept. A fit with an intercept also learns centres.
    bounds_declared, smoothness_declared
        Whether the bounds of features and target, or the smoothness constants, are declared instead of learnt.
    n_classes
        Number of classes, for classification.
    kind
        Kind of the features: ``"regular"`` for columns without long tails, ``"long-tailed"`` for columns such as
        amounts of money, ``"flags"`` for many columns that are mostly zero, as from one-hot coding. None is in between.
    signal
        Part of the loss of the best model without features that the best linear model explains: R² for the squared
        loss. None means .67 for regression and .4 for classification. Noise counts in proportion to
        (1 − signal)/signal.

    Returns
    -------
    Plan
        The solver, its noise, the forecast, and what would make the model good.

    Examples
    --------
    >>> import dpcd
    >>> plan = dpcd.plan(20_000, 8, epsilon=1.0, loss="logistic")
    >>> plan.solver, plan.verdict
    ('DPNewton', 'good')
    >>> dpcd.plan(500, 30, epsilon=0.5).verdict
    'no better than the zero model'
    """
    for name, value, least in (("n", n, 2), ("p", p, 1), ("n_classes", n_classes, 2)):
        if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < least:
            raise ValueError(f"{name} must be a whole number of at least {least}, got {value!r}")
    if n > _MOST_RECORDS:
        raise ValueError(f"n must be at most {_MOST_RECORDS:.0e}, got {n!r}")
    losses: dict[str, Loss] = {"squared": Squared(), "logistic": Logistic()}
    penalties: dict[str, Penalty] = {"l1": L1(1.0), "l2": L2(1.0)}
    if isinstance(loss, str) and loss not in losses:
        raise ValueError(f"loss must be 'squared', 'logistic' or a loss from dpcd.losses, got {loss!r}")
    if isinstance(penalty, str) and penalty not in penalties:
        raise ValueError(f"penalty must be 'l1', 'l2', None or a penalty from dpcd.penalties, got {penalty!r}")
    if kind not in _KINDS:
        raise ValueError(f"kind must be None, 'regular', 'long-tailed' or 'flags', got {kind!r}")
    if signal is not None and not 0.0 < signal < 1.0:
        raise ValueError(f"signal must be a part between 0 and 1, such as an R² of 0.3, got {signal!r}")
    result = Plan(
        int(n),
        int(p),
        epsilon,
        delta,
        losses[loss] if isinstance(loss, str) else loss,
        Zero() if penalty is None else penalties[penalty] if isinstance(penalty, str) else penalty,
        bool(fit_intercept),
        bool(bounds_declared),
        bool(smoothness_declared),
        int(n_classes),
        kind,
        0.5,
    )
    if n_classes > 2 and not result._classifies:
        raise ValueError(f"n_classes={n_classes} needs a loss for classification, such as loss='logistic'")
    PrivacyBudget(epsilon, 0.5 if delta is None else delta)
    return replace(result, signal=result.calibration.signal if signal is None else float(signal))


def _least(enough: Callable[[float], bool], low: float, high: float) -> float | None:
    """Smallest number that is enough, within a thousandth, if more is never worse."""
    if enough(low):
        return low
    if not enough(high):
        return None
    while high > 1.001 * low:
        middle = math.sqrt(low * high)
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high


def _checked_part(lost: float) -> float:
    if not RESOLUTION <= lost < 1.0:
        raise ValueError(
            f"lost must be a part below 1 and at least {RESOLUTION:g}, which is how fine forecasts are, got {lost!r}"
        )
    return lost


def _percent(part: float) -> str:
    if 0.0 < part < RESOLUTION:
        return f"less than {RESOLUTION:.0%}"
    return f"{part:.0%}" if part >= 0.1 else f"{100.0 * part:.2g}%"


def _rounded_up(number: float) -> str:
    """The number, rounded up to two digits."""
    unit = 10.0 ** (math.floor(math.log10(number)) - 1)
    return f"{math.ceil(number / unit - 1e-9) * unit:.6g}"
