"""Mechanisms on whole records: gradients clipped as vectors, second-moment matrices, sizes of gradients and rows.

All of them look at records through a public linear map T: record x becomes the row T·x. With T the inverse root of a
matrix that was released before, rows have about the same spread in every direction, and one clip fits all.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dpcd.compilation import compiled
from dpcd.losses import Loss, Squared
from dpcd.privacy import kernels
from dpcd.privacy.lattice import MOST_ENTRIES, Floats, Integers, Lattice, Unclipped, check_ordinary, frozen, lattice
from dpcd.privacy.mechanism import Histogram, NoisySum, check_clip, check_columns, check_loss, freeze
from dpcd.tables import Part

# Records that are transformed at a time: few enough that their rows stay in the processor's cache, and that a sum of
# so many products of integers of at most 2²⁰ is exact in double precision. Long rows come fewer at a time.
_TILE, _TILE_OF_LONG_ROWS = 2048, 512
_CACHED, _LARGEST_TILE = 2**15, 2**22
# b is at most 2¹⁹ where records contribute products of integers of at most b.
_FINEST_ROW = 2.0**19


def _difference(loss: Loss) -> float:
    """How far apart slopes of a loss are taken for its second derivative: a thousandth of where it bends.

    A loss whose slope is bounded by L and rises at most by its curvature C bends within L/C.
    """
    width = loss.lipschitz / loss.curvature if loss.curvature > 0.0 else math.inf
    return 1e-3 * width if 1e-100 < width < 1e100 else 1e-3


class Tile(NamedTuple):
    """Some records as a `View` shows them: a column of `rows` for each, and what `kernels.transform_records` says."""

    rows: Floats
    norms: Floats
    slopes: Floats
    reaches: Floats
    shares: Floats

    @classmethod
    def of(cls, length: int, n_records: int) -> Tile:
        """Room for so many records with rows of this length."""
        return cls(np.empty((length, n_records)), *np.empty((4, n_records)))


class View(NamedTuple):
    """How mechanisms look at records: the row T·x of some columns, and the loss at the weights w.

    Parameters
    ----------
    columns
        Which columns there are rows of.
    transform
        T, with a column for each of them; a vector stands for a diagonal matrix.
    weights
        w, with an entry for every column of the data; those of other columns are not used.
    loss
        ℓ(y, x·w). Nothing relies on it being what it says.
    positive_class
        As in `CoordinateUpdates`.
    even_handed
        Whether the target is ±1 and a record's gradient counts as long as the longer of those that either label gives
        it. A clip then shortens gradients by what is known of the features alone. If it looked at the label too, it
        would shorten those of records that the model gets wrong more than others, and so favour models that are too
        sure of themselves.
    """

    columns: NDArray[np.int64]
    transform: Floats
    weights: Floats
    loss: Loss = Squared()
    positive_class: int | None = None
    even_handed: bool = False

    def checked(self) -> View:
        """A copy that nobody can change, of the right shapes."""
        check_loss(self.loss)
        view = self._replace(
            columns=frozen(self.columns, np.int64),
            transform=frozen(self.transform, np.float64),
            weights=frozen(self.weights, np.float64),
        )
        n_columns = len(view.columns)
        if view.transform.ndim not in (1, 2) or view.transform.shape[-1] != n_columns or not view.transform.size:
            raise ValueError(f"transform needs a row, and a column for each of {n_columns} columns")
        if n_columns > len(view.weights) or view.columns.min() < 0 or view.columns.max() >= len(view.weights):
            raise ValueError(f"columns must lie in 0 … {len(view.weights) - 1}")
        if len(view.transform) > MOST_ENTRIES:
            raise ValueError(f"more than {MOST_ENTRIES} rows are beyond the analysis of rounding")
        return view

    def tiles(self, part: Part) -> Iterator[Tile]:
        """The records of a part, a tile at a time. The next tile overwrites the one before."""
        check_columns(part, len(self.weights))
        kernel = compiled(kernels.transform_records, type(self.loss))
        target, curvature = part.signed_target(self.positive_class), float(self.loss.curvature)
        near = _difference(self.loss)
        public = self.columns, np.atleast_2d(self.transform), self.transform.ndim == 1, self.weights
        length = len(self.transform)
        size = min(max(_TILE_OF_LONG_ROWS, _CACHED // length), _TILE, max(1, _LARGEST_TILE // length))
        tile = Tile.of(length, min(size, part.n_records))
        for features, row, first, count in part.tiles(size):
            if count < len(tile.norms):
                tile = Tile.of(length, count)
            own = target[first : first + count]
            kernel(features, own, self.loss, curvature, near, self.even_handed, *public, row, *tile)
            yield tile


class _ThroughView(NoisySum):
    """A release about records as a `View` shows them."""

    view: View

    def __post_init__(self) -> None:
        object.__setattr__(self, "view", self.view.checked())
        freeze(self, noise_multiplier=float)


@dataclass(frozen=True, eq=False)
class JointGradient(_ThroughView):
    """mean of ℓ'(y, x·w)·T·x, each record's vector scaled down to l2 norm at most `clip`.

    Parameters
    ----------
    view, noise_multiplier
        How to look at the records, and noise over sensitivity.
    clip
        Largest norm. Infinite is admitted where there is no noise (ε = ∞) only.

    Notes
    -----
    Privacy. A record's vector, in lattice units, has norm at most B in exact arithmetic (in an even-handed view too,
    which only ever shortens more: what counts as its length is never below its own). In floating point the norm of its
    row is computed with d roundings and the scaling with a few more, an excess of at most B(d + 8)·2⁻⁵³, which is below
    √d/2 units for d ≤ 10⁷ entries and B ≤ 2⁴⁰; rounding the entries to integers adds at most √d/2. A record whose row
    has no ordinary norm, or whose slope is NaN, contributes zero. So replacing a record moves the sum by at most
    2(B + √d).
    """

    view: View
    noise_multiplier: float
    clip: float = field(kw_only=True)

    description = "gradients of whole records"

    def __post_init__(self) -> None:
        super().__post_init__()
        freeze(self, clip=float)
        check_clip(self.clip, private=self.noise_multiplier > 0.0)
        if math.isfinite(self.clip):
            check_ordinary("clip", self.clip)

    @property
    def size(self) -> int:
        """Length of a row."""
        return len(self.view.transform)

    def noise_level(self, n_records: int) -> float:
        """Standard deviation of the noise in each entry of the released mean."""
        # Lattices are so fine that rounding does not show here; with an infinite clip there is no noise.
        return 2.0 * self.noise_multiplier * self.clip / n_records if self.noise_multiplier else 0.0

    def lattice(self, n_records: int) -> Any:
        """The units of the sum; none without noise, and only then, where records go unclipped."""
        if math.isinf(self.clip) and self.noise_multiplier == 0.0:
            return Unclipped()
        return lattice(n_records, self.sensitivity, self.noise_multipliers, entries=self.size)

    def sensitivity(self, bound: float) -> float:
        """2(B + √d)."""
        return 2.0 * (bound + math.sqrt(self.size))

    def sums(self, part: Part, lattice: Any) -> NDArray[Any]:
        """Sum of the shortened gradients."""
        kernel = compiled(kernels.gradient_sum, lattice.__class__)
        total = np.zeros(self.size, dtype=np.int64 if lattice.exact else np.float64)
        whole = 1.0 / self._unit(lattice)
        for tile in self.view.tiles(part):
            own = tile.rows, tile.norms, tile.slopes, tile.reaches
            kernel(*own, self.clip, lattice.bound, whole, lattice, total)
        return total

    def decode(self, noisy: Any, lattice: Any, n_records: int) -> Floats:
        """Noisy mean."""
        return np.asarray(noisy * (self._unit(lattice) / n_records))

    def _unit(self, lattice: Any) -> float:
        return self.clip / lattice.bound if lattice.exact else 1.0


@dataclass(frozen=True, eq=False)
class MomentMatrix(_ThroughView):
    """mean of a·r·rᵀ for rows r = T·x, √a·r scaled down to l2 norm at most `radius`.

    Parameters
    ----------
    view, noise_multiplier
        How to look at the records, and noise over sensitivity.
    radius
        Largest norm of √a·r. Rows that are long where the loss has little curvature stay whole.
    weighted
        Whether a is the loss's second derivative at x·w as a part of its curvature, in [0, 1] (a Hessian), or 1.

    Notes
    -----
    Privacy. A record contributes q·qᵀ for a vector q of integers: √a·r in units of radius/b for a power of two b, whose
    norm is at most b + √d, counting the rounding of arithmetic and entries as for `JointGradient`. For two vectors of
    norm at most c, |q·qᵀ − s·sᵀ|² = |q|⁴ + |s|⁴ − 2(q·s)² ≤ 2c⁴ in Frobenius norm: replacing a record moves the sum by
    at most √2·(b + √d)². Noise that is smaller by √2 above the diagonal than on it, and mirrored below, is isotropic
    with respect to that norm, in which an entry off the diagonal counts twice. Products and their sums over a tile of
    records are integers below 2⁵³, so they are exact, in whatever order they are added.
    """

    view: View
    noise_multiplier: float
    radius: float = field(kw_only=True)
    weighted: bool = False

    description = "second-moment matrix"

    def __post_init__(self) -> None:
        super().__post_init__()
        freeze(self, radius=float)
        check_ordinary("radius", self.radius)
        if self.n_rows > 10**4:
            raise ValueError(f"a matrix of {self.n_rows} columns has too many entries to release")

    @property
    def n_rows(self) -> int:
        """Rows and columns of the matrix."""
        return len(self.view.transform)

    @property
    def size(self) -> int:
        """Entries on and above the diagonal."""
        return self.n_rows * (self.n_rows + 1) // 2

    @property
    def noise_groups(self) -> tuple[tuple[int, float], ...]:
        """Entries above the diagonal come first."""
        return ((self.size - self.n_rows, math.sqrt(0.5)), (self.n_rows, 1.0))

    def noise_level(self, n_records: int) -> float:
        """Standard deviation of the noise on the diagonal of the released mean."""
        return math.sqrt(2.0) * self.noise_multiplier * self.radius**2 / n_records

    def lattice(self, n_records: int) -> Lattice:
        """The units of a row; a record's products are at most their square."""
        return lattice(
            n_records,
            self.sensitivity,
            (self.noise_multiplier * math.sqrt(0.5), self.noise_multiplier),
            entries=self.n_rows,
            entry=lambda bound: bound**2,
            finest=_FINEST_ROW,
        )

    def sensitivity(self, bound: float) -> float:
        """√2·(b + √d)²."""
        return math.sqrt(2.0) * (bound + math.sqrt(self.n_rows)) ** 2

    def sums(self, part: Part, lattice: Lattice) -> Integers:
        """Sums of products above the diagonal, and on it."""
        bound_rows = compiled(kernels.bound_rows, Lattice)
        add_products = compiled(kernels.product_sum, exact_sums=True)
        below = np.zeros((self.n_rows, self.n_rows), dtype=np.int64)
        for tile in self.view.tiles(part):
            shares = tile.shares if self.weighted else np.ones_like(tile.shares)
            bound_rows(tile.rows, tile.norms, shares, self.radius, lattice)
            add_products(tile.rows, below)
        return np.concatenate([below.T[np.triu_indices(self.n_rows, 1)], np.diag(below)])

    def decode(self, noisy: Integers, lattice: Lattice, n_records: int) -> Floats:
        """Noisy mean, a symmetric matrix."""
        matrix = np.zeros((self.n_rows, self.n_rows), dtype=np.int64)
        matrix[np.triu_indices(self.n_rows, 1)] = noisy[: -self.n_rows]
        matrix += matrix.T
        np.fill_diagonal(matrix, noisy[-self.n_rows :])
        return np.asarray(matrix * ((self.radius / lattice.bound) ** 2 / n_records))


@dataclass(frozen=True, eq=False)
class GradientSizes(_ThroughView, Histogram):
    """Histogram of the sizes |ℓ'(y, x·w)|·‖T·x‖ of the records' gradients, in equal steps of their logarithm.

    In an even-handed view a size is that of the longer of the gradients that either label gives.

    Parameters
    ----------
    view, noise_multiplier
        How to look at the records, and noise over sensitivity.
    per_octave
        Buckets between a size and its double.
    smallest, largest
        Exponents of two at which the buckets begin and end; sizes beyond are counted in the outermost.
    of
        What sizes are those of: ``"gradients"``, the ``"rows"`` T·x alone, or the ``"slopes"`` |ℓ'(y, x·w)| alone.

    Notes
    -----
    Privacy. A record falls into at most one bucket (zero and NaN into none), so replacing it lowers at most one count
    by 1 and raises at most one by 1: √2 in l2 norm.
    """

    view: View
    noise_multiplier: float
    per_octave: int = 4
    smallest: int = -60
    largest: int = 60
    of: str = "gradients"

    reach = math.sqrt(2.0)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.of not in ("gradients", "rows", "slopes"):
            raise ValueError(f'sizes are those of "gradients", "rows" or "slopes", got {self.of!r}')
        whole = all(isinstance(value, int) for value in (self.per_octave, self.smallest, self.largest))
        if not (whole and self.per_octave >= 1 and -1000 <= self.smallest < self.largest <= 1000):
            raise ValueError("sizes need at least one bucket for each octave, and octaves within -1000 … 1000")

    @property
    def description(self) -> str:
        """What a privacy statement calls it."""
        return f"sizes of {self.of}"

    @property
    def size(self) -> int:
        """Number of buckets."""
        return self.per_octave * (self.largest - self.smallest)

    @property
    def edges(self) -> Floats:
        """Upper ends of the buckets."""
        return np.asarray(2.0 ** (self.smallest + np.arange(1, self.size + 1) / self.per_octave))

    def sums(self, part: Part, lattice: Lattice) -> Integers:
        """Counts in lattice units."""
        kernel = compiled(kernels.size_counts)
        counts = np.zeros(self.size, dtype=np.int64)
        for tile in self.view.tiles(part):
            norms = np.ones_like(tile.norms) if self.of == "slopes" else tile.norms
            reaches = np.ones_like(tile.reaches) if self.of == "rows" else tile.reaches
            kernel(norms, reaches, float(self.per_octave), float(self.per_octave * self.smallest), counts)
        return counts * np.int64(lattice.bound)
