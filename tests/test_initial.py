"""Where the steps of solvers on whole records begin."""

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy.optimize import minimize_scalar
from sklearn.base import clone

from dpcd import DPLinearSVC, DPLogisticRegression, DPRidge
from dpcd.losses import Huber, Logistic, SmoothedHinge, Squared
from dpcd.nonprivate import newton_optimum, objective
from dpcd.penalties import L1, L2
from dpcd.privacy.records import JointGradient
from dpcd.solvers import Auto, DPBlockCD, DPNewton, Screened
from dpcd.solvers.clipping import _reach
from dpcd.solvers.initial import _flatness, best_constant, release_start, start_share
from fitting import scaled, solve, spent_share
from problems import name

SOLVERS = [DPNewton(), DPBlockCD(), Auto()]
LABEL_LOSSES = [Logistic(), SmoothedHinge(1.0), SmoothedHinge(0.25)]


def labels(n, positive, rng):
    """Labels of which this part is positive, and columns that have nothing to do with them."""
    return rng.normal(size=(n, 3)), np.where(rng.random(n) < positive, 1.0, -1.0)


class TestTheBestConstant:
    @pytest.mark.parametrize("mean", [-0.999, -0.5, 0.01, 0.8])
    def test_it_is_the_log_odds(self, mean):
        assert best_constant(Logistic(), mean) == pytest.approx(math.log((1.0 + mean) / (1.0 - mean)), rel=1e-9)

    @pytest.mark.parametrize("loss", LABEL_LOSSES, ids=name)
    @pytest.mark.parametrize("mean", [-0.9, 0.0, 0.3])
    def test_nothing_is_better(self, loss, mean):
        def risk(z):
            return (1.0 + mean) * loss.value(1.0, z) + (1.0 - mean) * loss.value(-1.0, z)

        best = minimize_scalar(risk, bounds=(-5.0, 5.0), method="bounded", options={"xatol": 1e-10})
        assert risk(best_constant(loss, mean)) <= best.fun + 1e-12

    @pytest.mark.parametrize("loss", LABEL_LOSSES, ids=name)
    def test_classes_are_alike_and_certainty_stays_finite(self, loss):
        for mean in (0.0, 0.2, 1.0):
            assert best_constant(loss, mean) == -best_constant(loss, -mean)
        assert 0.0 < best_constant(loss, 1.0) <= 20.0


@pytest.mark.parametrize("width", [0.01, 0.5, 2.0])
def test_the_flatness_of_a_hinge_is_that_of_the_records_at_its_bend(width):
    """At a constant within the bend of one label only, the records with that label are curved."""
    loss = SmoothedHinge(width=width)
    constant = best_constant(loss, 0.9)
    slopes = [loss.derivative(1.0, constant + h) for h in (-1e-6 * width, 1e-6 * width)]
    curved = (slopes[1] - slopes[0]) / (2e-6 * width * loss.curvature)
    assert _flatness(loss, constant, 0.9) == pytest.approx(0.95 * curved, abs=0.06)


class TestTheStart:
    @pytest.mark.parametrize("loss", LABEL_LOSSES, ids=name)
    def test_it_is_the_best_constant_for_the_labels(self, loss, rng):
        X, y = labels(5000, 0.1, rng)
        problem = scaled(X, y, loss, 1.0)
        share = start_share(problem)
        start = release_start(problem, share)
        expected = best_constant(loss, y.mean())
        np.testing.assert_allclose(problem.weights(start.point), [0.0, 0.0, 0.0, expected], atol=0.15)
        (release,) = problem.curator.releases
        assert release.description == JointGradient.description
        assert problem.curator.spent.mu_squared == pytest.approx(share * problem.mu**2, rel=1e-6)
        assert 0.004 <= share <= 0.15
        assert 0.05 <= start.flatness <= 1.0
        if isinstance(loss, Logistic):
            positive = 1.0 / (1.0 + math.exp(-problem.weights(start.point)[-1]))
            assert start.flatness == pytest.approx(4.0 * positive * (1.0 - positive), rel=1e-4)

    @pytest.mark.parametrize(("loss", "intercept"), [(Squared(), True), (Huber(), True), (Logistic(), False)])
    def test_where_there_is_no_constant_to_learn_nothing_is_spent(self, loss, intercept, rng):
        X, y = labels(5000, 0.1, rng)
        problem = scaled(X, y, loss, 1.0, intercept)
        share = start_share(problem)
        start = release_start(problem, share)
        assert not start.point.any()
        assert (share, start.flatness) == (0.0, 1.0)
        assert problem.curator.releases == ()

    def test_little_budget_gets_a_larger_share_and_what_could_be_noise_is_not_believed(self, rng):
        X, y = labels(2000, 0.5, rng)
        y[:1000], y[1000:] = 1.0, -1.0
        shares, constants = [], []
        for epsilon in (0.02, 0.5, 10.0):
            problems = [scaled(X, y, Logistic(), epsilon, seed=seed) for seed in range(30)]
            shares.append(start_share(problems[0]))
            starts = [release_start(problem, shares[-1]) for problem in problems]
            constants.append([start.point[-1] for start in starts])
        assert shares == sorted(shares, reverse=True)
        assert np.mean(np.array(constants) == 0.0) > 0.95
        assert np.all(np.isfinite(constants))

    def test_a_class_without_records_is_no_certainty(self, rng):
        X, _ = labels(500, 0.5, rng)
        for seed in range(10):
            problem = scaled(X, np.ones(500), Logistic(), 1.0, seed=seed)
            constant = release_start(problem, start_share(problem)).point[-1]
            # The share of negatives that noise would hide.
            assert 1.0 < constant < math.log(500.0)

    def test_where_classes_are_compared_they_begin_alike(self, rng):
        X, y = labels(5000, 0.1, rng)
        problem = scaled(X, y, Logistic(), 1.0)
        compared = replace(problem, problem=replace(problem.problem, compared=True))
        assert start_share(compared) == 0.0
        model = DPLogisticRegression(epsilon=1.0, random_state=0).fit(X, rng.integers(0, 3, size=5000))
        gradients = [each for each in model.privacy_.releases if each.description == JointGradient.description]
        # Eight steps for each of three classes, and nothing before.
        assert sum(each.count for each in gradients) == 24

    def test_how_long_gradients_are_at_the_start(self, rng):
        X, y = labels(100, 0.5, rng)
        problem = scaled(X, y, Logistic(), 1.0)
        assert _reach(problem, np.array([1.0, -1.0, 0.5, 0.0])) == 0.5
        for constant in (-3.0, 3.0):
            reach = _reach(problem, np.array([1.0, -1.0, 0.5, constant]))
            assert reach == pytest.approx(1.0 / (1.0 + math.exp(-3.0)))


@pytest.mark.parametrize("solver", SOLVERS, ids=name)
@pytest.mark.parametrize("loss", LABEL_LOSSES, ids=name)
def test_a_budget_that_buys_no_step_gives_the_best_constant(solver, loss, rng):
    X = rng.normal(size=(2000, 60))
    y = np.where(rng.random(2000) < 0.05, 1.0, -1.0)
    solution, curator = solve(solver, X, y, loss, L2(0.01), 0.05, intercept=True)
    assert not solution.weights[:-1].any()
    assert solution.weights[-1] == pytest.approx(best_constant(loss, y.mean()), abs=0.5)
    assert len(curator.releases) == 1
    assert 0.99 <= spent_share(curator) <= 1.0


@pytest.mark.parametrize("solver", SOLVERS, ids=name)
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 10.0])
def test_the_budget_is_used_up_with_an_intercept(solver, epsilon, rng):
    X = rng.normal(size=(3000, 5))
    y = np.where(X[:, 0] - 1.0 + rng.logistic(size=3000) > 0, 1.0, -1.0)
    solution, curator = solve(solver, X, y, Logistic(), L2(0.001), epsilon, intercept=True)
    assert 0.97 <= spent_share(curator) <= 1.0
    assert solution.weights[-1] < 0.0


def unequal(n, p, rng):
    """One label in twenty is positive, and a few of many columns say a little about which."""
    X = rng.normal(size=(n, p))
    y = np.where(0.5 * X[:, :4].sum(axis=1) - 3.5 + rng.logistic(size=n) > 0, 1.0, -1.0)
    return X, y


@pytest.mark.filterwarnings("ignore::dpcd.UselessModelWarning")
def test_a_small_budget_learns_of_a_rare_class_what_there_is_to_learn(monkeypatch, rng):
    X, y = unequal(8000, 50, rng)
    problem = X, y, Logistic(), L2(1e-4)
    zero, best = objective(*problem, np.zeros(50)), objective(*problem, *newton_optimum(*problem, fit_intercept=True))

    def loses(seed):
        model = DPLogisticRegression(
            epsilon=0.1, delta=1e-6, smoothness=0.25 * np.mean(X**2, axis=0), random_state=seed
        )
        model.fit(X, y)
        return (objective(*problem, model.coef_[0], model.intercept_[0]) - best) / (zero - best)

    ours = np.mean([loses(seed) for seed in range(4)])
    monkeypatch.setattr("dpcd.solvers.initial._has_constant", lambda scaled: False)
    without = np.mean([loses(seed) for seed in range(4)])
    assert ours < 0.25
    assert ours < 0.8 * without


def test_screening_that_sees_nothing_gives_the_best_constant(rng):
    X, y = rng.normal(size=(1000, 60)), np.where(rng.random(1000) < 0.05, 1.0, -1.0)
    unseen = 0
    for seed in range(4):
        solution, curator = solve(Screened(Auto()), X, y, Logistic(), L1(0.001), 0.1, seed, intercept=True)
        assert spent_share(curator) <= 1.0
        if len(curator.releases) == 2:
            unseen += 1
            assert solution.weights[-1] < -1.0
    assert unseen


@pytest.mark.parametrize(
    "model",
    [
        DPRidge(alpha=1e170, fit_intercept=False),
        DPRidge(alpha=1.0, fit_intercept=False, feature_bounds=(-1e-89, 1e-89)),
        DPLinearSVC(width=1e120),
    ],
    ids=["no move", "tiny", "flat"],
)
@pytest.mark.filterwarnings("ignore::dpcd.UselessModelWarning")
@pytest.mark.parametrize("epsilon", [0.1, 3.0])
def test_absurd_settings_do_not_fail_after_a_charge(model, epsilon, rng):
    X = (1e-90 if model.feature_bounds else 1.0) * rng.normal(size=(3000, 30))
    y = X[:, 0] if isinstance(model, DPRidge) else X[:, 0] > 0.0
    fitted = clone(model).set_params(epsilon=epsilon, solver=DPBlockCD(), random_state=0).fit(X, y)
    assert np.all(np.isfinite(fitted.coef_))
