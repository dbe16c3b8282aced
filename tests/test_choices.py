"""Private choices: the lemma that prices them, their law, their scores and what they answer."""

import dataclasses
import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy import stats
from scipy.special import expit, logsumexp, ndtri, softmax

import twins
from attack import wild_floats
from dpcd.audit import NoNoise
from dpcd.losses import Logistic, Squared
from dpcd.privacy import Columns, PrivacyCost, SecureNoise, SeededNoise
from dpcd.privacy.accounting import gaussian_log_delta, largest_range
from dpcd.privacy.choices import SteepestVertex, TopCoordinates

# Each goodness-of-fit test below raises a false alarm once in 10⁵ runs.
FALSE_ALARM = 1e-5


class Recorder:
    """Chooses without noise and remembers the scores and the scale it was asked for."""

    description, private = "recorder", False

    def __init__(self):
        self.asked = []

    def top(self, scores, scale, k):
        self.asked.append((scores, scale, k))
        return np.argsort(-scores, kind="stable")[:k]


def choice(kind=TopCoordinates, **changes):
    fields = {
        "loss": Squared(),
        "columns": np.array([0, 2, 1]),
        "units": np.array([1.0, 2.0, 0.5]),
        "clip": 1.5,
        "weights": np.array([0.0, 0.3, -1.0]),
        "lower": np.array([-0.1, 0.2, 0.0]),
        "upper": np.array([0.1, 0.2, np.inf]),
        "loss_range": 0.7,
    }
    return kind(**(fields | changes))


MECHANISMS = [choice(), choice(n_chosen=2, loss=Logistic()), choice(SteepestVertex), choice(loss_range=50.0)]


def scores(mechanism, table):
    """Scores and noise scale that a table of three features and a target leads to."""
    noise = Recorder()
    with np.errstate(all="ignore"):
        mechanism.run(Columns.copy_of(table[:, :3], table[:, 3]), noise)
    ((values, scale, _),) = noise.asked
    return values, scale


class TestTheLemma:
    @pytest.mark.parametrize("loss_range", [1e-4, 0.01, 0.3, 1.0, 3.0, 10.0, 30.0])
    def test_every_pair_of_two_points_lies_above_the_gaussian_and_one_touches_it(self, loss_range):
        """The two points have logit p = logit q + η, whatever t is; Φ⁻¹ of both tails, so that digits are kept."""
        mu = PrivacyCost.bounded_range(loss_range).mu
        x = np.concatenate([np.linspace(-loss_range - 30, 30, 200_001), [-loss_range / 2]])
        upper = np.where(x + loss_range > 0, -ndtri(expit(-x - loss_range)), ndtri(expit(x + loss_range)))
        lower = np.where(x > 0, -ndtri(expit(-x)), ndtri(expit(x)))
        gap = upper - lower
        assert np.max(gap) <= mu
        assert np.max(gap) >= mu * (1 - 1e-8)
        assert abs(x[np.argmax(gap)] + loss_range / 2) < 1e-2 * max(1, loss_range)

    def test_the_function_that_the_proof_says_is_positive(self):
        u = np.linspace(1e-3, 30, 100_000)
        # ¼ − a² is the product of both tails.
        left = np.log(2 * (stats.norm.cdf(u) - 0.5)) + stats.norm.logpdf(u)
        right = np.log(u) + stats.norm.logcdf(u) + stats.norm.logsf(u)
        assert np.all(left > right)

    @settings(max_examples=200, deadline=None)
    @given(arrays(np.float64, 6, elements=st.floats(-20, 20)), arrays(np.float64, 6, elements=st.floats(-1, 1)))
    def test_no_exponential_mechanism_falls_below_the_gaussian(self, base, change):
        """All kinks of the trade-off function of e^{s}, e^{s + d} lie above that of the Gaussian for max d − min d."""
        loss_range = np.ptp(change)
        if loss_range < 1e-6:
            return
        null, other = softmax(base), softmax(base + change)
        order = np.argsort(-(other / null))
        first, second = 1 - np.cumsum(null[order])[:-1], np.cumsum(other[order])[:-1]
        mu = PrivacyCost.bounded_range(loss_range).mu
        for q_complement, p in zip(first, second, strict=True):
            if 1e-9 < q_complement < 1 - 1e-9 and 1e-9 < p < 1 - 1e-9:
                assert ndtri(p) - ndtri(1 - q_complement) <= mu + 1e-6

    @pytest.mark.parametrize("loss_range", [0.1, 0.7, 3.0])
    @pytest.mark.parametrize("place", [0.2, 0.5, 0.9])
    def test_many_choices_cost_no_more_than_so_many_gaussians(self, loss_range, place):
        """δ of k two-point pairs, exactly, against the Gaussian's at the composed μ."""
        t, k = place * loss_range, 12
        q = math.expm1(loss_range - t) / math.expm1(loss_range)
        p = q * math.exp(t)
        hits = np.arange(k + 1)
        log_p, log_q = stats.binom.logpmf(hits, k, p), stats.binom.logpmf(hits, k, q)
        cost = k * PrivacyCost.bounded_range(loss_range)
        for epsilon in np.linspace(0.0, k * t * 0.99, 7):
            above = log_p > epsilon + log_q
            if above.any():
                total = np.exp(log_p[above]).sum() - math.exp(epsilon) * np.exp(log_q[above]).sum()
                assert math.log(total) <= gaussian_log_delta(epsilon, cost.mu) + 1e-9

    def test_one_percent_less_would_not_do(self):
        mu = PrivacyCost.bounded_range(1.0).mu
        q = 1 / (1 + math.exp(0.5))
        assert stats.norm.cdf(-ndtri(q) - 0.99 * mu) > q

    @pytest.mark.parametrize("mu_squared", [1e-14, 1e-6, 0.01, 1.0, 30.0, 1e4])
    def test_largest_range_costs_what_it_was_made_for(self, mu_squared):
        cost = PrivacyCost.bounded_range(largest_range(mu_squared)).mu_squared
        assert mu_squared * (1 - 1e-8) <= cost <= mu_squared

    def test_no_noise_is_no_privacy(self):
        assert PrivacyCost.bounded_range(math.inf).mu_squared == math.inf
        assert largest_range(math.inf) == math.inf


@pytest.mark.parametrize("source", [SecureNoise(), SeededNoise(np.random.default_rng(1))], ids=["secure", "seeded"])
@pytest.mark.parametrize("k", [1, 2])
def test_choices_follow_the_exponential_mechanism(source, k):
    scale, values = 2.0**41, np.array([0, 1, 3, 1]) * 2**41
    draws = [tuple(source.top(values, scale, k)) for _ in range(3000)]
    orders = list(itertools.permutations(range(4), k))
    weights = np.exp(values / scale)
    expected = []
    for order in orders:
        taken = np.concatenate([[0.0], np.cumsum(weights[list(order)])[:-1]])
        expected.append(np.prod(weights[list(order)] / (weights.sum() - taken)))
    observed = [draws.count(order) for order in orders]
    assert sum(observed) == 3000
    assert stats.chisquare(observed, 3000 * np.array(expected)).pvalue > FALSE_ALARM


def test_choices_without_noise_and_choices_that_cannot_be_made():
    for source in (SecureNoise(), SeededNoise(np.random.default_rng(1))):
        assert source.top(np.array([1, 5, 5, 7]), 0.0, 3).tolist() == [3, 1, 2]
        for k in (0, 3):
            with pytest.raises(ValueError, match="cannot choose"):
                source.top(np.array([1, 2]), 1.0, k)
        for scale in (np.nan, np.inf, -1.0):
            with pytest.raises(ValueError, match="scale of noise"):
                source.top(np.array([1, 2]), scale, 1)


@settings(max_examples=100, deadline=None)
@given(
    st.sampled_from(MECHANISMS),
    arrays(np.float64, (5, 4), elements=wild_floats),
    arrays(np.float64, 4, elements=wild_floats),
    st.integers(0, 4),
    arrays(np.float64, 3, elements=st.sampled_from([0.0, 1.0, -1e308, 1e-308, 1e100])),
    arrays(np.float64, 3, elements=st.sampled_from([1.0, 1e-320, 1e308, 1e-12])),
    st.sampled_from([1.0, 1e-300, 1e300]),
)
def test_neighbours_move_scores_by_no_more_than_the_noise_covers(mechanism, table, record, i, weights, units, clip):
    """Against each other, penalties and all: sums alone are attacked in `test_sensitivity.py`."""
    mechanism = dataclasses.replace(mechanism, weights=weights, units=units, clip=clip)
    other = table.copy()
    other[i] = record
    (ours, scale), (theirs, same_scale) = scores(mechanism, table), scores(mechanism, other)
    assert scale == same_scale, "the scale of the noise must not depend on the data"
    assert ours.dtype == theirs.dtype == np.int64
    difference = [int(a) - int(b) for a, b in zip(ours, theirs, strict=True)]
    assert max(difference) - min(difference) <= mechanism.loss_range * scale


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from([Squared(), Logistic()]),
    arrays(
        np.float64, (4, 4), elements=st.one_of(st.sampled_from([np.nan, np.inf, -np.inf, 5e-324]), st.floats(-9, 9))
    ),
)
def test_scores_are_those_of_the_twin(loss, table):
    mechanism = choice(loss=loss)
    bound, clip = mechanism.lattice(4).bound, 1.5 * mechanism.units
    sums = twins.partial_sums(table[:, :3], table[:, 3], loss, bound, mechanism.columns, clip, mechanism.weights)
    sides = []
    for total, j in zip(sums, mechanism.columns, strict=True):
        low, high = (side[j] * 4 * bound / clip[j] for side in (mechanism.lower, mechanism.upper))
        high = 4 * bound if math.isinf(high) else high
        sides.append((-total - round(high), total + round(low)))
    ours, _ = scores(mechanism, table)
    # A fused multiply-add may round the predictor, and so each record's contribution, another way.
    tolerance = 4 * 1e-9 * bound
    np.testing.assert_allclose(ours, [max(*pair, 0) for pair in sides], rtol=0, atol=tolerance)
    vertices, _ = scores(choice(SteepestVertex, loss=loss), table)
    expected = [up for up, _ in sides] + [down for _, down in sides] + [0]
    np.testing.assert_allclose(vertices, expected, rtol=0, atol=tolerance)


def test_each_choice_is_charged():
    """What one costs is tested in `test_sensitivity.py`."""
    several, data, noise = choice(n_chosen=2), Columns.copy_of(np.ones((4, 3)), np.ones(4)), Recorder()
    several.run(data, noise)
    ((_, _, made),) = noise.asked
    assert made == several.count == 2
    assert several.cost == 2 * choice().cost
    assert choice().cost.discretization == 0.0


@pytest.mark.parametrize("kind", [TopCoordinates, SteepestVertex])
def test_the_measured_loss_stays_within_its_range_and_comes_near_it(kind):
    """Frequencies of each answer on a worst pair of neighbours: their log ratio, with its standard error."""
    table = np.zeros((5, 4))
    table[:, :2], table[:, 3] = 1.0, -1.0
    table[0], other = [1.0, -1.0, 0.0, -9.0], table.copy()
    other[0] = [-1.0, 1.0, 0.0, -9.0]
    zeros, loss_range, runs = np.zeros(3), 2.0, 4000
    fields = {
        "units": np.ones(3),
        "clip": 1.0,
        "weights": zeros,
        "lower": zeros,
        "upper": zeros,
        "loss_range": loss_range,
    }
    mechanism = choice(kind, columns=[0, 1], **fields)
    exact = []
    for data in (table, other):
        values, scale = scores(mechanism, data)
        exact.append(values / scale - logsumexp(values / scale))
    losses = exact[0] - exact[1]
    assert np.ptp(losses) <= loss_range * (1 + 1e-12)
    assert np.ptp(losses) >= 0.99 * loss_range
    noise = SeededNoise(np.random.default_rng(3))
    counts = []
    for data in (table, other):
        columns = Columns.copy_of(data[:, :3], data[:, 3])
        answers = [str(mechanism.run(columns, noise)) for _ in range(runs)]
        counts.append([answers.count(answer) for answer in sorted(set(answers))])
    likely = np.minimum(*counts) > 100
    measured = np.log(np.array(counts[0]) / np.array(counts[1]))[likely]
    error = np.sqrt(np.sum(1 / np.array(counts), axis=0))[likely].max()
    # Off by 4.5 standard errors once in 10⁵ runs.
    assert np.ptp(measured) <= loss_range + 4.5 * math.sqrt(2) * error
    assert np.ptp(measured) >= 0.5 * loss_range


def test_the_steepest_come_first_and_the_penalty_counts(rng):
    X = rng.normal(size=(500, 3)) * [1.0, 10.0, 0.1]
    y = X @ np.array([1.0, -0.3, 0.0])
    data, zeros = Columns.copy_of(X, y), np.zeros(3)
    units = np.array([1.0, 10.0, 0.1])
    fields = {"columns": np.arange(3), "units": units, "clip": 100.0, "weights": zeros, "lower": zeros, "upper": zeros}
    exact = choice(**fields, n_chosen=3, loss_range=math.inf)
    assert exact.run(data, NoNoise()).tolist() == [1, 0, 2]
    unclipped = dataclasses.replace(exact, clip=math.inf)
    assert unclipped.run(data, NoNoise()).tolist() == [1, 0, 2]
    vertex = choice(SteepestVertex, **fields, loss_range=math.inf)
    assert vertex.run(data, NoNoise()) == (1, -1)
    gradient = -X.T @ y / 500
    upper = np.array([0.0, 2 * abs(gradient[1]), 0.0])
    penalized = dataclasses.replace(vertex, lower=-upper, upper=upper)
    assert penalized.run(data, NoNoise()) == (0, 1)
    steep = np.full(3, 1e9)
    assert dataclasses.replace(vertex, lower=-steep, upper=steep).run(data, NoNoise()) == (0, 0)


def test_wrong_fields_are_refused():
    for columns in ([], [3], [-1], [1, 1]):
        with pytest.raises(ValueError, match="columns must be different"):
            choice(columns=np.array(columns, dtype=int))
    with pytest.raises(ValueError, match="whole numbers"):
        choice(columns=[0.0, 1.0])
    for bad in (0.0, -1.0, np.nan):
        with pytest.raises(ValueError, match="loss_range"):
            choice(loss_range=bad)
        with pytest.raises(ValueError, match="positive"):
            choice(clip=bad)
        with pytest.raises(ValueError, match="units"):
            choice(units=[1.0, 1.0, bad])
    with pytest.raises(ValueError, match="infinite clip"):
        choice(clip=np.inf)
    with pytest.raises(ValueError, match="units"):
        choice(units=[1.0, np.inf, 1.0], loss_range=math.inf)
    with pytest.raises(ValueError, match="lower"):
        choice(lower=[np.nan, 0.0, 0.0])
    with pytest.raises(ValueError, match="each of 3 columns"):
        choice(upper=[1.0])
    for n_chosen in (0, 4, 1.5):
        with pytest.raises(ValueError, match="n_chosen"):
            choice(n_chosen=n_chosen)
