"""What a table is to a mechanism: public facts, and sums over its parts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


class Part(Protocol):
    """Some consecutive records of a table, as kernels read them: in double precision, column by column."""

    @property
    def n_records(self) -> int:
        """Number of records in this part."""

    @property
    def n_columns(self) -> int:
        """Number of columns, the intercept's included."""

    def column(self, j: int) -> Floats:
        """One column of the features, contiguous."""

    def doubles(self) -> Floats:
        """All columns, in double precision and Fortran order."""

    @property
    def target(self) -> Floats:
        """The target; of a classification the index of each record's class."""

    def signed_target(self, positive_class: int | None) -> Floats:
        """+1 for one class and −1 for the others; the target as it is for None."""

    def tiles(self, size: int) -> Iterator[tuple[NDArray[np.float64], int, int, int]]:
        """(features, row, first, count) for so many records at a time.

        The tile's records are `count` rows of `features` from `row` on, and lie in the part from `first` on.
        """


class Summand(Protocol):
    """Something that records add up to."""

    def sums(self, part: Part, lattice: Any) -> NDArray[Any]:
        """What the records of a part add, in units of a lattice."""


class Table(Protocol):
    """Records that somebody holds, in parts."""

    @property
    def n_records(self) -> int:
        """Number of records, which is public."""

    @property
    def n_columns(self) -> int:
        """Number of columns, the intercept's included, which is public."""

    def sums(self, summand: Summand, lattice: Any) -> NDArray[Any]:
        """Sum of what all records add."""
