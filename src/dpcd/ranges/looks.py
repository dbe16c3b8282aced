"""Where columns lie and how far they spread, learnt privately.

A look is a noisy histogram of signs and octaves around a center. The first is around zero, or the bound next to it, and
those after it are around what the one before them found, at columns only of which it showed too little. Then come
clipped means, where noise leaves something of them. The target has looks of its own: it matters more than any column,
and is one number. Bounds that were declared are believed, and the range inside them that values really take is learnt.
Every release is Gaussian and part of the same budget. How much of it they get follows from n, p and μ.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpcd.policy import POLICY
from dpcd.privacy import Curator
from dpcd.privacy.columns import ClippedMeans, DyadicCounts
from dpcd.privacy.kernels import CELLS
from dpcd.privacy.lattice import Floats
from dpcd.ranges.histograms import Reading, folded

# Noise in counts that is none.
_NO_NOISE = 1e-6


@dataclass(frozen=True)
class Limits:
    """Parts of μ² that one look, all looks and the means may take at most; and what a look may take to see tails."""

    look: float
    looks: float
    means: float
    tails: float = POLICY.tails_look


FEATURES = Limits(POLICY.features_look, POLICY.features_looks, POLICY.features_means)
TARGET = Limits(POLICY.target_look, POLICY.target_looks, POLICY.target_means)
# Where columns are hopeless, all there is to learn is the target's center.
TARGET_ALONE = Limits(POLICY.alone_look, POLICY.alone_looks, means=1.0)


class Range(NamedTuple):
    """How columns are clipped and shifted, every number of it declared or released.

    Parameters
    ----------
    lower, upper
        What values are clipped to.
    center
        What is subtracted afterwards.
    spread
        Root mean square distance from the center, as far as it is known; 0 for a column of which nothing can be seen.
    outside
        Which part of the records surely is outside of the bounds.
    """

    lower: Floats
    upper: Floats
    center: Floats
    spread: Floats
    outside: Floats | float = 0.0

    @classmethod
    def declared(cls, bounds: tuple[ArrayLike, ArrayLike], centered: bool) -> Range:
        """Declared bounds, and their middle as the centre if there is to be one.

        A column of which one of them is not known stays where it is, and its spread is taken to be 1.
        """
        lower, upper = (np.array(bound, dtype=float, ndmin=1) for bound in bounds)
        known = np.isfinite(lower) & np.isfinite(upper)
        low, high = np.where(known, lower, -2.0), np.where(known, upper, 2.0)
        center = np.where(centered, low / 2.0 + high / 2.0, 0.0)
        return cls(lower, upper, center, np.maximum(abs(low - center), abs(high - center)) / 2.0)

    @property
    def seen(self) -> NDArray[np.int64]:
        """Columns of which something can be seen."""
        return np.flatnonzero(self.spread > 0.0)

    @property
    def reach(self) -> Floats:
        """Largest distance from the center."""
        return np.maximum(abs(self.lower - self.center), abs(self.upper - self.center))


def look_share(n_records: int, size: int, room: float, limits: Limits = FEATURES) -> float:
    """Part of μ² for a look at so many columns, from public numbers."""
    if math.isinf(room):
        return POLICY.least_share
    columns, tails = (
        2.0 * size / (noise * n_records) ** 2 / room for noise in (POLICY.shows_columns, POLICY.shows_tails)
    )
    return min(max(columns, min(tails, limits.tails), POLICY.least_share), limits.look)


def mean_share(n_records: int, size: int, room: float) -> float:
    """Part of μ² for the means of so many columns, from public numbers."""
    if math.isinf(room):
        return POLICY.least_share
    return max(size * (2.0 * POLICY.mean_within / (POLICY.noise_in_mean * n_records)) ** 2 / room, POLICY.least_share)


def hides_columns(n_records: int, size: int, room: float) -> bool:
    """Whether looks at so many columns would show nothing but noise, from public numbers."""
    return math.sqrt(2.0 * size / (FEATURES.looks * room)) > POLICY.hides_columns * n_records


def hides_center(n_records: int, room: float) -> bool:
    """Whether the share of the target's mean leaves more doubt about it than looks do, from public numbers."""
    return POLICY.doubt_left * n_records * math.sqrt(TARGET.means * room) < 2.0 * POLICY.mean_within


def noise_in_counts(n_records: int, size: int, room: float) -> float:
    """Standard deviation of the noise in a count of the first look at so many columns, as a part of the records."""
    if math.isinf(room):
        return 0.0
    return math.sqrt(2.0 * size / (look_share(n_records, size, room) * room)) / n_records


def locate(
    curator: Curator,
    columns: NDArray[np.int64] | None,
    bounds: tuple[ArrayLike, ArrayLike],
    centered: bool,
    room: float,
    limits: Limits,
) -> Range:
    """Find where columns lie, in a few looks and a clipped mean of each.

    Parameters
    ----------
    curator, columns
        Where the data are, and which features to look at; None is the target alone. Other features have the ranges that
        their bounds give them.
    bounds
        Lower and upper bounds of the features, or of the target; infinite where they are not known.
    centered
        Whether columns are wanted around centers of their own.
    room, limits
        The μ² that shares are parts of, and how much of it to take.
    """
    lower, upper = (np.array(bound, dtype=float, ndmin=1) for bound in bounds)
    looks = _Looks(curator, columns, (lower, upper), room, limits)
    looks.close_in(centered)
    places, deviation = looks.found, looks.found.deviation
    center = np.where(deviation > 0.0, places.center, np.clip(0.0, lower, upper))
    if centered:
        center = np.clip(center + _offset(curator, columns is None, places, room, limits), lower, upper)
    else:
        deviation, center = np.hypot(deviation, center) * (deviation > 0.0), np.zeros_like(center)
    reach = np.maximum(POLICY.deviations * deviation, places.reach)
    low, high = np.clip(center - reach, lower, upper), np.clip(center + reach, lower, upper)
    # Nothing is farther away than the ends of the range, and where these are one point nothing varies.
    spread = np.where(low < high, np.minimum(deviation, np.maximum(abs(low - center), abs(high - center))), 0.0)
    # Where nothing was seen bounds are all that is known, if they are.
    bounded = (deviation == 0.0) & np.isfinite(lower) & np.isfinite(upper)
    declared, learnt = Range.declared((lower, upper), centered), (low, high, center, spread)
    chosen = [np.where(bounded, theirs, ours) for theirs, ours in zip(declared[:4], learnt, strict=True)]
    return Range(chosen[0], chosen[1], chosen[2], chosen[3], looks.outside)


@dataclass(frozen=True, eq=False)
class _Places:
    """Where columns lie: a center, the deviation from it, and a distance up to which there surely are values.

    All are 0 for columns of which nothing is seen.
    """

    center: Floats
    deviation: Floats
    reach: Floats

    @classmethod
    def unknown(cls, size: int) -> _Places:
        """Of so many columns nothing is seen."""
        return cls(np.zeros(size), np.zeros(size), np.zeros(size))

    def learn(self, columns: NDArray[np.int64], center: Floats, deviation: Floats, reach: Floats) -> None:
        """Take on what was seen of some columns."""
        self.center[columns], self.deviation[columns], self.reach[columns] = center, deviation, reach

    def forget(self, columns: NDArray[np.int64], earlier: _Places) -> None:
        """Go back to what was seen of some columns before."""
        self.learn(columns, earlier.center[columns], earlier.deviation[columns], earlier.reach[columns])


@dataclass(eq=False)
class _Looks:
    """Looks at some columns, again and again, until it is clear where they lie.

    Parameters
    ----------
    curator, columns, bounds, room, limits
        As in `locate`; columns are numbered in the order of the bounds.
    center, around
        What the next look is around, and the deviation that an earlier look found; 0 before there was one.
    counts, precision
        The mean of all looks around the present center, weighed by the inverse variance of the noise, and its own.
    first, found
        What looks around the first center showed, and what is known by now.
    outside
        Which part of the records surely is outside of the bounds.
    """

    curator: Curator
    columns: NDArray[np.int64] | None
    bounds: tuple[Floats, Floats]
    room: float
    limits: Limits
    center: Floats = field(init=False)
    around: Floats = field(init=False)
    counts: Floats = field(init=False)
    precision: Floats = field(init=False)
    first: _Places = field(init=False)
    found: _Places = field(init=False)
    outside: Floats = field(init=False)

    def __post_init__(self) -> None:
        size = len(self.bounds[0])
        self.center, self.around = np.clip(0.0, *self.bounds), np.zeros(size)
        self.counts, self.precision = np.zeros((size, CELLS)), np.zeros(size)
        self.first, self.found, self.outside = _Places.unknown(size), _Places.unknown(size), np.zeros(size)

    def close_in(self, zoom: bool) -> None:
        """Look until all is clear or the limits are reached; around what was found, too, if there is to be a zoom."""
        pending = np.arange(1) if self.columns is None else self.columns
        size, left, narrow = max(1, len(pending)), self.limits.looks, np.arange(0)
        share_of_all = look_share(self.curator.n_records, size, self.room, self.limits)
        for _ in range(POLICY.range_looks):
            share = max(share_of_all * len(pending) / size, min(share_of_all, POLICY.least_share))
            if not len(pending) or share > left:
                return
            left -= share
            self._release(pending, share)
            reading = self._read(pending)
            # To be off by orders of magnitude costs more than all there is to gain, of which a look takes its share:
            # doubt is as small as it needs to be where it is far smaller than that.
            sure = 1.0 - reading.belief <= share**2
            closer = sure & (reading.belief >= POLICY.accepted_doubt) & (reading.excess > POLICY.narrow) & zoom
            # Looks that come too close to a spike lose records. All that varies was in sight at the first.
            spike = ~reading.complete & (self.around[pending] > 0.0) & math.isfinite(self.room)
            self.found.forget(pending[spike], self.first)
            narrow, pending = pending[closer & ~spike], pending[(closer | ~sure) & ~spike]
            self._move_to(narrow)
        # What still is narrow after so many looks is a spike, too.
        if math.isfinite(self.room):
            self.found.forget(narrow, self.first)

    def _release(self, columns: NDArray[np.int64], share: float) -> None:
        """Look at some columns. Looks around the same center count together."""
        is_target, multiplier = self.columns is None, 1.0 / math.sqrt(share * self.room)
        mechanism = DyadicCounts(columns[:0] if is_target else columns, is_target, multiplier, self.center[columns])
        released, own = self.curator.release(mechanism), max(mechanism.noise_level, _NO_NOISE) ** -2.0
        self.precision[columns] += own
        self.counts[columns] += (own / self.precision[columns])[:, None] * (released - self.counts[columns])

    def _read(self, columns: NDArray[np.int64]) -> Reading:
        """What is seen of some columns now. What an earlier look has shown stays known where this one shows nothing."""
        n_records, (lower, upper) = self.curator.n_records, self.bounds
        center, around, counts = self.center[columns], self.around[columns], self.counts[columns]
        noise, within = self.precision[columns] ** -0.5, (lower[columns] - center, upper[columns] - center)
        counts, outside = folded(counts, noise, *within)
        if not self.around.any():
            self.outside[columns] = outside / n_records
        reading = Reading.of(counts, noise, n_records, *within, around)
        deviation = reading.deviation
        if self.columns is not None:
            # As many records as noise hides may lie where the look before this one had them. (The target's mean is
            # worth more than its tails: where budgets are small it is all there is to learn.)
            deviation = np.hypot(deviation, np.sqrt(noise / n_records) * around)
        # Without noise all is there that seems to be, however odd.
        seen = (reading.belief >= POLICY.accepted_doubt) | (math.isinf(self.room) & (deviation > 0.0))
        place = [center + reading.mean, deviation, np.maximum(reading.reach - abs(reading.mean), 0.0)]
        place = [np.where(seen, value, 0.0) for value in place]
        # Looks around the first center add up, and the last of them overrules those before it. Closer ones do not.
        first = around == 0.0
        for known, new in ((self.first, first), (self.found, first | seen)):
            known.learn(columns[new], *(value[new] for value in place))
        return reading

    def _move_to(self, columns: NDArray[np.int64]) -> None:
        """Have the next look at some columns around what was found of them."""
        self.center[columns], self.around[columns] = self.found.center[columns], self.found.deviation[columns]
        self.counts[columns], self.precision[columns] = 0.0, 0.0


def _offset(curator: Curator, is_target: bool, places: _Places, room: float, limits: Limits) -> Floats:
    """By how much means lie beside the centers that looks found, as far as noise leaves it to be believed."""
    offset, seen = np.zeros_like(places.center), np.flatnonzero(places.deviation > 0.0)
    share = mean_share(curator.n_records, len(seen), room)
    if not len(seen) or (share > limits.means and not is_target):
        return offset
    if limits.means >= 1.0:
        share = (1.0 - 1e-9) * curator.gaussian_room / room
    share = min(share, limits.means)
    within = POLICY.mean_within * places.deviation[seen]
    columns, ranges, target_range = (np.arange(0), within[:0], float(within[0])) if is_target else (seen, within, None)
    multiplier = 0.0 if math.isinf(room) else 1.0 / math.sqrt(share * room)
    mechanism = ClippedMeans(columns, ranges, target_range, multiplier, center=places.center[seen])
    noise = POLICY.mean_within * mechanism.noise_level(curator.n_records)
    offset[seen] = curator.release(mechanism) * within * POLICY.doubt_left**2 / (POLICY.doubt_left**2 + noise**2)
    return offset


def target_rms(curator: Curator, room: float) -> float | None:
    """Root mean square of the target, for a small part of `room`, and with the data left as they are.

    None where nothing of the target can be seen at this budget.
    """
    found = locate(curator, None, (-math.inf, math.inf), False, room, TARGET)
    return float(found.spread[0]) or None
