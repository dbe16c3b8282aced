"""What users hand over: the parameters that everything private shares, and checks that do not leak.

Tables are checked for their form. Nothing that is raised or warned of quotes a value.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
from sklearn.utils import assert_all_finite
from sklearn.utils.validation import validate_data

from dpcd.privacy import Account, Ledger, PrivacyBudget
from dpcd.usefulness import large_delta

BUDGET_DOC = """    epsilon : float, default=1.0
        The privacy budget: smaller is more private. `math.inf` switches privacy off.
    delta : float or None, default=None
        Probability with which the guarantee may fail. None means 1/n².
    allow_large_delta : bool, default=False
        Whether `delta` may be 1/n or more, which a fit refuses: whoever publishes one record at random satisfies that.
    feature_bounds : (lower, upper), mapping or None, default=None
        Public bounds of the features, known without looking at the data: two numbers for all features, two arrays, one
        number b for (−b, b), or, for data frames, a mapping from names to (lower, upper) that need not have all. None
        or an infinity is a bound that is not known. Bounds are outer limits: the range inside them that values really
        take is learnt privately, so wide ones do no harm. Values outside are clipped, so a wrong bound costs accuracy
        and never privacy.
"""
SPENDING_DOC = """    random_state : int, RandomState, Generator or None, default=None
        None: the noise comes from OpenDP's secure sampler and the fit is private. Anything else makes the fit
        reproducible and **not private**, for experiments and tests.
    ledger : str or None, default=None
        ``"sqlite:///path.db"``: a file made by ``dpcd ledger create``, which remembers what was ever spent on a data
        set. Whatever `clone`, searches, pipelines and other processes fit with it shares the same budget, and a fit
        that the budget cannot cover raises `BudgetExceeded` before it reads anything. Seeded fits are refused.
    dataset : str or None, default=None
        Whose budget in the ledger is spent. Needed with `ledger`, and only then.
"""

_FLOATS = [np.float64, np.float32]
# Of larger bounds, sums of squares over columns are no numbers: they are as good as none.
_LARGEST_BOUND = 1e150
_COMPLEX = "complex numbers: give real and imaginary parts as columns of their own. Complex data not supported"
_DATES = "dates or durations: turn them into numbers first, such as days since a date that is fixed beforehand"
_TEXT = (
    "X and y must be numeric, and within the range of double precision: encode categories first, with levels known "
    "beforehand, as in OneHotEncoder(categories=...)"
)
_UNREADABLE = "X or y cannot be read: give X as a table of numbers and y as one target for each of its rows"
# Beginnings of messages of scikit-learn that speak of shapes, names, types and missing values only. All others may
# quote values, or come to do so.
_HARMLESS = re.compile(
    "Input [Xy] contains |Found array with |Found input variables with inconsistent numbers of samples|"
    "Expected 2D array, got 1D array instead. Reshape|Expected 2D input, got input with shape|"
    "X has [0-9]+ features, but |X does not contain any features|The feature names should match|"
    "Feature names are only supported|[yY] should be a 1d array, got an array of shape |y cannot be None|"
    "[a-zA-Z ]+ requires y to be passed|np.matrix is not supported|Sparse data was passed|"
    "Expected sequence or array-like, got <class|dtype='numeric' is not compatible with arrays of bytes/strings|"
    r"float\(\) argument must be a string or a real number, not '\w+'$"
)
# What types of columns are called by NumPy, pandas, Polars and Arrow.
_NUMERIC = re.compile("float|u?int(?!erval)|bool|decimal|double|half|sparse")
_NO_NUMBERS = {"complex": _COMPLEX, **dict.fromkeys(("date", "time", "duration", "period"), _DATES)}


def validated_table(estimator: Any, X: Any, y: Any = "no_validation", **check: Any) -> tuple[Any, Any]:
    """X, and y if there is one, as scikit-learn's `validate_data` returns them; X in single or double precision.

    `check` goes on to `validate_data`, and ``y_numeric=True`` also makes y finite doubles.
    """
    if check.get("y_numeric"):
        _check_types(y, "y")
    else:
        _check_no_label_is_missing(y)
    with _without_values(X):
        # float32 stays as it is: the curator makes the one copy, in float64.
        validated = validate_data(estimator, X, y, dtype=_FLOATS, **check)
        X, y = (validated, None) if isinstance(y, str) else validated
        if check.get("y_numeric"):
            y = np.asarray(y, dtype=np.float64)
            assert_all_finite(y, input_name="y")
    if X.shape[0] < 2:
        raise ValueError(f"n_samples={X.shape[0]}: a private fit needs at least 2 samples")
    return X, y


def validated_features(estimator: Any, X: Any) -> Any:
    """X for an estimator that was fitted, in single or double precision."""
    with _without_values(X):
        return validate_data(estimator, X, dtype=_FLOATS, reset=False)


def _columns_by_type(table: Any) -> dict[str, str]:
    """Types of a frame's columns by their names, in small letters; those of anything else under no name."""
    types = getattr(table, "dtypes", None)
    names = getattr(table, "columns", None)
    if types is None or names is None or callable(types):
        return {"": str(getattr(table, "dtype", "")).lower()}
    return {str(name): str(type_).lower() for name, type_ in zip(names, types, strict=True)}


def _check_types(table: Any, name: str) -> None:
    """Refuse columns of types that are no real numbers: scikit-learn would quote values, or let them pass."""
    for column, type_ in _columns_by_type(table).items():
        for beginning, explanation in _NO_NUMBERS.items():
            if type_.startswith(beginning):
                where = f"column {column!r} of {name}" if column else name
                raise ValueError(f"{where} holds {explanation}")


@contextmanager
def _without_values(X: Any) -> Iterator[None]:
    """Refuse what is no table of numbers, in words that quote none of its values."""
    check_two_dimensional(X)
    _check_types(X, "X")
    # NumPy's warnings about overflow in scikit-learn's check for NaN would tell of extreme values.
    with np.errstate(all="ignore"):
        try:
            yield
        except MemoryError:
            raise
        except Exception as error:
            explained = _explained(error, X)
            if explained is None:
                raise
            raise ValueError(explained) from None


def _explained(error: Exception, X: Any) -> str | None:
    """What to say instead of a message that could quote values, or leads to a leak; None if it does neither."""
    message = str(error)
    other = [name for name, type_ in _columns_by_type(X).items() if name and not _NUMERIC.match(type_)]
    where = f". Of X these columns are of other types than numbers: {', '.join(map(repr, other))}" if other else ""
    if "Complex data" in message or "'complex'" in message:
        return f"X or y holds {_COMPLEX}{where}"
    if "datetime" in message.lower() or "Timestamp" in message or "Timedelta" in message:
        return f"X or y holds {_DATES}{where}"
    no_numbers = ("could not convert", "setting an array element with a sequence")
    if isinstance(error, OverflowError) or any(part in message for part in no_numbers):
        return _TEXT + where
    if isinstance(error, ValueError) and message.startswith("Input y contains NaN"):
        return "Input y contains NaN: leave out the records that have no target"
    if isinstance(error, ValueError) and "contains NaN" in message:
        return (
            f"{message.splitlines()[0]} Missing values are not supported: drop the column, or fill in a number that is "
            f"fixed beforehand. An imputer that learns it from the data would reveal something about them"
        )
    return None if _HARMLESS.match(message) else _UNREADABLE + where


def _check_no_label_is_missing(y: Any) -> None:
    """Refuse labels that are None, NaN, or what pandas has for them, whatever kind the others are."""
    labels = np.asarray(y)
    if labels.dtype != object or labels.ndim == 0:
        return
    if any(label is None or type(label).__name__ == "NAType" or label != label for label in labels.ravel()):
        raise ValueError("y holds missing labels: give them a class of their own, or leave their records out")


def checked_labels(y: Any, classes: Any) -> np.ndarray:
    """The classes in order: those that are declared, or the labels that occur."""
    if classes is not None and (isinstance(classes, str) or np.ndim(classes) != 1):
        raise ValueError(f"classes must be a list of labels or None, got {classes!r}")
    try:
        found = np.unique(y if classes is None else classes)
        if classes is not None and len(found) < len(classes):
            raise ValueError(f"classes must differ from each other, got {classes!r}")
        if classes is not None and not np.isin(y, found).all():
            raise ValueError(f"y holds labels that are not among the declared classes {found.tolist()}")
    except TypeError:
        # NumPy's message would tell of the labels' types.
        raise ValueError(
            "y holds labels of several kinds, such as numbers and strings: make all of them numbers or all strings"
        ) from None
    return found


def forget_fit(estimator: Any) -> None:
    """Take away what an earlier fit left: if this one fails, nothing shall predict with parameters it never had."""
    for name in [name for name in vars(estimator) if name.endswith("_") and not name.startswith("_")]:
        delattr(estimator, name)


def check_two_dimensional(X: Any) -> None:
    """Refuse a number or a vector of features; scikit-learn would too, quoting its values."""
    dimensions = X.ndim if hasattr(X, "ndim") else np.ndim(X) if isinstance(X, (list, tuple)) or np.isscalar(X) else 2
    if dimensions < 2:
        raise ValueError(
            f"Expected 2D array, got {dimensions}D array instead. Reshape your data either using array.reshape(-1, 1) "
            f"if it has a single feature or array.reshape(1, -1) if it contains a single sample."
        )


def check_parts(loss: Any, penalty: Any, solver: Any, fit_intercept: Any) -> None:
    """Refuse names, classes and functions where an object is wanted."""
    if not (isinstance(loss, tuple) and all(hasattr(loss, name) for name in ("derivative", "curvature", "lipschitz"))):
        raise ValueError(
            f"loss must be an object such as dpcd.losses.Huber(1.0), or a NamedTuple like it; got {loss!r}"
        )
    if not (isinstance(penalty, tuple) and hasattr(penalty, "prox")):
        raise ValueError(
            f"penalty must be an object such as dpcd.penalties.L1(0.1), or a NamedTuple like it; got {penalty!r}"
        )
    if isinstance(solver, type) or not hasattr(solver, "solve"):
        raise ValueError(f"solver must be 'auto' or an object such as dpcd.solvers.DPNewton(), got {solver!r}")
    check_flag("fit_intercept", fit_intercept)


def check_flag(name: str, value: Any) -> None:
    """Refuse what is not True or False."""
    if not isinstance(value, (bool, np.bool_)):
        raise ValueError(f"{name} must be True or False, got {value!r}")


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float, np.integer, np.floating)) and not isinstance(value, bool)


def checked_budget(epsilon: Any, delta: Any, n_records: int, allow_large_delta: Any) -> PrivacyBudget:
    """The budget of a fit on so many records; δ is 1/n² if it is None, and below 1/n unless that is asked for."""
    check_flag("allow_large_delta", allow_large_delta)
    budget = PrivacyBudget(epsilon, 1.0 / n_records**2 if delta is None else delta)
    if math.isfinite(budget.epsilon) and budget.delta >= 1.0 / n_records and not allow_large_delta:
        raise ValueError(large_delta(budget.delta, n_records))
    return budget


def checked_alpha(alpha: Any, n_records: int) -> float:
    """The strength of a penalty; None means 1/n."""
    if alpha is None:
        return 1.0 / n_records
    if not (_is_number(alpha) and 0.0 <= alpha < math.inf):
        raise ValueError(f"alpha must be a number of at least 0, got {alpha!r}")
    return float(alpha)


def checked_ratio(l1_ratio: Any) -> float:
    """Part of the l1 norm in an elastic net."""
    if not (_is_number(l1_ratio) and 0.0 <= l1_ratio <= 1.0):
        raise ValueError(f"l1_ratio must lie between 0 and 1, got {l1_ratio!r}")
    return float(l1_ratio)


def checked_positive(name: str, value: Any) -> float:
    """A positive and finite number."""
    if not (_is_number(value) and 0.0 < value < math.inf):
        raise ValueError(f"{name} must be a positive number, got {value!r}")
    return float(value)


def checked_bounds(bounds: Any, n_features: int, names: Any) -> tuple[np.ndarray, np.ndarray] | None:
    """Lower and upper bounds of the features as arrays, infinite where they are not known."""
    if bounds is None:
        return None
    if isinstance(bounds, Mapping):
        unknown = [] if names is None else sorted(set(bounds) - set(names), key=str)
        if names is None or unknown:
            raise ValueError(
                "feature_bounds as a mapping needs a data frame and names columns of it"
                + (f", which has no {', '.join(map(repr, unknown))}" if unknown else "")
            )
        pairs = [_pair(f"feature_bounds[{name!r}]", bounds.get(name), 1) for name in names]
        lower, upper = (np.concatenate(side) for side in zip(*pairs, strict=True))
        return lower, upper
    return _pair("feature_bounds", bounds, n_features)


def checked_target_bounds(bounds: Any) -> tuple[float, float] | None:
    """Lower and upper bound of the target, infinite where they are not known."""
    if bounds is None:
        return None
    lower, upper = _pair("target_bounds", bounds, 1)
    return float(lower[0]), float(upper[0])


def _pair(name: str, bounds: Any, size: int) -> tuple[np.ndarray, np.ndarray]:
    """So many lower and upper bounds. None is one that is not known, and a number b stands for (-b, b)."""
    if bounds is None:
        bounds = -math.inf, math.inf
    elif _is_number(bounds):
        bounds = -bounds, bounds
    kinds = f"two numbers or arrays of {size}" if size > 1 else "two numbers"
    try:
        pair = [_known(bound, unknown) for bound, unknown in zip(bounds, (-math.inf, math.inf), strict=True)]
        lower, upper = (np.broadcast_to(bound, size).copy() for bound in pair)
    except (TypeError, ValueError):
        raise ValueError(
            f"{name} must be a pair (lower, upper) of {kinds}, or one number b for (-b, b); None or an infinity where "
            f"a bound is not known. Got {bounds!r}"
        ) from None
    if not np.all(lower < upper):
        hint = ": give all lower and then all upper bounds, not a pair for each feature" if size > 1 else ""
        raise ValueError(f"{name} must have lower < upper throughout{hint}. Got {bounds!r}")
    return lower, upper


def _known(bound: Any, unknown: float) -> np.ndarray:
    """A bound or an array of them, `unknown` where it is None, or too large for its square to be a number."""
    array = np.array(bound, dtype=object)
    numbers = np.where(array == None, unknown, array).astype(float)  # noqa: E711
    return np.where(abs(numbers) >= _LARGEST_BOUND, np.copysign(math.inf, numbers), numbers)


def checked_smoothness(smoothness: Any, n_features: int) -> Any:
    """M_j as an array, the object that learns them, or None."""
    if smoothness is None:
        return None
    if hasattr(smoothness, "second_moments"):
        return smoothness
    try:
        array = np.array(smoothness, dtype=float)
    except (TypeError, ValueError):
        array = np.array(math.nan)
    if array.shape != (n_features,) or not (np.all(array >= 0.0) and np.all(np.isfinite(array))):
        raise ValueError(
            f"smoothness must be an array of {n_features} finite numbers of at least 0, GaussianSmoothness(), "
            f"LaplaceSmoothness() or None"
        )
    return array


def listed_names(estimator: Any, features: np.ndarray) -> str:
    """Names or numbers of some features of a fitted estimator, the first eight of them, for people."""
    names = getattr(estimator, "feature_names_in_", np.arange(estimator.n_features_in_))[features]
    return ", ".join(str(name) for name in names[:8]) + (" …" if len(names) > 8 else "")


@contextmanager
def opened_account(ledger: str | None, dataset: str | None) -> Iterator[Account | None]:
    """The dataset's budget in the ledger, open for the length of a fit; None without a ledger."""
    if ledger is None and dataset is None:
        yield None
        return
    if ledger is None or dataset is None:
        raise ValueError(
            f"ledger names a file, and dataset whose budget in it is spent: give both or neither, got "
            f"ledger={ledger!r} and dataset={dataset!r}"
        )
    with Ledger(ledger) as opened:
        yield Account(opened, dataset)
