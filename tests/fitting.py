"""Runs of solvers on whole tables, their budgets, and what they lose."""

from contextlib import contextmanager

import numpy as np

from dpcd.nonprivate import newton_optimum, objective
from dpcd.penalties import L2
from dpcd.policy import POLICY
from dpcd.privacy import Columns, PrivacyBudget, SeededNoise
from dpcd.solvers import Problem
from dpcd.solvers.scaled import Scaled
from replay import RecordingCurator


def solve(solver, X, y, loss, penalty, epsilon=1.0, seed=0, parts=1, smoothness=None, intercept=False):
    """A seeded run with M_j known; with an intercept its weight is the last."""
    budget = PrivacyBudget(epsilon, 1.0 / len(y) ** 2)
    curator = RecordingCurator(Columns.copy_of(X, y, intercept), budget, SeededNoise(np.random.default_rng([seed, 1])))
    known = loss.curvature * np.mean(X**2, axis=0) if smoothness is None else smoothness
    known = np.append(known, loss.curvature) if intercept else known
    problem = Problem(loss, penalty, known, X.shape[1])
    return solver.solve(curator, problem, parts, np.random.default_rng(0)), curator


def scaled(X, y, loss, epsilon, intercept=True, seed=0, penalty=None):
    """A problem whose columns have second moment 1, as solvers on whole records see it."""
    budget, noise = PrivacyBudget(epsilon, 1e-6), SeededNoise(np.random.default_rng(seed))
    curator = RecordingCurator(Columns.copy_of(X, y, intercept), budget, noise)
    smoothness = np.full(X.shape[1] + intercept, loss.curvature)
    return Scaled.of(curator, Problem(loss, penalty or L2(0.01), smoothness, X.shape[1]), 1)


@contextmanager
def tuned(**changes):
    """With other numbers in the policy."""
    before = {name: getattr(POLICY, name) for name in changes}
    try:
        for name, value in changes.items():
            object.__setattr__(POLICY, name, value)
        yield
    finally:
        for name, value in before.items():
            object.__setattr__(POLICY, name, value)


def spent_share(curator):
    return curator.spent.mu_squared / curator.budget.gaussian_room()


def lost(solver, sample, epsilon, seeds):
    """(F − F*)/(F(0) − F*) of some runs."""
    problem = sample.X, sample.y, sample.loss, sample.penalty
    best, zero = (objective(*problem, w) for w in (newton_optimum(*problem)[0], np.zeros(sample.X.shape[1])))
    values = [objective(*problem, solve(solver, *problem, epsilon, seed)[0].weights) for seed in seeds]
    return (np.array(values) - best) / (zero - best)


def symmetric_noise(size, rng):
    """A symmetric matrix with noise of deviation 1 on its diagonal, as `MomentMatrix` makes it."""
    draws = rng.normal(size=(size, size))
    return (draws + draws.T) / 2.0
