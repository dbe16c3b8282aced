"""An independent check of a privacy statement: its ε computed anew by another code base, Google's `dp_accounting`.

Takes the statement's own list of releases (how many, with how much noise, on which batches) and nothing else: neither
the costs that the statement gives nor this library's accounting are used to arrive at the second opinion.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import Any

# What two ways of rounding may differ by. Theirs is on a grid, and rounds up.
_TOLERANCE = 0.01
# More than any budget admits: it takes no accountant to say so, and none could in reasonable time.
_BEYOND = 5000.0


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
    """ε of the listed releases: by privacy loss distributions, or by Rényi curves where batches are sampled."""
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
    accountant: Any
    if any(release.get("sampling") or release.get("selection") for release in releases):
        fixed = any((release.get("sampling") or {}).get("kind") == "FixedSize" for release in releases)
        relation = dp_accounting.NeighboringRelation
        # For what is not sampled the relation makes no difference to it.
        chosen = relation.REPLACE_ONE if fixed else relation.ADD_OR_REMOVE_ONE
        orders = None
        if any(release.get("selection") for release in releases):
            # Candidates have small costs, whose best orders are high; its own orders are coarse up there.
            orders = [1.0 + 1.08**k / 100.0 for k in range(180)]
        accountant = RdpAccountant(orders, chosen)
    else:
        # Fine against the ε in question, and no finer: time and memory grow with it.
        interval = 1e-4 * max(min(max(stated, 0.01), 10.0), 0.02 * likely)
        accountant = PLDAccountant(value_discretization_interval=interval)
    for event in events:
        accountant.compose(event)
    return float(accountant.get_epsilon(delta))


def _likely_epsilon(release: dict[str, Any]) -> float:
    """Roughly what a release costs, 0 where that is harder to say: enough to tell what no budget admits."""
    if release.get("sampling") or release.get("selection"):
        return 0.0
    multiplier, count = _number(release, "smallest_noise_multiplier"), _number(release, "count")
    mu = math.sqrt(count) / max(multiplier, 1e-100)
    return 0.5 * mu * mu + 5.0 * mu


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
        records = int(_number(sampling, "n_records"))
        if sampling.get("kind") == "FixedSize":
            one = dp_accounting.SampledWithoutReplacementDpEvent(records, int(_number(sampling, "size")), one)
        elif sampling.get("kind") == "Poisson":
            one = dp_accounting.PoissonSampledDpEvent(_number(sampling, "rate"), one)
        else:
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
