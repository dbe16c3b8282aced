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


@pytest.mark.parametrize("sampling", [FixedSize(100, 10_000), Poisson(0.01, 10_000)])
def test_sampling_amplifies_and_calibration_is_tight(sampling):
    budget = PrivacyBudget(1.0, 1e-6)
    multiplier = sampled_noise_multiplier(sampling, budget, 500)
    assert budget.admits(500 * sampling.cost(multiplier))
    assert not budget.admits(500 * sampling.cost(multiplier * (1 - 1e-4)))
    unamplified = math.sqrt(500 / budget.gaussian_room())
    assert multiplier < 0.1 * unamplified
    paper = sampled_noise_multiplier(sampling, budget, 500, paper=True)
    assert multiplier < paper < 1.3 * multiplier
    after = sampled_noise_multiplier(sampling, budget, 500, spent=PrivacyCost.gaussian(20.0))
    assert after > multiplier


def test_calibration_against_dp_accounting():
    for sampling, event, relation in (
        (Poisson(1e-3, 10_000), lambda z: PoissonSampledDpEvent(1e-3, GaussianDpEvent(z)), "ADD_OR_REMOVE_ONE"),
        (
            FixedSize(10, 10_000),
            lambda z: SampledWithoutReplacementDpEvent(10_000, 10, GaussianDpEvent(z)),
            "REPLACE_ONE",
        ),
    ):
        multiplier = sampled_noise_multiplier(sampling, PrivacyBudget(1.0, 1e-7), 20_000)
        accountant = RdpAccountant(neighboring_relation=NeighboringRelation[relation])
        accountant.compose(SelfComposedDpEvent(event(multiplier), 20_000))
        assert accountant.get_epsilon(1e-7) == pytest.approx(1.0, rel=0.02)


def test_the_whole_data_set_is_a_plain_gaussian():
    assert FixedSize(50, 50).cost(3.0) == Poisson(1.0, 50).cost(3.0) == PrivacyCost.gaussian(3.0)
    assert math.isinf(FixedSize(5, 50).cost(0.0).mu_squared)
    assert sampled_noise_multiplier(FixedSize(5, 50), PrivacyBudget(math.inf, 1e-6), 10) == 0.0


def test_no_room_is_an_error():
    with pytest.raises(ValueError, match="no room"):
        sampled_noise_multiplier(FixedSize(5, 50), PrivacyBudget(0.1, 1e-6), 10, spent=PrivacyCost.gaussian(0.5))


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
