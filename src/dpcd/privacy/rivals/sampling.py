"""Secret sampling: drawing batches of records, and what it saves.

A Gaussian release on a batch that nobody knows costs less than on all records. Two ways to draw batches, each with the
neighbouring relation that its theorem is about:

- `FixedSize`: b records without replacement, neighbours **replace one record**; Rényi curve of the privacy profile that
  Balle, Barthe & Gaboardi (2018) found, proved in `fixed_size_gaussian_curve`.
- `Poisson`: each record by itself with probability q, neighbours **add or remove one record**; Rényi curve of the
  sampled Gaussian mechanism, Mironov, Talwar & Zhang (2019), section 3.3. The DP-CD paper used it for DP-SGD.

Both curves are given at integer orders. Between two of them (order − 1)·divergence is convex in the order, so the chord
is an upper bound.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln

from dpcd.compilation import compiled
from dpcd.privacy.accounting import ORDERS, Conversion, PrivacyBudget, PrivacyCost, noise_multiplier
from dpcd.privacy.statement import ADD_OR_REMOVE, REPLACE_ONE

Integers = NDArray[np.int64]
Floats = NDArray[np.float64]

# Orders at which the curves are evaluated; above the largest they are infinite. Amplification fades well before it.
_INTEGER_ORDERS = np.unique(np.concatenate([np.arange(2, 65), np.geomspace(64, 1024, 40).astype(int)]))


def has_double(members, starts, large):  # type: ignore[no-untyped-def]
    """Whether a record comes up twice in each batch, but for those that are too large to compare all pairs."""
    double = np.zeros(starts.shape[0] - 1, dtype=np.bool_)
    for k in range(starts.shape[0] - 1):
        if large[k]:
            continue
        for a in range(starts[k] + 1, starts[k + 1]):
            for b in range(starts[k], a):
                if members[a] == members[b]:
                    double[k] = True
    return double


class Sampling(Protocol):
    """A way to draw batches, and the relation and the cost that go with it."""

    @property
    def relation(self) -> str:
        """Neighbouring relation under which `cost` holds."""

    @property
    def n_records(self) -> int:
        """Number of records that batches are drawn from."""

    @property
    def mean_size(self) -> float:
        """Expected number of records in a batch."""

    @property
    def sensitivity(self) -> float:
        """How far one record can move a sum of vectors of norm at most 1."""

    def cost(self, noise_multiplier: float, draws: int) -> PrivacyCost:
        """Cost of one Gaussian release on a batch, with this noise over `sensitivity` in each of `draws` entries."""

    def draw(self, n_records: int, n_batches: int, generator: np.random.Generator) -> tuple[Integers, Integers]:
        """Records of all batches one after the other, and where each batch begins (one more entry than batches)."""


@dataclass(frozen=True)
class FixedSize:
    """b of n records without replacement; neighbours replace one record."""

    size: int
    n_records: int

    relation = REPLACE_ONE
    sensitivity = 2.0

    def __post_init__(self) -> None:
        if not 1 <= self.size <= self.n_records:
            raise ValueError(f"a batch holds between 1 and all {self.n_records} records, not {self.size}")

    @property
    def mean_size(self) -> float:
        """The size."""
        return float(self.size)

    def cost(self, noise_multiplier: float, draws: int) -> PrivacyCost:
        """Amplified by subsampling, unless the batch is all there is."""
        if self.size == self.n_records:
            return PrivacyCost.gaussian(noise_multiplier, draws)
        return _curve_cost(float(noise_multiplier), self.size / self.n_records, True, draws)

    def draw(self, n_records: int, n_batches: int, generator: np.random.Generator) -> tuple[Integers, Integers]:
        """Uniform batches."""
        starts = np.arange(n_batches + 1) * self.size
        if self.size == 1:
            return generator.integers(n_records, size=n_batches), starts
        return _without_replacement(n_records, np.full(n_batches, self.size), generator), starts


@dataclass(frozen=True)
class Poisson:
    """Each record with probability q; neighbours add or remove one record."""

    rate: float
    n_records: int

    relation = ADD_OR_REMOVE
    sensitivity = 1.0

    def __post_init__(self) -> None:
        if not 0.0 < self.rate <= 1.0:
            raise ValueError(f"the sampling rate must lie in (0, 1], got {self.rate}")

    @property
    def mean_size(self) -> float:
        """q·n."""
        return self.rate * self.n_records

    def cost(self, noise_multiplier: float, draws: int) -> PrivacyCost:
        """The sampled Gaussian mechanism."""
        if self.rate == 1.0:
            return PrivacyCost.gaussian(noise_multiplier, draws)
        return _curve_cost(float(noise_multiplier), self.rate, False, draws)

    def draw(self, n_records: int, n_batches: int, generator: np.random.Generator) -> tuple[Integers, Integers]:
        """A binomial number of records, then which."""
        sizes = generator.binomial(n_records, self.rate, size=n_batches)
        return _without_replacement(n_records, sizes, generator), np.append(0, np.cumsum(sizes))


def _without_replacement(n_records: int, sizes: Integers, generator: np.random.Generator) -> Integers:
    """Independent batches of distinct records, each uniform over the sets of its size.

    Batches that are small against the data are drawn with replacement, and drawn again where a record came up twice.
    """
    starts = np.append(0, np.cumsum(sizes))
    batch = np.repeat(np.arange(len(sizes)), sizes)
    members = generator.integers(n_records, size=len(batch))
    large = sizes**2 > n_records
    for k in np.flatnonzero(large).tolist():
        chosen = generator.choice(n_records, size=sizes[k], replace=False, shuffle=False)
        members[starts[k] : starts[k + 1]] = chosen
    doubled = compiled(has_double)
    while True:
        double = doubled(members, starts, large)
        if not double.any():
            return members
        again = double[batch]
        members[again] = generator.integers(n_records, size=int(again.sum()))


@cache
def _curve_cost(noise_multiplier: float, rate: float, fixed_size: bool, draws: int) -> PrivacyCost:
    if noise_multiplier == 0.0:
        return PrivacyCost(mu_squared=math.inf)
    curve = fixed_size_gaussian_curve if fixed_size else poisson_gaussian_curve
    divergence = curve(noise_multiplier, rate, _INTEGER_ORDERS)
    # (order − 1)·divergence is convex and 0 at order 1.
    weighted = np.interp(
        ORDERS, np.append(1, _INTEGER_ORDERS), np.append(0.0, (_INTEGER_ORDERS - 1) * divergence), right=math.inf
    )
    return PrivacyCost.renyi_curve(lambda orders: weighted / (orders - 1.0), draws)


def _log_binomials(order: int) -> Floats:
    k = np.arange(order + 1)
    result: Floats = gammaln(order + 1) - gammaln(k + 1) - gammaln(order - k + 1)
    return result


def poisson_gaussian_curve(noise_multiplier: float, rate: float, orders: Integers) -> Floats:
    """Rényi divergence of the Poisson-sampled Gaussian mechanism at integer orders.

    log Σ_k C(α, k) (1 − q)^{α−k} q^k e^{k(k−1)/2z²} / (α − 1). The binomial weights sum to 1 and the exponent is 0 for
    k = 0 and 1, so the sum is 1 + Σ_{k≥2} weight·(e^{…} − 1), which keeps its digits for the smallest rates.
    """
    divergences = []
    for order in orders.tolist():
        k = np.arange(2, order + 1)
        weights = _log_binomials(order)[2:] + (order - k) * math.log1p(-rate) + k * math.log(rate)
        exponent = (k * k - k) / (2.0 * noise_multiplier**2)
        grown = exponent + np.log(-np.expm1(-exponent))
        divergences.append(_log_1p_sum_exp(weights + grown) / (order - 1))
    return np.array(divergences)


# Panels of the integral below, each with so many nodes: where it counts, the integrand has the width of a standard
# normal density, and the sum is exact to rounding. So far beyond its top nothing is left of it.
_PANEL, _NODES, _BEYOND_TOP = 0.5, 20, 12.0
# With less noise than this sampling saves little, and the integral is long.
_LEAST_NOISE = 0.1


def fixed_size_gaussian_curve(noise_multiplier: float, rate: float, orders: Integers) -> Floats:
    """Upper bound on the Rényi divergence of a Gaussian on a batch drawn without replacement, at orders α > 1.

    With r = e^{y/z − 1/2z²}, y standard normal, and s = 1 + q(r − 1), it is

        log(1 + E[(s^{α−1} − 1)(s^α − 1)s^{1−α}; r > 1])/(α − 1).

    Notes
    -----
    Write E_u(P‖Q) = sup_S P(S) − u·Q(S). Let x be the record in which neighbours differ, x' the one in its place, R the
    law of the output given that the batch does not hold it, the same for both, and A, A' those given that it does.
    The outputs have laws P = (1 − q)R + qA and Q = (1 − q)R + qA'. For u ≥ 1 and t = 1 + (u − 1)/q,

        P − u·Q = q·(A − t·((1 − u/t)R + (u/t)A')),    so    E_u(P‖Q) ≤ q·max(E_t(A‖R), E_t(A‖A')),

    as E_t is convex. Batches that hold x become those that hold x' if x' takes its place, and those that hold neither
    if a record does that is drawn from those outside the batch (there are some: q < 1). So A against A', and A against
    R, are mixtures of outputs on batches that differ in one record, whose E_t is at most the Gaussian's, E(r − t)₊.
    Hence E_u(P‖Q) ≤ g(u) = E(s − u)₊ for u ≥ 1. Mechanisms must therefore bear a member of a batch being exchanged for
    any other record of the table, not just for its own replacement.
    For u < 1, E_u(P‖Q) = 1 − u + u·E_{1/u}(Q‖P), where P and Q may change places. Every power is a mixture of hinges:

        E_Q(dP/dQ)^α − 1 = α(α − 1)∫₀^∞ u^{α−2}(E_u(P‖Q) − (1 − u)₊)du ≤ α(α − 1)∫₁^∞ (u^{α−2} + u^{−α−1})g(u)du,

    which, integrated over u first, is the mean of s^α + s^{1−α} − 1 − s over s > 1, that is r > 1. With hardly any
    noise the curve of the Gaussian itself is returned, which is a bound as well: P and Q are mixtures, too.
    """
    if noise_multiplier < _LEAST_NOISE:
        return orders / (2.0 * noise_multiplier**2)
    nodes, weights = np.polynomial.legendre.leggauss(_NODES)
    first = 0.5 / noise_multiplier
    divergences = []
    for order in orders.tolist():
        panels = np.arange(math.ceil((order / noise_multiplier + _BEYOND_TOP - first) / _PANEL))
        y = (first + _PANEL * (panels[:, None] + 0.5 * (nodes + 1.0))).ravel()
        log_r = (y - first) / noise_multiplier
        # The first loses nothing where s is close to 1, and the second does not overflow.
        log_s = np.where(
            log_r < 30.0,
            np.log1p(rate * np.expm1(np.minimum(log_r, 30.0))),
            np.logaddexp(math.log1p(-rate), math.log(rate) + log_r),
        )
        grown = order * log_s + np.log(np.expm1((1.0 - order) * log_s) * np.expm1(-order * log_s))
        log_density = -0.5 * y**2 - 0.5 * math.log(2.0 * math.pi)
        terms = grown + log_density + np.tile(np.log(0.5 * _PANEL * weights), len(panels))
        # Rounded up.
        divergences.append(_log_1p_sum_exp(terms + 1e-9) / (order - 1) * (1.0 + 1e-12))
    return np.array(divergences)


def _log_sum_exp(terms: Floats) -> float:
    # SciPy's is careful about cases that do not occur here, and ten times slower on short arrays.
    largest = float(terms.max())
    return largest + math.log(float(np.exp(terms - largest).sum()))


def _log_1p_sum_exp(terms: Floats) -> float:
    """log(1 + Σ e^term), with all digits where the sum is small."""
    total = _log_sum_exp(terms)
    return math.log1p(math.exp(total)) if total < 0.0 else total + math.log1p(math.exp(-total))


def sampled_noise_multiplier(
    sampling: Sampling, budget: PrivacyBudget, releases: int, draws: int, spent: PrivacyCost | None = None
) -> float:
    """Smallest noise multiplier for which `releases` sampled releases fit the budget after `spent`, rounded up."""
    spent = PrivacyCost() if spent is None else spent
    return _smallest_multiplier(lambda z: budget.admits(spent + releases * sampling.cost(z, draws)), budget)


def planned_order(
    sampling: Sampling, epsilon: float, delta: float, releases: int, draws: int, beside: PrivacyCost | None = None
) -> float | None:
    """The Rényi order for a budget that is to be spent on these releases; None where they are Gaussian or ε infinite.

    It is a function of public numbers, so it may be fixed before anything is released. `beside` is what else is to be
    released, if that is a good part of the budget.
    """
    if math.isinf(epsilon) or not sampling.cost(1.0, draws).renyi:
        return None
    budget = PrivacyBudget(epsilon, delta)
    beside = PrivacyCost() if beside is None else beside
    multiplier = _best_order_multiplier(sampling, budget, releases, draws, "tight", beside)
    return (beside + releases * sampling.cost(multiplier, draws)).best_order(delta)


def paper_noise_multiplier(sampling: Sampling, epsilon: float, delta: float, releases: int) -> float:
    """The paper's calibration: Mironov's conversion, which asks for a little more noise, at the best order."""
    return _best_order_multiplier(sampling, PrivacyBudget(epsilon, delta), releases, 1, "paper", PrivacyCost())


def _best_order_multiplier(
    sampling: Sampling, budget: PrivacyBudget, releases: int, draws: int, conversion: Conversion, beside: PrivacyCost
) -> float:
    def fits(multiplier: float) -> bool:
        cost = beside + releases * sampling.cost(multiplier, draws)
        return cost.epsilon(budget.delta, conversion=conversion) <= budget.epsilon

    return _smallest_multiplier(fits, budget)


def _smallest_multiplier(fits: Callable[[float], bool], budget: PrivacyBudget) -> float:
    if math.isinf(budget.epsilon):
        return 0.0
    low = high = noise_multiplier(budget.epsilon, budget.delta, 1)
    while not fits(high):
        low, high = high, 2.0 * high
        if high > 1e9:
            raise ValueError("the budget leaves no room for these releases: use fewer passes or a larger epsilon")
    while low > 1e-6 and fits(low):
        low, high = low / 2.0, low
    while high / low > 1.0 + 1e-7:
        middle = math.sqrt(low * high)
        low, high = (low, middle) if fits(middle) else (middle, high)
    return high
