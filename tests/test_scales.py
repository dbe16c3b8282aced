"""Where columns lie and how far they spread, learnt from noisy releases or declared."""

import math

import numpy as np
import pytest

from dpcd import DPLogisticRegression, DPRidge, UselessModelWarning
from dpcd.losses import Logistic, Squared
from dpcd.privacy import Columns, Curator, PrivacyBudget, SeededNoise
from dpcd.ranges.looks import hides_columns
from dpcd.ranges.scales import Declared, prepare, usual_shares
from dpcd.solvers import GaussianSmoothness, LaplaceSmoothness

SQUARED = Squared()


def curator_of(X, y, epsilon=1.0, seed=0, intercept=False):
    columns = Columns.copy_of(X, y, intercept)
    noise = SeededNoise(np.random.default_rng(seed))
    return Curator(columns, PrivacyBudget(epsilon, 1 / len(y) ** 2), noise)


def learn(X, y, loss=SQUARED, seed=0, declared=None, intercept=False, needs_slope=True, epsilon=1.0):
    curator = curator_of(X, y, seed=seed, intercept=intercept, epsilon=epsilon)
    declared = declared or Declared(None, None)
    return prepare(curator, loss, declared, X.shape[1], intercept, needs_slope), curator


def test_smoothness_is_right_over_24_orders_of_magnitude(rng):
    scales = 10.0 ** np.array([-12.0, -6.0, 0.0, 6.0, 12.0])
    X, y = rng.normal(size=(20_000, 5)) * scales, 1e5 * rng.normal(size=20_000)
    for seed in range(5):
        learnt, _ = learn(X, y, seed=seed)
        ratio = learnt.smoothness / np.mean(X**2, axis=0)
        assert np.all((ratio > 0.6) & (ratio < 1.6)), ratio
        assert 0.7 < learnt.slope / 1e5 < 1.4
    exact, _ = learn(X, y, declared=Declared(None, None, GaussianSmoothness()))
    assert np.all(abs(exact.smoothness / np.mean(X**2, axis=0) - 1.0) < 0.2)


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

    assert released(Squared(), Declared(None, None, known), False) == []
    assert released(Logistic(), Declared(None, None, known), True) == []
    assert released(Squared(), Declared(None, None, known), True) == ["histograms"]
    assert released(Logistic(), Declared(None, None), False) == ["histograms", "second"]
    assert released(Squared(), Declared(None, None), True) == ["histograms", "histograms", "second"]
    # Bounds say what is possible, and not where values are.
    assert released(Squared(), Declared(bounds, target), True) == ["histograms", "histograms", "second"]
    assert released(Logistic(), Declared(bounds, None), False) == ["histograms", "second"]


def test_second_moments_are_released_where_they_tell_more_than_histograms(rng):
    for n, tells_more in ((20_000, True), (300, False)):
        X, y = rng.normal(size=(n, 3)), rng.normal(size=n)
        learnt, curator = learn(X, y, Logistic(), needs_slope=False)
        released = [release.description for release in curator.releases]
        assert ("second moments" in released) == tells_more
        assert np.all((learnt.uncertainty < 0.1) == tells_more)


def test_looks_at_the_target_are_for_it_alone(rng):
    """One number is seen with noise of √2, whatever the number of columns."""
    X, y = rng.normal(size=(5000, 40)), 100.0 + rng.normal(size=5000)
    _, curator = learn(X, y, intercept=True, needs_slope=False)
    looks = [release.cost.mu_squared for release in curator.releases if release.description == "histograms of values"]
    alone, _ = learn(X[:, :1], y, intercept=True, needs_slope=False)
    assert abs(alone.target_center - 100.0) < 0.5
    assert looks[0] < max(looks)


@pytest.mark.parametrize("offset", [450.0, 2000.0, -1e4, 1e6])
def test_columns_and_targets_far_from_zero_are_closed_in_on(offset, rng):
    """A year or a timestamp: each look around what was found sees a few more bits of where it lies."""
    X, y = offset + rng.normal(size=(7000, 2)), offset + rng.normal(size=7000)
    for seed in range(5):
        learnt, _ = learn(X, y, seed=seed, intercept=True, epsilon=3.0)
        assert np.all(abs(learnt.features.center - offset) < 2.0)
        # What noise hides of the look before counts as spread.
        assert np.all(learnt.features.spread < 20.0)
        assert abs(learnt.target_center - offset) < 2.0


class TestBounds:
    """What is declared is believed, and what values really take inside is learnt."""

    def test_wide_bounds_do_not_make_ranges_wide(self, rng):
        X, y = 40.0 + 10.0 * rng.normal(size=(20_000, 2)), 100.0 + 3.0 * rng.normal(size=20_000)
        wide = Declared((np.zeros(2), np.full(2, 1e6)), (-1e4, 1e4))
        bounded, unbounded = learn(X, y, declared=wide, intercept=True)[0], learn(X, y, intercept=True)[0]
        for ranges in (bounded.features, unbounded.features):
            assert np.all(abs(ranges.center - 40.0) < 3.0)
            assert np.all((ranges.upper - ranges.lower > 60.0) & (ranges.upper - ranges.lower < 160.0))
        assert bounded.features.lower.min() >= 0.0
        assert abs(bounded.target_center - 100.0) < 1.0

    def test_ranges_stay_inside(self, rng):
        X, y = np.exp(rng.normal(size=(20_000, 2))), rng.normal(size=20_000)
        lower, upper = np.array([0.5, -np.inf]), np.array([np.inf, 2.0])
        for intercept in (True, False):
            learnt, curator = learn(X, y, declared=Declared((lower, upper), (-1.0, 0.5)), intercept=intercept)
            assert np.all(learnt.features.lower >= lower)
            assert np.all(learnt.features.upper <= upper)
            assert learnt.target_range[0] >= -1.0
            assert learnt.target_range[1] <= 0.5
            seen = curator._columns.features[:, :2] + learnt.features.center
            assert np.all((seen >= lower - 1e-9) & (seen <= upper + 1e-9))

    @pytest.mark.parametrize("epsilon", [1.0, 10.0, math.inf])
    def test_values_beyond_them_are_values_at_them(self, epsilon, rng):
        """A code for missing values, far out of bounds that are right, says nothing of where the others lie."""
        X, y = rng.uniform(0.0, 10.0, (5000, 2)), rng.uniform(0.0, 10.0, 5000)
        X[rng.random(X.shape) < 0.05], y[rng.random(5000) < 0.05] = 999_999.0, -999_999.0
        declared = Declared((np.zeros(2), np.full(2, 10.0)), (0.0, 10.0))
        learnt, _ = learn(X, y, declared=declared, intercept=True, epsilon=epsilon)
        for ranges in (learnt.features, learnt.target):
            assert np.all(abs(ranges.center - 5.0) < 1.5)
            assert np.all((ranges.spread > 1.5) & (ranges.spread <= 5.0))
        if epsilon > 1.0:
            np.testing.assert_allclose(learnt.features.outside, 0.05, atol=0.02)

    @pytest.mark.parametrize("bounds", [(0.0, 1.0), (-1e-3, 2.0), (200.0, 201.0), (100.0, math.inf), (-math.inf, 1.0)])
    @pytest.mark.parametrize("intercept", [True, False])
    def test_wrong_ones_leave_ranges_that_are_none_but_never_inverted(self, bounds, intercept, rng):
        X, y = rng.normal(50.0, 1.0, (2000, 2)), rng.normal(50.0, 1.0, 2000)
        declared = Declared((np.full(2, bounds[0]), np.full(2, bounds[1])), bounds)
        for epsilon in (0.1, 1.0, 50.0):
            learnt, _ = learn(X, y, declared=declared, intercept=intercept, epsilon=epsilon)
            for ranges in (learnt.features, learnt.target):
                assert np.all(ranges.lower <= ranges.upper)
                assert np.all((ranges.lower >= bounds[0]) & (ranges.upper <= bounds[1]))
                assert np.all(ranges.spread <= ranges.reach)
                if intercept:
                    assert np.all((ranges.center >= ranges.lower) & (ranges.center <= ranges.upper))

    def test_labels_are_worth_a_look_where_a_target_would_take_all(self, rng):
        X, y = rng.normal(size=(600, 12)), rng.normal(size=600)
        alone, curator = learn(X, y, intercept=True, epsilon=0.2)
        assert hides_columns(600, 12, curator.gaussian_room)
        assert not alone.features.seen.size
        for declared, size in ((Declared(None, None), 12), (Declared((np.full(12, -5.0), np.full(12, 5.0)), None), 0)):
            curator = curator_of(X, y, epsilon=0.2, intercept=True)
            prepare(curator, Logistic(), declared, 12, True, False, numeric_target=False)
            looked_at = sum(release.description == "histograms of values" for release in curator.releases)
            assert (looked_at > 0) == (size > 0)

    def test_where_a_budget_shows_nothing_bounds_are_all_there_is(self, rng):
        X, y = rng.random((400, 12)), rng.random(400)
        declared = Declared((np.zeros(12), np.array([1.0] * 11 + [np.inf])), (0.0, 1.0))
        learnt, curator = learn(X, y, declared=declared, intercept=True, epsilon=0.3)
        assert learnt.features.center[:11].tolist() == [0.5] * 11
        assert learnt.features.lower[:11].tolist() == [0.0] * 11
        assert np.all(learnt.smoothness[:11] > 0.0)
        assert learnt.smoothness[11] == 0.0, "half a bound says nothing of a column's size"
        assert curator.gaussian_room > 0.4 * curator_of(X, y, epsilon=0.3).gaussian_room, (
            "only the target was looked at"
        )

    def test_where_a_center_takes_all_columns_have_no_part(self, rng):
        """With bounds or without: what is left would be too little for coefficients, and the center worse."""
        X, y = rng.random((400, 2)), 5.0 + rng.random(400)
        for bounds in (None, (np.zeros(2), np.ones(2))):
            learnt, curator = learn(X, y, declared=Declared(bounds, None), intercept=True, epsilon=0.1)
            assert not learnt.smoothness.any()
            assert curator.gaussian_room < 1e-6 * curator_of(X, y, epsilon=0.1).gaussian_room

    def test_declared_smoothness_needs_no_looks_at_features(self, rng):
        X, y = 10.0 + rng.random((5000, 2)), rng.normal(size=5000)
        known = Declared((np.full(2, 9.0), np.full(2, 13.0)), None, np.ones(2))
        learnt, curator = learn(X, y, Logistic(), declared=known, intercept=True)
        assert learnt.features.center.tolist() == [0.0, 0.0], "they belong to the columns as they are"
        assert not curator.releases


def test_centers_are_learnt_with_an_intercept_only(rng):
    n, offsets = 20_000, np.array([0.0, 3.0, -300.0])
    X, y = offsets + rng.normal(size=(n, 3)), 50.0 + rng.normal(size=n)
    learnt, curator = learn(X, y, intercept=True, needs_slope=False)
    # Looks close in on a center until the column is about as wide as it is there.
    assert np.all(np.abs(learnt.features.center - offsets) < 0.5)
    assert abs(learnt.target_center - 50.0) < 0.5
    assert np.all(learnt.smoothness[:3] < 4.0), "the columns are far smaller around their centers"
    clipped = np.clip(X, learnt.features.lower, learnt.features.upper) - learnt.features.center
    np.testing.assert_allclose(curator._columns.features[:, :3], clipped, atol=1e-12)
    without, curator = learn(X, y, intercept=False, needs_slope=False)
    assert not without.features.center.any()
    assert without.target is None
    assert [release.description for release in curator.releases] == ["histograms of values", "second moments"]


def test_far_columns_take_a_few_looks_and_no_more(rng):
    """A year, a time stamp: each look divides the distance, and only the columns in doubt are asked for again."""
    n = 20_000
    X = np.column_stack([rng.normal(size=n), 2000.0 + 5.0 * rng.normal(size=n), 1.6e9 + 1e6 * rng.normal(size=n)])
    learnt, curator = learn(X, rng.normal(size=n), intercept=True, needs_slope=False, epsilon=3.0)
    spread = learnt.features.spread / [1.0, 5.0, 1e6]
    assert np.all((spread > 0.5) & (spread < 3.0)), spread
    looks = [release for release in curator.releases if release.description == "histograms of values"]
    assert len(looks) <= 7


def test_a_few_records_beside_a_spike_are_not_zoomed_away(rng):
    """Most records have one value: the others are what the column is about."""
    n = 20_000
    X = np.column_stack([np.where(rng.random(n) < 0.3, 5.0 + 5.0 * rng.normal(size=n), 5.0), rng.random(n) < 0.95])
    for epsilon, seed in ((1.0, 0), (1.0, 1), (3.0, 0), (3.0, 1)):
        learnt, _ = learn(X.astype(float), rng.normal(size=n), intercept=True, epsilon=epsilon, seed=seed)
        spread = learnt.features.spread / X.std(axis=0)
        assert np.all((spread > 0.2) & (spread < 4.0)), (epsilon, spread)


@pytest.mark.parametrize("epsilon", [0.3, 1.0])
def test_the_center_of_a_target_is_found(epsilon):
    """2,000 records, whatever the shape and however far from zero: rarely off by more than half a deviation."""
    off = []
    for seed in range(60):
        rng = np.random.default_rng(seed)
        shapes = (rng.normal(size=2000), rng.random(2000), rng.exponential(size=2000), rng.standard_t(4, 2000))
        y = (shapes[seed % 4] + rng.uniform(-30, 30)) * 2.0 ** rng.uniform(-9, 15)
        learnt, _ = learn(np.zeros((2000, 1)), y, intercept=True, epsilon=epsilon, seed=seed, needs_slope=False)
        off.append(abs(learnt.target_center - y.mean()) / y.std())
    assert np.quantile(off, 0.9) < 0.5
    assert max(off) < 1.5


def test_where_columns_are_hopeless_all_of_the_budget_finds_the_target(rng):
    X, y = rng.normal(size=(400, 12)), 20.0 + 5.0 * rng.normal(size=400)
    curator = curator_of(X, y, 0.1)
    assert hides_columns(400, 12, curator.gaussian_room)
    for seed in range(3):
        with pytest.warns(UselessModelWarning, match="12 of 12 features stay out"):
            model = DPRidge(epsilon=0.2, random_state=seed).fit(X, y)
        assert not model.coef_.any()
        assert model.privacy_.spent_epsilon > 0.2 * (1.0 - 1e-6)
        assert {release.description for release in model.privacy_.releases} == {"histograms of values", "means"}


def test_usual_shares_are_parts_of_the_budget():
    for n in (50, 400, 5000, 10**6):
        for p in (1, 30, 1000):
            for room in (1e-4, 0.01, 1.0, math.inf):
                for with_target in (True, False):
                    shares = usual_shares(n, p, with_target, True, room)
                    assert all(0.0 <= share <= 1.0 for share in shares.values())
                    assert sum(shares.values()) < 0.9


def test_uncertainty_is_the_noise_in_the_smoothness(rng):
    X, y = rng.normal(size=(20_000, 2)), rng.normal(size=20_000)
    learnt, curator = learn(X, y, Logistic(), declared=Declared(None, None, GaussianSmoothness()))
    # Each moment is a mean of squares within the range.
    noise = curator.releases[-1].smallest_noise_multiplier * math.sqrt(2.0) / 20_000
    np.testing.assert_allclose(learnt.uncertainty * 4.0 * learnt.smoothness, noise * learnt.features.reach**2)


@pytest.mark.parametrize("smoothness", [GaussianSmoothness(), LaplaceSmoothness(0.1)])
def test_moments_are_never_below_their_noise(smoothness):
    """So few records that the estimates are mostly noise: they must not vanish."""
    X = np.random.default_rng(0).normal(size=(60, 4))
    bounds = (np.full(4, -1e3), np.full(4, 1e3))
    for seed in range(10):
        learnt, curator = learn(
            X, X[:, 0], Logistic(), seed=seed, epsilon=0.1, declared=Declared(bounds, None, smoothness)
        )
        assert not any(release.description == "histograms of values" for release in curator.releases)
        largest = 0.25 * (500.0) ** 2
        assert np.all(learnt.smoothness >= 0.01 * largest)
        assert np.all(learnt.smoothness <= largest)


def test_nothing_visible_gives_a_zero_model(rng):
    X, y = rng.normal(size=(25, 3)), rng.normal(size=25)
    learnt, _ = learn(X, y, epsilon=0.01)
    assert not learnt.smoothness.any()


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


def test_a_few_records_far_out_do_not_make_the_model(rng):
    """Counts with a long tail, and a target that does not follow it: others' predictions get it right."""
    X = np.exp(2.0 * rng.normal(size=(20_000, 4)))
    y = np.log(X).sum(axis=1) + rng.normal(size=20_000)
    for seed in range(4):
        predicted = DPRidge(epsilon=10.0, random_state=seed).fit(X, y).predict(X)
        assert np.mean((predicted - y) ** 2) < 0.8 * np.var(y)
