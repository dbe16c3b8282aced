"""Ranges and smoothness constants, learnt privately where they are not declared.

First the magnitude of every column from noisy histograms of its exponents, then its second moment within that range;
all columns, and the target, at once. Both releases are Gaussian and part of the same budget. How much of it they get
follows from n, p and μ.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpcd.losses import Loss
from dpcd.privacy import Curator
from dpcd.privacy.kernels import BUCKETS, LARGEST_EXPONENT
from dpcd.privacy.mechanisms import DyadicCounts, LaplaceSecondMoments, SecondMoments
from dpcd.solvers.problem import Floats

# A bucket this many noise deviations high belongs to the column once a window has been seen.
_PART_OF_COLUMN = 3.5
# Expected number of columns, and of targets, that get a range out of noise alone. A false range of the target ruins a
# fit, a false range of a feature costs one column.
_FALSE_FEATURES = 0.1
_FALSE_TARGETS = 1e-5


class Smoothness(Protocol):
    """A way to learn second moments; solvers multiply them by the loss's curvature to get M_j."""

    def second_moments(
        self,
        curator: Curator,
        columns: NDArray[np.int64],
        ranges: Floats,
        target_range: float | None,
        room: float,
    ) -> Floats:
        """Estimates of mean min(|x|, range)², never below the noise in them; the target's last, if it has a range."""


@dataclass(frozen=True)
class GaussianSmoothness:
    """All second moments in one Gaussian release inside the fit's own budget.

    Parameters
    ----------
    share
        Part of μ² to spend. None: what makes the noise about .003 of the range, between .5 % and 6 %.
    """

    share: float | None = None

    def __post_init__(self) -> None:
        _check_share(self.share)

    def second_moments(
        self,
        curator: Curator,
        columns: NDArray[np.int64],
        ranges: Floats,
        target_range: float | None,
        room: float,
    ) -> Floats:
        """One `SecondMoments` release."""
        size = len(columns) + (target_range is not None)
        share = self.share or _share(size, 0.003 * curator.n_records, room, 0.005, 0.06)
        mechanism = SecondMoments(columns, ranges, target_range, 1.0 / math.sqrt(share * room))
        return _floored(curator.release(mechanism), mechanism, curator.n_records)


@dataclass(frozen=True)
class LaplaceSmoothness:
    """The paper's way: ε' = share·ε for the Laplace mechanism, with the floor that its noise makes necessary.

    Parameters
    ----------
    share
        Part of ε to spend.
    """

    share: float = 0.1

    def __post_init__(self) -> None:
        _check_share(self.share)

    def second_moments(
        self,
        curator: Curator,
        columns: NDArray[np.int64],
        ranges: Floats,
        target_range: float | None,
        room: float,
    ) -> Floats:
        """One `LaplaceSecondMoments` release."""
        mechanism = LaplaceSecondMoments(columns, ranges, target_range, self.share * curator.budget.epsilon)
        return _floored(curator.release(mechanism), mechanism, curator.n_records)


def _check_share(share: float | None) -> None:
    if share is not None and not 0.0 < share < 1.0:
        raise ValueError(f"share must lie strictly between 0 and 1, got {share!r}")


def _floored(moments: Floats, mechanism: SecondMoments | LaplaceSecondMoments, n_records: int) -> Floats:
    """Undo the scaling by ranges. A moment is never believed below its own noise: steps 1/M_j would explode."""
    ranges = mechanism.ranges
    if mechanism.target_range is not None:
        ranges = np.append(ranges, mechanism.target_range)
    floor = max(mechanism.noise_level(n_records), np.finfo(float).tiny)
    return np.clip(moments, min(floor, 1.0), 1.0) * ranges**2


def _share(size: int, resolution: float, room: float, least: float, most: float) -> float:
    """Part of μ² that makes noise of sqrt(size)/μ' small against `resolution`, within limits."""
    if math.isinf(room):
        return least
    return min(max(size / (resolution**2 * room), least), most)


class _Ranges(NamedTuple):
    """How columns are clipped and shifted, and the largest |x| that is left of what was declared or seen."""

    lower: Floats
    upper: Floats
    center: Floats
    magnitude: Floats

    @classmethod
    def declared(cls, bounds: tuple[ArrayLike, ArrayLike], centered: bool) -> _Ranges:
        lower, upper = np.array(bounds[0], dtype=float, ndmin=1), np.array(bounds[1], dtype=float, ndmin=1)
        center = lower / 2.0 + upper / 2.0 if centered else np.zeros_like(lower)
        return cls(lower, upper, center, np.maximum(abs(lower - center), abs(upper - center)))

    @classmethod
    def learnt(cls, magnitude: Floats) -> _Ranges:
        # Values up to twice what the histogram shows are left alone: the fit's own clip deals with them.
        return cls(-2.0 * magnitude, 2.0 * magnitude, np.zeros_like(magnitude), magnitude)


@dataclass(frozen=True, eq=False)
class Declared:
    """What the user states to be known without looking at the data; None is learnt, if anybody needs it.

    Parameters
    ----------
    feature_bounds, target_bounds
        (lower, upper), arrays for the features and numbers for the target.
    smoothness
        M_j of each feature, or the way to learn them.
    """

    feature_bounds: tuple[Floats, Floats] | None
    target_bounds: tuple[float, float] | None
    smoothness: Floats | Smoothness


@dataclass(frozen=True, eq=False)
class Scales:
    """What solvers need to know about the columns, declared or released: see `Problem`.

    Parameters
    ----------
    smoothness, slope
        As in `Problem`.
    center, target_center
        What was subtracted from the features and from the target.
    """

    smoothness: Floats
    slope: float | None
    center: Floats
    target_center: float


def prepare(
    curator: Curator, loss: Loss, declared: Declared, n_features: int, intercept: bool, needs_slope: bool
) -> Scales:
    """Clip the data to their ranges and find the columns' smoothness, releasing only what is needed for it."""
    room = curator.gaussian_room
    known = declared.smoothness if isinstance(declared.smoothness, np.ndarray) else None
    learn = GaussianSmoothness() if isinstance(declared.smoothness, np.ndarray) else declared.smoothness
    learns_moments = known is None
    learns_slope = needs_slope and math.isinf(loss.lipschitz)
    features = target = None
    # With an intercept a shift is a reparametrisation, and one by public numbers is free: around the middle of their
    # bounds columns are smaller and less aligned with the intercept. Declared M_j belong to the columns as they are.
    if declared.feature_bounds is not None:
        features = _Ranges.declared(declared.feature_bounds, centered=intercept and learns_moments)
    if declared.target_bounds is not None:
        target = _Ranges.declared(declared.target_bounds, centered=intercept)
    unknown_features = n_features if learns_moments and features is None else 0
    unknown_target = learns_slope and target is None
    if unknown_features or unknown_target:
        magnitudes = _learn_magnitudes(curator, unknown_features, unknown_target, room)
        features = _Ranges.learnt(magnitudes[:unknown_features]) if unknown_features else features
        target = _Ranges.learnt(magnitudes[unknown_features:]) if unknown_target else target
    if features is not None:
        curator.clip_features(features.lower, features.upper, features.center)
    if target is not None:
        curator.clip_target(float(target.lower[0]), float(target.upper[0]), float(target.center[0]))

    slope = loss.lipschitz if needs_slope else None
    visible = np.flatnonzero(features.magnitude > 0.0) if learns_moments and features is not None else np.arange(0)
    target_range = float(target.magnitude[0]) if learns_slope and target is not None else 0.0
    moments = np.zeros(n_features)
    if len(visible) or target_range > 0.0:
        ranges = features.magnitude[visible] if features is not None else np.zeros(0)
        learnt = learn.second_moments(curator, visible, ranges, target_range or None, room)
        moments[visible] = learnt[: len(visible)]
        if target_range > 0.0:
            slope = math.sqrt(learnt[-1])
    smoothness = loss.curvature * moments if known is None else known
    if intercept:
        smoothness = np.append(smoothness, loss.curvature)
    if learns_slope and target_range == 0.0:
        # Nothing of the target can be seen at this budget. Every column stays out: the zero model.
        smoothness = np.zeros_like(smoothness)
    return Scales(
        smoothness,
        slope,
        np.zeros(n_features) if features is None else features.center,
        0.0 if target is None else float(target.center[0]),
    )


def target_rms(curator: Curator, room: float) -> float | None:
    """Root mean square of the target, for a small part of `room`, and with the data left as they are.

    None where nothing of the target can be seen at this budget.
    """
    (magnitude,) = _learn_magnitudes(curator, 0, True, room)
    if magnitude == 0.0:
        return None
    nothing = np.arange(0)
    return math.sqrt(GaussianSmoothness().second_moments(curator, nothing, np.zeros(0), magnitude, room)[0])


def _learn_magnitudes(curator: Curator, n_features: int, with_target: bool, room: float) -> Floats:
    """Power of two b_j ≥ |x_j| for all but a few records, the target's last; 0 where nothing can be seen."""
    size = n_features + with_target
    share = _share(2 * size, 0.01 * curator.n_records, room, 0.005, 0.12)
    mechanism = DyadicCounts(n_features, with_target, 1.0 / math.sqrt(share * room))
    counts = curator.release(mechanism)
    false_alarms = np.full(size, _FALSE_FEATURES)
    if with_target:
        false_alarms[-1] = _FALSE_TARGETS
    levels = false_alarms / (4 * BUCKETS * size)
    return np.array([_range(row, mechanism.noise_level, level) for row, level in zip(counts, levels, strict=True)])


def _range(counts: Floats, noise: float, level: float) -> float:
    """Twice the highest power of two at which a noisy histogram is more than noise; 0 if it nowhere is.

    A column is visible when the sum of some 1 … 4 adjacent buckets is beyond what noise reaches with probability
    `level`. Its range then extends to the highest bucket that stands out by itself.
    """
    if noise == 0.0:
        occupied = np.flatnonzero(counts > 0.0)
        return math.ldexp(1.0, int(occupied[-1]) - LARGEST_EXPONENT + 1) if len(occupied) else 0.0
    threshold = noise * math.sqrt(2.0 * math.log(1.0 / level))
    best: tuple[int, int] | None = None
    for width in range(1, 5):
        sums = np.convolve(counts, np.ones(width), mode="valid")
        visible = np.flatnonzero(sums >= math.sqrt(width) * threshold)
        if len(visible) and (best is None or visible[-1] + width > sum(best)):
            best = (int(visible[-1]), width)
    if best is None:
        return 0.0
    start, width = best
    window = counts[start : start + width]
    standing = np.flatnonzero(window >= _PART_OF_COLUMN * noise)
    top = start + int(standing[-1] if len(standing) else np.argmax(window))
    while top + 1 < BUCKETS and counts[top + 1] >= _PART_OF_COLUMN * noise:
        top += 1
    return math.ldexp(1.0, top - LARGEST_EXPONENT + 1)
