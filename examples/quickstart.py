"""Fit a private LASSO and a private logistic regression, and see what privacy costs.

Needs no download: the two tables are simulated, with columns whose scales differ by a factor of 10,000. Prints the
models, their privacy statements and how they compare with the same models fitted without privacy, and saves a plot of
error against ε as quickstart.png.
"""

import argparse
import math

import numpy as np

from dpcd import DPLasso, DPLogisticRegression
from dpcd.losses import Logistic, Squared
from dpcd.nonprivate import objective, optimum
from dpcd.penalties import L1, L2

SCALES = np.array([0.01, 0.1, 1.0, 10.0, 100.0])
COEFFICIENTS = np.array([0.0, -2.0, 0.0, 1.5, 1.0]) / SCALES
EPSILONS = [0.1, 0.3, 1.0, 3.0, 10.0]
N_RECORDS, RUNS, ALPHA = 50_000, 5, 0.02


def simulate(rng):
    """Features in a known range, a numeric target and a label."""
    X = rng.uniform(-math.sqrt(3), math.sqrt(3), size=(N_RECORDS, len(SCALES))) * SCALES
    y = X @ COEFFICIENTS + rng.normal(size=N_RECORDS)
    return X, y, np.where(y > 0, 1, -1)


def relative_error(X, y, loss, penalty, coef, best):
    return (objective(X, y, loss, penalty, coef) - best) / best


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--plot", default="quickstart.png", help="where to save the plot")
    path = parser.parse_args().plot
    X, y, labels = simulate(np.random.default_rng(0))
    settings = {"feature_bounds": (-2 * SCALES, 2 * SCALES), "fit_intercept": False}
    problems = {
        "LASSO": (DPLasso(alpha=ALPHA, target_bounds=(-15, 15), **settings), y, Squared(), L1(ALPHA)),
        "logistic regression": (
            DPLogisticRegression(alpha=1 / N_RECORDS, classes=[-1, 1], **settings),
            labels,
            Logistic(),
            L2(1 / N_RECORDS),
        ),
    }
    errors = {}
    for name, (model, target, loss, penalty) in problems.items():
        coef, _ = optimum(X, target, loss, penalty)
        best = objective(X, target, loss, penalty, coef)
        model.fit(X, target)
        private = np.ravel(model.coef_)
        error = relative_error(X, target, loss, penalty, private, best)
        print(f"\nPrivate {name}, epsilon = {model.epsilon:g}")
        print("-" * 79)
        print("column's scale     " + "".join(f"{scale:>12g}" for scale in SCALES))
        print("private            " + "".join(f"{value:>12.4g}" for value in private))
        print("without privacy    " + "".join(f"{value:>12.4g}" for value in coef))
        print(f"objective          {error:.2%} above the optimum\n")
        print(model.privacy_)
        errors[name] = [
            [
                relative_error(X, target, loss, penalty, np.ravel(fit.coef_), best)
                for fit in (model.set_params(epsilon=epsilon).fit(X, target) for _ in range(RUNS))
            ]
            for epsilon in EPSILONS
        ]
    plot(errors, path)
    print(f"\nSaved {path}: error against epsilon, {RUNS} private fits each.")


def plot(errors, path):
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(6, 4), layout="constrained")
    for (name, values), marker, color in zip(errors.items(), "os", ("#0072B2", "#D55E00"), strict=True):
        values = np.array(values)
        axes.plot(EPSILONS, values.mean(axis=1), marker=marker, color=color, label=name)
        axes.fill_between(EPSILONS, values.min(axis=1), values.max(axis=1), color=color, alpha=0.2, linewidth=0)
    axes.set(xscale="log", yscale="log", xlabel="privacy budget ε (smaller is more private)")
    axes.set_ylabel("objective above the optimum, relative")
    axes.set_xticks(EPSILONS, [f"{epsilon:g}" for epsilon in EPSILONS])
    axes.minorticks_off()
    axes.grid(alpha=0.3)
    axes.legend(title=f"mean and range of {RUNS} fits", frameon=False)
    figure.savefig(path, dpi=150)


if __name__ == "__main__":
    main()
