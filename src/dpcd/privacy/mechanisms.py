"""What may be computed on raw data.

A mechanism is a frozen value: its fields are public (declared, or released before), its `cost` is a function of its
fields, and raw data exist only as arguments of `run`. Each docstring argues the sensitivity of what is released.

Throughout, sums are over integers in [−B, B] for a lattice bound B that `lattice` chooses from public numbers, and
noise is a discrete Gaussian integer (or Laplace) of scale noise multiplier × sensitivity, added once to the sum.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from dpcd.compilation import compiled
from dpcd.losses import Loss
from dpcd.penalties import Penalty
from dpcd.privacy import kernels
from dpcd.privacy.accounting import SMALLEST_SCALE, PrivacyCost
from dpcd.privacy.kernels import CELLS, Lattice, Unclipped
from dpcd.privacy.noise import NoiseSource
from dpcd.privacy.statement import REPLACE_ONE

Floats = NDArray[np.float64]

_COPIED_AT_A_TIME = 1024


@dataclass(frozen=True)
class Columns:
    """The data as kernels want them: features column by column (Fortran order), and the target.

    The target of a classification is the index of each record's class.
    """

    features: Floats
    target: Floats

    def __post_init__(self) -> None:
        # Compiled loops over the records do not check where they read.
        if self.features.ndim != 2 or self.target.shape != (len(self.features),):
            raise ValueError(
                f"features must be a table and the target have an entry for each of its rows, got shapes "
                f"{self.features.shape} and {self.target.shape}"
            )

    @classmethod
    def copy_of(cls, features: Any, target: Any, intercept: bool = False) -> Columns:
        """Copy a table, once, into columns; with an intercept the last column is 1."""
        n_records, n_features = features.shape
        columns = np.empty((n_records, n_features + intercept), order="F")
        # Part by part: rows that become columns jump through memory, and a part of them stays in the cache.
        for first in range(0, n_records, _COPIED_AT_A_TIME):
            part = slice(first, first + _COPIED_AT_A_TIME)
            columns[part, :n_features] = features[part]
        if intercept:
            columns[:, n_features] = 1.0
        return cls(columns, np.array(target, dtype=np.float64))

    @property
    def n_records(self) -> int:
        """Number of records, which is public."""
        return int(self.features.shape[0])

    def signed_target(self, positive_class: int | None) -> Floats:
        """+1 for one class and −1 for the others; the target as it is for None."""
        return self.target if positive_class is None else np.where(self.target == positive_class, 1.0, -1.0)

    def bounded_rows(
        self, largest_norm: float = math.inf, columns: NDArray[np.int64] | None = None
    ) -> tuple[Floats, Floats]:
        """Row-ordered copy of the features, or of some columns, and the rows' l2 norms.

        Rows longer than `largest_norm` are scaled down to it. A row whose norm is no ordinary number (not finite, or
        so small that dividing by it would overflow) becomes zero: whatever a record holds, its norm is what is said.
        """
        rows = np.array(self.features if columns is None else self.features[:, columns], order="C")
        norms = np.sqrt(np.einsum("ij,ij->i", rows, rows))
        odd = ~((norms > 1e-150) & (norms < 1e150))
        rows[odd] = 0.0
        norms[odd] = 0.0
        long = norms > largest_norm
        rows[long] *= (largest_norm / norms[long])[:, None]
        norms[long] = largest_norm
        return rows, norms


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

    def run(self, data: Columns, noise: NoiseSource) -> Any:
        """Compute and perturb. Only `Curator.release` calls this, after charging the cost."""


def lattice(n_records: int, smallest: float, largest: float) -> Lattice:
    """Lattice for sums over `n_records` whose noise has scales from `smallest`·B to `largest`·B.

    B is a power of two, at most 2⁴⁰ (finer than any noise needs), such that neither sums (n·B ≤ 2⁶⁰) nor noise of 64
    standard deviations reach the ends of int64, and such that noise, if there is any, is at least 2³⁰ lattice units,
    as the accounting assumes.
    """
    bound = min(2.0**40, 2.0**60 / n_records, 2.0**56 / max(largest, 1.0))
    bound = 2.0 ** math.floor(math.log2(bound))
    if 0.0 < smallest * bound < SMALLEST_SCALE:
        raise ValueError(
            f"no integer lattice fits {n_records} records with noise between {smallest:g} and {largest:g} times what "
            f"one record contributes; use a budget between these extremes"
        )
    return Lattice(bound)


def frozen(values: Any, dtype: type[Any]) -> NDArray[Any]:
    """A copy that nobody can change between the charge and the run."""
    array = np.array(values, dtype=dtype)
    array.setflags(write=False)
    return array


def check_loss(loss: Any) -> None:
    """Refuse a loss with room to remember: into an array, list or object it could write what it sees of the data."""
    if not (isinstance(loss, tuple) and all(isinstance(value, (int, float, np.number)) for value in loss)):
        raise ValueError(
            "a loss must be a NamedTuple that holds numbers only, as it could write data into anything else"
        )


def check_multipliers(values: Any) -> None:
    """Refuse noise multipliers that are no numbers ≥ 0: their cost would not match their noise."""
    values = np.asarray(values, dtype=np.float64)
    if not (values.size and np.all(values >= 0.0) and np.all(np.isfinite(values))):
        raise ValueError("noise multipliers must be finite and not negative")


@dataclass(frozen=True, eq=False)
class CoordinateUpdates:
    """A run of DP-CD: one noisy partial derivative and one proximal step for each entry of `coordinates`.

    Parameters
    ----------
    loss, penalty
        The problem. Nothing here relies on either of them being what it says.
    coordinates
        Which coordinate each update moves, chosen without looking at the data.
    n_penalized
        Coordinates from this one on (the intercept) have no penalty.
    clip, steps, noise_multiplier
        C_j, γ_j and z_j. An infinite clip is admitted where there is no noise (ε = ∞) only.
    start
        The point to start from.
    positive_class
        For classification, the class that becomes +1, all others −1; None leaves the target as it is.

    Notes
    -----
    Privacy. Update k releases Σ_i q_i + noise with q_i = round(B·clamp(ℓ'(y_i, x_i·w)·x_ij / C_j, −1, 1)), where w is a
    function of what updates 0 … k−1 released. So q_i is an integer in [−B, B] determined by record i and released
    values, and replacing one record moves the sum by at most 2B. The noise is a fresh discrete Gaussian of scale
    2B·z_j: the noise multiplier is z_j, and the updates compose to Σ_k 1/z_{j_k}². The order of coordinates does not
    matter to the argument. Multiplying by C_j/(nB), the step and the prox are post-processing.
    """

    loss: Loss
    penalty: Penalty
    coordinates: NDArray[np.int64]
    n_penalized: int
    clip: Floats
    steps: Floats
    noise_multiplier: Floats
    start: Floats
    positive_class: int | None = None

    description = "coordinate updates"
    relation = REPLACE_ONE

    def __post_init__(self) -> None:
        if np.asarray(self.coordinates).dtype.kind not in "iu":
            raise ValueError("coordinates must be whole numbers")
        object.__setattr__(self, "coordinates", frozen(self.coordinates, np.int64))
        for name in ("clip", "steps", "noise_multiplier", "start"):
            object.__setattr__(self, name, frozen(getattr(self, name), np.float64))
            if getattr(self, name).shape != np.shape(self.start):
                raise ValueError(f"{name} needs one value for each of {len(self.start)} columns")
        check_multipliers(self.noise_multiplier)
        check_loss(self.loss)
        used = np.unique(self.coordinates)
        if used.size and not (used[0] >= 0 and used[-1] < len(self.start)):
            raise ValueError(f"coordinates must lie in 0 … {len(self.start) - 1}")
        unclipped = ~np.isfinite(self.clip[used])
        if not np.all(self.clip[used] > 0.0):
            raise ValueError("clip thresholds must be positive")
        if np.any(unclipped) and not (np.all(unclipped) and np.all(self.noise_multiplier == 0.0)):
            raise ValueError(
                "an infinite clip leaves the sensitivity unbounded, which no noise can cover: give a finite clip, or "
                "epsilon=math.inf for a fit without privacy"
            )

    @property
    def count(self) -> int:
        """Number of updates."""
        return len(self.coordinates)

    @property
    def noise_multipliers(self) -> tuple[float, float]:
        """Smallest and largest z_j among the coordinates used."""
        used = self.noise_multiplier[self.coordinates]
        return float(used.min()), float(used.max())

    @property
    def cost(self) -> PrivacyCost:
        """Σ_k of one Gaussian release with z_{j_k}."""
        multipliers, counts = np.unique(self.noise_multiplier[self.coordinates], return_counts=True)
        total = PrivacyCost()
        for multiplier, count in zip(multipliers.tolist(), counts.tolist(), strict=True):
            total = total + count * PrivacyCost.gaussian(multiplier)
        return total

    def run(self, data: Columns, noise: NoiseSource) -> tuple[NDArray[Any], Floats]:
        """Return the noisy sums, and the value each update gave its coordinate."""
        if data.features.shape[1] != len(self.start):
            raise ValueError(f"made for {len(self.start)} columns, not for {data.features.shape[1]}")
        smallest, largest = self.noise_multipliers
        encoder: Any
        draws: NDArray[Any]
        # Without noise, and only then, records may go unclipped.
        if largest > 0.0 or np.isfinite(self.clip[self.coordinates]).all():
            encoder = lattice(data.n_records, 2.0 * smallest, 2.0 * largest)
            encoding, decoding = encoder.bound / self.clip, self.clip / (encoder.bound * data.n_records)
            draws = self._draw(noise, 2.0 * encoder.bound)
        else:
            encoder = Unclipped()
            encoding, decoding = np.ones(len(self.start)), np.full(len(self.start), 1.0 / data.n_records)
            draws = np.zeros(self.count)
        kernel = compiled(kernels.descend, type(self.loss), type(self.penalty), encoder.__class__)
        return kernel(  # type: ignore[no-any-return]
            data.features,
            data.signed_target(self.positive_class),
            self.loss,
            self.penalty,
            encoder,
            self.coordinates,
            self.n_penalized,
            encoding,
            decoding,
            self.steps,
            draws,
            self.start.copy(),
        )

    def _draw(self, noise: NoiseSource, sensitivity: float) -> NDArray[np.int64]:
        """One fresh draw for each update, in bulk for all updates with the same scale."""
        multipliers = self.noise_multiplier[self.coordinates]
        draws = np.empty(self.count, dtype=np.int64)
        for multiplier in np.unique(multipliers).tolist():
            where = np.flatnonzero(multipliers == multiplier)
            draws[where] = noise.gaussian(multiplier * sensitivity, len(where))
        return draws


def _frozen_center(center: Floats | None, size: int, what: str) -> Floats:
    """A finite number to subtract from each column; None is zero."""
    array = frozen(np.zeros(size) if center is None else center, np.float64)
    if array.shape != (size,) or not np.all(np.isfinite(array)):
        raise ValueError(f"center needs one finite value for each of {size} {what}")
    return array


@dataclass(frozen=True, eq=False)
class _WithinRanges:
    """Means over some columns and, if it has a range, the target (last), each divided by its range and clamped to ± 1.

    `center` has an entry for each of them, which is subtracted first; None is zero everywhere. Record i contributes to
    each of the `size` sums an integer in [−B, B], which depends on its own value in that column alone; squares
    contribute one in [0, B].
    """

    columns: NDArray[np.int64]
    ranges: Floats
    target_range: float | None
    center: Floats | None = field(default=None, kw_only=True)

    relation = REPLACE_ONE

    def __post_init__(self) -> None:
        object.__setattr__(self, "columns", frozen(self.columns, np.int64))
        object.__setattr__(self, "ranges", frozen(self.ranges, np.float64))
        every = [*self.ranges.tolist(), *([] if self.target_range is None else [self.target_range])]
        if len(self.columns) != len(self.ranges) or not every or not all(0.0 < b < math.inf for b in every):
            raise ValueError("each column needs a positive and finite range, and there must be one")
        object.__setattr__(self, "center", _frozen_center(self.center, self.size, "means"))

    @property
    def size(self) -> int:
        """Number of means."""
        return len(self.ranges) + (self.target_range is not None)

    def _sums(self, kernel: Any, data: Columns, encoder: Lattice) -> NDArray[np.int64]:
        """A kernel's sum over each column."""
        columns = [data.features[:, j] for j in self.columns.tolist()]
        ranges = self.ranges.tolist()
        if self.target_range is not None:
            columns, ranges = [*columns, data.target], [*ranges, self.target_range]
        every = zip(columns, np.asarray(self.center).tolist(), ranges, strict=True)
        return np.array(
            [kernel(column, center, 1.0 / bound, encoder) for column, center, bound in every], dtype=np.int64
        )


@dataclass(frozen=True, eq=False)
class _GaussianMeans(_WithinRanges):
    """Such means as one Gaussian release, for sums each of which a replaced record moves by at most `_reach`·B."""

    noise_multiplier: float

    count = 1
    _reach = 2.0

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "noise_multiplier", float(self.noise_multiplier))
        check_multipliers(self.noise_multiplier)

    @property
    def noise_multipliers(self) -> tuple[float, float]:
        """The one noise multiplier, twice."""
        return self.noise_multiplier, self.noise_multiplier

    @property
    def cost(self) -> PrivacyCost:
        """One Gaussian release."""
        return PrivacyCost.gaussian(self.noise_multiplier, draws=self.size)

    def noise_level(self, n_records: int) -> float:
        """Standard deviation of the noise in each released mean."""
        return self.noise_multiplier * self._reach * math.sqrt(self.size) / n_records

    def _released(self, kernel: Any, data: Columns, noise: NoiseSource) -> Floats:
        scale = self.noise_multiplier * self._reach * math.sqrt(self.size)
        encoder = lattice(data.n_records, scale, scale)
        draws = noise.gaussian(scale * encoder.bound, self.size)
        sums = self._sums(kernel, data, encoder) + draws
        return sums / (encoder.bound * data.n_records)


@dataclass(frozen=True, eq=False)
class ClippedMeans(_GaussianMeans):
    """mean of clamp((x_j − center_j)/range_j, ± 1) of columns, and of the target if it has a range, in one release.

    Notes
    -----
    Privacy. Record i contributes to each of the d sums an integer in [−B, B]. Replacing it moves each sum by at most
    2B, their vector by at most 2B√d in l2 norm. The noise is d independent discrete Gaussians of scale z·2B√d.
    """

    description = "means"

    def run(self, data: Columns, noise: NoiseSource) -> Floats:
        """Noisy means, those of the features first."""
        return self._released(compiled(kernels.clipped_sum, Lattice), data, noise)


@dataclass(frozen=True, eq=False)
class SecondMoments(_GaussianMeans):
    """mean min(|x_j − center_j|/range_j, 1)² of columns, and of the target if it has a range, as one Gaussian release.

    Notes
    -----
    Privacy. Record i contributes to each of the d sums an integer in [0, B]. Replacing it moves each sum by at most B,
    not 2B, as both values have the same sign, and their vector by at most B√d in l2 norm. The noise is d independent
    discrete Gaussians of scale z·B√d.
    """

    description = "second moments"
    _reach = 1.0

    def run(self, data: Columns, noise: NoiseSource) -> Floats:
        """Noisy means, those of the features first."""
        return self._released(compiled(kernels.square_sum, Lattice), data, noise)


@dataclass(frozen=True, eq=False)
class LaplaceSecondMoments(_WithinRanges):
    """The same moments by the Laplace mechanism, as in the appendix of the paper.

    Notes
    -----
    Privacy. Each of the d sums moves by at most B, as for `SecondMoments` (the paper counts 2B). Discrete Laplace noise
    of scale B·d/ε on an integer of sensitivity B is (ε/d)-private; the d sums compose to ε.
    """

    epsilon: float

    description = "second moments (Laplace)"
    law = "laplace"

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "epsilon", float(self.epsilon))
        if not self.epsilon > 0.0:
            raise ValueError(f"epsilon must be positive, got {self.epsilon}")

    @property
    def count(self) -> int:
        """One release for each moment."""
        return self.size

    @property
    def noise_multipliers(self) -> tuple[float, float]:
        """Laplace scale relative to the sensitivity of one mean, twice."""
        return self.size / self.epsilon, self.size / self.epsilon

    @property
    def cost(self) -> PrivacyCost:
        """D releases that are (ε/d)-private each."""
        return self.size * PrivacyCost.pure_dp(self.epsilon / self.size)

    def noise_level(self, n_records: int) -> float:
        """Standard deviation of the noise in each released mean."""
        return math.sqrt(2.0) * self.size / (self.epsilon * n_records)

    def run(self, data: Columns, noise: NoiseSource) -> Floats:
        """Noisy means."""
        scale = self.size / self.epsilon
        # Discrete Laplace noise is exactly private at any scale, so there is no smallest one. Its tail is heavier than
        # a Gaussian's: 2¹³ scales away from the ends of int64 even that is out of reach.
        encoder = lattice(data.n_records, 0.0, 64.0 * scale)
        draws = noise.laplace(scale * encoder.bound, self.size)
        sums = self._sums(compiled(kernels.square_sum, Lattice), data, encoder) + draws
        return sums / (encoder.bound * data.n_records)


@dataclass(frozen=True, eq=False)
class DyadicCounts:
    """Histograms of the sign and ⌊log₂|x − center|⌋ = −60 … 60 of some columns and perhaps of the target.

    `columns` are their indices; a number means the first so many.

    `center` has an entry for each histogram, the target's last; None is zero everywhere.

    Notes
    -----
    Privacy. A record falls into exactly one cell of each of the d histograms (zero and NaN into one of their own).
    Replacing it lowers at most one count of a histogram by 1 and raises at most one by 1: √(2d) in l2 norm over all of
    them, however many cells there are. Counts are multiplied by B, a power of two, only so that the noise is as fine as
    the accounting assumes; the discrete Gaussian has scale z·B√(2d).
    """

    columns: NDArray[np.int64] | int
    with_target: bool
    noise_multiplier: float
    center: Floats | None = None

    description = "histograms of values"
    relation = REPLACE_ONE
    count = 1

    def __post_init__(self) -> None:
        which = np.arange(self.columns) if isinstance(self.columns, int) else self.columns
        object.__setattr__(self, "columns", frozen(which, np.int64))
        object.__setattr__(self, "noise_multiplier", float(self.noise_multiplier))
        check_multipliers(self.noise_multiplier)
        if self.size < 1:
            raise ValueError("there must be a column to count")
        object.__setattr__(self, "center", _frozen_center(self.center, self.size, "histograms"))

    @property
    def size(self) -> int:
        """Number of histograms."""
        return len(np.atleast_1d(self.columns)) + self.with_target

    @property
    def noise_multipliers(self) -> tuple[float, float]:
        """The one noise multiplier, twice."""
        return self.noise_multiplier, self.noise_multiplier

    @property
    def cost(self) -> PrivacyCost:
        """One Gaussian release."""
        return PrivacyCost.gaussian(self.noise_multiplier, draws=self.size * CELLS)

    @property
    def noise_level(self) -> float:
        """Standard deviation of the noise in each count."""
        return self.noise_multiplier * math.sqrt(2.0 * self.size)

    def run(self, data: Columns, noise: NoiseSource) -> Floats:
        """Noisy counts, one row for each column, the target's last; cells as in `kernels.dyadic_counts`."""
        encoder = lattice(data.n_records, self.noise_level, self.noise_level)
        draws = noise.gaussian(self.noise_level * encoder.bound, self.size * CELLS)
        kernel = compiled(kernels.dyadic_counts)
        columns = [data.features[:, j] for j in np.asarray(self.columns).tolist()]
        columns += [data.target] * self.with_target
        pairs = zip(columns, np.asarray(self.center).tolist(), strict=True)
        counts = np.array([kernel(column, center) for column, center in pairs], dtype=np.int64)
        counts *= np.int64(encoder.bound)
        return (counts + draws.reshape(counts.shape)) / encoder.bound
