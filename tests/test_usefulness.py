"""Warnings where a model can be of little use: from public and released numbers alone, the same as plans give."""

import math
import warnings

import numpy as np
import pytest

import dpcd
from dpcd import (
    DPHuberRegressor,
    DPLasso,
    DPLinearSVC,
    DPLogisticRegression,
    DPRidge,
    DPStandardScaler,
    PrivateSearch,
    UselessModelWarning,
)
from dpcd.privacy import Curator
from dpcd.solvers import Auto
from dpcd.usefulness import large_delta, no_update, too_many_classes


@pytest.fixture
def table(rng):
    X = rng.normal(size=(20_000, 4))
    return X, X @ [1.0, 2.0, 0.0, 0.0] + rng.normal(size=len(X))


def concerns(model, X, y):
    """The sentences of the one warning that a fit gives; they are notes of its statement too."""
    with pytest.warns(UselessModelWarning) as caught:
        model.fit(X, y)
    assert len(caught) == 1
    assert caught[0].filename == __file__, "it points at who called fit"
    _, *lines = str(caught[0].message).split("\n- ")
    assert model.privacy_.notes[-len(lines) :] == tuple(lines)
    return lines


def test_a_useful_model_is_not_worried_about(table, recwarn):
    X, y = table
    DPRidge(random_state=0).fit(X, y)
    DPRidge(feature_bounds=(-100, 100), target_bounds=(-50, 1e6), random_state=0).fit(X, y)
    DPLogisticRegression(random_state=0).fit(X, y > 0)
    assert not recwarn.list


@pytest.mark.parametrize("flags", [(0.0, 1.0), (-1.0, 0.0), (0.0, 4.0)])
def test_values_at_their_bounds_are_within(flags, table, recwarn):
    X, y = table
    low, high = flags
    model = DPRidge(feature_bounds=flags, random_state=0).fit(np.where(X > 0.0, high, low), y)
    assert not recwarn.list
    assert model.coef_.any()


def test_a_histogram_that_is_too_coarse_for_the_bounds_says_nothing_about_them(table, recwarn):
    X, y = table
    DPRidge(alpha=1.0, feature_bounds=(-1e-89, 1e-89), random_state=0).fit(1e-90 * X, y)
    assert not [warning for warning in recwarn if "outside" in str(warning.message)]


def test_no_update_and_nothing_seen(table):
    X, y = (part[:60] for part in table)
    told = concerns(DPRidge(epsilon=0.5, random_state=0), X, y)
    assert "4 of 4 features stay out" in told[0] or "nothing of the target" in told[0]
    assert "declare feature_bounds" not in told[0], "the target's center takes all of the budget anyway"
    assert "the budget bought no update" in told[-1]
    assert "take about epsilon = " in told[-1]
    # The share of a class can be learnt all the same.
    (told,) = concerns(DPLogisticRegression(epsilon=0.5, random_state=0), X, y > 0)
    assert told.startswith("4 of 4 features stay out, coefficient 0: 0, 1, 2, 3; declare feature_bounds")


def test_without_features_labels_have_their_share(rng):
    """One record of ten is positive: half of them would be far worse than the best constant."""
    X, y = rng.normal(size=(600, 20)), rng.random(600) < 0.1
    with pytest.warns(UselessModelWarning, match="stay out"):
        model = DPLogisticRegression(epsilon=0.2, random_state=0).fit(X, y)
    assert np.count_nonzero(model.coef_) < 10
    assert 0.02 < model.predict_proba(X)[:, 1].mean() < 0.3


def test_the_remedy_is_one(table):
    X, y = table
    assert concerns(DPRidge(epsilon=1e-3, random_state=0), X, y)[-1].startswith("the budget bought no update")
    epsilon = dpcd.plan(*X.shape, 1e-3).epsilon_for()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert DPRidge(epsilon=epsilon, random_state=0).fit(X, y).score(X, y) > 0.6


def test_most_columns_stay_out(table):
    X, y = table
    X = np.column_stack([X[:, :2], np.zeros((len(X), 5))])
    (told,) = concerns(DPRidge(random_state=0), X, y)
    assert told.startswith("5 of 7 features stay out, coefficient 0: 2, 3, 4, 5, 6; declare feature_bounds")


def test_some_columns_that_stay_out_are_only_noted(table, recwarn):
    X, y = table
    model = DPRidge(random_state=0).fit(np.column_stack([X, np.zeros(len(X))]), y)
    assert model.privacy_.notes[-1] == "1 of 5 features stay out, coefficient 0: 4"
    assert not recwarn.list


@pytest.mark.parametrize(
    "model",
    [DPLasso(alpha=100.0), DPRidge(alpha=1e5), DPLogisticRegression(alpha=1e6), DPLinearSVC(alpha=1e6)],
    ids=lambda model: type(model).__name__,
)
def test_nothing_but_a_constant(model, table):
    """A strong l2 penalty leaves something of each coefficient, too little to matter."""
    X, y = table
    target = y if isinstance(model, DPLasso | DPRidge) else y > 0.0
    (told,) = concerns(model.set_params(random_state=0), X, target)
    assert "predictions a constant" in told


@pytest.mark.parametrize("epsilon", [0.3, 3.0])
def test_bounds_that_hardly_any_value_lies_in(epsilon, table):
    X, y = table
    bounds = (np.array([-9.0, 100.0, -9.0, -300.0]), np.array([9.0, 200.0, 9.0, -200.0]))
    (told,) = concerns(DPRidge(epsilon=epsilon, feature_bounds=bounds, random_state=0), X, y)
    assert told.startswith("most values of 2 features (1, 3) lie outside")
    (told,) = concerns(DPRidge(epsilon=epsilon, target_bounds=(100.0, 101.0), random_state=0), X, y)
    assert told.startswith("most values of the target lie outside")
    assert "correct target_bounds" in told


@pytest.mark.parametrize(
    "model",
    [
        DPHuberRegressor(fit_intercept=False),
        DPHuberRegressor(smoothness=np.ones(4)),
        DPRidge(smoothness=np.ones(4)),
        DPRidge(),
    ],
    ids=str,
)
@pytest.mark.parametrize("unit", [1e-3, 1e3])
def test_targets_in_small_units_are_no_constants(model, unit, table, recwarn):
    """Where nobody looked at the target, nobody knows what little is."""
    X, y = table
    model.set_params(epsilon=3.0, random_state=0).fit(X, unit * y)
    assert not recwarn.list


@pytest.mark.parametrize("seed", [137, 147, 214])
def test_noise_is_not_taken_for_values_beyond_bounds(seed):
    """Of so few records all bounds were once said to be wrong in one fit of 170."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(300, 1))
    with pytest.warns(UselessModelWarning) as caught:
        DPRidge(epsilon=0.1, target_bounds=(-10, 10), random_state=seed).fit(X, abs(X[:, 0] + rng.normal(size=300)))
    assert "outside" not in str(caught[0].message)


def test_bounds_that_most_values_lie_out_of(rng):
    """Values in several octaves beyond a bound count together."""
    X = np.exp(1.5 * rng.normal(size=(20_000, 2)))
    (told,) = concerns(DPRidge(epsilon=0.5, feature_bounds=(0.0, 0.2), random_state=0), X, X[:, 0])
    assert told.startswith("most values of 2 features (0, 1) lie outside")


def test_a_class_of_a_hundred_takes_more_than_one_of_two(rng):
    """There are updates for each, and models that are worse than a constant."""
    centers = rng.normal(size=(30, 8))
    y = rng.integers(30, size=5000)
    X = centers[y] + rng.normal(size=(5000, 8))
    told = concerns(DPLogisticRegression(epsilon=0.3, random_state=0), X, y)
    assert told[-1].startswith("30 classes are too many for the budget")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        DPLogisticRegression(epsilon=3.0, random_state=0).fit(X, y)
    lost = [dpcd.plan(5000, 8, 1.0, loss="logistic", n_classes=k).lost for k in (2, 3, 10, 30)]
    assert lost == sorted(lost)
    assert lost[0] < 0.1
    assert lost[-1] > 0.5


def test_too_many_classes(rng):
    X = rng.normal(size=(300, 2))
    plan = dpcd.plan(300, 2, 1.0, loss="logistic", n_classes=100)
    assert plan.has_too_many_classes
    assert not dpcd.plan(300, 2, 1.0, loss="logistic", n_classes=3).has_too_many_classes
    told = concerns(DPLogisticRegression(random_state=0), X, np.arange(300) % 100)
    assert too_many_classes(100, plan.remedy) in told
    assert too_many_classes(100, plan.remedy) in str(plan)


def test_delta_of_a_record_or_more(table):
    X, y = table
    for delta in (1.0 / len(X), 0.01):
        model = DPRidge(delta=delta, allow_large_delta=True, random_state=0)
        assert concerns(model, X, y) == [large_delta(delta, len(X))]
        assert large_delta(delta, len(X)) in str(dpcd.plan(*X.shape, delta=delta))
    assert "publi" not in str(dpcd.plan(*X.shape, delta=0.99 / len(X)))


@pytest.mark.parametrize(
    "make",
    [
        DPRidge,
        lambda **parameters: DPLogisticRegression(classes=[False, True], **parameters),
        DPStandardScaler,
        lambda **parameters: PrivateSearch(DPRidge(), {"alpha": [0.1, 1.0]}, **parameters),
    ],
    ids=["regression", "classification", "scaler", "search"],
)
class TestLargeDelta:
    def test_is_refused_before_anything_is_charged(self, make, table, monkeypatch):
        X, y = table[0], table[1] > 0.0

        def charged(curator, mechanism):
            assert math.isinf(curator.budget.epsilon), "something was charged"

        monkeypatch.setattr(Curator, "_charge", charged)
        for delta in (1.0 / len(X), 0.5):
            with pytest.raises(ValueError, match=r"is not below 1/n = 5e-05.*with allow_large_delta=True only"):
                make(delta=delta).fit(X, y)
        with pytest.raises(ValueError, match="allow_large_delta must be True or False"):
            make(allow_large_delta="yes").fit(X, y)

    @pytest.mark.filterwarnings("ignore::dpcd.UselessModelWarning")
    def test_is_taken_where_it_is_asked_for_or_does_not_matter(self, make, table):
        X, y = table[0][:500], table[1][:500] > 0.0
        for parameters in (
            {"delta": 2.0 / len(X), "allow_large_delta": True},
            {"delta": 0.99 / len(X)},
            {"delta": 0.5, "epsilon": math.inf},
        ):
            assert make(random_state=0, **parameters).fit(X, y).privacy_.delta == parameters["delta"]


def test_the_best_candidate_can_be_fitted_anew_with_a_large_delta(table):
    X, y = (part[:500] for part in table)
    search = PrivateSearch(DPRidge(), {"alpha": [0.1]}, delta=0.01, allow_large_delta=True, random_state=0)
    with pytest.warns(UselessModelWarning):
        assert search.fit(X, y).best_estimator_.fit(X, y).privacy_.delta == 0.01
    with pytest.raises(ValueError, match="allow_large_delta cannot be searched over"):
        PrivateSearch(DPRidge(), {"allow_large_delta": [True]}).fit(X, y)


def test_a_plan_says_it_in_the_same_words(table):
    X, y = (part[:60] for part in table)
    plan = dpcd.plan(60, 4, 0.5)
    assert no_update(plan.remedy) in plan.concerns
    assert all(f"warning     {concern}" in str(plan) for concern in plan.concerns)
    assert plan.concerns[-1] == concerns(DPRidge(epsilon=0.5, random_state=0), X, y)[-1]
    assert dpcd.plan(*table[0].shape).concerns == ()


def test_without_privacy_there_is_nothing_to_warn_of(table, recwarn):
    X, y = table
    DPRidge(epsilon=math.inf, delta=0.5, feature_bounds=(100.0, 200.0)).fit(X[:50], y[:50])
    DPLasso(epsilon=math.inf, alpha=100.0).fit(X, y)
    assert not recwarn.list
    assert dpcd.plan(50, 3, math.inf, 0.5).concerns == ()


class TestSearch:
    def test_the_winner_is_worried_about_after_the_search(self, table):
        X, y = (part[:60] for part in table)
        search = PrivateSearch(DPRidge(), {"alpha": [1e-3, 1.0]}, epsilon=0.5, random_state=0)
        assert any("the budget bought no update" in line for line in concerns(search, X, y))

    def test_candidates_keep_quiet(self, table, recwarn, monkeypatch):
        """A warning of a loser would tell of it, and one that is an error would end the search."""
        solve, fits = Auto.solve, []

        def talkative(*arguments):
            fits.append(None)
            warnings.warn("a loser", UserWarning, stacklevel=1)
            return solve(*arguments)

        monkeypatch.setattr(Auto, "solve", talkative)
        PrivateSearch(DPRidge(), {"alpha": [1e-3, 1e-2]}, epsilon=3.0, random_state=0).fit(*table)
        assert fits
        assert not recwarn.list
