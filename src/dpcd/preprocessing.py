"""A private scaler, for pipelines whose later steps need columns of one scale."""

from __future__ import annotations

import inspect
import math
from dataclasses import dataclass, replace
from textwrap import dedent
from typing import Any, NamedTuple

import numpy as np
from sklearn.base import BaseEstimator, OneToOneFeatureMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from dpcd.privacy import Columns, Curator, PrivacyStatement, randomness
from dpcd.privacy.columns import ClippedMeans, SecondMoments
from dpcd.privacy.statement import library_version
from dpcd.ranges.looks import Limits, Range, locate
from dpcd.solvers.problem import Floats
from dpcd.validation import (
    BUDGET_DOC,
    SPENDING_DOC,
    check_flag,
    checked_bounds,
    checked_budget,
    forget_fit,
    listed_names,
    opened_account,
    validated_features,
    validated_table,
)

# Models save on looks, as rare values are of little use to them. A scaler makes constant what it does not see, rare
# flags among them. Its means come later.
_LOOKS = Limits(look=0.12, looks=0.3, means=0.0, tails=0.12)
# Of what is left for the moments. Noise in a mean is about twice as large as in a scale for the same budget.
_SHARE_OF_MEANS = 2.0 / 3.0
# Of a squared range: noise in a variance up to this is a small part of the variance of any bell-shaped column.
_SMALL_NOISE = 0.0005
_LARGEST = np.finfo(float).max


@dataclass(kw_only=True, eq=False, repr=False)
class DPStandardScaler(OneToOneFeatureMixin, TransformerMixin, BaseEstimator):
    """Scale features to mean 0 and variance 1, with privately learnt centres and scales.

    The scaler is for tools that need columns of one scale, private or not. The models of this library do not need it:
    they adapt to each column, and a scaler in front of them only takes a part of the budget.

    The fitted scaler is private. The table that `transform` returns is not: it has one row for each record and is as
    confidential as the original table. A model that is fitted to this table has its own cost, which adds to the
    scaler's.

    Parameters
    ----------
    {BUDGET}
    with_mean : bool, default=True
        Whether to subtract the mean.
    with_std : bool, default=True
        Whether to divide by the standard deviation.
    clip : bool, default=True
        Whether to clip values to `feature_ranges_` first. Clipping leaves no outliers, and turns `unseen_features_`
        into 0. False passes `unseen_features_` on unscaled.
    {SPENDING}

    Attributes
    ----------
    mean_ : array of shape (n_features,)
        Means of the values, clipped to the ranges. 0 for `unseen_features_`.
    var_ : array of shape (n_features,) or None
        Variances of the values, clipped to the ranges, and at least as large as their noise. If the budget is small
        for the number of columns, values are clipped to the inner half of each learnt range, which holds all but a few
        of them. None if `with_std` is False.
    scale_ : array of shape (n_features,) or None
        Divisors: the root of `var_`, or 1 for constant features and `unseen_features_`. None if `with_std` is False.
    feature_ranges_ : array of shape (n_features, 2)
        Range to which the values of each feature are clipped. [0, 0] for `unseen_features_`.
    unseen_features_ : array
        Indices of the features that the noise at this budget hides.
    privacy_ : PrivacyStatement
        Guarantee, what was released and spent, and what was assumed to be public. It prints as a table.
    n_features_in_ : int
        Number of features.
    feature_names_in_ : array
        Names of the features, if all of them are strings.

    Examples
    --------
    >>> import numpy as np
    >>> from dpcd import DPStandardScaler
    >>> X = np.random.default_rng(0).normal([0, 300], [1e-3, 20], size=(20_000, 2))
    >>> scaler = DPStandardScaler(epsilon=0.5).fit(X)
    >>> bool(np.all(abs(scaler.transform(X).std(axis=0) - 1) < 0.2))
    True
    """

    epsilon: float = 1.0
    delta: float | None = None
    allow_large_delta: bool = False
    feature_bounds: Any = None
    with_mean: bool = True
    with_std: bool = True
    clip: bool = True
    random_state: Any = None
    ledger: str | None = None
    dataset: str | None = None

    def fit(self, X, y=None):
        """Learn centres and scales of the columns of X, of shape (n, p). `y` is ignored."""
        forget_fit(self)
        X, _ = validated_table(self, X)
        n_records, n_features = X.shape
        for name in ("with_mean", "with_std", "clip"):
            check_flag(name, getattr(self, name))
        if not (self.with_mean or self.with_std):
            raise ValueError(
                "with_mean and with_std are both False, and nothing is left to learn: set one, or leave out"
            )
        bounds = checked_bounds(self.feature_bounds, n_features, getattr(self, "feature_names_in_", None))
        budget = checked_budget(self.epsilon, self.delta, n_records, self.allow_large_delta)
        noise, _ = randomness(self.random_state)
        with opened_account(self.ledger, self.dataset) as account:
            # From here on only the curator holds the data.
            curator = Curator(Columns.copy_of(X, np.zeros(n_records)), budget, noise, account)
            ranges = _learnt_range(curator, bounds)
            # Declared bounds may be as large as doubles are.
            with np.errstate(over="ignore"):
                moments = _learn_moments(curator, ranges, self.with_std)
        self.mean_ = moments.mean
        self.var_ = moments.variance if self.with_std else None
        self.scale_ = moments.scale if self.with_std else None
        self.feature_ranges_ = np.column_stack([ranges.lower, ranges.upper])
        self.unseen_features_ = np.flatnonzero(ranges.spread == 0.0)
        charged = () if account is None else (f"charged to dataset {account.dataset!r} of a ledger",)
        declared = () if bounds is None else ("bounds of the features, declared",)
        self.privacy_ = PrivacyStatement(
            budget.epsilon,
            budget.delta,
            curator.releases,
            (f"{n_records} records, {n_features} features", *declared, *charged),
            curator.noise_description,
            curator.private,
            library_version(),
            notes=self._notes(),
        )
        return self

    def _notes(self) -> tuple[str, ...]:
        """Notes of the privacy statement: the features that noise hides."""
        count = len(self.unseen_features_)
        if not count:
            return ()
        names = listed_names(self, self.unseen_features_)
        return (f"of {count} of {self.n_features_in_} features nothing can be seen at this budget: {names}",)

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "privacy_")

    def transform(self, X):
        """Clip, center and scale X."""
        check_is_fitted(self)
        X = validated_features(self, X)
        # Whether a value overflows is nobody's business but its owner's.
        with np.errstate(all="ignore"):
            scaled = np.clip(X, *self.feature_ranges_.T) if self.clip else X.astype(np.float64)
            if self.with_mean:
                scaled -= self.mean_
            if self.with_std:
                scaled /= self.scale_
            return scaled.astype(X.dtype, copy=False)

    def inverse_transform(self, X):
        """Undo centring and scaling. Clipped values stay clipped."""
        check_is_fitted(self)
        X = validated_features(self, X)
        with np.errstate(all="ignore"):
            restored = X.astype(np.float64)
            if self.with_std:
                restored *= self.scale_
            if self.with_mean:
                restored += self.mean_
            return restored.astype(X.dtype, copy=False)

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags


# Docstrings lose their indentation when they are compiled from Python 3.13 on, and here before.
DPStandardScaler.__doc__ = (
    inspect.cleandoc(str(DPStandardScaler.__doc__))
    .replace("{BUDGET}\n", dedent(BUDGET_DOC))
    .replace("{SPENDING}\n", dedent(SPENDING_DOC))
)


class _Moments(NamedTuple):
    """Mean, variance and scale of each column."""

    mean: Floats
    variance: Floats
    scale: Floats


def _learnt_range(curator: Curator, bounds: tuple[Floats, Floats] | None) -> Range:
    """Learn center and range of each column within its bounds, and clip and center the columns."""
    n_features = curator.n_columns
    outer = (np.full(n_features, -math.inf), np.full(n_features, math.inf)) if bounds is None else bounds
    ranges = locate(curator, np.arange(n_features), outer, True, curator.gaussian_room, _LOOKS)
    curator.clip_features(ranges.lower, ranges.upper, ranges.center)
    return ranges


def _learn_moments(curator: Curator, ranges: Range, with_std: bool) -> _Moments:
    """Spend the rest of the budget on means and variances of the centered columns."""
    n_records, seen = curator.n_records, ranges.seen
    moments = _Moments(ranges.center.copy(), np.zeros(curator.n_columns), np.ones(curator.n_columns))
    if not len(seen):
        return moments
    reach = ranges.upper[seen] / 2.0 - ranges.lower[seen] / 2.0
    share = _SHARE_OF_MEANS if with_std else 1.0
    means = ClippedMeans(seen, reach, None, 1.0 / math.sqrt(share * curator.gaussian_room))
    offset, deviation = reach * curator.release(means), reach * means.noise_level(n_records)
    center, lower, upper = ranges.center[seen], ranges.lower[seen], ranges.upper[seen]
    mean = moments.mean[seen] = np.clip(center + offset, lower, upper)
    if not with_std:
        return moments
    bound = np.minimum(np.maximum(upper - mean, mean - lower), _LARGEST)
    # Around the mean no noise in it is multiplied by its distance from the center.
    squares = SecondMoments(seen, bound, None, 1.0 / math.sqrt(curator.gaussian_room), center=mean - center)
    noise = squares.noise_level(n_records)
    if noise > _SMALL_NOISE:
        # A quarter of the noise, for a little less of the tails.
        bound = np.minimum(ranges.reach[seen] / 2.0 + np.abs(mean - center), _LARGEST)
        squares = replace(squares, ranges=bound)
    # In units of the squared bound, which may be beyond double precision. Noise in the mean makes squares larger.
    variance = curator.release(squares) - (deviation / bound) ** 2
    scale = bound * np.sqrt(np.clip(variance, min(noise, 1.0), 1.0))
    # As in scikit-learn: what varies in the last digits only is rounding.
    constant = scale <= 10.0 * np.finfo(float).eps * np.abs(mean)
    moments.variance[seen] = np.where(constant, 0.0, scale**2)
    moments.scale[seen] = np.where(constant, 1.0, scale)
    return moments
