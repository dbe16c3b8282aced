"""Differentially private linear models by proximal coordinate descent."""

from importlib.metadata import version as _version

from dpcd.estimators import (
    DPElasticNet,
    DPGeneralizedLinearModel,
    DPHuberRegressor,
    DPLasso,
    DPLinearSVC,
    DPLogisticRegression,
    DPRidge,
)
from dpcd.planning import Plan, plan
from dpcd.preprocessing import DPStandardScaler
from dpcd.privacy import BudgetExceeded, Ledger, LedgerError, PrivacyStatement
from dpcd.tuning import PrivateSearch
from dpcd.usefulness import UselessModelWarning

__version__ = _version("dpcd")

__all__ = [
    "BudgetExceeded",
    "DPElasticNet",
    "DPGeneralizedLinearModel",
    "DPHuberRegressor",
    "DPLasso",
    "DPLinearSVC",
    "DPLogisticRegression",
    "DPRidge",
    "DPStandardScaler",
    "Ledger",
    "LedgerError",
    "Plan",
    "PrivacyStatement",
    "PrivateSearch",
    "UselessModelWarning",
    "plan",
]
