"""The paper as data: its problems, its grid, and the numbers in its tables."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpcd import datasets
from dpcd.datasets import Dataset
from dpcd.losses import Logistic, Loss, Squared
from dpcd.nonprivate import objective, optimum
from dpcd.penalties import L1, L2, Penalty
from dpcd.privacy import Columns

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class PaperProblem:
    """One of the five problems: a data set, a loss, a penalty, and ε (δ is 1/n²)."""

    title: str
    load: Callable[[], Dataset]
    standardize: bool
    loss: Loss
    penalty: Callable[[int], Penalty]
    epsilon: float


PROBLEMS = {
    "electricity-raw": PaperProblem(
        "Electricity (imbalanced)", datasets.electricity, False, Logistic(), lambda n: L2(1.0 / n), 1.0
    ),
    "electricity-std": PaperProblem(
        "Electricity (balanced)", datasets.electricity, True, Logistic(), lambda n: L2(1.0 / n), 1.0
    ),
    "california-raw": PaperProblem(
        "California (imbalanced)", datasets.california, False, Squared(), lambda n: L1(1.0), 1.0
    ),
    "california-std": PaperProblem(
        "California (balanced)", datasets.california, True, Squared(), lambda n: L1(0.1), 1.0
    ),
    "sparse-lasso": PaperProblem("Sparse LASSO", datasets.sparse_lasso, False, Squared(), lambda n: L1(30.0), 10.0),
}

#: Which method runs on which problem, as in the paper's figures; "DP-CD, exact" is ours.
METHODS: dict[str, tuple[str, ...]] = {
    "DP-CD": tuple(PROBLEMS),
    "DP-CD-P": ("electricity-raw", "california-raw"),
    "DP-SGD": tuple(PROBLEMS),
    "DP-SCD": ("electricity-raw", "electricity-std"),
    "DP-CD, exact": tuple(PROBLEMS),
}

PASSES = (2, 5, 10, 20, 50)
CLIPS = np.geomspace(1e-3, 1e6, 100)
CD_STEPS = np.geomspace(1e-2, 10.0, 10)
SGD_STEPS = np.geomspace(1e-6, 1.0, 10)
TUNING_RUNS = 5
CURVE_RUNS = 10


@dataclass(frozen=True, eq=False)
class Instance:
    """A problem with its data loaded and its constants computed (from the data, for free, as in the paper).

    With an intercept the last column is 1, and its weight has no penalty.
    """

    columns: Columns
    X: Floats
    y: Floats
    loss: Any
    penalty: Any
    epsilon: float
    delta: float
    smoothness: Floats
    global_smoothness: float
    largest: Floats
    row_norm: float
    best: float
    intercept: bool

    @property
    def features(self) -> Floats:
        """The columns, without that of an intercept."""
        return self.X[:, : self.X.shape[1] - self.intercept]

    def objective(self, weights: Floats, ranges: Floats | None = None) -> float:
        """F(w), infinite where the run diverged; with features clipped to ranges, if there are any, as models do."""
        if not np.all(np.isfinite(weights)):
            return np.inf
        X = self.X
        if ranges is not None:
            X = X.copy()
            X[:, : len(ranges)] = np.clip(self.features, ranges[:, 0], ranges[:, 1])
        with np.errstate(all="ignore"):
            value = _objective(X, self.y, self.loss, self.penalty, weights, self.intercept)
        return value if np.isfinite(value) else np.inf

    def relative_error(self, weights: Floats) -> float:
        """(F(w) − F*)/F*, infinite where the run diverged."""
        return (self.objective(weights) - self.best) / self.best


@cache
def instance(key: str) -> Instance:
    """Load a problem, once in each process."""
    problem = PROBLEMS[key]
    X, y, _ = problem.load()
    if problem.standardize:
        X = datasets.standardized(X)
    penalty = problem.penalty(len(y))
    weights, _ = optimum(X, y, problem.loss, penalty)
    return measured(X, y, problem.loss, penalty, weights, problem.epsilon)


def _objective(X: Floats, y: Floats, loss: Loss, penalty: Penalty, weights: Floats, intercept: bool) -> float:
    if intercept:
        return objective(X[:, :-1], y, loss, penalty, weights[:-1], float(weights[-1]))
    return objective(X, y, loss, penalty, weights)


def measured(
    X: Floats,
    y: Floats,
    loss: Loss,
    penalty: Penalty,
    weights: Floats,
    epsilon: float = 1.0,
    intercept: bool = False,
) -> Instance:
    """A problem with its constants, from its data and its optimal weights."""
    n_records, curvature = len(y), loss.curvature
    return Instance(
        columns=Columns.copy_of(X, y),
        X=X,
        y=y,
        loss=loss,
        penalty=penalty,
        epsilon=epsilon,
        delta=1.0 / n_records**2,
        smoothness=curvature * np.mean(X**2, axis=0),
        global_smoothness=curvature * float(np.linalg.eigvalsh(X.T @ X / n_records)[-1]),
        largest=np.abs(X).max(axis=0),
        row_norm=float(np.linalg.norm(X, axis=1).max()),
        best=_objective(X, y, loss, penalty, weights, intercept),
        intercept=intercept,
    )


#: Table 2 of the paper: relative error after tuning, by passes.
PAPER_ERRORS = {
    ("electricity-raw", "DP-CD"): (0.1458, 0.0842, 0.0436, 0.0147, 0.0020),
    ("electricity-raw", "DP-SGD"): (0.2047, 0.1804, 0.1766, 0.1644, 0.1484),
    ("electricity-std", "DP-CD"): (0.0186, 0.0023, 0.0013, 0.0013, 0.0019),
    ("electricity-std", "DP-SGD"): (0.0391, 0.0189, 0.0123, 0.0106, 0.0040),
    ("california-raw", "DP-CD"): (0.1708, 0.1232, 0.0598, 0.0287, 0.0124),
    ("california-raw", "DP-SGD"): (0.2799, 0.1863, 0.1476, 0.1094, 0.1068),
    ("california-std", "DP-CD"): (0.0007, 0.0011, 0.0012, 0.0010, 0.0017),
    ("california-std", "DP-SGD"): (0.0351, 0.0226, 0.0125, 0.0087, 0.0042),
    ("sparse-lasso", "DP-CD"): (0.2498, 0.4702, 0.5982, 0.7160, 0.7551),
    ("sparse-lasso", "DP-SGD"): (0.7551, 0.7551, 0.7551, 0.7551, 0.7551),
}

#: Table 3 of the paper: seconds of one run, by passes.
PAPER_SECONDS = {
    ("electricity-raw", "DP-CD"): (0.0128, 0.0274, 0.0500, 0.0980, 0.2457),
    ("electricity-raw", "DP-SGD"): (0.0663, 0.1722, 0.3321, 0.6729, 1.8588),
    ("electricity-std", "DP-CD"): (0.0121, 0.0281, 0.0529, 0.1062, 0.2577),
    ("electricity-std", "DP-SGD"): (0.0686, 0.1768, 0.3578, 0.6787, 1.6766),
    ("california-raw", "DP-CD"): (0.0029, 0.0065, 0.0130, 0.0258, 0.0647),
    ("california-raw", "DP-SGD"): (0.0269, 0.0665, 0.1318, 0.2628, 0.6476),
    ("california-std", "DP-CD"): (0.0031, 0.0065, 0.0132, 0.0262, 0.0649),
    ("california-std", "DP-SGD"): (0.0261, 0.0641, 0.1295, 0.2592, 0.6469),
    ("sparse-lasso", "DP-CD"): (0.0244, 0.0760, 0.1614, 0.3213, 0.6598),
    ("sparse-lasso", "DP-SGD"): (0.0718, 0.1788, 0.3654, 0.7292, 1.8110),
}
