"""An independent check of a privacy statement: its ε computed anew by another code base, Google's `dp_accounting`.

Takes the statement's own list of releases (how many, with how much noise, on which batches) and nothing else: neither
the costs that the statement gives nor this library's accounting are used to arrive at the second opinion.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

# What two ways of rounding may differ by. Theirs is on a grid, and rounds up.
_TOLERANCE = 0.01
# More than any budget admits: it takes no accountant to say so, and none could in reasonable time.
_BEYOND = 5000.0
# Batches: the grid is so fine against the deviation of one release's privacy loss, has at most so many points, and ends
# where what is left is nothing at so many deviations. With less noise than this, sampling does not count.
_FINE, _MOST_POINTS, _END, _LEAST_NOISE = 0.3, 300_000, 12.0, 0.1


class StatementError(ValueError):
    """What was given is not a privacy statement."""


@dataclass(frozen=True)
class Verification:
    """Outcome of a check.

    Attributes
    ----------
    claimed_epsilon, delta
        What the statement guarantees.
    stated_epsilon
        What it says was spent.
    recomputed_epsilon
        What the listed releases cost, computed anew.
    problems
        What is wrong, in words; empty if nothing is.
    """

    claimed_epsilon: float
    delta: float
    stated_epsilon: float
    recomputed_epsilon: float
    problems: tuple[str, ...]

    @property
    def verified(self) -> bool:
        """Whether nothing is wrong."""
        return not self.problems

    def __str__(self) -> str:
        lines = [
            f"claimed     epsilon = {self.claimed_epsilon:g} at delta = {self.delta:.3g}",
            f"stated      epsilon = {self.stated_epsilon:.6g} spent",
            f"recomputed  epsilon = {self.recomputed_epsilon:.6g}",
        ]
        lines += [f"PROBLEM: {problem}" for problem in self.problems] or ["verified"]
        return "\n".join(lines)


def verify(text: str) -> Verification:
    """Check a statement as `PrivacyStatement.to_json` writes it.

    Raises
    ------
    StatementError
        If the text is not a statement.
    """
    statement = _parsed(text)
    claimed, delta, stated = (_number(statement, key) for key in ("epsilon", "delta", "spent_epsilon"))
    problems = []
    if not 0.0 < delta < 1.0:
        raise StatementError("delta does not lie between 0 and 1")
    if statement["private"] is not True:
        problems.append("the noise can be reproduced: nothing is private")
    if math.isinf(claimed):
        problems.append("epsilon is infinite: nothing is private")
    releases = statement["releases"]
    if len({release.get("relation") for release in releases}) > 1:
        problems.append("the releases are about different neighbouring relations, whose costs do not add up")
    recomputed = _recomputed(releases, delta, stated)
    if recomputed > claimed * (1.0 + _TOLERANCE):
        problems.append(f"the releases cost epsilon = {recomputed:.4g}, more than claimed")
    if recomputed > stated * (1.0 + _TOLERANCE) + 1e-6:
        problems.append(f"the releases cost epsilon = {recomputed:.4g}, more than stated as spent")
    return Verification(claimed, delta, stated, recomputed, tuple(problems))


def _parsed(text: str) -> dict[str, Any]:
    try:
        statement = json.loads(text)
    except ValueError as error:
        raise StatementError(f"not JSON: {error}") from None
    if not isinstance(statement, dict):
        raise StatementError("not a JSON object")
    missing = {"epsilon", "delta", "spent_epsilon", "private", "releases"} - set(statement)
    if missing:
        raise StatementError(f"not a privacy statement: it has no {', '.join(sorted(missing))}")
    if not isinstance(statement["releases"], list) or not all(isinstance(r, dict) for r in statement["releases"]):
        raise StatementError("releases is not a list of objects")
    return statement


def _number(fields: dict[str, Any], key: str) -> float:
    """A non-negative number, which may be the string "inf"."""
    value = fields.get(key)
    if isinstance(value, bool) or not (isinstance(value, (int, float)) or value == "inf"):
        raise StatementError(f"{key} is not a number")
    number = float(value)
    if not number >= 0.0:
        raise StatementError(f"{key} is negative or undefined")
    return number


def _recomputed(releases: list[dict[str, Any]], delta: float, stated: float) -> float:
    """ε of the listed releases: by privacy loss distributions, or by Rényi curves where candidates are selected."""
    try:
        import dp_accounting
        from dp_accounting.pld import PLDAccountant
        from dp_accounting.rdp import RdpAccountant
    except ImportError as error:
        raise ImportError("the second opinion is dp-accounting's: pip install 'dpcd[cli]'") from error

    if not releases:
        return 0.0
    events = [_event(release, dp_accounting) for release in releases]
    if any(event is None for event in events):
        return math.inf
    likely = sum(_likely_epsilon(release) for release in releases)
    if likely > _BEYOND:
        return math.inf
    if any(_batch(release) is not None for release in releases):
        return _epsilon_of_batches(releases, events, delta, likely)
    accountant: Any
    if any(release.get("selection") for release in releases):
        # Candidates have small costs, whose best orders are high; its own orders are coarse up there.
        accountant = RdpAccountant([1.0 + 1.08**k / 100.0 for k in range(180)])
    else:
        # Fine against the ε in question, and no finer: time and memory grow with it.
        interval = 1e-4 * max(min(max(stated, 0.01), 10.0), 0.02 * likely)
        accountant = PLDAccountant(value_discretization_interval=interval)
    for event in events:
        accountant.compose(event)
    return float(accountant.get_epsilon(delta))


def _likely_epsilon(release: dict[str, Any]) -> float:
    """Roughly what a release costs, 0 where that is harder to say: enough to tell what no budget admits."""
    batch, sampling = _batch(release), release.get("sampling")
    if release.get("selection") or (isinstance(sampling, dict) and sampling.get("kind") == "Poisson"):
        return 0.0
    multiplier, count = _number(release, "smallest_noise_multiplier"), _number(release, "count")
    # Many releases on batches are close to Gaussian ones.
    mu = math.sqrt(count) * (1.0 / max(multiplier, 1e-100) if batch is None else batch.deviation)
    return 0.5 * mu * mu + 5.0 * mu


class _Batch(NamedTuple):
    """A Gaussian release on a batch of a fixed size: the part of the records that it holds, and its noise."""

    part: float
    multiplier: float

    @property
    def deviation(self) -> float:
        """Standard deviation of the privacy loss, roughly."""
        return self.part * math.sqrt(math.expm1(self.multiplier**-2))

    @property
    def largest_loss(self) -> float:
        """Beyond which there is nothing to speak of."""
        return math.log1p(self.part * math.expm1(_END / self.multiplier + 0.5 / self.multiplier**2))

    def delta(self, epsilon: NDArray[np.floating[Any]]) -> NDArray[np.float64]:
        """The privacy profile of Balle, Barthe & Gaboardi (2018) for ε ≥ 0, which `dp_accounting` does not know.

        The Rényi bound that it knows for such batches asks for twice the noise.
        """
        from dp_accounting.pld.privacy_loss_mechanism import GaussianPrivacyLoss

        whole = GaussianPrivacyLoss(self.multiplier)
        return self.part * np.asarray(whole.get_delta_for_epsilon(np.log1p(np.expm1(epsilon) / self.part)))

    def distribution(self, interval: float) -> Any:
        """Privacy loss distribution with that profile, and with what exchanging the neighbours makes of it below 0."""
        from dp_accounting.pld import pld_pmf, privacy_loss_distribution

        count = math.ceil(self.largest_loss / interval)
        epsilon = interval * np.arange(count + 1)
        above = self.delta(epsilon)
        below = np.exp(-epsilon) * above - np.expm1(-epsilon)
        deltas = np.concatenate([below[:0:-1], above])
        mass = pld_pmf.create_pmf_pessimistic_connect_dots_fixed_gap(interval, -count, count, deltas)
        return privacy_loss_distribution.PrivacyLossDistribution(mass)


def _batch(release: dict[str, Any]) -> _Batch | None:
    """The batch that a release is about; None where it is about all records, or as good as that."""
    sampling, multiplier = release.get("sampling"), _number(release, "smallest_noise_multiplier")
    if not isinstance(sampling, dict) or sampling.get("kind") != "FixedSize" or release.get("law") != "gaussian":
        return None
    size, records = _number(sampling, "size"), _number(sampling, "n_records")
    if not 1.0 <= size <= records < math.inf:
        raise StatementError("a batch does not hold between 1 and all records")
    return _Batch(size / records, multiplier) if size < records and multiplier >= _LEAST_NOISE else None


def _epsilon_of_batches(releases: list[dict[str, Any]], events: list[Any], delta: float, likely: float) -> float:
    """ε where some releases are on batches of a fixed size: all distributions on one grid, composed."""
    from dp_accounting import LaplaceDpEvent
    from dp_accounting.pld import privacy_loss_distribution as distributions

    if any(release.get("selection") for release in releases):
        raise StatementError("there is no second opinion on candidates beside releases on batches")
    batches = [_batch(release) for release in releases]
    there = [batch for batch in batches if batch is not None]
    fine = min(_FINE * batch.deviation for batch in there)
    interval = max(fine, max(likely, *(batch.largest_loss for batch in there)) / _MOST_POINTS)
    total = distributions.identity(value_discretization_interval=interval)
    for batch, event in zip(batches, events, strict=True):
        one = event.event
        if batch is not None:
            distribution = batch.distribution(interval)
        else:
            # Any other sampling does not count: that costs more, not less.
            one = getattr(one, "event", one)
            make = distributions.from_gaussian_mechanism
            if isinstance(one, LaplaceDpEvent):
                make = distributions.from_laplace_mechanism
            distribution = make(one.noise_multiplier, value_discretization_interval=interval)
        total = total.compose(distribution.self_compose(event.count))
    return float(total.get_epsilon_for_delta(delta))


def _event(release: dict[str, Any], dp_accounting: Any) -> Any:
    """What dp_accounting calls a release; None if it has no noise. Different noise in one line: the least counts."""
    multiplier, count = _number(release, "smallest_noise_multiplier"), _number(release, "count")
    if count != int(count) or count < 1:
        raise StatementError("count is not a whole number of at least 1")
    if multiplier == 0.0:
        return None
    law, sampling, selection = release.get("law"), release.get("sampling"), release.get("selection")
    if law == "laplace":
        one = dp_accounting.LaplaceDpEvent(multiplier)
    elif law == "gaussian":
        plain = sampling is None and selection is None
        one = dp_accounting.GaussianDpEvent(_effective(release, multiplier, count) if plain else multiplier)
    elif law == "gumbel":
        # A choice of bounded range 2/z counts as the Gaussian that dominates it, with μ/2 = Φ⁻¹(1/(1 + e^{−1/z})).
        from scipy.stats import logistic, norm

        one = dp_accounting.GaussianDpEvent(0.5 / float(norm.isf(logistic.sf(1.0 / multiplier))))
    elif law == "objective perturbation":
        raise StatementError(
            "dp_accounting knows no objective perturbation: there is no second opinion on this statement"
        )
    else:
        raise StatementError("law is neither gaussian, laplace nor gumbel")
    if sampling is not None:
        if not isinstance(sampling, dict):
            raise StatementError("sampling is not an object")
        if sampling.get("kind") == "Poisson":
            one = dp_accounting.PoissonSampledDpEvent(_number(sampling, "rate"), one)
        elif sampling.get("kind") != "FixedSize":  # what that saves is `_Batch`'s to say
            raise StatementError("sampling is of an unknown kind")
    if selection is not None:
        if not isinstance(selection, dict):
            raise StatementError("selection is not an object")
        mean, shape = _number(selection, "mean"), _number(selection, "shape")
        if not 1.0 <= mean <= 1e9 or shape not in (0.0, 1.0, math.inf) or sampling is not None:
            raise StatementError("selection does not give a mean and a shape, or is one of candidates with batches")
        one = dp_accounting.dp_event.RepeatAndSelectDpEvent(one, mean, shape)
    return dp_accounting.SelfComposedDpEvent(one, int(count))


def _effective(release: dict[str, Any], smallest: float, count: float) -> float:
    """One noise multiplier for all releases of a line.

    Where coordinates have noise of their own a line gives the range and Σ 1/z². The sum is believed only as far as the
    range allows: it cannot be below count/z_max².
    """
    largest = _number(release, "largest_noise_multiplier")
    if largest <= smallest * (1.0 + 1e-9):
        return smallest
    total = max(_number(release, "mu_squared"), count / largest**2)
    return max(smallest, math.sqrt(count / total))
