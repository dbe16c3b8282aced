"""Hyper-parameter search whose cost is part of its privacy guarantee.

Keeping the best of several settings reveals something about the records, even if each fit is private. `PrivateSearch`
tries a random number of candidates, keeps this number secret, and releases the best candidate only. It states one total
(epsilon, delta) for the whole search. `dpcd.privacy.search` has the theorem.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass
from itertools import islice
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, clone, is_classifier
from sklearn.model_selection import ParameterGrid, ParameterSampler
from sklearn.utils import get_tags
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from dpcd.estimators import _Parts, _PrivateLinearModel, opened_account
from dpcd.privacy import Columns, Curator, PrivacyBudget, PrivacyStatement, randomness
from dpcd.privacy.search import BestCandidate, Law, Measure, NumberOfRuns, gaussian_budget
from dpcd.privacy.statement import library_version
from dpcd.ranges.looks import target_rms
from dpcd.usefulness import warn_of
from dpcd.validation import checked_budget, forget_fit

# Part of a candidate's μ² that goes into its score.
_SCORE_SHARE = 0.1
# A record's log loss counts for no more than this; the zero model has log 2.
_LARGEST_LOG_LOSS = 2.0
# Combinations of a grid that are checked before anything is spent.
_CHECKED_SETTINGS = 1000
# The search decides on these for all candidates.
_RESERVED = {
    "epsilon": "the search has one for everything",
    "delta": "the search has one for everything",
    "allow_large_delta": "give it to the search",
    "random_state": "give it to the search",
    "ledger": "give it to the search",
    "dataset": "give it to the search",
    "classes": "the classes are the same for all candidates",
}
_MEASURES: dict[str, Measure] = {
    "neg_mean_squared_error": "squared error",
    "neg_mean_absolute_error": "absolute error",
    "accuracy": "misclassification",
    "neg_log_loss": "log loss",
}


def _delegated(name: str):
    """Whether the searched estimator has this method."""
    return available_if(lambda search: hasattr(search.estimator, name))


@dataclass(eq=False, repr=False)
class PrivateSearch(BaseEstimator):
    """Search for good settings of a private model, at one total (epsilon, delta).

    The search tries a random number of candidates. Each candidate draws its settings at random, is fitted to all
    records, and gets a noisy score on the same records. Only the best candidate is released. There is no
    cross-validation and no second fit: a private model cannot fit its own records much better than new ones, and each
    further fit would cost.

    Parameters
    ----------
    estimator : estimator
        A model of this library. The search replaces its `epsilon`, `delta` and `allow_large_delta`. The cost of its
        solver must be Gaussian, which excludes solvers that draw secret batches.
    param_distributions : dict or list of dicts
        Maps the name of a parameter to a list, which is drawn from uniformly, or to a distribution with a method `rvs`,
        as in scikit-learn's `RandomizedSearchCV`. Lists and distributions must not depend on the data. Settings of
        solvers are given as solvers: ``{"solver": [DPCD(n_passes=5), DPCD(n_passes=20)]}``.
    n_iter : float, default=10
        **Mean** number of candidates, at least 2.
    law : {"logarithmic", "geometric", "poisson"}, default="logarithmic"
        Distribution of the number of candidates. The logarithmic law is the cheapest: each candidate has about 1.6
        times the noise of a single fit for a mean of 10, and 1.7 times for 30. Its number varies most: a quarter of the
        searches try one candidate only. The geometric law varies less and costs more. The Poisson law varies least and
        costs most. Only the Poisson law can draw 0 candidates: `fit` then raises RuntimeError, and the budget is spent.
    epsilon : float, default=1.0
        The privacy budget of the whole search: of the model, its settings and its score. `math.inf` switches privacy
        off.
    delta : float or None, default=None
        Probability with which the guarantee may fail. None means 1/n².
    allow_large_delta : bool, default=False
        Whether `delta` may be 1/n or more, as in the models.
    scoring : str or None, default=None
        ``"accuracy"`` or ``"neg_log_loss"`` for classifiers, ``"neg_mean_squared_error"`` or
        ``"neg_mean_absolute_error"`` for regressors. None means the first of the two. Losses are clipped to be private:
        log losses to 2, and residuals to half the width of `target_bounds`. Without finite bounds, residuals are
        clipped to the root mean square of the target, which the search learns privately.
    random_state : int, RandomState, Generator or None, default=None
        None draws everything from secure sources, and the search is private. Any other value makes the search
        reproducible and **not private**.
    ledger, dataset : str or None, default=None
        As in the models. The search is charged once, as a whole, before it reads any record. The budget of the dataset
        must have been created with a Rényi order (``dpcd ledger create --batches``).

    Attributes
    ----------
    best_estimator_ : estimator
        The best candidate, fitted. Its privacy statement is the statement of the search.
    best_params_ : dict
        Settings of the best candidate.
    best_score_ : float
        Noisy score of the best candidate. Higher is better.
    best_index_ : int
        Always 0, because `cv_results_` has one entry.
    cv_results_ : dict
        Settings and noisy score of the best candidate, in scikit-learn's format. The number of the other candidates,
        their settings and their scores stay secret, because the guarantee requires it.
    privacy_ : PrivacyStatement
        Guarantee of the whole search, what was released and spent, and what was assumed to be public.
    classes_, n_features_in_, feature_names_in_
        As in the model.

    Notes
    -----
    The time that a search takes depends on the secret number of candidates. Keep this time from everybody who must not
    learn about the records.

    Examples
    --------
    >>> import numpy as np
    >>> from dpcd import DPRidge, PrivateSearch
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(5000, 3))
    >>> y = X @ [1.0, -1.0, 0.5] + rng.normal(size=5000)
    >>> search = PrivateSearch(DPRidge(feature_bounds=(-4, 4)), {"alpha": [1e-3, 1.0]}, random_state=0).fit(X, y)
    >>> search.best_params_
    {'alpha': 0.001}
    """

    estimator: Any
    param_distributions: Any
    _: KW_ONLY
    n_iter: float = 10
    law: Law = "logarithmic"
    epsilon: float = 1.0
    delta: float | None = None
    allow_large_delta: bool = False
    scoring: str | None = None
    random_state: Any = None
    ledger: str | None = None
    dataset: str | None = None

    def fit(self, X, y, **unsupported):
        """Search on features X of shape (n, p) and a target y of shape (n,)."""
        forget_fit(self)
        template = self._template()
        X, target = template._encoded(X, y, unsupported)
        n_records, n_features = X.shape
        number = NumberOfRuns(_checked_mean(self.n_iter), self.law)
        measure = self._measure()
        budget = checked_budget(self.epsilon, self.delta, n_records, self.allow_large_delta)
        noise, _ = randomness(self.random_state)
        declared = template._checked_parts(n_records, n_features, budget.epsilon).declared
        self._check_settings(template, n_records, n_features, budget)

        def propose(generator: np.random.Generator) -> _Candidate:
            state = np.random.RandomState(generator.bit_generator)
            # Copies, so that no object that remembers carries anything from one candidate to the next.
            (settings,) = ParameterSampler(copy.deepcopy(self.param_distributions), 1, random_state=state)
            return _Candidate(copy.deepcopy(template), settings, n_records, n_features, budget, generator)

        with opened_account(self.ledger, self.dataset) as account:
            if math.isfinite(budget.epsilon):
                order = None if account is None else account.order
                order = order or number.best_order(budget.epsilon, budget.delta)
                budget = PrivacyBudget(budget.epsilon, budget.delta, order)
            # From here on only the curator holds the data.
            curator = Curator(Columns.copy_of(X, target), budget, noise, account)
            largest, notes = _largest_loss(curator, measure, declared.target_bounds, number)
            room = number.candidate_room(budget, curator.spent)
            fit_room = (1.0 - _SCORE_SHARE) * room
            best = curator.release(
                BestCandidate(
                    number,
                    propose,
                    gaussian_budget(fit_room, budget.delta),
                    measure,
                    largest,
                    1.0 / math.sqrt(_SCORE_SHARE * room),
                )
            )
        if best is None:
            raise RuntimeError(
                "the Poisson law came up with no candidate at all; nothing was released about the data, but the budget "
                "is spent. The logarithmic and the geometric law always try one"
            )
        candidate, loss = best
        model = candidate.model
        if math.isfinite(fit_room):
            noise_ratio = math.sqrt(PrivacyBudget(budget.epsilon, budget.delta).gaussian_room() / fit_room)
            notes = (
                *notes,
                f"each candidate had {noise_ratio:.2g} times the noise of a single fit: searching pays where settings "
                f"matter more than that",
            )
        # Of the winner, which is released; nobody may know what there would be to say of the others.
        concerns = model._concerns(model._planned(n_records, n_features, candidate.parts, self.epsilon, self.delta))
        self.privacy_ = PrivacyStatement(
            budget.epsilon,
            budget.delta,
            curator.releases,
            (
                *template._taken_as_public(n_records, n_features, declared, account),
                f"settings to choose from; how many were tried is secret ({number.law} law of mean {number.mean:g})",
            ),
            curator.noise_description,
            curator.private,
            library_version(),
            budget.order,
            (*notes, *template._notes_on_labels(), *concerns),
        )
        # Whoever asks the model what it cost is told the price of the search, and whoever fits it anew pays as much.
        model.set_params(epsilon=self.epsilon, delta=self.delta, allow_large_delta=self.allow_large_delta)
        model.privacy_ = self.privacy_
        self.best_estimator_, self.best_params_, self.best_index_ = model, candidate.settings, 0
        self.best_score_ = 1.0 - loss if measure == "misclassification" else -loss
        self.cv_results_ = {
            "params": [self.best_params_],
            **{f"param_{name}": np.array([value], dtype=object) for name, value in self.best_params_.items()},
            "mean_test_score": np.array([self.best_score_]),
            "rank_test_score": np.array([1]),
        }
        for name in ("classes_", "n_features_in_", "feature_names_in_"):
            if hasattr(template, name):
                setattr(self, name, getattr(template, name))
        warn_of(concerns, stacklevel=2)
        return self

    def _template(self) -> Any:
        """The model that candidates are copies of, checked."""
        if not isinstance(self.estimator, _PrivateLinearModel):
            raise TypeError(
                f"PrivateSearch searches settings of this library's models only, got {self.estimator!r}: nobody has "
                f"accounted for what another estimator does with the data"
            )
        for name in ("random_state", "ledger", "dataset"):
            if getattr(self.estimator, name) is not None:
                raise ValueError(f"the estimator has {name} set, which the search decides on: {_RESERVED[name]}")
        return clone(self.estimator)

    def _measure(self) -> Measure:
        classifies = is_classifier(self.estimator)
        fitting = [name for name in _MEASURES if (name in ("accuracy", "neg_log_loss")) == classifies]
        if classifies and not hasattr(self.estimator, "predict_proba"):
            fitting.remove("neg_log_loss")
        scoring = fitting[0] if self.scoring is None else self.scoring
        if scoring not in fitting:
            raise ValueError(
                f"scoring must be None or one of {', '.join(map(repr, fitting))} for {type(self.estimator).__name__}, "
                f"got {self.scoring!r}: scores must be means of bounded losses to be private"
            )
        return _MEASURES[scoring]

    def _check_settings(self, template: Any, n_records: int, n_features: int, budget: PrivacyBudget) -> None:
        """Raise for wrong settings before anything is spent: an error of a candidate is shown only if all of them fail.

        Every combination of lists is tried, up to a thousand. Distributions cannot be enumerated.
        """
        spaces = self.param_distributions
        spaces = [spaces] if isinstance(spaces, Mapping) else spaces
        ParameterSampler(spaces, 1)  # its own checks of what it is given
        known = template.get_params(deep=False)
        for space in spaces:
            for name in space:
                if name in _RESERVED:
                    raise ValueError(f"{name} cannot be searched over: {_RESERVED[name]}")
                if name not in known:
                    raise ValueError(
                        f"{type(template).__name__} has no parameter {name!r}: it has {', '.join(sorted(known))}"
                    )
            if not any(hasattr(values, "rvs") for values in space.values()):
                for settings in islice(ParameterGrid(space), _CHECKED_SETTINGS):
                    _Candidate(template, settings, n_records, n_features, budget, np.random.default_rng(0))

    @_delegated("predict")
    def predict(self, X):
        """Predict with the best candidate."""
        check_is_fitted(self)
        return self.best_estimator_.predict(X)

    @_delegated("decision_function")
    def decision_function(self, X):
        """Decision function of the best candidate."""
        check_is_fitted(self)
        return self.best_estimator_.decision_function(X)

    @_delegated("predict_proba")
    def predict_proba(self, X):
        """Probabilities of the classes by the best candidate."""
        check_is_fitted(self)
        return self.best_estimator_.predict_proba(X)

    @_delegated("predict_log_proba")
    def predict_log_proba(self, X):
        """Logarithms of the probabilities of the classes by the best candidate."""
        check_is_fitted(self)
        return self.best_estimator_.predict_log_proba(X)

    def score(self, X, y):
        """Accuracy or R² of the best candidate on (X, y). The score has no noise and reveals something about (X, y)."""
        check_is_fitted(self)
        return self.best_estimator_.score(X, y)

    def __sklearn_tags__(self):
        tags, inner = super().__sklearn_tags__(), get_tags(self.estimator)
        tags.estimator_type = inner.estimator_type
        tags.target_tags = copy.deepcopy(inner.target_tags)
        tags.classifier_tags = copy.deepcopy(inner.classifier_tags)
        tags.regressor_tags = copy.deepcopy(inner.regressor_tags)
        for own in (tags.classifier_tags, tags.regressor_tags):
            if own is not None:
                own.poor_score = self.epsilon != math.inf
        return tags


class _Candidate:
    """A model with settings of its own, ready to be fitted by a curator."""

    def __init__(
        self,
        template: Any,
        settings: dict[str, Any],
        n_records: int,
        n_features: int,
        budget: PrivacyBudget,
        choices: np.random.Generator,
    ) -> None:
        # A copy and not a clone: the template has seen the names of features and classes.
        self.model = copy.copy(template).set_params(**{k: clone(v, safe=False) for k, v in settings.items()})
        self.settings = settings
        self._choices = choices
        self.parts: _Parts = self.model._checked_parts(n_records, n_features, budget.epsilon)
        shape = n_records, n_features + self.intercept
        solver = self.parts.solver
        if solver.renyi_order(*shape, 1.0, budget.delta, len(self.model._positive_classes())) is not None:
            raise ValueError(
                f"{solver!r} is not charged as Gaussian (it draws secret batches, for instance), and a search cannot "
                f"account for that: use a solver that is, such as DPCD"
            )

    @property
    def intercept(self) -> bool:
        """Whether the model has an intercept."""
        return bool(self.model.fit_intercept)

    def fit(self, curator: Curator) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
        """Fit the model, and return its coefficients, its intercepts and the ranges of the features."""
        self.model._solve(curator, self.parts, self._choices)
        ranges = self.model.feature_ranges_ if self.model.clip_predictions else None
        return np.atleast_2d(self.model.coef_), np.atleast_1d(self.model.intercept_), ranges


def _checked_mean(n_iter: Any) -> float:
    if isinstance(n_iter, bool) or not isinstance(n_iter, (int, float, np.integer, np.floating)) or not n_iter >= 2:
        raise ValueError(f"n_iter, the mean number of candidates, must be a number of at least 2, got {n_iter!r}")
    return float(n_iter)


def _largest_loss(
    curator: Curator, measure: Measure, target_bounds: tuple[float, float] | None, number: NumberOfRuns
) -> tuple[float, tuple[str, ...]]:
    """Largest loss of a record, and notes about it for the privacy statement."""
    if measure == "misclassification":
        return 1.0, ()
    if measure == "log loss":
        return _LARGEST_LOG_LOSS, ()
    notes: tuple[str, ...] = ()
    if target_bounds is not None and all(map(math.isfinite, target_bounds)):
        residual = target_bounds[1] / 2.0 - target_bounds[0] / 2.0
    else:
        learnt = target_rms(curator, number.candidate_room(curator.budget, curator.spent))
        # Nothing is visible to any candidate either, then: one is as good as another.
        residual = 1.0 if learnt is None else learnt
        if learnt is None:
            notes = ("nothing of the target could be seen at this budget: scores mean nothing",)
    residual = min(max(residual, 1e-150), 1e150)
    return (residual**2 if measure == "squared error" else residual), notes
