"""What is computed from a private quadratic: minima, paths, reweighting, constraints, confidence intervals."""

import math
import re
from pathlib import Path

import numpy as np
import pytest
from scipy.optimize import lsq_linear
from scipy.special import expit, ndtri
from sklearn.linear_model import enet_path

from dpcd import DPLogisticRegression, DPRidge
from dpcd.losses import Logistic, Squared
from dpcd.penalties import L1, Box, ElasticNet, WeightedL1, Zero, non_negative
from dpcd.privacy import Columns, Curator, PrivacyBudget, SeededNoise
from dpcd.solvers import DPNewton, Problem, Quadratic


@pytest.fixture
def table(rng):
    X = rng.normal(size=(200, 6)) @ rng.normal(size=(6, 6))
    return X, X @ np.array([2.0, 0.0, -1.0, 0.0, 0.5, 0.0]) + rng.normal(size=200)


def of(X, y, **fields):
    return Quadratic(X.T @ X / len(y), X.T @ y / len(y), **fields)


class TestPath:
    @pytest.mark.parametrize("l1_ratio", [1.0, 0.5])
    def test_is_that_of_scikit_learn(self, table, l1_ratio):
        X, y = table
        alphas, coefficients, _ = enet_path(X, y, l1_ratio=l1_ratio, alphas=30, tol=1e-12, max_iter=100_000)
        assert of(X, y).path(alphas, l1_ratio) == pytest.approx(coefficients.T, abs=1e-7)

    def test_follows_the_order_of_the_strengths(self, table):
        quadratic = of(*table)
        path = quadratic.path([0.1, 2.0, 0.0])
        assert path[1] == pytest.approx(quadratic.minimize(L1(2.0)), abs=1e-8)
        assert path[2] == pytest.approx(np.linalg.solve(quadratic.hessian, quadratic.linear), abs=1e-7)

    def test_ridge(self, table):
        quadratic = of(*table)
        exact = np.linalg.solve(quadratic.hessian + 0.3 * np.eye(6), quadratic.linear)
        assert quadratic.path(0.3, l1_ratio=0.0)[0] == pytest.approx(exact, abs=1e-8)

    @pytest.mark.parametrize("l1_ratio", [1.0, 0.5])
    def test_begins_at_the_largest_alpha(self, table, l1_ratio):
        X, y = table
        quadratic = of(np.column_stack([X, np.ones(200)]), y + 5.0, n_penalized=6)
        alpha = quadratic.largest_alpha(l1_ratio)
        above, below = quadratic.path([1.001 * alpha, 0.999 * alpha], l1_ratio)
        assert not above[:6].any()
        assert above[6] == pytest.approx(np.mean(y) + 5.0)
        assert np.count_nonzero(below[:6]) == 1

    @pytest.mark.parametrize("wrong", [{"alphas": [-1.0]}, {"alphas": math.nan}, {"alphas": 1.0, "l1_ratio": 1.5}])
    def test_refuses_nonsense(self, table, wrong):
        with pytest.raises(ValueError, match="must"):
            of(*table).path(**wrong)

    def test_a_ridge_path_has_no_beginning(self, table):
        with pytest.raises(ValueError, match="above 0"):
            of(*table).largest_alpha(0.0)


class TestReweighted:
    def test_the_first_round_is_the_lasso(self, table):
        quadratic = of(*table)
        assert quadratic.reweighted(0.4, n_rounds=1) == pytest.approx(quadratic.minimize(L1(0.4)))

    def test_every_round_lowers_the_logarithmic_penalty(self, table):
        quadratic = of(*table)
        smoothing = np.array([0.1, 0.2, 0.1, 0.2, 0.1, 0.3])

        def value(w):
            logs = smoothing * np.log1p(np.abs(w) / smoothing)
            return 0.5 * w @ quadratic.hessian @ w - quadratic.linear @ w + 0.4 * logs.sum()

        values = [value(quadratic.reweighted(0.4, rounds, smoothing)) for rounds in range(1, 8)]
        assert np.all(np.diff(values) <= 1e-9)
        assert values[-1] < values[0] - 1e-3

    def test_shrinks_less_than_the_lasso_and_keeps_zeros(self, rng):
        X = rng.normal(size=(2000, 5))
        w = np.array([2.0, 0.0, -1.0, 0.0, 0.0])
        quadratic = of(X, X @ w + rng.normal(size=2000))
        lasso, found = quadratic.minimize(L1(0.2)), quadratic.reweighted(0.2)
        assert np.abs(lasso - w).max() > 0.15
        assert np.abs(found - w).max() < 0.1
        assert np.array_equal(found != 0.0, w != 0.0)

    def test_the_default_smoothing_knows_no_units(self, table):
        quadratic = of(*table)
        weights = quadratic.reweighted(0.4)
        scales = np.geomspace(0.01, 100.0, 6)
        # Rescaled columns, with a penalty rescaled alike, which only weights for each coordinate can say.
        lasso = quadratic.minimize(L1(0.4))
        roots = np.sqrt(np.diag(quadratic.hessian))
        smoothing = 0.1 * np.max(roots * np.abs(lasso)) / roots
        assert quadratic.reweighted(0.4, smoothing=smoothing) == pytest.approx(weights, abs=1e-9)
        other = Quadratic(quadratic.hessian * np.outer(scales, scales), quadratic.linear * scales)
        rescaled = other.minimize(WeightedL1(0.4, scales * smoothing / (np.abs(lasso) + smoothing)))
        assert rescaled * scales == pytest.approx(quadratic.reweighted(0.4, 2), abs=1e-8)

    def test_nothing_is_left_of_a_lasso_that_is_zero(self, table):
        quadratic = of(*table)
        assert not quadratic.reweighted(2.0 * quadratic.largest_alpha()).any()

    @pytest.mark.parametrize(
        "wrong", [{"alpha": -1.0}, {"alpha": 1.0, "n_rounds": 0}, {"alpha": 1.0, "smoothing": [1.0, 0.0]}]
    )
    def test_refuses_nonsense(self, table, wrong):
        with pytest.raises(ValueError, match="must"):
            of(*table).reweighted(**wrong)


class TestConstraints:
    @pytest.mark.parametrize("box", [Box(-0.5, 0.25), non_negative(), Box(0.1, 3.0)])
    def test_the_constrained_minimum(self, table, box):
        quadratic = of(*table)
        factor = np.linalg.cholesky(quadratic.hessian)
        target = np.linalg.solve(factor, quadratic.linear)
        exact = lsq_linear(factor.T, target, (box.lower, box.upper), method="bvls", tol=1e-14).x
        found = quadratic.minimize(box)
        assert found == pytest.approx(exact, abs=1e-7)
        assert np.all((found >= box.lower) & (found <= box.upper))
        assert np.any((found == box.lower) | (found == box.upper))


class TestColumns:
    def test_penalties_go_by_the_column_and_leave_the_rest_alone(self, table):
        X, y = table
        quadratic = of(X[:, [1, 2, 5]], y, columns=np.array([1, 2, 5]), n_penalized=5)
        weights = np.array([9.0, 1e9, 0.0, 9.0, 9.0, 1e9])
        found = quadratic.minimize(WeightedL1(1.0, weights))
        assert found[0] == 0.0
        assert found[1:] == pytest.approx(np.linalg.lstsq(X[:, [2, 5]], y)[0])
        # What a method is told counts more than what the quadratic says.
        assert quadratic.minimize(WeightedL1(1.0, weights), n_penalized=6)[2] == 0.0
        assert quadratic.path([1e9])[0, 2] != 0.0
        assert quadratic.reweighted(1e9)[2] != 0.0

    def test_expand_puts_results_in_their_place(self, table):
        quadratic = of(table[0][:, :2], table[1], columns=np.array([1, 3]))
        assert quadratic.expand([1.0, 2.0], 5) == pytest.approx([0.0, 1.0, 0.0, 2.0, 0.0])
        path = quadratic.expand([[1.0, 2.0], [3.0, 4.0]], 4, fill=math.nan)
        assert path[:, [1, 3]] == pytest.approx(np.array([[1.0, 2.0], [3.0, 4.0]]))
        assert np.isnan(path[:, [0, 2]]).all()
        with pytest.raises(ValueError, match="at least 4"):
            quadratic.expand([1.0, 2.0], 3)


class TestConfidenceIntervals:
    def test_are_those_of_least_squares(self, table):
        X, y = table
        quadratic = of(X, y, covariance=X.T @ X / 200**2)
        low, high = quadratic.confidence_intervals(0.9)
        center = np.linalg.lstsq(X, y)[0]
        half = 1.6448536269514722 * np.sqrt(np.diag(np.linalg.inv(X.T @ X)))
        assert low == pytest.approx(center - half)
        assert high == pytest.approx(center + half)

    @pytest.mark.parametrize(
        ("fields", "level", "message"),
        [
            ({}, 0.9, "lacks"),
            ({"covariance": np.eye(2)}, 1.0, "strictly between"),
            ({"covariance": np.eye(2), "hessian": np.ones((2, 2))}, 0.9, "singular"),
        ],
    )
    def test_say_why_there_are_none(self, fields, level, message):
        with pytest.raises(ValueError, match=message):
            Quadratic(**({"hessian": np.eye(2), "linear": np.ones(2)} | fields)).confidence_intervals(level)

    @pytest.mark.parametrize(
        ("loss", "epsilon", "n_runs"), [(Squared(), 1.0, 120), (Logistic(), 1.0, 100), (Logistic(), math.inf, 25)]
    )
    def test_cover_the_truth_and_would_not_without_the_privacy_noise(self, loss, epsilon, n_runs):
        """Runs are seeded; one interval in 20 misses, ± 1 % in 500 or 600 of them."""
        n, truth = 20_000 if math.isfinite(epsilon) else 1000, np.linspace(-1.0, 1.0, 5)
        covered, naive = [], []
        for seed in range(n_runs):
            rng = np.random.default_rng(seed)
            X = rng.normal(size=(n, 5))
            for j in range(1, 5):
                X[:, j] = 0.5 * X[:, j - 1] + math.sqrt(0.75) * X[:, j]
            noise = rng.normal(size=n)
            y = (
                X @ truth + noise
                if isinstance(loss, Squared)
                else np.where(rng.random(n) < expit(X @ truth), 1.0, -1.0)
            )
            curator = Curator(Columns.copy_of(X, y), PrivacyBudget(epsilon, 1e-8), SeededNoise(rng))
            problem = Problem(loss, Zero(), np.full(5, loss.curvature), 5)
            quadratic = DPNewton().solve(curator, problem, 1, rng).quadratic
            low, high = quadratic.confidence_intervals()
            covered.append((low < truth) & (truth < high))
            # With residuals of variance 1, or a likelihood, sampling alone has the covariance H/n.
            sampling = Quadratic(quadratic.hessian, quadratic.linear, covariance=quadratic.hessian / n)
            low, high = sampling.confidence_intervals()
            naive.append((low < truth) & (truth < high))
        assert 0.90 < np.mean(covered) < 0.99
        if math.isfinite(epsilon):
            assert np.mean(naive) < min(0.92, np.mean(covered) - 0.03)

    def coverage_and_length(self, kind, epsilon, columns, truths, n_runs):
        """Part of the intervals that cover the truth, and their deviation in units of the error's, over seeded runs."""
        covered, lengths, errors = [], [], []
        for seed in range(n_runs):
            rng = np.random.default_rng(seed)
            X, truth = columns(rng), truths(rng)
            scores = X @ truth
            y = scores + rng.normal(size=len(X)) if kind is DPRidge else scores + rng.logistic(size=len(X)) > 0.0
            quadratic = kind(alpha=1e-8, epsilon=epsilon, random_state=seed).fit(X, y).quadratic_
            low, high = quadratic.confidence_intervals()[:, : len(truth)]
            covered.append((low < truth) & (truth < high))
            lengths.append((high - low) / (2.0 * ndtri(0.975)))
            errors.append((low + high) / 2.0 - truth)
        return np.mean(covered), math.sqrt(np.mean(np.square(lengths)) / np.mean(np.square(errors)))

    @pytest.mark.parametrize(
        ("kind", "epsilon", "correlation", "longest"),
        [
            (DPRidge, 1.0, 0.99, 2.5),
            (DPRidge, 1.0, 0.999, 40.0),
            (DPLogisticRegression, 0.3, 0.9, 2.5),
            (DPLogisticRegression, 0.3, 0.99, 25.0),
        ],
    )
    def test_allow_for_curvature_that_cannot_be_told_from_noise(self, kind, epsilon, correlation, longest):
        """Of columns that nearly agree, little more than the sum is known: of each by itself, what predictions admit.

        Believing all of the curvature that steps rest on, intervals would cover .52, .19, .82 and .49.
        """

        def pairs(rng):
            half = rng.normal(size=(20_000, 3))
            return np.hstack([half, correlation * half + math.sqrt(1.0 - correlation**2) * rng.normal(size=half.shape)])

        coverage, length = self.coverage_and_length(kind, epsilon, pairs, lambda rng: rng.normal(size=6), 15)
        assert coverage > 0.9
        assert length < longest

    @pytest.mark.filterwarnings("ignore::dpcd.UselessModelWarning")
    @pytest.mark.parametrize(
        ("n_columns", "epsilon", "size", "longest"),
        [(10, 1.0, 1.0, 2.5), (10, 0.5, 1.0, 10.0), (6, 0.3, 1.0, 6.0), (1, 1.0, 0.006, 1.6)],
    )
    def test_are_as_long_as_the_error(self, n_columns, epsilon, size, longest):
        """Noise in the curvature of columns that have nothing in common says little, and weak signals no less.

        At small budgets sizes could have long tails, as far as can be seen.
        """
        coverage, length = self.coverage_and_length(
            DPRidge,
            epsilon,
            lambda rng: rng.normal(size=(10_000, n_columns)),
            lambda rng: size * rng.normal(size=n_columns),
            60 // n_columns + 8,
        )
        assert coverage > 0.85
        assert 0.7 < length < longest

    def test_the_fitted_weights_are_the_minimum_without_noise(self, table):
        X, y = table
        curator = Curator(Columns.copy_of(X, y), PrivacyBudget(math.inf, 0.1), SeededNoise(np.random.default_rng(0)))
        problem = Problem(Squared(), ElasticNet(0.2, 0.5), np.mean(X**2, axis=0), 6)
        solution = DPNewton().solve(curator, problem, 1, np.random.default_rng(0))
        assert solution.quadratic.minimize(problem.penalty) == pytest.approx(solution.weights, abs=1e-4)
        assert solution.quadratic.path([0.3])[0] == pytest.approx(of(X, y).minimize(L1(0.3)), abs=1e-4)


def test_the_example_of_the_documentation():
    text = (Path(__file__).parents[1] / "docs" / "postprocessing.md").read_text()
    shown = {}
    exec(re.search(r"^```python\n(.*?)^```", text, flags=re.MULTILINE | re.DOTALL)[1], shown)
    truth = np.array([1.0, 0.0, -0.5, 0.0, 0.2])
    assert not shown["path"][0].any()
    assert shown["path"][-1] == pytest.approx(truth, abs=0.1)
    assert shown["sparse"] == pytest.approx(truth, abs=0.1)
    assert np.array_equal(shown["sparse"] != 0.0, truth != 0.0)
    assert np.all(shown["positive"] >= 0.0)
    assert np.all(np.abs(shown["bounded"]) <= 0.3)
    assert np.sum((shown["low"] < truth) & (truth < shown["high"])) >= 4
