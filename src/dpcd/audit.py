"""Empirical lower bounds on ε: how much privacy a fit loses, measured from outside.

An audit runs a mechanism many times on each of two neighbouring data sets, turns every run into a score, and asks how
well a threshold on the score tells the two apart. A claim of (ε, δ) limits that: with false positive rate α and false
negative rate β any test has α + e^ε β ≥ 1 − δ and β + e^ε α ≥ 1 − δ. Confidence limits on the observed rates give a
lower confidence bound on ε. A bound above the claim proves the claim wrong; a bound below it proves nothing, but one
just below it says that the analysis is tight.

*White-box*: the adversary sees everything that DP-CD releases, which its guarantee covers. *Black-box*: the final model
alone, of any scikit-learn style estimator, from this library or another.
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

from dpcd.losses import Loss, Squared
from dpcd.penalties import Penalty, Zero
from dpcd.privacy import Columns, Curator, PrivacyBudget, SecureNoise
from dpcd.privacy.accounting import gaussian_epsilon, gaussian_mu
from dpcd.privacy.coordinates import CoordinateUpdates
from dpcd.privacy.noise import NoiseSource
from dpcd.solvers import DPCD, Problem, Solver

Floats = NDArray[np.float64]
Method = Literal["clopper-pearson", "gaussian"]

# Part of the runs that choose the threshold; the others, which never saw it chosen, judge it.
_CHOOSING = 0.2
# Far beyond any clip, so that a record counts in full whatever the weights.
_FAR = 1e9


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

    For DP-CD that is the likelihood ratio of all noisy sums. Noise values that come up twice under one of the two
    hypotheses settle the matter: fresh noise never repeats itself.
    """

    def __init__(self, pair: tuple[Columns, Columns], which: bool, budget: PrivacyBudget, noise: NoiseSource) -> None:
        super().__init__(pair[int(which)], budget, noise)
        self._pair = pair
        self.score = 0.0

    def release(self, mechanism: Any) -> Any:
        answer = super().release(mechanism)
        if isinstance(mechanism, CoordinateUpdates):
            self.score += self._log_likelihood_ratio(mechanism, *answer)
        else:
            # Steps that cannot be told apart from outside: where the weights end up.
            self.score -= float(np.sum(np.asarray(answer)[-1]))
        return answer

    def _log_likelihood_ratio(self, mechanism: CoordinateUpdates, released: Floats, values: Floats) -> float:
        silence = NoNoise()
        sums = np.empty((2, mechanism.count))
        for k, (update, _) in enumerate(mechanism.steps_of((released, values))):
            for which in (0, 1):
                with np.errstate(all="ignore"):
                    sums[which, k] = update.run(self._pair[which], silence)[0][0]
        # The noise that each data set would need to explain what was released.
        explained = released - sums
        scale = np.array(silence.scales[::2])
        repeats = [mechanism.count - len(np.unique(noise)) for noise in explained]
        certainty = 1e6 * (repeats[1] - repeats[0])
        return float(np.sum((explained[0] ** 2 - explained[1] ** 2) / (2.0 * scale**2))) + certainty


def worst_case_pair(n_records: int, n_features: int, labels: bool) -> tuple[Columns, Columns]:
    """Two tables that differ in one record, which pulls every coordinate one way or the other as hard as it can.

    The other records are zero and do not get in its way. With labels the records are ±1 times far-off features.
    """
    features = np.zeros((n_records, n_features))
    features[0] = _FAR if labels else 1.0
    target = np.ones(n_records) if labels else np.zeros(n_records)
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
        None means `DPCD(n_passes=2, clip=1.0)`.
    epsilon, delta
        The claim: the budget that the solver is given.
    loss, penalty
        None means the squared loss and no penalty.
    pair
        Neighbouring data sets. None means `worst_case_pair(4, 2, …)`, with labels for losses of bounded slope.
    noise
        None means the secure source that private fits use.
    **settings
        `n_trials`, `confidence`, `method`, `on_trial` of `audit`.
    """
    solver = DPCD(n_passes=2, clip=1.0) if solver is None else solver
    loss = Squared() if loss is None else loss
    penalty = Zero() if penalty is None else penalty
    pair = worst_case_pair(4, 2, math.isfinite(loss.lipschitz)) if pair is None else pair
    source = SecureNoise() if noise is None else noise
    choices = np.random.default_rng()
    n_records, n_features = pair[0].features.shape
    budget = PrivacyBudget(epsilon, delta, solver.renyi_order(n_records, n_features, epsilon, delta, 1))
    problem = Problem(loss, penalty, np.full(n_features, loss.curvature), n_features, slope=1.0)

    def trial(neighbour: bool) -> float:
        adversary = _Adversary(pair, neighbour, budget, source)
        solver.solve(adversary, problem, 1, choices)
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
