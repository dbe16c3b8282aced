"""Ranges, centres and smoothness constants, learnt privately where they are not declared.

First the magnitude of every column from noisy histograms of its exponents; with an intercept, then its mean, and its
magnitude around that; last its second moment within the range. All columns, and the target, at once. Every release is
Gaussian and part of the same budget. How much of it they get follows from n, p and μ.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpcd.losses import Loss
from dpcd.privacy import Curator
from dpcd.privacy.kernels import BUCKETS, LARGEST_EXPONENT
from dpcd.privacy.mechanisms import ClippedMeans, DyadicCounts, LaplaceSecondMoments, SecondMoments
from dpcd.solvers.problem import Floats

# A bucket this many noise deviations high belongs to the column once a window has been seen.
_PART_OF_COLUMN = 3.5
# Expected number of columns, and of targets, that get a range out of noise alone. A false range of the target ruins a
# fit, a false range of a feature costs one column.
_FALSE_FEATURES = 0.1
_FALSE_TARGETS = 1e-5
# Flags are the commonest columns of all: half of the false alarms are allowed at the bucket of 1, which makes a rare
# flag visible at two thirds of the records it would otherwise take.
_FLAG_BUCKET = LARGEST_EXPONENT
# Most of μ² for one look at the magnitudes of all columns; and, for each column that is looked at again.
_MOST_MAGNITUDES, _MOST_AGAIN = 0.12, 0.02
# Values are clipped at so many times what a histogram shows of them. With more, models of long-tailed columns owe too
# much to a few records; with less, too little is left of columns of which a small budget shows only the middle.
_BEYOND_WHAT_SHOWS = 2.0
# A mean counts as different from zero from so many noise deviations on; a histogram around it has the last word.
_SIGNIFICANT_MEAN = 2.5
_MOST_ROUNDS = 4
# A column this many deviations of the noise in its centre wide is mostly that noise.
_MOSTLY_NOISE = 16.0


class Smoothness(Protocol):
    """A way to learn second moments; solvers multiply them by the loss's curvature to get M_j."""

    def second_moments(
        self,
        curator: Curator,
        columns: NDArray[np.int64],
        ranges: Floats,
        target_range: float | None,
        room: float,
    ) -> tuple[Floats, Floats]:
        """Estimates of mean min(|x|, range)², never below the noise in them, and the deviation of that noise.

        The target's come last, if it has a range.
        """


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
    ) -> tuple[Floats, Floats]:
        """One `SecondMoments` release."""
        size = len(columns) + (target_range is not None)
        share = self.share or moments_share(curator.n_records, size, room)
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
    ) -> tuple[Floats, Floats]:
        """One `LaplaceSecondMoments` release."""
        mechanism = LaplaceSecondMoments(columns, ranges, target_range, self.share * curator.budget.epsilon)
        return _floored(curator.release(mechanism), mechanism, curator.n_records)


def _check_share(share: float | None) -> None:
    if share is not None and not 0.0 < share < 1.0:
        raise ValueError(f"share must lie strictly between 0 and 1, got {share!r}")


def _floored(moments: Floats, mechanism: SecondMoments | LaplaceSecondMoments, n_records: int) -> tuple[Floats, Floats]:
    """Undo the scaling by ranges. A moment is never believed below its own noise: steps 1/M_j would explode."""
    ranges = mechanism.ranges
    if mechanism.target_range is not None:
        ranges = np.append(ranges, mechanism.target_range)
    noise = mechanism.noise_level(n_records)
    floor = min(max(noise, np.finfo(float).tiny), 1.0)
    return np.clip(moments, floor, 1.0) * ranges**2, noise * ranges**2


def _share(size: int, resolution: float, room: float, least: float, most: float) -> float:
    """Part of μ² that makes noise of sqrt(size)/μ' small against `resolution`, within limits."""
    if math.isinf(room):
        return least
    return min(max(size / (resolution**2 * room), least), most)


def magnitudes_share(n_records: int, size: int, room: float, least: float = 0.005) -> float:
    """Part of μ² for the histograms of so many columns, from public numbers."""
    return _share(2 * size, 0.005 * n_records, room, least, _MOST_MAGNITUDES)


def means_share(n_records: int, size: int, room: float) -> float:
    """Part of μ² for the means of so many columns, from public numbers."""
    return _share(4 * size, 0.01 * n_records, room, 0.005, min(0.06, 0.02 + 0.01 * size))


def moments_share(n_records: int, size: int, room: float) -> float:
    """Part of μ² for the second moments of so many columns, from public numbers."""
    return _share(size, 0.003 * n_records, room, 0.005, 0.06)


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
class Range:
    """How columns are clipped and shifted, every number of it declared or released.

    Parameters
    ----------
    lower, upper
        What values are clipped to.
    center
        What is subtracted afterwards.
    magnitude
        Largest |x − center| of what was declared, or of what can be seen; 0 for a column of which nothing can.
    """

    lower: Floats
    upper: Floats
    center: Floats
    magnitude: Floats

    @classmethod
    def declared(cls, bounds: tuple[ArrayLike, ArrayLike], centered: bool) -> Range:
        """Declared bounds, and their middle as the centre if there is to be one."""
        lower, upper = np.array(bounds[0], dtype=float, ndmin=1), np.array(bounds[1], dtype=float, ndmin=1)
        center = lower / 2.0 + upper / 2.0 if centered else np.zeros_like(lower)
        return cls(lower, upper, center, np.maximum(abs(lower - center), abs(upper - center)))

    @classmethod
    def learnt(cls, magnitude: Floats, center: Floats) -> Range:
        """Around a centre, up to twice what a histogram shows."""
        reach = _BEYOND_WHAT_SHOWS * magnitude
        return cls(center - reach, center + reach, center, magnitude)


@dataclass(frozen=True, eq=False)
class Scales:
    """What solvers and models need to know about the columns, declared or released.

    Parameters
    ----------
    smoothness, slope, uncertainty
        As in `Problem`.
    features, target
        Ranges; None where the data are left as they are.
    """

    smoothness: Floats
    slope: float | None
    uncertainty: Floats
    features: Range | None
    target: Range | None

    @property
    def target_center(self) -> float:
        """What was subtracted from the target."""
        return 0.0 if self.target is None else float(self.target.center[0])


def prepare(
    curator: Curator,
    loss: Loss,
    declared: Declared,
    n_features: int,
    intercept: bool,
    needs_slope: bool,
    numeric_target: bool = True,
) -> Scales:
    """Clip and centre the data, and find the columns' smoothness, releasing only what is needed for it.

    With an intercept a shift is a reparametrisation, and around their centre columns are smaller and less aligned with
    the intercept. Around the middle of declared bounds it is free. Declared M_j belong to the columns as they are.
    """
    room = curator.gaussian_room
    known = declared.smoothness if isinstance(declared.smoothness, np.ndarray) else None
    learn = GaussianSmoothness() if isinstance(declared.smoothness, np.ndarray) else declared.smoothness
    learns_slope = needs_slope and math.isinf(loss.lipschitz)
    features = target = None
    if declared.feature_bounds is not None:
        features = Range.declared(declared.feature_bounds, centered=intercept and known is None)
    if declared.target_bounds is not None:
        target = Range.declared(declared.target_bounds, centered=intercept)
    unknown_features = n_features if known is None and features is None else 0
    # Who declares M_j knows the data well, and is not charged for a centre that nobody asked for.
    unknown_target = numeric_target and target is None and (learns_slope or (intercept and known is None))
    if unknown_features or unknown_target:
        learnt = _learn_ranges(curator, unknown_features, unknown_target, intercept, room)
        features = _part(learnt, slice(unknown_features)) if unknown_features else features
        target = _part(learnt, slice(unknown_features, None)) if unknown_target else target
    # What was learnt has been shifted to its centre already.
    if features is not None:
        shifted = features.center if unknown_features else np.zeros(n_features)
        curator.clip_features(features.lower - shifted, features.upper - shifted, features.center - shifted)
    if target is not None and np.all(target.magnitude > 0.0):
        center = float(target.center[0])
        gone = center if unknown_target else 0.0
        curator.clip_target(float(target.lower[0]) - gone, float(target.upper[0]) - gone, center - gone)

    slope = loss.lipschitz if needs_slope else None
    visible = np.flatnonzero(features.magnitude > 0.0) if known is None and features is not None else np.arange(0)
    target_range = float(target.magnitude[0]) if learns_slope and target is not None else 0.0
    moments, noise = np.zeros(n_features), np.zeros(n_features)
    if len(visible) or target_range > 0.0:
        ranges = features.magnitude[visible] if features is not None else np.zeros(0)
        found, deviations = learn.second_moments(curator, visible, ranges, target_range or None, room)
        moments[visible], noise[visible] = found[: len(visible)], deviations[: len(visible)]
        if target_range > 0.0:
            slope = math.sqrt(found[-1])
    smoothness = loss.curvature * moments if known is None else known
    uncertainty = np.divide(noise, moments, out=np.zeros(n_features), where=moments > 0.0)
    if intercept:
        smoothness, uncertainty = np.append(smoothness, loss.curvature), np.append(uncertainty, 0.0)
    if learns_slope and target_range == 0.0:
        # Nothing of the target can be seen at this budget. Every column stays out: the zero model.
        smoothness = np.zeros_like(smoothness)
    return Scales(smoothness, slope, uncertainty, features, target)


def _part(ranges: Range, which: slice) -> Range:
    return Range(ranges.lower[which], ranges.upper[which], ranges.center[which], ranges.magnitude[which])


def _learn_ranges(curator: Curator, n_features: int, with_target: bool, centered: bool, room: float) -> Range:
    """Ranges of the features and of the target (last), around zero or around centres of their own.

    The columns are shifted to their centres.
    """
    magnitude, center = learn_magnitudes(curator, n_features, with_target, room), np.zeros(n_features + with_target)
    if centered:

        def magnitudes(columns: NDArray[np.int64], target: bool, around: Floats) -> Floats:
            # Few columns are asked for again, so little is needed to see them.
            most = min(_MOST_AGAIN * (len(columns) + target), _MOST_MAGNITUDES)
            return learn_magnitudes(curator, columns, target, room, around, most_share=most)

        magnitude, center = close_in(curator, magnitude, with_target, room, magnitudes)
    return Range.learnt(magnitude, center)


def close_in(
    curator: Curator,
    magnitude: Floats,
    with_target: bool,
    room: float,
    magnitudes: Callable[[NDArray[np.int64], bool, Floats], Floats],
) -> tuple[Floats, Floats]:
    """Magnitudes around centres, and the centres, from magnitudes around zero, the target's last; columns are shifted.

    A mean is off by its noise, which is in proportion to the column's magnitude: far from zero it takes a few rounds to
    close in, each of which divides the distance by ten or more. Columns whose spread cannot be told from the noise in
    their centre get a further round. What is asked depends on what was released.

    Parameters
    ----------
    curator, room
        Where the data are, and the μ² that shares are parts of.
    magnitude, with_target
        What was seen around zero.
    magnitudes
        Learns magnitudes of some columns, and perhaps of the target, around given centres.
    """
    n_features = len(magnitude) - with_target
    center, blurred = np.zeros_like(magnitude), magnitude > 0.0
    for _ in range(_MOST_ROUNDS):
        if not blurred.any():
            break
        shift, deviation = learn_centers(curator, np.where(blurred, magnitude, 0.0), with_target, room)
        moved = np.flatnonzero(shift)
        # Where no mean stands out there is nothing new to see.
        if not len(moved):
            break
        target_moved = with_target and moved[-1] == n_features
        around = magnitude.copy()
        around[moved] = magnitudes(moved[: len(moved) - target_moved], bool(target_moved), shift[moved])
        # A centre is none if the column is larger around it, or out of sight.
        better = (shift != 0.0) & (around > 0.0) & (around <= magnitude)
        shift[~better] = 0.0
        shift_features(curator, shift[:n_features])
        if with_target:
            curator.clip_target(-math.inf, math.inf, float(shift[-1]))
        center += shift
        blurred = better & (around < magnitude) & (around <= _MOSTLY_NOISE * deviation)
        magnitude = np.where(better, around, magnitude)
    return magnitude, center


def shift_features(curator: Curator, shift: Floats) -> None:
    """Subtract released numbers from the features, and clip nothing."""
    everywhere = np.full_like(shift, math.inf)
    curator.clip_features(-everywhere, everywhere, shift)


def learn_centers(curator: Curator, magnitude: Floats, with_target: bool, room: float) -> tuple[Floats, Floats]:
    """Means of columns of these magnitudes, the target's last, and the deviation of the noise in them.

    The mean of a column with magnitude 0 is not asked for, and that of one whose mean does not stand out is 0.
    """
    seen = np.flatnonzero(magnitude > 0.0)
    is_target = with_target and seen[-1] == len(magnitude) - 1
    columns = seen[: len(seen) - is_target]
    share = means_share(curator.n_records, len(seen), room)
    mechanism = ClippedMeans(
        columns,
        2.0 * magnitude[columns],
        2.0 * float(magnitude[-1]) if is_target else None,
        1.0 / math.sqrt(share * room),
    )
    means = curator.release(mechanism)
    noise = mechanism.noise_level(curator.n_records)
    means[np.abs(means) <= _SIGNIFICANT_MEAN * noise] = 0.0
    center = np.zeros_like(magnitude)
    center[seen] = 2.0 * magnitude[seen] * np.clip(means, -1.0, 1.0)
    return center, 2.0 * magnitude * noise


def target_rms(curator: Curator, room: float) -> float | None:
    """Root mean square of the target, for a small part of `room`, and with the data left as they are.

    None where nothing of the target can be seen at this budget.
    """
    (magnitude,) = learn_magnitudes(curator, 0, True, room)
    if magnitude == 0.0:
        return None
    nothing = np.arange(0)
    found, _ = GaussianSmoothness().second_moments(curator, nothing, np.zeros(0), magnitude, room)
    return math.sqrt(found[0])


def learn_magnitudes(
    curator: Curator,
    columns: NDArray[np.int64] | int,
    with_target: bool,
    room: float,
    center: Floats | None = None,
    least_share: float = 0.005,
    false_features: float = _FALSE_FEATURES,
    most_share: float = _MOST_MAGNITUDES,
) -> Floats:
    """Power of two b_j ≥ |x_j − center_j| for all but a few records, the target's last; 0 where nothing is seen.

    It takes the part of μ² that makes the noise about .005 of the records, between `least_share` and `most_share`. At
    most `false_features` columns are expected to get a range out of noise alone, or a far larger one than theirs.
    """
    size = (columns if isinstance(columns, int) else len(columns)) + with_target
    share = min(magnitudes_share(curator.n_records, size, room, least_share), most_share)
    mechanism = DyadicCounts(columns, with_target, 1.0 / math.sqrt(share * room), center)
    counts = curator.release(mechanism)
    false_alarms = np.full(size, false_features)
    if with_target:
        false_alarms[-1] = _FALSE_TARGETS
    levels = _levels(false_alarms, size)
    rows = zip(counts, *levels, strict=True)
    return np.array([_range(row, mechanism.noise_level, level, flag_level) for row, level, flag_level in rows])


def _levels(false_alarms: Any, size: int) -> tuple[Any, Any]:
    """Probabilities with which a window, and the bucket of 1, may be noise, for so many false alarms in all columns.

    Half of them at the bucket of 1, half at all windows of 1 … 4 buckets together.
    """
    return false_alarms / (2 * 4 * BUCKETS * size), false_alarms / (2 * size)


def _deviations(level: float) -> float:
    """Deviations of noise that noise reaches with this probability at most."""
    return math.sqrt(2.0 * math.log(1.0 / level))


@dataclass(frozen=True)
class Visibility:
    """What part of the records must show something for a column to be seen, from public numbers alone.

    Parameters
    ----------
    noise
        Standard deviation of the noise in a count, as a part of the records.
    column
        Part of the records within some four octaves from which on a numeric column is likely to be seen.
    flag
        Part of the records that are 1 from which on a column of zeros and ones is.
    """

    noise: float
    column: float
    flag: float

    @classmethod
    def of(cls, n_records: int, size: int, room: float) -> Visibility:
        """For so many columns whose magnitudes are learnt, the target included, with all of μ² to come."""
        if math.isinf(room):
            return cls(0.0, 0.0, 0.0)
        noise = math.sqrt(2.0 * size / (magnitudes_share(n_records, size, room) * room)) / n_records
        window, flag = map(_deviations, _levels(_FALSE_FEATURES, size))
        return cls(noise, math.sqrt(4.0) * window * noise, flag * noise)


def _range(counts: Floats, noise: float, level: float, flag_level: float) -> float:
    """Twice the highest power of two at which a noisy histogram is more than noise; 0 if it nowhere is.

    A column is visible when the sum of some 1 … 4 adjacent buckets is beyond what noise reaches with probability
    `level`, or the bucket of 1 by itself beyond what it reaches with probability `flag_level`. Its range then extends
    to the highest bucket that stands out by itself.
    """
    if noise == 0.0:
        occupied = np.flatnonzero(counts > 0.0)
        return math.ldexp(1.0, int(occupied[-1]) - LARGEST_EXPONENT + 1) if len(occupied) else 0.0
    threshold = noise * _deviations(level)
    best: tuple[int, int] | None = None
    if counts[_FLAG_BUCKET] >= noise * _deviations(flag_level):
        best = (_FLAG_BUCKET, 1)
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
