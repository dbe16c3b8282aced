"""Empirical lower bounds on ε: how much privacy a fit loses, measured from outside.

An audit runs a mechanism many times on each of two neighbouring data sets, turns every run into a score, and asks how
well a threshold on the score tells the two apart. A claim of (ε, δ) limits that: with false positive rate α and false
negative rate β any test has α + e^ε β ≥ 1 − δ and β + e^ε α ≥ 1 − δ. Confidence limits on the observed rates give a
lower confidence bound on ε. A bound above the claim proves the claim wrong; a bound below it proves nothing, but one
just below it says that the analysis is tight.

*White-box*: the adversary sees everything that a solver releases, which its guarantee covers. *Black-box*: the final
model alone, of any scikit-learn style estimator, from this library or another.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import betaincinv, ndtr, ndtri

from dpcd.losses import ABOUT_LABELS, Loss, Squared
from dpcd.penalties import Penalty, Zero
from dpcd.privacy import Columns, Curator, PrivacyBudget, SecureNoise
from dpcd.privacy.accounting import gaussian_epsilon, gaussian_mu
from dpcd.privacy.choices import Choice
from dpcd.privacy.coordinates import CoordinateUpdates
from dpcd.privacy.lattice import Floats, Integers
from dpcd.privacy.mechanism import NoisySum
from dpcd.privacy.noise import NoiseSource
from dpcd.ranges.scales import Declared, prepare
from dpcd.solvers import Auto, GaussianSmoothness, Problem, Solver

Method = Literal["clopper-pearson", "gaussian"]

# Part of the runs that choose the threshold; the others, which never saw it chosen, judge it.
_CHOOSING = 0.2
# Far beyond any clip, so that a record counts in full whatever the weights.
_FAR = 1e9
# What a repeated noise value counts for: more than any likelihood ratio.
_CERTAIN = 1e6
# Enough for the default solver to spend its budget as it does on real tables.
_RECORDS = 400


@dataclass(frozen=True, eq=False)
class Audit:
    """Outcome of an audit.

    Attributes
    ----------
    lower_bound
        With the stated confidence, no (ε, δ) with an ε below this is true.
    claimed_epsilon, delta
        What was claimed.
    confidence, method
        Of the bound.
    scores, neighbour_scores
        One number for each run on the two data sets, larger where it looks more like the second.
    """

    lower_bound: float
    claimed_epsilon: float
    delta: float
    confidence: float
    method: Method
    scores: Floats = field(repr=False)
    neighbour_scores: Floats = field(repr=False)

    @property
    def refuted(self) -> bool:
        """Whether the claim is proved wrong, at this confidence."""
        return self.lower_bound > self.claimed_epsilon

    def __str__(self) -> str:
        verdict = "REFUTED: the claim is wrong" if self.refuted else "not refuted"
        return (
            f"claimed  epsilon = {self.claimed_epsilon:g} at delta = {self.delta:.3g}\n"
            f"measured epsilon ≥ {self.lower_bound:.4g} with {self.confidence:.0%} confidence "
            f"({len(self.scores)} runs on each data set, {self.method})\n"
            f"{verdict}"
        )

    def plot(self, path: str | Path) -> None:
        """Save the trade-off between the two kinds of error, measured and as claimed."""
        import matplotlib

        matplotlib.use("Agg")
        import matplotlib.pyplot as plt

        false_positives, false_negatives = error_rates(self.scores, self.neighbour_scores)
        claimed = np.linspace(0.0, 1.0, 500)
        e = math.exp(min(self.claimed_epsilon, 700.0))
        limit = np.maximum(0.0, np.maximum(1 - self.delta - e * claimed, (1 - self.delta - claimed) / e))
        figure, axes = plt.subplots(figsize=(4.2, 4.0), layout="constrained")
        axes.fill_between(claimed, 0.0, limit, color="#D55E00", alpha=0.2, linewidth=0)
        axes.plot(claimed, limit, color="#D55E00", linestyle="--", label=f"limit at ε = {self.claimed_epsilon:g}")
        axes.plot(false_positives, false_negatives, color="#0072B2", label="measured")
        axes.plot([0, 1], [1, 0], color="0.6", linewidth=0.8, linestyle=":", label="perfect privacy")
        axes.set(xlabel="false positives", ylabel="false negatives", xlim=(0, 1), ylim=(0, 1), aspect="equal")
        axes.set_title(f"measured ε ≥ {self.lower_bound:.3g} ({self.confidence:.0%} confidence)", fontsize=9)
        axes.legend(frameon=False, fontsize=8)
        figure.savefig(path, dpi=150)
        plt.close(figure)


def error_rates(scores: Floats, neighbour_scores: Floats) -> tuple[Floats, Floats]:
    """False positive and false negative rates for every threshold."""
    thresholds = np.sort(np.concatenate([scores, neighbour_scores]))[::-1]
    below = np.searchsorted(np.sort(scores), thresholds, side="left") / len(scores)
    missed = np.searchsorted(np.sort(neighbour_scores), thresholds, side="left") / len(neighbour_scores)
    return np.concatenate([[0.0], 1.0 - below]), np.concatenate([[1.0], missed])


def _largest_rate(count: int, total: int, level: float) -> float:
    """Upper Clopper–Pearson limit of a rate: it is larger with probability at most `level`."""
    return 1.0 if count >= total else float(betaincinv(count + 1, total - count, 1.0 - level))


def lower_bound(
    scores: ArrayLike, neighbour_scores: ArrayLike, delta: float, confidence: float, method: Method = "clopper-pearson"
) -> float:
    """Lower confidence bound on ε at this δ.

    Parameters
    ----------
    scores, neighbour_scores
        Scores of independent runs, in the order in which they were made.
    delta, confidence
        δ of the claim, and the probability with which the bound holds.
    method
        ``"clopper-pearson"`` assumes nothing. ``"gaussian"`` takes the trade-off to be a Gaussian's, as exact
        accounting says it is for releases with Gaussian noise: it bounds μ and converts, which finds more from fewer
        runs.

    Notes
    -----
    The threshold is chosen on the first fifth of the runs. The two error rates are then bounded, on the others, at half
    of 1 − confidence each.
    """
    first, second = np.asarray(scores, dtype=float), np.asarray(neighbour_scores, dtype=float)
    cut, neighbour_cut = int(_CHOOSING * len(first)), int(_CHOOSING * len(second))
    if min(cut, neighbour_cut) < 10:
        raise ValueError("an audit needs at least 50 runs on each data set")
    threshold = _threshold(first[:cut], second[:neighbour_cut], delta, method)
    first, second = first[cut:], second[neighbour_cut:]
    level = (1.0 - confidence) / 2.0
    positives = _largest_rate(int(np.sum(first >= threshold)), len(first), level)
    negatives = _largest_rate(int(np.sum(second < threshold)), len(second), level)
    return _epsilon(positives, negatives, delta, method)


def _epsilon(positives: float, negatives: float, delta: float, method: Method) -> float:
    """ε that error rates of at most these imply."""
    if method == "gaussian":
        mu = float(ndtri(1.0 - positives) - ndtri(negatives))
        return gaussian_epsilon(mu, delta) if 0.0 < mu < math.inf else 0.0
    gains = [(1.0 - delta - a) / b for a, b in ((positives, negatives), (negatives, positives)) if b > 0.0]
    return max(0.0, *(math.log(gain) for gain in gains if gain > 0.0), 0.0)


def _threshold(first: Floats, second: Floats, delta: float, method: Method) -> float:
    """The threshold that would give the largest bound on these runs."""
    if method == "gaussian":
        return float(np.median(first) + np.median(second)) / 2.0
    candidates = np.quantile(np.concatenate([first, second]), np.linspace(0.01, 0.99, 99))
    level = 0.01

    def bound(threshold: float) -> float:
        positives = _largest_rate(int(np.sum(first >= threshold)), len(first), level)
        negatives = _largest_rate(int(np.sum(second < threshold)), len(second), level)
        return _epsilon(positives, negatives, delta, method)

    return float(max(candidates, key=bound))


def audit(
    trial: Callable[[bool], float],
    claimed_epsilon: float,
    delta: float,
    n_trials: int = 10_000,
    confidence: float = 0.99,
    method: Method = "clopper-pearson",
    on_trial: Callable[[], Any] = lambda: None,
) -> Audit:
    """Audit anything: `trial(neighbour)` runs it once and returns a score.

    `on_trial` is called after each of the 2·`n_trials` runs, for a progress bar.
    """
    scores = np.empty((2, n_trials))
    for k in range(n_trials):
        for neighbour in (False, True):
            scores[int(neighbour), k] = trial(neighbour)
            on_trial()
    bound = lower_bound(scores[0], scores[1], delta, confidence, method)
    return Audit(bound, claimed_epsilon, delta, confidence, method, scores[0], scores[1])


class NoNoise:
    """A source of zeros that remembers the scales it was asked for. What it lets through is not private."""

    description = "none: not private"
    private = False

    def __init__(self) -> None:
        self.scales: list[float] = []

    def gaussian(self, scale: float, size: int) -> NDArray[np.int64]:
        """Zeros."""
        self.scales.append(scale)
        return np.zeros(size, dtype=np.int64)

    def laplace(self, scale: float, size: int) -> NDArray[np.int64]:
        """Zeros."""
        return self.gaussian(scale, size)

    def top(self, scores: NDArray[Any], scale: float, k: int) -> NDArray[np.int64]:
        """The largest scores."""
        self.scales.append(scale)
        return np.argsort(-scores, kind="stable")[:k]

    def generator(self) -> np.random.Generator:
        """Always the same."""
        return np.random.default_rng(0)


class _Adversary(Curator):
    """A curator that releases, and reads what it releases as somebody who knows both data sets would.

    Everything that the core adds noise to is a sum of integers, and everything else that it releases is a choice among
    scores, so the likelihood of an answer under either data set is known. The score is the log of their ratio. Noise
    values that come up twice under one of the two hypotheses settle the matter: nothing but noise that was used twice
    does so, and then that hypothesis is true.
    """

    def __init__(self, pair: tuple[Columns, Columns], which: bool, budget: PrivacyBudget, noise: NoiseSource) -> None:
        # Clipped and centered along with the solver's own.
        self._pair = tuple(data.copy() for data in pair)
        super().__init__(self._pair[int(which)], budget, noise)
        self._log_ratio = 0.0
        self._noise_needed: tuple[list[Integers], list[Integers]] = ([], [])

    @property
    def score(self) -> float:
        """Larger where the answers look more like those of the second data set."""
        repeats = [0, 0]
        for which, values in enumerate(self._noise_needed):
            every = np.concatenate(values) if values else np.zeros(0)
            repeats[which] = len(every) - len(np.unique(every))
        return self._log_ratio + _CERTAIN * (repeats[1] - repeats[0])

    def clip_features(self, lower: Floats, upper: Floats, center: Floats) -> None:
        for data in self._pair:
            data.clip_features(lower, upper, center)

    def clip_target(self, lower: float, upper: float, center: float) -> None:
        for data in self._pair:
            data.clip_target(lower, upper, center)

    def release(self, mechanism: Any) -> Any:
        if isinstance(mechanism, NoisySum) and mechanism.law == "gaussian":
            return self._release_sum(mechanism)
        readable = isinstance(mechanism, (CoordinateUpdates, Choice))
        if not readable:
            raise ValueError(
                f"the likelihood of {mechanism.description!r} is not known, so an audit that sees every release would "
                f"be blind to it: audit the final model instead, by dpcd.audit.black_box"
            )
        answer = super().release(mechanism)
        if isinstance(mechanism, Choice):
            first, second = (mechanism.log_probability(answer, data) for data in self._pair)
            self._log_ratio += second - first
        else:
            for update, released in mechanism.steps_of(answer):
                self._read(update, released)
        return answer

    def _release_sum(self, mechanism: Any) -> Any:
        """Read the noisy sums before they are decoded."""
        seen: list[Any] = []

        def decode(noisy: Any, lattice: Any, n_records: int) -> Any:
            seen.append(noisy)
            return type(mechanism).decode(mechanism, noisy, lattice, n_records)

        object.__setattr__(mechanism, "decode", decode)
        answer = super().release(mechanism)
        self._read(mechanism, seen[0])
        return answer

    def _read(self, mechanism: NoisySum | CoordinateUpdates, released: Any) -> None:
        """Add the log likelihood ratio of noisy sums: each data set needs other noise to explain them."""
        units = mechanism.lattice(self.n_records)
        unit = mechanism.noise_multipliers[0] * mechanism.sensitivity(units.bound)
        scales = np.concatenate([np.full(count, unit * part) for count, part in mechanism.noise_groups])
        needed = []
        for data, kept in zip(self._pair, self._noise_needed, strict=True):
            with np.errstate(all="ignore"):
                needed.append(released - data.sums(mechanism, units))
            kept.append(needed[-1])
        first, second = (noise / scales for noise in needed)
        # (a² − b²)/2, with the digits that a small difference has.
        self._log_ratio += float(np.sum((first - second) * (first + second))) / 2.0


def worst_case_pair(n_records: int, n_features: int, labels: bool, others: float = 0.0) -> tuple[Columns, Columns]:
    """Two tables that differ in one record, which pulls every coordinate one way or the other as hard as it can.

    The other records are zero and do not get in its way, or ordinary ones of size `others`. With labels the records are
    ±1 times far-off features.
    """
    ordinary = np.random.default_rng(0).normal(size=(n_records, n_features + 1)) * others
    features, target = ordinary[:, :-1], ordinary[:, 0] + ordinary[:, -1]
    if labels:
        target = np.where(target >= 0.0, 1.0, -1.0)
    features[0] = _FAR if labels else 1.0
    target[0] = 1.0
    pair = []
    for sign in (1.0, -1.0):
        table, values = features.copy(), target.copy()
        if labels:
            table[0] *= sign
        else:
            values[0] = sign * _FAR
        pair.append(Columns.copy_of(table, values))
    return pair[0], pair[1]


def white_box(
    solver: Solver | None = None,
    epsilon: float = 1.0,
    delta: float = 1e-5,
    loss: Loss | None = None,
    penalty: Penalty | None = None,
    pair: tuple[Columns, Columns] | None = None,
    noise: NoiseSource | None = None,
    **settings: Any,
) -> Audit:
    """Audit a solver whose adversary sees every release.

    Parameters
    ----------
    solver
        None means what estimators do by default: ranges and scales are learnt, and `Auto` spends the rest. A solver
        that is given starts from known scales.
    epsilon, delta
        The claim: the budget that the solver is given.
    loss, penalty
        None means the squared loss and no penalty.
    pair
        Neighbouring data sets. None means `worst_case_pair`, with labels for losses of bounded slope: of 400 ordinary
        records for the default solver, which asks little of few records, and of 4 for others.
    noise
        None means the secure source that private fits use.
    **settings
        `n_trials`, `confidence`, `method`, `on_trial` of `audit`.

    Raises
    ------
    ValueError
        If the solver releases something whose likelihood is not known: on secret batches, and minima.
    """
    loss = Squared() if loss is None else loss
    penalty = Zero() if penalty is None else penalty
    if pair is None:
        labels = math.isfinite(loss.lipschitz)
        pair = worst_case_pair(_RECORDS, 2, labels, others=1.0) if solver is None else worst_case_pair(4, 2, labels)
    source = SecureNoise() if noise is None else noise
    choices = np.random.default_rng()
    n_records, n_features = pair[0].features.shape
    audited = Auto() if solver is None else solver
    budget = PrivacyBudget(epsilon, delta, audited.renyi_order(n_records, n_features, epsilon, delta, 1))

    def trial(neighbour: bool) -> float:
        adversary = _Adversary(pair, neighbour, budget, source)
        problem = Problem(loss, penalty, np.full(n_features, loss.curvature), n_features, slope=1.0)
        if solver is None:
            nothing, numeric = Declared(None, None, GaussianSmoothness()), not isinstance(loss, ABOUT_LABELS)
            scales = prepare(adversary, loss, nothing, n_features, False, audited.needs_slope, numeric)
            learnt = scales.smoothness, n_features, scales.slope
            problem = Problem(loss, penalty, *learnt, uncertainty=scales.uncertainty)
        audited.solve(adversary, problem, 1, choices)
        return adversary.score

    return audit(trial, epsilon, delta, **settings)


def black_box(
    factory: Callable[[], Any],
    data: tuple[ArrayLike, ArrayLike],
    neighbour: tuple[ArrayLike, ArrayLike],
    epsilon: float,
    delta: float,
    **settings: Any,
) -> Audit:
    """Audit any estimator with `fit`, `coef_` and `intercept_`, from this library or another, by its final model.

    Parameters
    ----------
    factory
        Makes an unfitted estimator; called once for each run, so that nothing is shared between runs.
    data, neighbour
        (X, y) and (X', y') that differ in one record.
    epsilon, delta
        What the estimator claims.
    **settings
        `n_trials`, `confidence`, `method`, `on_trial` of `audit`.

    Notes
    -----
    A model becomes a score by projection on the direction from the mean model of the one data set to that of the other,
    found in some runs beforehand that are not counted.
    """
    tables = data, neighbour

    def model(which: bool) -> Floats:
        fitted = factory().fit(*tables[int(which)])
        return np.concatenate([np.ravel(fitted.coef_), np.ravel(fitted.intercept_)])

    rehearsals = [np.array([model(which) for _ in range(50)]) for which in (False, True)]
    spread = np.concatenate([r - r.mean(axis=0) for r in rehearsals]).std(axis=0)
    difference = rehearsals[1].mean(axis=0) - rehearsals[0].mean(axis=0)
    direction = np.divide(difference, spread**2, out=np.zeros_like(difference), where=spread > 0.0)
    return audit(lambda which: float(model(which) @ direction), epsilon, delta, **settings)


def expected_lower_bound(epsilon: float, delta: float, n_trials: int, confidence: float = 0.99) -> float:
    """What an audit of a Gaussian mechanism that is exactly (ε, δ)-private should find, by the gaussian method."""
    counted = n_trials - int(_CHOOSING * n_trials)
    rate = float(ndtr(-gaussian_mu(epsilon, delta) / 2.0))
    limit = _largest_rate(round(rate * counted), counted, (1.0 - confidence) / 2.0)
    return _epsilon(limit, limit, delta, "gaussian")
