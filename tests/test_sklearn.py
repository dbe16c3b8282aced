"""scikit-learn's own battery, over every estimator with privacy on and off."""

import math

import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

import dpcd

# Its tables are of a few dozen records.
pytestmark = pytest.mark.filterwarnings("ignore::dpcd.UselessModelWarning")

ESTIMATORS = [getattr(dpcd, name) for name in dpcd.__all__ if name.startswith("DP") and name != "DPStandardScaler"]
SEARCHES = [
    dpcd.PrivateSearch(dpcd.DPRidge(), {"alpha": [1e-3, 1.0]}, n_iter=2),
    dpcd.PrivateSearch(dpcd.DPLogisticRegression(), {"alpha": [1e-3, 1.0]}, n_iter=2, epsilon=math.inf),
]


@parametrize_with_checks(
    [
        *(
            estimator(epsilon=epsilon)
            for estimator in (*ESTIMATORS, dpcd.DPStandardScaler)
            for epsilon in (1.0, math.inf)
        ),
        *SEARCHES,
    ]
)
def test_scikit_learn_conventions(estimator, check):
    check(estimator)
