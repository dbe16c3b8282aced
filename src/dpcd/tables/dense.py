"""Dense columns of numbers in memory."""

from __future__ import annotations

import itertools
import math
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dpcd.tables.table import Floats, Summand

_COPIED_AT_A_TIME = 1024
# Fewer records than this are done before a thread has started.
_WORTH_A_THREAD = 2**16


class _Clip(NamedTuple):
    """x becomes clip(x, lower, upper) − center, in the first columns."""

    lower: Floats
    upper: Floats
    center: Floats

    def apply(self, column: Floats, j: int) -> None:
        np.clip(column, self.lower[j], self.upper[j], out=column)
        if self.center[j] != 0.0:
            column -= self.center[j]


@dataclass(frozen=True, eq=False)
class Columns:
    """A table in memory as kernels want it: features column by column (Fortran order), and the target.

    The target of a classification is the index of each record's class. Features in single precision stay so, at half
    the memory, and become doubles where they are read: a fit is the same, to the last bit, as one of the same numbers
    in double precision.
    """

    features: NDArray[Any]
    target: Floats
    n_records: int = field(init=False)
    n_columns: int = field(init=False)
    # What is still to be done to features in single precision, in order.
    _clips: list[_Clip] = field(default_factory=list, init=False, repr=False)

    def __post_init__(self) -> None:
        # Compiled loops over the records do not check where they read.
        if self.features.ndim != 2 or self.target.shape != (len(self.features),):
            raise ValueError(
                f"features must be a table and the target have an entry for each of its rows, got shapes "
                f"{self.features.shape} and {self.target.shape}"
            )
        object.__setattr__(self, "n_records", int(self.features.shape[0]))
        object.__setattr__(self, "n_columns", int(self.features.shape[1]))

    @classmethod
    def copy_of(cls, features: Any, target: Any, intercept: bool = False) -> Columns:
        """Copy a table, once, into columns; with an intercept the last column is 1."""
        n_records, n_features = features.shape
        dtype = np.float32 if features.dtype == np.float32 else np.float64
        columns = np.empty((n_records, n_features + intercept), dtype=dtype, order="F")
        # Part by part: rows that become columns jump through memory, and a part of them stays in the cache.
        for first in range(0, n_records, _COPIED_AT_A_TIME):
            part = slice(first, first + _COPIED_AT_A_TIME)
            columns[part, :n_features] = features[part]
        if intercept:
            columns[:, n_features] = 1.0
        return cls(columns, np.array(target, dtype=np.float64))

    def copy(self, intercept: bool = False) -> Columns:
        """A table of its own, as clipped as this one."""
        copy = Columns.copy_of(self.features, self.target, intercept)
        copy._clips.extend(self._clips)
        return copy

    def sums(self, summand: Summand, lattice: Any) -> NDArray[Any]:
        """Sum of what all records add.

        Many records are shared among threads if what they add are integers, which add up to the same in any order.
        """
        workers = min(os.cpu_count() or 1, self.n_records // _WORTH_A_THREAD)
        if workers < 2 or not lattice.exact:
            return summand.sums(self.part(0, self.n_records), lattice)
        ends = [self.n_records * k // workers for k in range(workers + 1)]
        parts = [self.part(first, last) for first, last in itertools.pairwise(ends)]

        def quiet(part: _Slice) -> NDArray[Any]:
            # What is said about overflow holds for one thread only, and a warning would tell of records.
            with np.errstate(all="ignore"):
                return summand.sums(part, lattice)

        with ThreadPoolExecutor(workers) as pool:
            totals = list(pool.map(quiet, parts))
        return np.asarray(sum(totals[1:], start=totals[0]))

    def clip_features(self, lower: Floats, upper: Floats, center: Floats) -> None:
        """Replace x_j by clip(x_j, lower_j, upper_j) − center_j in the first columns."""
        clip = _Clip(np.array(lower), np.array(upper), np.array(center))
        if self.features.dtype == np.float32:
            self._clips.append(clip)
            return
        for j in range(len(lower)):
            clip.apply(self.features[:, j], j)

    def clip_target(self, lower: float, upper: float, center: float) -> None:
        """Replace y by clip(y, lower, upper) − center."""
        np.clip(self.target, lower, upper, out=self.target)
        if center != 0.0 and math.isfinite(center):
            self.target[:] -= center

    def doubles(self, first: int = 0, last: int | None = None) -> Floats:
        """Features of some records in double precision and Fortran order; a copy if they are stored otherwise."""
        some = self.features[first:last]
        if some.dtype == np.float64 and some.flags.f_contiguous:
            return some
        copy = np.array(some, dtype=np.float64, order="F")
        for clip in self._clips:
            for j in range(len(clip.lower)):
                clip.apply(copy[:, j], j)
        return copy

    def signed_target(self, positive_class: int | None) -> Floats:
        """+1 for one class and −1 for the others; the target as it is for None."""
        return signed(self.target, positive_class)

    def part(self, first: int, last: int) -> _Slice:
        """Records `first` … `last` − 1."""
        return _Slice(self, first, last)


def signed(target: Floats, positive_class: int | None) -> Floats:
    """+1 for one class and −1 for the others; the target as it is for None."""
    return target if positive_class is None else np.where(target == positive_class, 1.0, -1.0)


class _Slice(NamedTuple):
    """Some records of dense columns."""

    table: Columns
    first: int
    last: int

    @property
    def n_records(self) -> int:
        return self.last - self.first

    @property
    def n_columns(self) -> int:
        return self.table.n_columns

    def column(self, j: int) -> Floats:
        column = self.table.features[self.first : self.last, j]
        if column.dtype == np.float64:
            return column
        column = column.astype(np.float64)
        for clip in self.table._clips:
            if j < len(clip.lower):
                clip.apply(column, j)
        return column

    def doubles(self) -> Floats:
        return self.table.doubles(self.first, self.last)

    @property
    def target(self) -> Floats:
        return self.table.target[self.first : self.last]

    def signed_target(self, positive_class: int | None) -> Floats:
        return signed(self.target, positive_class)

    def tiles(self, size: int) -> Iterator[tuple[Floats, int, int, int]]:
        stored_as_read = self.table.features.dtype == np.float64
        for first in range(self.first, self.last, size):
            last = min(first + size, self.last)
            features, row = (self.table.features, first) if stored_as_read else (self.table.doubles(first, last), 0)
            yield features, row, first - self.first, last - first
