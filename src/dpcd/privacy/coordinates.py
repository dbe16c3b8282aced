"""Mechanisms of coordinate descent: DP-CD's updates, and how large partial derivatives are."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpcd.compilation import compiled
from dpcd.losses import Loss
from dpcd.penalties import Penalty, sized
from dpcd.privacy import kernels
from dpcd.privacy.accounting import PrivacyCost
from dpcd.privacy.lattice import Floats, Integers, Lattice, Unclipped, lattice
from dpcd.privacy.mechanism import Histogram, check_clip, check_columns, check_loss, freeze
from dpcd.privacy.noise import NoiseSource
from dpcd.privacy.statement import REPLACE_ONE
from dpcd.tables import Part

# Records that are read at a time.
AT_ONCE = 2**16


def partial_sums(
    part: Part,
    lattice: Any,
    loss: Loss,
    positive_class: int | None,
    weights: Floats,
    columns: NDArray[np.int64],
    encoding: Floats,
) -> NDArray[Any]:
    """Σ_i round(encoding_j·ℓ'(y_i, x_i·w)·x_ij), each clamped to ± B, for some columns j."""
    check_columns(part, len(weights))
    kernel = compiled(kernels.add_partial_sums, type(loss), lattice.__class__)
    target = part.signed_target(positive_class)
    sums = np.zeros(len(columns), dtype=np.int64 if lattice.exact else np.float64)
    for features, row, first, count in part.tiles(AT_ONCE if lattice.exact else part.n_records):
        kernel(features, row, target[first : first + count], loss, lattice, weights, columns, encoding, sums)
    return sums


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
    #: An update has one sum.
    noise_groups = ((1, 1.0),)

    def __post_init__(self) -> None:
        if np.asarray(self.coordinates).dtype.kind not in "iu":
            raise ValueError("coordinates must be whole numbers")
        arrays = ("clip", "steps", "noise_multiplier", "start")
        freeze(self, coordinates=np.int64, **dict.fromkeys(arrays, np.float64))
        for name in arrays:
            if getattr(self, name).shape != np.shape(self.start):
                raise ValueError(f"{name} needs one value for each of {len(self.start)} columns")
        check_loss(self.loss)
        object.__setattr__(self, "penalty", sized(self.penalty, min(self.n_penalized, len(self.start))))
        used = np.unique(self.coordinates)
        if used.size and not (used[0] >= 0 and used[-1] < len(self.start)):
            raise ValueError(f"coordinates must lie in 0 … {len(self.start) - 1}")
        check_clip(self.clip[used], private=bool(np.any(self.noise_multiplier > 0.0)))

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
    def multiplier_counts(self) -> tuple[tuple[float, int], ...]:
        """Each different z_j among the coordinates used, with the number of updates that have it."""
        multipliers, counts = np.unique(self.noise_multiplier[self.coordinates], return_counts=True)
        return tuple(zip(multipliers.tolist(), counts.tolist(), strict=True))

    @property
    def cost(self) -> PrivacyCost:
        """Σ_k of one Gaussian release with z_{j_k}."""
        total = PrivacyCost()
        for multiplier, count in self.multiplier_counts:
            total = total + count * PrivacyCost.gaussian(multiplier)
        return total

    def steps_of(self, answer: tuple[NDArray[Any], Floats]) -> Iterator[tuple[CoordinateUpdates, NDArray[Any]]]:
        """The updates one by one, each from the point that the values before it led to, and what each released."""
        weights = np.array(self.start)
        for j, released, value in zip(self.coordinates, *answer, strict=True):
            yield replace(self, coordinates=np.array([j]), start=weights.copy()), np.array([released])
            weights[j] = value

    def lattice(self, n_records: int) -> Any:
        """The units of the sums; none without noise, and only then, where records go unclipped."""
        if np.isinf(self.clip[self.coordinates]).any() and not self.noise_multiplier.any():
            return Unclipped()
        return lattice(n_records, self.sensitivity, self.noise_multipliers)

    def sensitivity(self, bound: float) -> float:
        """2B, for each update."""
        return 2.0 * bound

    def sums(self, part: Part, lattice: Any) -> NDArray[Any]:
        """What the records of a part add to the first update."""
        encoding = lattice.bound / self.clip if lattice.exact else np.ones(len(self.start))
        view = self.loss, self.positive_class, self.start, self.coordinates[:1]
        return partial_sums(part, lattice, *view, encoding)

    def run(self, table: Any, noise: NoiseSource) -> tuple[NDArray[Any], Floats]:
        """Return the noisy sums, and the value each update gave its coordinate."""
        check_columns(table, len(self.start))
        units = self.lattice(table.n_records)
        encoding, decoding = np.ones(len(self.start)), np.full(len(self.start), 1.0 / table.n_records)
        draws: NDArray[Any] = np.zeros(self.count)
        if units.exact:
            encoding, decoding = units.bound / self.clip, self.clip / (units.bound * table.n_records)
            draws = self._draw(noise, self.sensitivity(units.bound))
        kernel = compiled(kernels.descend, type(self.loss), type(self.penalty), units.__class__)
        return kernel(  # type: ignore[no-any-return]
            table.doubles(),
            table.signed_target(self.positive_class),
            self.loss,
            self.penalty,
            units,
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


@dataclass(frozen=True, eq=False)
class DerivativeSizes(Histogram):
    """What part of all |ℓ'(y_i, x_i·w)·x_ij|/unit_j, over records i and columns j, lies beyond each of some levels.

    Parameters
    ----------
    loss, positive_class
        As in `CoordinateUpdates`.
    columns, units
        Columns that take part, and the unit in which each is measured.
    levels
        Increasing.
    weights
        w, with an entry for each column of the data.
    noise_multiplier
        Noise over the sensitivity of the histogram that the parts come from.

    Notes
    -----
    Privacy. The d entries of a record fall into at most d buckets between levels (NaN into none), and each adds the
    integer ⌊B/d⌋: a record adds a vector of non-negative integers that sum to at most B, so of l2 norm at most B, and
    replacing it moves the histogram by at most √2·B, however many columns there are. Sums from the top are
    post-processing.
    """

    loss: Loss
    columns: NDArray[np.int64]
    units: Floats
    levels: Floats
    weights: Floats
    noise_multiplier: float
    positive_class: int | None = None

    description = "sizes of derivatives"
    reach = math.sqrt(2.0)

    def __post_init__(self) -> None:
        freeze(self, columns=np.int64, units=np.float64, levels=np.float64, weights=np.float64, noise_multiplier=float)
        check_loss(self.loss)
        if not (len(self.columns) and np.all(np.diff(self.columns) > 0)):
            raise ValueError("columns must be increasing, and there must be one")
        if not (self.columns[0] >= 0 and self.columns[-1] < len(self.weights)):
            raise ValueError(f"columns must lie in 0 … {len(self.weights) - 1}")
        if self.units.shape != self.columns.shape or not np.all(self.units > 0.0):
            raise ValueError(f"units must be positive, one for each of {len(self.columns)} columns")
        if not (len(self.levels) and self.levels[0] > 0.0 and np.all(np.diff(self.levels) > 0.0)):
            raise ValueError("levels must be positive and increasing")

    @property
    def size(self) -> int:
        """Number of buckets."""
        return len(self.levels)

    def noise_levels(self, n_records: int) -> Floats:
        """Standard deviation of the noise in each part: the more buckets it is the sum of, the larger."""
        buckets = np.arange(len(self.levels), 0, -1)
        return self.reach * self.noise_multiplier / n_records * np.sqrt(buckets)

    def sums(self, part: Part, lattice: Lattice) -> Integers:
        """The histogram, in units of B for a whole record."""
        check_columns(part, len(self.weights))
        kernel = compiled(kernels.derivative_counts, type(self.loss))
        target = part.signed_target(self.positive_class)
        counts = np.zeros(self.size, dtype=np.int64)
        for features, row, first, count in part.tiles(AT_ONCE):
            own = target[first : first + count]
            kernel(features, row, own, self.loss, self.weights, self.columns, self.units, self.levels, counts)
        return counts * np.int64(lattice.bound // len(self.columns))

    def decode(self, noisy: Integers, lattice: Lattice, n_records: int) -> Floats:
        """Noisy parts, one for each level."""
        return np.cumsum(noisy[::-1].astype(np.float64))[::-1] / (lattice.bound * n_records)
