"""Ranges and smoothness learnt from noisy releases."""

import math

import numpy as np
import pytest

from dpcd import DPLogisticRegression, DPRidge
from dpcd.losses import Logistic, Squared
from dpcd.privacy import Columns, Curator, PrivacyBudget, SeededNoise
from dpcd.solvers import GaussianSmoothness, LaplaceSmoothness
from dpcd.solvers.scales import Declared, Range, prepare
from dpcd.solvers.scales import _range as range_at

SQUARED = Squared()


def _range(counts, noise, level):
    return range_at(counts, noise, level, level)


def curator_of(X, y, epsilon=1.0, seed=0, intercept=False):
    columns = Columns.copy_of(X, y, intercept)
    noise = SeededNoise(np.random.default_rng(seed))
    return Curator(columns, PrivacyBudget(epsilon, 1 / len(y) ** 2), noise)


def learn(X, y, loss=SQUARED, seed=0, declared=None, intercept=False, needs_slope=True, epsilon=1.0):
    curator = curator_of(X, y, seed=seed, intercept=intercept, epsilon=epsilon)
    declared = declared or Declared(None, None, GaussianSmoothness())
    return prepare(curator, loss, declared, X.shape[1], intercept, needs_slope), curator


def test_smoothness_is_right_over_24_orders_of_magnitude(rng):
    scales = 10.0 ** np.array([-12.0, -6.0, 0.0, 6.0, 12.0])
    X, y = rng.normal(size=(20_000, 5)) * scales, 1e5 * rng.normal(size=20_000)
    for seed in range(5):
        learnt, _ = learn(X, y, seed=seed)
        ratio = learnt.smoothness / np.mean(X**2, axis=0)
        assert np.all((ratio > 0.6) & (ratio < 1.6)), ratio
        assert 0.7 < learnt.slope / 1e5 < 1.4


def test_odd_columns(rng):
    n = 20_000
    X = np.column_stack(
        [
            np.full(n, 3.0),  # constant
            np.zeros(n),  # nothing to see
            rng.integers(1, 6, n),  # codes
            rng.random(n) < 0.5,  # binary
            np.where(np.arange(n) < 3, 1e6, rng.normal(size=n)),  # three outliers nobody can see
            1000.0 + rng.normal(size=n),  # far from zero
        ]
    ).astype(float)
    learnt, curator = learn(X, rng.normal(size=n))
    truth = np.mean(X**2, axis=0)
    truth[4] = 1.0
    ratio = learnt.smoothness[[0, 2, 3, 4, 5]] / truth[[0, 2, 3, 4, 5]]
    assert np.all((ratio > 0.5) & (ratio < 2.0)), ratio
    assert learnt.smoothness[1] == 0.0
    # The data were clipped to the released ranges.
    assert np.abs(curator._columns.features[:, 4]).max() <= 32.0


def test_only_what_is_needed_is_released(rng):
    X, y = rng.normal(size=(5000, 3)), rng.normal(size=5000)
    known, bounds, target = np.ones(3), (np.full(3, -5.0), np.full(3, 5.0)), (-5.0, 5.0)

    def released(loss, declared, needs_slope):
        _, curator = learn(X, y, loss, declared=declared, needs_slope=needs_slope)
        return [release.description.split()[0] for release in curator.releases]

    gaussian = GaussianSmoothness()
    assert released(Squared(), Declared(None, None, known), False) == []
    assert released(Logistic(), Declared(None, None, known), True) == []
    assert released(Squared(), Declared(None, None, known), True) == ["histograms", "second"]
    assert released(Squared(), Declared(None, target, known), True) == ["second"]
    assert released(Logistic(), Declared(bounds, None, gaussian), True) == ["second"]
    assert released(Squared(), Declared(bounds, target, gaussian), True) == ["second"]
    assert released(Squared(), Declared(None, None, gaussian), True) == ["histograms", "second"]


def test_public_bounds_center_only_with_an_intercept_and_unknown_smoothness(rng):
    X, y = 10.0 + rng.random((5000, 2)), 100.0 + rng.random(5000)
    declared = Declared((np.full(2, 9.0), np.full(2, 13.0)), (90.0, 120.0), GaussianSmoothness())
    learnt, curator = learn(X, y, declared=declared, intercept=True)
    assert learnt.features.center.tolist() == [11.0, 11.0]
    assert learnt.target_center == 105.0
    np.testing.assert_allclose(curator._columns.features[:, :2], X - 11.0)
    assert learnt.smoothness[2] == 1.0
    learnt, _ = learn(X, y, declared=declared, intercept=False)
    assert learnt.features.center.tolist() == [0.0, 0.0]
    assert learnt.target_center == 0.0
    known = Declared(declared.feature_bounds, None, np.ones(2))
    assert learn(X, y, Logistic(), declared=known, intercept=True)[0].features.center.tolist() == [0.0, 0.0]


def test_centers_are_learnt_with_an_intercept_only(rng):
    n, offsets = 20_000, np.array([0.0, 3.0, -300.0])
    X, y = offsets + rng.normal(size=(n, 3)), 50.0 + rng.normal(size=n)
    learnt, curator = learn(X, y, intercept=True, needs_slope=False)
    asked = [release.description.split()[0] for release in curator.releases]
    assert asked[:3] == ["histograms", "means", "histograms"]
    assert asked[-1] == "second"
    # Rounds close in on a centre until the column is wider than the noise in it.
    assert np.all(np.abs(learnt.features.center - offsets) < 1.0)
    assert abs(learnt.target_center - 50.0) < 1.0
    assert learnt.smoothness[2] < 10.0, "the column is far smaller around its centre"
    clipped = np.clip(X, learnt.features.lower, learnt.features.upper) - learnt.features.center
    np.testing.assert_allclose(curator._columns.features[:, :3], clipped, atol=1e-12)
    without, curator = learn(X, y, intercept=False, needs_slope=False)
    assert not without.features.center.any()
    assert len(curator.releases) == 2


def test_uncertainty_is_the_noise_in_the_smoothness(rng):
    X, y = rng.normal(size=(20_000, 2)) * [1.0, 1e-3], rng.normal(size=20_000)
    bounds = Declared((np.full(2, -8.0), np.full(2, 8.0)), None, GaussianSmoothness())
    learnt, curator = learn(X, y, Logistic(), declared=bounds)
    noise = 64.0 * curator.releases[0].smallest_noise_multiplier * math.sqrt(2.0) / 20_000
    np.testing.assert_allclose(learnt.uncertainty * 4.0 * learnt.smoothness, noise)
    assert learnt.uncertainty[0] < 0.2 < learnt.uncertainty[1] <= 1.0


@pytest.mark.parametrize("smoothness", [GaussianSmoothness(), LaplaceSmoothness(0.1)])
def test_moments_are_never_below_their_noise(smoothness, rng):
    """Columns far smaller than their declared bounds: the estimate is mostly noise and must not vanish."""
    n = 2000
    X, y = 1e-6 * rng.normal(size=(n, 4)), rng.normal(size=n)
    declared = Declared((np.full(4, -1.0), np.full(4, 1.0)), None, smoothness)
    for seed in range(10):
        learnt, curator = learn(X, y, Logistic(), seed=seed, declared=declared)
        noise = curator.releases[0].smallest_noise_multiplier / n
        assert learnt.smoothness.min() >= 0.25 * noise
        assert learnt.smoothness.max() <= 0.25


def test_nothing_visible_gives_a_zero_model(rng):
    X, y = rng.normal(size=(25, 3)), rng.normal(size=25)
    learnt, _ = learn(X, y, epsilon=0.1)
    assert not learnt.smoothness.any()


def test_ranges_of_histograms():
    counts = np.zeros(121)
    assert _range(counts, 1.0, 1e-6) == 0.0
    counts[60] = 100.0
    assert _range(counts, 1.0, 1e-6) == 2.0
    counts[62] = 3.0  # too little to stand out
    assert _range(counts, 1.0, 1e-6) == 2.0
    counts[61] = 4.0  # stands out, and joins
    assert _range(counts, 1.0, 1e-6) == 4.0
    spread = np.zeros(121)
    spread[58:62] = 3.4  # visible only together
    assert _range(spread, 1.0, 1e-6) > 0.0
    assert _range(spread[::-1] * 0.3, 1.0, 1e-6) == 0.0
    exact = np.zeros(121)
    exact[[3, 70]] = 1.0
    assert _range(exact, 0.0, 1e-6) == 2.0**11


def test_a_flag_is_seen_earlier_than_other_values():
    flags, others = np.zeros(121), np.zeros(121)
    flags[60], others[61] = 4.0, 4.0
    assert range_at(flags, 1.0, 1e-6, 1e-3) == 2.0
    assert range_at(others, 1.0, 1e-6, 1e-3) == 0.0


def test_noise_alone_is_rarely_taken_for_a_column(rng):
    counts = rng.normal(size=(2000, 121))
    false = sum(range_at(row, 1.0, 0.05 / (4 * 121), 0.05) > 0.0 for row in counts)
    # A tenth at most by design; the union bound makes it less.
    assert false < 200


def test_wrong_shares():
    for share in (0.0, 1.0, -1.0, math.nan):
        with pytest.raises(ValueError, match="share"):
            GaussianSmoothness(share)
        with pytest.raises(ValueError, match="share"):
            LaplaceSmoothness(share)


@pytest.mark.parametrize("model", [DPLogisticRegression, DPRidge], ids=["labels", "numbers"])
def test_rare_flags_whose_scale_is_hardly_known_do_not_make_steps_diverge(model):
    """Standardised, a flag that one record in a hundred has reaches ten times as far as its second moment says."""
    rng = np.random.default_rng(3)
    flags = (rng.random((20_000, 3)) < 0.01).astype(float)
    X = np.c_[rng.normal(size=(20_000, 6)), (flags - flags.mean(axis=0)) / flags.std(axis=0)]
    signal = 0.6 * X[:, :6].sum(axis=1)
    labels = model is DPLogisticRegression
    y = rng.random(20_000) < 1.0 / (1.0 + np.exp(-signal)) if labels else signal + 0.3 * rng.normal(size=20_000)
    for seed in range(5):
        fitted = model(epsilon=10.0, random_state=seed).fit(X, y)
        predicted = fitted.decision_function(X) if labels else fitted.predict(X)
        assert np.mean((predicted - signal) ** 2) < 0.05 * np.mean(signal**2)


def test_values_are_clipped_at_twice_what_a_histogram_shows():
    ranges = Range.learnt(np.array([4.0, 0.0]), np.array([1.0, 3.0]))
    assert (ranges.lower.tolist(), ranges.upper.tolist()) == ([-7.0, 3.0], [9.0, 3.0])


def test_a_few_records_far_out_do_not_make_the_model(rng):
    """Counts with a long tail, and a target that does not follow it: others' predictions get it right."""
    X = np.exp(2.0 * rng.normal(size=(20_000, 4)))
    y = np.log(X).sum(axis=1) + rng.normal(size=20_000)
    for seed in range(4):
        predicted = DPRidge(epsilon=10.0, random_state=seed).fit(X, y).predict(X)
        assert np.mean((predicted - y) ** 2) < 0.8 * np.var(y)
