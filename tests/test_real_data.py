"""DP-CD on the paper's imbalanced problems, tuned over a coarse grid without paying for it, as the paper does."""

import itertools

import numpy as np
import pytest

from dpcd import DPGeneralizedLinearModel, datasets
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
