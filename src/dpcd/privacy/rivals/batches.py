"""Mechanisms on secret batches of records: DP-SGD, DP-SVRG and DP-SCD, the rivals that DP-CD is compared with."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numba.extending import register_jitable
from numpy.typing import NDArray

from dpcd.compilation import compiled, derivative, encode, prox
from dpcd.losses import Loss
from dpcd.penalties import Penalty, sized
from dpcd.privacy.accounting import PrivacyCost
from dpcd.privacy.lattice import MOST_ENTRIES, Floats, Integers, Lattice, check_ordinary, lattice, ordinary, shortened
from dpcd.privacy.mechanism import check_loss, freeze
from dpcd.privacy.noise import NoiseSource
from dpcd.privacy.rivals.rows import bounded_rows
from dpcd.privacy.rivals.sampling import FixedSize, Sampling


def _check_shape(table: Any, n_records: int, n_columns: int) -> None:
    """Refuse data other than those that the cost was computed for; both numbers are public."""
    if (table.n_records, table.n_columns) != (n_records, n_columns):
        raise ValueError(
            f"made for {n_records} records and {n_columns} columns, not for {table.n_records} and {table.n_columns}"
        )


def _check_columns(columns: NDArray[np.int64], n_columns: int, values: Floats) -> None:
    """Refuse columns that are not there, or come twice, or values for other columns."""
    if not (columns.ndim == 1 and len(columns) and np.all(np.diff(columns) > 0)):
        raise ValueError("columns must be increasing, and there must be one")
    if not (columns[0] >= 0 and columns[-1] < n_columns <= MOST_ENTRIES):
        raise ValueError(f"columns must lie in 0 … {n_columns - 1}, and be at most {MOST_ENTRIES}")
    if values.shape != columns.shape:
        raise ValueError(f"need one value for each of {len(columns)} columns, got shape {values.shape}")


def _chunks(count: int, every: int, width: int) -> Iterator[tuple[int, int]]:
    """Ranges of steps that end at every multiple of `every`, or earlier where their noise would take over 32 MiB."""
    first = 0
    while first < count:
        last = min(first - first % every + every, first + max(1, 2**22 // width), count)
        yield first, last
        first = last


def _everybody(part: Any) -> tuple[Integers, Integers]:
    """A batch of all records of a part."""
    return np.arange(part.n_records), np.array([0, part.n_records])


def stochastic_descent(  # type: ignore[no-untyped-def]
    rows,
    norms,
    target,
    loss,
    penalty,
    lattice,
    members,
    starts,
    batch_size,
    n_penalized,
    clips,
    steps,
    noise,
    weights,
    sums,
):
    """Proximal gradient steps on batches of records, for many settings (a clip and a step size each) side by side.

    `weights` and `sums` have a column for each setting and are overwritten; the latter hold the last batch's. A record
    adds its gradient ℓ'·x, scaled down to norm at most C and rounded to lattice units entry by entry: see the mechanism
    for the norm of that.
    """
    n_columns, n_settings = weights.shape
    bound = lattice.bound
    factors = np.zeros(n_settings)
    for k in range(starts.shape[0] - 1):
        if starts[k] == starts[k + 1]:
            sums[:, :] = 0
        for position in range(starts[k], starts[k + 1]):
            i = members[position]
            factors[:] = 0.0
            for j in range(n_columns):
                x = rows[i, j]
                for c in range(n_settings):
                    factors[c] += x * weights[j, c]
            for c in range(n_settings):
                slope = derivative(loss, target[i], factors[c])
                factors[c] = shortened(slope, abs(slope), norms[i], clips[c], bound, bound / clips[c])
            first = position == starts[k]
            for j in range(n_columns):
                x = rows[i, j]
                if first:
                    for c in range(n_settings):
                        sums[j, c] = encode(lattice, factors[c], x)
                else:
                    for c in range(n_settings):
                        sums[j, c] += encode(lattice, factors[c], x)
        for j in range(n_columns):
            for c in range(n_settings):
                gradient = (sums[j, c] + noise[k, j]) * (clips[c] / (bound * batch_size))
                value = weights[j, c] - steps[c] * gradient
                weights[j, c] = prox(penalty, value, steps[c], j) if j < n_penalized else value


@register_jitable
def add_changes(  # type: ignore[no-untyped-def]
    rows, norms, target, loss, lattice, members, weights, anchor, clip, sums
):
    """Add what the gradients ℓ'·x of some records differ by from those at `anchor`.

    The difference is a number times the record's row. It is scaled down to norm at most `clip` and rounded to lattice
    units entry by entry, as in `stochastic_descent`.
    """
    for position in range(members.shape[0]):
        i = members[position]
        z, z_anchor = 0.0, 0.0
        for j in range(sums.shape[0]):
            z += rows[i, j] * weights[j]
            z_anchor += rows[i, j] * anchor[j]
        slope = derivative(loss, target[i], z) - derivative(loss, target[i], z_anchor)
        factor = shortened(slope, abs(slope), norms[i], clip, lattice.bound, lattice.bound / clip)
        for j in range(sums.shape[0]):
            sums[j] += encode(lattice, factor, rows[i, j])


def variance_reduced_descent(  # type: ignore[no-untyped-def]
    rows,
    norms,
    target,
    loss,
    penalty,
    lattice,
    members,
    starts,
    batch_size,
    columns,
    n_penalized,
    smoothness,
    clip,
    growth,
    step,
    gradient,
    snapshot,
    noise,
    weights,
    total,
    sums,
):
    """Proximal steps along a fixed gradient at `snapshot` plus, from a batch, what gradients differ by since then.

    Overwrites `weights` and, with those of the last batch, `sums`, and adds every iterate to `total`.
    """
    n_columns = weights.shape[0]
    for k in range(starts.shape[0] - 1):
        reach = 0.0
        for j in range(n_columns):
            reach += smoothness[j] * (weights[j] - snapshot[j]) ** 2
        limit = min(growth * np.sqrt(reach), 2.0 * clip)
        # At the snapshot itself nothing differs and nothing is asked.
        usable = ordinary(limit)
        sums[:] = 0
        if usable:
            batch = members[starts[k] : starts[k + 1]]
            add_changes(rows, norms, target, loss, lattice, batch, weights, snapshot, limit, sums)
        unit = limit / (lattice.bound * batch_size) if usable else 0.0
        for j in range(n_columns):
            value = weights[j] - step * (gradient[j] + (sums[j] + noise[k, j]) * unit)
            weights[j] = prox(penalty, value, step, columns[j]) if columns[j] < n_penalized else value
            total[j] += weights[j]


def dual_descent(  # type: ignore[no-untyped-def]
    rows,
    norms,
    target,
    loss,
    lattice,
    members,
    starts,
    lot_size,
    strength,
    clips,
    dual_noise,
    noise,
    dual,
    drift,
    total,
):
    """Dual coordinate updates on lots of records (rows of norm at most 1), for many clips side by side.

    The weights are v/strength with v = Σ α_i x_i and strength = λn. In a lot, record i moves α_i to the maximum of its
    own part of the dual, whose quadratic term is multiplied by the size of the lot because all its records move at
    once. What leaves a step are the noisy increments of all α and of v, accumulated in lattice units: α_i is
    dual[i] + drift[i] (the noise, the same for all settings), v is total; all three are overwritten.
    """
    n_columns, n_settings = total.shape
    bound = lattice.bound
    z, low, high = np.zeros(n_settings), np.zeros(n_settings), np.zeros(n_settings)
    alpha, unit = np.zeros(n_settings), clips / bound
    sums = np.zeros((n_columns, n_settings), dtype=np.int64)
    for k in range(starts.shape[0] - 1):
        sums[:, :] = 0
        for position in range(starts[k], starts[k + 1]):
            i = members[position]
            y = target[i]
            spread = lot_size * norms[i] ** 2 / strength
            z[:] = 0.0
            for j in range(n_columns):
                x = rows[i, j] / strength
                for c in range(n_settings):
                    z[c] += x * (total[j, c] * unit[c])
            # The maximum is where α + δ + ℓ'(z + spread·δ) = 0. The left side grows with slope at least 1, so the root
            # lies between 0 and minus its value at 0, and a move longer than the clip need not be found.
            for c in range(n_settings):
                alpha[c] = (dual[i, c] + drift[i]) * unit[c]
                gap = alpha[c] + derivative(loss, y, z[c])
                low[c] = max(min(0.0, -gap), -clips[c])
                high[c] = min(max(0.0, -gap), clips[c])
            for _ in range(40):
                for c in range(n_settings):
                    middle = 0.5 * (low[c] + high[c])
                    above = alpha[c] + middle + derivative(loss, y, z[c] + spread * middle) > 0.0
                    high[c] = middle if above else high[c]
                    low[c] = low[c] if above else middle
            for c in range(n_settings):
                move = 0.5 * (low[c] + high[c]) / unit[c]
                # Whatever the arithmetic above did, a move is a number of at most the bound; NaN is none.
                z[c] = move if abs(move) <= bound else 0.0
                dual[i, c] += encode(lattice, z[c], 1.0)
            for j in range(n_columns):
                x = rows[i, j]
                for c in range(n_settings):
                    sums[j, c] += encode(lattice, z[c], x)
        for i in range(drift.shape[0]):
            drift[i] += dual_noise[k, i]
        for j in range(n_columns):
            for c in range(n_settings):
                total[j, c] += sums[j, c] + noise[k, j]


class _OnBatches:
    """What mechanisms on secret batches have in common.

    `sums`, `sensitivity` and `lattice` are about one step from `start`: what the records of a batch add, and by how
    much replacing one of them moves that.
    """

    loss: Loss
    sampling: Sampling
    noise_multiplier: float
    positive_class: int | None

    @property
    def width(self) -> int:
        """Number of columns that take part."""
        raise NotImplementedError

    @property
    def noise_groups(self) -> tuple[tuple[int, float], ...]:
        """The same noise in every entry."""
        return ((self.width, 1.0),)

    def sensitivity(self, bound: float) -> float:
        """2(B + √p) where a record is replaced, B + √p where one is added or removed."""
        return self.sampling.sensitivity * (bound + math.sqrt(self.width))

    def lattice(self, n_records: int) -> Lattice:
        """The units of the sums."""
        return lattice(n_records, self.sensitivity, self.noise_multipliers, entries=self.width)

    @property
    def relation(self) -> str:
        """That of the sampling."""
        return self.sampling.relation

    @property
    def noise_multipliers(self) -> tuple[float, float]:
        """The one noise multiplier, twice."""
        return self.noise_multiplier, self.noise_multiplier


@dataclass(frozen=True, eq=False)
class GradientSteps(_OnBatches):
    """A run of proximal DP-SGD: noisy sums of clipped gradients over secret batches, and proximal steps.

    Parameters
    ----------
    loss, penalty, n_penalized, positive_class
        As in `CoordinateUpdates`.
    sampling
        How batches are drawn; it brings the neighbouring relation with it.
    count
        Number of steps.
    clip, step
        Largest l2 norm of a record's gradient, and step size.
    noise_multiplier
        Noise over the sensitivity of a batch's sum.
    start
        The point to start from.
    every
        The weights are returned after every so many steps.

    Notes
    -----
    Privacy. A record's clipped gradient, in lattice units, has norm at most B(1 + (p + 8)·2⁻⁵³) in floating point: the
    norm of its row is computed with p roundings and the scaling with a few more. With B ≤ 2⁴⁰ and p ≤ 10⁷ the excess
    is below √p/2, and rounding the entries to integers adds at most √p/2 more, so the norm is at most B + √p. Rows
    without an ordinary norm are zero, and NaN contributes nothing. Replacing a record of a batch moves the sum by at
    most 2(B + √p), adding one by B + √p: `Sampling.sensitivity` times B + √p. The noise is discrete Gaussian of scale z
    times that in every entry. Which records are in a batch is drawn anew for every step and never released, and given
    what was released before, a step depends on the data through its own batch only, so the steps compose adaptively at
    the sampled mechanism's cost.
    """

    loss: Loss
    penalty: Penalty
    sampling: Sampling
    count: int
    n_penalized: int
    clip: float
    step: float
    noise_multiplier: float
    start: Floats
    positive_class: int | None = None
    every: int = 1

    description = "gradients of batches"

    def __post_init__(self) -> None:
        freeze(self, noise_multiplier=float, start=np.float64)
        check_loss(self.loss)
        object.__setattr__(self, "penalty", sized(self.penalty, min(self.n_penalized, self.width)))
        check_ordinary("clip", self.clip)
        if self.width > MOST_ENTRIES:
            raise ValueError(f"more than {MOST_ENTRIES} columns are beyond the analysis of rounding")

    @property
    def width(self) -> int:
        """Number of columns."""
        return len(self.start)

    @property
    def cost(self) -> PrivacyCost:
        """`count` sampled Gaussian releases, each with noise in every entry."""
        return self.count * self.sampling.cost(self.noise_multiplier, self.width)

    def steps_of(self, answer: Floats) -> Iterator[tuple[GradientSteps, None]]:
        """The steps one by one, each from the weights before it; their sums are not released."""
        for start in [self.start, *answer[:-1]]:
            yield replace(self, count=1, every=1, start=start), None

    def sums(self, part: Any, lattice: Lattice) -> Integers:
        """What a batch of all records of the part adds to the first step."""
        data, batch = self._data(part), _everybody(part)
        sums: Integers = np.zeros((self.width, 1), dtype=np.int64)
        settings = np.array([self.clip]), np.array([self.step])
        no_noise: Integers = np.zeros((1, self.width), dtype=np.int64)
        self._descend(data, lattice, batch, settings, no_noise, self.start[:, None], sums)
        return sums[:, 0]

    def run(self, table: Any, noise: NoiseSource) -> Floats:
        """Return the weights after every `every` steps."""
        return self.paths(table, noise, np.array([self.clip]), np.array([self.step]))[:, :, 0]

    def paths(self, table: Any, noise: NoiseSource, clips: Floats, steps: Floats) -> Floats:
        """Paths of many settings on the same batches with the same noise, which is private for one of them only."""
        _check_shape(table, self.sampling.n_records, self.width)
        units, data, secret = self.lattice(table.n_records), self._data(table), noise.generator()
        scale = self.noise_multiplier * self.sensitivity(units.bound)
        weights = np.repeat(self.start[:, None], len(clips), axis=1)
        sums: Integers = np.zeros(weights.shape, dtype=np.int64)
        path = np.empty((self.count // self.every, *weights.shape))
        for first, last in _chunks(self.count, self.every, self.width):
            batches = self.sampling.draw(table.n_records, last - first, secret)
            draws = noise.gaussian(scale, (last - first) * self.width).reshape(-1, self.width)
            weights = self._descend(data, units, batches, (clips, steps), draws, weights, sums)
            if last % self.every == 0:
                path[last // self.every - 1] = weights
        return path

    def _data(self, table: Any) -> tuple[Floats, Floats, Floats]:
        return *bounded_rows(table.doubles()), table.signed_target(self.positive_class)

    def _descend(
        self,
        data: tuple[Floats, Floats, Floats],
        units: Lattice,
        batches: tuple[Integers, Integers],
        settings: tuple[Floats, Floats],
        draws: Integers,
        weights: Floats,
        sums: Integers,
    ) -> Floats:
        kernel = compiled(stochastic_descent, type(self.loss), type(self.penalty), Lattice)
        after, size = weights.copy(), self.sampling.mean_size
        problem = self.loss, self.penalty, units
        kernel(*data, *problem, *batches, size, self.n_penalized, *settings, draws, after, sums)
        return after


@dataclass(frozen=True, eq=False)
class VarianceReducedSteps(_OnBatches):
    """An inner loop of DP-SVRG: steps along a released gradient, corrected by batches for the way gone since.

    A step is proximal, along g + mean over a batch of clip(∇ℓ_i(w) − ∇ℓ_i(v)) with g the released gradient at the
    snapshot v.

    Parameters
    ----------
    loss, penalty, n_penalized, positive_class
        As in `CoordinateUpdates`.
    sampling, count, step, noise_multiplier
        As in `GradientSteps`.
    columns, n_columns
        Columns that take part, the others being as good as absent, and the number of all columns of the data.
    snapshot, gradient
        v and g.
    start
        The point to start from; the loops of DP-SVRG start from the snapshot.
    smoothness
        M_j of each of `columns`.
    clip, growth
        A record's difference of gradients is clipped to norm min(growth·sqrt(Σ M_j (w_j − v_j)²), 2·clip): it shrinks
        with the way gone, and so does the noise.

    Notes
    -----
    Privacy. A record's difference of gradients is a number times its row, hence clipped to norm C as a gradient is in
    `GradientSteps`, to at most B + √p in lattice units: clipping the two gradients by themselves would allow twice
    that. C is a function of w and v, which were released before; where it is 0, nothing of the data is used. Noise,
    batches and composition are those of `GradientSteps`.
    """

    loss: Loss
    penalty: Penalty
    sampling: Sampling
    count: int
    n_penalized: int
    columns: NDArray[np.int64]
    clip: float
    growth: float
    step: float
    noise_multiplier: float
    snapshot: Floats
    gradient: Floats
    start: Floats
    smoothness: Floats
    n_columns: int
    positive_class: int | None = None

    description = "changes of gradients of batches"

    def __post_init__(self) -> None:
        arrays = ("snapshot", "gradient", "start", "smoothness")
        freeze(self, noise_multiplier=float, columns=np.int64, **dict.fromkeys(arrays, np.float64))
        for name in arrays:
            _check_columns(self.columns, self.n_columns, getattr(self, name))
        check_loss(self.loss)
        object.__setattr__(self, "penalty", sized(self.penalty, min(self.n_penalized, self.n_columns)))
        check_ordinary("clip", self.clip)

    @property
    def width(self) -> int:
        """Number of columns that take part."""
        return len(self.columns)

    @property
    def cost(self) -> PrivacyCost:
        """`count` sampled Gaussian releases, each with noise in every entry."""
        return self.count * self.sampling.cost(self.noise_multiplier, self.width)

    def sums(self, part: Any, lattice: Lattice) -> Integers:
        """What a batch of all records of the part adds to the first step."""
        sums: Integers = np.zeros(self.width, dtype=np.int64)
        no_noise: Integers = np.zeros((1, self.width), dtype=np.int64)
        weights, total = self.start.copy(), np.zeros(self.width)
        self._descend(self._data(part), lattice, _everybody(part), no_noise, weights, total, sums)
        return sums

    def run(self, table: Any, noise: NoiseSource) -> Floats:
        """Return the average of the iterates."""
        _check_shape(table, self.sampling.n_records, self.n_columns)
        units, data, secret = self.lattice(table.n_records), self._data(table), noise.generator()
        scale = self.noise_multiplier * self.sensitivity(units.bound)
        weights, total, sums = self.start.copy(), np.zeros(self.width), np.zeros(self.width, dtype=np.int64)
        for first, last in _chunks(self.count, self.count, self.width):
            batches = self.sampling.draw(table.n_records, last - first, secret)
            draws = noise.gaussian(scale, (last - first) * self.width).reshape(-1, self.width)
            self._descend(data, units, batches, draws, weights, total, sums)
        return total / self.count

    def _data(self, table: Any) -> tuple[Floats, Floats, Floats]:
        return *bounded_rows(table.doubles()[:, self.columns]), table.signed_target(self.positive_class)

    def _descend(
        self,
        data: tuple[Floats, Floats, Floats],
        units: Lattice,
        batches: tuple[Integers, Integers],
        draws: Integers,
        weights: Floats,
        total: Floats,
        sums: Integers,
    ) -> None:
        kernel = compiled(variance_reduced_descent, type(self.loss), type(self.penalty), Lattice)
        space = self.columns, self.n_penalized, self.smoothness
        settings = self.clip, self.growth, self.step, self.gradient, self.snapshot
        problem = *data, self.loss, self.penalty, units
        kernel(*problem, *batches, self.sampling.mean_size, *space, *settings, draws, weights, total, sums)


@dataclass(frozen=True, eq=False)
class DualSteps(_OnBatches):
    """A run of DP-SCD: noisy increments of all dual variables and of the primal vector, on secret lots of records.

    Parameters
    ----------
    loss, positive_class, every
        As in `GradientSteps`.
    sampling
        How lots are drawn.
    count
        Number of lots.
    clip
        Largest change |Δα_i| of a dual variable.
    penalty_strength
        λ of the penalty (λ/2)‖w‖².
    largest_norm
        Rows longer than this are scaled down to it.
    noise_multiplier
        Noise over the sensitivity of a step.
    n_columns
        Number of columns.

    Notes
    -----
    Privacy. Rows are divided by `largest_norm`, so that |x_i| ≤ 1. A step adds the lot's increments to the vector
    (α, v). Record i's own entry Δα_i is an integer in [−B, B], and its part Δα_i·x_i of v has norm at most B + √p, by
    the argument of `GradientSteps`. Replacing record i in a lot moves the two by at most 2B and 2(B + √p), together by
    at most 2√2(B + √p) in l2 norm. Exchanging it for record j of the table moves two entries of α by at most B each,
    which is less: √6(B + √p). All n + p entries get discrete Gaussian noise of z times that, whether or not a
    record was in the lot, and both noisy vectors count as released: a step depends on the past through them alone, so
    the lot is the only secret of a step and sampling amplifies it as usual.
    """

    loss: Loss
    sampling: FixedSize
    count: int
    clip: float
    penalty_strength: float
    largest_norm: float
    noise_multiplier: float
    n_columns: int
    positive_class: int | None = None
    every: int = 1

    description = "dual updates of lots"

    def __post_init__(self) -> None:
        freeze(self, noise_multiplier=float)
        check_loss(self.loss)
        for name in ("clip", "penalty_strength", "largest_norm"):
            check_ordinary(name, getattr(self, name))

    @property
    def width(self) -> int:
        """Number of columns."""
        return self.n_columns

    def sensitivity(self, bound: float) -> float:
        """2√2(B + √p), of a lot's increments of all dual variables and of the primal vector together."""
        return self.sampling.sensitivity * math.sqrt(2.0) * (bound + math.sqrt(self.width))

    def lattice(self, n_records: int) -> Lattice:
        """The units of the sums over all steps, which must not overflow either."""
        multipliers = self.noise_multiplier, self.noise_multiplier * math.sqrt(self.count)
        return lattice(max(n_records, self.count), self.sensitivity, multipliers, entries=self.width)

    @property
    def cost(self) -> PrivacyCost:
        """`count` sampled Gaussian releases, each with noise for every record and every column."""
        return self.count * self.sampling.cost(self.noise_multiplier, self.sampling.n_records + self.n_columns)

    def run(self, table: Any, noise: NoiseSource) -> Floats:
        """Return the weights after every `every` lots."""
        return self.paths(table, noise, np.array([self.clip]))[:, :, 0]

    def paths(self, table: Any, noise: NoiseSource, clips: Floats) -> Floats:
        """Paths of many clips on the same lots with the same noise, which is private for one of them only."""
        n_records, width = table.n_records, self.width
        _check_shape(table, self.sampling.n_records, width)
        units, data, secret = self.lattice(n_records), self.data(table), noise.generator()
        scale = self.noise_multiplier * self.sensitivity(units.bound)
        state = self.zeros(n_records, len(clips))
        path = np.empty((self.count // self.every, width, len(clips)))
        for first, last in _chunks(self.count, self.every, n_records + width):
            lots = self.sampling.draw(n_records, last - first, secret)
            draws = noise.gaussian(scale, (last - first) * (n_records + width)).reshape(last - first, -1)
            self.descend(data, units, lots, clips, draws, state)
            if last % self.every == 0:
                unit = clips / (units.bound * self._strength(n_records) * self.largest_norm)
                path[last // self.every - 1] = state[2] * unit
        return path

    def zeros(self, n_records: int, n_settings: int) -> tuple[Integers, Integers, Integers]:
        """The dual variables, their noise and the primal vector at the start, in lattice units."""
        shapes = (n_records, n_settings), (n_records,), (self.width, n_settings)
        dual, drift, total = (np.zeros(shape, dtype=np.int64) for shape in shapes)
        return dual, drift, total

    def data(self, table: Any) -> tuple[Floats, Floats, Floats]:
        """Rows of norm at most 1, their norms, and the target."""
        rows, norms = bounded_rows(table.doubles(), self.largest_norm)
        return rows / self.largest_norm, norms / self.largest_norm, table.signed_target(self.positive_class)

    def descend(
        self,
        data: tuple[Floats, Floats, Floats],
        units: Lattice,
        lots: tuple[Integers, Integers],
        clips: Floats,
        draws: Integers,
        state: tuple[Integers, Integers, Integers],
    ) -> None:
        """Move the state by some lots and their noise."""
        n_records = len(data[1])
        kernel = compiled(dual_descent, type(self.loss), Lattice)
        lot = *lots, self.sampling.mean_size, self._strength(n_records), clips
        kernel(*data, self.loss, units, *lot, draws[:, :n_records], draws[:, n_records:], *state)

    def _strength(self, n_records: int) -> float:
        """λn; the problem in x/R has weights R·w and the penalty (λ/R²)/2."""
        return self.penalty_strength / self.largest_norm**2 * n_records
