import math

import mpmath
import numpy as np
import pytest
from dp_accounting import GaussianDpEvent, LaplaceDpEvent, SelfComposedDpEvent
from dp_accounting.pld import PLDAccountant
from dp_accounting.rdp import RdpAccountant
from hypothesis import given, settings
from hypothesis import strategies as st

from dpcd.privacy import PrivacyBudget, PrivacyCost, noise_multiplier
from dpcd.privacy.accounting import (
    DISCRETIZATION,
    ORDERS,
    gaussian_epsilon,
    gaussian_log_delta,
    gaussian_mu,
    randomized_response_curve,
)

DELTA = 1 / 45312**2


@pytest.mark.parametrize(
    ("accounting", "epsilon", "expected"),
    [
        ("exact", 0.1, 1029.71),
        ("exact", 1.0, 112.278),
        ("exact", 10.0, 13.213),
        ("renyi", 0.1, 1311.26),
        ("renyi", 1.0, 132.483),
        ("renyi", 10.0, 14.479),
        ("closed-form", 0.1, 1604.09),
        ("closed-form", 1.0, 160.409),
    ],
)
def test_noise_multiplier_of_400_releases(accounting, epsilon, expected):
    assert noise_multiplier(epsilon, DELTA, 400, accounting) == pytest.approx(expected, rel=3e-5)


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 10.0])
@pytest.mark.parametrize("releases", [1, 400])
def test_exact_accounting_agrees_with_privacy_loss_distributions(epsilon, releases):
    z = noise_multiplier(epsilon, 1e-6, releases)
    accountant = PLDAccountant(value_discretization_interval=1e-4 * epsilon)
    accountant.compose(SelfComposedDpEvent(GaussianDpEvent(z), releases))
    # Their grid rounds up, so it may say a little more than what we asked for, never less.
    assert epsilon * (1 - 1e-6) <= accountant.get_epsilon(1e-6) <= epsilon * (1 + 5e-3)


@settings(max_examples=60, deadline=None)
@given(st.floats(1e-3, 50.0), st.floats(1e-2, 20.0))
def test_log_delta_is_accurate(epsilon, mu):
    ours = gaussian_log_delta(epsilon, mu)
    with mpmath.workdps(80):
        e, m = mpmath.mpf(epsilon), mpmath.mpf(mu)
        exact = mpmath.ncdf(-e / m + m / 2) - mpmath.exp(e) * mpmath.ncdf(-e / m - m / 2)
        # Far in the tail mpmath's own difference cancels; nobody has a δ there.
        if exact > mpmath.mpf(10) ** -50:
            assert abs(ours - float(mpmath.log(exact))) < 1e-10


@settings(max_examples=60, deadline=None)
@given(st.floats(1e-3, 100.0), st.floats(-40.0, -0.5))
def test_conversions_are_inverse_and_rounded_to_the_private_side(epsilon, log_delta):
    delta = math.exp(log_delta)
    mu = gaussian_mu(epsilon, delta)
    assert gaussian_log_delta(epsilon, mu) <= log_delta
    assert gaussian_log_delta(epsilon, mu * (1 + 1e-6)) > log_delta
    back = gaussian_epsilon(mu, delta)
    assert back <= epsilon * (1 + 1e-9)
    assert back == pytest.approx(epsilon, rel=1e-5, abs=1e-7)


@settings(max_examples=40, deadline=None)
@given(st.floats(0.01, 1.0), st.floats(1e-12, 0.3), st.integers(1, 10_000))
def test_paper_is_noisier_than_tight_renyi_which_is_noisier_than_exact(epsilon, delta, releases):
    exact, renyi, closed = (noise_multiplier(epsilon, delta, releases, a) for a in ("exact", "renyi", "closed-form"))
    assert exact < renyi < closed
    cost = releases * PrivacyCost.gaussian(exact)
    tight = (cost + PrivacyCost.pure_dp(0.0))._renyi_epsilon(
        delta, np.log1p(-1 / ORDERS) - (math.log(delta) + np.log(ORDERS)) / (ORDERS - 1)
    )
    assert cost.epsilon(delta) <= epsilon
    assert cost.epsilon(delta) <= tight + 1e-9 <= cost.epsilon(delta, "paper") + 1e-9


def test_paper_conversion_is_mironovs():
    cost = 400 * PrivacyCost.gaussian(noise_multiplier(1.0, DELTA, 400, "renyi"))
    # The minimum over a grid of orders is at or above the minimum over all of them, which is what was calibrated.
    assert 1.0 <= cost.epsilon(DELTA, "paper") <= 1.001


@pytest.mark.parametrize("sigma", [1.0, 2.0, 7.3, 40.0])
def test_lemma_rounded_against_discrete_gaussian(sigma):
    with mpmath.workdps(60):
        s = mpmath.mpf(sigma)
        reach = int(64 * sigma)
        normalizer = mpmath.nsum(lambda k: mpmath.exp(-(k**2) / (2 * s**2)), [-mpmath.inf, mpmath.inf])
        worst = mpmath.mpf(0)
        for k in sorted({0, 1, 2, reach // 7, reach // 3, reach // 2, reach}):
            discrete = mpmath.exp(-(k**2) / (2 * s**2)) / normalizer
            # erfc, not differences of the distribution function, which cancel in the tail.
            rounded = (
                mpmath.erfc((k - 0.5) / (s * mpmath.sqrt(2))) - mpmath.erfc((k + 0.5) / (s * mpmath.sqrt(2)))
            ) / 2
            worst = max(worst, abs(mpmath.log(rounded / discrete)))
        assert worst <= DISCRETIZATION / sigma**2
    # The constant is not idle: a tenth of it would be wrong.
    assert worst > 0.1 * DISCRETIZATION / sigma**2


def test_discretization_is_charged():
    cost = PrivacyCost(mu_squared=0.01, discretization=0.05)
    plain = PrivacyCost(mu_squared=0.01)
    assert cost.epsilon(1e-6) >= plain.epsilon(1e-6) + 0.1
    assert (10**6 * PrivacyCost.gaussian(1e4)).discretization == pytest.approx(10**6 * 171 / 2**60)
    assert PrivacyCost.gaussian(5.0, draws=7).discretization == pytest.approx(7 * 171 / 2**60)


def test_costs_compose_by_addition_and_multiplication():
    a, b, c = PrivacyCost.gaussian(3.0), PrivacyCost.pure_dp(0.2), PrivacyCost.renyi_curve(lambda order: 0.01 * order)
    assert (a + b) + c == a + (b + c)
    assert 3 * a == a + a + a
    assert (2 * b).pure == pytest.approx(0.4)
    assert math.isinf((b + c).pure)
    assert 0 * a == PrivacyCost()
    assert (5 * a).mu_squared == pytest.approx(5 / 9)
    with pytest.raises(ValueError, match="whole number"):
        0.5 * a
    with pytest.raises(ValueError, match="negative"):
        PrivacyCost(mu_squared=-1.0)
    with pytest.raises(ValueError, match="undefined"):
        PrivacyCost(mu_squared=math.nan)


@settings(max_examples=30, deadline=None)
@given(st.floats(0.01, 5.0), st.floats(1.001, 200.0))
def test_randomized_response_bounds_the_laplace_mechanism(epsilon, order):
    """RDP of the Laplace mechanism (Mironov 2017, table II) lies below the curve charged for any pure mechanism."""
    k = int(np.argmin(np.abs(ORDERS - order)))
    a = ORDERS[k]
    laplace = np.logaddexp(
        math.log(a / (2 * a - 1)) + (a - 1) * epsilon,
        math.log((a - 1) / (2 * a - 1)) - a * epsilon,
    ) / (a - 1)
    assert laplace <= randomized_response_curve(epsilon)[k] * (1 + 1e-9) + 1e-12


def test_mixture_of_gaussian_and_pure_releases_against_dp_accounting():
    cost = 100 * PrivacyCost.gaussian(60.0) + 8 * PrivacyCost.pure_dp(0.02)
    accountant = RdpAccountant(orders=list(ORDERS[ORDERS < 2000]))
    accountant.compose(SelfComposedDpEvent(GaussianDpEvent(60.0), 100))
    accountant.compose(SelfComposedDpEvent(LaplaceDpEvent(50.0), 8))
    theirs = accountant.get_epsilon(1e-6)
    ours = cost.epsilon(1e-6)
    # We bound any pure mechanism, they know it is Laplace: ours is larger, by little. Basic composition bounds both.
    assert theirs <= ours <= min(1.05 * theirs, (100 * PrivacyCost.gaussian(60.0)).epsilon(1e-6) + 0.16)


@settings(max_examples=25, deadline=None)
@given(st.floats(0.05, 10.0), st.floats(1e-10, 1e-3), st.floats(0.01, 0.9))
def test_gaussian_room_fits_and_is_tight(epsilon, delta, share):
    budget = PrivacyBudget(epsilon, delta)
    for spent in (
        PrivacyCost(),
        PrivacyCost(share * budget.gaussian_room()),
        4 * PrivacyCost.pure_dp(share * epsilon / 4),
    ):
        room = budget.gaussian_room(spent)
        assert budget.admits(spent + PrivacyCost(room))
        assert not budget.admits(spent + PrivacyCost(room * (1 + 1e-4) + 1e-12))


def test_no_room_is_left_after_overspending_and_infinite_room_without_privacy():
    budget = PrivacyBudget(1.0, 1e-6)
    assert budget.gaussian_room(PrivacyCost(100.0)) == 0.0
    assert budget.gaussian_room(PrivacyCost.pure_dp(1.5)) == 0.0
    assert math.isinf(PrivacyBudget(math.inf, 1e-6).gaussian_room())
    assert noise_multiplier(math.inf, 1e-6, 10) == 0.0
    assert PrivacyBudget(math.inf, 1e-6).admits(PrivacyCost.gaussian(0.0))
    assert not budget.admits(PrivacyCost.gaussian(0.0))


@pytest.mark.parametrize("epsilon", [0.0, -1.0, math.nan, "1", None, True])
def test_bad_epsilon(epsilon):
    with pytest.raises(ValueError, match="epsilon must be a positive number"):
        noise_multiplier(epsilon, 1e-6, 1)


@pytest.mark.parametrize("epsilon", [1e-12, 1e9])
def test_impossible_budgets(epsilon):
    with pytest.raises(ValueError, match=r"epsilon must lie between 1e-08 .* and 100000"):
        PrivacyBudget(epsilon, 1e-6)


@pytest.mark.parametrize("epsilon", [1e-8, 1e-3, 1e5])
@pytest.mark.parametrize("delta", [1e-300, 1e-6, 0.9])
def test_extreme_budgets_have_room_and_keep_to_it(epsilon, delta):
    budget = PrivacyBudget(epsilon, delta)
    room = budget.gaussian_room()
    assert room > 0.0
    assert budget.admits(PrivacyCost(room, discretization=2e-10))


@pytest.mark.parametrize("delta", [0.0, 1.0, -0.1, math.nan, "x", None])
def test_bad_delta(delta):
    with pytest.raises(ValueError, match="delta must lie strictly between 0 and 1"):
        PrivacyBudget(1.0, delta)


def test_bad_releases_and_accounting():
    with pytest.raises(ValueError, match="releases"):
        noise_multiplier(1.0, 1e-6, 0)
    with pytest.raises(ValueError, match="accounting must be"):
        noise_multiplier(1.0, 1e-6, 1, "loose")
    with pytest.raises(ValueError, match="Theorem 1"):
        noise_multiplier(2.0, 1e-6, 1, "closed-form")
