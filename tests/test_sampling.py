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
from dpcd.privacy.rivals.sampling import (
    FixedSize,
    Poisson,
    fixed_size_gaussian_curve,
    paper_noise_multiplier,
    planned_order,
    poisson_gaussian_curve,
    sampled_noise_multiplier,
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
    ours = fixed_size_gaussian_curve(multiplier, rate, ORDERS)
    # Theirs is an older bound. No bound is below what batches come to whose other records are all alike.
    assert np.all(ours <= accountant._rdp * (1 + 1e-6) + 1e-13)
    assert np.all(ours >= poisson_gaussian_curve(multiplier, rate, ORDERS) * (1 - 1e-9))


def test_fixed_batches_need_half_the_noise_of_the_older_bound():
    accountant = RdpAccountant(list(ORDERS), neighboring_relation=NeighboringRelation.REPLACE_ONE)
    accountant.compose(SampledWithoutReplacementDpEvent(10_000, 1000, GaussianDpEvent(30.0)))
    assert np.all(fixed_size_gaussian_curve(30.0, 0.1, ORDERS) < 0.3 * accountant._rdp)


@pytest.mark.parametrize("multiplier", [0.3, 1.0, 7.0])
@pytest.mark.parametrize("rate", [1e-8, 0.01, 0.6])
def test_the_curve_of_fixed_batches_is_that_of_their_privacy_profile(multiplier, rate):
    # As the integral of hinges in the docstring, over log r, in as many digits as it takes.
    orders = np.array([2, 3, 17])
    with mpmath.workdps(40):
        q, mu = mpmath.mpf(rate), 1 / mpmath.mpf(multiplier)

        def profile(log_t):
            return mpmath.ncdf(mu / 2 - log_t / mu) - mpmath.exp(log_t) * mpmath.ncdf(-mu / 2 - log_t / mu)

        for order, ours in zip(orders.tolist(), fixed_size_gaussian_curve(multiplier, rate, orders), strict=True):

            def hinges(log_t, order=order):
                t = mpmath.exp(log_t)
                u = 1 + q * (t - 1)
                return (u ** (order - 2) + u ** (-order - 1)) * q * profile(log_t) * q * t

            top = order * mu**2
            points = [0, mu, *(mu * k for k in (3, 6, 9)), top, *(top + mu * k for k in (3, 6, 12, 20))]
            total = order * (order - 1) * mpmath.quad(hinges, sorted(points), maxdegree=9)
            exact = mpmath.log1p(total) / (order - 1)
            assert float(exact) <= ours <= float(exact) * (1 + 1e-6)


def divergence(first, second, spread, order):
    """Rényi divergence of two mixtures of normal laws, given by the means of equally likely ones."""
    grid = np.linspace(-60.0, 60.0, 200_001)

    def log_density(means):
        terms = -0.5 * ((grid[:, None] - means) / spread) ** 2
        return np.logaddexp.reduce(terms, axis=1) - math.log(len(means) * spread * math.sqrt(2.0 * math.pi))

    logs = order * log_density(first) + (1.0 - order) * log_density(second)
    return math.log(np.exp(logs).sum() * (grid[1] - grid[0])) / (order - 1.0)


@pytest.mark.parametrize("multiplier", [1.0, 3.0])
@pytest.mark.parametrize("size", [1, 2, 4])
def test_no_neighbours_are_farther_apart_than_the_curve_says(multiplier, size, rng):
    """An attack: true divergences of noisy sums of batches, over all batches of small tables."""
    orders = np.array([2, 4, 9])
    n_records = 5
    bound = fixed_size_gaussian_curve(multiplier, size / n_records, orders)
    closest = np.zeros(len(orders))
    others = [[1.0] * 4, [-1.0] * 4, [-1.0, -1.0, 1.0, 1.0], [0.0] * 4, rng.uniform(-1, 1, 4).tolist()]
    for rest, (before, after) in itertools.product(others, [(-1.0, 1.0), (1.0, -1.0), (0.0, 1.0)]):
        first, second = (
            np.array([sum(batch) for batch in itertools.combinations([record, *rest], size)])
            for record in (before, after)
        )
        # A replacement moves a sum by 2, and noise is measured in that.
        found = [divergence(first, second, 2.0 * multiplier, order) for order in orders.tolist()]
        assert np.all(found <= bound * (1 + 1e-9))
        closest = np.maximum(closest, found / bound)
    assert np.all(closest > 0.5), "the bound is within twice the truth"


def test_hardly_any_noise_is_charged_in_full():
    np.testing.assert_allclose(fixed_size_gaussian_curve(0.01, 0.1, ORDERS), ORDERS / (2 * 0.01**2))
    just_above = fixed_size_gaussian_curve(0.1, 0.1, ORDERS)
    assert np.all(just_above < fixed_size_gaussian_curve(0.0999, 0.1, ORDERS))


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
    poisson = Poisson(1e-3, 10_000)
    multiplier = sampled_noise_multiplier(poisson, planned(poisson, 1.0, 1e-7, 20_000), 20_000, 3)
    accountant = RdpAccountant()
    accountant.compose(SelfComposedDpEvent(PoissonSampledDpEvent(1e-3, GaussianDpEvent(multiplier)), 20_000))
    assert accountant.get_epsilon(1e-7) == pytest.approx(1.0, rel=0.02)


def test_an_order_is_planned_for_what_is_released_beside():
    sampling, beside = FixedSize(100, 5000), PrivacyCost(0.65 * PrivacyBudget(1.0, 4e-8).gaussian_room())
    alone, together = (planned_order(sampling, 1.0, 4e-8, 100, 3, cost) for cost in (None, beside))
    for_steps = [
        sampled_noise_multiplier(sampling, PrivacyBudget(1.0, 4e-8, order), 100, 3, beside)
        for order in (alone, together)
    ]
    assert for_steps[1] < 0.9 * for_steps[0]


@pytest.mark.parametrize("rate", [1e-8, 1e-6])
def test_poisson_curves_keep_their_digits_at_the_smallest_rates(rate):
    orders = np.array([2, 3, 8])
    with mpmath.workdps(60):
        q = mpmath.mpf(rate)
        for order, ours in zip(orders.tolist(), poisson_gaussian_curve(1.0, rate, orders), strict=True):
            exact = mpmath.fsum(
                mpmath.binomial(order, k) * (1 - q) ** (order - k) * q**k * mpmath.exp(mpmath.mpf(k * (k - 1)) / 2)
                for k in range(order + 1)
            )
            assert ours == pytest.approx(float(mpmath.log(exact) / (order - 1)), rel=1e-9)


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
