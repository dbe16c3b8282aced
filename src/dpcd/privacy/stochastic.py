"""Mechanisms on secret batches of records: DP-SGD, DP-SVRG and DP-SCD, the rivals that DP-CD is compared with."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dpcd.compilation import compiled
from dpcd.losses import Loss
from dpcd.penalties import Penalty
from dpcd.privacy import kernels
from dpcd.privacy.accounting import PrivacyCost
from dpcd.privacy.kernels import Lattice
from dpcd.privacy.mechanisms import Columns, Floats, check_loss, check_multipliers, frozen, lattice
from dpcd.privacy.noise import NoiseSource
from dpcd.privacy.sampling import FixedSize, Sampling


def _check_ordinary(name: str, value: float) -> None:
    """Refuse what a division or a product could turn into infinity or zero."""
    if not 1e-150 <= value <= 1e150:
        raise ValueError(f"{name} must be a number between 1e-150 and 1e150, got {value}")


def _check_shape(data: Columns, n_records: int, n_columns: int) -> None:
    """Refuse data other than those that the cost was computed for; both numbers are public."""
    if data.features.shape != (n_records, n_columns):
        raise ValueError(f"made for {n_records} records and {n_columns} columns, not for {data.features.shape}")


def _check_columns(columns: NDArray[np.int64], n_columns: int, values: Floats) -> None:
    """Refuse columns that are not there, or come twice, or values for other columns."""
    if not (columns.ndim == 1 and len(columns) and np.all(np.diff(columns) > 0)):
        raise ValueError("columns must be increasing, and there must be one")
    if not (columns[0] >= 0 and columns[-1] < n_columns <= 10**7):
        raise ValueError(f"columns must lie in 0 … {n_columns - 1}, and be at most 10 million")
    if values.shape != columns.shape:
        raise ValueError(f"need one value for each of {len(columns)} columns, got shape {values.shape}")


def _chunks(count: int, every: int, width: int) -> Iterator[tuple[int, int]]:
    """Ranges of steps that end at every multiple of `every`, or earlier where their noise would take over 32 MiB."""
    first = 0
    while first < count:
        last = min(first - first % every + every, first + max(1, 2**22 // width), count)
        yield first, last
        first = last


class _OnBatches:
    """What mechanisms on secret batches have in common."""

    sampling: Sampling
    noise_multiplier: float

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
        object.__setattr__(self, "noise_multiplier", float(self.noise_multiplier))
        object.__setattr__(self, "start", frozen(self.start, np.float64))
        check_multipliers(self.noise_multiplier)
        check_loss(self.loss)
        _check_ordinary("clip", self.clip)
        if len(self.start) > 10**7:
            raise ValueError("more than 10 million columns are beyond the analysis of rounding")

    @property
    def cost(self) -> PrivacyCost:
        """`count` sampled Gaussian releases, each with noise in every entry."""
        return self.count * self.sampling.cost(self.noise_multiplier, len(self.start))

    def run(self, data: Columns, noise: NoiseSource) -> Floats:
        """Return the weights after every `every` steps."""
        return self.paths(data, noise, np.array([self.clip]), np.array([self.step]))[:, :, 0]

    def paths(self, data: Columns, noise: NoiseSource, clips: Floats, steps: Floats) -> Floats:
        """Paths of many settings on the same batches with the same noise, which is private for one of them only."""
        _check_shape(data, self.sampling.n_records, len(self.start))
        scale = self.noise_multiplier * self.sampling.sensitivity
        encoder = lattice(data.n_records, scale, scale)
        rows, norms = data.bounded_rows()
        target = data.signed_target(self.positive_class)
        kernel = compiled(kernels.stochastic_descent, type(self.loss), type(self.penalty), Lattice)
        secret = noise.generator()
        width = len(self.start)
        scale *= encoder.bound + math.sqrt(width)
        weights = np.repeat(self.start[:, None], len(clips), axis=1)
        path = np.empty((self.count // self.every, *weights.shape))
        for first, last in _chunks(self.count, self.every, width):
            members, starts = self.sampling.draw(data.n_records, last - first, secret)
            draws = noise.gaussian(scale, (last - first) * width).reshape(-1, width)
            batch = members, starts, self.sampling.mean_size
            settings = self.n_penalized, clips, steps
            kernel(rows, norms, target, self.loss, self.penalty, encoder, *batch, *settings, draws, weights)
            if last % self.every == 0:
                path[last // self.every - 1] = weights
        return path


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
        object.__setattr__(self, "noise_multiplier", float(self.noise_multiplier))
        object.__setattr__(self, "columns", frozen(self.columns, np.int64))
        for name in ("snapshot", "gradient", "start", "smoothness"):
            object.__setattr__(self, name, frozen(getattr(self, name), np.float64))
            _check_columns(self.columns, self.n_columns, getattr(self, name))
        check_multipliers(self.noise_multiplier)
        check_loss(self.loss)
        _check_ordinary("clip", self.clip)

    @property
    def cost(self) -> PrivacyCost:
        """`count` sampled Gaussian releases, each with noise in every entry."""
        return self.count * self.sampling.cost(self.noise_multiplier, len(self.columns))

    def run(self, data: Columns, noise: NoiseSource) -> Floats:
        """Return the average of the iterates."""
        _check_shape(data, self.sampling.n_records, self.n_columns)
        scale = self.noise_multiplier * self.sampling.sensitivity
        encoder = lattice(data.n_records, scale, scale)
        width = len(self.columns)
        scale *= encoder.bound + math.sqrt(width)
        rows, norms = data.bounded_rows(columns=self.columns)
        target = data.signed_target(self.positive_class)
        kernel = compiled(kernels.variance_reduced_descent, type(self.loss), type(self.penalty), Lattice)
        secret = noise.generator()
        weights, total = self.start.copy(), np.zeros(width)
        for first, last in _chunks(self.count, self.count, width):
            batch = *self.sampling.draw(data.n_records, last - first, secret), self.sampling.mean_size
            draws = noise.gaussian(scale, (last - first) * width).reshape(-1, width)
            space = self.columns, self.n_penalized, self.smoothness
            settings = self.clip, self.growth, self.step, self.gradient, self.snapshot
            problem = rows, norms, target, self.loss, self.penalty, encoder
            kernel(*problem, *batch, *space, *settings, draws, weights, total)
        return total / self.count


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
        object.__setattr__(self, "noise_multiplier", float(self.noise_multiplier))
        check_multipliers(self.noise_multiplier)
        check_loss(self.loss)
        for name in ("clip", "penalty_strength", "largest_norm"):
            _check_ordinary(name, getattr(self, name))

    @property
    def cost(self) -> PrivacyCost:
        """`count` sampled Gaussian releases, each with noise for every record and every column."""
        return self.count * self.sampling.cost(self.noise_multiplier, self.sampling.n_records + self.n_columns)

    def run(self, data: Columns, noise: NoiseSource) -> Floats:
        """Return the weights after every `every` lots."""
        return self.paths(data, noise, np.array([self.clip]))[:, :, 0]

    def paths(self, data: Columns, noise: NoiseSource, clips: Floats) -> Floats:
        """Paths of many clips on the same lots with the same noise, which is private for one of them only."""
        n_records = data.n_records
        _check_shape(data, self.sampling.n_records, self.n_columns)
        scale = self.noise_multiplier * self.sampling.sensitivity * math.sqrt(2.0)
        # α and v are sums over all steps, and must not overflow either.
        encoder = lattice(max(n_records, self.count), scale, scale * math.sqrt(self.count))
        rows, norms = data.bounded_rows(self.largest_norm)
        rows /= self.largest_norm
        norms /= self.largest_norm
        # The problem in x/R has weights R·w and the penalty (λ/R²)/2.
        strength = self.penalty_strength / self.largest_norm**2 * n_records
        target = data.signed_target(self.positive_class)
        kernel = compiled(kernels.dual_descent, type(self.loss), Lattice)
        secret = noise.generator()
        width = rows.shape[1]
        scale = self.noise_multiplier * (
            self.sampling.sensitivity * math.sqrt(2.0) * (encoder.bound + math.sqrt(width))
        )
        dual: NDArray[np.int64] = np.zeros((n_records, len(clips)), dtype=np.int64)
        drift: NDArray[np.int64] = np.zeros(n_records, dtype=np.int64)
        total: NDArray[np.int64] = np.zeros((width, len(clips)), dtype=np.int64)
        path = np.empty((self.count // self.every, *total.shape))
        for first, last in _chunks(self.count, self.every, n_records + width):
            members, starts = self.sampling.draw(n_records, last - first, secret)
            draws = noise.gaussian(scale, (last - first) * (n_records + width)).reshape(last - first, -1)
            lot = members, starts, self.sampling.mean_size, strength, clips
            noises = draws[:, :n_records], draws[:, n_records:]
            kernel(rows, norms, target, self.loss, encoder, *lot, *noises, dual, drift, total)
            if last % self.every == 0:
                path[last // self.every - 1] = total * (clips / (encoder.bound * strength * self.largest_norm))
        return path
