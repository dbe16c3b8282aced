import dataclasses
import datetime
import json
import math
import pickle
import re
import warnings

import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import ElasticNet, Lasso, LogisticRegression, Ridge
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

import dpcd
from dpcd import (
    DPElasticNet,
    DPGeneralizedLinearModel,
    DPHuberRegressor,
    DPLasso,
    DPLinearSVC,
    DPLogisticRegression,
    DPRidge,
)
from dpcd.losses import Huber, Logistic, SmoothedHinge
from dpcd.nonprivate import optimum
from dpcd.penalties import L2, Box, WeightedL1
from dpcd.privacy import Curator, PrivacyCost
from dpcd.solvers import DPCD, DPNewton, GaussianSmoothness, LaplaceSmoothness
from test_sklearn import ESTIMATORS

EXACT = {"epsilon": math.inf, "solver": DPCD(n_passes=3000, clip=math.inf, average="last")}


@pytest.fixture
def regression(rng):
    X = rng.normal(size=(200, 5)) * [1.0, 3.0, 0.2, 1.0, 0.5] + [0.0, 1.0, 0.1, -0.5, 0.0]
    X[:, 3] += 0.5 * X[:, 0]
    y = X @ [1.0, -0.5, 0.0, 0.0, 2.0] + 0.7 + 0.3 * rng.normal(size=200)
    return X, y


@pytest.fixture
def table(rng):
    """Enough records for a private fit to be more than noise."""
    X = rng.normal(size=(20_000, 3)) * [1.0, 100.0, 0.01]
    return X, X @ [1.0, 0.02, -150.0] + 0.5 * rng.normal(size=len(X))


class TestWithoutPrivacy:
    """With ε = ∞ and no clipping the solvers reach scikit-learn's solutions."""

    @pytest.mark.parametrize("fit_intercept", [True, False])
    def test_lasso(self, regression, fit_intercept):
        X, y = regression
        ours = DPLasso(alpha=0.1, fit_intercept=fit_intercept, **EXACT).fit(X, y)
        theirs = Lasso(alpha=0.1, fit_intercept=fit_intercept, tol=1e-12, max_iter=100_000).fit(X, y)
        self.assert_equal(ours, theirs)
        assert np.any(ours.coef_ == 0.0)

    @pytest.mark.parametrize("fit_intercept", [True, False])
    def test_ridge(self, regression, fit_intercept):
        X, y = regression
        ours = DPRidge(alpha=0.1, fit_intercept=fit_intercept, **EXACT).fit(X, y)
        self.assert_equal(ours, Ridge(alpha=0.1 * len(y), fit_intercept=fit_intercept, solver="cholesky").fit(X, y))

    @pytest.mark.parametrize("fit_intercept", [True, False])
    def test_elastic_net(self, regression, fit_intercept):
        X, y = regression
        ours = DPElasticNet(alpha=0.1, l1_ratio=0.3, fit_intercept=fit_intercept, **EXACT).fit(X, y)
        theirs = ElasticNet(alpha=0.1, l1_ratio=0.3, fit_intercept=fit_intercept, tol=1e-12, max_iter=100_000)
        self.assert_equal(ours, theirs.fit(X, y))

    @pytest.mark.parametrize("fit_intercept", [True, False])
    @pytest.mark.parametrize(("penalty", "l1_ratio"), [("l2", 0.0), ("l1", 1.0), ("elasticnet", 0.4)])
    def test_logistic_regression(self, regression, fit_intercept, penalty, l1_ratio):
        X, y = regression
        labels = np.where(y > 0.5, "yes", "no")
        ours = DPLogisticRegression(
            alpha=0.02, penalty=penalty, l1_ratio=l1_ratio, fit_intercept=fit_intercept, **EXACT
        )
        ours.fit(X, labels)
        theirs = LogisticRegression(
            C=1 / (0.02 * len(y)),
            l1_ratio=l1_ratio,
            fit_intercept=fit_intercept,
            solver="saga",
            tol=1e-14,
            max_iter=200_000,
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            theirs.fit(X, labels)
        self.assert_equal(ours, theirs)
        np.testing.assert_allclose(ours.predict_proba(X), theirs.predict_proba(X), atol=1e-5)
        assert np.array_equal(ours.predict(X), theirs.predict(X))

    @pytest.mark.parametrize("declared", [True, False])
    def test_centering_by_bounds_changes_nothing_but_the_way(self, regression, declared):
        X, y = regression
        bounds = {"feature_bounds": (X.min(axis=0), X.max(axis=0)), "target_bounds": (-20.0, 30.0)} if declared else {}
        ours = DPLasso(alpha=0.1, **bounds, **EXACT).fit(X, y)
        self.assert_equal(ours, Lasso(alpha=0.1, tol=1e-12, max_iter=100_000).fit(X, y))

    def test_huber_and_svc_and_custom_models(self, regression):
        X, y = regression
        signs = np.where(y > 0, 1.0, -1.0)
        for ours, target, loss in (
            (DPHuberRegressor(threshold=0.5, alpha=0.1, **EXACT), y, Huber(0.5)),
            (DPLinearSVC(width=0.5, alpha=0.1, **EXACT), signs, SmoothedHinge(0.5)),
            (DPGeneralizedLinearModel(loss=Huber(0.5), penalty=L2(0.1), **EXACT), y, Huber(0.5)),
        ):
            ours.fit(X, target)
            coef, intercept = optimum(X, target, loss, L2(0.1), fit_intercept=True)
            np.testing.assert_allclose(np.ravel(ours.coef_), coef, atol=1e-6)
            assert np.ravel(ours.intercept_)[0] == pytest.approx(intercept, abs=1e-6)

    def test_constraints_hold(self, regression):
        X, y = regression
        box = DPGeneralizedLinearModel(penalty=Box(0.0, 1.0), **EXACT).fit(X, y)
        assert box.coef_.min() >= 0.0
        assert box.coef_.max() == 1.0
        weights = np.array([0.0, 0.0, 0.0, 0.0, 100.0])
        weighted = DPGeneralizedLinearModel(penalty=WeightedL1(1.0, weights), **EXACT).fit(X, y)
        assert weighted.coef_[4] == 0.0
        assert np.all(weighted.coef_[:4] != 0.0)

    @staticmethod
    def assert_equal(ours, theirs):
        np.testing.assert_allclose(ours.coef_, theirs.coef_, atol=1e-6)
        np.testing.assert_allclose(ours.intercept_, theirs.intercept_, atol=1e-6)


class TestPrivateFits:
    def test_defaults_learn_a_private_regression(self, table):
        X, y = table
        model = DPLasso(alpha=0.01).fit(X, y)
        assert model.score(X, y) > 0.8
        assert 0.999 < model.privacy_.spent_epsilon <= model.privacy_.epsilon == 1.0

    def test_defaults_learn_a_private_classification(self, table):
        X, y = table
        # The small column needs a coefficient in the hundreds, which a penalty would not let through.
        for model in (DPLogisticRegression(penalty=None), DPLinearSVC(alpha=0.0)):
            model.fit(X, y > 0)
            assert model.score(X, y > 0) > 0.9
            assert model.classes_.tolist() == [False, True]
            assert model.coef_.shape == (1, 3)

    def test_multiclass_splits_the_budget(self, rng):
        X = rng.normal(size=(30_000, 2))
        labels = np.array(["a", "b", "c"])[np.argmax(X @ [[1.0, -1.0, 0.0], [0.0, 1.0, -1.0]], axis=1)]
        model = DPLogisticRegression(random_state=0, feature_bounds=(-4, 4)).fit(X, labels)
        assert model.coef_.shape == (3, 2)
        assert model.score(X, labels) > 0.8
        whole_records = ("gradients", "second-moment", "sizes")
        spent = [r.cost.mu_squared for r in model.privacy_.releases if r.description.startswith(whole_records)]
        parts = np.cumsum(spent) / np.sum(spent)
        for end in (1.0 / 3.0, 2.0 / 3.0):
            assert np.min(np.abs(parts - end)) < 1e-6, "one class after the other, each with a third"
        assert 0.999 < model.privacy_.spent_epsilon <= model.privacy_.epsilon == 1.0
        probabilities = model.predict_proba(X)
        np.testing.assert_allclose(probabilities.sum(axis=1), 1.0)
        assert np.array_equal(model.classes_[probabilities.argmax(axis=1)], model.predict(X))
        np.testing.assert_allclose(model.predict_log_proba(X), np.log(probabilities))

    def test_declared_classes_need_not_occur(self, table):
        X, y = table
        model = DPLogisticRegression(classes=["down", "same", "up"], random_state=0)
        model.fit(X, np.where(y > 0, "up", "down"))
        assert model.classes_.tolist() == ["down", "same", "up"]
        assert "3 classes, declared" in model.privacy_.assumptions
        with pytest.warns(dpcd.UselessModelWarning, match="a constant"):
            one_label = DPLogisticRegression(classes=[0, 1], random_state=0).fit(X, np.ones(len(X)))
        assert one_label.coef_.shape == (1, 3)

    def test_noise_is_secure_and_fresh_without_a_seed(self, table):
        X, y = (part[:2000] for part in table)
        first, second = (DPRidge(feature_bounds=(-300, 300)).fit(X, y) for _ in range(2))
        assert first.privacy_.noise == "OpenDP discrete Gaussian"
        assert not np.array_equal(first.coef_, second.coef_)

    def test_a_seed_is_reproducible_and_says_that_it_is_not_private(self, table):
        X, y = table
        first, second, other = (DPRidge(random_state=seed).fit(X, y) for seed in (3, 3, 4))
        assert np.array_equal(first.coef_, second.coef_)
        assert not np.array_equal(first.coef_, other.coef_)
        assert str(first.privacy_).startswith("NOT PRIVATE: the noise is seeded")
        assert first.privacy_.to_dict()["private"] is False

    def test_declared_bounds_are_outer_limits(self, table):
        X, y = table
        bounds = (np.array([-4.0, -400.0, -0.04]), np.array([4.0, 400.0, 0.04]))
        declared = {"feature_bounds": bounds, "target_bounds": (-10, 10), "random_state": 0}
        learnt, tight = DPRidge(random_state=0).fit(X, y), DPRidge(**declared).fit(X, y)
        wide = DPRidge(feature_bounds=1e6, target_bounds=1e9, random_state=0).fit(X, y)
        for model in (learnt, tight, wide):
            assert model.privacy_.releases[0].description == "histograms of values"
            assert np.all(np.abs(model.feature_ranges_) < 8.0 * np.abs(bounds[1][:, None])), "ranges are learnt"
            assert model.score(X, y) == pytest.approx(learnt.score(X, y), abs=0.02)
        assert np.all(tight.feature_ranges_[:, 0] >= bounds[0])
        assert np.all(tight.feature_ranges_[:, 1] <= bounds[1])
        # Values beyond the bounds count as the bounds.
        wild = X.copy()
        wild[::7] *= 1e12
        robust = DPRidge(**declared).fit(wild, y)
        assert robust.score(wild, y) == pytest.approx(robust.score(np.clip(wild, *bounds), y))
        assert np.all(np.abs(robust.feature_ranges_) <= bounds[1][:, None])

    def test_predictions_keep_to_the_range_of_the_target(self, table):
        X, y = table
        model = DPRidge(random_state=0).fit(X, y)
        low, high = model.target_range_
        assert low < y.mean() < high
        model.coef_ = 1e6 * model.coef_
        assert model.predict(X).min() == low
        assert model.predict(X).max() == high
        assert np.abs(model.set_params(clip_predictions=False).predict(X)).max() > 1e3
        other = DPGeneralizedLinearModel(loss=Logistic(), target_bounds=(-1, 1), random_state=0)
        signs = np.where(y > 0.0, 1.0, -1.0)
        assert np.abs(other.fit(X, signs).predict(X)).max() > 1.0, "a predictor is no target"

    def test_smoothness_known_gaussian_and_laplace(self, table):
        X, y = table
        bounds = ([-4.0, -400.0, -0.04], [4.0, 400.0, 0.04])
        settings = {"feature_bounds": bounds, "target_bounds": (-20.0, 20.0), "random_state": 0, "alpha": 0.001}
        solver = DPCD(n_passes=20, clip=4.0 * math.sqrt(1e4))
        scores = {}
        for smoothness in (np.mean(X**2, axis=0), GaussianSmoothness(), LaplaceSmoothness(0.1)):
            model = DPLasso(smoothness=smoothness, solver=solver, **settings).fit(X, y)
            scores[type(smoothness).__name__] = model.score(X, y)
            assert 0.999 < model.privacy_.spent_epsilon <= model.privacy_.epsilon == 1.0
            if isinstance(smoothness, LaplaceSmoothness):
                (laplace,) = [r for r in model.privacy_.releases if r.description.startswith("second moments")]
                assert laplace.cost == 3 * PrivacyCost.pure_dp(0.1 / 3)
            if isinstance(smoothness, np.ndarray):
                assert len(model.privacy_.releases) == 1
        assert min(scores.values()) > 0.7, scores

    @pytest.mark.parametrize("factor", [1e-9, 1e9])
    def test_the_unit_of_a_column_does_not_matter(self, factor, table):
        """Ranges are powers of two, so predictions change a little, within what noise does to them."""
        X, y = table
        other = X * [1.0, factor, 1.0]
        reference = DPRidge(alpha=0.0, random_state=0).fit(X, y).predict(X)
        spread = np.std(DPRidge(alpha=0.0, random_state=1).fit(X, y).predict(X) - reference)
        moved = DPRidge(alpha=0.0, random_state=0).fit(other, y).predict(other) - reference
        assert np.std(moved) <= 3.0 * spread

    @pytest.mark.parametrize("model", [DPRidge, DPLogisticRegression])
    def test_a_column_far_from_zero_does_not_destroy_the_fit(self, model, table):
        X, y = table
        y = y > 0 if model is DPLogisticRegression else y
        far = X + 1e3 * X.std(axis=0) * [1.0, -1.0, 0.0]
        here, there = (model(random_state=0).fit(table, y).score(table, y) for table in (X, far))
        assert here > 0.7
        assert there > here - 0.05

    def test_predictions_clip_to_the_ranges_of_the_fit(self, table):
        X, y = table
        model = DPRidge(random_state=0).fit(X, y)
        assert model.feature_ranges_.shape == (3, 2)
        inside = np.clip(X, *model.feature_ranges_.T)
        assert np.mean(inside == X) > 0.99
        far = X.copy()
        far[0] = 1e6 * model.feature_ranges_[:, 1]
        np.testing.assert_allclose(model.predict(far)[0], model.feature_ranges_[:, 1] @ model.coef_ + model.intercept_)
        straight = DPRidge(random_state=0, clip_predictions=False).fit(X, y)
        np.testing.assert_allclose(straight.predict(far), far @ straight.coef_ + straight.intercept_)
        known = DPRidge(random_state=0, smoothness=np.mean(X**2, axis=0)).fit(X, y)
        assert known.feature_ranges_ is None

    def test_what_a_statement_lists_adds_up_to_the_budget(self, table):
        X, y = table
        for parameters in ({}, {"feature_bounds": (-500.0, 500.0), "target_bounds": (-20.0, 20.0)}):
            statement = DPRidge(random_state=0, **parameters).fit(X, y).privacy_
            total = sum((release.cost for release in statement.releases), PrivacyCost())
            assert 1.0 - 1e-6 < total.epsilon(statement.delta) <= 1.0

    def test_a_column_that_cannot_be_seen_stays_out(self, table, rng):
        X, y = table
        X = np.column_stack([X, np.zeros(len(X)), np.where(rng.random(len(X)) < 1e-4, 1e9, 0.0)])
        model = DPRidge(random_state=0).fit(X, y)
        assert model.coef_[3] == model.coef_[4] == 0.0
        assert model.score(X[:, :], y) > 0.7

    def test_an_invisible_target_gives_the_zero_model(self, rng):
        X, y = rng.normal(size=(30, 2)), rng.normal(size=30)
        with pytest.warns(dpcd.UselessModelWarning, match="nothing of the target could be seen"):
            model = DPRidge(epsilon=0.1, random_state=0).fit(X, y)
        assert not model.coef_.any()
        assert model.intercept_ == 0.0
        assert "note: the budget bought no update" in str(model.privacy_)
        assert model.privacy_.spent_epsilon < 0.1

    def test_extreme_rows_are_legal(self, table):
        X, y = (part.copy() for part in table)
        X[0], X[1], X[2], y[3] = 1e308, -1e308, 5e-324, 1e308
        for model in (DPLasso(random_state=0), DPLogisticRegression(random_state=0)):
            target = y > 0 if isinstance(model, DPLogisticRegression) else y
            assert np.all(np.isfinite(model.fit(X, target).coef_))

    @pytest.mark.parametrize("estimator", ESTIMATORS)
    @pytest.mark.parametrize("bounds", [None, (-1.0, 1.0)])
    def test_nothing_is_said_about_the_data(self, estimator, bounds, rng, capfd, recwarn):
        """No output and no warning but of what was released, however odd the table and however wrong the bounds."""
        X = np.full((500, 4), 1e308)
        X[:, 1] = 0.0
        X[:, 2] = rng.standard_cauchy(500)
        X[::2, 3] = 5e-324
        estimator(random_state=0, feature_bounds=bounds).fit(X, np.sign(X[:, 2]))
        assert {warning.category for warning in recwarn} <= {dpcd.UselessModelWarning}
        assert not any("e+308" in str(warning.message) for warning in recwarn)
        assert capfd.readouterr() == ("", "")


class TestConventions:
    def test_frames_keep_their_names(self, table):
        X, y = (part[:500] for part in table)
        names = ["a", "b", "c"]
        for frame in (pd.DataFrame(X, columns=names), pl.DataFrame(X, schema=names)):
            model = DPRidge(random_state=0).fit(frame, y)
            assert model.feature_names_in_.tolist() == names
            model.predict(frame)
            bounds = {"a": (-4, 4), "c": (-0.04, 0.04), "b": (-400, 400)}
            by_name = DPRidge(random_state=0, feature_bounds=bounds).fit(frame, y)
            by_position = DPRidge(random_state=0, feature_bounds=([-4, -400, -0.04], [4, 400, 0.04])).fit(X, y)
            assert np.array_equal(by_name.coef_, by_position.coef_)

    @pytest.mark.parametrize("estimator", ESTIMATORS)
    def test_clone_and_pickle(self, estimator, table):
        X, y = (part[:500] for part in table)
        y = np.sign(y)
        model = estimator(epsilon=2.0, solver=DPCD(n_passes=3), random_state=1).fit(X, y)
        copy = clone(model)
        assert copy.get_params()["epsilon"] == 2.0
        assert not hasattr(copy, "privacy_")
        stored = pickle.dumps(model)
        restored = pickle.loads(stored)
        assert np.array_equal(restored.predict(X), model.predict(X))
        assert restored.privacy_ == model.privacy_
        for row in (*X, y[:3]):
            assert np.ascontiguousarray(row).tobytes() not in stored, "a fitted model must not carry its training data"
        assert len(stored) < 40_000

    def test_pipelines_and_searches(self, table):
        X, y = (part[:500] for part in table)
        pipeline = make_pipeline(FunctionTransformer(), DPRidge(random_state=0))
        search = GridSearchCV(pipeline, {"dpridge__solver": [DPCD(n_passes=2), DPCD(n_passes=4)]}, cv=2)
        search.fit(X, y)
        assert isinstance(search.best_params_["dpridge__solver"], DPCD)

    @pytest.mark.parametrize("estimator", ESTIMATORS)
    def test_documentation_names_every_parameter(self, estimator):
        for parameter in estimator().get_params():
            assert f"\n{parameter} :" in estimator.__doc__, parameter
        assert "{" not in estimator.__doc__.replace('{"l2", "l1", "elasticnet"}', "")


class Failing(DPCD):
    """A solver whose arithmetic fails once something was released."""

    outcome = math.nan

    def solve(self, curator, problem, parts, choices):
        solution = super().solve(curator, problem, parts, choices)
        if isinstance(self.outcome, float):
            return dataclasses.replace(solution, weights=np.full_like(solution.weights, self.outcome))
        raise self.outcome("Singular matrix")


class TestDoublePrecision:
    """Whatever is declared, a fit is finite, or says why it is not."""

    @pytest.mark.parametrize(
        "outcome", [np.linalg.LinAlgError, OverflowError, ZeroDivisionError, FloatingPointError, math.nan, math.inf]
    )
    def test_that_is_left_is_said_in_words(self, outcome, regression, monkeypatch):
        X, y = regression
        monkeypatch.setattr(Failing, "outcome", outcome)
        for model, target in ((DPRidge(), y), (DPLogisticRegression(), y > 0)):
            model.set_params(solver=Failing(n_passes=1), random_state=0)
            with pytest.raises(ValueError, match="the fit left the range of double precision") as error:
                model.fit(X, target)
            assert type(error.value) is ValueError
            assert "Singular" not in str(error.value)
            assert error.value.__suppress_context__
            assert not hasattr(model, "coef_")

    @pytest.mark.filterwarnings("ignore")
    @pytest.mark.parametrize(
        ("bounds", "smoothness"),
        [
            ((-1e-20, 1e140), [1e-300, 1.0, 1.0, 1.0, 1e300]),
            ((-1e-160, 1e-20), [1e140, 1e-160, 1e-20, 1e-100, 1e20]),
            ((-1e308, 1e308), None),
        ],
    )
    def test_of_declarations_of_any_size(self, bounds, smoothness, regression):
        X, y = regression
        shared = {"feature_bounds": bounds, "smoothness": smoothness}
        for model, target in (
            (DPRidge(epsilon=math.inf, **shared), y),
            (DPLasso(epsilon=100.0, target_bounds=bounds, **shared), 1e-160 * y),
            (DPLinearSVC(width=1e-160, alpha=1.0, solver=DPNewton(), **shared), y > 0),
            (DPHuberRegressor(threshold=1e140, **shared), 1e140 * y),
        ):
            try:
                model.set_params(random_state=0).fit(X, target)
            except ValueError as error:
                if "double precision" not in str(error):
                    raise
            else:
                assert np.all(np.isfinite(model.coef_))
                assert np.all(np.isfinite(model.intercept_))


class TestFailedFits:
    @pytest.fixture
    def failing(self, monkeypatch):
        """Fits that fail at their third release, as when a budget is exceeded or somebody interrupts."""
        release = Curator.release

        def limited(curator, mechanism):
            if len(curator.releases) >= 2:
                raise KeyboardInterrupt
            return release(curator, mechanism)

        return lambda: monkeypatch.setattr(Curator, "release", limited)

    @pytest.mark.parametrize("estimator", [DPRidge, DPLogisticRegression, dpcd.DPStandardScaler])
    @pytest.mark.parametrize("before", ["never fitted", "fitted", "wrong table"])
    def test_leave_nothing_to_predict_with(self, estimator, before, table, failing):
        X, y = table
        y = y > 0 if estimator is DPLogisticRegression else y
        model = estimator(random_state=0)
        if before != "never fitted":
            model.fit(X, y)
        if before == "wrong table":
            with pytest.raises(ValueError, match="at least 2 samples"):
                model.fit(X[:1], y[:1])
        else:
            failing()
            with pytest.raises(KeyboardInterrupt):
                model.fit(X, y)
        with pytest.raises(NotFittedError):
            model.transform(X) if hasattr(model, "transform") else model.predict(X)
        assert not [name for name in vars(model) if name in ("privacy_", "coef_", "mean_")]

    def test_searches_too(self, table):
        X, y = table
        search = dpcd.PrivateSearch(DPRidge(), {"alpha": [1e-3, 1.0]}, random_state=0).fit(X, y)
        search.set_params(n_iter=1)
        with pytest.raises(ValueError, match="n_iter"):
            search.fit(X, y)
        with pytest.raises(NotFittedError):
            search.predict(X)


class TestStatement:
    def test_lines_add_up(self, table):
        X, y = table
        model = DPLasso(random_state=0).fit(X, y)
        statement = model.privacy_
        total = sum((release.cost for release in statement.releases), PrivacyCost())
        assert total.epsilon(statement.delta) == statement.spent_epsilon <= statement.epsilon
        assert statement.delta == 1 / len(X) ** 2
        assert statement.mu == pytest.approx(math.sqrt(sum(r.cost.mu_squared for r in statement.releases)))
        assert statement.relation == "replace one record"
        assert statement.version == dpcd.__version__

    def test_text_and_json(self, table):
        X, y = table
        model = DPLasso(epsilon=2.0, target_bounds=(-9, 9), smoothness=LaplaceSmoothness(), random_state=0).fit(X, y)
        text = str(model.privacy_)
        gradients = "gradients of whole records                  8   "
        for part in ("epsilon = 2", "replace one record", gradients, "(Laplace)", "declared: -9 to 9", "because"):
            assert part in text
        stored = json.loads(model.privacy_.to_json())
        assert stored == model.privacy_.to_dict()
        assert stored["releases"][-1]["description"] == "gradients of whole records"
        assert stored["releases"][1]["mu_squared"] > 0.0
        assert stored["spent_epsilon"] <= stored["epsilon"] == 2.0

    def test_noise_multipliers_are_listed_with_their_counts(self, table):
        X, y = table
        smoothness = LaplaceSmoothness()
        solver = DPCD(n_passes=2, clip=[0.5] * (X.shape[1] - 1) + [1.0, 2.0])
        model = DPRidge(solver=solver, smoothness=smoothness, target_bounds=(-9, 9), random_state=0).fit(X, y)
        for line in json.loads(model.privacy_.to_json())["releases"]:
            listed = line["noise_multipliers"]
            if line["law"] != "gaussian":
                assert listed == []
                continue
            assert sum(count for _, count in listed) == line["count"]
            assert sum(count / z**2 for z, count in listed) == pytest.approx(line["mu_squared"], rel=1e-12)
            assert listed[0][0] == line["smallest_noise_multiplier"]
            assert listed[-1][0] == line["largest_noise_multiplier"]
        assert len(listed) > 1

    def test_no_privacy_is_said_loudly(self, regression):
        X, y = regression
        statement = DPRidge(epsilon=math.inf).fit(X, y).privacy_
        assert str(statement).startswith("NOT PRIVATE")
        assert json.loads(statement.to_json())["epsilon"] == "inf"

    @pytest.mark.filterwarnings("ignore::dpcd.UselessModelWarning")
    @pytest.mark.parametrize("classifier", [DPLogisticRegression, DPLinearSVC])
    def test_says_what_labels_that_occur_reveal(self, regression, classifier):
        X, y = regression
        note = "the classes are the labels that occur, so one that a single record has reveals it: declare classes"
        for classes, told in ((None, True), ([False, True], False)):
            statement = classifier(classes=classes, random_state=0).fit(X, y > 0).privacy_
            assert (note in statement.notes) == (f"note: {note}" in str(statement)) == told
        assert note not in DPRidge(random_state=0).fit(X, y).privacy_.notes


class TestBadInput:
    @pytest.mark.parametrize(
        ("parameters", "message"),
        [
            ({"epsilon": 0.0}, "epsilon must be a positive number"),
            ({"epsilon": "high"}, "epsilon must be a positive number"),
            ({"epsilon": 1e-12}, "epsilon must lie between"),
            ({"epsilon": 1e9}, "epsilon must lie between"),
            ({"delta": 0.0}, "delta must lie"),
            ({"delta": 1.0}, "delta must lie"),
            ({"alpha": -1.0}, "alpha must be"),
            ({"alpha": math.nan}, "alpha must be"),
            ({"feature_bounds": (1.0, 0.0)}, "lower < upper"),
            ({"feature_bounds": [(0, 1)] * 2}, "arrays of 5"),
            ({"feature_bounds": (0.0, math.nan)}, "lower < upper"),
            ({"feature_bounds": -3.0}, "lower < upper"),
            ({"feature_bounds": "wide"}, "feature_bounds must be"),
            ({"feature_bounds": ([0.0, 0.0], [1.0, 1.0])}, "arrays of 5"),
            ({"feature_bounds": {"a": (0, 1)}}, "data frame"),
            ({"target_bounds": (1.0, 1.0)}, "lower < upper"),
            ({"target_bounds": (1.0, 2.0, 3.0)}, "target_bounds must be"),
            ({"smoothness": [1.0, 2.0]}, "array of 5"),
            ({"smoothness": [-1.0] * 5}, "at least 0"),
            ({"smoothness": "large"}, "smoothness must be"),
            ({"solver": DPCD(clip=math.inf)}, "infinite clip"),
            ({"solver": "lbfgs"}, "solver must be 'auto' or an object"),
            ({"solver": DPCD}, "solver must be 'auto' or an object"),
            ({"fit_intercept": "yes"}, "fit_intercept must be"),
            ({"solver": DPCD(clip=[1.0, 2.0])}, "each of 6 columns"),
            ({"random_state": "today"}, "random_state must be"),
        ],
    )
    def test_wrong_parameters_are_refused_before_anything_is_charged(
        self, regression, parameters, message, monkeypatch
    ):
        release = Curator.release

        def watched(curator, mechanism):
            assert math.isinf(curator.budget.epsilon), "something was charged"
            return release(curator, mechanism)

        monkeypatch.setattr(Curator, "release", watched)
        with pytest.raises(ValueError, match=message):
            DPLasso(**parameters).fit(*regression)

    @pytest.mark.parametrize(
        ("model", "message"),
        [
            (DPElasticNet(l1_ratio=1.5), "l1_ratio"),
            (DPHuberRegressor(threshold=0.0), "threshold"),
            (DPLinearSVC(width=-1.0), "width"),
            (DPLogisticRegression(penalty="l3"), "penalty must be"),
        ],
    )
    def test_wrong_model_parameters(self, regression, model, message):
        X, y = regression
        with pytest.raises(ValueError, match=message):
            model.fit(X, y > 0)

    @pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
    def test_non_finite_values_are_refused(self, regression, value):
        X, y = regression
        X[3, 2] = value
        with pytest.raises(ValueError, match=r"NaN|infinity"):
            DPLasso().fit(X, y)

    def test_labels(self, regression):
        X, y = regression
        with pytest.raises(ValueError, match="one class only"):
            DPLogisticRegression().fit(X, np.zeros(len(X)))
        with pytest.raises(ValueError, match="one class only"):
            DPLogisticRegression(classes=[1]).fit(X, np.ones(len(X)))
        labels = np.array(["red"] * 100 + ["unheard-of"] * 100)
        with pytest.raises(ValueError, match="not among the declared classes") as error:
            DPLogisticRegression(classes=["red", "green"]).fit(X, labels)
        assert "unheard" not in str(error.value), "messages must not quote data"
        with pytest.raises(ValueError, match="Unknown label type"):
            DPLogisticRegression().fit(X, y)

    def test_declared_labels_are_legal_whatever_they_look_like(self, regression, recwarn):
        X, _ = regression
        model = DPLogisticRegression(classes=np.arange(150) / 2, solver=DPCD(n_passes=1), random_state=0)
        model.fit(X, np.arange(len(X)) % 150 / 2)
        assert {warning.category for warning in recwarn} == {dpcd.UselessModelWarning}

    @pytest.mark.parametrize("secret", ["Ms. Smith", 10**400])
    def test_messages_do_not_quote_data(self, regression, secret):
        X, y = regression
        table = X.astype(object)
        table[3, 1] = secret
        target = y.astype(object)
        target[3] = secret
        for features, labels in ((table, y), (X, target)):
            with pytest.raises(ValueError, match="must be numeric") as error:
                DPRidge().fit(features, labels)
            assert str(secret)[:8] not in str(error.value)
            assert error.value.__suppress_context__
        with pytest.raises(ValueError, match="must be numeric"):
            DPRidge().fit(X, np.where(y > 0, "Ms. Smith", "1"))

    def test_pairs_of_bounds_and_vectors_of_features(self, regression):
        X, y = regression
        with pytest.raises(ValueError, match="not a pair for each feature"):
            DPRidge(feature_bounds=[(-5, 5)] * 2).fit(X[:, :2], y)
        for vector in (X[:, 0], X[:, 0].tolist()):
            with pytest.raises(ValueError, match="Expected 2D array") as error:
                DPRidge().fit(vector, y)
            assert f"{X[0, 0]:.4f}"[-4:] not in str(error.value)

    @pytest.mark.parametrize("parts", [{"loss": "huber"}, {"loss": Huber}, {"penalty": "l1"}, {"loss": lambda y, z: y}])
    def test_names_and_functions_are_no_losses(self, regression, parts):
        with pytest.raises(ValueError, match=r"(loss|penalty) must be an object such as"):
            DPGeneralizedLinearModel(**parts).fit(*regression)

    def test_targets_beyond_double_precision(self, regression, recwarn):
        X, y = regression
        wide = y.astype(np.longdouble)
        wide[0] = np.longdouble("1e4000")
        with pytest.raises(ValueError, match="infinity"):
            DPRidge().fit(X, wide)
        assert not recwarn.list

    def test_sample_weights_and_other_arguments(self, regression):
        X, y = regression
        with pytest.raises(TypeError, match=r"does not support sample_weight .*leave it out"):
            DPLasso().fit(X, y, sample_weight=np.ones(len(y)))
        with pytest.raises(TypeError, match="does not support groups"):
            DPLogisticRegression().fit(X, y > 0, groups=1)

    def test_complex_numbers_and_dates(self, regression):
        X, y = regression
        secret = X + 0.123456j
        frame = pd.DataFrame({"age": X[:, 0], "when": pd.to_datetime(X[:, 1], unit="D"), "wave": secret[:, 2]})
        for table, target, message in (
            (secret, y, "X holds complex numbers"),
            (secret.tolist(), y, "complex numbers"),
            (secret.astype(object), y, "complex numbers"),
            (X, y + 1j, "y holds complex numbers"),
            (frame[["age", "wave"]], y, "column 'wave' of X holds complex numbers: give real and imaginary parts"),
            (frame[["age", "when"]], y, "column 'when' of X holds dates or durations: .* days since"),
            (pl.DataFrame({"when": frame["when"].to_numpy()}), y, "column 'when' of X holds dates"),
            (frame[["when"]] - frame["when"].iloc[0], y, "column 'when' of X holds dates or durations"),
            (frame[["when"]].to_numpy(), y, "X holds dates"),
            (frame[["age", "when"]].astype(object), y, "holds dates"),
            (X, frame["when"], "y holds dates"),
        ):
            with pytest.raises(ValueError, match=message) as error:
                DPRidge().fit(table, target)
            assert "1234" not in str(error.value)
            assert error.value.__cause__ is None
        with pytest.raises(ValueError, match="complex numbers") as error:
            DPLogisticRegression().fit(X, y + 1j)
        assert "+1" not in str(error.value)

    @pytest.mark.parametrize(
        "use",
        [
            lambda X, y: DPRidge().fit(X, y),
            lambda X, y: DPLogisticRegression(classes=[0, 1]).fit(X, y),
            lambda X, y: dpcd.DPStandardScaler().fit(X),
            lambda X, y: dpcd.PrivateSearch(DPRidge(), {"alpha": [0.1]}).fit(X, y),
            lambda X, y: DPRidge(random_state=0).fit(np.eye(50), np.ones(50)).predict(X),
            lambda X, y: dpcd.DPStandardScaler(random_state=0).fit(np.eye(50)).transform(X),
        ],
        ids=["regression", "classification", "scaler", "search", "prediction", "transformation"],
    )
    @pytest.mark.filterwarnings("ignore::dpcd.UselessModelWarning")
    def test_nothing_that_is_no_table_is_quoted(self, use):
        class Odd:
            def __init__(self, error):
                self.error = error

            def __float__(self):
                raise self.error(f"no number: {self!r}")

            def __repr__(self):
                return "31337"

        def with_cell(value):
            table = np.eye(50).astype(object)
            table[1, 2] = value
            return table

        cells = [31337 + 1j, [31337, 1], {31337: 1}, "31337th", Odd(ValueError), Odd(TypeError), Odd(LookupError)]
        tables = [
            31337.0,
            np.float64(31337.0),
            np.array(31337.0),
            31337 + 1j,
            "31337",
            [31337],
            {31337},
            {"a": [31337]},
        ]
        tables += [np.full((2, 2, 2), 31337), [[31337], [31337, 2]], pd.DataFrame({"a": [Odd(OverflowError)] * 50})]
        for X in (*tables, *map(with_cell, cells), *(pd.DataFrame(with_cell(cell)) for cell in cells)):
            with pytest.raises((ValueError, TypeError)) as error:
                use(X, np.arange(50) % 2)
            assert "31337" not in str(error.value)

    @pytest.mark.parametrize(
        "model", [DPRidge(), DPLogisticRegression(), DPLogisticRegression(classes=[0, 1])], ids=str
    )
    def test_nothing_that_is_no_target_is_quoted(self, model):
        class Odd:
            def __float__(self):
                raise ArithmeticError("31337")

            def __repr__(self):
                return "31337"

        odd = np.zeros(50, dtype=object)
        odd[3] = Odd()
        cell = np.zeros(50, dtype=object)
        cell[3] = 31337 + 1j
        for y in (31337.0, "31337", [31337], {31337: 1}, np.full(50, 31337 + 1j), np.full((50, 2), 31337), odd, cell):
            with pytest.raises((ValueError, TypeError)) as error:
                model.fit(np.eye(50), y)
            assert "31337" not in str(error.value)

    def test_predictions_quote_nothing_either(self, table):
        X, y = table
        model = DPRidge(random_state=0).fit(X, y)
        for features, message in (
            (X[:3] + 0.123456j, "X holds complex numbers"),
            (X[:3].astype("datetime64[s]"), "X holds dates"),
            (np.where(X[:3] > 0.0, "Xanadu", "1"), "must be numeric"),
        ):
            with pytest.raises(ValueError, match=message) as error:
                model.predict(features)
            assert not re.search("1234|Xanadu", str(error.value))

    def test_columns_of_text_are_named_by_their_types(self, regression):
        X, y = regression
        frame = pd.DataFrame({"age": X[:, 0], "town": "Xanadu", "size": pd.Categorical(["huge"] * len(X))})
        with pytest.raises(ValueError, match=r"must be numeric.*'town', 'size'") as error:
            DPRidge().fit(frame, y)
        assert "Xanadu" not in str(error.value)
        assert "'age'" not in str(error.value)

    @pytest.mark.parametrize(
        "labels", [["yes", None], ["yes", 1], [None, 1], ["yes", math.nan], [pd.NA, "yes"], [pd.NaT, "yes"]], ids=str
    )
    @pytest.mark.parametrize("classes", [None, ["yes", "no"]])
    def test_missing_labels_and_labels_of_several_kinds(self, regression, labels, classes):
        X, _ = regression
        target = np.array(labels * (len(X) // 2), dtype=object)
        with pytest.raises(ValueError, match=r"missing|several kinds|declared classes") as error:
            DPLogisticRegression(classes=classes).fit(X, target)
        assert "instances" not in str(error.value), "NumPy's message tells of types"
        assert classes or "'yes'" not in str(error.value)

    @pytest.mark.parametrize("bounds", [(-500.0, None), (None, 500.0), (None, None), math.inf, 1e200])
    def test_bounds_of_which_little_is_known_end_in_no_nan(self, regression, bounds):
        """Where nobody looks at the target, or a column cannot be seen, there is nothing to take from them."""
        X, y = regression
        columns = np.column_stack([X, np.zeros(len(X))])
        for options in ({"fit_intercept": False}, {"smoothness": np.ones(columns.shape[1])}, {}):
            model = DPRidge(feature_bounds=bounds, target_bounds=bounds, epsilon=10.0, random_state=0, **options)
            model.fit(columns, y)
            assert np.all(np.isfinite([*model.coef_, model.intercept_]))
            assert model.score(columns, y) > 0.2

    @pytest.mark.parametrize("classes", ["yes", ["yes", "yes"], [["yes", "no"]]], ids=str)
    def test_classes_that_are_none(self, regression, classes):
        X, y = regression
        with pytest.raises(ValueError, match="classes must"):
            DPLogisticRegression(classes=classes).fit(X, np.where(y > 0.0, "yes", "no"))

    def test_objects_of_odd_types_are_named_by_their_columns(self, regression):
        X, y = regression
        days = [datetime.date(2020, 1, 1)] * len(X)
        for odd, kind in ((days, "dates"), ([1 + 1j] * len(X), "complex"), ([[1, 2]] * len(X), "numeric")):
            frame = pd.DataFrame({"age": X[:, 0], "odd": pd.Series(odd, dtype=object)})
            with pytest.raises(ValueError, match=rf"{kind}.*other types than numbers: 'odd'"):
                DPRidge().fit(frame, y)

    def test_advice_about_missing_values_does_not_leak(self, regression):
        X, y = regression
        X[3, 2] = math.nan
        with pytest.raises(ValueError, match=r"NaN.*fixed beforehand.*reveal") as error:
            DPLasso().fit(X, y)
        assert "HistGradientBoosting" not in str(error.value)

    def test_shapes(self, regression):
        X, y = regression
        with pytest.raises(ValueError, match="inconsistent numbers of samples"):
            DPLasso().fit(X, y[:-1])
        with pytest.raises(ValueError, match="at least 2 samples"):
            DPLasso().fit(X[:1], y[:1])
        with pytest.raises(ValueError, match="expecting 5 features"):
            DPLasso(random_state=0).fit(X, y).predict(X[:, :3])


def test_labels_of_a_generalized_model_are_not_centred(rng):
    """±1 is what the loss is about: the same model as DPLogisticRegression's, offset and all."""
    X = rng.normal(size=(30_000, 2))
    y = np.where(rng.random(30_000) < 1.0 / (1.0 + np.exp(-(X @ [1.0, -0.5] + 1.5))), 1.0, -1.0)
    model = DPGeneralizedLinearModel(loss=dpcd.losses.Logistic(), epsilon=3.0, random_state=0).fit(X, y)
    np.testing.assert_allclose(np.ravel(model.coef_), [1.0, -0.5], atol=0.1)
    assert model.intercept_ == pytest.approx(1.5, abs=0.1)
