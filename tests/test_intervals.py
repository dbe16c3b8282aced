"""Confidence intervals of estimators: names, units, and reasons why there are none."""

import math

import numpy as np
import pytest

from dpcd import DPLasso, DPLogisticRegression, DPRidge, UselessModelWarning
from dpcd.intervals import ConfidenceIntervals
from dpcd.solvers import DPCD, DPNewton, Screened

NAMES = ["age", "height", "nothing"]


@pytest.fixture
def table(rng):
    X = rng.normal(size=(4000, 3)) * [5.0, 0.2, 0.0] + [40.0, 1.7, 0.0]
    return X, 7.0 + X @ [0.2, -3.0, 0.0] + rng.normal(size=4000)


def clipped(model, X, y):
    """The minimum that the intervals are for, with an intercept."""
    columns = np.clip(X, *model.feature_ranges_.T)
    target = y if model.target_range_ is None else np.clip(y, *model.target_range_)
    return np.linalg.lstsq(np.column_stack([columns, np.ones(len(X))]), target)[0]


def test_one_for_each_column_with_its_name_and_the_intercept_in_the_units_of_the_data(table):
    X, y = table
    pandas = pytest.importorskip("pandas")
    model = DPRidge(epsilon=math.inf, random_state=0).fit(pandas.DataFrame(X, columns=NAMES), y)
    names, lower, upper = intervals = model.confidence_intervals()
    assert names == (*NAMES, "intercept")
    assert np.isnan(lower[2])
    assert np.isnan(upper[2])
    seen = [0, 1, 3]
    np.testing.assert_allclose(((lower + upper) / 2.0)[seen], clipped(model, X, y)[seen], rtol=1e-6)
    assert model.confidence_intervals(0.5).upper[0] < upper[0]
    # Without noise there is sampling alone.
    design = np.column_stack([np.clip(X, *model.feature_ranges_.T)[:, :2], np.ones(len(X))])
    errors = np.sqrt(np.diag(np.linalg.inv(design.T @ design)))
    np.testing.assert_allclose(((upper - lower) / 2.0 / 1.96)[seen], errors, rtol=0.1)
    lines = repr(intervals).splitlines()
    assert [line.split()[0] for line in lines] == ["lower", *names]
    assert len({len(line) for line in lines}) == 1


def test_without_an_intercept_or_names(table):
    X, y = table
    intervals = DPRidge(epsilon=math.inf, fit_intercept=False, random_state=0).fit(X, y).confidence_intervals()
    assert intervals.names == ("x0", "x1", "x2")
    assert intervals.lower.shape == intervals.upper.shape == (3,)


def test_labels(table):
    X, y = table
    intervals = DPLogisticRegression(epsilon=math.inf, random_state=0).fit(X, y > np.mean(y)).confidence_intervals()
    assert isinstance(intervals, ConfidenceIntervals)
    assert intervals.lower[0] > 0.0
    assert intervals.upper[1] < 0.0


def test_say_why_there_are_none(table, rng):
    X, y = table
    with pytest.raises(ValueError, match="DPNewton"):
        DPRidge(solver=DPCD(), random_state=0).fit(X, y).confidence_intervals()
    with pytest.warns(UselessModelWarning):
        hopeless = DPRidge(epsilon=1e-4, random_state=0).fit(X, y)
    with pytest.raises(ValueError, match="no update"):
        hopeless.confidence_intervals()
    screened = DPLasso(alpha=1e-3, solver=Screened(DPNewton(), n_kept=1), random_state=0).fit(X, y)
    with pytest.raises(ValueError, match="chose columns first"):
        screened.confidence_intervals()
    with pytest.raises(ValueError, match="strictly between 0 and 1"):
        DPRidge(random_state=0).fit(X, y).confidence_intervals("95 %")
    with pytest.raises(ValueError, match="each class against the rest"):
        DPLogisticRegression(random_state=0).fit(X, rng.integers(0, 3, len(X))).confidence_intervals()
    with pytest.raises(ValueError, match="strictly between"):
        DPRidge(epsilon=math.inf, random_state=0).fit(X, y).confidence_intervals(95)
