"""An independent check of a privacy statement: its ε computed anew by another code base, Google's `dp_accounting`.

Takes the statement's own list of releases (how many, with how much noise, on which batches) and nothing else: neither
the costs that the statement gives nor this library's accounting are used to arrive at the second opinion. Batches of a
fixed size are the exception: `dp_accounting` knows an older bound for them, so their Rényi curve is computed here, from
the same theorem as the library's but in another form, and `dp_accounting` makes an ε of it.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_ndtr

Floats = NDArray[np.float64]

# What two ways of rounding may differ by. Theirs is on a grid, and rounds up.
_TOLERANCE = 0.01
# More than any budget admits: it takes no accountant to say so, and none could in reasonable time.
_BEYOND = 5000.0
# Noise below this is none; and releases that are more than these are beyond what can be composed on a grid.
_NO_NOISE, _MOST_LAPLACE = 1e-100, 10**5
# Rényi orders for releases on batches: any will do, and the more of them, the closer the best is to the best there is.
# Their integrals have so many points to a deviation and end where nothing is left; with less noise than this, sampling
# does not count.
_ORDERS: Floats = np.concatenate(
    [1.0 + np.geomspace(0.01, 1.0, 60)[:-1], np.arange(2.0, 65.0), np.geomspace(64.0, 2000.0, 300)[1:]]
)
_POINTS, _END, _LEAST_NOISE = 50.0, 12.0, 0.1


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
    releases = [_Release.parsed(release) for release in statement["releases"]]
    if len({release.relation for release in releases}) > 1:
        problems.append("the releases are about different neighbouring relations, whose costs do not add up")
    if not all(release.relation.startswith(release.proper_relation) for release in releases):
        problems.append("releases on batches are about another neighbouring relation than their theorem")
    recomputed = _recomputed(releases, delta, stated)
    if recomputed > claimed * (1.0 + _TOLERANCE):
        problems.append(f"the releases cost epsilon = {recomputed:.4g}, more than claimed")
    if recomputed > stated * (1.0 + _TOLERANCE) + 1e-6:
        problems.append(f"the releases cost epsilon = {recomputed:.4g}, more than stated as spent")
    return Verification(claimed, delta, stated, recomputed, tuple(problems))


def _parsed(text: str) -> dict[str, Any]:
    try:
        statement = json.loads(text)
    except (ValueError, RecursionError) as error:
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
    try:
        number = float(value)
    except OverflowError:
        raise StatementError(f"{key} is beyond all numbers") from None
    if not number >= 0.0:
        raise StatementError(f"{key} is negative or undefined")
    return number


class _Release(NamedTuple):
    """One line of a statement.

    Parameters
    ----------
    law
        Of the noise: gaussian, laplace or gumbel.
    relation
        What neighbours are.
    times
        How many releases the line stands for.
    multiplier
        Noise over sensitivity, for all of them.
    part
        Part of the records in a batch of a fixed size, 1 where there is none.
    rate
        Probability of a record to be in a Poisson batch, 1 where there is none.
    selection
        Mean and shape of the number of candidates of a search, or None.
    """

    law: str
    relation: str
    times: int
    multiplier: float
    part: float = 1.0
    rate: float = 1.0
    selection: tuple[float, float] | None = None

    @classmethod
    def parsed(cls, fields: dict[str, Any]) -> _Release:
        """Refuse what no statement says."""
        law, relation, sampling, selection = (fields.get(key) for key in ("law", "relation", "sampling", "selection"))
        if law == "objective perturbation":
            raise StatementError(
                "dp_accounting knows no objective perturbation: there is no second opinion on this statement"
            )
        if law not in ("gaussian", "laplace", "gumbel"):
            raise StatementError("law is neither gaussian, laplace nor gumbel")
        if not isinstance(relation, str):
            raise StatementError("relation is not a text")
        count, smallest = _number(fields, "count"), _number(fields, "smallest_noise_multiplier")
        if not 1.0 <= count < math.inf or count != int(count):
            raise StatementError("count is not a whole number of at least 1")
        if math.isinf(smallest):
            raise StatementError("smallest_noise_multiplier is not finite")
        line = cls(law, relation, int(count), smallest)
        if sampling is not None and selection is not None:
            raise StatementError("selection is one of candidates with batches")
        if sampling is not None:
            return line._on(sampling)
        if selection is not None:
            return line._of(selection)
        return line._replace(multiplier=_effective(fields, smallest, count)) if law == "gaussian" else line

    def _on(self, sampling: Any) -> _Release:
        """On batches."""
        if not isinstance(sampling, dict):
            raise StatementError("sampling is not an object")
        if self.law != "gaussian":
            raise StatementError(f"there is no second opinion on {self.law} releases on batches")
        if sampling.get("kind") == "Poisson":
            rate = _number(sampling, "rate")
            if not 0.0 < rate <= 1.0:
                raise StatementError("rate does not lie between 0 and 1")
            return self._replace(rate=rate)
        if sampling.get("kind") != "FixedSize":
            raise StatementError("sampling is of an unknown kind")
        size, records = _number(sampling, "size"), _number(sampling, "n_records")
        if not 1.0 <= size <= records < math.inf or size != int(size) or records != int(records):
            raise StatementError("a batch does not hold between 1 and all records")
        return self._replace(part=size / records)

    def _of(self, selection: Any) -> _Release:
        """Of a search."""
        if not isinstance(selection, dict):
            raise StatementError("selection is not an object")
        mean, shape = _number(selection, "mean"), _number(selection, "shape")
        if not 1.0 <= mean <= 1e9 or shape not in (0.0, 1.0, math.inf):
            raise StatementError("selection does not give a mean and a shape")
        return self._replace(selection=(mean, shape))

    @property
    def proper_relation(self) -> str:
        """How the relation begins that the theorem about such batches is about; anything where there are none."""
        return "add or remove" if self.rate < 1.0 else "replace" if self.part < 1.0 else ""

    @property
    def gaussian_multiplier(self) -> float:
        """Of the Gaussian that a line counts as: a choice of bounded range 2/z as the one that dominates it."""
        if self.law != "gumbel":
            return self.multiplier
        # μ/2 = Φ⁻¹(1/(1 + e^{−1/z})), which is √(2π)/4z where that is tiny.
        from scipy.stats import logistic, norm

        if self.multiplier > 1e6:
            return self.multiplier * 2.0 / math.sqrt(2.0 * math.pi)
        return 0.5 / float(norm.isf(logistic.sf(1.0 / self.multiplier)))

    @property
    def likely_epsilon(self) -> float:
        """Roughly what it costs, 0 where that is harder to say: enough to tell what no budget admits."""
        if self.selection is not None or self.rate < 1.0:
            return 0.0
        mu = 1.0 / self.multiplier
        if self.part < 1.0 and self.multiplier >= _LEAST_NOISE:
            mu = min(mu, self.part * math.sqrt(math.expm1(mu * mu)))
        mu *= math.sqrt(self.times)
        return 0.5 * mu * mu + 5.0 * mu

    def event(self, dp_accounting: Any) -> Any:
        """What dp_accounting calls it."""
        one = dp_accounting.GaussianDpEvent(self.gaussian_multiplier)
        if self.law == "laplace":
            one = dp_accounting.LaplaceDpEvent(self.multiplier)
        if self.rate < 1.0:
            one = dp_accounting.PoissonSampledDpEvent(self.rate, one)
        if self.selection is not None:
            one = dp_accounting.dp_event.RepeatAndSelectDpEvent(one, *self.selection)
        return dp_accounting.SelfComposedDpEvent(one, self.times)

    @property
    def renyi_curve(self) -> Floats:
        """Rényi divergences of one release at `_ORDERS`."""
        if self.law == "laplace":
            # Mironov (2017), proposition 6.
            first = np.log(_ORDERS / (2.0 * _ORDERS - 1.0)) + (_ORDERS - 1.0) / self.multiplier
            second = np.log((_ORDERS - 1.0) / (2.0 * _ORDERS - 1.0)) - _ORDERS / self.multiplier
            return np.asarray(np.maximum(np.logaddexp(first, second), 0.0) / (_ORDERS - 1.0))
        if self.part < 1.0 and self.multiplier >= _LEAST_NOISE:
            return np.array([_batch_divergence(self.part, 1.0 / self.multiplier, order) for order in _ORDERS.tolist()])
        return _ORDERS / (2.0 * self.gaussian_multiplier**2)


def _batch_divergence(part: float, mu: float, order: float) -> float:
    """Rényi divergence of a Gaussian release on a batch of a fixed size, from its privacy profile.

    dp_accounting knows an older bound for such batches, with up to twice the noise. The profile of Balle, Barthe &
    Gaboardi (2018) is g(u) = part·δ(1 + (u − 1)/part) for u = e^ε ≥ 1, with δ that of the Gaussian; a power of the
    likelihood ratio is a mixture of hinges, α(α − 1)∫(u^{α−2} + u^{−α−1})g(u)du over u > 1, taken here over
    x = log(1 + (u − 1)/part).
    """
    top = order * mu**2 + _END * mu
    x = np.linspace(0.0, top, math.ceil(_POINTS * top / mu) + 1)
    upper = log_ndtr(0.5 * mu - x / mu)
    log_delta = upper + np.log(-np.expm1(np.minimum(x + log_ndtr(-0.5 * mu - x / mu) - upper, -1e-300)))
    log_u = np.where(
        x < 30.0,
        np.log1p(part * np.expm1(np.minimum(x, 30.0))),
        np.logaddexp(math.log1p(-part), math.log(part) + x),
    )
    powers = np.logaddexp((order - 2.0) * log_u, -(order + 1.0) * log_u)
    terms = powers + log_delta + x + 2.0 * math.log(part) + math.log(order * (order - 1.0) * x[1])
    # The trapezoidal rule; the integrand ends in nothing.
    terms[0] -= math.log(2.0)
    return float(np.logaddexp(0.0, np.logaddexp.reduce(terms))) / (order - 1.0)


def _recomputed(releases: list[_Release], delta: float, stated: float) -> float:
    """ε of the listed releases: by privacy loss distributions, or by Rényi curves where something is secret."""
    try:
        import dp_accounting
        from dp_accounting.pld import PLDAccountant
        from dp_accounting.rdp import RdpAccountant, rdp_privacy_accountant
    except ImportError as error:
        raise ImportError("the second opinion is dp-accounting's: pip install 'dpcd[cli]'") from error

    if not releases:
        return 0.0
    if any(release.multiplier < _NO_NOISE for release in releases):
        return math.inf
    likely = sum(release.likely_epsilon for release in releases)
    if likely > _BEYOND:
        return math.inf
    batches = any(release.part < 1.0 for release in releases)
    candidates = any(release.selection is not None for release in releases)
    poisson = any(release.rate < 1.0 for release in releases)
    if batches and (candidates or poisson):
        raise StatementError("there is no second opinion on other secrets beside batches of a fixed size")
    if batches:
        total = sum(release.times * release.renyi_curve for release in releases)
        return float(rdp_privacy_accountant.compute_epsilon(_ORDERS, total, delta)[0])
    accountant: Any
    if candidates or poisson:
        # Candidates have small costs, whose best orders are high; its own orders are coarse up there.
        accountant = RdpAccountant([1.0 + 1.08**k / 100.0 for k in range(180)] if candidates else None)
    else:
        if any(release.law == "laplace" and release.times > _MOST_LAPLACE for release in releases):
            raise StatementError(f"there is no second opinion on more than {_MOST_LAPLACE} Laplace releases")
        # Fine against the ε in question, and no finer: time and memory grow with it.
        interval = 1e-4 * max(min(max(stated, 0.01), 10.0), 0.02 * likely)
        accountant = PLDAccountant(value_discretization_interval=interval)
    for release in releases:
        accountant.compose(release.event(dp_accounting))
    return float(accountant.get_epsilon(delta))


def _effective(fields: dict[str, Any], smallest: float, count: float) -> float:
    """One noise multiplier for all Gaussian releases of a line.

    Where coordinates have noise of their own a line gives the range and Σ 1/z². The sum is believed only as far as the
    range allows: one of them has the least noise, and none more than the most.
    """
    largest = _number(fields, "largest_noise_multiplier")
    if largest <= smallest * (1.0 + 1e-9) or smallest < _NO_NOISE:
        return smallest
    total = max(_number(fields, "mu_squared"), smallest**-2 + (count - 1.0) * (1.0 / largest) ** 2)
    return max(smallest, math.sqrt(count / total))
