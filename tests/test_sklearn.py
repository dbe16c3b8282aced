"""scikit-learn's own battery, over every estimator with privacy on and off."""

import math

from sklearn.utils.estimator_checks import parametrize_with_checks

import dpcd

ESTIMATORS = [getattr(dpcd, name) for name in dpcd.__all__ if name.startswith("DP")]


@parametrize_with_checks([estimator(epsilon=epsilon) for estimator in ESTIMATORS for epsilon in (1.0, math.inf)])
def test_scikit_learn_conventions(estimator, check):
    check(estimator)
