"""`dpcd compare`: every applicable method on the same problems, under one relation between neighbours.

A *unit* is one method on one problem at one ε, for all its settings and runs. A tuned method chooses its setting on
runs of their own, and all methods are judged on the same further seeds. Nothing is declared, or smoothness constants
are, as in the paper; everything else a method wants to know it learns out of its budget. Nothing here is private.
"""

from __future__ import annotations

import hashlib
import json
import math
import time
import warnings
from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np

from dpcd.estimators import DPGeneralizedLinearModel, DPLogisticRegression
from dpcd.experiments import settings
from dpcd.experiments.families import family
from dpcd.experiments.methods import METHODS, Method, Setting, applicable
from dpcd.experiments.runs import run_units
from dpcd.experiments.settings import PROBLEMS, Floats, Instance, measured
from dpcd.losses import Logistic, Loss, Squared
from dpcd.nonprivate import newton_optimum
from dpcd.penalties import L1, L2
from dpcd.privacy import BudgetExceeded

EPSILONS = (0.05, 0.1, 0.3, 1.0, 3.0, 10.0)
# Tuning runs have other seeds than those that methods are judged on.
_TUNING_RUN = 1000


class Source(Protocol):
    """A problem before its data are loaded: small, and the same in every process."""

    @property
    def key(self) -> str:
        """Name in files and on the command line."""

    @property
    def title(self) -> str:
        """Name in tables and figures."""

    @property
    def size(self) -> int:
        """Entries of the table, roughly."""

    def load(self) -> Instance:
        """The data, with the constants and the optimum."""

    def __hash__(self) -> int: ...


class FromPaper(NamedTuple):
    """One of the paper's five problems."""

    key: str

    @property
    def title(self) -> str:
        """As in the paper."""
        return PROBLEMS[self.key].title

    @property
    def size(self) -> int:
        """Entries of the table, roughly."""
        return 1_000_000 if self.key == "sparse-lasso" else 300_000

    def load(self) -> Instance:
        """As `dpcd reproduce` does."""
        return settings.instance(self.key)


class Simulated(NamedTuple):
    """A synthetic family at one size."""

    family: str
    n_records: int
    n_features: int
    loss: Loss

    @property
    def key(self) -> str:
        """Family, size and loss."""
        return f"{self.family}-{self.n_records}x{self.n_features}-{type(self.loss).__name__.lower()}"

    @property
    def title(self) -> str:
        """The same, for people."""
        size = f"{self.n_records / 1000:g}k × {self.n_features}"
        return f"{self.family.replace('-', ' ')}, {size}, {type(self.loss).__name__.lower()}"

    @property
    def size(self) -> int:
        """Entries of the table."""
        return self.n_records * self.n_features

    def load(self) -> Instance:
        """Draw the table and find its optimum."""
        _, X, y, loss, penalty = family(self.family, self.n_records, self.n_features, self.loss)
        weights, _ = newton_optimum(X, y, loss, penalty)
        return measured(X, y, loss, penalty, weights)


class FromFile(NamedTuple):
    """A user's table, CSV or Parquet, fitted with an intercept. Text becomes one column for each of its values.

    Parameters
    ----------
    path, target
        The file, and the name of its target column.
    loss
        ``"squared"``, ``"logistic"``, or None: logistic if the target has two values.
    penalty, alpha
        ``"l1"`` or ``"l2"``, and its strength; None means 1/n.
    standardize
        Centre and scale the features, and centre the target of a regression, with no charge to anybody.
    """

    path: Path
    target: str
    loss: str | None = None
    penalty: str = "l2"
    alpha: float | None = None
    standardize: bool = True

    @property
    def key(self) -> str:
        """File name, and a digest of what is in it and how it is used, so that a changed file is a new problem."""
        content = hashlib.sha256(self.path.read_bytes() + repr(self[1:]).encode())
        return f"{self.path.stem}-{content.hexdigest()[:8]}"

    @property
    def title(self) -> str:
        """File and target."""
        return f"{self.path.name}, {self.target}"

    @property
    def size(self) -> int:
        """A guess by the size of the file."""
        return self.path.stat().st_size // 8

    def load(self) -> Instance:
        """Read the file and find the optimum."""
        X, y, loss = self.read()
        alpha = 1.0 / len(y) if self.alpha is None else self.alpha
        penalty = L1(alpha) if self.penalty == "l1" else L2(alpha)
        weights, intercept = newton_optimum(X, y, loss, penalty, fit_intercept=True)
        X = np.column_stack([X, np.ones(len(X))])
        return measured(X, y, loss, penalty, np.append(weights, intercept), intercept=True)

    def read(self) -> tuple[Floats, Floats, Loss]:
        """Features, target and loss.

        Raises
        ------
        ValueError
            If the file is not a complete table with such a target.
        """
        try:
            import pandas as pd

            frame = pd.read_parquet(self.path) if self.path.suffix == ".parquet" else pd.read_csv(self.path)
        except ImportError as error:
            raise ValueError(f"to read {self.path} install {error.name or 'pyarrow'}: pip install pandas") from error
        if self.target not in frame.columns:
            names = ", ".join(map(str, frame.columns))
            raise ValueError(f"{self.path} has no column {self.target!r} to predict: its columns are {names}")
        if frame.isna().any().any():
            missing = ", ".join(map(str, frame.columns[frame.isna().any()]))
            raise ValueError(f"{self.path} has missing values in {missing}: fill them in or drop those rows first")
        target = frame.pop(self.target)
        binary = target.nunique() == 2
        if self.loss == "logistic" and not binary:
            raise ValueError(f"the logistic loss needs two classes, and {self.target!r} has {target.nunique()} values")
        X = pd.get_dummies(frame, dtype=float).to_numpy(dtype=float)
        if self.standardize:
            deviations = X.std(axis=0)
            X = (X - X.mean(axis=0)) / np.where(deviations > 0.0, deviations, 1.0)
        if self.loss == "logistic" or (self.loss is None and binary):
            return X, np.where(target == sorted(target.unique())[1], 1.0, -1.0), Logistic()
        try:
            y = target.to_numpy(dtype=float)
        except ValueError:
            raise ValueError(
                f"the squared loss needs a numeric target, and {self.target!r} is not; with two classes use the "
                f"logistic loss"
            ) from None
        return X, y - y.mean() if self.standardize else y, Squared()


#: The problems of the methods table.
STUDY: tuple[Source, ...] = (
    *(FromPaper(key) for key in PROBLEMS),
    Simulated("correlated", 5_000, 3, Squared()),
    Simulated("scales", 20_000, 8, Squared()),
    Simulated("heavy-tails", 20_000, 8, Logistic()),
    Simulated("outliers", 20_000, 8, Squared()),
    Simulated("duplicates", 20_000, 10, Logistic()),
    Simulated("mixed", 20_000, 14, Squared()),
    Simulated("lognormal", 5_000, 8, Logistic()),
    Simulated("no-signal", 20_000, 8, Squared()),
    Simulated("rare-class", 100_000, 6, Logistic()),
    Simulated("strongly-correlated", 20_000, 30, Logistic()),
    Simulated("one-hot", 20_000, 80, Logistic()),
    Simulated("one-hot-standardized", 20_000, 80, Logistic()),
    Simulated("one-hot-standardized", 20_000, 60, Squared()),
    Simulated("correlated", 30_000, 100, Squared()),
    Simulated("sparse", 5_000, 1_000, Squared()),
)
#: What `dpcd compare` shows when it is asked for nothing in particular.
DEFAULT = Simulated("mixed", 20_000, 14, Squared())


class Effort(NamedTuple):
    """How much is run: runs that judge, and rounds of tuning as (runs, the part of the settings that goes on)."""

    runs: int
    tuning: tuple[tuple[int, float], ...]


# Each round adds its runs to those before it. Settings are compared on equal luck, so a few runs tell most apart.
FULL = Effort(10, ((1, 1.0), (2, 0.25), (3, 0.08)))
QUICK = Effort(3, ((1, 1.0), (1, 0.1)))


class Unit(NamedTuple):
    """One method on one problem at one ε, with its smoothness constants declared or nothing."""

    source: Source
    method: str
    epsilon: float
    declared: bool

    @property
    def name(self) -> str:
        """File name."""
        method = self.method.replace(" ", "-").replace(",", "")
        return f"{self.source.key}_{method}_{self.epsilon:g}{'' if self.declared else '_undeclared'}.json"


class Row(NamedTuple):
    """A line of the table: a method's mean and worst error over the runs.

    `declared` says whether smoothness constants were, or nothing. `mean` and `worst` are of what is lost between the
    optimum and the zero model, (F − F*)/(F(0) − F*); `relative_mean` and `relative_worst` of (F − F*)/F*. `optimum` is
    F* and `zero` F(0); `seconds` is the time of a fit, and `setting` the one chosen out of those `tried`.
    """

    problem: str
    declared: bool
    method: str
    epsilon: float
    mean: float
    worst: float
    relative_mean: float
    relative_worst: float
    optimum: float
    zero: float
    seconds: float
    tried: int
    setting: str


# Problems come one after the other, so that few need to be in memory.
@lru_cache(maxsize=2)
def _loaded(source: Source) -> Instance:
    return source.load()


def fit(problem: Instance, setting: Setting, random_state: int, declared: bool) -> float:
    """Objective of one seeded fit, through the estimators; infinite where it diverged or the budget forbids it.

    With nothing declared a model clips features to ranges that it learnt, and is judged as it predicts.
    """
    common: dict[str, Any] = {
        "epsilon": setting.epsilon,
        "delta": problem.delta,
        "smoothness": problem.smoothness[: problem.features.shape[1]] if declared else None,
        "solver": setting.solver,
        "fit_intercept": problem.intercept,
        "random_state": random_state,
    }
    loss, penalty = problem.loss, problem.penalty
    model: Any = DPGeneralizedLinearModel(loss=loss, penalty=penalty, **common)
    if isinstance(loss, Logistic) and isinstance(penalty, (L1, L2)):
        kind = "l1" if isinstance(penalty, L1) else "l2"
        model = DPLogisticRegression(alpha=penalty.alpha, penalty=kind, **common)
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        try:
            model.fit(problem.features, problem.y)
        except (BudgetExceeded, ValueError):
            return math.inf
        weights = np.ravel(model.coef_)
        ranges = None if declared else model.feature_ranges_
        return problem.objective(np.append(weights, model.intercept_) if problem.intercept else weights, ranges)


def measure(unit: Unit, effort: Effort, seed: int) -> bytes:
    """Tune a method if it is one to be tuned, judge it, and describe the result as JSON."""
    problem = _loaded(unit.source)
    (method,) = (method for method in METHODS if method.name == unit.method)
    candidates = applicable(method, problem, unit.epsilon)
    result: dict[str, Any] = {
        "optimum": problem.best,
        "zero": problem.objective(np.zeros(problem.X.shape[1])),
        "tried": len(candidates),
    }
    if candidates:

        def judged(setting: Setting, run: int) -> float:
            key = [seed, *unit.source.key.encode(), round(1e6 * unit.epsilon), run]
            return fit(problem, setting, int(np.random.SeedSequence(key).generate_state(1)[0]), unit.declared)

        chosen = _tuned(candidates, judged, effort)
        start = time.perf_counter()
        result["objectives"] = [judged(chosen, run) for run in range(effort.runs)]
        result["seconds"] = (time.perf_counter() - start) / effort.runs
        result["setting"] = repr(chosen.solver)
    return (json.dumps(result, indent=1) + "\n").encode()


def _tuned(candidates: list[Setting], judged: Callable[[Setting, int], float], effort: Effort) -> Setting:
    """The setting with the lowest mean, the field thinned out after each round of runs."""
    if len(candidates) == 1:
        return candidates[0]
    scores: dict[int, list[float]] = {index: [] for index in range(len(candidates))}
    done = 0
    for runs, part in effort.tuning:
        keep = max(2, math.ceil(part * len(candidates)))
        scores = dict(sorted(scores.items(), key=lambda item: sum(item[1]))[:keep])
        for index, values in scores.items():
            values += [judged(candidates[index], _TUNING_RUN + done + run) for run in range(runs)]
        done += runs
    return candidates[min(scores, key=lambda index: sum(scores[index]))]


def units(
    sources: Sequence[Source], methods: Sequence[Method], epsilons: Sequence[float], declared: Sequence[bool]
) -> list[Unit]:
    """All units, problem by problem, the largest first so that no core waits at the end.

    Tuned methods are not run with nothing declared: their settings are made from what is known for free.
    """
    return [
        Unit(source, method.name, epsilon, known)
        for source in sorted(sources, key=lambda source: -source.size)
        for method in sorted(methods, key=lambda method: not method.tuned)
        for epsilon in epsilons
        for known in declared
        if known or not method.tuned
    ]


def work(unit: Unit) -> float:
    """Time that a unit takes beside others, roughly: for the progress bar."""
    tuned = any(method.tuned for method in METHODS if method.name == unit.method)
    return (unit.source.size + 50_000) * (15.0 if tuned else 1.0)


def compare(
    sources: Sequence[Source],
    methods: Sequence[Method],
    epsilons: Sequence[float],
    declared: Sequence[bool],
    effort: Effort,
    folder: Path,
    seed: int,
    jobs: int,
    on_unit: Callable[[Unit, float], Any] = lambda unit, seconds: None,
) -> list[Row]:
    """Run what has no file in `folder` yet, and return the table. Methods that do not apply have no row."""
    every = units(sources, methods, epsilons, declared)
    run_units(every, partial(measure, effort=effort, seed=seed), folder, jobs, on_unit)
    order = {method.name: rank for rank, method in enumerate(methods)}
    titles = {source.key: rank for rank, source in enumerate(sources)}
    every.sort(key=lambda unit: (titles[unit.source.key], unit.declared, order[unit.method], unit.epsilon))
    rows = (_row(unit, json.loads((folder / unit.name).read_text())) for unit in every)
    return [row for row in rows if row is not None]


def _row(unit: Unit, result: dict[str, Any]) -> Row | None:
    if not result["tried"]:
        return None
    best = result["optimum"]
    excess = np.array(result["objectives"], dtype=float) - best
    lost = excess / (result["zero"] - best)
    return Row(
        unit.source.key,
        unit.declared,
        unit.method,
        unit.epsilon,
        float(lost.mean()),
        float(lost.max()),
        float(excess.mean() / best),
        float(excess.max() / best),
        best,
        result["zero"],
        result["seconds"],
        result["tried"],
        result["setting"],
    )
