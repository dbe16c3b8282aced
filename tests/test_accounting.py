import math

import mpmath
import numpy as np
import pytest
from dp_accounting import GaussianDpEvent, LaplaceDpEvent, SelfComposedDpEvent
from dp_accounting.pld import PLDAccountant
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from dpcd.privacy import PrivacyBudget, PrivacyCost, noise_multiplier
from dpcd.privacy.accounting import (
    DISCRETIZATION,
    ORDERS,
    gaussian_epsilon,
    gaussian_log_delta,
    gaussian_mu,
    largest_range,
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
            # Never below the truth, and close to it.
            assert 0.0 <= ours - float(mpmath.log(exact)) + 1e-14 < 1e-8


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
    tight = cost.epsilon(delta, cost.best_order(delta))
    assert cost.epsilon(delta) <= epsilon
    assert cost.epsilon(delta) <= tight + 1e-9 <= cost.epsilon(delta, conversion="paper") + 1e-9


def test_paper_conversion_is_mironovs():
    cost = 400 * PrivacyCost.gaussian(noise_multiplier(1.0, DELTA, 400, "renyi"))
    # The minimum over a grid of orders is at or above the minimum over all of them, which is what was calibrated.
    assert 1.0 <= cost.epsilon(DELTA, conversion="paper") <= 1.001


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
    shifted = gaussian_epsilon(0.1, 1e-6 * math.exp(-0.05))
    assert shifted > plain.epsilon(1e-6)
    assert cost.epsilon(1e-6) == shifted + 0.1
    order = plain.best_order(1e-6)
    assert cost.epsilon(1e-6, order) >= plain.epsilon(1e-6, order) + 0.1
    assert (10**6 * PrivacyCost.gaussian(1e4)).discretization == pytest.approx(10**6 * 171 / 2**60, abs=0)
    assert PrivacyCost.gaussian(5.0, draws=7).discretization == pytest.approx(7 * 171 / 2**60, abs=0)
    assert PrivacyCost.renyi_curve(np.zeros_like, draws=7).discretization == pytest.approx(7 * 171 / 2**60, abs=0)


def test_the_room_leaves_place_for_the_charges_of_discrete_noise():
    for epsilon, draws in ((1.0, 10**8), (1e-3, 10**5), (10.0, 10**9)):
        multiplier = noise_multiplier(epsilon, 1e-6, draws)
        assert PrivacyBudget(epsilon, 1e-6).admits(draws * PrivacyCost.gaussian(multiplier))
    budget = PrivacyBudget(1.0, 1e-6)
    spent = PrivacyCost(0.01, discretization=1e-3)
    assert budget.admits(spent + PrivacyCost(budget.gaussian_room(spent)))
    assert budget.gaussian_room(spent) < budget.gaussian_room(PrivacyCost(0.01)) * (1 - 1e-4)


def test_costs_compose_by_addition_and_multiplication():
    a, b = PrivacyCost.gaussian(3.0), PrivacyCost.renyi_curve(lambda order: 0.02 * order, draws=1)
    c = PrivacyCost.renyi_curve(lambda order: 0.01 * order**0.5, draws=2)
    assert ((a + b) + c).renyi == pytest.approx((a + (b + c)).renyi)
    np.testing.assert_allclose((b + c).renyi, 0.02 * ORDERS + 0.01 * np.sqrt(ORDERS))
    np.testing.assert_allclose((3 * b).renyi, 0.06 * ORDERS)
    assert (3 * a).mu_squared == pytest.approx((a + a + a).mu_squared)
    assert 0 * a == PrivacyCost()
    assert (5 * a).mu_squared == pytest.approx(5 / 9)
    with pytest.raises(ValueError, match="whole number"):
        0.5 * a
    with pytest.raises(ValueError, match="negative"):
        PrivacyCost(mu_squared=-1.0)
    with pytest.raises(ValueError, match="undefined"):
        PrivacyCost(mu_squared=math.nan)
    with pytest.raises(ValueError, match="Rényi curve has"):
        PrivacyCost(renyi=(1.0, 2.0))


def test_costs_are_kept_in_double_precision():
    """In half precision a large cost would swallow any number of small ones."""
    spent = PrivacyCost(np.float16(0.0156), np.float32(1e-9))
    assert type(spent.mu_squared) is type(spent.discretization) is float
    for _ in range(1000):
        spent = spent + PrivacyCost.gaussian(np.float32(400.0))
    assert spent.mu_squared == pytest.approx(0.0156 + 1000 / 400.0**2, rel=1e-3)
    assert not PrivacyBudget(np.float16(1), 1e-6).admits(PrivacyCost(PrivacyBudget(1.0005, 1e-6).gaussian_room()))


@settings(max_examples=60, deadline=None)
@given(st.floats(1e-4, 20.0), st.floats(0.0, 1.0))
def test_pure_privacy_is_dominated_by_the_gaussian_it_is_charged_as(epsilon, false_positives):
    """The Gaussian's trade-off function lies below that of every ε-private mechanism."""
    mu = PrivacyCost.pure_dp(epsilon).mu
    gaussian = stats.norm.cdf(stats.norm.isf(false_positives) - mu)
    pure = max(0.0, 1 - math.exp(epsilon) * false_positives, math.exp(-epsilon) * (1 - false_positives))
    assert gaussian <= pure + 1e-12
    vertex = 1 / (1 + math.exp(epsilon))
    assert stats.norm.cdf(stats.norm.isf(vertex) - mu) == pytest.approx(vertex, rel=1e-6)


@settings(max_examples=200, deadline=None)
@given(st.floats(-140.0, 1.4))
def test_pure_privacy_is_charged_to_the_digit_and_rounded_up(log_epsilon):
    epsilon = 10.0**log_epsilon
    with mpmath.workdps(60):
        exact = 8 * mpmath.erfinv(mpmath.tanh(mpmath.mpf(epsilon) / 2)) ** 2
        assert 0 < PrivacyCost.pure_dp(epsilon).mu_squared / exact - 1 < 2e-9


@settings(max_examples=200, deadline=None)
@given(st.floats(-280.0, 2.0))
def test_the_largest_range_is_rounded_down(log_mu_squared):
    mu_squared = 10.0**log_mu_squared
    with mpmath.workdps(60):
        exact = 4 * mpmath.atanh(mpmath.erf(mpmath.sqrt(mu_squared) / (2 * mpmath.sqrt(2))))
        assert 0 < 1 - largest_range(mu_squared) / exact < 5e-9
    assert mu_squared * (1 - 1e-8) < PrivacyCost.bounded_range(largest_range(mu_squared)).mu_squared <= mu_squared


def test_laplace_releases_against_dp_accounting():
    """Charging Laplace releases as Gaussians is safe: never below their exact privacy loss distribution."""
    cost = 100 * PrivacyCost.gaussian(60.0) + 8 * PrivacyCost.pure_dp(0.02)
    accountant = PLDAccountant(value_discretization_interval=1e-4)
    accountant.compose(SelfComposedDpEvent(GaussianDpEvent(60.0), 100))
    accountant.compose(SelfComposedDpEvent(LaplaceDpEvent(50.0), 8))
    theirs = accountant.get_epsilon(1e-6)
    assert theirs * (1 - 1e-3) <= cost.epsilon(1e-6) <= theirs * 1.05


class TestFilter:
    """Costs that depend on released values must be added up in a way that was fixed before."""

    curve = PrivacyCost.renyi_curve(lambda order: 1e-4 * order, draws=1)

    def test_a_gaussian_budget_admits_nothing_else(self):
        with pytest.raises(ValueError, match="fix a Rényi order before anything is released"):
            PrivacyBudget(1.0, 1e-6).admits(self.curve)

    def test_a_budget_with_an_order_adds_everything_up_at_that_order(self):
        budget = PrivacyBudget(1.0, 1e-6, 20.0)
        for cost in (PrivacyCost.gaussian(6.0), self.curve, 10 * self.curve + PrivacyCost.gaussian(9.0)):
            index = int(np.flatnonzero(ORDERS == 20.0)[0])
            at_order = 10.0 * cost.mu_squared + (cost.renyi[index] if cost.renyi else 0.0)
            at_order += math.log1p(-1 / 20) - (math.log(1e-6) + math.log(20)) / 19
            assert cost.epsilon(1e-6, 20.0) == pytest.approx(max(0.0, at_order), abs=1e-9)
            assert budget.admits(cost) == (at_order <= 1.0)
        room = budget.gaussian_room(self.curve)
        assert budget.admits(self.curve + PrivacyCost(room))
        assert not budget.admits(self.curve + PrivacyCost(room * (1 + 1e-5)))

    def test_orders_are_those_of_the_curves(self):
        with pytest.raises(ValueError, match="not one of the Rényi orders"):
            PrivacyBudget(1.0, 1e-6, 20.001)


@settings(max_examples=25, deadline=None)
@given(st.floats(0.05, 10.0), st.floats(1e-10, 1e-3), st.floats(0.01, 0.9))
def test_gaussian_room_fits_and_is_tight(epsilon, delta, share):
    budget = PrivacyBudget(epsilon, delta)
    for spent in (PrivacyCost(), PrivacyCost(share * budget.gaussian_room()), PrivacyCost.pure_dp(share * epsilon / 9)):
        room = budget.gaussian_room(spent)
        assert budget.admits(spent + PrivacyCost(room))
        assert not budget.admits(spent + PrivacyCost(room * (1 + 1e-4) + 1e-9))


def test_no_room_is_left_after_overspending_and_infinite_room_without_privacy():
    budget = PrivacyBudget(1.0, 1e-6)
    assert budget.gaussian_room(PrivacyCost(100.0)) == 0.0
    assert budget.gaussian_room(PrivacyCost.pure_dp(3.0)) == 0.0
    assert math.isinf(PrivacyBudget(math.inf, 1e-6).gaussian_room())
    assert noise_multiplier(math.inf, 1e-6, 10) == 0.0
    assert PrivacyBudget(math.inf, 1e-6).admits(PrivacyCost.gaussian(0.0))
    assert not budget.admits(PrivacyCost.gaussian(0.0))


@pytest.mark.parametrize("epsilon", [0.0, -1.0, math.nan, "1", None, True])
def test_bad_epsilon(epsilon):
    with pytest.raises(ValueError, match="epsilon must be a positive number"):
        noise_multiplier(epsilon, 1e-6, 1)


@pytest.mark.parametrize("epsilon", [1e-5, 1e4])
def test_impossible_budgets(epsilon):
    with pytest.raises(ValueError, match=r"epsilon must lie between 0.0001 .* and 1000 "):
        PrivacyBudget(epsilon, 1e-6)


@pytest.mark.parametrize("epsilon", [1e-4, 1.0, 1e3])
@pytest.mark.parametrize("delta", [1e-300, 1e-6, 0.9])
def test_extreme_budgets_have_room_and_keep_to_it(epsilon, delta):
    budget = PrivacyBudget(epsilon, delta)
    room = budget.gaussian_room()
    assert room > 0.0
    assert budget.admits(PrivacyCost(room, discretization=1e-7 * min(1.0, epsilon)))


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
