"""Private linear models with the interface of scikit-learn.

Each model minimises ``mean loss + alpha · penalty``, and the squared loss carries ½. The loss is a mean, so `alpha` has
the same strength at any number of records. The default `alpha` is weak in any units of the columns. A fit pays for
everything it learns from the data out of (epsilon, delta), and `privacy_` lists what was spent on what.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from textwrap import dedent
from typing import Any, NamedTuple

import numpy as np
from scipy.special import expit
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted

from dpcd.intervals import ConfidenceIntervals, in_original_units
from dpcd.losses import ABOUT_LABELS, Huber, Logistic, Loss, SmoothedHinge, Squared
from dpcd.penalties import L1, L2, ElasticNet, Penalty, Rescaled, Zero, sized
from dpcd.planning import Plan
from dpcd.privacy import Columns, Curator, PrivacyBudget, PrivacyStatement, randomness
from dpcd.privacy.statement import library_version
from dpcd.ranges.scales import Declared, Scales, prepare
from dpcd.solvers import Auto, Problem, Solution
from dpcd.usefulness import (
    HARDLY,
    MOST,
    most_stay_out,
    no_update,
    only_a_constant,
    outside_bounds,
    stay_out,
    unseen_target,
    warn_of,
)
from dpcd.validation import (
    BUDGET_DOC,
    SPENDING_DOC,
    check_parts,
    checked_alpha,
    checked_bounds,
    checked_budget,
    checked_labels,
    checked_positive,
    checked_ratio,
    checked_smoothness,
    checked_target_bounds,
    forget_fit,
    listed_names,
    opened_account,
    validated_features,
    validated_table,
)

_SHARED_DOC = (
    BUDGET_DOC
    + """    {TARGET}
    smoothness : array of shape (n_features,), object or None, default=None
        Smoothness constants M_j: the second moment of each feature times the loss's curvature. An array declares them
        as public. `GaussianSmoothness` and `LaplaceSmoothness` from `dpcd.solvers` are two ways to learn them. None
        learns them from the histograms of the ranges, or with `GaussianSmoothness` where that is more precise. Pass
        second moments, not upper bounds. Do not declare a column whose second moment comes from a few records far out:
        no release can show so few records, and the fit can be far off.
    solver : "auto" or object, default="auto"
        The method that spends the budget: a solver from `dpcd.solvers`, such as ``DPCD()``. ``"auto"`` chooses one from
        the numbers of records and columns, the budget, the penalty and the loss. `privacy_` names it and the reason.
    fit_intercept : bool, default=True
        Whether to fit an intercept. The intercept is never penalised.
    clip_predictions : bool, default=True
        Whether predictions clip features to `feature_ranges_` and the predicted target to `target_range_`, as the fit
        did. Too few records lie outside these ranges to learn anything private from them, so an extrapolation can be
        far off. False extrapolates.
"""
    + SPENDING_DOC
    + """
    Attributes
    ----------
    {COEF}
    n_iter_ : int
        Number of passes over the data; the largest of all classes.
    feature_ranges_ : array of shape (n_features, 2) or None
        Range to which the values of each feature were clipped. None if features were not clipped.
    unseen_features_ : array
        Indices of the features that the noise at this budget hides. Their coefficients are exactly 0.
    quadratic_ : dpcd.solvers.Quadratic or None
        Quadratic model of the mean loss that the fit released; None for solvers that release none. It gives lasso
        paths, constraints and confidence intervals at no further cost. Its coordinates are the centred features that
        take part, and the intercept.
    privacy_ : PrivacyStatement
        Guarantee, what was released and spent, and what was assumed to be public. It prints as a table.
    n_features_in_ : int
        Number of features.
    feature_names_in_ : array
        Names of the features, if all of them are strings."""
)

_REGRESSION_DOC = _SHARED_DOC.replace(
    "{TARGET}",
    """target_bounds : (lower, upper), number or None, default=None
        Public bounds of the target. They are outer limits, like `feature_bounds`.""",
).replace(
    "{COEF}",
    """coef_ : array of shape (n_features,)
        Coefficients.
    intercept_ : float
        Intercept; 0 if none was fitted.
    target_range_ : (float, float) or None
        Range to which the target was clipped. None if the target was not clipped.""",
)
_CLASSIFICATION_DOC = _SHARED_DOC.replace(
    "{TARGET}",
    """classes : array or None, default=None
        All possible classes, known without looking at the data. None takes the labels that occur and treats them as
        public. More than two classes are fitted one against the rest, and each gets an equal part of the budget.""",
).replace(
    "{COEF}",
    """classes_ : array
        The classes.
    coef_ : array of shape (1, n_features) or (n_classes, n_features)
        Coefficients.
    intercept_ : array of shape (1,) or (n_classes,)
        Intercepts; 0 if none were fitted.""",
)


def _documented(cls):
    """Fill in the parameters that all models share, described once above."""
    # Docstrings lose their indentation when they are compiled from Python 3.13 on, and here before.
    doc = inspect.cleandoc(cls.__doc__)
    doc = doc.replace("{REGRESSION}", dedent(_REGRESSION_DOC))
    cls.__doc__ = doc.replace("{CLASSIFICATION}", dedent(_CLASSIFICATION_DOC))
    return cls


@contextmanager
def _within_double_precision() -> Iterator[None]:
    """Say in words of a fit what a solver says in words of arithmetic: of public and released numbers alone."""
    try:
        yield
    except (ArithmeticError, np.linalg.LinAlgError):
        raise ValueError(
            "the fit left the range of double precision, and what it had released by then is paid for: units, or what "
            "is declared (bounds, smoothness, parameters of the loss, alpha), are too many orders of magnitude apart"
        ) from None


def _check_finite(weights: np.ndarray) -> None:
    if not np.isfinite(weights).all():
        raise FloatingPointError


class _Parts(NamedTuple):
    """Loss, penalty, solver and declared numbers of a fit: everything but the data."""

    loss: Loss
    penalty: Penalty
    solver: Any
    declared: Declared


# Models are dataclasses: scikit-learn reads parameters off the signature of __init__, which a dataclass writes without
# repeating eleven shared parameters for every model.
@dataclass(kw_only=True, eq=False, repr=False)
class _PrivateLinearModel(BaseEstimator):
    """Parameters, fit and privacy statement that all models share."""

    epsilon: float = 1.0
    delta: float | None = None
    allow_large_delta: bool = False
    feature_bounds: Any = None
    smoothness: Any = None
    solver: Any = "auto"
    fit_intercept: bool = True
    clip_predictions: bool = True
    random_state: Any = None
    ledger: str | None = None
    dataset: str | None = None

    def _loss(self) -> Loss:
        raise NotImplementedError

    def _penalty(self, n_records: int) -> Penalty:
        raise NotImplementedError

    def _validated(self, X, y, unsupported: dict[str, Any], **check):
        forget_fit(self)
        if unsupported:
            hint = (
                " (a weighted record would count more than once against the budget)"
                if "sample_weight" in unsupported
                else ""
            )
            raise TypeError(
                f"{type(self).__name__}.fit takes X and y only; it does not support {', '.join(unsupported)}{hint}: "
                f"leave it out"
            )
        return validated_table(self, X, y, **check)

    def _fit_private(self, X, target) -> None:
        """Spend the budget on the model, and write the privacy statement."""
        n_records, n_features = X.shape
        noise, choices = randomness(self.random_state)
        budget = checked_budget(self.epsilon, self.delta, n_records, self.allow_large_delta)
        parts = self._checked_parts(n_records, n_features, budget.epsilon)
        n_columns, n_problems = n_features + self.fit_intercept, len(self._positive_classes())
        order = parts.solver.renyi_order(n_records, n_columns, budget.epsilon, budget.delta, n_problems)
        budget = PrivacyBudget(budget.epsilon, budget.delta, order)
        with opened_account(self.ledger, self.dataset) as account:
            if account is not None and budget.order is not None:
                # The ledger adds up at its own order, so that is the one to plan for.
                budget = PrivacyBudget(budget.epsilon, budget.delta, account.order or budget.order)
            # From here on only the curator holds the data.
            curator = Curator(Columns.copy_of(X, target, self.fit_intercept), budget, noise, account)
            self._solve(curator, parts, choices)
        concerns = self._concerns(self._planned(n_records, n_features, parts, budget.epsilon, self.delta))
        self.privacy_ = PrivacyStatement(
            budget.epsilon,
            budget.delta,
            curator.releases,
            self._taken_as_public(n_records, n_features, parts.declared, account),
            curator.noise_description,
            curator.private,
            library_version(),
            budget.order,
            (*self._notes(), *concerns),
        )
        # Once all is spent and kept, and from `fit`'s caller.
        warn_of(concerns, stacklevel=3)

    def _checked_parts(self, n_records: int, n_features: int, epsilon: float) -> _Parts:
        """Loss, penalty, solver and declared numbers, checked. Mistakes raise here, before anything is charged."""
        solver = Auto() if isinstance(self.solver, str) and self.solver == "auto" else self.solver
        penalty = self._penalty(n_records)
        if getattr(self, "alpha", penalty) is None and not isinstance(penalty, Zero):
            # In units of the columns' scales, which are not known yet.
            penalty = Rescaled(penalty, np.ones(n_features))
        parts = _Parts(
            self._loss(),
            penalty,
            solver,
            Declared(
                checked_bounds(self.feature_bounds, n_features, getattr(self, "feature_names_in_", None)),
                checked_target_bounds(getattr(self, "target_bounds", None)),
                checked_smoothness(self.smoothness, n_features),
            ),
        )
        check_parts(parts.loss, parts.penalty, solver, self.fit_intercept)
        parts = parts._replace(penalty=sized(penalty, n_features))
        n_columns = n_features + self.fit_intercept
        solver.check(parts.loss, parts.penalty, n_columns, self.fit_intercept, private=math.isfinite(epsilon))
        return parts

    @_within_double_precision()
    def _solve(self, curator: Curator, parts: _Parts, choices: np.random.Generator) -> None:
        """Learn scales and fit the weights within the curator's budget."""
        n_features, loss = curator.n_columns - self.fit_intercept, parts.loss
        positive_classes = self._positive_classes()
        numeric = positive_classes == [None] and not isinstance(loss, ABOUT_LABELS)
        needs_slope = parts.solver.needs_slope
        scales = prepare(curator, loss, parts.declared, n_features, self.fit_intercept, needs_slope, numeric)
        penalty = parts.penalty
        if isinstance(penalty, Rescaled):
            penalty = penalty._replace(scales=scales.roots(loss)[:n_features], unit=scales.target_scale)
        solutions: list[Solution] = []
        for positive_class in positive_classes:
            problem = Problem(
                loss,
                penalty,
                scales.smoothness,
                n_features,
                scales.slope,
                positive_class,
                scales.uncertainty,
                compared=len(positive_classes) > 1,
            )
            solutions.append(parts.solver.solve(curator, problem, len(positive_classes) - len(solutions), choices))
        weights = np.array([solution.weights for solution in solutions])
        _check_finite(weights)
        coefficients, intercepts = weights[:, :n_features], np.zeros(len(weights))
        if self.fit_intercept:
            shift = 0.0 if scales.features is None else coefficients @ scales.features.center
            intercepts = weights[:, n_features] - shift + scales.target_center
            _check_finite(intercepts)
        ranges = scales.features
        self.feature_ranges_ = None if ranges is None else np.column_stack([ranges.lower, ranges.upper])
        self._centers = np.zeros(n_features) if ranges is None else ranges.center
        self._target_center = scales.target_center
        self.unseen_features_ = np.flatnonzero(scales.smoothness[:n_features] == 0.0)
        self.n_iter_ = max(solution.n_passes for solution in solutions)
        if positive_classes == [None]:
            self.target_range_ = scales.target_range
        self.quadratic_ = solutions[0].quadratic if len(solutions) == 1 else None
        # How far features move predictions at most, in units of the target's spread, or of log odds.
        moves = abs(coefficients) @ scales.roots(loss)[:n_features] / scales.target_scale
        known = scales.located or not numeric
        self._is_constant = not coefficients.any() or bool(known and np.max(moves) < HARDLY)
        self._solver_notes = solutions[0].notes
        self._target_unseen = scales.target_unseen
        self._found_of_bounds = _found_of_bounds(self, scales)
        self._keep(coefficients, intercepts)

    def _notes(self) -> tuple[str, ...]:
        """Notes of the privacy statement: of the solver, on labels, and the features that stay out."""
        notes, out = (*self._solver_notes, *self._notes_on_labels()), self.unseen_features_
        if not 0 < len(out) <= MOST * self.n_features_in_:
            return notes
        return (*notes, stay_out(len(out), self.n_features_in_, listed_names(self, out)))

    def _notes_on_labels(self) -> tuple[str, ...]:
        """What taking the classes from the labels reveals."""
        return ()

    def _concerns(self, plan: Plan) -> tuple[str, ...]:
        """Reasons why the model can be of little use, from public and released numbers alone."""
        if math.isinf(plan.epsilon):
            return ()
        concerns, out = list(self._found_of_bounds), self.unseen_features_
        if self._target_unseen:
            concerns.append(unseen_target(plan.remedy))
        elif len(out) > MOST * self.n_features_in_:
            names = listed_names(self, out)
            concerns.append(most_stay_out(len(out), self.n_features_in_, plan.remedy, plan.bounds_help, names))
        if not self.n_iter_ and not plan.has_too_many_classes:
            concerns.append(no_update(plan.remedy))
        if self.n_iter_ and not concerns and self._is_constant:
            concerns.append(only_a_constant())
        return (*concerns, *plan.public_concerns)

    def _planned(self, n_records: int, n_features: int, parts: _Parts, epsilon: float, delta: float | None) -> Plan:
        """The plan of this fit, which follows from public numbers alone."""
        declared = parts.declared
        bounded = declared.feature_bounds is not None and np.isfinite(declared.feature_bounds).all(axis=0).any()
        n_classes = max(2, len(self._positive_classes()))
        known = isinstance(declared.smoothness, np.ndarray)
        plan = Plan(
            n_records,
            n_features,
            epsilon,
            delta,
            parts.loss,
            parts.penalty,
            self.fit_intercept,
            bool(bounded),
            known,
            n_classes,
            kind=None,
            signal=0.5,
        )
        return replace(plan, signal=plan.calibration.signal)

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "privacy_")

    def _taken_as_public(self, n_records, n_features, declared, account) -> tuple[str, ...]:
        """Lines of the privacy statement about what is assumed to be public."""
        charged = () if account is None else (f"charged to dataset {account.dataset!r} of a ledger",)
        return (f"{n_records} records, {n_features} features", *_assumptions(declared), *charged)

    def _positive_classes(self) -> list[int | None]:
        """Index of the class that is +1 in each problem to solve. None stands for a numeric target."""
        return [None]

    def _keep(self, coefficients: np.ndarray, intercepts: np.ndarray) -> None:
        """Set `coef_` and `intercept_` from the solution, which has one row for each problem."""
        raise NotImplementedError

    def confidence_intervals(self, level: float = 0.95) -> ConfidenceIntervals:
        """Approximate confidence intervals for the coefficients and the intercept.

        The intervals are computed from what the fit released, so they cost no budget. They cover the weights that
        minimise the mean loss without a penalty, over the population from which the records are drawn. They also cover
        least squares, or maximum likelihood, on the records themselves. Features and target are clipped to
        `feature_ranges_` and `target_range_` in both cases, so the line through unclipped values may differ. `coef_`
        may lie outside its interval, because it is penalised and shrunk against noise.

        Parameters
        ----------
        level : float, default=0.95
            Probability with which each interval covers. The intervals do not cover jointly at this level.

        Returns
        -------
        ConfidenceIntervals
            Fields ``names``, ``lower`` and ``upper``, with one entry for each feature in the order of the columns and
            the intercept last, in the units of the data. Features that stayed out of the fit (`unseen_features_`) have
            NaN. It prints as a table.

        Raises
        ------
        ValueError
            If the fit released too little for intervals. The message gives the reason and what to do.
        """
        check_is_fitted(self)
        if len(self._positive_classes()) > 1:
            raise ValueError(
                "confidence intervals are for regressions and two classes: with more, each class against the rest is a "
                "model of its own; fit one on labels that say whether it is this class"
            )
        if self.quadratic_ is None:
            raise ValueError(
                "no confidence intervals: the budget bought no update; use a larger epsilon or more records"
                if not self.n_iter_
                else "no confidence intervals: the solver of this fit does not release the second moments that they "
                "need; fit with solver=DPNewton() of dpcd.solvers"
            )
        took_part = self.n_features_in_ - len(self.unseen_features_) + self.fit_intercept
        if self.quadratic_.columns is not None and len(self.quadratic_.columns) < took_part:
            raise ValueError(
                "no confidence intervals: this fit chose columns first, and what it released is about these alone; fit "
                "with solver=DPNewton() of dpcd.solvers, or on fewer columns"
            )
        names = tuple(str(name) for name in getattr(self, "feature_names_in_", ())) or tuple(
            f"x{j}" for j in range(self.n_features_in_)
        )
        centers = self._centers if self.fit_intercept else None
        names += ("intercept",) if self.fit_intercept else ()
        return in_original_units(self.quadratic_, level, names, centers, self._target_center)

    def _linear_predictor(self, X) -> np.ndarray:
        check_is_fitted(self)
        X = validated_features(self, X)
        if self.clip_predictions and self.feature_ranges_ is not None:
            X = np.clip(X, *self.feature_ranges_.T)
        return X @ self.coef_.T + self.intercept_


@dataclass(kw_only=True, eq=False, repr=False)
class _PrivateRegressor(RegressorMixin, _PrivateLinearModel):
    target_bounds: Any = None

    def fit(self, X, y, **unsupported):
        """Fit the model to features X of shape (n, p) and a numeric target y of shape (n,)."""
        self._fit_private(*self._encoded(X, y, unsupported))
        return self

    def _encoded(self, X, y, unsupported):
        return self._validated(X, y, unsupported, y_numeric=True)

    def _keep(self, coefficients, intercepts):
        self.coef_, self.intercept_ = coefficients[0], float(intercepts[0])

    def predict(self, X):
        """Predicted target of each row of X."""
        predicted = self._linear_predictor(X)
        predicts_target = isinstance(self._loss(), (Squared, Huber))
        if self.clip_predictions and predicts_target and self.target_range_ is not None:
            predicted = np.clip(predicted, *self.target_range_)
        return predicted

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        # On a few hundred records a private fit is mostly noise, whatever the method.
        tags.regressor_tags.poor_score = self.epsilon != math.inf
        return tags


@dataclass(kw_only=True, eq=False, repr=False)
class _PrivateClassifier(ClassifierMixin, _PrivateLinearModel):
    classes: Any = None

    def fit(self, X, y, **unsupported):
        """Fit the model to features X of shape (n, p) and labels y of shape (n,)."""
        self._fit_private(*self._encoded(X, y, unsupported))
        return self

    def _encoded(self, X, y, unsupported):
        X, y = self._validated(X, y, unsupported)
        classes = checked_labels(y, self.classes)
        if self.classes is None:
            check_classification_targets(y)
        self.classes_ = classes
        if len(self.classes_) < 2:
            raise ValueError(
                "a classifier needs at least two classes, and there is one class only: declare all that could occur, "
                "as in classes=[0, 1]"
            )
        return X, np.searchsorted(self.classes_, y)

    def _taken_as_public(self, n_records, n_features, declared, account):
        source = "taken from the labels" if self.classes is None else "declared"
        lines = super()._taken_as_public(n_records, n_features, declared, account)
        return (*lines, f"{len(self.classes_)} classes, {source}")

    def _notes_on_labels(self):
        if self.classes is not None:
            return ()
        return ("the classes are the labels that occur, so one that a single record has reveals it: declare classes",)

    def _positive_classes(self):
        return [1] if len(self.classes_) == 2 else list(range(len(self.classes_)))

    def _keep(self, coefficients, intercepts):
        self.coef_, self.intercept_ = coefficients, intercepts

    def decision_function(self, X):
        """Linear predictor x·w + b: a column for each class, or a vector for two classes."""
        scores = self._linear_predictor(X)
        return scores[:, 0] if scores.shape[1] == 1 else scores

    def predict(self, X):
        """Predicted class of each row of X."""
        scores = self.decision_function(X)
        return self.classes_[(scores > 0.0).astype(int) if scores.ndim == 1 else scores.argmax(axis=1)]

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.classifier_tags.poor_score = self.epsilon != math.inf
        return tags


@_documented
@dataclass(kw_only=True, eq=False, repr=False)
class DPLasso(_PrivateRegressor):
    """Private LASSO: ``(1/2n)‖y − Xw − b‖² + alpha‖w‖₁``.

    Parameters
    ----------
    alpha : float or None, default=None
        Strength of the penalty, for coefficients in the units of the columns. None means 1/n for columns divided by
        their scales, which hardly shrinks any coefficient. A larger `alpha` makes the model sparse; `PrivateSearch` and
        ``quadratic_.path`` help to choose it.
    {REGRESSION}
    """

    alpha: float | None = None

    def _loss(self):
        return Squared()

    def _penalty(self, n_records):
        return L1(checked_alpha(self.alpha, n_records))


@_documented
@dataclass(kw_only=True, eq=False, repr=False)
class DPRidge(_PrivateRegressor):
    """Private ridge regression: ``(1/2n)‖y − Xw − b‖² + (alpha/2)‖w‖²``.

    Parameters
    ----------
    alpha : float or None, default=None
        Strength of the penalty, for coefficients in the units of the columns: scikit-learn's ``alpha / n``. None means
        1/n for columns divided by their scales, which hardly shrinks any coefficient.
    {REGRESSION}
    """

    alpha: float | None = None

    def _loss(self):
        return Squared()

    def _penalty(self, n_records):
        return L2(checked_alpha(self.alpha, n_records))


@_documented
@dataclass(kw_only=True, eq=False, repr=False)
class DPElasticNet(_PrivateRegressor):
    """Private elastic net: ``(1/2n)‖y − Xw − b‖² + alpha (l1_ratio‖w‖₁ + ½(1 − l1_ratio)‖w‖²)``.

    Parameters
    ----------
    alpha : float or None, default=None
        Strength of the penalty, for coefficients in the units of the columns. None means 1/n for columns divided by
        their scales, which hardly shrinks any coefficient. A larger `alpha` makes the model sparse; `PrivateSearch` and
        ``quadratic_.path`` help to choose it.
    l1_ratio : float, default=0.5
        Mixture of the two penalties: 1 is the LASSO, 0 is ridge regression.
    {REGRESSION}
    """

    alpha: float | None = None
    l1_ratio: float = 0.5

    def _loss(self):
        return Squared()

    def _penalty(self, n_records):
        return ElasticNet(checked_alpha(self.alpha, n_records), checked_ratio(self.l1_ratio))


@_documented
@dataclass(kw_only=True, eq=False, repr=False)
class DPHuberRegressor(_PrivateRegressor):
    """Private Huber regression, robust to outliers of the target: mean Huber loss ``+ (alpha/2)‖w‖²``.

    Parameters
    ----------
    threshold : float, default=1.35
        Residual beyond which the loss is linear, in the units of the target.
    alpha : float or None, default=None
        Strength of the penalty, for coefficients in the units of the columns. None means 1/n for columns divided by
        their scales, which hardly shrinks any coefficient.
    {REGRESSION}
    """

    threshold: float = 1.35
    alpha: float | None = None

    def _loss(self):
        return Huber(checked_positive("threshold", self.threshold))

    def _penalty(self, n_records):
        return L2(checked_alpha(self.alpha, n_records))


@_documented
@dataclass(kw_only=True, eq=False, repr=False)
class DPGeneralizedLinearModel(_PrivateRegressor):
    """Private linear model with a loss and a penalty of your own: ``mean loss + penalty``.

    `predict` returns the linear predictor x·w + b, whatever the loss.

    Parameters
    ----------
    loss : Loss or None, default=None
        A loss from `dpcd.losses`, or your own (`dpcd.losses` says how). None means `Squared()`.
    penalty : Penalty or None, default=None
        A penalty from `dpcd.penalties`, or your own. None means `Zero()`.
    {REGRESSION}
    """

    loss: Any = None
    penalty: Any = None

    def _loss(self):
        return Squared() if self.loss is None else self.loss

    def _penalty(self, n_records):
        return Zero() if self.penalty is None else self.penalty


@_documented
@dataclass(kw_only=True, eq=False, repr=False)
class DPLogisticRegression(_PrivateClassifier):
    """Private logistic regression: mean logistic loss ``+ alpha · penalty``.

    Parameters
    ----------
    alpha : float or None, default=None
        Strength of the penalty, for coefficients in the units of the columns: scikit-learn's ``1/(n C)``. None means
        1/n for columns divided by their scales, which hardly shrinks any coefficient.
    penalty : {"l2", "l1", "elasticnet"} or None, default="l2"
        Form of the penalty: ½‖w‖², ‖w‖₁, a mixture of the two, or no penalty.
    l1_ratio : float, default=0.5
        Mixture of the elastic net: 1 is l1, 0 is l2.
    {CLASSIFICATION}
    """

    alpha: float | None = None
    penalty: str | None = "l2"
    l1_ratio: float = 0.5

    def _loss(self):
        return Logistic()

    def _penalty(self, n_records):
        alpha = checked_alpha(self.alpha, n_records)
        if self.penalty is None:
            return Zero()
        if self.penalty == "l1":
            return L1(alpha)
        if self.penalty == "l2":
            return L2(alpha)
        if self.penalty == "elasticnet":
            return ElasticNet(alpha, checked_ratio(self.l1_ratio))
        raise ValueError(f"penalty must be 'l1', 'l2', 'elasticnet' or None, got {self.penalty!r}")

    def predict_proba(self, X):
        """Probability of each class. With more than two classes, one-against-rest probabilities scaled to sum to 1."""
        scores = self.decision_function(X)
        if scores.ndim == 1:
            return np.column_stack([expit(-scores), expit(scores)])
        # Underflow of all of them at once would be 0/0; it also keeps ties where scores have none.
        probabilities = np.maximum(expit(scores), np.finfo(float).tiny)
        return probabilities / probabilities.sum(axis=1, keepdims=True)

    def predict_log_proba(self, X):
        """Logarithm of `predict_proba`."""
        scores = self.decision_function(X)
        if scores.ndim == 1:
            return -np.logaddexp(0.0, np.column_stack([scores, -scores]))
        return np.log(self.predict_proba(X))


@_documented
@dataclass(kw_only=True, eq=False, repr=False)
class DPLinearSVC(_PrivateClassifier):
    """Private linear support vector machine: mean smoothed hinge loss ``+ (alpha/2)‖w‖²``.

    Parameters
    ----------
    alpha : float or None, default=None
        Strength of the penalty, for coefficients in the units of the columns: scikit-learn's ``1/(n C)``. None means
        1/n for columns divided by their scales, which hardly shrinks any coefficient.
    width : float, default=1.0
        Width of the parabola that replaces the corner of the hinge loss.
    {CLASSIFICATION}
    """

    alpha: float | None = None
    width: float = 1.0

    def _loss(self):
        return SmoothedHinge(checked_positive("width", self.width))

    def _penalty(self, n_records):
        return L2(checked_alpha(self.alpha, n_records))


def _found_of_bounds(model: _PrivateLinearModel, scales: Scales) -> tuple[str, ...]:
    """Concerns about declared bounds that most values lie outside of."""
    found = []
    if scales.features is not None:
        wrong = np.flatnonzero(np.greater(scales.features.outside, MOST))
        if len(wrong):
            found.append(outside_bounds(f"{len(wrong)} features ({listed_names(model, wrong)})", "feature_bounds"))
    if scales.target is not None and np.any(np.greater(scales.target.outside, MOST)):
        found.append(outside_bounds("the target", "target_bounds"))
    return tuple(found)


def _assumptions(declared: Declared) -> tuple[str, ...]:
    """Lines of the privacy statement about what the user declared."""
    lines = []
    if declared.feature_bounds is not None:
        lower, upper = declared.feature_bounds
        count = np.count_nonzero(np.isfinite(lower) | np.isfinite(upper))
        which = "the features" if count == len(lower) else f"{count} of {len(lower)} features"
        lines.append(f"bounds of {which}, declared")
    if declared.target_bounds is not None:
        lines.append("bounds of the target, declared: {:g} to {:g}".format(*declared.target_bounds))
    if isinstance(declared.smoothness, np.ndarray):
        lines.append("smoothness constants, declared")
    return tuple(lines)
