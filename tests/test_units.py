"""Units are nobody's business: a weak penalty is one in any, and so is what a fit predicts."""

import math

import numpy as np
import pytest

from dpcd import (
    DPElasticNet,
    DPGeneralizedLinearModel,
    DPHuberRegressor,
    DPLasso,
    DPLinearSVC,
    DPLogisticRegression,
    DPRidge,
)
from dpcd.penalties import L1, L2, ElasticNet, Rescaled, Zero, bare, strengths
from dpcd.solvers import DPCD, Auto, DPBlockCD, DPFrankWolfe, DPNewton, ObjectivePerturbation

MODELS = {
    "lasso": DPLasso(),
    "ridge": DPRidge(),
    "elastic net": DPElasticNet(),
    "huber": DPHuberRegressor(),
    "generalized": DPGeneralizedLinearModel(),
    "logistic": DPLogisticRegression(),
    "logistic l1": DPLogisticRegression(penalty="l1"),
    "svc": DPLinearSVC(),
    "newton": DPRidge(solver=DPNewton()),
    "block": DPRidge(solver=DPBlockCD()),
    "cd": DPLasso(solver=DPCD(n_passes=5)),
    "frank-wolfe": DPLasso(solver=DPFrankWolfe(), fit_intercept=False),
    "perturbation": DPRidge(solver=ObjectivePerturbation(), target_bounds=(-8, 8)),
}


def table(model, rng):
    X = rng.normal(size=(20_000, 4))
    signal = X @ [1.0, -0.5, 0.3, 0.0]
    if hasattr(model, "classes"):
        return X, signal + rng.logistic(size=len(X)) > 0.3
    return X, signal + 0.5 * rng.normal(size=len(X)) + model.fit_intercept


@pytest.mark.parametrize("name", MODELS)
def test_columns_in_any_unit_give_the_same_predictions(name, rng):
    """A penalty of 1/n in raw units would be all that is left of columns of 1e-6."""
    model = MODELS[name].set_params(epsilon=3.0, random_state=0)
    X, y = table(model, rng)
    score = model.fit(X, y).score(X, y)
    assert score > 0.6
    for factors in ([1e-6, 1e-3, 1e3, 1.0], [1e-3] * 4, [1e3] * 4, [1.0, 1e-6, 1.0, 1.0]):
        assert model.fit(X * factors, y).score(X * factors, y) == pytest.approx(score, abs=0.02), factors


@pytest.mark.parametrize("unit", [1e-6, 1e3])
@pytest.mark.parametrize("name", ["lasso", "ridge", "elastic net", "block"])
def test_targets_in_any_unit(name, unit, rng):
    model = MODELS[name].set_params(epsilon=3.0, random_state=0)
    X, y = table(model, rng)
    score = model.fit(X, y).score(X, y)
    assert model.fit(X, unit * y).score(X, unit * y) == pytest.approx(score, abs=0.02)


def test_without_noise_the_default_is_weak_in_any_unit(rng):
    X, y = rng.normal(size=(200, 3)), rng.normal(size=200)
    plain = DPRidge(epsilon=math.inf).fit(X, y).predict(X)
    np.testing.assert_allclose(
        DPRidge(epsilon=math.inf).fit(1e-4 * X, y).predict(1e-4 * X), plain, rtol=0.05, atol=0.01
    )
    least_squares = np.linalg.lstsq(np.c_[X, np.ones(200)], y, rcond=None)[0]
    np.testing.assert_allclose(plain, np.c_[X, np.ones(200)] @ least_squares, atol=0.05)


@pytest.mark.filterwarnings("ignore::dpcd.UselessModelWarning")
def test_an_explicit_strength_is_in_the_units_of_the_columns(rng):
    """As in scikit-learn: what shrinks a column of scale 1 by half leaves nothing of one of 1e-3."""
    X = rng.normal(size=(20_000, 1))
    y = X[:, 0] + 0.1 * rng.normal(size=len(X))
    for scale, left in ((1.0, 0.5), (1e-3, 0.0), (1e3, 1.0)):
        model = DPRidge(alpha=1.0, epsilon=3.0, fit_intercept=False, random_state=0).fit(scale * X, y)
        assert model.coef_[0] * scale == pytest.approx(left, abs=0.05)


@pytest.mark.parametrize("penalty", [L1(0.3), L2(0.3), ElasticNet(0.3, 0.4)], ids=str)
def test_a_rescaled_penalty_is_that_of_the_rescaled_problem(penalty, rng):
    """½(v − w)² + step·ψ(s·w/t)·t², minimised over w, is the prox at the rescaled point."""
    scales, unit = np.array([0.2, 5.0, 1.0]), 3.0
    rescaled = Rescaled(penalty, scales, unit)
    grid = np.linspace(-4.0, 4.0, 80_001)
    for j, v, step in ((0, 1.3, 0.7), (1, -2.0, 0.05), (2, 0.5, 2.0), (1, 0.01, 1.0)):
        values = [unit**2 * penalty.value(scales[j] * w / unit, j) for w in (v, -v)]
        assert [rescaled.value(w, j) for w in (v, -v)] == pytest.approx(values)
        objective = 0.5 * (grid - v) ** 2 + step * np.array([rescaled.value(w, j) for w in grid])
        assert rescaled.prox(v, step, j) == pytest.approx(grid[np.argmin(objective)], abs=2e-4)
    assert bare(rescaled) is penalty
    if not isinstance(penalty, ElasticNet):
        power = 2 if isinstance(penalty, L2) else 1
        expected = 0.3 * scales**power * (1.0 if power == 2 else unit)
        np.testing.assert_allclose(strengths(rescaled, 3), expected)


def test_strengths_of_plain_penalties():
    assert strengths(L1(0.5), 2).tolist() == [0.5, 0.5]
    assert strengths(Zero(), 2).tolist() == [0.0, 0.0]
    assert bare(L2(1.0)) == L2(1.0)
    assert Auto() == Auto()
