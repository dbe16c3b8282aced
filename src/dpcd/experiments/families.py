"""Synthetic problems of the kinds that real tables are made of, each from a name, a size, a loss and a seed.

No family has an intercept beside its columns, as in the paper. The signal explains about two thirds of a regression
target; labels follow a logistic model, so that no table is separable.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dpcd.losses import ABOUT_LABELS, Loss
from dpcd.penalties import L1, L2, Penalty

Floats = NDArray[np.float64]
Draw = Callable[[np.random.Generator, int, int], Floats]

# Root mean square of a regression's residuals, and of the linear predictor behind labels; the signal of a regression
# has 1.
_NOISE = 0.7
_LOGIT = 2.5


class Sample(NamedTuple):
    """A table with its target, and the problem to solve on it."""

    name: str
    X: Floats
    y: Floats
    loss: Loss
    penalty: Penalty


def family(name: str, n_records: int, n_features: int, loss: Loss, seed: int = 0) -> Sample:
    """Draw a table of a family in `FAMILIES`, and a target that fits the loss (labels are ±1 for classification).

    The penalty is l2, weak beside the smallest column; ``"sparse"`` has an l1 penalty that finds its support.
    """
    if name not in FAMILIES:
        raise ValueError(f"there is no family {name!r}: choose one of {', '.join(FAMILIES)}")
    if n_features < 3 or n_records < 10:
        raise ValueError(f"a family needs 3 features and 10 records at least, got {n_features} and {n_records}")
    rng = np.random.default_rng([seed, n_records, n_features, *name.encode()])
    X = FAMILIES[name](rng, n_records, n_features)
    moments = np.mean(X**2, axis=0)
    signal = _signal(rng, name, X, moments)
    classify = isinstance(loss, ABOUT_LABELS)
    if classify:
        logit = _LOGIT * signal
        if name == "rare-class":
            logit -= 5.0
        y = np.where(rng.random(n_records) < 1.0 / (1.0 + np.exp(-logit)), 1.0, -1.0)
    else:
        y = signal + _NOISE * rng.normal(size=n_records)
        if name == "rare-class":
            y = np.where(y > np.quantile(y, 0.95), 1.0, 0.0)
    if name == "outliers":
        _spoil(rng, X, None if classify else y)
    penalty = L1(0.1 if not classify else 0.02) if name == "sparse" else L2(moments[moments > 0.0].min() / n_records)
    return Sample(name, np.asfortranarray(X), y, loss, penalty)


def _signal(rng: np.random.Generator, name: str, X: Floats, moments: Floats) -> Floats:
    """A linear function of the columns, of root mean square 1: every column counts, whatever its scale."""
    if name == "no-signal":
        return np.zeros(len(X))
    weights: Floats = rng.normal(size=len(moments))
    if name == "sparse":
        weights[10:] = 0.0
    scaled = np.divide(weights, np.sqrt(moments), out=np.zeros_like(weights), where=moments > 0.0)
    signal = X @ scaled
    return signal / np.sqrt(np.mean(signal**2))


def _spoil(rng: np.random.Generator, X: Floats, target: Floats | None) -> None:
    """A few records with most of the second moment of a quarter of the columns, and of nothing that the model knows."""
    n_records, n_features = X.shape
    rows = rng.choice(n_records, size=max(3, n_records // 4000), replace=False)
    columns = rng.choice(n_features, size=max(1, n_features // 4), replace=False)
    X[np.ix_(rows, columns)] *= 150.0
    if target is not None:
        target[rng.choice(n_records, size=max(3, n_records // 2000), replace=False)] *= 20.0


def _autoregressive(correlation: float) -> Draw:
    """Normal columns, neighbours correlated."""

    def draw(rng: np.random.Generator, n_records: int, n_features: int) -> Floats:
        X = rng.normal(size=(n_records, n_features))
        for j in range(1, n_features):
            X[:, j] = correlation * X[:, j - 1] + np.sqrt(1.0 - correlation**2) * X[:, j]
        return X

    return draw


def _scales(rng: np.random.Generator, n_records: int, n_features: int) -> Floats:
    """Columns of scale 10⁻⁴ to 10⁴, correlated: nobody standardised them."""
    scales = 10.0 ** rng.permutation(np.linspace(-4.0, 4.0, n_features))
    return _autoregressive(0.5)(rng, n_records, n_features) * scales


def _heavy_tails(rng: np.random.Generator, n_records: int, n_features: int) -> Floats:
    """Student's t with three degrees of freedom, a record's columns correlated."""
    X = _autoregressive(0.3)(rng, n_records, n_features)
    # Each column has tails of its own, so that a record is rarely extreme in all of them.
    return X / np.sqrt(rng.chisquare(3.0, size=X.shape) / 3.0)


def _duplicates(rng: np.random.Generator, n_records: int, n_features: int) -> Floats:
    """The second half of the columns repeats the first; one column is constant and, from four on, one is zero."""
    X = _autoregressive(0.5)(rng, n_records, n_features)
    half = (n_features + 1) // 2
    X[:, half:] = X[:, : n_features - half]
    X[:, -1] = 3.0
    if n_features > 3:
        X[:, -2] = 0.0
    return X


def _mixed(rng: np.random.Generator, n_records: int, n_features: int) -> Floats:
    """Measurements, flags, rare flags, counts, mostly-zero amounts and numbers far from zero, side by side."""
    draws: list[Callable[[], Floats]] = [
        lambda: rng.normal(size=n_records),
        lambda: (rng.random(n_records) < 0.1).astype(float),
        lambda: rng.poisson(3.0, size=n_records).astype(float),
        lambda: rng.exponential(100.0, size=n_records) * (rng.random(n_records) < 0.15),
        lambda: 40.0 + 12.0 * rng.normal(size=n_records),
        lambda: (rng.random(n_records) < 0.01).astype(float),
        lambda: rng.integers(0, 11, size=n_records).astype(float),
    ]
    return np.column_stack([draws[j % len(draws)]() for j in range(n_features)])


def _lognormal(rng: np.random.Generator, n_records: int, n_features: int) -> Floats:
    """Exponentials of a few common factors, as amounts of money are; uncentred."""
    factors = rng.normal(size=(n_records, max(1, n_features // 4)))
    loadings = rng.normal(size=(factors.shape[1], n_features))
    common = factors @ (loadings / np.linalg.norm(loadings, axis=0))
    return np.exp(0.7 * common + 0.7 * rng.normal(size=(n_records, n_features)))


def _with_constant(rng: np.random.Generator, n_records: int, n_features: int) -> Floats:
    """Correlated columns and a column of ones, for an offset."""
    X = _autoregressive(0.5)(rng, n_records, n_features)
    X[:, -1] = 1.0
    return X


def _one_hot(rng: np.random.Generator, n_records: int, n_features: int) -> Floats:
    """Categories of 3 to 12 levels, most of them rare, as 0/1 columns; one column in fifteen is numeric."""
    columns = [rng.normal(size=n_records) for _ in range(max(1, n_features // 15))]
    while len(columns) < n_features:
        levels = min(int(rng.integers(3, 13)), n_features - len(columns))
        # The last of many levels is seldom seen; a level cut off at the end stays without a column.
        shares = 1.0 / np.arange(1, levels + 2) ** 2.5
        drawn = rng.choice(levels + 1, size=n_records, p=shares / shares.sum())
        columns += [(drawn == level).astype(float) for level in range(levels)]
    return np.column_stack(columns)


def _one_hot_standardized(rng: np.random.Generator, n_records: int, n_features: int) -> Floats:
    """The same, each column centred and scaled: rare levels become outliers."""
    X = _one_hot(rng, n_records, n_features)
    X -= X.mean(axis=0)
    deviations = X.std(axis=0)
    return np.divide(X, deviations, out=X, where=deviations > 0.0)


FAMILIES: dict[str, Draw] = {
    "correlated": _autoregressive(0.5),
    "strongly-correlated": _autoregressive(0.9),
    "scales": _scales,
    "heavy-tails": _heavy_tails,
    "outliers": _autoregressive(0.5),
    "duplicates": _duplicates,
    "mixed": _mixed,
    "lognormal": _lognormal,
    "no-signal": _autoregressive(0.5),
    "rare-class": _with_constant,
    "one-hot": _one_hot,
    "one-hot-standardized": _one_hot_standardized,
    "sparse": _autoregressive(0.0),
}
