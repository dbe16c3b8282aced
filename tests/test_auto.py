"""The choice of a solver."""

import math

import numpy as np
import pytest

from dpcd import DPLasso, DPLogisticRegression
from dpcd.experiments.families import family
from dpcd.losses import Huber, Logistic, Squared
from dpcd.penalties import L1, L2, Box, ElasticNet, WeightedL1, Zero, non_negative
from dpcd.solvers import Auto, DPBlockCD, DPNewton, Screened
from dpcd.solvers.auto import choose
from fitting import solve, spent_share
from problems import name


def test_boundaries():
    # p³/(nμ) at 5 and 8, and just above.
    assert isinstance(choose(43_200, 60, 1.0, L2(0.1), Squared()).solver, DPNewton)
    assert isinstance(choose(43_199, 60, 1.0, L2(0.1), Squared()).solver, DPBlockCD)
    for loss in (Logistic(), Huber()):
        assert isinstance(choose(27_000, 60, 1.0, L2(0.1), loss).solver, DPNewton)
        assert isinstance(choose(26_999, 60, 1.0, L2(0.1), loss).solver, DPBlockCD)
        # nμ at and just below 430, or 100 for the squared loss.
        assert isinstance(choose(430, 3, 1.0, L2(0.1), loss).solver, DPNewton)
        assert isinstance(choose(429, 3, 1.0, L2(0.1), loss).solver, DPBlockCD)
    assert isinstance(choose(100, 3, 1.0, L2(0.1), Squared()).solver, DPNewton)
    assert isinstance(choose(99, 3, 1.0, L2(0.1), Squared()).solver, DPBlockCD)
    # nμ at and just below 30 for each of at least 20 columns.
    assert isinstance(choose(3000, 100, 1.0, L1(0.1), Squared()).solver, DPBlockCD)
    assert isinstance(choose(2999, 100, 1.0, L1(0.1), Squared()).solver, Screened)
    assert isinstance(choose(300, 20, 1.0, L1(0.1), Squared()).solver, Screened)
    assert isinstance(choose(300, 19, 1.0, L1(0.1), Squared()).solver, DPBlockCD)
    assert isinstance(choose(10, 1000, math.inf, L1(0.1), Squared()).solver, DPNewton)
    assert isinstance(choose(10, 5, 0.0, L2(0.1), Squared()).solver, DPBlockCD)


def test_only_penalties_that_make_zeros_screen():
    sparse = [L1(0.1), WeightedL1(0.1, np.ones(100)), ElasticNet(0.1, 0.5)]
    dense = [Zero(), L2(0.1), ElasticNet(0.1, 0.0), Box(-1.0, 1.0), non_negative()]
    for penalties, screened in ((sparse, True), (dense, False)):
        for penalty in penalties:
            assert isinstance(choose(500, 100, 0.5, penalty, Squared()).solver, Screened) == screened


@pytest.mark.parametrize("loss", [Squared(), Logistic()], ids=name)
@pytest.mark.parametrize("penalty", [L1(0.1), L2(0.1)], ids=name)
def test_more_records_or_budget_never_lead_back(penalty, loss):
    rank = {Screened: 0, DPBlockCD: 1, DPNewton: 2}
    sizes, budgets = np.geomspace(10, 1e8, 60).astype(int), np.geomspace(1e-4, 1e5, 60)
    for p in (1, 10, 200):
        by_records = [rank[type(choose(int(n), p, 0.3, penalty, loss).solver)] for n in sizes]
        by_budget = [rank[type(choose(5000, p, mu, penalty, loss).solver)] for mu in budgets]
        for ranks in (by_records, by_budget):
            assert ranks == sorted(ranks)
            assert ranks[-1] == 2
        by_columns = [rank[type(choose(5000, q, 0.3, penalty, loss).solver)] for q in range(1, 2000, 13)]
        assert by_columns == sorted(by_columns, reverse=True)


@pytest.mark.parametrize(
    ("n", "p", "penalty", "words"),
    [
        (20_000, 4, L2(0.01), ["proximal Newton, because p³/(nμ)"]),
        (2000, 20, L2(0.01), ["one-block DP-CD, because p³/(nμ)"]),
        (200, 2, L2(0.01), ["one-block DP-CD, because the budget is worth"]),
        (4000, 300, L1(0.05), ["screening first", "one-block DP-CD, because|proximal Newton, because"]),
    ],
)
def test_notes_say_what_was_chosen_and_why(n, p, penalty, words, rng):
    X = rng.normal(size=(n, p))
    y = 3.0 * X[:, 0] + rng.normal(size=n)
    solution, curator = solve(Auto(), X, y, Squared(), penalty)
    assert len(solution.notes) == len(words)
    for note, expected in zip(solution.notes, words, strict=True):
        assert any(note.startswith(start) for start in expected.split("|"))
    assert 0.98 <= spent_share(curator) <= 1.0
    if len(words) == 2:
        assert 1 <= np.count_nonzero(solution.weights) < 10
        assert solution.weights[0] != 0.0


def test_it_does_as_the_solver_it_chooses():
    sample = family("correlated", 5000, 4, Squared())
    problem = sample.X, sample.y, sample.loss, sample.penalty
    ours, theirs = (solve(solver, *problem)[0].weights for solver in (Auto(), DPNewton()))
    np.testing.assert_array_equal(ours, theirs)


def test_estimators_use_it(rng):
    X = rng.normal(size=(3000, 3))
    y = X @ [1.0, 0.0, -1.0] + rng.normal(size=3000)
    for model, target in (
        (DPLasso(alpha=0.01, solver=Auto(), random_state=0), y),
        (DPLogisticRegression(solver=Auto(), random_state=0), y > 0),
    ):
        fitted = model.fit(X, target)
        assert 0.9 < fitted.privacy_.spent_epsilon <= 1.0
        assert fitted.coef_.ravel()[0] > 0.3
