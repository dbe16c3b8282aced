"""Mechanisms on columns one by one: means, second moments, histograms of values."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpcd.compilation import compiled
from dpcd.privacy import kernels
from dpcd.privacy.kernels import CELLS
from dpcd.privacy.lattice import Floats, Integers, Lattice, frozen
from dpcd.privacy.mechanism import Histogram, NoisySum, freeze
from dpcd.tables import Part


def _frozen_center(center: Floats | None, size: int, what: str) -> Floats:
    """A finite number to subtract from each column; None is zero."""
    array = frozen(np.zeros(size) if center is None else center, np.float64)
    if array.shape != (size,) or not np.all(np.isfinite(array)):
        raise ValueError(f"center needs one finite value for each of {size} {what}")
    return array


@dataclass(frozen=True, eq=False)
class WithinRanges(NoisySum):
    """Means over some columns and, if it has a range, the target (last), each divided by its range and clamped to ± 1.

    `center` has an entry for each of them, which is subtracted first; None is zero everywhere. Record i contributes to
    each of the `size` sums an integer in [−B, B], which depends on its own value in that column alone; squares
    contribute one in [0, B].
    """

    columns: NDArray[np.int64]
    ranges: Floats
    target_range: float | None
    center: Floats | None = field(default=None, kw_only=True)

    kernel = staticmethod(kernels.clipped_sum)

    def __post_init__(self) -> None:
        freeze(self, columns=np.int64, ranges=np.float64)
        every = [*self.ranges.tolist(), *([] if self.target_range is None else [self.target_range])]
        one_each = self.columns.ndim == 1 and self.columns.shape == self.ranges.shape
        if not (one_each and every and all(0.0 < b < math.inf for b in every)):
            raise ValueError("each column needs a positive and finite range, and there must be one")
        object.__setattr__(self, "center", _frozen_center(self.center, self.size, "means"))

    @property
    def size(self) -> int:
        """Number of means."""
        return len(self.ranges) + (self.target_range is not None)

    def sums(self, part: Part, lattice: Lattice) -> Integers:
        """The kernel's sum over each column."""
        kernel: Any = compiled(self.kernel, Lattice)
        columns = [part.column(j) for j in self.columns.tolist()]
        ranges = self.ranges.tolist()
        if self.target_range is not None:
            columns, ranges = [*columns, part.target], [*ranges, self.target_range]
        every = zip(columns, np.asarray(self.center).tolist(), ranges, strict=True)
        return np.array(
            [kernel(column, center, 1.0 / bound, lattice) for column, center, bound in every], dtype=np.int64
        )

    def decode(self, noisy: Integers, lattice: Lattice, n_records: int) -> Floats:
        """Noisy means, those of the features first."""
        return np.asarray(noisy / (lattice.bound * n_records))


@dataclass(frozen=True, eq=False)
class ClippedMeans(WithinRanges):
    """mean of clamp((x_j − center_j)/range_j, ± 1) of columns, and of the target if it has a range, in one release.

    Notes
    -----
    Privacy. Record i contributes to each of the d sums an integer in [−B, B]. Replacing it moves each sum by at most
    2B, their vector by at most 2B√d in l2 norm.
    """

    noise_multiplier: float

    description = "means"

    def __post_init__(self) -> None:
        super().__post_init__()
        freeze(self, noise_multiplier=float)

    def sensitivity(self, bound: float) -> float:
        """2B√d."""
        return 2.0 * math.sqrt(self.size) * bound

    def noise_level(self, n_records: int) -> float:
        """Standard deviation of the noise in each released mean."""
        return self.noise_multiplier * self.sensitivity(1.0) / n_records


@dataclass(frozen=True, eq=False)
class SecondMoments(ClippedMeans):
    """mean min(|x_j − center_j|/range_j, 1)² of columns, and of the target if it has a range, as one Gaussian release.

    Notes
    -----
    Privacy. Record i contributes to each of the d sums an integer in [0, B]. Replacing it moves each sum by at most B,
    not 2B, as both values have the same sign, and their vector by at most B√d in l2 norm.
    """

    description = "second moments"
    kernel = staticmethod(kernels.square_sum)

    def sensitivity(self, bound: float) -> float:
        """B√d."""
        return math.sqrt(self.size) * bound


@dataclass(frozen=True, eq=False)
class DyadicCounts(Histogram):
    """Histograms of the sign and ⌊log₂|x − center|⌋ = −60 … 60 of some columns and perhaps of the target.

    `columns` are their indices; a number means the first so many. `center` has an entry for each histogram, the
    target's last; None is zero everywhere.

    Notes
    -----
    Privacy. A record falls into exactly one cell of each of the d histograms (zero and NaN into one of their own).
    Replacing it lowers at most one count of a histogram by 1 and raises at most one by 1: √(2d) in l2 norm over all of
    them, however many cells there are.
    """

    columns: NDArray[np.int64] | int
    with_target: bool
    noise_multiplier: float
    center: Floats | None = None

    description = "histograms of values"

    def __post_init__(self) -> None:
        if isinstance(self.columns, int):
            object.__setattr__(self, "columns", np.arange(self.columns))
        freeze(self, columns=np.int64, noise_multiplier=float)
        if np.ndim(self.columns) != 1 or self.n_histograms < 1:
            raise ValueError("there must be a column to count")
        object.__setattr__(self, "center", _frozen_center(self.center, self.n_histograms, "histograms"))

    @property
    def n_histograms(self) -> int:
        """Number of histograms."""
        return len(np.atleast_1d(self.columns)) + self.with_target

    @property
    def size(self) -> int:
        """Number of cells."""
        return self.n_histograms * CELLS

    @property
    def reach(self) -> float:  # type: ignore[override]
        """√(2d)."""
        return math.sqrt(2.0 * self.n_histograms)

    def sums(self, part: Part, lattice: Lattice) -> Integers:
        """Counts in lattice units, histogram by histogram."""
        kernel = compiled(kernels.dyadic_counts)
        columns = [part.column(j) for j in np.asarray(self.columns).tolist()]
        columns += [part.target] * self.with_target
        pairs = zip(columns, np.asarray(self.center).tolist(), strict=True)
        counts = np.array([kernel(column, center) for column, center in pairs], dtype=np.int64)
        return counts.ravel() * np.int64(lattice.bound)

    def decode(self, noisy: Integers, lattice: Lattice, n_records: int) -> Floats:
        """Noisy counts, one row for each column, the target's last; cells as in `kernels.dyadic_counts`."""
        return super().decode(noisy, lattice, n_records).reshape(self.n_histograms, CELLS)
