"""How long the steps of one-block DP-CD are, and how far what they find is believed."""

import math
from types import SimpleNamespace

import numpy as np
import pytest

from dpcd.experiments.families import Sample
from dpcd.losses import Squared
from dpcd.penalties import L2
from dpcd.policy import POLICY
from dpcd.solvers import DPBlockCD
from dpcd.solvers.block import DampedModel, _weights_in_average, release_squared_length
from dpcd.solvers.initial import Start
from fitting import lost, scaled, spent_share, tuned


class TestBelief:
    def pace(self, size=20, flattest=5.0, n_steps=10, wanted=None, flatness=1.0, metric=None):
        problem = SimpleNamespace(problem=SimpleNamespace(loss=Squared()))
        metric = flattest * np.eye(size) if metric is None else metric
        wanted = n_steps / flattest if wanted is None else wanted
        return DampedModel(problem, Start(np.zeros(size), flatness), metric, flattest, wanted, np.ones(n_steps))

    def believed(self, pace, move, noise, squared_length=0.0):
        return pace.believed(move, np.full(pace.n_steps, noise), squared_length)

    @pytest.mark.parametrize(("wanted", "averaged"), [(1.0, 1), (3.0, 1), (3.1, 12), (6.0, 12), (6.1, 20), (50.0, 20)])
    def test_the_fewer_full_steps_the_fewer_points_are_averaged(self, wanted, averaged):
        assert self.pace(n_steps=40, wanted=wanted).n_averaged == averaged

    def test_what_noise_explains_is_not_believed(self):
        pace, move = self.pace(), np.full(20, 20**-0.5)
        believed = [self.believed(pace, move, noise) for noise in (0.0, 0.1, 0.2, 0.25, 50.0)]
        assert believed == sorted(believed, reverse=True)
        assert believed[0] > 1.0, "steps that ended early are made up for"
        assert believed[-1] == 0.0

    def test_where_the_loss_is_flat_more_of_a_move_is_noise(self):
        move = np.full(20, 20**-0.5)
        steep, flat = (self.pace(flatness=flatness) for flatness in (1.0, 0.2))
        assert self.believed(flat, move, 0.2) < 0.9 * self.believed(steep, move, 0.2)
        assert self.believed(flat, move, 0.0) == self.believed(steep, move, 0.0)

    def test_moves_in_steep_directions_are_believed_more_and_stretched_less(self):
        pace, move = self.pace(), np.full(20, 20**-0.5)
        # Columns of second moment 1 in all directions give predictions as long as the move.
        assert 0.0 < self.believed(pace, move, 0.2, 1.0) == self.believed(pace, move, 0.2) < 0.7
        assert self.believed(pace, move, 0.2, 10.0) > 1.4 * self.believed(pace, move, 0.2)
        assert self.believed(pace, move, 0.0, 10.0) < self.believed(pace, move, 0.0)
        assert self.believed(pace, move, 0.0, 10.0) == pytest.approx(1.0, abs=1e-3)

    def test_a_metric_that_knows_the_steep_direction_needs_no_help(self):
        along = np.full(20, 20**-0.5)
        metric = np.eye(20) + 9.0 * np.outer(along, along)
        pace = self.pace(flattest=1.0, wanted=2.0, metric=metric)
        # Predictions along it are 10 times as long in the mean square, and so is its length in the metric.
        assert self.believed(pace, along, 0.9, 10.0) == pytest.approx(self.believed(pace, along, 0.9))

    def test_noise_of_early_steps_counts_for_less(self):
        # Noise of each step in the last two points: what the steps after it kept of it.
        expected = (np.array([0.6**2, 0.6, 1.0, 0.0]) + np.array([0.6**3, 0.6**2, 0.6, 1.0])) / 2.0
        np.testing.assert_allclose(_weights_in_average(0.6, 4, 2), expected)

    def test_steps_go_together_as_far_as_is_wanted(self):
        six, forty, none = (self.pace(3, 4.0, 30, wanted).length for wanted in (6.0, 40.0, 0.0))
        assert six == pytest.approx(6.0 * 4.0 / 30)
        assert forty == 1.5, "longer ones would not be safe"
        assert none == 1.0, "asked for, though they find nothing but noise"


class TestLength:
    """What a move does to predictions."""

    @pytest.mark.parametrize("scale", [1e-3, 1.0, 1e6])
    def test_is_seen(self, scale, rng):
        common = rng.normal(size=(4000, 1))
        X = common + 0.3 * rng.normal(size=(4000, 10))
        X /= np.sqrt(np.mean(X**2, axis=0))
        problem = scaled(X, common[:, 0], Squared(), 2.0, intercept=False)
        for count, move in enumerate((np.ones(10), np.eye(10)[0] - np.eye(10)[1]), start=1):
            # Octaves are coarse.
            expected = np.mean((X @ (scale * move)) ** 2)
            assert release_squared_length(problem, scale * move) / expected == pytest.approx(1.0, rel=0.4)
            assert spent_share(problem.curator) == pytest.approx(count * POLICY.length_share)
        assert release_squared_length(problem, np.zeros(10)) == 0.0

    def test_hardly_any_budget_shows_nothing(self, rng):
        X = rng.normal(size=(4000, 10))
        assert release_squared_length(scaled(X, X[:, 0], Squared(), 1e-4, intercept=False), np.ones(10)) == 0.0

    @pytest.mark.parametrize("epsilon", [0.1, 0.3])
    def test_noise_in_a_histogram_does_not_make_moves_long(self, epsilon, rng):
        X = rng.normal(size=(2000, 30))
        problems = [scaled(X, X[:, 0], Squared(), epsilon, intercept=False, seed=seed) for seed in range(60)]
        seen = [release_squared_length(problem, np.ones(30)) for problem in problems]
        assert np.mean(np.array(seen) > 1.5 * 30.0) < 0.15

    def test_a_signal_in_one_steep_direction_is_not_taken_for_noise(self):
        """All columns nearly agree, as stations nearby do, and the target follows them."""
        rng = np.random.default_rng(0)
        common = rng.normal(size=(6000, 2))
        X = common @ rng.normal(size=(2, 100)) + 0.4 * rng.normal(size=(6000, 100))
        y = common[:, 0] + 0.3 * rng.normal(size=6000)
        sample = Sample("", X, y, Squared(), L2(1e-4))
        ours = lost(DPBlockCD(), sample, 0.3, range(6))
        with tuned(steep=math.inf):
            without = lost(DPBlockCD(), sample, 0.3, range(6))
        assert ours.mean() < 0.5 * without.mean()
        assert ours.max() < 0.3
