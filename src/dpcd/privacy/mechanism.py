"""What may be computed on raw data, and the one place where noise is added to it.

A mechanism is a frozen value: its fields are public (declared, or released before), its `cost` is a function of its
fields, and raw data exist only as arguments of `sums` and `run`. Nearly every mechanism is a `NoisySum`: it says what
integers a record adds (`sums`), by how much replacing a record moves their total (`sensitivity`), and what the noisy
total means (`decode`). Its docstring argues the second line; a test attacks it.
"""

from __future__ import annotations

from typing import Any, ClassVar, Protocol

import numpy as np

from dpcd.plugins import check_loss_code
from dpcd.privacy.accounting import PrivacyCost
from dpcd.privacy.lattice import Floats, Integers, Lattice, frozen, lattice
from dpcd.privacy.noise import NoiseSource
from dpcd.privacy.statement import REPLACE_ONE
from dpcd.tables import Part, Table


class Mechanism(Protocol):
    """Something that may be released about the data, at a price."""

    @property
    def description(self) -> str:
        """Name in the privacy statement."""

    @property
    def count(self) -> int:
        """How many releases it makes."""

    @property
    def noise_multipliers(self) -> tuple[float, float]:
        """Smallest and largest noise, relative to the sensitivity."""

    @property
    def relation(self) -> str:
        """Neighbouring relation under which the cost holds."""

    @property
    def cost(self) -> PrivacyCost:
        """What all of it costs, from public fields alone."""

    def run(self, table: Any, noise: NoiseSource) -> Any:
        """Compute and perturb. Only `Curator.release` calls this, after charging the cost."""


class NoisySum:
    """Integer sums over the records, plus discrete Gaussian noise, in one release.

    A mechanism of this kind has a field `noise_multiplier`, and:

    `size`
        How many sums there are.
    `sums(part, lattice)`
        What the records of a part add to them: for each record integers that depend on that record and on the
        mechanism's fields alone, each in [−B, B] for B = lattice.bound. They add up over any cut into parts.
    `sensitivity(bound)`
        The largest l2 norm, in lattice units, by which replacing one record moves the sums.
    `decode(noisy, lattice, n_records)`
        What the noisy sums mean.

    Where noise differs, `noise_groups` says how many sums, in order, get what part of it: norms are of sums over parts.
    """

    noise_multiplier: float

    relation = REPLACE_ONE
    law: ClassVar[str] = "gaussian"
    #: One release, whatever the number of sums.
    count = 1

    @property
    def size(self) -> int:
        """Number of sums."""
        raise NotImplementedError

    def sums(self, part: Part, lattice: Lattice) -> Any:
        """What the records of a part add."""
        raise NotImplementedError

    def sensitivity(self, bound: float) -> float:
        """By how much replacing a record moves the sums, in lattice units."""
        raise NotImplementedError

    def decode(self, noisy: Any, lattice: Lattice, n_records: int) -> Any:
        """What the noisy sums mean."""
        raise NotImplementedError

    @property
    def noise_groups(self) -> tuple[tuple[int, float], ...]:
        """How many sums get what part of the noise."""
        return ((self.size, 1.0),)

    @property
    def noise_multipliers(self) -> tuple[float, float]:
        """Smallest and largest: the one there is."""
        return self.noise_multiplier, self.noise_multiplier

    @property
    def cost(self) -> PrivacyCost:
        """One Gaussian release with noise in every sum."""
        return PrivacyCost.gaussian(self.noise_multiplier, draws=self.size)

    def lattice(self, n_records: int) -> Lattice:
        """The units of the sums."""
        least, most = self.noise_multipliers
        finest_noise = least * min((part for _, part in self.noise_groups), default=1.0)
        return lattice(n_records, self.sensitivity, (finest_noise, most), self.law)

    def run(self, table: Table, noise: NoiseSource) -> Any:
        """The noisy sums, decoded."""
        units = self.lattice(table.n_records)
        scale = self.noise_multipliers[0] * self.sensitivity(units.bound)
        draw = noise.laplace if self.law == "laplace" else noise.gaussian
        draws = [draw(scale * part, count) for count, part in self.noise_groups]
        return self.decode(table.sums(self, units) + np.concatenate(draws), units, table.n_records)


def freeze(mechanism: Any, **kinds: type[Any]) -> None:
    """Replace fields by copies that nobody can change between the charge and the run.

    The kind of a field is a dtype, or ``float`` for a plain number.
    """
    for name, kind in kinds.items():
        value = getattr(mechanism, name)
        object.__setattr__(mechanism, name, float(value) if kind is float else frozen(value, kind))
    if "noise_multiplier" in kinds:
        check_multipliers(mechanism.noise_multiplier)


def check_columns(table: Any, n_columns: int) -> None:
    """Refuse a table with other columns than a mechanism was made for: compiled loops do not check where they read."""
    if table.n_columns != n_columns:
        raise ValueError(f"made for {n_columns} columns, not for {table.n_columns}")


def check_loss(loss: Any) -> None:
    """Refuse a loss with room to remember, or whose code does more than calculate with the data it sees."""
    if not (isinstance(loss, tuple) and all(isinstance(value, (int, float, np.number)) for value in loss)):
        raise ValueError(
            "a loss must be a NamedTuple that holds numbers only, as it could write data into anything else"
        )
    check_loss_code(type(loss))


def check_multipliers(values: Any) -> None:
    """Refuse noise multipliers that are no numbers ≥ 0: their cost would not match their noise."""
    values = np.asarray(values, dtype=np.float64)
    if not (values.size and np.all(values >= 0.0) and np.all(np.isfinite(values))):
        raise ValueError("noise multipliers must be finite and not negative")


def check_clip(clip: Any, private: bool) -> None:
    """Refuse clips that are not positive, or not finite where there is noise."""
    clip = np.asarray(clip, dtype=np.float64)
    if not np.all(clip > 0.0):
        raise ValueError("clip thresholds must be positive")
    if np.any(np.isinf(clip)) and (private or not np.all(np.isinf(clip))):
        raise ValueError(
            "an infinite clip leaves the sensitivity unbounded, which no noise can cover: give a finite clip, or "
            "epsilon=math.inf for a fit without privacy"
        )


class Histogram(NoisySum):
    """Counts of records in cells, as one Gaussian release.

    Counts are multiplied by B, a power of two, only so that noise is as fine as the accounting assumes. A mechanism of
    this kind has `sums` and `reach`: the largest l2 norm by which replacing a record moves the counts.
    """

    reach: float

    def sensitivity(self, bound: float) -> float:
        """That of the counts, in lattice units."""
        return self.reach * bound

    @property
    def noise_level(self) -> float:
        """Standard deviation of the noise in each count."""
        return self.noise_multiplier * self.reach

    def decode(self, noisy: Integers, lattice: Lattice, n_records: int) -> Floats:
        """Noisy counts."""
        return np.asarray(noisy / lattice.bound)
