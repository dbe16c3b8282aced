"""The privacy statement of a fitted model: what was spent, on what, and under which assumptions."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass
from functools import cache
from importlib.metadata import version
from typing import Any

from dpcd.privacy.accounting import PrivacyCost

#: The neighbouring relation of the guarantees of this library.
REPLACE_ONE = "replace one record"
#: The relation of Poisson sampling, which the DP-CD paper used for its rivals; for reproduction only.
ADD_OR_REMOVE = "add or remove one record (their number taken as public)"


@cache
def library_version() -> str:
    """Version of the library; reading it takes a millisecond, so once will do."""
    return version("dpcd")


@dataclass(frozen=True)
class Release:
    """One line of a statement: a mechanism that was run, and what it was charged.

    `law` is that of the noise, `sampling` says how batches were drawn, where they were, and `selection` how many
    candidates this is the best of, where it is; `noise_multipliers` lists each different noise multiplier of Gaussian
    releases with how many have it: what somebody needs who wants to compute the cost anew.
    """

    description: str
    count: int
    smallest_noise_multiplier: float
    largest_noise_multiplier: float
    cost: PrivacyCost
    relation: str = REPLACE_ONE
    law: str = "gaussian"
    sampling: dict[str, Any] | None = None
    selection: dict[str, Any] | None = None
    noise_multipliers: tuple[tuple[float, int], ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Plain values."""
        fields = asdict(self)
        cost = fields.pop("cost")
        alike = self.law == "gaussian" and self.smallest_noise_multiplier == self.largest_noise_multiplier
        if alike and not self.noise_multipliers:
            fields["noise_multipliers"] = ((self.smallest_noise_multiplier, self.count),)
        return fields | cost  # type: ignore[no-any-return]


@dataclass(frozen=True)
class PrivacyStatement:
    """What a model reveals about its training data, for people (`print`) and machines (`to_dict`, `to_json`).

    Attributes
    ----------
    epsilon, delta
        The guarantee: everything released is (ε, δ)-differentially private.
    spent_epsilon
        ε of what was really released. It depends on released values and may be less than what was asked for; the
        guarantee is `epsilon`.
    order
        Rényi order at which costs were added up, where not all of them are Gaussian.
    releases
        What was released, how often, with how much noise and at what cost, in order.
    assumptions
        What was taken to be public.
    noise, private
        Where the noise came from, and whether nobody can reproduce it. Seeded noise voids the guarantee.
    version
        Version of the library.
    notes
        What else there is to know, from public and released numbers alone.
    """

    epsilon: float
    delta: float
    releases: tuple[Release, ...]
    assumptions: tuple[str, ...]
    noise: str
    private: bool
    version: str
    order: float | None = None
    notes: tuple[str, ...] = ()

    @property
    def cost(self) -> PrivacyCost:
        """The releases' costs, composed."""
        return sum((release.cost for release in self.releases), PrivacyCost())

    @property
    def spent_epsilon(self) -> float:
        """ε of what was released, at this δ."""
        return self.cost.epsilon(self.delta, self.order)

    @property
    def relation(self) -> str:
        """Which data sets are neighbours; the curator sees to it that all releases agree."""
        return self.releases[0].relation if self.releases else REPLACE_ONE

    @property
    def mu(self) -> float:
        """μ of the Gaussian releases, composed."""
        return self.cost.mu

    def to_dict(self) -> dict[str, Any]:
        """All of it as plain Python values; infinities are the string ``"inf"``, as JSON has none."""
        derived = {"mu": self.mu, "spent_epsilon": self.spent_epsilon, "relation": self.relation}
        fields = asdict(self) | derived | {"releases": [release.to_dict() for release in self.releases]}
        plain: dict[str, Any] = _plain(fields)
        return plain

    def to_json(self) -> str:
        """All of it as JSON."""
        return json.dumps(self.to_dict(), indent=2, allow_nan=False)

    def __str__(self) -> str:
        total = self.cost.mu_squared
        if math.isinf(self.epsilon):
            head = "NOT PRIVATE: epsilon is infinite"
        elif not self.private:
            head = f"NOT PRIVATE: the noise is seeded (would be epsilon = {self.epsilon:g}, delta = {self.delta:.3g})"
        else:
            head = f"differentially private with epsilon = {self.epsilon:g}, delta = {self.delta:.3g}"
        if math.isfinite(self.epsilon) and self.spent_epsilon < 0.999 * self.epsilon:
            head += f"; spent epsilon = {self.spent_epsilon:.4g}"
        lines = [
            head,
            f"  neighbours   {self.relation}",
            f"  noise        {self.noise}",
            "  released                                  times   noise multiplier     share of μ²",
        ]
        alike: dict[str, list[Release]] = {}
        for release in self.releases:
            alike.setdefault(release.description, []).append(release)
        for description, releases in alike.items():
            low = min(release.smallest_noise_multiplier for release in releases)
            high = max(release.largest_noise_multiplier for release in releases)
            multiplier = f"{low:.4g}" if low == high else f"{low:.4g} – {high:.4g}"
            if releases[0].cost.renyi:
                share = "Rényi curve"
            elif math.isfinite(total):
                share = f"{sum(release.cost.mu_squared for release in releases) / total:.1%}"
            else:
                share = "–"
            count = sum(release.count for release in releases)
            lines.append(f"    {description:<36} {count:>8}   {multiplier:<18} {share:>13}")
        if not self.releases:
            lines.append("    nothing")
        lines.append("  taken as public")
        lines += [f"    {assumption}" for assumption in self.assumptions]
        lines += [f"  note: {note}" for note in self.notes]
        lines.append(f"  μ = {self.mu:.6g}, dpcd {self.version}")
        return "\n".join(lines)


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value
