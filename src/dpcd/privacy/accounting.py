"""Exact privacy accounting: what a release costs, how costs add, and how much noise a budget asks for.

Neighbouring data sets replace one record. A release of a quantity of l2 sensitivity Δ with Gaussian noise of standard
deviation z·Δ has *noise multiplier* z; it is as hard to see through as telling N(0, 1) from N(1/z, 1). Releases with
multipliers z_k compose, with no loss, to one Gaussian with μ² = Σ 1/z_k² (Dong, Roth & Su 2022), also when each z_k is
chosen after looking at what was released before, as long as the sum stays below a limit that was fixed in advance
(Smith & Thakurta 2022). That is (ε, δ)-differentially private exactly when

    δ ≥ Φ(−ε/μ + μ/2) − e^ε Φ(−ε/μ − μ/2).

Everything is solved in logarithms and rounded to the private side: reported costs up, admitted budgets down.

The discrete Gaussian
---------------------
The noise is an integer, drawn from the discrete Gaussian p(k) ∝ e^{−k²/2σ²}, and the formula above is about the
continuous one. The difference is charged too.

**Lemma.** Let r be the law of a N(0, σ²) variable rounded to the nearest integer, σ ≥ 1. For |k| ≤ 64σ,
e^{−η} ≤ r(k)/p(k) ≤ e^η with η = 171/σ². Outside, both laws have mass below 2e^{−2000}.

*Proof.* With Z = Σ_k e^{−k²/2σ²} and t uniform on [−½, ½],
r(k)/p(k) = Z/(√(2π) σ) · E[exp(−(2kt + t²)/2σ²)].
Poisson summation gives Z/(√(2π) σ) = 1 + 2 Σ_{m≥1} e^{−2π²σ²m²}, between 1 and 1 + 3e^{−2π²σ²}.
*Below*: Jensen's inequality and E[t] = 0, E[t²] = 1/12 give r/p ≥ e^{−1/(24σ²)}.
*Above*: E[exp(−kt/σ²)] = sinh(a)/a with a = k/2σ², at most e^{a²/6} = e^{k²/(24σ⁴)} ≤ e^{170.7/σ²} for |k| ≤ 64σ, and
the factor e^{−t²/2σ²} ≤ 1 drops out; 3e^{−2π²σ²} < 0.3/σ². The tails are Gaussian tails at 64σ − ½. ∎

**Corollary.** Let K releases add discrete Gaussian noise of scales σ_k to integers, and let the same releases with
continuous noise be (ε, δ)-private. Adding a rounded Gaussian to an integer is rounding after adding a Gaussian, that
is post-processing, so the lemma's r inherits (ε, δ). Write P for the transcript's law with discrete noise, R with
rounded, on neighbours D, D', and H = Σ η_k. On either data set, whatever batches are drawn, P ≤ e^H R and R ≤ e^H P
where all noise stays within 64σ, and elsewhere both have next to no mass. Hence

    P_D(S) ≤ e^H R_D(S) + tail ≤ e^H (e^ε R_D'(S) + δ) + tail ≤ e^H (e^ε (e^H P_D'(S) + tail) + δ) + tail
           ≤ e^{ε + 2H} P_D'(S) + e^H δ + 3K e^{ε − 1999},

so the releases are (ε + 2H, e^H δ + tail)-private. σ ≥ 2³⁰ makes H about K·10⁻¹⁶; `PrivacyCost.discretization` carries
it and `epsilon` adds it. For ε ≤ 1000, which is all that is admitted, the tail is below any δ a float can hold, and
vanishes in the margin that δ is solved with. Samplers may cut noise off at the ends of int64, 128σ away: the same tail.

What is not Gaussian
--------------------
An ε-private release (δ = 0) is charged as a Gaussian with μ = 2Φ⁻¹(e^ε/(1 + e^ε)). The trade-off function of
ε-privacy is two line segments that meet where both errors are 1/(1 + e^ε); the Gaussian's is convex and passes through
that point and the end points, so it lies below.

An exponential mechanism picks j with probability ∝ e^{s_j/b}. Where neighbours' scores differ by d_j, its privacy loss
is d_j/b less a number that does not depend on j, so it lies in an interval of length η = (max d − min d)/b: the
mechanism has *bounded range* η, which says more than that it is η-private (Dong, Durfee & Rogers 2020).

**Lemma.** A release of bounded range η costs at most a Gaussian with μ = 2Φ⁻¹(1/(1 + e^{−η/2})): what an (η/2)-private
one costs.

*Proof.* Let P, Q be the laws of the output on neighbours. Under Q the ratio r = dP/dQ has mean 1 and lies in some
[e^{t−η}, e^t]. Trade-off functions are determined by E_Q[(r − c)₊], c ≥ 0, which is convex in r and so at its largest
when r takes the two ends of the interval alone. Such a pair has a trade-off function of two line segments, and the
Gaussian's, being convex, lies below it if it does where they meet. Write q = Q(r = e^t) and p = P(r = e^t); then
p = e^t q and 1 − p = e^{t−η}(1 − q), whence logit p = logit q + η. The segments meet at the errors q and 1 − p, and the
Gaussian lies below for μ ≥ Φ⁻¹(p) − Φ⁻¹(q) = h(x + η) − h(x), where x = logit q and h = Φ⁻¹ ∘ logit⁻¹. Over x that is
largest at x = −η/2, as claimed, if h', an even function, falls with |x|. At u = h(x) it is Φ(u)Φ(−u)/φ(u), whose
logarithm falls, for u > 0, where

    F(u) = 2aφ − u(¼ − a²) > 0,    φ = φ(u),    a = Φ(u) − ½.

F' = 2φ² − ¼ + a² and F'' = 2φ(a − 2uφ). The last factor is 0 at u = 0, falls until u = 1/√2 and rises from there to ½,
so F'' is first negative and then positive. F' begins at 1/π − ¼ > 0, falls, and then rises to its limit 0: it is
positive up to some point and negative beyond. F begins at 0 and tends to 0, so it is positive between. ∎

Choices one after the other compose as Gaussians do: k of them cost k times as much. That holds, as it does for
ε-private releases, where they are chosen after looking at what was released before: by Blackwell's theorem, for each
pair of neighbours and each history, a release whose trade-off function lies above a Gaussian's is post-processing of
that Gaussian, so the whole is post-processing of Gaussian releases that are chosen in the same way.

Secret sampling carries a Rényi curve, converted to (ε, δ) by the tight conversion of Canonne, Kamath & Steinke (2020)
and Balle et al. (2020). A budget for it fixes one Rényi order in advance, `PrivacyBudget.order`, at which *everything*
is then added up. Taking the best order, or the better of two ways to add up, after the fact would not do: costs depend
on what was released, and a choice that depends on it too is covered by neither theorem.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy.special import erf, erfinv, log_ndtr, ndtri_exp

Accounting = Literal["exact", "renyi", "closed-form"]
Conversion = Literal["tight", "paper"]

#: Rényi orders at which the curves of non-Gaussian mechanisms are kept.
ORDERS: NDArray[np.float64] = np.concatenate(
    [1.0 + np.geomspace(1e-3, 1.0, 64)[:-1], np.arange(2.0, 65.0), np.geomspace(64.0, 1e7, 540)[1:]]
)

#: η·σ² of the lemma above.
DISCRETIZATION = 171.0
#: Smallest noise, in lattice units, that a mechanism may use: keeps the lemma's charge near 10⁻¹⁶ a release.
SMALLEST_SCALE = 2.0**30
# What one draw of discrete noise is charged.
_CHARGE_PER_DRAW = DISCRETIZATION / SMALLEST_SCALE**2
# What is reserved of ε for these charges when noise is calibrated, as a part of min(ε, 1): room for 6·10⁸·ε draws.
_RESERVED = 1e-7
# Margin in log δ, for the rounding of what is solved for.
_MARGIN = 1e-9


class BudgetExceeded(RuntimeError):  # noqa: N818 - an event of the domain, named as users speak of it
    """A release would cost more than is left; nothing was read and nothing was charged for it."""


def _log1mexp(x: float) -> float:
    """log(1 − e^x) for x < 0."""
    return math.log(-math.expm1(x)) if x > -0.693 else math.log1p(-math.exp(x))


def gaussian_log_delta(epsilon: float, mu: float) -> float:
    """Log of the smallest δ for which a Gaussian of parameter μ is (ε, δ)-private."""
    if mu == 0.0:
        return -math.inf
    if math.isinf(mu):
        return 0.0 if math.isfinite(epsilon) else -math.inf
    upper = float(log_ndtr(-epsilon / mu + mu / 2.0))
    lower = epsilon + float(log_ndtr(-epsilon / mu - mu / 2.0))
    gap = lower - upper
    # The logarithms are right to a few units in the last place, so the gap is wrong by `error` at most. Rounded up:
    # what is returned is never below the truth, and says nothing where the two terms cannot be told apart.
    error = 1e-15 * (abs(upper) + abs(lower) + epsilon)
    return upper + _log1mexp(gap - error) if gap < 0.0 else upper + math.log(2.0 * error)


def _solve_increasing(function: Callable[[float], float], low: float, high: float) -> tuple[float, float]:
    """Bisect a sign change of an increasing function; returns the last point below zero and the first above."""
    for _ in range(200):
        middle = math.sqrt(low * high) if low > 0.0 and high / low > 2.0 else 0.5 * (low + high)
        if not low < middle < high:
            break
        if function(middle) <= 0.0:
            low = middle
        else:
            high = middle
    return low, high


def gaussian_epsilon(mu: float, delta: float) -> float:
    """Smallest ε, rounded up, for which a Gaussian of parameter μ is (ε, δ)-private."""
    if mu == 0.0:
        return 0.0
    if math.isinf(mu):
        return math.inf
    target = math.log(delta) - _MARGIN
    if gaussian_log_delta(0.0, mu) <= target:
        return 0.0
    high = 1.0
    while gaussian_log_delta(high, mu) > target:
        high *= 2.0
    return _solve_increasing(lambda epsilon: target - gaussian_log_delta(epsilon, mu), 0.0, high)[1]


def gaussian_mu(epsilon: float, delta: float) -> float:
    """Largest μ, rounded down, for which a Gaussian of parameter μ is (ε, δ)-private."""
    if math.isinf(epsilon):
        return math.inf
    target = math.log(delta) - _MARGIN
    high = 1.0
    while gaussian_log_delta(epsilon, high) <= target:
        high *= 2.0
    low = high / 2.0
    while gaussian_log_delta(epsilon, low) > target:
        low /= 2.0
    return _solve_increasing(lambda mu: gaussian_log_delta(epsilon, mu) - target, low, 2.0 * low)[0]


def largest_range(mu_squared: float) -> float:
    """Largest η, rounded down, for which a release of bounded range η costs at most μ²."""
    if math.isinf(mu_squared):
        return math.inf
    # The logit of Φ(μ/2), twice: in the form that keeps its digits around μ = 0, or in the tail.
    half = math.sqrt(mu_squared) / 2.0
    range_ = 4.0 * math.atanh(erf(half / math.sqrt(2.0))) if half < 1.0 else 2.0 * (log_ndtr(half) - log_ndtr(-half))
    return float(range_) * (1.0 - 4e-9)


@dataclass(frozen=True)
class PrivacyCost:
    """What one or many releases cost. All composition in the library is ``+`` and ``*`` of these.

    Parameters
    ----------
    mu_squared
        Σ μ² of the releases that are charged as Gaussians.
    discretization
        Σ η of the lemma in this module, over the discrete Gaussian integers drawn.
    renyi
        Rényi curve, at `ORDERS`, of everything else; empty when there is nothing else.
    """

    mu_squared: float = 0.0
    discretization: float = 0.0
    renyi: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        # In double precision whatever comes in: in single, many small costs would vanish beside a large one.
        object.__setattr__(self, "mu_squared", float(self.mu_squared))
        object.__setattr__(self, "discretization", float(self.discretization))
        object.__setattr__(self, "renyi", tuple(float(value) for value in self.renyi))
        if not all(part >= 0.0 for part in (self.mu_squared, self.discretization, *self.renyi)):  # refuses NaN too
            raise ValueError("a privacy cost has no negative and no undefined part")
        if len(self.renyi) not in (0, len(ORDERS)):
            raise ValueError(f"a Rényi curve has {len(ORDERS)} values, got {len(self.renyi)}")

    @classmethod
    def gaussian(cls, noise_multiplier: float, draws: int = 1) -> PrivacyCost:
        """One release with this noise multiplier, its noise made of `draws` discrete Gaussian integers.

        Each draw is charged as if its scale were the smallest that mechanisms may use.
        """
        if noise_multiplier == 0.0:
            return cls(mu_squared=math.inf)
        return cls(float(noise_multiplier) ** -2, draws * _CHARGE_PER_DRAW)

    @classmethod
    def pure_dp(cls, epsilon: float) -> PrivacyCost:
        """One ε-private release (δ = 0), such as a Laplace mechanism's, as the Gaussian that dominates it."""
        if math.isinf(epsilon):
            return cls(mu_squared=math.inf)
        # 2Φ⁻¹(1/(1 + e^{−ε})): in the form that keeps its digits around ε = 0, or in the tail; rounded up.
        epsilon = float(epsilon)
        if epsilon < 1.0:
            mu = 2.0 * math.sqrt(2.0) * float(erfinv(math.tanh(epsilon / 2.0)))
        else:
            mu = -2.0 * float(ndtri_exp(-float(np.logaddexp(0.0, epsilon))))
        return cls(mu**2 * (1.0 + 1e-9))

    @classmethod
    def bounded_range(cls, range_: float) -> PrivacyCost:
        """One release whose privacy loss lies in an interval of this length, such as a choice by noisy maximum."""
        return cls.pure_dp(range_ / 2.0)

    @classmethod
    def renyi_curve(cls, curve: Callable[[NDArray[np.float64]], NDArray[np.float64]], draws: int) -> PrivacyCost:
        """One release whose Rényi divergence at order α is at most ``curve(α)``, with `draws` discrete Gaussians."""
        return cls(0.0, draws * _CHARGE_PER_DRAW, tuple(np.asarray(curve(ORDERS), dtype=float).tolist()))

    def __add__(self, other: PrivacyCost) -> PrivacyCost:
        if not isinstance(other, PrivacyCost):
            return NotImplemented
        if self.renyi and other.renyi:
            renyi = tuple(a + b for a, b in zip(self.renyi, other.renyi, strict=True))
        else:
            renyi = self.renyi or other.renyi
        return PrivacyCost(
            self.mu_squared + other.mu_squared,
            self.discretization + other.discretization,
            renyi,
        )

    def __rmul__(self, count: int) -> PrivacyCost:
        if count < 0 or count != int(count):
            raise ValueError(f"a cost can be incurred a whole number of times, not {count}")
        if count == 0:
            return PrivacyCost()
        return PrivacyCost(
            count * self.mu_squared,
            count * self.discretization,
            tuple(count * value for value in self.renyi),
        )

    @property
    def mu(self) -> float:
        """μ of the Gaussian part."""
        return math.sqrt(self.mu_squared)

    def epsilon(self, delta: float, order: float | None = None, conversion: Conversion = "tight") -> float:
        """Smallest ε for which this cost, fixed in advance, is known to be (ε, δ)-private.

        Parameters
        ----------
        delta
            δ.
        order
            Rényi order (one of `ORDERS`) at which to add up. None: exactly, if everything is Gaussian, and otherwise at
            the best order, which is right for costs that do not depend on what was released.
        conversion
            ``"paper"`` uses Mironov's conversion at the best order for everything, as the DP-CD paper does.
        """
        check_delta(delta)
        if math.isinf(self.mu_squared):
            return math.inf
        log_delta = math.log(delta) - self.discretization
        if order is None and not self.renyi and conversion == "tight":
            return gaussian_epsilon(self.mu, math.exp(log_delta)) + 2.0 * self.discretization
        if conversion == "paper":
            converted = -log_delta / (ORDERS - 1.0)
        else:
            converted = np.log1p(-1.0 / ORDERS) - (log_delta + np.log(ORDERS)) / (ORDERS - 1.0)
        totals = self.mu_squared / 2.0 * ORDERS + converted + (np.asarray(self.renyi) if self.renyi else 0.0)
        best = np.min(totals) if order is None else totals[_order_index(order)]
        return max(0.0, float(best)) + 2.0 * self.discretization

    def best_order(self, delta: float) -> float:
        """The Rényi order at which `epsilon` is smallest, for a cost that is fixed in advance."""
        return float(min(ORDERS, key=lambda order: self.epsilon(delta, order)))


def _order_index(order: float) -> int:
    where = np.flatnonzero(order == ORDERS)
    if not len(where):
        raise ValueError(f"{order!r} is not one of the Rényi orders at which curves are kept")
    return int(where[0])


@dataclass(frozen=True)
class PrivacyBudget:
    """The (ε, δ) that everything released about a data set must stay within.

    Parameters
    ----------
    epsilon
        ε > 0. Infinite means no privacy at all: releases without noise are admitted.
    delta
        δ in (0, 1).
    order
        None admits what is charged as Gaussian, and adds it up exactly. A Rényi order (one of `ORDERS`), fixed before
        anything is released, admits secret sampling too, and adds everything up at that order.
    """

    epsilon: float
    delta: float
    order: float | None = None

    def __post_init__(self) -> None:
        check_epsilon(self.epsilon)
        check_delta(self.delta)
        object.__setattr__(self, "epsilon", float(self.epsilon))
        object.__setattr__(self, "delta", float(self.delta))
        if self.order is not None:
            _order_index(self.order)

    def admits(self, cost: PrivacyCost) -> bool:
        """Whether the cost stays within the budget."""
        if math.isinf(self.epsilon):
            return True
        if cost.renyi and self.order is None:
            raise ValueError(
                "this budget is for releases that are charged as Gaussian, and secret sampling is not one of them: fix "
                "a Rényi order before anything is released, as in PrivacyBudget(epsilon, delta, order)"
            )
        return cost.epsilon(self.delta, self.order) <= self.epsilon

    @property
    def _reserve(self) -> float:
        return _RESERVED * min(1.0, self.epsilon)

    def as_gaussian(self) -> PrivacyCost:
        """What Gaussian releases that use up all of it cost, with what is reserved for their discreteness."""
        return PrivacyCost(self.gaussian_room(), self._reserve)

    def gaussian_room(self, spent: PrivacyCost | None = None, draws: int = 0) -> float:
        """Largest μ² of Gaussian releases that still fits after `spent` (infinite if ε is), rounded down.

        What the discrete noise of those releases will be charged is reserved here: for `draws` of them, or for many.
        """
        if math.isinf(self.epsilon):
            return math.inf
        spent = PrivacyCost() if spent is None else spent
        reserved = spent + PrivacyCost(discretization=max(self._reserve, draws * _CHARGE_PER_DRAW))
        if self.order is not None:
            # ε is μ²·order/2 plus what does not depend on μ², where it is not cut off at 0.
            uncut = PrivacyCost(reserved.mu_squared + 100.0, reserved.discretization, reserved.renyi)
            room = 100.0 - (uncut.epsilon(self.delta, self.order) - self.epsilon) * 2.0 / self.order
            room -= 1e-12  # the rounding of this difference, which may be large beside what is left
        else:
            epsilon = self.epsilon - 2.0 * reserved.discretization
            delta = self.delta * math.exp(-reserved.discretization)
            total = gaussian_mu(epsilon, delta) if epsilon > 0.0 else 0.0
            room = total**2 - reserved.mu_squared
        return max(0.0, room) * (1.0 - 1e-9)


def noise_multiplier(epsilon: float, delta: float, releases: int, accounting: Accounting = "exact") -> float:
    """Noise multiplier with which `releases` Gaussian releases are together (ε, δ)-private.

    The noise multiplier is the standard deviation of the noise divided by the sensitivity of what is released.

    Parameters
    ----------
    epsilon, delta
        The budget for all releases together.
    releases
        Number of releases (for DP-CD, of coordinate updates: T·K in the paper).
    accounting
        ``"exact"``: the smallest noise that is (ε, δ)-private, by the Gaussian trade-off function, rounded up.
        ``"renyi"``: the paper's formula ε = K/(2z²) + sqrt(2K log(1/δ))/z, needlessly noisy, for reproduction.
        ``"closed-form"``: Theorem 1 of the paper, z = sqrt(3K log(1/δ))/ε, for ε ≤ 1 and δ < 1/3.

    Examples
    --------
    >>> round(noise_multiplier(1.0, 1 / 45312**2, 400), 2)
    112.28
    >>> round(noise_multiplier(1.0, 1 / 45312**2, 400, accounting="renyi"), 2)
    132.48
    """
    check_epsilon(epsilon)
    check_delta(delta)
    if releases < 1 or releases != int(releases):
        raise ValueError(f"releases must be a whole number of at least 1, got {releases!r}")
    if math.isinf(epsilon):
        return 0.0
    log_inverse = math.log(1.0 / delta)
    if accounting == "exact":
        return math.sqrt(releases / PrivacyBudget(epsilon, delta).gaussian_room(draws=releases))
    if accounting == "renyi":
        # The positive root μ of μ²/2 + sqrt(2 log(1/δ)) μ = ε, in the form that does not cancel.
        slope = math.sqrt(2.0 * log_inverse)
        mu = 2.0 * epsilon / (slope + math.sqrt(slope**2 + 2.0 * epsilon))
        return math.sqrt(releases) / mu * (1.0 + 1e-12)
    if accounting == "closed-form":
        if epsilon > 1.0 or delta >= 1.0 / 3.0:
            raise ValueError(
                f"Theorem 1's closed form holds for epsilon <= 1 and delta < 1/3, got epsilon={epsilon}, "
                f"delta={delta}; use accounting='exact', which has no such limit"
            )
        return math.sqrt(3.0 * releases * log_inverse) / epsilon * (1.0 + 1e-12)
    raise ValueError(f"accounting must be 'exact', 'renyi' or 'closed-form', got {accounting!r}")


#: Finite budgets outside are refused: below, the charges for discrete noise would be a large part of it; above, the
#: tail of the lemma would not be negligible.
SMALLEST_EPSILON, LARGEST_EPSILON = 1e-4, 1000.0


def check_epsilon(epsilon: float) -> None:
    """Raise unless ε is a positive number in the range that can be accounted for, or infinite."""
    number = isinstance(epsilon, (int, float, np.integer, np.floating)) and not isinstance(epsilon, bool)
    if not (number and epsilon > 0):
        raise ValueError(
            f"epsilon must be a positive number (smaller is more private; 1 is common, math.inf switches privacy "
            f"off), got {epsilon!r}"
        )
    if math.isfinite(epsilon) and not SMALLEST_EPSILON <= epsilon <= LARGEST_EPSILON:
        raise ValueError(
            f"epsilon must lie between {SMALLEST_EPSILON:g} (below, nothing but noise can be released) and "
            f"{LARGEST_EPSILON:g} (above, use math.inf: there is no privacy left), got {epsilon!r}"
        )


def check_delta(delta: float) -> None:
    """Raise unless δ lies strictly between 0 and 1."""
    if not (isinstance(delta, (int, float, np.integer, np.floating)) and 0.0 < delta < 1.0):
        raise ValueError(f"delta must lie strictly between 0 and 1 (well below 1/n; None means 1/n**2), got {delta!r}")
