"""Private selection: the best of a random number of candidates, and what it costs.

Trying settings and keeping the best one is a release like any other. If every candidate's model and score were
shown, their costs would add up. If only the best is shown, and *how many* were tried is random and stays secret, the
total hardly grows with their number.

**Theorem** (Papernot & Steinke 2022, theorems 2 and 6). Let Q be a mechanism with totally ordered outputs, of Rényi
divergence at most ρ(λ) at each order λ > 1. Draw K ≥ 0 from a law that does not depend on the data, run Q, K times
independently, and release the best output and nothing else (nothing at all if K = 0). The divergence at order λ of
that is at most

    ρ(λ) + log E[K]/(λ − 1) + (1 + η)·min_{λ' ≥ 1} {(1 − 1/λ')·ρ(λ') + log(1/γ)/λ'},

if K follows the truncated negative binomial law of parameters η ≥ 0 and γ in (0, 1),
P[K = k] ∝ (1 − γ)^k · Π_{l<k} (l + η)/(l + 1), k ≥ 1: the *logarithmic* law for η = 0, with E[K] = (1/γ − 1)/log(1/γ),
and the *geometric* law for η = 1, with E[K] = 1/γ. For K ~ Poisson(m) it is at most

    ρ(λ) + log(m)/(λ − 1) + m·δ(λ),   where Q is (log(1 + 1/(λ − 1)), δ(λ))-private.

**The candidates.** Q draws settings, fits a model and scores it: all of that is one run, so that runs are alike and
independent. Everything it releases is charged as Gaussian and stays within a limit μ² that is fixed in advance, so
that ρ(λ) = λμ²/2 at every order at once (Feldman & Zrnic 2021: at each order, costs may depend on earlier answers). The
discreteness of the noise adds nothing here: for integer shifts the discrete Gaussian's divergence is at most that of
the continuous one (Canonne, Kamath & Steinke 2020, proposition 5). What is charged as the Gaussian that dominates it
has no larger divergence either, as a lower trade-off function means larger ones. The minimum above is then
μ·sqrt(2 log(1/γ)) − μ²/2, at λ' = sqrt(2 log(1/γ))/μ if that is at least 1, and log(1/γ) otherwise.

**Ties.** The order must be total. Candidates with equal scores are ordered by when they came; as runs are exchangeable
that is as if each had drawn a random number to break ties with.

**What must stay secret** is K, and everything about the candidates that did not win: settings, scores, errors and
warnings. The settings of the losers come from a generator that nobody can predict, as secret batches do. How long a
search takes depends on K, and that is not hidden: do not let an adversary time it.
"""

from __future__ import annotations

import math
import secrets
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from decimal import Decimal, localcontext
from functools import cached_property
from typing import Any, Literal, Protocol

import numpy as np

from dpcd.privacy.accounting import ORDERS, BudgetExceeded, PrivacyBudget, PrivacyCost, gaussian_epsilon, gaussian_mu
from dpcd.privacy.curator import Curator
from dpcd.privacy.lattice import Floats, Integers, Lattice
from dpcd.privacy.mechanism import NoisySum, check_multipliers, freeze
from dpcd.privacy.noise import NoiseSource
from dpcd.privacy.statement import REPLACE_ONE
from dpcd.tables import Columns, Part

Law = Literal["logarithmic", "geometric", "poisson"]
Measure = Literal["squared error", "absolute error", "misclassification", "log loss"]

#: η of each law, named as `dp_accounting` does.
SHAPES: dict[Law, float] = {"logarithmic": 0.0, "geometric": 1.0, "poisson": math.inf}
# Costs are rounded up by this part, for the rounding of the few operations they are computed with.
_ROUNDING = 1e-12
# Bytes of randomness and decimal digits behind one draw of K. Its law is right to within 10⁻³⁵⁰ in total variation,
# which is below any δ a float can hold.
_BYTES, _DIGITS = 160, 370


@dataclass(frozen=True)
class NumberOfRuns:
    """The law of the number of candidates.

    Parameters
    ----------
    mean
        How many there are on average, at least 2.
    law
        ``"logarithmic"`` is the cheapest, and often tries few candidates or many; ``"geometric"`` and ``"poisson"`` are
        dearer and vary less. Only Poisson's law may try none.
    """

    mean: float
    law: Law = "logarithmic"

    def __post_init__(self) -> None:
        if self.law not in SHAPES:
            raise ValueError(f"law must be 'logarithmic', 'geometric' or 'poisson', got {self.law!r}")
        if not 2.0 <= self.mean <= 1e6:
            raise ValueError(f"the mean number of candidates must lie between 2 and a million, got {self.mean!r}")

    @property
    def shape(self) -> float:
        """η: 0, 1, or infinite for Poisson's law."""
        return SHAPES[self.law]

    @cached_property
    def _inverse_gamma(self) -> float:
        """1/γ of the truncated negative binomial law with this mean."""
        if self.law == "geometric":
            return float(self.mean)
        # (x − 1)/log x grows from 1 at x = 1, and is above the mean at its square.
        low, high = 1.0, max(4.0, self.mean**2)
        while low < (middle := 0.5 * (low + high)) < high:
            low, high = (middle, high) if (middle - 1.0) / math.log(middle) < self.mean else (low, middle)
        return high

    def cost(self, mu_squared: float) -> PrivacyCost:
        """What releasing the best costs if one candidate is charged, at most, as a Gaussian of this μ²."""
        if math.isinf(mu_squared):
            return PrivacyCost(mu_squared=math.inf)
        base = ORDERS * mu_squared / 2.0
        many = math.log(self.mean) / (ORDERS - 1.0)
        extra: Any
        if self.law == "poisson":
            extra = self.mean * np.exp(_log_deltas(-np.log1p(-1.0 / ORDERS), mu_squared))
        else:
            mu, ratio = math.sqrt(mu_squared), math.log(self._inverse_gamma)
            inside = math.sqrt(2.0 * ratio) >= mu
            extra = (1.0 + self.shape) * (mu * math.sqrt(2.0 * ratio) - mu_squared / 2.0 if inside else ratio)
        curve = (base + many + extra) * (1.0 + _ROUNDING)
        # Divergences grow with the order, so a bound at a higher order holds at the lower ones.
        curve = np.minimum.accumulate(curve[::-1])[::-1]
        return PrivacyCost(renyi=tuple(curve.tolist()))

    def best_order(self, epsilon: float, delta: float) -> float:
        """The Rényi order that leaves most to each candidate, to be fixed before anything is released."""
        mu_squared = _largest(lambda m: self.cost(m).epsilon(delta) <= epsilon, PrivacyBudget(epsilon, delta))
        return self.cost(mu_squared).best_order(delta)

    def candidate_room(self, budget: PrivacyBudget, spent: PrivacyCost) -> float:
        """Largest μ², rounded down, that each candidate may spend if `spent` was released before."""
        if math.isinf(budget.epsilon):
            return math.inf
        room = _largest(lambda m: budget.admits(spent + self.cost(m)), budget)
        if room == 0.0:
            raise BudgetExceeded(
                f"the best of {self.mean:g} candidates on average costs more than epsilon = {budget.epsilon:g} at "
                f"delta = {budget.delta:.3g}, however noisy they are: try fewer, or give a larger epsilon"
            )
        return room

    def draw(self, noise: NoiseSource) -> int:
        """Draw K, by inversion with so many digits that the law is exact for all purposes."""
        source = secrets.token_bytes(_BYTES) if noise.private else noise.generator().bytes(_BYTES)
        with localcontext(prec=_DIGITS):
            uniform = Decimal(int.from_bytes(source)) / Decimal(256**_BYTES)
            if self.law == "poisson":
                k, probability, mean = 0, Decimal(-self.mean).exp(), Decimal(self.mean)
                shift, factor = Decimal(0), mean
            else:
                k, gamma = 1, 1 / Decimal(self._inverse_gamma)
                shift, factor = Decimal(self.shape), 1 - gamma
                probability = gamma if self.law == "geometric" else (1 - gamma) / -gamma.ln()
            below = probability
            while uniform >= below:
                # P[k + 1]/P[k]: (1 − γ)(k + η)/(k + 1), and m/(k + 1) for Poisson's law.
                probability *= factor * ((k + shift) if self.law != "poisson" else 1) / (k + 1)
                k += 1
                below += probability
        return k


def _largest(fits: Callable[[float], bool], budget: PrivacyBudget) -> float:
    """Largest μ² that fits, rounded down; 0 if none does. One candidate alone could spend all of the budget."""
    low, high = 0.0, gaussian_mu(budget.epsilon, budget.delta)
    for _ in range(40):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if fits(middle**2) else (low, middle)
    return low**2


def _log_deltas(epsilons: Floats, mu_squared: float) -> Floats:
    """Log of δ at which a mechanism of divergence λμ²/2 is (ε, δ)-private, for each ε: the best over `ORDERS`."""
    above = ORDERS - 1.0
    constant = above * ORDERS * mu_squared / 2.0 + above * np.log1p(-1.0 / ORDERS) - np.log(ORDERS)
    # The least of lines in ε, one for each order.
    logs = [min(0.0, float(np.min(constant - above * epsilon))) for epsilon in epsilons.tolist()]
    return np.array(logs)


def gaussian_limit(budget: PrivacyBudget) -> float:
    """Σ μ², rounded up, that releases under a budget without a Rényi order stay below."""
    if budget.order is not None:
        raise ValueError("candidates' releases are charged as Gaussian: their budget has no Rényi order")
    return gaussian_mu(budget.epsilon, budget.delta) ** 2 * (1.0 + 1e-6)


def gaussian_budget(mu_squared: float, delta: float) -> PrivacyBudget:
    """The budget whose `gaussian_limit` is this, rounded down."""
    if math.isinf(mu_squared):
        return PrivacyBudget(math.inf, delta)
    return PrivacyBudget(gaussian_epsilon(math.sqrt(mu_squared * (1.0 - 1e-5)), delta), delta)


@dataclass(frozen=True, eq=False)
class MeanLoss(NoisySum):
    """Mean loss of a linear model's predictions, each record's clipped to [0, `largest`].

    Parameters
    ----------
    measure
        The loss. In classification the target is the index of each record's class, and a model has a row of
        coefficients for each class, or one row that speaks for class 1 of two.
    coefficients, intercepts
        The model, of shapes (rows, features) and (rows,).
    largest
        Losses count for no more than this.
    noise_multiplier
        Noise over sensitivity.
    ranges
        What the model clips features to before it predicts, of shape (features, 2); None if it does not.

    Notes
    -----
    Privacy. Record i contributes round(B·clamp(loss_i/largest, 0, 1)), an integer in [0, B] that depends on record i
    and on the model, which was released before: predictions are made element by element, so that no record takes part
    in another's. NaN counts as `largest`. Replacing a record moves the sum by at most B.
    """

    measure: Measure
    coefficients: Floats
    intercepts: Floats
    largest: float
    noise_multiplier: float
    ranges: Floats | None = None

    description = "mean loss"
    size = 1

    def __post_init__(self) -> None:
        freeze(self, coefficients=np.float64, intercepts=np.float64, noise_multiplier=float)
        if self.ranges is not None:
            freeze(self, ranges=np.float64)
        if self.coefficients.ndim != 2 or self.intercepts.shape != self.coefficients.shape[:1]:
            raise ValueError("a model has rows of coefficients and an intercept for each")
        if not 0.0 < self.largest < math.inf:
            raise ValueError(f"the largest loss must be positive and finite, got {self.largest}")

    def sensitivity(self, bound: float) -> float:
        """B: what records add is not negative."""
        return bound

    def sums(self, part: Part, lattice: Lattice) -> Integers:
        """The sum of the losses."""
        losses = self._losses(part) / self.largest
        # Written so that NaN, for which every comparison is false, falls on a bound.
        losses = np.where(losses < 1.0, np.where(losses > 0.0, losses, 0.0), 1.0)
        return np.asarray(np.rint(losses * lattice.bound).astype(np.int64).sum(keepdims=True))

    def decode(self, noisy: Integers, lattice: Lattice, n_records: int) -> float:
        """The noisy mean."""
        return int(noisy[0]) / (lattice.bound * n_records) * self.largest

    def _losses(self, part: Part) -> Any:
        """One number for each record, whatever it is."""
        scores = np.tile(self.intercepts[:, None], part.n_records)
        for row in range(len(scores)):
            for j in np.flatnonzero(self.coefficients[row]).tolist():
                column = part.column(j)
                if self.ranges is not None:
                    column = np.clip(column, self.ranges[j, 0], self.ranges[j, 1])
                scores[row] += column * self.coefficients[row, j]
        if self.measure == "squared error":
            return (scores[0] - part.target) ** 2
        if self.measure == "absolute error":
            return np.abs(scores[0] - part.target)
        if len(scores) == 1:
            scores = np.stack([-scores[0], scores[0]])
        if self.measure == "misclassification":
            # As in prediction: the first class, unless another one's score is higher.
            return scores.argmax(axis=0) != part.target
        # Each class against the rest, scaled to sum to 1; for two classes that is the logistic loss.
        logs = -np.logaddexp(0.0, -scores)
        own = sum(np.where(part.target == k, logs[k], 0.0) for k in range(len(logs)))
        return np.logaddexp.reduce(logs, axis=0) - own


class _InSearch(type):
    """Every warning is of this kind in a thread that tries candidates, and none elsewhere."""

    threads = threading.local()

    def __subclasscheck__(cls, category: type) -> bool:
        return getattr(cls.threads, "trying", False)


class _OfACandidate(Warning, metaclass=_InSearch):
    """For the filter of warnings: it belongs to all threads, and ignoring everything would silence other ones."""


@contextmanager
def _unheard() -> Iterator[None]:
    """Ignore this thread's warnings: they would tell of candidates that did not win, and of how many there were."""
    # Put in front anew for each candidate, as other threads may bring back filters of before. It stays there.
    warnings.simplefilter("ignore", _OfACandidate)
    _InSearch.threads.trying = True
    try:
        yield
    finally:
        _InSearch.threads.trying = False


class Candidate(Protocol):
    """A model with settings of its own, not yet fitted."""

    @property
    def intercept(self) -> bool:
        """Whether the data need a column of ones."""

    def fit(self, curator: Curator) -> tuple[Floats, Floats, Floats | None]:
        """Spend the curator's budget on the model, which is kept.

        Returns its coefficients, its intercepts, and what it clips features to, as in `MeanLoss`.
        """


@dataclass(frozen=True, eq=False)
class BestCandidate:
    """The best of a random number of candidates, by the noisy mean loss of what they predict for the same records.

    Parameters
    ----------
    number
        How many candidates are tried.
    propose
        Draws a candidate's settings with the generator it is given. It and the candidates must be pure: what they keep
        of an earlier candidate would be released.
    budget
        What each candidate's fit may cost.
    measure, largest_loss, noise_multiplier
        How it is judged, as in `MeanLoss`.

    Notes
    -----
    Privacy. A run proposes a candidate, fits it through a curator of its own, which admits no more than `budget`, and
    releases a `MeanLoss`: Gaussian releases of at most μ² = `gaussian_limit(budget)` + 1/z² together. Runs are alike
    and independent, their number follows `number` and is not released, nor is anything about candidates but the best
    one. So the theorem of this module holds, and `number.cost(μ²)` is what it says. A candidate that fails is one with
    an infinite loss, and its failure is what comes out if it is the best.
    """

    number: NumberOfRuns
    propose: Callable[[np.random.Generator], Candidate]
    budget: PrivacyBudget
    measure: Measure
    largest_loss: float
    noise_multiplier: float

    relation = REPLACE_ONE
    count = 1

    def __post_init__(self) -> None:
        object.__setattr__(self, "noise_multiplier", float(self.noise_multiplier))
        check_multipliers(self.noise_multiplier)
        if math.isfinite(self.budget.epsilon) and self.noise_multiplier == 0.0:
            raise ValueError("scores without noise are not private: give a noise multiplier")

    @property
    def description(self) -> str:
        """Says how many candidates there are on average."""
        return f"best of about {self.number.mean:g} candidates"

    @property
    def selection(self) -> dict[str, Any]:
        """The law of their number, for the statement."""
        return {"law": self.number.law, "mean": self.number.mean, "shape": self.number.shape}

    @property
    def _mu_squared(self) -> float:
        if math.isinf(self.budget.epsilon):
            return math.inf
        return gaussian_limit(self.budget) + self.noise_multiplier**-2

    @property
    def noise_multipliers(self) -> tuple[float, float]:
        """That of one Gaussian release which costs what one candidate may cost, twice."""
        multiplier = 1.0 / math.sqrt(self._mu_squared)
        return multiplier, multiplier

    @property
    def cost(self) -> PrivacyCost:
        """By the theorem."""
        return self.number.cost(self._mu_squared)

    def run(self, data: Columns, noise: NoiseSource) -> tuple[Candidate, float] | None:
        """The best candidate and its noisy mean loss; None if none was tried."""
        best: tuple[float, Candidate | Exception] | None = None
        for _ in range(self.number.draw(noise)):
            # A generator for each: the winner's settings are released, and nothing of another may follow from them.
            with _unheard():
                outcome = self._one(data, noise, noise.generator())
            if best is None or outcome[0] < best[0]:
                best = outcome
        if best is None:
            return None
        loss, candidate = best
        if isinstance(candidate, Exception):
            # Without the frames that it and what led to it passed through, which hold raw data.
            candidate.__context__ = None
            raise candidate.with_traceback(None) from None
        return candidate, loss

    def _one(
        self, data: Columns, noise: NoiseSource, generator: np.random.Generator
    ) -> tuple[float, Candidate | Exception]:
        try:
            candidate = self.propose(generator)
            copy = data.copy(candidate.intercept)
            coefficients, intercepts, ranges = candidate.fit(Curator(copy, self.budget, noise))
            judgement = MeanLoss(
                self.measure, coefficients, intercepts, self.largest_loss, self.noise_multiplier, ranges
            )
            # Charged already, as part of this mechanism.
            return Curator(data, PrivacyBudget(math.inf, 0.5), noise).release(judgement), candidate
        except Exception as failure:
            return math.inf, failure
