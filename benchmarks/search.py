"""Does searching pay? Default settings against PrivateSearch at the same total (epsilon, delta), on the paper's data.

    DPCD_DATA=folder python benchmarks/search.py [--runs 20] [--epsilon 1] [--n-iter 10]

Two questions. *Solver*: the paper's problems, searching the solver's settings; the error is the excess of the training
objective over its optimum, relative to the optimum. *Predictions*: searching the penalty; the error is that of
predictions for a fifth of the records that was held out (mean absolute error, or share of wrong classes).

For each, the mean error of

- the default settings with all of the budget;
- the best settings of the grid with all of the budget ("oracle"), chosen with knowledge of the results: no search can
  gain more;
- the best settings of the grid with a candidate's part of the budget ("reachable"): a search that always found them;
- PrivateSearch over the grid, beside its standard error.

Searching pays where its error is below the default's by more than twice the standard error of their difference.
Seeded, so not private: an experiment.
"""

from __future__ import annotations

import argparse
import itertools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from sklearn.base import clone
from sklearn.model_selection import ParameterGrid, train_test_split

from dpcd import DPLasso, DPLogisticRegression, PrivateSearch, datasets
from dpcd.losses import Logistic, Squared
from dpcd.nonprivate import objective, optimum
from dpcd.penalties import L1, L2
from dpcd.privacy import PrivacyBudget, PrivacyCost
from dpcd.privacy.search import NumberOfRuns, gaussian_budget
from dpcd.solvers import DPCD

SOLVERS = [DPCD(n_passes=n, step_size=step) for n, step in itertools.product([5, 15, 40, 100], [0.3, 1.0])]
PENALTIES = {"alpha": [0.001, 0.01, 0.03, 0.1, 0.3, 1.0]}


class Question(NamedTuple):
    """A model, what to search, the records, and how wrong a fitted model is."""

    name: str
    model: Any
    space: dict[str, list[Any]]
    scoring: str
    X: np.ndarray
    y: np.ndarray
    error: Callable[[Any], float]


def questions():
    # What the target cannot exceed is known to whoever knows the data set; nothing else is declared.
    bounds = {"target_bounds": (0.0, 5.1)}
    for name, load in (("California", datasets.california), ("Electricity", datasets.electricity)):
        X, y, _ = load()
        for scale, features in (("raw", X), ("standardized", datasets.standardized(X))):
            if name == "California":
                alpha = 1.0 if scale == "raw" else 0.1
                model = DPLasso(**bounds, alpha=alpha, fit_intercept=False)
                problem, scoring = (Squared(), L1(alpha)), "neg_mean_squared_error"
            else:
                model = DPLogisticRegression(fit_intercept=False)
                problem, scoring = (Logistic(), L2(1.0 / len(y))), "neg_log_loss"
            yield Question(
                f"{name} {scale}, solver",
                model,
                {"solver": SOLVERS},
                scoring,
                features,
                y,
                _excess(features, y, *problem),
            )
        X, X_new, y, y_new = train_test_split(datasets.standardized(X), y, test_size=0.2, random_state=0)
        if name == "California":
            model, scoring = DPLasso(**bounds), "neg_mean_absolute_error"
        else:
            model, scoring = DPLogisticRegression(), "accuracy"
        yield Question(f"{name} standardized, predictions", model, PENALTIES, scoring, X, y, _wrongness(X_new, y_new))


def _excess(X, y, loss, penalty):
    best = objective(X, y, loss, penalty, optimum(X, y, loss, penalty)[0])
    return lambda model: (objective(X, y, loss, penalty, model.coef_.ravel()) - best) / best


def _wrongness(X, y):
    def error(model):
        return np.mean(model.predict(X) != y) if hasattr(model, "classes_") else np.mean(abs(model.predict(X) - y))

    return error


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--epsilon", type=float, default=1.0)
    parser.add_argument("--n-iter", type=float, default=10.0)
    options = parser.parse_args()
    for question in questions():
        delta, number = 1.0 / len(question.y) ** 2, NumberOfRuns(options.n_iter)
        budget = PrivacyBudget(options.epsilon, delta, number.best_order(options.epsilon, delta))
        part = gaussian_budget(0.9 * number.candidate_room(budget, PrivacyCost()), delta).epsilon

        def errors(model, runs=options.runs, question=question):
            fitted = (clone(model).set_params(random_state=seed).fit(question.X, question.y) for seed in range(runs))
            return [question.error(getattr(one, "best_estimator_", one)) for one in fitted]

        def best(epsilon, question=question, errors=errors):
            grid = [clone(question.model).set_params(**s, epsilon=epsilon) for s in ParameterGrid(question.space)]
            return errors(min(grid, key=lambda model: np.mean(errors(model, max(3, options.runs // 4)))))

        search = PrivateSearch(
            question.model,
            question.space,
            n_iter=options.n_iter,
            epsilon=options.epsilon,
            scoring=question.scoring,
        )
        default, searched = errors(clone(question.model).set_params(epsilon=options.epsilon)), errors(search)
        print(f"{question.name} (epsilon = {options.epsilon:g}, a candidate's {part:.3g})")
        for row, values in {
            "default": default,
            "oracle": best(options.epsilon),
            "reachable": best(part),
            "PrivateSearch": searched,
        }.items():
            print(f"  {row:<14} {np.mean(values):9.5f} ± {np.std(values) / math.sqrt(options.runs):.5f}")
        gain, uncertainty = np.mean(default) - np.mean(searched), math.hypot(np.std(default), np.std(searched))
        pays = gain > 2.0 * uncertainty / math.sqrt(options.runs)
        print(f"  searching {'pays' if pays else 'does not pay'}", flush=True)


if __name__ == "__main__":
    main()
