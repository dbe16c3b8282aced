"""Solvers that choose coordinates: DP-GCD, DP-Frank–Wolfe and screening."""

import math

import numpy as np
import pytest

from dpcd import DPLasso, DPLogisticRegression
from dpcd.losses import Logistic, Squared
from dpcd.nonprivate import objective, optimum
from dpcd.penalties import L1, L2, Box, ElasticNet, WeightedL1, Zero
from dpcd.privacy import Columns, PrivacyBudget, SeededNoise
from dpcd.privacy.choices import TopCoordinates
from dpcd.solvers import DPCD, DPGCD, DPSCD, DPSGD, DPFrankWolfe, Problem, Screened
from problems import name
from replay import RecordingCurator

CHOICES = np.random.default_rng


def sparse(n=1500, p=40, loss=None, epsilon=5.0, penalty=None, seed=0, intercept=False):
    """Three of many columns matter; their scales differ."""
    rng = np.random.default_rng(seed)
    scales = np.geomspace(0.1, 10.0, p)
    X = rng.normal(size=(n, p)) * scales
    z = X[:, [3, 17, 30]] @ (np.array([1.0, -2.0, 1.5]) / scales[[3, 17, 30]])
    loss = Squared() if loss is None else loss
    y = np.where(z + rng.logistic(size=n) > 0, 1.0, -1.0) if isinstance(loss, Logistic) else z + rng.normal(size=n)
    penalty = L1(0.1) if penalty is None else penalty
    smoothness = loss.curvature * np.append(np.mean(X**2, axis=0), np.ones(int(intercept)))
    slope = 1.0 if isinstance(loss, Logistic) else math.sqrt(np.mean(y**2))
    noise = SeededNoise(np.random.default_rng(seed + 1))
    curator = RecordingCurator(Columns.copy_of(X, y, intercept), PrivacyBudget(epsilon, 1e-6), noise)
    return X, y, Problem(loss, penalty, smoothness, p, slope), curator


def lost(X, y, problem, weights):
    """(F(w) − F*)/(F(0) − F*)."""
    best, _ = optimum(X, y, problem.loss, problem.penalty)
    value, least, zero = (
        objective(X, y, problem.loss, problem.penalty, w) for w in (weights, best, np.zeros(X.shape[1]))
    )
    return (value - least) / (zero - least)


SOLVERS = [DPGCD(), DPGCD(n_updates=7, clip=3.0, selection_share=0.2), DPFrankWolfe(), Screened(), Screened(DPGCD(), 5)]


@pytest.mark.parametrize("solver", SOLVERS, ids=name)
@pytest.mark.parametrize("loss", [Squared(), Logistic()], ids=name)
def test_the_budget_is_spent_and_not_overspent(solver, loss):
    *_, problem, curator = sparse(loss=loss)
    solver.solve(curator, problem, 2, CHOICES(0))
    half = curator.spent.mu_squared
    solver.solve(curator, problem, 1, CHOICES(1))
    assert 0.9999 * 5.0 < curator.spent.epsilon(1e-6) <= 5.0
    assert half <= curator.spent.mu_squared / 2 * (1 + 1e-6)
    # Screening rounds the number of parts up for the solver inside, and leaves the difference to what follows.
    assert half >= 0.35 * curator.spent.mu_squared


@pytest.mark.parametrize("solver", [DPGCD(), DPFrankWolfe(), Screened()], ids=name)
@pytest.mark.parametrize("loss", [Squared(), Logistic()], ids=name)
def test_defaults_are_useful_where_few_columns_matter(solver, loss):
    penalty = L1(0.02) if isinstance(loss, Logistic) else L1(0.1)
    X, y, problem, curator = sparse(loss=loss, epsilon=10.0, penalty=penalty)
    weights = solver.solve(curator, problem, 1, CHOICES(0)).weights
    assert lost(X, y, problem, weights) < (0.4 if isinstance(solver, DPFrankWolfe) else 0.1)


def test_screening_helps_where_coordinate_descent_has_too_many_columns():
    X, y, problem, curator = sparse(n=800, p=150, epsilon=3.0)
    *_, plain = sparse(n=800, p=150, epsilon=3.0)
    assert lost(X, y, problem, Screened().solve(curator, problem, 1, CHOICES(0)).weights) < 0.2
    assert lost(X, y, problem, DPCD().solve(plain, problem, 1, CHOICES(0)).weights) > 0.8


@pytest.mark.parametrize("solver", [DPGCD(), DPFrankWolfe()], ids=name)
def test_the_zero_model_where_the_budget_buys_nothing(solver):
    *_, problem, curator = sparse(n=40, epsilon=0.05)
    solution = solver.solve(curator, problem, 1, CHOICES(0))
    assert not solution.weights.any()
    assert curator.releases == ()


@pytest.mark.parametrize(
    ("loss", "penalty"),
    [
        (Squared(), Zero()),
        (Squared(), L1(0.1)),
        (Squared(), ElasticNet(0.2, 0.5)),
        (Squared(), Box(-0.5, 0.5)),
        (Logistic(), L1(0.02)),
        (Logistic(), L2(0.3)),
    ],
    ids=name,
)
def test_greedy_descent_reaches_the_optimum_without_privacy(loss, penalty):
    X, y, problem, curator = sparse(n=300, p=31, loss=loss, penalty=penalty, epsilon=math.inf)
    solver = DPGCD(n_updates=250, clip=math.inf)
    solver.check(loss, penalty, X.shape[1], False, private=False)
    weights = solver.solve(curator, problem, 1, CHOICES(0)).weights
    assert lost(X, y, problem, weights) < 1e-4


def test_greedy_descent_moves_the_intercept_too():
    X, y, problem, curator = sparse(n=300, p=31, epsilon=math.inf, intercept=True)
    curator._columns.target[:] += 50.0
    weights = DPGCD(n_updates=400, clip=math.inf).solve(curator, problem, 1, CHOICES(0)).weights
    best, intercept = optimum(X, y + 50.0, problem.loss, problem.penalty, fit_intercept=True)
    np.testing.assert_allclose(weights, np.append(best, intercept), atol=1e-4)
    assert curator.tape[1][0].coordinates.tolist() == [31]


def test_frank_wolfe_solves_the_penalized_problem_in_a_ball_that_holds_its_solution():
    X, y, problem, curator = sparse(n=300, p=31, epsilon=math.inf)
    best, _ = optimum(X, y, problem.loss, problem.penalty)
    radius = 1.2 * np.sum(np.sqrt(problem.smoothness) * np.abs(best))
    errors = []
    for n_steps in (40, 300):
        weights = DPFrankWolfe(radius, n_steps, clip=math.inf).solve(curator, problem, 1, CHOICES(0)).weights
        errors.append(lost(X, y, problem, weights))
        assert np.sum(np.sqrt(problem.smoothness) * np.abs(weights)) <= radius * (1 + 1e-12)
    # The error falls as 1/n_steps.
    assert errors[1] < min(0.01, errors[0] / 4)


def test_frank_wolfe_without_penalty_solves_the_constrained_problem():
    """Whose solution is that of a weighted l1 penalty, for the radius that this solution has."""
    X, y, problem, curator = sparse(n=300, p=31, penalty=Zero(), epsilon=math.inf)
    scales = np.sqrt(problem.smoothness)
    best, _ = optimum(X, y, problem.loss, WeightedL1(0.3, scales))
    solver = DPFrankWolfe(float(np.sum(scales * np.abs(best))), 300, clip=math.inf)
    weights = solver.solve(curator, problem, 1, CHOICES(0)).weights
    value, least, zero = (objective(X, y, problem.loss, Zero(), w) for w in (weights, best, np.zeros(31)))
    assert -1e-9 < (value - least) / (zero - least) < 0.01


def test_screening_keeps_everything_where_there_is_no_reason_to_choose():
    *_, problem, curator = sparse(epsilon=math.inf)
    Screened(DPCD(n_passes=2)).solve(curator, problem, 1, CHOICES(0))
    *_, few, other = sparse(p=31)
    Screened(DPCD(n_passes=2), n_kept=31).solve(other, few, 1, CHOICES(0))
    for tape in (curator.tape, other.tape):
        assert not any(isinstance(mechanism, TopCoordinates) for mechanism, _ in tape)


def test_screening_leaves_columns_out_but_never_the_intercept_nor_takes_one_that_is_out():
    _, _, problem, curator = sparse(intercept=True, epsilon=8.0)
    smoothness = problem.smoothness.copy()
    smoothness[17] = 0.0
    problem = Problem(problem.loss, problem.penalty, smoothness, 40, problem.slope)
    weights = Screened(DPCD(n_passes=3), 2).solve(curator, problem, 1, CHOICES(0)).weights
    (choice, kept), (updates, _) = curator.tape
    assert 17 not in choice.columns
    assert 40 not in choice.columns
    assert sorted(kept) == [3, 30]
    assert set(updates.coordinates) == {3, 30, 40}
    assert np.flatnonzero(weights).tolist() == [3, 30, 40]


@pytest.mark.parametrize("solver", [DPGCD(n_updates=8), DPFrankWolfe(n_steps=8)], ids=name)
def test_columns_without_smoothness_stay_out(solver):
    *_, problem, curator = sparse()
    smoothness = problem.smoothness * (np.arange(40) != 17)
    problem = Problem(problem.loss, problem.penalty, smoothness, 40, problem.slope)
    weights = solver.solve(curator, problem, 1, CHOICES(0)).weights
    assert weights[17] == 0.0
    assert all(17 not in mechanism.columns for mechanism, _ in curator.tape if hasattr(mechanism, "columns"))
    nothing = Problem(problem.loss, problem.penalty, np.zeros(40), 40, problem.slope)
    assert not solver.solve(curator, nothing, 1, CHOICES(0)).weights.any()


def test_the_estimators_take_them(rng):
    X = rng.normal(size=(2000, 30))
    y = X[:, 4] - X[:, 9]
    bounds = {"feature_bounds": (-4, 4), "random_state": 0, "epsilon": 8.0}
    for solver in (DPGCD(), DPFrankWolfe(), Screened(n_kept=4)):
        model = DPLasso(alpha=0.05, target_bounds=(-5, 5), fit_intercept=False, solver=solver, **bounds).fit(X, y)
        assert set(np.argsort(-np.abs(model.coef_))[:2]) == {4, 9}
        assert model.privacy_.spent_epsilon <= 8.0
    classes = np.where(y > 0.5, 2, np.where(y < -0.5, 1, 0))
    model = DPLogisticRegression(penalty="l1", solver=Screened(n_kept=4), **bounds).fit(X, classes)
    assert 7.99 < model.privacy_.spent_epsilon <= 8.0
    assert model.score(X, classes) > 0.5


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: DPGCD(n_updates=0), "n_updates"),
        (lambda: DPGCD(step_size=0.0), "step_size"),
        (lambda: DPGCD(clip=-1.0), "clip"),
        (lambda: DPGCD(clip="adaptive"), "clip"),
        (lambda: DPGCD(selection_share=1.0), "selection_share"),
        (lambda: DPFrankWolfe(radius=0.0), "radius"),
        (lambda: DPFrankWolfe(n_steps=1.5), "n_steps"),
        (lambda: DPFrankWolfe(clip=math.nan), "clip"),
        (lambda: Screened(n_kept=0), "n_kept"),
        (lambda: Screened(share=0.0), "share"),
        (lambda: Screened(DPCD), "solver"),
        (lambda: Screened(DPSGD()), "leaves no column out"),
        (lambda: Screened(DPSCD(1.0)), "leaves no column out"),
        (lambda: DPGCD(clip=[1.0]).check(Squared(), Zero(), 3, False, True), "each of 3 columns"),
        (lambda: DPGCD(clip=math.inf).check(Squared(), Zero(), 3, False, True), "infinite clip"),
        (lambda: DPFrankWolfe().check(Squared(), L2(1.0), 3, False, True), "l1 ball"),
        (lambda: DPFrankWolfe().check(Squared(), L1(1.0), 3, True, True), "intercept"),
        (lambda: DPFrankWolfe(clip=math.inf).check(Squared(), L1(1.0), 3, False, True), "infinite clip"),
        (lambda: Screened(DPCD(clip=math.inf)).check(Squared(), Zero(), 3, False, True), "infinite clip"),
    ],
)
def test_wrong_settings(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_greedy_choices_follow_the_rule(rng):
    """The first coordinate without noise is that with the largest |∂_j f|/√M_j; an l1 penalty can change it."""
    X = rng.normal(size=(200, 3)) * [1.0, 100.0, 0.01]
    y = X @ np.array([1.0, -0.02, 30.0])
    gradient = X.T @ y / 200
    smoothness = np.mean(X**2, axis=0)
    for penalty, rate in ((Zero(), np.abs(gradient)), (L1(0.01), np.maximum(np.abs(gradient) - 0.01, 0.0))):
        curator = RecordingCurator(
            Columns.copy_of(X, y), PrivacyBudget(math.inf, 1e-6), SeededNoise(np.random.default_rng(0))
        )
        DPGCD(n_updates=1, clip=1e6).solve(curator, Problem(Squared(), penalty, smoothness, 3), 1, CHOICES(0))
        assert curator.tape[0][1].tolist() == [np.argmax(rate / np.sqrt(smoothness))]
