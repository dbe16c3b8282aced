"""How long the steps of one-block DP-CD are, and how far what they find is believed."""

import numpy as np
import pytest

from dpcd.experiments.families import Sample
from dpcd.losses import Logistic
from dpcd.penalties import L2
from dpcd.solvers import DPBlockCD
from dpcd.solvers.block import _Pace, _weights_in_average
from fitting import lost


class TestBelief:
    def pace(self, size=20, flattest=5.0, n_steps=10):
        return _Pace(flattest * np.eye(size), flattest, 2.0, n_steps)

    def believed(self, pace, move, noise, squared_length=0.0):
        return pace.believed(move, np.ones(pace.n_steps), np.full(pace.n_steps, noise), squared_length)

    @pytest.mark.parametrize(("wanted", "averaged"), [(1.0, 1), (3.0, 1), (3.1, 12), (6.0, 12), (6.1, 20), (50.0, 20)])
    def test_the_fewer_full_steps_the_fewer_points_are_averaged(self, wanted, averaged):
        assert self.pace(n_steps=40)._replace(wanted=wanted).n_averaged == averaged

    def test_what_noise_explains_is_not_believed(self):
        pace, move = self.pace(), np.full(20, 20**-0.5)
        believed = [self.believed(pace, move, noise) for noise in (0.0, 0.1, 0.2, 0.25, 50.0)]
        assert believed == sorted(believed, reverse=True)
        assert believed[0] > 1.0, "steps that ended early are made up for"
        assert believed[-1] == 0.0

    def test_where_the_loss_is_flat_more_of_a_move_is_noise(self):
        move = np.full(20, 20**-0.5)
        steep, flat = (self.pace()._replace(flatness=flatness) for flatness in (1.0, 0.2))
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
        pace = _Pace(metric, 1.0, 2.0, 10)
        # Predictions along it are 10 times as long in the mean square, and so is its length in the metric.
        assert self.believed(pace, along, 0.9, 10.0) == pytest.approx(self.believed(pace, along, 0.9))

    def test_rows_are_as_long_as_their_columns_say(self, rng):
        X = rng.normal(size=(50_000, 1)) + rng.normal(size=(50_000, 8))
        X /= np.sqrt(np.mean(X**2, axis=0))
        values, vectors = np.linalg.eigh(X.T @ X / len(X))
        for flattest in (0.8, 2.0, 20.0):
            metric = (vectors * np.maximum(values, flattest)) @ vectors.T
            expected = np.mean(np.sum(X @ np.linalg.inv(metric) * X, axis=1))
            assert _Pace(metric, flattest, 2.0, 10).squared_row == pytest.approx(expected, rel=0.02)

    def test_noise_of_longer_steps_counts_for_more_and_that_of_early_ones_for_less(self):
        kept = np.array([0.9, 0.5, 0.8, 0.7])
        # Noise of each step in the last two points: what the steps after it kept of it.
        expected = (np.array([0.5 * 0.8, 0.8, 1.0, 0.0]) + np.array([0.5 * 0.8 * 0.7, 0.8 * 0.7, 0.7, 1.0])) / 2.0
        np.testing.assert_allclose(_weights_in_average(kept, 2), expected)


class TestPace:
    """How long steps are for gradients that stand out from noise or do not."""

    def lengths(self, pace, signal, rng, noise=1.0):
        """Lengths of all steps, where each gradient has this length beside its noise."""
        size, shares = len(pace.metric), np.full(pace.n_steps, 1.0 / pace.n_steps)
        whitening = 1.0 / np.sqrt(np.diag(pace.metric))
        lengths, gradients, noises = [], [], np.full(pace.n_steps, noise)
        for t in range(pace.n_steps):
            whitened = signal * np.eye(size)[0] + noise * rng.normal(size=size)
            gradients.append(whitened / whitening)
            lengths.append(pace.length(lengths, whitening, np.array(gradients), noises[: t + 1], shares))
        return lengths

    def pace(self, wanted=6.0, adapts=True, size=60, flattest=4.0, n_steps=30):
        return _Pace(flattest * np.eye(size), flattest, wanted, n_steps, adapts=adapts)

    def test_without_adapting_all_steps_are_alike(self, rng):
        lengths = self.lengths(self.pace(adapts=False), 3.0, rng)
        np.testing.assert_allclose(lengths, 6.0 * 4.0 / 30)
        assert set(self.lengths(self.pace(40.0, adapts=False), 3.0, rng)) == {1.5}, "longer ones would not be safe"
        assert set(self.lengths(self.pace(0.0), 3.0, rng)) == {1.0}, "asked for, though they find nothing but noise"

    def test_the_more_gradients_stand_out_the_farther_steps_go(self, rng):
        # The noise of all gradients together has length √(60/30).
        far = [sum(self.lengths(self.pace(), signal, rng)) / 4.0 for signal in (0.0, 3.0, 8.0, 25.0)]
        assert far == sorted(far)
        assert far[0] < 0.7 * 6.0
        assert far[-1] > 1.3 * 6.0

    def test_first_steps_are_cautious_and_the_same_for_all(self, rng):
        silent, loud = (self.lengths(self.pace(), signal, rng)[:6] for signal in (0.0, 20.0))
        assert silent == pytest.approx(loud)
        assert max(silent) < 0.75 * 6.0 * 4.0 / 30

    def test_where_noise_leaves_doubt_steps_go_as_far_as_usual(self, rng):
        pace = self.pace(wanted=0.5, size=3, n_steps=4)
        for signal in (0.0, 2.0):
            assert 0.7 * 2.0 < sum(self.lengths(pace, signal, rng)) < 1.3 * 2.0

    def test_units_do_not_matter(self):
        one, other = (self.lengths(self.pace(), 5.0 * unit, np.random.default_rng(3), unit) for unit in (1.0, 1e-190))
        assert one == pytest.approx(other)

    @pytest.mark.parametrize(("strength", "limit"), [(0.15, 0.93), (4.0, 1.1)])
    def test_weak_signals_lose_less_and_strong_ones_no_more(self, strength, limit, monkeypatch):
        rng = np.random.default_rng(0)
        X = np.asfortranarray(rng.normal(size=(10_000, 30)))
        chance = 1.0 / (1.0 + np.exp(-strength * X[:, :9].sum(axis=1) / 3.0))
        sample = Sample("", X, np.where(rng.random(len(X)) < chance, 1.0, -1.0), Logistic(), L2(1e-4))

        def mean_lost():
            return np.mean(lost(DPBlockCD(), sample, 0.3, range(12)))

        adapted = mean_lost()
        for setting in ("_CAUTIOUS", "_WEAK", "_STRONG"):
            monkeypatch.setattr(f"dpcd.solvers.block.{setting}", 1.0)
        assert adapted < limit * mean_lost()
