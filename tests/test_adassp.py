"""AdaSSP and its boosted version: what they compute from their releases, the noise, the ridge, and how well they do."""

import math

import numpy as np
import pytest

from dpcd import DPLasso
from dpcd.losses import Huber, Logistic, Squared
from dpcd.nonprivate import objective, optimum
from dpcd.penalties import L1, L2, Zero
from dpcd.privacy import Columns, Curator, PrivacyBudget, SeededNoise
from dpcd.privacy.records import GradientSizes, JointGradient, MomentMatrix
from dpcd.solvers import AdaSSP, BoostedAdaSSP, DPNewton, Problem
from problems import PENALTIES, name
from replay import RecordingCurator

SOLVERS = [AdaSSP(), BoostedAdaSSP()]
NO_PENALTY = Zero()


def table(rng, n, p, correlation=0.5):
    X = rng.normal(size=(n, p))
    for j in range(1, p):
        X[:, j] = correlation * X[:, j - 1] + math.sqrt(1.0 - correlation**2) * X[:, j]
    return X, X @ np.linspace(-1.0, 1.0, p) + rng.normal(size=n)


def solve(solver, X, y, epsilon, seed=0, penalty=NO_PENALTY, kind=Curator, **changes):
    rng = np.random.default_rng(seed)
    curator = kind(Columns.copy_of(X, y), PrivacyBudget(epsilon, 1.0 / len(y) ** 2), SeededNoise(rng))
    fields = {"smoothness": np.mean(X**2, axis=0), "n_penalized": X.shape[1]} | changes
    return solver.solve(curator, Problem(Squared(), penalty, **fields), 1, rng), curator


def lost(X, y, weights, penalty=NO_PENALTY):
    best, _ = optimum(X, y, Squared(), penalty)
    values = [objective(X, y, Squared(), penalty, w) for w in (weights, best, np.zeros(X.shape[1]))]
    return (values[0] - values[1]) / (values[2] - values[1])


@pytest.mark.parametrize("solver", SOLVERS, ids=name)
class TestBoth:
    @pytest.mark.parametrize("loss", [Logistic(), Huber(1.0)], ids=name)
    def test_refuse_other_losses(self, solver, loss):
        with pytest.raises(ValueError, match="squared loss only"):
            solver.check(loss, Zero(), 3, False, private=True)

    @pytest.mark.parametrize("penalty", PENALTIES, ids=name)
    def test_reach_the_optimum_without_noise(self, solver, penalty, rng):
        X, y = table(rng, 300, 3)
        solution, _ = solve(solver, X, y, math.inf, penalty=penalty)
        assert solution.weights == pytest.approx(optimum(X, y, Squared(), penalty)[0], abs=1e-6)

    @pytest.mark.parametrize("penalty", [Zero(), L1(0.1)], ids=name)
    def test_do_well_where_records_are_plenty_and_spend_all(self, solver, penalty, rng):
        X, y = table(rng, 20_000, 5)
        solution, curator = solve(solver, X, y, 1.0, penalty=penalty)
        assert lost(X, y, solution.weights, penalty) < 0.01
        assert curator.gaussian_room < 1e-6 * curator.spent.mu_squared
        assert solution.quadratic.minimize(penalty) == pytest.approx(solution.weights, abs=1e-6)

    def test_give_the_zero_model_where_the_budget_buys_noise(self, solver, rng):
        X, y = table(rng, 200, 10)
        solution, curator = solve(solver, X, y, 0.5)
        assert solution.n_passes == 0
        assert not solution.weights.any()
        assert not curator.releases

    def test_columns_without_smoothness_stay_out(self, solver, rng):
        X, y = table(rng, 5000, 3)
        solution, _ = solve(solver, X, y, 2.0, smoothness=np.array([1.0, 0.0, 1.0]))
        assert solution.weights[1] == 0.0
        assert np.array_equal(solution.quadratic.columns, [0, 2])
        solution, curator = solve(solver, X, y, 2.0, smoothness=np.zeros(3))
        assert not solution.weights.any()
        assert not curator.releases

    def test_the_noise_falls_as_mu_grows(self, solver, rng):
        """Published code for boosted AdaSSP reads as multiplying the sensitivity by μ in place of 1/μ."""
        X, y = table(rng, 5000, 3)
        levels = {}
        for epsilon in (0.5, 5.0):
            _, curator = solve(solver, X, y, epsilon, kind=RecordingCurator)
            mu_squared = PrivacyBudget(epsilon, 1.0 / len(y) ** 2).gaussian_room()
            assert sum(m.noise_multiplier**-2 for m, _ in curator.tape) == pytest.approx(mu_squared, rel=1e-6)
            (moments,) = [m for m, _ in curator.tape if isinstance(m, MomentMatrix)]
            share = 1.0 / (moments.noise_multiplier**2 * mu_squared)
            assert share == pytest.approx(solver.moments)
            # What comes out of the mechanism is as noisy as it says.
            again = [moments.run(curator._columns, SeededNoise(np.random.default_rng(s)))[0, 0] for s in range(200)]
            levels[epsilon] = np.std(again)
            expected = math.sqrt(2.0) * moments.radius**2 / (len(y) * math.sqrt(mu_squared * share))
            assert levels[epsilon] == pytest.approx(expected, rel=0.2)
        assert levels[5.0] < 0.2 * levels[0.5]

    def test_intervals_cover(self, solver):
        covered = []
        for seed in range(20):
            X, y = table(np.random.default_rng(seed), 20_000, 5)
            solution, _ = solve(solver, X, y, 1.0, seed)
            low, high = solution.quadratic.confidence_intervals()
            covered.append((low < np.linspace(-1.0, 1.0, 5)) & (np.linspace(-1.0, 1.0, 5) < high))
        assert np.mean(covered) > 0.88

    @pytest.mark.parametrize("share", [0.0, 0.95, math.nan])
    def test_shares_leave_something(self, solver, share):
        with pytest.raises(ValueError, match="share"):
            type(solver)(moments=share)

    def test_work_in_an_estimator(self, solver, rng):
        X, y = table(rng, 20_000, 4)
        bounds = {"feature_bounds": (-5.0, 5.0), "target_bounds": (-10.0, 10.0)}
        model = DPLasso(alpha=0.01, solver=solver, epsilon=2.0, random_state=0, **bounds).fit(X, 0.5 * y + 2.0)
        assert model.coef_ == pytest.approx(0.5 * np.linspace(-1.0, 1.0, 4), abs=0.1)
        assert model.intercept_ == pytest.approx(2.0, abs=0.1)


def statistics(curator):
    """The noisy XᵀX/n and all Xᵀ(Xw − y)/n on a tape, the columns having second moment 1."""
    (moments,) = [answer for mechanism, answer in curator.tape if isinstance(mechanism, MomentMatrix)]
    return moments, [answer for mechanism, answer in curator.tape if isinstance(mechanism, JointGradient)]


def standardized(rng, n, p, correlation=0.5):
    X, y = table(rng, n, p, correlation)
    return X / np.sqrt(np.mean(X**2, axis=0)), y


@pytest.mark.parametrize("solver", [AdaSSP(), BoostedAdaSSP(n_rounds=4)], ids=name)
@pytest.mark.parametrize(("n", "correlation"), [(50_000, 0.0), (1500, 0.9)])
def test_rounds_are_ridge_regressions_of_residuals(solver, n, correlation, rng):
    """From what was released and the definition, without coordinate descent."""
    X, y = standardized(rng, n, 4, correlation)
    solution, curator = solve(solver, X, y, 1.0, kind=RecordingCurator)
    moments, gradients = statistics(curator)
    mechanism = next(m for m, _ in curator.tape if isinstance(m, MomentMatrix))
    np.fill_diagonal(moments, np.maximum(np.diag(moments), 1.0))
    level = 0.8 * mechanism.noise_level(n) * math.sqrt(2.0 * 4)
    ridge = max(0.0, level - np.linalg.eigvalsh(moments)[0])
    assert (ridge > 0.0) == (n == 1500), "one case needs a ridge and the other does not"
    weights = sum(-np.linalg.solve(moments + ridge * np.eye(4), gradient) for gradient in gradients)
    assert solution.weights == pytest.approx(weights, abs=1e-6)
    assert np.linalg.eigvalsh(solution.quadratic.hessian)[0] >= level * (1.0 - 1e-9)


def test_rounds_look_at_the_residuals_of_the_weights_found(rng):
    X, y = standardized(rng, 20_000, 3)
    solution, curator = solve(BoostedAdaSSP(n_rounds=3), X, y, 1.0, kind=RecordingCurator)
    points = [m.view.weights for m, _ in curator.tape if isinstance(m, JointGradient)]
    assert not points[0].any()
    assert np.array_equal(points[1:], solution.path[:2])
    clips = [m.clip for m, _ in curator.tape if isinstance(m, JointGradient)]
    assert clips[1] < clips[0]
    assert sum(isinstance(m, GradientSizes) for m, _ in curator.tape) == 3


def test_boosting_undoes_what_the_ridge_shrinks():
    """And Newton steps, which learn a metric and weigh all gradients, do better yet where p² is below nμ."""
    errors = {}
    for solver in (AdaSSP(), BoostedAdaSSP(), DPNewton()):
        cases = [(*table(np.random.default_rng(seed), 20_000, 20), seed) for seed in range(3)]
        errors[type(solver)] = np.mean([lost(X, y, solve(solver, X, y, 1.0, s)[0].weights) for X, y, s in cases])
    assert errors[AdaSSP] < 0.03
    assert errors[BoostedAdaSSP] < 0.3 * errors[AdaSSP]
    assert errors[DPNewton] < 0.6 * errors[BoostedAdaSSP]


def test_a_penalty_counts_once_however_many_rounds(rng):
    X, y = table(rng, 100_000, 3)
    solution, _ = solve(BoostedAdaSSP(n_rounds=5), X, y, 20.0, penalty=L2(0.5))
    assert solution.weights == pytest.approx(optimum(X, y, Squared(), L2(0.5))[0], abs=0.01)


@pytest.mark.parametrize("n_rounds", [0, 1.5])
def test_rounds_are_whole(n_rounds):
    with pytest.raises(ValueError, match="n_rounds"):
        BoostedAdaSSP(n_rounds=n_rounds)
