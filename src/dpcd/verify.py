"""An independent check of a privacy statement: what it says is held against itself, and its ε computed anew.

Takes the statement's own list of releases (how many, with how much noise, on which batches) and nothing else: neither
the costs that the statement gives nor this library's accounting are used to arrive at the second opinion. Releases
that count as Gaussian have a closed form, written in another way than the library's, and what is stated must equal it.
Searches and Poisson batches have Rényi curves, which are Google's `dp_accounting`'s. It knows an older bound for
batches of a fixed size, so their curve is computed here, from the same theorem as the library's but in another form.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple, NoReturn

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import bisect
from scipy.special import erfc, erfcx, log_ndtr
from scipy.stats import logistic, norm

from dpcd.privacy.noise import SecureNoise
from dpcd.privacy.statement import ADD_OR_REMOVE, REPLACE_ONE

Floats = NDArray[np.float64]

# Rounding. The library adds a part of 1e-9 to what it charges or to log δ, which is little more in ε unless ε is tiny.
_ROUNDING, _LEAST = 1e-7, 1e-9
# What costs of searches and secret batches may differ by. Integrals are cut off in different places, and what a search
# costs is the least of a bound over Rényi orders, which another code base looks for on a grid. They may be less by any
# part: between whole orders the library charges what is a little dearer.
_TOLERANCE = 2e-4
# More than any budget admits: it takes no accountant to say so, and none could in reasonable time.
_BEYOND = 5000.0
# Noise below this is none.
_NO_NOISE = 1e-100
# Σ η that each draw of discrete noise is charged at least: 171/σ², with σ the least scale that is used.
_DISCRETENESS = 171.0 / 2.0**60
# Where a search's bound is looked for: the best order is high for small costs, and next to 1 for large ones.
_GRID = tuple(1.0 + 1e-5 * 1.03**k for k in range(940))
# Integrals over batches have so many points to a deviation and end where nothing is left; with less noise than this,
# sampling does not count, and neither does it where the order is so high that integrals would be longer than this.
_POINTS, _END, _LEAST_NOISE, _LONGEST = 200.0, 12.0, 0.1, 1e4
_LARGEST_ORDER = 1e7

_ALWAYS_THERE = {"epsilon", "delta", "spent_epsilon", "relation", "noise", "private", "releases", "assumptions"}

#: What no check of a statement can find out.
UNSEEN = (
    "releases that the statement leaves out, of this fit or of others on the same data",
    "whether the program did what the statement says, and drew its noise as it says",
    "whether bounds and whatever else is taken as public were found without looking at the data",
    "whether a person is one record, or several",
)


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
    warnings
        What holds, but is worth knowing.
    """

    claimed_epsilon: float
    delta: float
    stated_epsilon: float
    recomputed_epsilon: float
    problems: tuple[str, ...]
    warnings: tuple[str, ...] = ()

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
        lines += [f"warning: {warning}" for warning in self.warnings]
        lines += ["what a statement cannot show:", *(f"  {unseen}" for unseen in UNSEEN)]
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
    if not 0.0 < delta < 1.0:
        raise StatementError("delta does not lie between 0 and 1")
    lines = [(fields, _releases(fields)) for fields in statement["releases"]]
    releases = [release for _, line in lines for release in line]
    n_records = _n_records(statement["assumptions"])
    recomputed, due, tolerance = _recomputed(statement, releases, delta)
    problems = [
        *_about_noise(statement),
        *_about_relations(statement["relation"], releases),
        *_about_costs(statement, lines),
        *_about_records(lines, n_records),
    ]
    if math.isinf(claimed):
        problems.append("epsilon is infinite: nothing is private")
    if recomputed > claimed * (1.0 + tolerance) + _LEAST:
        problems.append(f"the releases cost epsilon = {recomputed:.7g}, more than claimed")
    if stated > claimed * (1.0 + _ROUNDING) + _LEAST:
        problems.append("more is stated as spent than is claimed")
    if due > stated * (1.0 + tolerance) + _LEAST:
        problems.append(f"the releases cost epsilon = {due:.7g}, more than stated as spent")
    if tolerance == _ROUNDING and due < stated * (1.0 - tolerance) - _LEAST:
        problems.append(f"the releases cost epsilon = {due:.7g}, less than stated as spent")
    warnings = tuple(_warnings(lines, delta, n_records))
    return Verification(claimed, delta, stated, recomputed, tuple(problems), warnings)


def _about_noise(statement: dict[str, Any]) -> Iterator[str]:
    if statement["private"] is not True:
        yield "the noise can be reproduced: nothing is private"
    elif statement["noise"] != SecureNoise.description:
        yield f"private is true, and the noise is not known to be secret: it is not {SecureNoise.description!r}"


def _about_relations(stated: Any, releases: list[_Release]) -> Iterator[str]:
    relations = {release.relation for release in releases}
    if not relations <= {REPLACE_ONE, ADD_OR_REMOVE}:
        yield f"the neighbouring relation of a release is neither {REPLACE_ONE!r} nor {ADD_OR_REMOVE!r}"
    if len(relations) > 1:
        yield "the releases are about different neighbouring relations, whose costs do not add up"
    if any(relation != stated for relation in relations):
        yield "the statement is about another neighbouring relation than its releases"
    if any(release.relation != release.proper_relation for release in releases if release.proper_relation):
        yield "releases on batches are about another neighbouring relation than their theorem"


def _about_costs(statement: dict[str, Any], lines: list[_Line]) -> Iterator[str]:
    """Costs that contradict the noise, where they are stated."""
    if not lines:
        yield "no releases are listed: nothing was released, or nothing of it is stated"
    for number, (fields, releases) in enumerate(lines, 1):
        multipliers = [release.multiplier for release in releases]
        if fields.get("noise_multipliers"):
            if sum(release.times for release in releases) != fields["count"]:
                yield f"line {number}: the listed noise multipliers are not as many as count says"
            if min(multipliers) != _number(fields, "smallest_noise_multiplier"):
                yield f"line {number}: the smallest noise multiplier is not the smallest that is listed"
            if max(multipliers) != _number(fields, "largest_noise_multiplier"):
                yield f"line {number}: the largest noise multiplier is not the largest that is listed"
        if "mu_squared" in fields and not _alike(_number(fields, "mu_squared"), _mu_squared(releases)):
            yield f"line {number}: mu_squared contradicts the noise multipliers"
        draws = sum(float(release.times) for release in releases if release.is_gaussian and release.multiplier > 0.0)
        if "discretization" in fields and _number(fields, "discretization") < draws * _DISCRETENESS * (1.0 - 1e-9):
            yield f"line {number}: discretization is less than so many discrete draws are charged"
    total = math.sqrt(_mu_squared([release for _, releases in lines for release in releases]))
    if "mu" in statement and not _alike(_number(statement, "mu"), total):
        yield "mu contradicts the noise multipliers"


def _about_records(lines: list[_Line], n_records: int | None) -> Iterator[str]:
    for number, (_, releases) in enumerate(lines, 1):
        if any(release.n_records not in (None, n_records) for release in releases):
            yield f"line {number}: the batches are of another number of records than the assumptions"


def _warnings(lines: list[_Line], delta: float, n_records: int | None) -> Iterator[str]:
    if n_records is None:
        yield "the assumptions do not begin with the number of records: nothing could be held against it"
    elif delta >= 1.0 / n_records:
        yield f"delta = {delta:.3g} is not below 1/n = {1.0 / n_records:.3g}: publishing a record would be allowed"
    if any(release.relation == ADD_OR_REMOVE for _, releases in lines for release in releases):
        yield "neighbours add or remove a record, yet their number is public: a convention to compare with papers by"
    for number, (fields, releases) in enumerate(lines, 1):
        if releases[0].is_gaussian and not fields.get("noise_multipliers"):
            largest = _number(fields, "largest_noise_multiplier")
            if largest > _number(fields, "smallest_noise_multiplier") * (1.0 + 1e-9):
                yield (
                    f"line {number}: different noise multipliers are not listed, as earlier versions did not: its own "
                    f"mu_squared was believed, as far as the smallest and the largest allow"
                )


def _alike(stated: float, found: float) -> bool:
    return stated == found or abs(stated - found) <= _ROUNDING * found


def _n_records(assumptions: Any) -> int | None:
    """Number of records that the assumptions begin with; None if they do not."""
    first = assumptions[0] if isinstance(assumptions, list) and assumptions else None
    found = re.match(r"([1-9][0-9]{0,17}) records\b", first) if isinstance(first, str) else None
    return int(found[1]) if found else None


def _without_doubles(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A JSON object, none of whose keys occurs twice: one reader would see the first, another the last."""
    fields = dict(pairs)
    if len(fields) < len(pairs):
        raise StatementError("a key occurs twice in the same object")
    return fields


def _finite(text: str) -> float:
    number = float(text)
    if math.isinf(number):
        raise StatementError("a number is beyond all numbers")
    return number


def _no_number(constant: str) -> NoReturn:
    raise StatementError(f"{constant} is not JSON")


def _parsed(text: str) -> dict[str, Any]:
    try:
        statement = json.loads(text, object_pairs_hook=_without_doubles, parse_float=_finite, parse_constant=_no_number)
    except StatementError:
        raise
    except (ValueError, RecursionError) as error:
        raise StatementError(f"not JSON: {error}") from None
    if not isinstance(statement, dict):
        raise StatementError("not a JSON object")
    missing = _ALWAYS_THERE - set(statement)
    if missing:
        raise StatementError(f"not a privacy statement: it has no {', '.join(sorted(missing))}")
    if not isinstance(statement["releases"], list) or not all(isinstance(r, dict) for r in statement["releases"]):
        raise StatementError("releases is not a list of objects")
    return statement


def _number(fields: dict[str, Any], key: str) -> float:
    """A non-negative number, which may be the string "inf"."""
    return _as_number(fields.get(key), key)


def _as_number(value: Any, key: str) -> float:
    if isinstance(value, bool) or not (isinstance(value, (int, float)) or value == "inf"):
        raise StatementError(f"{key} is not a number")
    try:
        number = float(value)
    except OverflowError:
        raise StatementError(f"{key} is beyond all numbers") from None
    if not number >= 0.0:
        raise StatementError(f"{key} is negative or undefined")
    return number


def _as_count(value: Any, key: str) -> int:
    count = _as_number(value, key)
    if not 1.0 <= count < math.inf or count != int(count):
        raise StatementError(f"{key} is not a whole number of at least 1")
    return int(count)


class _Release(NamedTuple):
    """Releases of a line of a statement that have the same noise.

    Parameters
    ----------
    law
        Of the noise: gaussian, laplace or gumbel.
    relation
        What neighbours are.
    times
        How many there are.
    multiplier
        Noise over sensitivity.
    part
        Part of the records in a batch of a fixed size, 1 where there is none.
    rate
        Probability of a record to be in a Poisson batch, 1 where there is none.
    selection
        Mean and shape of the number of candidates of a search, or None.
    n_records
        How many records the batches are drawn from, None where there are none.
    """

    law: str
    relation: str
    times: int
    multiplier: float
    part: float = 1.0
    rate: float = 1.0
    selection: tuple[float, float] | None = None
    n_records: int | None = None

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
        count, smallest = _as_count(fields.get("count"), "count"), _number(fields, "smallest_noise_multiplier")
        if math.isinf(smallest):
            raise StatementError("smallest_noise_multiplier is not finite")
        line = cls(law, relation, count, smallest)
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
            return self._replace(rate=rate, n_records=_as_count(sampling.get("n_records"), "n_records"))
        if sampling.get("kind") != "FixedSize":
            raise StatementError("sampling is of an unknown kind")
        size, records = _number(sampling, "size"), _number(sampling, "n_records")
        if not 1.0 <= size <= records < math.inf or size != int(size) or records != int(records):
            raise StatementError("a batch does not hold between 1 and all records")
        return self._replace(part=size / records, n_records=int(records))

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
        """The relation that the theorem about such batches is about; empty where there are none."""
        return ADD_OR_REMOVE if self.rate < 1.0 else REPLACE_ONE if self.part < 1.0 else ""

    @property
    def gaussian_multiplier(self) -> float:
        """Of the Gaussian that a release counts as.

        One that is 1/z-private, and a choice of bounded range 2/z, count as the one that dominates them.
        """
        if self.law == "gaussian":
            return self.multiplier
        # μ/2 = Φ⁻¹(1/(1 + e^{−1/z})), which is √(2π)/4z where that is tiny.
        if self.multiplier > 1e6:
            return self.multiplier * 2.0 / math.sqrt(2.0 * math.pi)
        return 0.5 / float(norm.isf(logistic.sf(1.0 / self.multiplier)))

    @property
    def is_secret(self) -> bool:
        """Whether something besides the noise is: who is in a batch, or how many candidates there were."""
        return self.selection is not None or self.rate < 1.0 or self.part < 1.0

    @property
    def is_gaussian(self) -> bool:
        """Whether it is a sum with Gaussian noise, on a batch or not."""
        return self.law == "gaussian" and self.selection is None

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

    def divergence(self, order: float) -> float:
        """Rényi divergence of one release."""
        if self.law == "laplace":
            # Mironov (2017), proposition 6.
            first = math.log(order / (2.0 * order - 1.0)) + (order - 1.0) / self.multiplier
            second = math.log((order - 1.0) / (2.0 * order - 1.0)) - order / self.multiplier
            return max(float(np.logaddexp(first, second)), 0.0) / (order - 1.0)
        if self.part < 1.0 and self.multiplier >= max(_LEAST_NOISE, order / _LONGEST):
            return _batch_divergence(self.part, 1.0 / self.multiplier, order)
        return order / 2.0 / self.gaussian_multiplier / self.gaussian_multiplier


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


_Line = tuple[dict[str, Any], list[_Release]]


def _releases(fields: dict[str, Any]) -> list[_Release]:
    """What a line stands for: one entry for each noise multiplier that it lists."""
    line = _Release.parsed(fields)
    listed = fields.get("noise_multipliers") or []
    if not isinstance(listed, list) or not all(isinstance(entry, list) and len(entry) == 2 for entry in listed):
        raise StatementError("noise_multipliers is not a list of pairs")
    if line.law != "gaussian" or not listed:
        return [line]
    multipliers = [_as_number(multiplier, "noise_multipliers") for multiplier, _ in listed]
    if math.inf in multipliers:
        raise StatementError("noise_multipliers are not finite")
    counts = [_as_count(count, "the count of a noise multiplier") for _, count in listed]
    return [line._replace(multiplier=z, times=count) for z, count in zip(multipliers, counts, strict=True)]


def _mu_squared(releases: list[_Release]) -> float:
    """Σ 1/z² of all that is charged as Gaussian."""
    charged = [release for release in releases if not release.is_secret]
    if any(release.multiplier < _NO_NOISE or release.likely_epsilon > _BEYOND for release in releases):
        return math.inf
    return math.fsum(release.times / release.gaussian_multiplier / release.gaussian_multiplier for release in charged)


def _gaussian_epsilon(mu: float, log_delta: float) -> float:
    """Smallest ε at which a Gaussian release is (ε, δ)-private (Balle & Wang 2018).

    δ = Φ(−x) − e^εΦ(−x − μ) with x = ε/μ − μ/2 is half of e^{−a²}(erfcx(a) − erfcx(a + μ/√2)) with a = x/√2.
    """

    def excess(epsilon: float) -> float:
        a = (epsilon / mu - mu / 2.0) / math.sqrt(2.0)
        beyond = float(erfcx(a + mu / math.sqrt(2.0)))
        if a < 0.0:
            twice, log_factor = float(erfc(a)) - math.exp(-a * a) * beyond, 0.0
        else:
            twice, log_factor = float(erfcx(a)) - beyond, -a * a
        return (math.log(twice / 2.0) + log_factor if twice > 0.0 else -math.inf) - log_delta

    if mu == 0.0 or excess(0.0) <= 0.0:
        return 0.0
    # There x = √(2 log 1/δ), and Φ(−x) is below δ.
    top = mu * (math.sqrt(-2.0 * log_delta) + mu / 2.0)
    return float(bisect(excess, 0.0, top, xtol=1e-14, rtol=1e-14, maxiter=300))


def _recomputed(statement: dict[str, Any], releases: list[_Release], delta: float) -> tuple[float, float, float]:
    """ε of the listed releases, what should be stated as spent, and to what part that is known.

    The second is larger where costs that have a closed form were added up at a Rényi order all the same.
    """
    order = None if statement.get("order") is None else _number(statement, "order")
    if order is not None and not 1.0 < order <= _LARGEST_ORDER:
        raise StatementError(f"order does not lie between 1 and {_LARGEST_ORDER:g}")
    secrets = any(release.is_secret for release in releases)
    tolerance = _TOLERANCE if secrets else _ROUNDING
    likely = [math.inf if release.multiplier < _NO_NOISE else release.likely_epsilon for release in releases]
    stated = [_number(fields, "discretization") for fields in statement["releases"] if "discretization" in fields]
    discretization = sum(stated)
    log_delta = math.log(delta) - discretization
    if sum(likely) > _BEYOND or math.exp(log_delta) == 0.0:
        return math.inf, math.inf, tolerance
    if secrets:
        if order is None:
            raise StatementError("there is no order at which costs of secret batches and searches were added up")
        epsilon = due = _epsilon_with_secrets(releases, log_delta, order)
    else:
        mu_squared = _mu_squared(releases)
        epsilon = due = _gaussian_epsilon(math.sqrt(mu_squared), log_delta)
        if order is not None and releases:
            due = _converted(mu_squared * order / 2.0, log_delta, order)
    return epsilon + 2.0 * discretization, due + 2.0 * discretization, tolerance


def _converted(divergence: float, log_delta: float, order: float) -> float:
    """ε of a Rényi divergence (Canonne, Kamath & Steinke 2020)."""
    return max(0.0, divergence + math.log1p(-1.0 / order) - (log_delta + math.log(order)) / (order - 1.0))


def _epsilon_with_secrets(releases: list[_Release], log_delta: float, order: float) -> float:
    """By Rényi divergences at the order that was fixed in advance."""
    candidates = any(release.selection is not None for release in releases)
    poisson = any(release.rate < 1.0 for release in releases)
    if any(release.part < 1.0 for release in releases):
        if candidates or poisson:
            raise StatementError("there is no second opinion on other secrets beside batches of a fixed size")
        return _converted(sum(release.times * release.divergence(order) for release in releases), log_delta, order)
    try:
        import dp_accounting
        from dp_accounting.rdp import RdpAccountant
    except ImportError as error:
        raise ImportError("the second opinion is dp-accounting's: pip install 'dpcd[cli]'") from error
    accountant = RdpAccountant([order, *(_GRID if candidates else ())])
    for release in releases:
        accountant.compose(release.event(dp_accounting))
    return float(accountant.get_epsilon(math.exp(log_delta)))


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
