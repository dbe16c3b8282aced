"""Records too far out to be seen, and what a few of them may do to a squared loss."""

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy.special import ndtri

from dpcd import DPRidge
from dpcd.experiments.families import Sample, family
from dpcd.losses import Huber, Logistic, Squared
from dpcd.penalties import L2, Zero
from dpcd.privacy import Columns, PrivacyBudget, SeededNoise
from dpcd.privacy.records import GradientSizes
from dpcd.ranges.sizes import Sizes
from dpcd.solvers import Auto, DPBlockCD, DPNewton, Problem
from dpcd.solvers.clips import Clips, Look
from dpcd.solvers.joint import Clip, Scaled
from dpcd.solvers.moments import Moments
from dpcd.solvers.newton import _Model
from dpcd.solvers.unseen import Unseen, _tail
from fitting import lost, solve, spent_share
from replay import RecordingCurator


def saturating(rng, n_records=20_000, n_features=6):
    """Columns with tails so long that a few records hold their second moments, and a target that does not follow."""
    X = rng.pareto(1.5, size=(n_records, n_features))
    signal = np.tanh((X - X.mean(axis=0)) / 2.0) @ rng.normal(size=n_features)
    y = signal / signal.std() + 0.5 * rng.normal(size=n_records)
    return Sample("saturating", np.asfortranarray(X), y, Squared(), L2(1e-6))


def following(rng, n_records=20_000, n_features=6):
    """The same kind of columns, and a target that is linear in them however long they are."""
    X = np.exp(1.5 * rng.normal(size=(n_records, n_features)))
    signal = (X / X.std(axis=0)) @ rng.normal(size=n_features)
    y = signal / signal.std() + 0.5 * rng.normal(size=n_records)
    return Sample("following", np.asfortranarray(X), y, Squared(), L2(1e-6))


class TestWholeFits:
    @pytest.mark.parametrize(("solver", "most"), [(DPNewton(), 0.03), (DPBlockCD(), 0.15)], ids=["newton", "block"])
    @pytest.mark.parametrize("epsilon", [1.0, 10.0])
    def test_five_records_that_no_release_shows_do_not_ruin_a_model(self, solver, most, epsilon):
        """They hold most of two columns' second moments: without a thought for them half of the signal is lost."""
        assert np.mean(lost(solver, family("outliers", 20_000, 8, Squared()), epsilon, range(4))) < most

    def test_they_are_missed_in_noise_too(self):
        """Each look at the second moments is so noisy that by itself it shows nothing; ignoring them loses .38."""
        assert np.mean(lost(DPNewton(), family("outliers", 20_000, 8, Squared()), 0.1, range(8))) < 0.2

    @pytest.mark.parametrize("solver", [DPNewton(), DPBlockCD()], ids=["newton", "block"])
    def test_no_model_at_all_is_not_better(self, solver, rng):
        """Columns for which the models of others are eight to sixty times worse than zero."""
        assert np.max(lost(solver, saturating(rng), 1.0, range(4))) < 1.0

    def test_targets_with_a_long_tail_may_be_followed(self, rng):
        assert np.mean(lost(Auto(), following(rng), 3.0, range(4))) < 0.002

    @pytest.mark.parametrize("solver", [DPNewton(), DPBlockCD()], ids=["newton", "block"])
    @pytest.mark.parametrize(("epsilon", "looks"), [(0.01, 0), (3.0, 1)])
    def test_the_look_at_the_targets_is_part_of_the_budget(self, solver, epsilon, looks, rng):
        sample = saturating(rng, n_records=4000)
        for each in (solver, replace(solver, n_steps=1)):
            solution, curator = solve(each, *sample[1:], epsilon)
            assert spent_share(curator) <= 1.0
            assert np.all(np.isfinite(solution.weights))
            looked = [m for m, _ in curator.tape if isinstance(m, GradientSizes) and m.of == "slopes"]
            assert len(looked) == (looks if each is solver else 0), "one step has no use for it"

    @pytest.mark.parametrize("factor", [2.0, 3.0, 10.0])
    def test_bounds_will_do_for_moments(self, factor, rng):
        """Where no row is longer than others, moments that most columns do not have are mere bounds."""
        X = rng.uniform(-1.0, 1.0, size=(20_000, 5))
        y = X @ rng.normal(size=5) + 0.3 * rng.normal(size=20_000)
        for seed in range(3):
            solution, _ = solve(DPNewton(), X, y, Squared(), Zero(), 1.0, seed, smoothness=factor * np.ones(5) / 3.0)
            best = np.linalg.lstsq(X, y, rcond=None)[0]
            assert np.mean((X @ (solution.weights - best)) ** 2) < 0.01 * np.mean((X @ best) ** 2)

    def test_long_rows_are_no_bounds(self, rng):
        """The same part of each moment is out of sight, but some rows can be seen to be long."""
        sample = saturating(rng)
        solution, _ = solve(DPNewton(), *sample[1:], 3.0)
        assert any("too few to be seen" in note for note in solution.notes)

    def test_who_declares_too_much_is_told(self, rng):
        X = rng.normal(size=(20_000, 4))
        y = X[:, 0] + X[:, 1]
        for smoothness, words in (
            ([400.0, 1.0, 1.0, 1.0], "was declared and is not there"),
            (4.0 * np.ones(4), "bounds"),
        ):
            model = DPRidge(epsilon=3.0, smoothness=np.array(smoothness), random_state=0).fit(X, y)
            assert any(words in note for note in model.privacy_.notes)
        honest = DPRidge(epsilon=3.0, smoothness=np.ones(4), random_state=0).fit(X, y)
        assert len(honest.privacy_.notes) == 1, "which solver was chosen, and why"

    def test_a_column_that_stands_apart_hides_nothing(self):
        """Among many that are alike its eigenvalue is shrunk, but the release has shown all of it."""
        rng = np.random.default_rng(1)
        X = math.sqrt(0.9) * rng.normal(size=(5000, 1)) + math.sqrt(0.1) * rng.normal(size=(5000, 30))
        X[:, -1] = rng.normal(size=5000)
        y = X[:, -1] + 0.5 * rng.normal(size=5000)
        for seed in range(4):
            solution, _ = solve(Auto(), X, y, Squared(), Zero(), 1.0, seed)
            assert solution.weights[-1] == pytest.approx(1.0, abs=0.08)


def unseen(hidden, loss=None, noise=1e-3, uncertainty=None, epsilon=1.0, n_records=1000):
    """With so much of each column hidden, the rest of it uncorrelated."""
    hidden = np.array(hidden)
    size = len(hidden)
    curator = RecordingCurator(
        Columns.copy_of(np.zeros((n_records, size)), np.zeros(n_records)),
        PrivacyBudget(epsilon, 1e-6),
        SeededNoise(np.random.default_rng(0)),
    )
    loss = Squared() if loss is None else loss
    problem = Problem(loss, Zero(), loss.curvature * np.ones(size), size, uncertainty=uncertainty)
    moments = replace(Moments.unknown(size, 1.5 * math.sqrt(size), noise), hidden=hidden, missing=hidden)
    return Unseen(Scaled.of(curator, problem, 1), moments)


class TestWhatIsHidden:
    def test_most_of_it_is_believed_where_noise_is_small(self):
        found = unseen([0.9, 0.0, 0.5]).hidden
        assert 0.6 < found[0] < 0.9
        assert found[1] == 0.0 < found[2] < 0.5

    @pytest.mark.parametrize("loss", [Logistic(), Huber()])
    def test_other_losses_do_not_mind(self, loss):
        assert unseen([0.9, 0.9, 0.9], loss).share == 0.0

    def test_normal_rows_hide_nothing(self, rng):
        X = rng.normal(size=(50_000, 4))
        curator = RecordingCurator(
            Columns.copy_of(X, X[:, 0]), PrivacyBudget(10.0, 1e-6), SeededNoise(np.random.default_rng(0))
        )
        scaled = Scaled.of(curator, Problem(Squared(), Zero(), np.mean(X**2, axis=0), 4), 1)
        found = Unseen(scaled, scaled.moments(0.1, rounds=2))
        assert np.max(found.moments.hidden) > 0.03, "normal rows are shortened, too"
        assert found.share == 0.0

    def test_the_intercept_hides_nothing(self):
        found = unseen([0.9, 0.0, 0.9])
        beside = replace(found.scaled, problem=replace(found.scaled.problem, n_penalized=2))
        assert Unseen(beside, found.moments).hidden.tolist() == [found.hidden[0], 0.0, 0.0]

    def test_noise_hides_nothing(self):
        assert unseen([0.3, 0.0, 0.0], noise=3.0).share == 0.0
        assert unseen([0.3, 0.0, 0.0]).share > 0.0

    def test_its_curvature_is_in_the_moments(self):
        """More may be hidden than shrinking has left room for on the diagonal."""
        scaled = unseen([0.0, 0.0]).scaled
        moments = replace(Moments.unknown(2, 2.0, 1e-3), missing=np.array([0.8, 0.0]))
        found = Unseen(scaled, moments)
        assert found.hidden[0] > 0.7
        assert np.all(np.diag(found.moments.matrix) >= 1.0 + found.hidden)
        assert found.moments.hidden == pytest.approx(found.hidden)

    def test_scales_that_are_hardly_known_hide_nothing(self):
        assert unseen([0.6, 0.0, 0.0], uncertainty=np.array([0.4, 0.0, 0.0])).share == 0.0
        assert unseen([0.6, 0.0, 0.0], uncertainty=np.array([0.0, 0.4, 0.0])).share > 0.0


def test_noise_keeps_its_metric_when_moments_turn_out_to_be_bounds():
    found = unseen([0.5, 0.5])
    before = found.moments.metric
    found._take_moments_for_bounds()
    np.testing.assert_allclose(found.moments.metric, before)
    np.testing.assert_allclose(found.moments.matrix, 0.5 * np.eye(2))
    assert found.share == 0.0


class TestPulls:
    def test_they_are_the_gradient_of_what_is_predicted_beyond_the_plausible(self):
        found = unseen([0.9, 0.0, 0.5])
        found.plausible = 0.2

        def cost(point):
            return 0.5 * np.sum(np.maximum(0.0, np.sqrt(found.hidden) * np.abs(point) - 0.2) ** 2)

        point = np.array([-1.5, 3.0, 0.7])
        (pull,) = found.pulls(point[None, :], np.zeros((1, 3)), np.ones(1))
        steps = 1e-6 * np.eye(3)
        slopes = [(cost(point + step) - cost(point - step)) / 2e-6 for step in steps]
        np.testing.assert_allclose(pull, slopes, atol=1e-8)
        assert pull[0] < 0.0 == pull[1] < pull[2]

    def test_there_are_none_before_the_targets_were_looked_at(self):
        assert not np.any(unseen([0.9, 0.9, 0.9]).pulls(np.ones((2, 3)), np.zeros((2, 3)), np.ones(2)))

    def test_there_are_none_where_gradients_show_the_curvature(self):
        found = unseen([0.9, 0.9])
        found.plausible = 0.1
        points, variances = np.array([[0.0, 0.0], [1.0, 1.0]]), np.full(2, 1e-6)
        # Curvature 1 in the first column, all that is known, and in the second only the .1 that the moments show.
        gradients = points * np.array([1.0, 0.1])
        first, second = found.pulls(points, gradients, variances)[-1]
        assert first == pytest.approx(0.0, abs=1e-6)
        assert second > 0.3
        noisy = found.pulls(points, gradients, np.full(2, 1e3))[-1]
        assert noisy[0] > 0.3, "what could be noise shows nothing"

    def test_intervals_allow_for_them(self):
        found = unseen([0.0, 0.0], noise=1e-6)
        model = _Model(found.scaled, found, np.zeros(2))
        model.linear = np.full(2, 100.0)
        model.points, model.gradients, model.variances = [np.zeros(2)], [np.full(2, -100.0)], [0.01]
        clips, halves = Clips(found.scaled, 0.0, 0.0, (), clip=Clip(1.0)), []
        # A histogram without noise, of sizes that all are far below the clip.
        counts = np.where(np.arange(200) == 20, float(found.scaled.curator.n_records), 0.0)
        sizes = Sizes(counts, 2.0 ** np.arange(-100.0, 100.0), 1e-6, 1, found.scaled.curator.n_records)
        clips.looks.append(Look(found.scaled, np.zeros(2), sizes))
        for guessed in ([0.0, 0.0], [0.3, 0.0]):
            model.guessed = np.array(guessed)
            low, high = model.quadratic(clips).confidence_intervals()
            halves.append((high - low) / 2.0 / ndtri(0.975))
        np.testing.assert_allclose(halves, np.sqrt([[0.01, 0.01], [0.01 + 0.09, 0.01]]), rtol=1e-3)


class TestTargets:
    def seen(self, y, epsilon, seed=0):
        """The largest plausible target, from a histogram with a share of the budget as in a fit."""
        found = unseen([0.9, 0.9, 0.9], epsilon=epsilon, n_records=len(y))
        curator = RecordingCurator(
            Columns.copy_of(np.zeros((len(y), 3)), y),
            PrivacyBudget(epsilon, 1e-9),
            SeededNoise(np.random.default_rng(seed)),
        )
        problem = Problem(Squared(), Zero(), np.ones(3), 3)
        found = Unseen(Scaled.of(curator, problem, 1), found.moments)
        clips = Clips(found.scaled, 0.0, 0.0, (), squared_size=3.0 * (1.5 * float(np.median(np.abs(y)))) ** 2)
        found.look(np.zeros(3), clips)
        return found, curator

    @pytest.mark.parametrize("epsilon", [0.3, 1.0, 10.0])
    def test_a_few_records_may_have_targets_as_large_as_the_largest(self, epsilon, rng):
        y = rng.normal(size=20_000)
        found, _ = self.seen(y, epsilon)
        each = found.plausible / math.sqrt((2.0 + 0.6 / found.scaled.mu) / len(y))
        assert 1.5 < each < 6.0, "in deviations of the targets"
        assert self.seen(16.0 * y, epsilon)[0].plausible == pytest.approx(16.0 * found.plausible)

    def test_a_long_tail_may_go_on_where_it_is_seen(self, rng):
        light, heavy = rng.normal(size=20_000), rng.standard_t(2.0, size=20_000)
        heavy /= np.median(np.abs(heavy)) / np.median(np.abs(light))
        assert self.seen(heavy, 3.0)[0].plausible > 20.0 * self.seen(light, 3.0)[0].plausible

    def test_where_nothing_can_be_seen_targets_are_taken_for_normal_ones(self, rng):
        y = rng.normal(size=2000)
        found, curator = self.seen(y, 0.05)
        assert _tail(Sizes(np.zeros(26), 2.0 ** np.arange(26), 300.0, 2, 2000), np.sqrt) is None
        expected = 4.0 * 1.5 * np.median(np.abs(y)) * math.sqrt((2.0 + 0.6 / found.scaled.mu) / 2000)
        assert found.plausible == pytest.approx(expected)
        assert curator.spent.mu_squared == pytest.approx(found.share * found.scaled.mu**2, rel=1e-6)
        assert found.share == pytest.approx(0.06)

    @pytest.mark.parametrize("size", [0.0, math.inf, 1e-300])
    def test_absurd_sizes_are_not_looked_for(self, size):
        found = unseen([0.9, 0.9, 0.9])
        found.look(np.zeros(3), Clips(found.scaled, 0.0, 0.0, (), squared_size=size))
        assert math.isinf(found.plausible)
        assert found.scaled.curator.spent.mu_squared == 0.0

    def test_a_size_is_exceeded_by_as_many_as_one_asks_for(self):
        sizes = Sizes(np.array([50.0, 1000.0, 400.0, 3.0, 100.0, 5.0]), 2.0 ** np.arange(1, 7), 10.0, 1, 2000)
        assert sizes.exceeded_by(100.0) == pytest.approx(2.0**4)
        assert sizes.exceeded_by(500.0) == pytest.approx(2.0**2)
        assert sizes.exceeded_by(300.0) == pytest.approx(2.0**2.5)
        assert sizes.exceeded_by(2000.0) == 0.0
