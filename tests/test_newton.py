"""Solvers on whole records: proximal Newton and one-block DP-CD."""

import math
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import pytest

from dpcd.experiments.families import Sample, family
from dpcd.losses import Huber, Logistic, SmoothedHinge, Squared
from dpcd.nonprivate import newton_optimum, objective, optimum
from dpcd.penalties import L1, L2, Box, WeightedL1, Zero
from dpcd.privacy import Columns, PrivacyBudget, SeededNoise
from dpcd.privacy.records import GradientSizes, JointGradient, MomentMatrix
from dpcd.quadratic.model import Quadratic
from dpcd.solvers import Auto, DPBlockCD, DPNewton, Problem, Screened
from dpcd.solvers.newton import QuadraticModel, believed_hessian
from dpcd.solvers.preconditioner import Moments
from dpcd.solvers.scaled import Scaled
from fitting import lost, solve, spent_share, symmetric_noise
from problems import LOSSES, PENALTIES, name, simulate
from replay import RecordingCurator

SOLVERS = [DPNewton(), DPBlockCD()]


@pytest.mark.parametrize("solver", SOLVERS, ids=name)
@pytest.mark.parametrize("loss", LOSSES, ids=name)
@pytest.mark.parametrize("penalty", PENALTIES, ids=name)
def test_reaches_the_optimum_without_noise(solver, loss, penalty, rng):
    X, y = simulate(loss, 300, 3, rng)
    solution, _ = solve(solver, X, y, loss, penalty, math.inf)
    best, _ = optimum(X, y, loss, penalty)
    value, least, zero = (objective(X, y, loss, penalty, w) for w in (solution.weights, best, np.zeros(3)))
    assert value - least <= 1e-10 * zero
    # A steep hinge that labels nearly separate is flat along their direction: the weights get there last.
    scale = np.sqrt(np.mean(X**2, axis=0))
    np.testing.assert_allclose(solution.weights * scale, best * scale, atol=1e-6, rtol=3e-6)


class TestWithoutNoise:
    """Steps with the Hessian of each point: a few dozen, where an upper bound of it takes thousands."""

    def test_columns_that_nearly_agree_take_few_steps(self, rng):
        shared = rng.normal(size=(600, 1))
        X = shared + 0.03 * rng.normal(size=(600, 6))
        y = np.where(shared[:, 0] + 0.1 * rng.normal(size=600) > 0.0, 1.0, -1.0)
        for loss in (Logistic(), SmoothedHinge(0.5), Huber(0.3)):
            solution, _ = solve(DPNewton(), X, y, loss, L2(1e-4), math.inf)
            best, _ = newton_optimum(X, y, loss, L2(1e-4), tol=1e-13)
            value, least = (objective(X, y, loss, L2(1e-4), w) for w in (solution.weights, best))
            assert value - least <= 1e-9 * least
            assert solution.n_passes <= 100

    @pytest.mark.parametrize("loss", [Logistic(), SmoothedHinge(0.25)], ids=name)
    def test_labels_that_can_be_separated_end_it_too(self, loss, rng):
        X = rng.normal(size=(500, 3))
        y = np.where(X.sum(axis=1) > 0.0, 1.0, -1.0)
        solution, _ = solve(DPNewton(), X, y, loss, Zero(), math.inf)
        assert np.all(y * (X @ solution.weights) > 0.0)
        assert np.all(np.isfinite(solution.weights))
        assert solution.n_passes <= 100

    @pytest.mark.parametrize("penalty", [Zero(), L2(0.01), L1(0.01)], ids=name)
    def test_columns_that_are_the_same_share_what_one_would_have(self, penalty, rng):
        X = rng.normal(size=(500, 2))
        y = np.where(X.sum(axis=1) + rng.normal(size=500) > 0.0, 1.0, -1.0)
        twice = np.column_stack([X, X])
        solution, _ = solve(DPNewton(), twice, y, Logistic(), penalty, math.inf)
        # Halves of a weight have half the sum of squares.
        half = L2(0.005) if isinstance(penalty, L2) else penalty
        best, _ = newton_optimum(X, y, Logistic(), half, tol=1e-13)
        np.testing.assert_allclose(solution.weights[:2] + solution.weights[2:], best, atol=1e-6)
        assert solution.n_passes <= 100

    def test_a_loss_that_is_flat_far_out_is_not_walked_away_on(self, rng):
        """Where no residual is within the threshold there is no curvature to see, and a Newton step has no end."""
        X = rng.normal(size=(500, 2))
        y = 1000.0 * X[:, 0] + rng.normal(size=500)
        solution, _ = solve(DPNewton(), X, y, Huber(1.0), L2(1e-6), math.inf)
        np.testing.assert_allclose(solution.weights, newton_optimum(X, y, Huber(1.0), L2(1e-6))[0], rtol=1e-4, atol=0.1)
        assert solution.n_passes <= 400


@pytest.mark.parametrize("solver", [*SOLVERS, DPNewton(n_steps=1), DPNewton(n_steps=2), DPBlockCD(n_steps=5)], ids=name)
@pytest.mark.parametrize("loss", [Squared(), Logistic()], ids=name)
def test_the_budget_is_used_up_and_never_exceeded(solver, loss):
    sample = family("correlated", 5000, 4, loss)
    for epsilon in (0.5, 5.0):
        solution, curator = solve(solver, sample.X, sample.y, loss, sample.penalty, epsilon)
        assert solution.weights.any()
        assert 0.98 <= spent_share(curator) <= 1.0
        assert curator.budget.admits(curator.spent)
    _, curator = solve(solver, sample.X, sample.y, loss, sample.penalty, 5.0, parts=4)
    assert 0.245 <= spent_share(curator) <= 0.25


@pytest.mark.parametrize("solver", [*SOLVERS, Auto(), Screened(Auto()), Screened(Auto(), n_kept=2)], ids=name)
@pytest.mark.parametrize("penalty", [L2(0.01), L1(0.01)], ids=name)
@pytest.mark.parametrize(("n", "p", "epsilon"), [(50, 1, 0.1), (50, 5, 0.1), (20, 3, 1e-4), (300, 5, 0.01)])
def test_a_budget_that_buys_nothing_gives_the_zero_model(solver, penalty, n, p, epsilon, rng):
    X = rng.normal(size=(n, p))
    solution, curator = solve(solver, X, X.sum(axis=1), Squared(), penalty, epsilon)
    assert not solution.weights.any()
    assert spent_share(curator) <= 1.0


@pytest.mark.parametrize("solver", [DPBlockCD(), Auto()], ids=name)
def test_labels_are_not_asked_about_for_a_budget_of_a_few_records(solver, rng):
    """Their clips are known without a look, but what is left of one step is noise."""
    X = rng.normal(size=(1000, 1))
    for epsilon, asked in ((0.02, False), (0.05, True)):
        solution, curator = solve(solver, X, np.sign(X[:, 0]), Logistic(), L2(0.01), epsilon)
        assert (1000.0 * math.sqrt(curator.budget.gaussian_room()) > 8.0) == asked
        assert bool(curator.releases) == asked
        assert asked or not solution.weights.any()


@pytest.mark.parametrize("solver", [*SOLVERS, Auto()], ids=name)
def test_nothing_left_to_spend_and_nothing_to_solve_give_the_zero_model(solver, rng):
    X, y = rng.normal(size=(500, 3)), rng.normal(size=500)

    class Empty(RecordingCurator):
        gaussian_room = 0.0

    for room, smoothness in ((Empty, np.ones(3)), (RecordingCurator, np.zeros(3))):
        curator = room(Columns.copy_of(X, y), PrivacyBudget(1.0, 1e-6), SeededNoise(rng))
        solution = solver.solve(curator, Problem(Squared(), L2(0.1), smoothness, 3), 1, rng)
        assert not solution.weights.any()
        assert curator.releases == ()


@pytest.mark.parametrize("solver", SOLVERS, ids=name)
@pytest.mark.parametrize("epsilon", [math.inf, 20.0])
def test_columns_without_smoothness_stay_out_and_penalties_find_their_own_column(solver, epsilon, rng):
    """The middle column is out; the strong penalty is the last one's, and the second has none to feel."""
    X = rng.normal(size=(6000, 4))
    y = X @ [1.0, 5.0, 1.0, 1.0] + 0.1 * rng.normal(size=6000)
    penalty = WeightedL1(1.0, np.array([0.0, 0.0, 0.5, 100.0]))
    smoothness = np.array([1.0, 0.0, 1.0, 1.0])
    solution, curator = solve(solver, X, y, Squared(), penalty, epsilon, smoothness=smoothness)
    assert solution.weights[1] == 0.0
    assert solution.weights[3] == 0.0
    np.testing.assert_allclose(solution.weights, [1.0, 0.0, 0.5, 0.0], atol=0.15)
    for mechanism, _ in curator.tape:
        assert mechanism.view.columns.tolist() == [0, 2, 3]
        assert not mechanism.view.weights[1]


def test_an_intercept_has_no_penalty(rng):
    X = np.column_stack([rng.normal(size=4000), np.ones(4000)])
    y = 3.0 + 0.1 * rng.normal(size=4000)
    for solver in SOLVERS:
        curator = RecordingCurator(Columns.copy_of(X, y), PrivacyBudget(20.0, 1e-6), SeededNoise(rng))
        solution = solver.solve(curator, Problem(Squared(), L1(2.0), np.ones(2), 1), 1, rng)
        assert solution.weights[0] == 0.0
        assert solution.weights[1] == pytest.approx(3.0, abs=0.2)


def awkward(kind, n, rng):
    """A table that invites endless steps."""
    X = rng.normal(size=(n, 4))
    if kind == "constant":
        X[:, 1], X[:, 2] = 1e6, 0.0
    elif kind == "nearly constant":
        X[:, 1] = 50.0 + 1e-3 * X[:, 1]
        X[:, 2] = 50.0 + 1e-3 * X[:, 2]
    elif kind == "duplicates":
        X[:, 2:] = X[:, :2]
    elif kind == "outliers":
        X[:5, 1], X[5:8, 2] = 1e5, -1e8
    y = rng.normal(size=n) + X[:, 0] * (kind != "no signal")
    return X, y


@pytest.mark.parametrize("solver", SOLVERS, ids=name)
@pytest.mark.parametrize("kind", ["constant", "nearly constant", "duplicates", "outliers", "no signal"])
def test_awkward_columns_do_no_harm(solver, kind):
    for n, epsilon, seed in ((5000, 0.1, 1), (5000, 0.1, 2), (20_000, 1.0, 3)):
        X, y = awkward(kind, n, np.random.default_rng(seed))
        solution, _ = solve(solver, X, y, Squared(), L2(1e-6), epsilon, seed)
        assert np.all(np.isfinite(solution.weights))
        zero = objective(X, y, Squared(), L2(1e-6), np.zeros(4))
        assert objective(X, y, Squared(), L2(1e-6), solution.weights) <= (1.02 if kind == "no signal" else 1.5) * zero


@pytest.mark.slow
@pytest.mark.parametrize("solver", SOLVERS, ids=name)
@pytest.mark.parametrize("loss", [Squared(), Logistic()], ids=name)
@pytest.mark.parametrize(
    "kind", ["scales", "heavy-tails", "outliers", "duplicates", "lognormal", "no-signal", "one-hot"]
)
def test_no_run_is_much_worse_than_the_zero_model(solver, loss, kind):
    for epsilon in (0.1, 1.0):
        sample = family(kind, 5000, 8, loss, seed=1)
        problem = sample.X, sample.y, loss, sample.penalty
        zero = objective(*problem, np.zeros(8))
        for seed in range(2):
            solution, _ = solve(solver, *problem, epsilon, seed)
            assert objective(*problem, solution.weights) <= 1.5 * zero


@pytest.mark.parametrize(("solver", "p", "limit"), [(DPNewton(), 8, 0.002), (DPBlockCD(), 60, 0.05)], ids=["8", "60"])
def test_how_much_of_the_signal_is_found(solver, p, limit):
    """(F − F*)/(F(0) − F*) over five seeds, so that nobody loses utility without noticing."""
    sample = family("correlated", 20_000, p, Squared())
    assert np.mean(lost(solver, sample, 1.0, range(5))) < limit


def test_releases_and_what_is_made_of_them():
    """Second moments in two rounds, a Hessian for a loss that needs one, and a quadratic that has the last point."""
    sample = family("correlated", 20_000, 4, Logistic())
    solution, curator = solve(DPNewton(n_steps=4), sample.X, sample.y, sample.loss, Zero(), 5.0)
    matrices = [mechanism for mechanism, _ in curator.tape if isinstance(mechanism, MomentMatrix)]
    assert [mechanism.weighted for mechanism in matrices] == [False, False, True, True]
    gradients = [mechanism for mechanism, _ in curator.tape if isinstance(mechanism, JointGradient)]
    assert len(gradients) == solution.n_passes == len(solution.path) == 4
    costs = [mechanism.cost.mu_squared for mechanism in gradients]
    np.testing.assert_allclose(np.divide(costs[1:], costs[:-1]), 1.6)
    assert not gradients[0].view.weights.any()
    np.testing.assert_array_equal(gradients[2].view.weights, solution.path[1])
    # Shrinkage alone is between the quadratic's minimum and the weights.
    np.testing.assert_allclose(solution.quadratic.minimize(), solution.weights, rtol=0.05)
    solution, curator = solve(DPNewton(), sample.X, sample.y, Squared(), Zero(), 5.0)
    assert sum(isinstance(mechanism, MomentMatrix) for mechanism, _ in curator.tape) == 2


class TestFarStarts:
    """On the way to a rare class the curvature falls again and again."""

    def run(self, **settings):
        sample = family("rare-class", 100_000, 6, Logistic())
        return sample, *solve(DPNewton(**settings), sample.X, sample.y, sample.loss, sample.penalty, 3.0)

    def test_more_of_the_steps_have_fresh_hessians(self):
        _, solution, curator = self.run()
        assert solution.n_passes == 8
        matrices = [mechanism for mechanism, _ in curator.tape if isinstance(mechanism, MomentMatrix)]
        assert 1 <= sum(mechanism.weighted for mechanism in matrices) - 2 <= 3
        assert 0.98 <= spent_share(curator) <= 1.0

    def test_no_step_is_too_long(self):
        sample, solution, _ = self.run()
        moves = np.diff(np.vstack([np.zeros(6), solution.path]), axis=0)
        assert np.all(np.sqrt(np.mean((sample.X @ moves.T) ** 2, axis=0)) < 2.1)

    @pytest.mark.parametrize("settings", [{"n_steps": 2}, {"moments": 0.4, "hessians": 0.24}, {"growth": 5.0}], ids=str)
    def test_whatever_the_settings_the_budget_suffices(self, settings):
        _, _, curator = self.run(**settings)
        assert 0.98 <= spent_share(curator) <= 1.0


class TestBelievedHessians:
    """Where a model is sure of most records, the curvature is low along its predictions, and the same elsewhere."""

    def test_along_predictions_the_curvature_is_what_was_released(self, rng):
        size, noise = 20, 0.04
        predictions = rng.normal(size=size)
        along = predictions / np.linalg.norm(predictions)
        true = 0.5 * np.eye(size) - 0.3 * np.outer(along, along)
        for _ in range(10):
            released = true + noise * symmetric_noise(size, rng)
            believed, level = believed_hessian(released, noise, predictions)
            assert along @ believed @ along == pytest.approx(0.2, abs=4 * noise)
            assert level == pytest.approx(0.485, abs=noise)
            others = believed - np.outer(along, along) @ believed
            assert np.linalg.norm(others - true + 0.2 * np.outer(along, along)) < 0.5 * np.linalg.norm(released - true)

    def test_noise_does_not_couple_directions(self, rng):
        predictions = np.eye(20)[0]
        for _ in range(10):
            released = np.eye(20) + 0.1 * symmetric_noise(20, rng)
            believed, _ = believed_hessian(released, 0.1, predictions)
            assert np.linalg.norm(believed[0, 1:]) < 0.3 * np.linalg.norm(released[0, 1:])

    def test_without_noise_nothing_changes(self, rng):
        rows = rng.normal(size=(50, 6))
        for predictions in (rng.normal(size=6), np.zeros(6)):
            believed, level = believed_hessian(rows.T @ rows / 50, 0.0, predictions)
            np.testing.assert_allclose(believed, rows.T @ rows / 50, rtol=1e-8, atol=1e-8)
            assert level == pytest.approx(np.trace(rows.T @ rows / 50) / 6)

    @pytest.mark.parametrize("size", [1, 2, 30])
    def test_steps_stay_finite_whatever_the_noise(self, size, rng):
        for _ in range(20):
            believed, level = believed_hessian(symmetric_noise(size, rng), 1.0, rng.normal(size=size))
            assert 0.0 < level < 10.0
            assert np.linalg.eigvalsh(believed).min() > 0.0

    def test_classes_that_are_well_apart(self, rng):
        """Taking the curvature along the predictions for that of other directions loses .04 to .05 here."""
        y = np.repeat([-1.0, 1.0], 3700)
        sample = Sample("apart", rng.normal(size=(7400, 20)) + 0.45 * y[:, None], y, Logistic(), L2(1e-4))
        assert np.mean(lost(DPNewton(), sample, 3.0, range(4))) < 0.03


class TestTrust:
    """How far a step may go, by what the last one did."""

    def longest(self, loss, slope, noise, rng):
        """After a step of length 2 at whose end the loss rises by this slope along it; a safe step has length 1."""
        X = rng.normal(size=(50, 3))
        curator = RecordingCurator(
            Columns.copy_of(X, np.ones(50)), PrivacyBudget(1.0, 1e-3), SeededNoise(np.random.default_rng(0))
        )
        scaled = Scaled.of(curator, Problem(loss, Zero(), loss.curvature * np.ones(3), 3), 1)
        model = QuadraticModel(scaled, Moments.unknown(3, 3.0, 0.0), np.zeros(3), np.ones(4), (), 0.0)
        across = math.sqrt(1.0 - slope**2)
        model.points = [np.zeros(3), np.array([2.0, 0.0, 0.0])]
        model.gradients = [np.ones(3), loss.curvature * np.array([slope, across, 0.0])]
        model.variances = [0.0, (loss.curvature * noise) ** 2]
        return model._longest_move()

    @pytest.mark.parametrize("loss", [Logistic(), Squared(), Huber()], ids=name)
    def test_half_as_far_as_a_step_that_was_surely_too_long(self, loss, rng):
        assert self.longest(loss, 0.5, 0.1, rng) == pytest.approx(1.0)
        assert self.longest(loss, 0.5, 0.2, rng) == pytest.approx(6.0), "it could be noise"
        assert self.longest(loss, -0.5, 0.0, rng) == pytest.approx(6.0), "it was too short"


class TestEasing:
    """A Huber loss in dollars whose threshold is meant for thousands of them is nearly linear."""

    def sample(self, spread, n_columns, rng):
        X = rng.normal(size=(8000, n_columns))
        y = spread * (X @ rng.normal(size=n_columns) / math.sqrt(n_columns) + 0.5 * rng.normal(size=8000))
        return Sample("far", X, y, Huber(1.35), L2(1e-6))

    @pytest.mark.parametrize(("solver", "n_columns"), [(DPNewton(), 4), (DPBlockCD(), 4), (DPBlockCD(), 30)], ids=str)
    @pytest.mark.parametrize("spread", [500.0, 3000.0])
    def test_targets_many_thresholds_away_are_reached(self, solver, n_columns, spread, rng):
        """Without easing .1 (proximal Newton, 500) to .98 is lost."""
        sample = self.sample(spread, n_columns, rng)
        assert np.mean(lost(solver, sample, 5.0, range(3))) < 0.03

    def test_small_budgets_do_most_of_the_way(self, rng):
        """Without easing .7 is lost."""
        assert np.max(lost(DPNewton(), self.sample(500.0, 5, rng), 0.5, range(4))) < 0.25

    @pytest.mark.parametrize(("spread", "eased"), [(1.0, False), (100.0, True)])
    def test_thresholds_come_down_to_the_loss_itself(self, spread, eased, rng):
        sample = self.sample(spread, 4, rng)
        _, curator = solve(DPNewton(), sample.X, sample.y, sample.loss, sample.penalty, 3.0)
        gradients = [mechanism for mechanism, _ in curator.tape if isinstance(mechanism, JointGradient)]
        thresholds = [mechanism.view.loss.threshold for mechanism in gradients]
        assert thresholds == sorted(thresholds, reverse=True)
        assert thresholds[-3:] == [1.35] * 3
        assert (thresholds[0] > 50.0 and thresholds[4] > 1.35) if eased else thresholds[0] == 1.35
        assert 0.98 <= spent_share(curator) <= 1.0

    @pytest.mark.parametrize("threshold", [1e-300, 1e-30, 1e30])
    @pytest.mark.parametrize("solver", SOLVERS, ids=name)
    def test_absurd_thresholds(self, solver, threshold, rng):
        sample = self.sample(100.0, 4, rng)._replace(loss=Huber(threshold))
        solution, curator = solve(solver, sample.X, sample.y, sample.loss, sample.penalty, 3.0)
        assert np.all(np.isfinite(solution.weights))
        assert spent_share(curator) <= 1.0

    def test_other_losses_pay_nothing_for_it(self, rng):
        sample = self.sample(100.0, 4, rng)._replace(loss=Squared())
        _, curator = solve(DPNewton(), sample.X, sample.y, sample.loss, sample.penalty, 3.0)
        assert not [m for m, _ in curator.tape if isinstance(m, GradientSizes) and m.of == "slopes"]


def test_rare_flags_count_although_their_rows_are_shortened_in_the_moments():
    sample = family("mixed", 20_000, 14, Squared())
    assert np.mean(lost(DPNewton(), sample, 3.0, range(4))) < 0.0005


@pytest.mark.parametrize("loss", [Squared(), Logistic()], ids=name)
def test_weights_of_equal_columns_do_not_drift_apart(loss):
    """Nothing but a penalty brings them back: driven by noise, they are up to four times as large as they should be."""
    sample = family("duplicates", 20_000, 10, loss)
    largest = np.max(np.abs(newton_optimum(*sample[1:])[0]))
    runs = [solve(DPNewton(), *sample[1:5], epsilon, seed=seed)[0] for epsilon in (1.0, 3.0) for seed in range(4)]
    assert np.mean([np.max(np.abs(solution.weights)) for solution in runs]) < 1.4 * largest


@pytest.mark.parametrize("kind", ["lognormal", "heavy-tails"])
def test_long_tails_do_not_keep_the_error_from_vanishing(kind):
    """However much of the second moments is hidden in long rows, the error vanishes as the budget grows."""
    sample = family(kind, 5000, 6, Squared())
    few, many = (np.mean(lost(DPNewton(), sample, epsilon, range(4))) for epsilon in (10.0, 30.0))
    assert few < 0.005
    assert many < 0.0005


@pytest.mark.parametrize("unit", [1e-6, 1e-4, 1.0, 1e9])
def test_the_unit_of_a_huber_target_does_not_matter(unit):
    sample = family("correlated", 5000, 4, Huber())
    sample = sample._replace(y=unit * sample.y, loss=Huber(threshold=unit))
    assert np.mean(lost(DPNewton(), sample, 1.0, range(4))) < 0.005


def test_a_huber_loss_that_never_turns_linear_is_a_squared_one():
    sample = family("correlated", 5000, 4, Huber())
    assert np.mean(lost(DPNewton(), sample._replace(loss=Huber(threshold=1e6)), 1.0, range(4))) < 0.01


@pytest.mark.parametrize("solver", [DPNewton(moments=0.6, hessians=0.049), DPBlockCD(moments=0.649)], ids=name)
@pytest.mark.parametrize("loss", [Squared(), Huber(), Logistic()], ids=name)
@pytest.mark.parametrize("intercept", [False, True])
def test_the_largest_shares_leave_something_for_gradients(solver, loss, intercept):
    sample = family("correlated", 2000, 3, loss)
    for epsilon in (0.05, 0.1, 0.2, 0.4):
        solution, curator = solve(solver, *sample[1:], epsilon, intercept=intercept)
        assert spent_share(curator) <= 1.0
        assert np.all(np.isfinite(solution.weights))


def test_moments_that_are_mostly_noise_do_no_harm():
    """One direction is five times as steep as the others, which they may not show: steps would diverge.

    Taken as they are, not shrunk, they would lose .17 on average.
    """
    sample = family("mixed", 20_000, 14, Squared())
    found = lost(DPNewton(), sample, 0.05, range(8))
    assert np.max(found) < 0.5
    assert np.mean(found) < 0.12


@pytest.mark.parametrize("solver", SOLVERS, ids=name)
@pytest.mark.parametrize("epsilon", [0.1, 1.0])
@pytest.mark.parametrize("loss", [Squared(), Logistic()], ids=name)
def test_boxes_hold_whatever_is_shrunk_or_stretched(solver, epsilon, loss):
    for n in (100, 5000):
        sample = family("correlated", n, 5, loss)
        for box in (Box(0.1, 0.2), Box(-0.3, -0.1), Box(-0.1, 0.1), Box(30.0, 40.0)):
            solution, _ = solve(solver, sample.X, sample.y, sample.loss, box, epsilon)
            np.testing.assert_allclose(solution.weights, np.clip(solution.weights, *box), rtol=1e-12)


@pytest.mark.parametrize("solver", SOLVERS, ids=name)
def test_constraints_of_ones_own_hold(solver):
    """A penalty needs no value where it is infinite, and none at all for a fit."""

    class Positive(NamedTuple):
        def prox(self, v, step, j):
            return max(v, 1.0)

    sample = family("correlated", 2000, 3, Logistic())
    for epsilon in (0.01, 1.0):
        solution, _ = solve(solver, sample.X, sample.y, sample.loss, Positive(), epsilon)
        assert np.all(solution.weights >= 1.0 - 1e-12)


@pytest.mark.parametrize("loss", LOSSES, ids=name)
@pytest.mark.parametrize(("n", "p", "epsilon"), [(100, 3, 0.12), (215, 2, 0.48), (120, 8, 0.3)])
def test_hopeless_budgets_do_no_harm(loss, n, p, epsilon):
    """No noise is taken for a gradient, or stretched: models without signal stay near zero."""
    rng = np.random.default_rng(n)
    X = rng.normal(size=(n, p))
    y = rng.choice([-1.0, 1.0], size=n)
    lengths = [np.linalg.norm(solve(Auto(), X, y, loss, Zero(), epsilon, seed)[0].weights) for seed in range(100)]
    assert np.median(lengths) < 0.35
    assert max(lengths) < 2.0


@pytest.mark.parametrize(("n", "epsilon", "size"), [(20_000, 10.0, 10.0), (20_000, 1.0, 3.0)])
def test_far_away_targets_of_a_huber_loss_are_reached(n, epsilon, size, rng):
    X = rng.normal(size=(n, 5))
    weights = size * np.array([0.6, -0.6, 0.4, 0.3, -0.17])
    y = X @ weights + rng.normal(size=n)
    for seed in range(3):
        solution, _ = solve(DPNewton(), X, y, Huber(), Zero(), epsilon, seed)
        np.testing.assert_allclose(solution.weights, weights, atol=0.05 * size)


def test_a_strong_penalty_is_not_taken_for_noise(rng):
    X = rng.normal(size=(20_000, 4))
    y = X @ [1.0, -1.0, 0.5, 0.5] + rng.normal(size=20_000)
    for alpha in (10.0, 100.0):
        solution, _ = solve(DPNewton(), X, y, Squared(), L2(alpha), 1.0)
        np.testing.assert_allclose((1.0 + alpha) * solution.weights, [1.0, -1.0, 0.5, 0.5], atol=0.05)


def test_steps_that_end_early_are_made_up_for():
    """With little budget for each column there are few steps, and what they find is not left as short as it is."""
    sample = family("correlated", 30_000, 100, Squared())
    problem = sample.X, sample.y, sample.loss, sample.penalty
    best, _ = newton_optimum(*problem)
    for seed in range(3):
        weights = solve(DPBlockCD(), *problem, 0.1, seed)[0].weights
        scale = (weights @ sample.X.T @ (sample.X @ best)) / np.sum((sample.X @ weights) ** 2)
        assert 0.5 < scale < 1.4


def test_without_signal_the_zero_model_is_nearly_all_that_is_left(rng):
    X, y = rng.normal(size=(20_000, 6)), rng.normal(size=20_000)
    for solver in SOLVERS:
        lengths = [np.linalg.norm(solve(solver, X, y, Squared(), Zero(), 1.0, seed)[0].weights) for seed in range(4)]
        assert np.mean(lengths) < 0.05


class TestTheQuadratic:
    @pytest.mark.parametrize("penalty", [Zero(), L1(0.2), L2(0.5), Box(-0.1, 0.3)], ids=name)
    def test_minimum_satisfies_its_definition(self, penalty, rng):
        A = rng.normal(size=(30, 4))
        H, b = A.T @ A / 30, rng.normal(size=4)
        w = Quadratic(H, b).minimize(penalty)
        for j in range(4):
            step = 1.0 / H[j, j]
            assert penalty.prox(w[j] - step * (H[j] @ w - b[j]), step, j) == pytest.approx(w[j], abs=1e-8)

    def test_columns_choose_their_penalty_and_may_have_none(self):
        quadratic = Quadratic(np.eye(3), np.ones(3), np.array([0, 2, 4]))
        penalty = WeightedL1(1.0, np.array([0.5, 9.0, 0.25, 9.0, 9.0]))
        np.testing.assert_allclose(quadratic.minimize(penalty, n_penalized=4), [0.5, 0.75, 1.0])
        np.testing.assert_allclose(quadratic.minimize(penalty), [0.5, 0.75, 0.0])
        flat = replace(quadratic, hessian=np.diag([1.0, 0.0, 1.0]))
        np.testing.assert_allclose(flat.minimize(), [1.0, 0.0, 1.0])


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: DPNewton(n_steps=0), "n_steps"),
        (lambda: DPNewton(n_steps=None), "n_steps"),
        (lambda: DPNewton(n_steps=1.5), "n_steps"),
        (lambda: DPNewton(n_steps=math.inf), "n_steps"),
        (lambda: DPNewton(n_steps=200), "fewer steps or less growth"),
        (lambda: DPNewton(growth=50.0), "fewer steps or less growth"),
        (lambda: DPNewton(growth=0.5), "growth"),
        (lambda: DPNewton(moments=0.0), "moments must be a share"),
        (lambda: DPNewton(hessians=1e-30), "hessians must be a share"),
        (lambda: DPNewton(moments=0.5, hessians=0.15), "shares that leave 0.35"),
        (lambda: DPBlockCD(n_steps=0), "n_steps"),
        (lambda: DPBlockCD(most_steps=2.5), "most_steps"),
        (lambda: DPBlockCD(growth=math.inf), "growth"),
        (lambda: DPBlockCD(n_steps=100, growth=1.2), "fewer steps or less growth"),
        (lambda: DPBlockCD(moments=0.65), "moments must be a share"),
    ],
)
def test_wrong_settings(make, message):
    with pytest.raises(ValueError, match=message):
        make()


class TestMomentsOfBlocks:
    """One-block DP-CD does not pay for second moments that are nothing but noise."""

    @pytest.mark.parametrize("loss", [Squared(), Logistic()], ids=name)
    def test_are_released_where_they_show_something(self, monkeypatch, loss):
        released = []
        moments = Scaled.release_moments

        def spy(self, share, rounds):
            released.append(share)
            return moments(self, share, rounds)

        monkeypatch.setattr(Scaled, "release_moments", spy)
        sample = family("correlated", 3000, 40, loss)
        for epsilon, expected in [(0.2, []), (10.0, [0.05])]:
            released.clear()
            _, curator = solve(DPBlockCD(), sample.X, sample.y, loss, Zero(), epsilon)
            assert released == expected
            assert 0.98 <= spent_share(curator) <= 1.0

    @pytest.mark.parametrize("agreement", [0.7, 0.99])
    @pytest.mark.parametrize("n_columns", [10, 100])
    def test_steps_are_safe_for_columns_that_agree(self, n_columns, agreement):
        """From the smallest budget with a step on, past the one from which on moments are released."""
        rng = np.random.default_rng(0)
        common = rng.normal(size=(3000, 1))
        X = np.sqrt(agreement) * common + np.sqrt(1.0 - agreement) * rng.normal(size=(3000, n_columns))
        y = common[:, 0] + 0.5 * rng.normal(size=3000)
        for epsilon in (0.05, 0.2, 0.5, 0.9, 1.4):
            weights = solve(DPBlockCD(), X, y, Squared(), Zero(), epsilon)[0].weights
            assert np.mean((X @ weights - y) ** 2) < (1.01 if epsilon < 0.2 else 0.5) * np.mean(y**2)


def test_targets_absurdly_far_from_a_threshold_are_no_error(rng):
    """What is known of the minimum is singular there, and the budget is spent: a fit must not end in an exception."""
    for seed in range(12):
        X = np.ones((1500, 3)) * rng.normal(size=3)
        y = 1e200 * rng.normal(size=1500)
        solution, _ = solve(DPNewton(), X, y, Huber(0.01), Zero(), 5.0, seed)
        assert np.all(np.isfinite(solution.weights))
