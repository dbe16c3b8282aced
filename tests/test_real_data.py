"""What is promised on the paper's problems: DP-CD tuned for free, as the paper does, and the default solver untuned."""

import itertools

import numpy as np
import pytest
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from dpcd import DPGeneralizedLinearModel, DPLasso, DPLogisticRegression, DPRidge, datasets
from dpcd.experiments.settings import instance
from dpcd.losses import Logistic, Squared
from dpcd.nonprivate import objective, optimum
from dpcd.penalties import L1, L2
from dpcd.solvers import DPCD

RUNS = 5


@pytest.mark.parametrize(
    ("load", "loss", "penalty", "clips", "steps", "limit"),
    [
        ("california", Squared(), L1(1.0), [7e3, 1e4], [0.3, 0.5], 0.012),
        ("electricity", Logistic(), L2(1 / 45312), [5.0, 7.0], [1.0, 1.5], 0.003),
    ],
)
@pytest.mark.usefixtures("real_data")
def test_error_at_epsilon_one(load, loss, penalty, clips, steps, limit):
    X, y, _ = getattr(datasets, load)()
    best = objective(X, y, loss, penalty, optimum(X, y, loss, penalty)[0])
    smoothness = loss.curvature * np.mean(X**2, axis=0)

    def error(clip, step, passes, seeds):
        errors = []
        for seed in seeds:
            model = DPGeneralizedLinearModel(
                loss=loss,
                penalty=penalty,
                epsilon=1.0,
                smoothness=smoothness,
                fit_intercept=False,
                solver=DPCD(n_passes=passes, step_size=step, clip=clip),
                random_state=seed,
            ).fit(X, y)
            errors.append((objective(X, y, loss, penalty, model.coef_) - best) / best)
        return np.mean(errors)

    grid = list(itertools.product(clips, steps, [100, 200]))
    chosen = min(grid, key=lambda setting: error(*setting, seeds=range(RUNS)))
    # Judged on fresh runs: the minimum over a grid of noisy means flatters itself.
    assert error(*chosen, seeds=range(100, 100 + 2 * RUNS)) <= limit


PAPER = ["california-std", "california-raw", "electricity-std", "electricity-raw"]


def fitted(problem, seed, **parameters):
    """A model of the paper's objective by the default solver, at ε = 1."""
    if isinstance(problem.loss, Logistic):
        kind, parameters = DPLogisticRegression, parameters | {"classes": [-1, 1]}
    else:
        kind = DPLasso
    model = kind(alpha=problem.penalty.alpha, epsilon=1.0, fit_intercept=False, random_state=seed, **parameters)
    return model.fit(problem.X, problem.y)


def relative_error(problem, model):
    """Of the model's own predictions, which clip features as the model says."""
    seen = problem.X if model.feature_ranges_ is None else np.clip(problem.X, *model.feature_ranges_.T)
    value = objective(seen, problem.y, problem.loss, problem.penalty, np.ravel(model.coef_))
    return (value - problem.best) / problem.best


@pytest.mark.parametrize(("key", "limit"), list(zip(PAPER, [0.0010, 0.0005, 0.0020, 0.0003], strict=True)))
@pytest.mark.usefixtures("real_data")
def test_auto_with_known_smoothness(key, limit):
    problem = instance(key)
    errors = [relative_error(problem, fitted(problem, s, smoothness=problem.smoothness)) for s in range(20)]
    assert np.mean(errors) <= limit


@pytest.mark.parametrize(("key", "limit"), list(zip(PAPER, [0.0020, 0.0020, 0.0010, 0.0002], strict=True)))
@pytest.mark.usefixtures("real_data")
def test_nothing_declared_nothing_tuned(key, limit):
    problem = instance(key)
    assert np.mean([relative_error(problem, fitted(problem, seed)) for seed in range(20)]) <= limit


@pytest.mark.parametrize(("epsilon", "margin"), [(1.0, 0.02), (0.3, 0.05)])
@pytest.mark.usefixtures("real_data")
def test_held_out_records_are_predicted_almost_as_well_as_without_privacy(epsilon, margin):
    gaps = {"R²": [], "AUC": []}
    for seed in range(10):
        X, y, _ = datasets.california()
        X, held_out, y, truth = train_test_split(X, y, test_size=0.2, random_state=seed)
        private = DPRidge(epsilon=epsilon, random_state=seed).fit(X, y).score(held_out, truth)
        gaps["R²"].append(LinearRegression().fit(X, y).score(held_out, truth) - private)
        X, y, _ = datasets.electricity()
        X, held_out, y, truth = train_test_split(X, y, test_size=0.2, random_state=seed)
        scores = DPLogisticRegression(epsilon=epsilon, random_state=seed).fit(X, y).decision_function(held_out)
        plain = make_pipeline(StandardScaler(), LogisticRegression()).fit(X, y).decision_function(held_out)
        gaps["AUC"].append(roc_auc_score(truth, plain) - roc_auc_score(truth, scores))
    assert np.mean(gaps["R²"]) <= margin
    assert np.mean(gaps["AUC"]) <= margin
