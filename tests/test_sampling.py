import itertools
import math

import mpmath
import numpy as np
import pytest
from dp_accounting import (
    GaussianDpEvent,
    NeighboringRelation,
    PoissonSampledDpEvent,
    SampledWithoutReplacementDpEvent,
    SelfComposedDpEvent,
)
from dp_accounting.rdp import RdpAccountant
from scipy import stats

from dpcd.privacy import PrivacyBudget, PrivacyCost
from dpcd.privacy.sampling import (
    FixedSize,
    Poisson,
    _log_even_moments,
    paper_noise_multiplier,
    planned_order,
    poisson_gaussian_curve,
    sampled_noise_multiplier,
    wor_gaussian_curve,
)

ORDERS = np.array([2, 3, 5, 8, 16, 32, 64])


@pytest.mark.parametrize("multiplier", [0.5, 1.0, 5.0])
@pytest.mark.parametrize("rate", [1e-4, 0.01, 0.2])
def test_curves_agree_with_dp_accounting(multiplier, rate):
    accountant = RdpAccountant(list(ORDERS))
    accountant.compose(PoissonSampledDpEvent(rate, GaussianDpEvent(multiplier)))
    np.testing.assert_allclose(poisson_gaussian_curve(multiplier, rate, ORDERS), accountant._rdp, rtol=1e-6, atol=1e-13)
    accountant = RdpAccountant(list(ORDERS), neighboring_relation=NeighboringRelation.REPLACE_ONE)
    accountant.compose(SampledWithoutReplacementDpEvent(10_000, int(rate * 10_000), GaussianDpEvent(multiplier)))
    ours = wor_gaussian_curve(multiplier, rate, ORDERS)
    # Both are bounds; theirs gives up on its sharper terms where they cancel, ours does not.
    assert np.all(ours <= accountant._rdp * (1 + 1e-6) + 1e-13)
    np.testing.assert_allclose(ours, accountant._rdp, rtol=0.05, atol=1e-13)


@pytest.mark.parametrize("multiplier", [0.7, 2.0, 30.0])
def test_moments_of_the_likelihood_ratio(multiplier):
    ours = _log_even_moments(multiplier, 12)
    with mpmath.workdps(80):
        for k in range(1, 7):
            power = 2 * k
            exact = sum(
                (-1) ** (power - i)
                * mpmath.binomial(power, i)
                * mpmath.exp(mpmath.mpf(i * (i - 1)) / (2 * multiplier**2))
                for i in range(power + 1)
            )
            assert float(mpmath.log(exact)) <= ours[k] <= float(mpmath.log(exact)) + 1e-8


def planned(sampling, epsilon, delta, releases, draws=3):
    """A budget with the order that suits these releases."""
    return PrivacyBudget(epsilon, delta, planned_order(sampling, epsilon, delta, releases, draws))


@pytest.mark.parametrize("sampling", [FixedSize(100, 10_000), Poisson(0.01, 10_000)])
def test_sampling_amplifies_and_calibration_is_tight(sampling):
    budget = planned(sampling, 1.0, 1e-6, 500)
    multiplier = sampled_noise_multiplier(sampling, budget, 500, 3)
    assert budget.admits(500 * sampling.cost(multiplier, 3))
    assert not budget.admits(500 * sampling.cost(multiplier * (1 - 1e-4), 3))
    unamplified = math.sqrt(500 / PrivacyBudget(1.0, 1e-6).gaussian_room())
    assert multiplier < 0.1 * unamplified
    paper = paper_noise_multiplier(sampling, 1.0, 1e-6, 500)
    assert multiplier < paper < 1.3 * multiplier
    after = sampled_noise_multiplier(sampling, budget, 500, 3, spent=PrivacyCost.gaussian(20.0))
    assert after > multiplier


def test_calibration_against_dp_accounting():
    fixed, poisson = FixedSize(10, 10_000), Poisson(1e-3, 10_000)
    for sampling, event, relation in (
        (poisson, lambda z: PoissonSampledDpEvent(1e-3, GaussianDpEvent(z)), "ADD_OR_REMOVE_ONE"),
        (fixed, lambda z: SampledWithoutReplacementDpEvent(10_000, 10, GaussianDpEvent(z)), "REPLACE_ONE"),
    ):
        multiplier = sampled_noise_multiplier(sampling, planned(sampling, 1.0, 1e-7, 20_000), 20_000, 3)
        accountant = RdpAccountant(neighboring_relation=NeighboringRelation[relation])
        accountant.compose(SelfComposedDpEvent(event(multiplier), 20_000))
        assert accountant.get_epsilon(1e-7) == pytest.approx(1.0, rel=0.02)


@pytest.mark.parametrize("rate", [1e-8, 1e-6])
def test_curves_keep_their_digits_at_the_smallest_rates(rate):
    orders = np.array([2, 3, 8])
    with mpmath.workdps(60):
        q = mpmath.mpf(rate)
        for order, ours in zip(orders.tolist(), poisson_gaussian_curve(1.0, rate, orders), strict=True):
            exact = mpmath.fsum(
                mpmath.binomial(order, k) * (1 - q) ** (order - k) * q**k * mpmath.exp(mpmath.mpf(k * (k - 1)) / 2)
                for k in range(order + 1)
            )
            assert ours == pytest.approx(float(mpmath.log(exact) / (order - 1)), rel=1e-9)
        second = min(4 * (mpmath.e - 1), 2 * mpmath.e)
        exact = float(mpmath.log(1 + q**2 * second))
        assert wor_gaussian_curve(1.0, rate, orders)[0] == pytest.approx(exact, rel=1e-9)


def test_the_whole_data_set_is_a_plain_gaussian():
    assert FixedSize(50, 50).cost(3.0, 4) == Poisson(1.0, 50).cost(3.0, 4) == PrivacyCost.gaussian(3.0, draws=4)
    assert math.isinf(FixedSize(5, 50).cost(0.0, 4).mu_squared)
    assert sampled_noise_multiplier(FixedSize(5, 50), PrivacyBudget(math.inf, 1e-6), 10, 4) == 0.0
    assert planned_order(FixedSize(50, 50), 1.0, 1e-6, 10, 4) is None
    assert planned_order(FixedSize(5, 50), math.inf, 1e-6, 10, 4) is None


def test_discrete_noise_is_charged_for_every_entry():
    cost = 10 * FixedSize(5, 50).cost(3.0, 7)
    assert cost.discretization == pytest.approx(70 * PrivacyCost.gaussian(1.0).discretization, abs=0)


def test_no_room_is_an_error():
    budget = planned(FixedSize(5, 50), 0.1, 1e-6, 10)
    with pytest.raises(ValueError, match="no room"):
        sampled_noise_multiplier(FixedSize(5, 50), budget, 10, 3, spent=PrivacyCost.gaussian(0.5))


@pytest.mark.parametrize("size", [1, 3, 40])
def test_fixed_batches_are_distinct_and_uniform(size, rng):
    n_batches = 4000
    members, starts = FixedSize(size, 50).draw(50, n_batches, rng)
    assert np.array_equal(starts, size * np.arange(n_batches + 1))
    batches = members.reshape(n_batches, size)
    assert all(len(set(batch)) == size for batch in batches.tolist())
    counts = np.bincount(members, minlength=50)
    # The negative correlation within a batch only makes this test more lenient.
    assert stats.chisquare(counts).pvalue > 1e-5
    # Pairs, too: the record beside record 0 is any of the others.
    if size == 3:
        others = batches[(batches == 0).any(axis=1)]
        assert stats.chisquare(np.bincount(others[others > 0] - 1, minlength=49)).pvalue > 1e-5


def test_poisson_batches_are_distinct_with_binomial_sizes(rng):
    members, starts = Poisson(0.05, 60).draw(60, 5000, rng)
    sizes = np.diff(starts)
    assert all(len(set(members[a:b].tolist())) == b - a for a, b in itertools.pairwise(starts))
    assert abs(sizes.mean() - 3.0) < 5 * math.sqrt(60 * 0.05 * 0.95 / 5000)
    assert abs(np.mean(sizes == 0) - 0.95**60) < 0.02
    assert stats.chisquare(np.bincount(members, minlength=60)).pvalue > 1e-5


def test_wrong_samplings():
    with pytest.raises(ValueError, match="batch"):
        FixedSize(51, 50)
    with pytest.raises(ValueError, match="batch"):
        FixedSize(0, 50)
    with pytest.raises(ValueError, match="rate"):
        Poisson(0.0, 50)
