"""Clips of whole records: what noisy histograms of sizes say, and how often they are looked at."""

import math
from typing import NamedTuple

import numpy as np
import pytest

from dpcd import DPLogisticRegression
from dpcd.experiments.families import family
from dpcd.losses import Logistic, Squared
from dpcd.nonprivate import newton_optimum, objective
from dpcd.penalties import Zero
from dpcd.privacy import Columns, Curator, PrivacyBudget, SeededNoise
from dpcd.ranges.sizes import Sizes
from dpcd.solvers import DPBlockCD, DPNewton, Problem
from dpcd.solvers.allocation import Allocation, counting_share
from dpcd.solvers.clipping import Clips
from dpcd.solvers.scaled import Scaled
from fitting import lost, solve, tuned


class TestSizes:
    def sizes(self, counts, noise=0.0):
        edges = 2.0 ** (np.arange(1, 41) / 2.0)
        return Sizes(np.pad(np.asarray(counts, dtype=float), (0, 40 - len(counts))), edges, noise, 2, 10_000)

    def test_level_and_what_a_clip_keeps(self):
        counts = np.zeros(20)
        counts[3], counts[5] = 3000.0, 1000.0
        sizes = self.sizes(counts)
        small, large = 2.0**1.75, 2.0**2.75
        mean, square = sizes.level
        assert mean == pytest.approx(0.75 * small + 0.25 * large)
        assert square == pytest.approx(0.75 * small**2 + 0.25 * large**2)
        assert sizes.kept(small) == pytest.approx(0.75 + 0.25 * 0.5)
        assert sizes.kept(2 * large) == 1.0
        far = counts.copy()
        far[19] = 40.0
        assert self.sizes(far).level[0] < 1.3 * mean, "a few that are far away change little"
        hidden = self.sizes(counts, noise=1000.0)
        assert hidden.level is None
        assert hidden.kept(small) == 1.0

    def test_two_looks_see_what_one_does_not(self):
        counts = np.zeros(20)
        counts[3], counts[5] = 3000.0, 1000.0
        one = self.sizes(counts, noise=400.0)
        two = one.joined(self.sizes(3.0 * counts, noise=400.0))
        assert one.level is None
        assert two.noise == pytest.approx(400.0 / math.sqrt(2.0))
        np.testing.assert_allclose(two.counts, 2.0 * one.counts)
        assert two.level == pytest.approx(self.sizes(2.0 * counts, noise=two.noise).level)

    @pytest.mark.parametrize("per_octave", [1, 2])
    @pytest.mark.parametrize("unit", [0.003, 40.0])
    @pytest.mark.parametrize("shape", ["normal", "lognormal"])
    def test_where_noise_hides_buckets_sizes_are_those_of_known_shapes(self, per_octave, unit, shape, rng):
        """Of buckets that only seem to be occupied, a few far out would make the mean twice what it is."""
        edges = 2.0 ** (np.arange(-20 * per_octave, 20 * per_octave) / per_octave)
        numbers = rng.normal(size=5000)
        sizes = unit * (np.abs(numbers) if shape == "normal" else np.exp(0.65 * numbers))
        buckets = np.minimum(np.searchsorted(edges, sizes), len(edges) - 1)
        counts = np.bincount(buckets, minlength=len(edges)).astype(float)
        levels = []
        for _ in range(40):
            noisy = Sizes(counts + 150.0 * rng.normal(size=len(edges)), edges, 150.0, per_octave, 5000)
            assert noisy.level is not None
            levels.append(noisy.level)
        means, squares = np.array(levels).T
        assert np.median(means) == pytest.approx(sizes.mean(), rel=0.1)
        assert np.median(squares) == pytest.approx(np.mean(sizes**2), rel=0.2)
        assert np.std(np.log(means)) < 0.2

    def test_clear_buckets_are_taken_as_they_are(self):
        counts = np.zeros(20)
        counts[3], counts[5] = 3000.0, 1000.0
        assert self.sizes(counts, noise=190.0).level == pytest.approx(self.sizes(counts).level)
        assert self.sizes(counts, noise=210.0).level != pytest.approx(self.sizes(counts).level)

    def test_a_clip_is_lowered_where_that_cuts_off_little(self):
        counts = np.zeros(20)
        counts[4] = 10_000.0
        top = 2.0**2.5
        assert top < self.sizes(counts).lowered(2.2 * top, 0.001) < 1.1 * top, "nobody is cut off"
        assert self.sizes(counts).lowered(2.2 * top, 10.0) == pytest.approx(2.2 * top / 2.0**1.5), "noise is dear"
        assert self.sizes(counts).lowered(0.7 * top, 0.001) == 0.7 * top, "most would be cut off"
        counts[4], counts[7] = 9500.0, 500.0
        assert self.sizes(counts).lowered(2.2 * top, 0.001) > 2.0 * top, "the tail counts"
        counts[7] = 40.0
        assert self.sizes(counts, noise=90.0).lowered(2.2 * top, 0.001) < 1.1 * top, "the tail could be noise"

    def test_long_tails_raise_a_clip_where_that_is_worth_its_noise(self):
        counts = np.zeros(20)
        counts[4], counts[10] = 9000.0, 1000.0
        edge = 2.0**5.5
        assert self.sizes(counts).raised(6.0, 0.001, True) == pytest.approx(edge), "noise is cheap"
        assert self.sizes(counts).raised(6.0, 10.0, True) == 6.0, "noise is dear"
        assert self.sizes(counts, noise=500.0).raised(6.0, 0.001, True) == 6.0, "the tail could be noise"
        assert self.sizes(counts).raised(2.0 * edge, 0.001, True) == 2.0 * edge, "nothing is cut off"

    def test_what_a_clip_cuts_off_of_normal_residuals_is_no_reason_to_raise_it(self, rng):
        ends = np.concatenate([[0.0], 2.0 ** (np.arange(1, 41) / 2.0)])
        raised = {}
        for kind, values in (("normal", rng.normal(size=10_000)), ("skewed", rng.lognormal(size=10_000) - 1.65)):
            sizes = self.sizes(np.histogram(np.abs(40.0 * values), ends)[0], noise=10.0)
            raised[kind] = [sizes.raised(40.0, 0.03, cancel_out) for cancel_out in (False, True)]
        assert raised["normal"][0] > 1.4 * raised["normal"][1]
        assert raised["skewed"][0] == raised["skewed"][1] > 2.0 * raised["normal"][1]

    def test_a_hazy_tail_raises_a_clip_less(self):
        counts = np.zeros(20)
        counts[3], counts[8] = 8000.0, 1000.0
        clear, hazy = (self.sizes(counts, noise).raised(6.0, 0.05, True) for noise in (190.0, 210.0))
        assert clear == 16.0
        assert hazy == 8.0

    @pytest.mark.parametrize("bound", [1e-300, 1.0, 1e300, math.inf, math.nan])
    def test_any_bound_of_a_slope_will_do(self, bound):
        class Odd(NamedTuple):
            lipschitz: float
            curvature = 1.0

            def value(self, y, z):
                return 0.5 * (z - y) ** 2

            def derivative(self, y, z):
                return z - y

        sample = family("correlated", 5000, 3, Squared())
        solution, curator = solve(DPBlockCD(), sample.X, sample.y, Odd(bound), Zero(), 1.0)
        assert np.all(np.isfinite(solution.weights))
        assert curator.spent.mu_squared <= curator.budget.gaussian_room()

    def test_rare_classes_are_learnt(self):
        sample = family("rare-class", 50_000, 6, Logistic())
        truth = objective(*sample[1:], *newton_optimum(*sample[1:]))
        zero = objective(*sample[1:], np.zeros(6))
        model = DPLogisticRegression(epsilon=3.0, fit_intercept=False, random_state=0, classes=[-1, 1])
        model.fit(sample.X, sample.y)
        assert objective(*sample[1:], model.coef_[0]) - truth < 0.01 * (zero - truth)


class TestFirstLook:
    """Sizes at the first step, where one histogram may show nothing."""

    def clips(self, monkeypatch, taken, hidden, used=1.0):
        """A first look for about 60 records of budget that sees something after so many; its clips and their shares."""
        sample = family("correlated", 5000, 3, Squared())
        curator = Curator(
            Columns.copy_of(sample.X, sample.y), PrivacyBudget(0.05, 4e-8), SeededNoise(np.random.default_rng(0))
        )
        smoothness = np.mean(sample.X**2, axis=0)
        scaled = Scaled.of(curator, Problem(Squared(), Zero(), smoothness, 3), 1)
        counts = np.zeros(40)
        counts[20] = 5000.0
        shares = []

        def sizes(self, whitening, point, share):
            shares.append(share)
            seen = len(shares) > hidden
            # Together with those that show nothing, one that does has to show more.
            return Sizes((1 + hidden) * counts * seen, 2.0 ** (np.arange(1, 41) / 2.0), 100.0, 2, 10_000)

        monkeypatch.setattr(Scaled, "release_sizes", sizes)
        clips = Clips(Allocation(taken, sizes=counting_share(scaled.records, labels=False)), used)
        return lambda: clips.release_first(scaled, np.eye(3), np.zeros(3)), clips, shares

    @pytest.mark.parametrize(("hidden", "taken", "found"), [(0, 0.1, True), (1, 0.1, True), (1, 0.8, False)])
    def test_looks_again_if_enough_is_left_for_steps(self, monkeypatch, hidden, taken, found):
        release, clips, shares = self.clips(monkeypatch, taken, hidden)
        first = clips.shares.sizes
        assert release() is found
        looks = 1 + hidden if found else 1
        assert shares == looks * [first]
        assert clips.shares.sizes == pytest.approx(looks * first), "every look is counted"
        assert clips.shares.sizes <= first + 0.5 * (1.0 - taken - first)
        assert clips.shares.steps == pytest.approx(1.0 - taken - looks * first)

    def test_clips_are_smaller_where_early_steps_are_forgotten(self, monkeypatch):
        norms = []
        for used in (1.0, 0.5):
            release, clips, _ = self.clips(monkeypatch, 0.1, 0, used)
            assert release()
            norms.append(clips.clip.norm)
        assert norms[1] == pytest.approx(0.5**0.225 * norms[0])

    def test_smaller_clips_suit_one_block(self):
        sample = family("correlated", 5000, 3, Squared())
        smaller = np.mean(lost(DPBlockCD(), sample, 0.1, range(20)))
        with tuned(used=1.0):
            assert smaller < 0.9 * np.mean(lost(DPBlockCD(), sample, 0.1, range(20)))

    def test_gives_up(self, monkeypatch):
        with tuned(counting_most=0.02):
            release, clips, shares = self.clips(monkeypatch, 0.1, 100)
        assert not release()
        assert len(shares) == 16
        assert clips.shares.sizes == pytest.approx(16 * 0.02)

    def test_records_without_a_gradient_hide_the_others_at_first(self):
        """Seven in ten targets are zero: four looks would see nothing."""
        for seed in range(4):
            rng = np.random.default_rng(seed)
            X = rng.normal(size=(1000, 5))
            y = (X.sum(axis=1) / math.sqrt(5.0) + 0.1 * rng.normal(size=1000)) * (rng.random(1000) < 0.3)
            solution, curator = solve(DPNewton(), X, y, Squared(), Zero(), 0.7, seed)
            assert np.any(solution.weights), "something was found"
            assert curator.spent.mu_squared <= curator.budget.gaussian_room()

    def test_fits_that_see_nothing_at_first_are_not_lost(self):
        sample = family("correlated", 5000, 3, Squared())
        again = lost(DPNewton(), sample, 0.1, range(20))
        with tuned(size_looks=1):
            once = lost(DPNewton(), sample, 0.1, range(20))
        assert np.sum(np.array(once) == 1.0) >= 2, "some see nothing and stay at zero"
        assert np.max(again) < 0.5
