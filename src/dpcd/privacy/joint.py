"""Mechanisms on whole records: gradients clipped as vectors, second-moment matrices, sizes of gradients and rows.

All of them look at records through a public linear map T: record x becomes the row T·x. With T the inverse root of a
matrix that was released before, rows have about the same spread in every direction, and one clip fits all.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dpcd.compilation import compiled
from dpcd.losses import Loss, Squared
from dpcd.privacy import kernels
from dpcd.privacy.accounting import SMALLEST_SCALE, PrivacyCost
from dpcd.privacy.kernels import Lattice, Unclipped
from dpcd.privacy.mechanisms import Columns, Floats, check_loss, check_multipliers, frozen, lattice
from dpcd.privacy.noise import NoiseSource
from dpcd.privacy.statement import REPLACE_ONE

# Records that are transformed at a time: few enough that their rows stay in the processor's cache, and that a sum of
# so many products of integers of at most 2²⁰ is exact in double precision. Long rows come fewer at a time.
_PART, _PART_OF_LONG_ROWS = 2048, 512
_CACHED, _LARGEST_PART = 2**15, 2**22
_LARGEST_ROW = 2.0**20
# Fewer records than this are done before a thread has started.
_WORTH_A_THREAD = 2**16


def _difference(loss: Loss) -> float:
    """How far apart slopes of a loss are taken for its second derivative: a thousandth of where it bends.

    A loss whose slope is bounded by L and rises at most by its curvature C bends within L/C.
    """
    width = loss.lipschitz / loss.curvature if loss.curvature > 0.0 else math.inf
    return 1e-3 * width if 1e-100 < width < 1e100 else 1e-3


class Part(NamedTuple):
    """Some records as a `View` shows them: a column of `rows` for each, and what `kernels.transform_records` says."""

    rows: Floats
    norms: Floats
    slopes: Floats
    reaches: Floats
    shares: Floats

    @classmethod
    def of(cls, length: int, n_records: int) -> Part:
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
        if len(view.transform) > 10**7:
            raise ValueError("more than 10 million rows are beyond the analysis of rounding")
        return view

    def total(self, data: Columns, zero: NDArray[Any], add: Callable[[Part, NDArray[Any]], None]) -> NDArray[Any]:
        """Sum over the records, part by part: ``add(part, total)`` adds a part to a total.

        Sums of integers do not depend on their order, so many records are shared among threads; other sums stay in one
        thread.
        """
        if data.features.shape[1] != len(self.weights):
            raise ValueError(f"made for {len(self.weights)} columns, not for {data.features.shape[1]}")
        kernel = compiled(kernels.transform_records, type(self.loss))
        target, curvature = data.signed_target(self.positive_class), float(self.loss.curvature)
        near = _difference(self.loss)
        public = self.columns, np.atleast_2d(self.transform), self.transform.ndim == 1, self.weights
        length = len(self.transform)
        size = min(max(_PART_OF_LONG_ROWS, _CACHED // length), _PART, max(1, _LARGEST_PART // length))

        def total_of(begin: int, end: int) -> NDArray[Any]:
            total = np.zeros_like(zero)
            part = Part.of(length, size)
            for first in range(begin, end, size):
                count = min(size, end - first)
                if count < size:
                    part = Part.of(length, count)
                kernel(data.features, target, self.loss, curvature, near, self.even_handed, *public, first, *part)
                add(part, total)
            return total

        workers = min(os.cpu_count() or 1, data.n_records // _WORTH_A_THREAD)
        if workers < 2 or zero.dtype.kind != "i":
            return total_of(0, data.n_records)
        ends = [data.n_records * k // workers for k in range(workers + 1)]
        with ThreadPoolExecutor(workers) as pool:
            totals = list(pool.map(total_of, ends[:-1], ends[1:]))
        return np.asarray(sum(totals[1:], start=totals[0]))


@dataclass(frozen=True, eq=False)
class _Joint:
    """One Gaussian release about records as a `View` shows them."""

    view: View
    noise_multiplier: float

    relation = REPLACE_ONE
    count = 1

    def __post_init__(self) -> None:
        object.__setattr__(self, "view", self.view.checked())
        object.__setattr__(self, "noise_multiplier", float(self.noise_multiplier))
        check_multipliers(self.noise_multiplier)

    @property
    def size(self) -> int:
        """Length of a row."""
        return len(self.view.transform)

    @property
    def noise_multipliers(self) -> tuple[float, float]:
        """The one noise multiplier, twice."""
        return self.noise_multiplier, self.noise_multiplier


def _check_length(name: str, value: float) -> None:
    """Refuse what a division or a product could turn into infinity or zero."""
    if not 1e-150 <= value <= 1e150:
        raise ValueError(f"{name} must be a number between 1e-150 and 1e150, got {value}")


def _check_fine(encoder: Lattice, size: int) -> None:
    """Refuse a lattice so coarse that rounding a row could add more than its norm: noise might not fit into int64."""
    if encoder.bound < math.sqrt(size):
        raise ValueError(f"no integer lattice fits so much noise in {size} entries; use a larger budget")


@dataclass(frozen=True, eq=False)
class JointGradient(_Joint):
    """mean of ℓ'(y, x·w)·T·x, each record's vector scaled down to l2 norm at most `clip`.

    Parameters
    ----------
    view, noise_multiplier
        How to look at the records, and noise over sensitivity.
    clip
        Largest norm. Infinite is admitted where there is no noise (ε = ∞) only.

    Notes
    -----
    Privacy. As for `GradientSteps`: a record's vector, in lattice units, has norm at most B in exact arithmetic (in an
    even-handed view too, which only ever shortens more: what counts as its length is never below its own); the
    floating-point error of the norm and of the scaling is below √d/2 units for d ≤ 10⁷ entries and B ≤ 2⁴⁰; rounding
    the entries to integers adds at most √d/2. A record whose row has no ordinary norm, or whose slope is NaN,
    contributes zero. So replacing a record moves the sum by at most 2(B + √d), and the noise is discrete Gaussian of
    scale z·2(B + √d) in every entry. B is at least √d, so that is at most 4zB, which the lattice has room for.
    """

    clip: float = field(kw_only=True)

    description = "gradients of whole records"

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "clip", float(self.clip))
        if not math.isinf(self.clip):
            _check_length("clip", self.clip)
        elif self.noise_multiplier > 0.0 or self.clip < 0.0:
            raise ValueError("an infinite clip leaves the sensitivity unbounded, which no noise can cover")

    @property
    def cost(self) -> PrivacyCost:
        """One Gaussian release of a vector."""
        return PrivacyCost.gaussian(self.noise_multiplier, draws=self.size)

    def noise_level(self, n_records: int) -> float:
        """Standard deviation of the noise in each entry of the released mean."""
        # Lattices are so fine that rounding does not show here; with an infinite clip there is no noise.
        return 2.0 * self.noise_multiplier * self.clip / n_records if self.noise_multiplier else 0.0

    def run(self, data: Columns, noise: NoiseSource) -> Floats:
        """Noisy mean."""
        encoder: Any = Unclipped()
        bound, unit = 1.0, 1.0
        draws = np.zeros(self.size, dtype=np.int64)
        private = self.noise_multiplier > 0.0 or math.isfinite(self.clip)
        if private:
            encoder = lattice(data.n_records, 2.0 * self.noise_multiplier, 4.0 * self.noise_multiplier)
            _check_fine(encoder, self.size)
            bound, unit = encoder.bound, self.clip / encoder.bound
            draws = noise.gaussian(2.0 * self.noise_multiplier * (bound + math.sqrt(self.size)), self.size)
        kernel = compiled(kernels.gradient_sum, encoder.__class__)
        zero = np.zeros(self.size, dtype=np.int64 if private else np.float64)

        def add(part: Part, total: NDArray[Any]) -> None:
            kernel(part.rows, part.norms, part.slopes, part.reaches, self.clip, bound, 1.0 / unit, encoder, total)

        return np.asarray((self.view.total(data, zero, add) + draws) * (unit / data.n_records))


@dataclass(frozen=True, eq=False)
class MomentMatrix(_Joint):
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
    at most Δ = √2·(b + √d)². Noise of scale zΔ on the diagonal and zΔ/√2 above it, mirrored below, is isotropic with
    respect to that norm, in which an entry off the diagonal counts twice. Products and their sums over a part of the
    records are integers below 2⁵³, so they are exact, in whatever order they are added.
    """

    radius: float = field(kw_only=True)
    weighted: bool = False

    description = "second-moment matrix"

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "radius", float(self.radius))
        _check_length("radius", self.radius)
        if self.size > 10**4:
            raise ValueError(f"a matrix of {self.size} columns has too many entries to release")

    @property
    def cost(self) -> PrivacyCost:
        """One Gaussian release of a symmetric matrix."""
        return PrivacyCost.gaussian(self.noise_multiplier, draws=self.size * (self.size + 1) // 2)

    def noise_level(self, n_records: int) -> float:
        """Standard deviation of the noise on the diagonal of the released mean."""
        return math.sqrt(2.0) * self.noise_multiplier * self.radius**2 / n_records

    def run(self, data: Columns, noise: NoiseSource) -> Floats:
        """Noisy mean, a symmetric matrix."""
        relative = math.sqrt(2.0) * self.noise_multiplier
        squared = lattice(data.n_records, relative / math.sqrt(2.0), 2.0 * relative).bound
        encoder = Lattice(min(2.0 ** (math.frexp(squared)[1] // 2 - 1), _LARGEST_ROW))
        _check_fine(encoder, self.size)
        scale = self.noise_multiplier * (math.sqrt(2.0) * (encoder.bound + math.sqrt(self.size)) ** 2)
        if 0.0 < scale * math.sqrt(0.5) < SMALLEST_SCALE:
            raise ValueError(f"no integer lattice fits {data.n_records} records with noise {self.noise_multiplier:g}")
        above = np.triu_indices(self.size, 1)
        draws = np.zeros((self.size, self.size), dtype=np.int64)
        draws[above] = noise.gaussian(scale * math.sqrt(0.5), len(above[0]))
        draws += draws.T
        np.fill_diagonal(draws, noise.gaussian(scale, self.size))
        bound_rows = compiled(kernels.bound_rows, Lattice)
        add_products = compiled(kernels.product_sum, exact_sums=True)

        def add(part: Part, total: NDArray[Any]) -> None:
            shares = part.shares if self.weighted else np.ones_like(part.shares)
            bound_rows(part.rows, part.norms, shares, self.radius, encoder)
            add_products(part.rows, total)

        below = self.view.total(data, np.zeros_like(draws), add)
        sums = below + np.tril(below, -1).T + draws
        return np.asarray(sums * ((self.radius / encoder.bound) ** 2 / data.n_records))


@dataclass(frozen=True, eq=False)
class GradientSizes(_Joint):
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
    by 1 and raises at most one by 1: √2 in l2 norm. As in `DyadicCounts`, counts are multiplied by a power of two B
    only so that noise is fine; it has scale z·B√2.
    """

    per_octave: int = 4
    smallest: int = -60
    largest: int = 60
    of: str = "gradients"

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
    def n_buckets(self) -> int:
        """Number of buckets."""
        return self.per_octave * (self.largest - self.smallest)

    @property
    def cost(self) -> PrivacyCost:
        """One Gaussian release of a histogram."""
        return PrivacyCost.gaussian(self.noise_multiplier, draws=self.n_buckets)

    @property
    def noise_level(self) -> float:
        """Standard deviation of the noise in each count."""
        return math.sqrt(2.0) * self.noise_multiplier

    @property
    def edges(self) -> Floats:
        """Upper ends of the buckets."""
        return np.asarray(2.0 ** (self.smallest + np.arange(1, self.n_buckets + 1) / self.per_octave))

    def run(self, data: Columns, noise: NoiseSource) -> Floats:
        """Noisy counts."""
        encoder = lattice(data.n_records, self.noise_level, self.noise_level)
        draws = noise.gaussian(self.noise_level * encoder.bound, self.n_buckets)
        kernel = compiled(kernels.size_counts)

        def add(part: Part, total: NDArray[Any]) -> None:
            norms = np.ones_like(part.norms) if self.of == "slopes" else part.norms
            reaches = np.ones_like(part.reaches) if self.of == "rows" else part.reaches
            kernel(norms, reaches, float(self.per_octave), float(self.per_octave * self.smallest), total)

        counts = self.view.total(data, np.zeros(self.n_buckets, dtype=np.int64), add)
        return np.asarray((counts * np.int64(encoder.bound) + draws) / encoder.bound)
