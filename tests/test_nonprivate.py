import numpy as np
import pytest

from dpcd.losses import Huber, Logistic, SmoothedHinge, Squared
from dpcd.nonprivate import newton_optimum, objective, optimum
from dpcd.penalties import L1, L2, Zero
from problems import LOSSES, PENALTIES, name, simulate


@pytest.mark.parametrize("loss", LOSSES, ids=name)
@pytest.mark.parametrize("penalty", PENALTIES, ids=name)
def test_nothing_near_the_optimum_is_better(loss, penalty, rng):
    X, y = simulate(loss, 80, 3, rng)
    coef, intercept = optimum(X, y, loss, penalty, fit_intercept=True)
    best = objective(X, y, loss, penalty, coef, intercept)
    scale = 1 / np.sqrt(np.mean(X**2, axis=0))
    for size in (1e-3, 1e-2, 1e-1):
        for _ in range(10):
            other = coef + size * scale * rng.normal(size=3)
            assert objective(X, y, loss, penalty, other, intercept + size * rng.normal()) >= best - 1e-12


def test_least_squares(rng):
    X, y = simulate(Squared(), 100, 3, rng)
    coef, _ = optimum(X, y, Squared(), Zero())
    np.testing.assert_allclose(coef, np.linalg.lstsq(X, y, rcond=None)[0], rtol=1e-8)


def test_too_few_passes_are_an_error(rng):
    X = rng.normal(size=(50, 1)) + 1e-4 * rng.normal(size=(50, 2))
    with pytest.raises(RuntimeError, match="has not converged in 40 passes"):
        optimum(X, X[:, 0] - X[:, 1], Squared(), Zero(), max_passes=40)


@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("penalty", [L1(0.05), L2(1e-3)], ids=["l1", "l2"])
@pytest.mark.parametrize("loss", [Squared(), Logistic(), Huber(0.5), SmoothedHinge(0.5)], ids=name)
def test_newton_finds_the_same_minimum(loss, penalty, intercept, rng):
    X, y = simulate(loss, 500, 6, rng)
    X[:, 5] = X[:, 0]
    X[:, 0] += 2.0
    least = objective(X, y, loss, penalty, *optimum(X, y, loss, penalty, intercept, tol=1e-9, max_passes=1_000_000))
    found, constant = newton_optimum(X, y, loss, penalty, intercept)
    assert objective(X, y, loss, penalty, found, constant) == pytest.approx(least, rel=1e-8)
    assert (constant != 0.0) == intercept


def test_newton_does_not_mind_columns_far_from_zero(rng):
    """Nor one that is constant, beside an intercept."""
    X, y = simulate(Logistic(), 500, 4, rng)
    X[:, 2], X[:, 3] = 3.0, X[:, 3] + 1e4
    coef, intercept = newton_optimum(X, y, Logistic(), L2(1e-3), fit_intercept=True)
    shifted = X - [0.0, 0.0, 3.0, 1e4]
    expected = optimum(shifted, y, Logistic(), L2(1e-3), fit_intercept=True)
    least = objective(shifted, y, Logistic(), L2(1e-3), *expected)
    assert objective(X, y, Logistic(), L2(1e-3), coef, intercept) == pytest.approx(least, rel=1e-7)


def test_newton_says_when_it_has_not_converged(rng):
    X, y = simulate(Logistic(), 500, 6, rng)
    with pytest.raises(RuntimeError, match="2 steps: raise max_steps"):
        newton_optimum(X, y, Logistic(), L2(1e-3), max_steps=2)
