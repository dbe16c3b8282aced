"""Where columns lie and how far they spread, learnt privately where nobody needs to declare it.

A look is a noisy histogram of signs and octaves around a center. The first is around zero, or the bound next to it, and
those after it are around what the one before them found, at columns only of which it showed too little. Then come
clipped means, where noise leaves something of them. The target has looks of its own: it matters more than any column,
and is one number. Bounds that were declared are believed, and the range inside them that values really take is learnt.
Every release is Gaussian and part of the same budget. How much of it they get follows from n, p and μ.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpcd.losses import Loss
from dpcd.privacy import Curator
from dpcd.privacy.kernels import CELLS
from dpcd.privacy.mechanisms import ClippedMeans, DyadicCounts, LaplaceSecondMoments, SecondMoments
from dpcd.solvers.histograms import Reading, surely_outside
from dpcd.solvers.problem import Floats

# Noise in a count, as a part of the records, with which most columns are read well, and with which their tails and rare
# flags are seen.
_SHOWS_COLUMNS, _SHOWS_TAILS = 0.05, 0.005
# Noise in a mean, as a part of the deviation, that is worth paying for, and within how many deviations it is taken.
_NOISE_IN_MEAN, _MEAN_WITHIN = 0.2, 2.0
# Where noise in the counts exceeds this part of the records, columns do not stand out from it.
_HIDES_COLUMNS = 0.17
# Each look around what was found divides the distance from the center by four or more.
_MOST_LOOKS = 5
_ACCEPT = 0.5
# What is not known of a center after looks, as a part of the deviation; and of a second moment, as a part of itself.
_DOUBT, _UNCERTAIN = 0.4, 0.5
# The least part of μ² for any release here, and noise in counts that is none.
_LEAST_SHARE, _NO_NOISE = 0.005, 1e-6
# A column of which more is likely than not that a look around its center shows it to be half as wide, or less.
_NARROW = 2.0
# Values are clipped so many deviations from the center, or where there surely are some farther out. With more, models
# of long-tailed columns owe too much to a few records.
_DEVIATIONS = 3.5


class Limits(NamedTuple):
    """Parts of μ² that one look, all looks and the means may take at most; and what a look may take to see tails."""

    look: float
    looks: float
    means: float
    tails: float = 0.02


_FEATURES = Limits(look=0.12, looks=0.3, means=0.05)
_TARGET = Limits(look=0.1, looks=0.4, means=0.1)
# Where columns are hopeless, all there is to learn is the target's center.
_TARGET_ALONE = Limits(look=0.2, looks=0.8, means=1.0)


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


def look_share(n_records: int, size: int, room: float, limits: Limits = _FEATURES) -> float:
    """Part of μ² for a look at so many columns, from public numbers."""
    if math.isinf(room):
        return _LEAST_SHARE
    columns, tails = (2.0 * size / (noise * n_records) ** 2 / room for noise in (_SHOWS_COLUMNS, _SHOWS_TAILS))
    return min(max(columns, min(tails, limits.tails), _LEAST_SHARE), limits.look)


def mean_share(n_records: int, size: int, room: float) -> float:
    """Part of μ² for the means of so many columns, from public numbers."""
    if math.isinf(room):
        return _LEAST_SHARE
    return max(size * (2.0 * _MEAN_WITHIN / (_NOISE_IN_MEAN * n_records)) ** 2 / room, _LEAST_SHARE)


def moments_share(n_records: int, size: int, room: float) -> float:
    """Part of μ² for a release of the second moments of so many columns, from public numbers."""
    return _LEAST_SHARE if math.isinf(room) else min(max(size / (0.003 * n_records) ** 2 / room, _LEAST_SHARE), 0.06)


@dataclass(frozen=True, eq=False)
class Declared:
    """What the user states to be known without looking at the data.

    Parameters
    ----------
    feature_bounds
        (lower, upper) of the features, infinite where they are not known; None where none are.
    target_bounds
        (lower, upper) of the target, likewise.
    smoothness
        M_j of each feature, or a way to learn them by a release of their own. None: what histograms show.
    """

    feature_bounds: tuple[Floats, Floats] | None
    target_bounds: tuple[float, float] | None
    smoothness: Floats | Smoothness | None = None


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
        Which part of the records surely lies outside of the bounds, as far as a histogram tells.
    """

    lower: Floats
    upper: Floats
    center: Floats
    spread: Floats
    outside: Floats | float = 0.0

    @classmethod
    def declared(cls, bounds: tuple[ArrayLike, ArrayLike], centered: bool) -> Range:
        """Declared bounds, and their middle as the centre if there is to be one."""
        lower, upper = np.array(bounds[0], dtype=float, ndmin=1), np.array(bounds[1], dtype=float, ndmin=1)
        center = lower / 2.0 + upper / 2.0 if centered else np.zeros_like(lower)
        return cls(lower, upper, center, np.maximum(abs(lower - center), abs(upper - center)) / 2.0)

    @property
    def seen(self) -> NDArray[np.int64]:
        """Columns of which something can be seen."""
        return np.flatnonzero(self.spread > 0.0)

    @property
    def magnitude(self) -> Floats:
        """Distance from the center within which second moments are taken."""
        return np.maximum(abs(self.lower - self.center), abs(self.upper - self.center)) / 2.0


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

    def roots(self, loss: Loss) -> Floats:
        """Root mean square of each column, the intercept included, and 1 for those that stay out."""
        return np.where(self.smoothness > 0.0, np.sqrt(self.smoothness / loss.curvature), 1.0)

    @property
    def target_unseen(self) -> bool:
        """Whether somebody looked at the target and saw nothing."""
        return self.target is not None and not len(self.target.seen)

    @property
    def target_scale(self) -> float:
        """How far the target spreads, and 1 if nobody needs to know."""
        return 1.0 if self.target is None else float(self.target.spread[0]) or 1.0

    @property
    def target_range(self) -> tuple[float, float] | None:
        """What the target was clipped to, if it was."""
        return None if self.target is None else (float(self.target.lower[0]), float(self.target.upper[0]))

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
    the intercept. Declared M_j belong to the columns as they are, and who declares them knows the data well enough not
    to be charged for looks that nobody asked for.
    """
    known = how = None
    if isinstance(declared.smoothness, np.ndarray):
        known = declared.smoothness
    else:
        how = declared.smoothness
    learns_slope = needs_slope and math.isinf(loss.lipschitz)
    looks_at_target = numeric_target and (learns_slope or (intercept and known is None))
    unknown = np.full(n_features, -math.inf), np.full(n_features, math.inf)
    bounds, target_bounds = declared.feature_bounds or unknown, declared.target_bounds
    hidden = hides_columns(curator.n_records, n_features, curator.gaussian_room)
    # Columns that neither looks nor bounds tell anything about leave, and the target's center is all there is to learn.
    alone = intercept and known is None and hidden and not np.isfinite(np.subtract(*bounds)).any()
    features = target = None
    room = curator.gaussian_room
    if looks_at_target:
        outer = (-math.inf, math.inf) if target_bounds is None else target_bounds
        target = locate(curator, None, outer, intercept, room, _TARGET_ALONE if alone else _TARGET)
    elif target_bounds is not None:
        target = Range.declared(target_bounds, centered=intercept)
    if known is None:
        looked_at = np.arange(0 if hidden else n_features)
        features = locate(curator, looked_at, bounds, intercept, room, _FEATURES)
    elif declared.feature_bounds is not None:
        features = Range.declared(bounds, centered=False)
    if features is not None:
        curator.clip_features(features.lower, features.upper, features.center)
    if target is not None:
        curator.clip_target(float(target.lower[0]), float(target.upper[0]), float(target.center[0]))

    nothing = looks_at_target and target is not None and not len(target.seen)
    smoothness, uncertainty = np.zeros(n_features), np.zeros(n_features)
    if known is not None:
        smoothness = known
    elif features is not None and not (nothing or alone):
        smoothness, uncertainty = _smoothness(curator, loss, how, features)
    if intercept:
        # Of a target of which nothing can be seen, or only the center that it has already, no column tells anything.
        smoothness = np.append(smoothness, 0.0 if nothing or alone else loss.curvature)
        uncertainty = np.append(uncertainty, 0.0)
    slope = (
        (float(target.spread[0]) if learns_slope and target is not None else loss.lipschitz) if needs_slope else None
    )
    if nothing:
        smoothness = np.zeros_like(smoothness)
    return Scales(smoothness, slope, uncertainty, features, target)


def _smoothness(curator: Curator, loss: Loss, how: Smoothness | None, features: Range) -> tuple[Floats, Floats]:
    """M_j of each column and the uncertainty in it, as a part."""
    smoothness, uncertainty = loss.curvature * features.spread**2, np.where(features.spread > 0.0, _UNCERTAIN, 0.0)
    seen = features.seen
    if how is not None and len(seen):
        found, noise = how.second_moments(curator, seen, features.magnitude[seen], None, curator.gaussian_room)
        smoothness[seen], uncertainty[seen] = loss.curvature * found, noise / found
    return smoothness, uncertainty


def hides_columns(n_records: int, size: int, room: float) -> bool:
    """Whether looks at so many columns would show nothing but noise, from public numbers."""
    return math.sqrt(2.0 * size / (_FEATURES.looks * room)) > _HIDES_COLUMNS * n_records


def usual_shares(n_records: int, n_features: int, with_target: bool, centered: bool, room: float) -> dict[str, float]:
    """Parts of μ² that `prepare` is likely to take, named as in a privacy statement, from public numbers."""
    hidden = hides_columns(n_records, n_features, room)
    # With centers, once more around them.
    features = 0.0 if hidden else look_share(n_records, n_features, room) * (1 + centered)
    target = look_share(n_records, 1, room, _TARGET) * (1 + centered) if with_target else 0.0
    means = [min(mean_share(n_records, 1, room), _TARGET.means)] if with_target and centered else []
    of_features = mean_share(n_records, n_features, room)
    means += [of_features] if centered and not hidden and of_features <= _FEATURES.means else []
    return {"histograms of values": min(features, _FEATURES.looks) + min(target, _TARGET.looks), "means": sum(means)}


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
    places, outside = _look(curator, columns, lower, upper, centered, room, limits)
    center = np.where(places.deviation > 0.0, places.center, np.clip(0.0, lower, upper))
    if centered:
        center = center + _offset(curator, columns is None, places, room, limits)
    else:
        places = places._replace(deviation=np.hypot(places.deviation, center))
        center = np.zeros_like(center)
    reach = np.maximum(_DEVIATIONS * places.deviation, places.reach)
    low, high = np.maximum(lower, center - reach), np.minimum(upper, center + reach)
    ranges = Range(low, high, center, places.deviation, outside)
    # Where nothing was seen bounds are all that is known, if they are.
    bounded = (places.deviation == 0.0) & np.isfinite(upper - lower)
    if not bounded.any():
        return ranges
    declared = Range.declared((np.where(bounded, lower, 0.0), np.where(bounded, upper, 0.0)), centered)
    chosen = Range(*(np.where(bounded, theirs, ours) for theirs, ours in zip(declared, ranges, strict=True)))
    return chosen._replace(outside=outside)


class _Places(NamedTuple):
    """Where columns lie: a center, the deviation from it, and a distance up to which there surely are values.

    All are 0 for columns of which nothing is seen.
    """

    center: Floats
    deviation: Floats
    reach: Floats


def _look(
    curator: Curator,
    columns: NDArray[np.int64] | None,
    lower: Floats,
    upper: Floats,
    centered: bool,
    room: float,
    limits: Limits,
) -> tuple[_Places, Floats]:
    """Look at columns again and again, until it is clear where they lie or the limits are reached.

    What the first look shows to be outside of the bounds comes second, as a part of the records.
    """
    looked_at = np.arange(1) if columns is None else columns
    share_of_all, left = look_share(curator.n_records, max(1, len(looked_at)), room, limits), limits.looks
    center, counts, precision = np.clip(0.0, lower, upper), np.zeros((len(lower), CELLS)), np.zeros(len(lower))
    found, first = _Places(*np.zeros((3, len(lower)))), _Places(*np.zeros((3, len(lower))))
    pending, narrow, around, outside = looked_at, np.arange(0), np.zeros(len(lower)), np.zeros(len(lower))
    for past in range(_MOST_LOOKS):
        share = max(share_of_all * len(pending) / max(1, len(looked_at)), min(share_of_all, _LEAST_SHARE))
        if not len(pending) or share > left:
            return found, outside
        left -= share
        asked = np.arange(0) if columns is None else pending
        mechanism = DyadicCounts(asked, columns is None, 1.0 / math.sqrt(share * room), center[pending])
        released, own = curator.release(mechanism), max(mechanism.noise_level, _NO_NOISE) ** -2.0
        # Looks around the same center count together.
        precision[pending] += own
        counts[pending] += (own / precision[pending])[:, None] * (released - counts[pending])
        within = lower[pending] - center[pending], upper[pending] - center[pending]
        noise = precision[pending] ** -0.5
        if not past:
            outside[pending] = surely_outside(counts[pending], noise, *within) / curator.n_records
        reading = Reading.of(counts[pending], noise, curator.n_records, *within, around[pending])
        # What is in doubt by less than another look costs is sure enough.
        seen, sure = reading.belief >= _ACCEPT, 1.0 - reading.belief <= share
        beyond = np.maximum(reading.reach - abs(reading.mean), 0.0)
        # What an earlier look has shown stays known where a closer one shows nothing.
        deviation = reading.deviation
        if columns is not None:
            # As many records as noise hides may lie where the look before this one had them. (The target's mean is
            # worth more than its tails: where budgets are small it is all there is to learn.)
            deviation = np.hypot(deviation, np.sqrt(noise / curator.n_records) * around[pending])
        places = center[pending] + reading.mean, deviation, beyond
        fresh = seen & (first.deviation[pending] == 0.0)
        for field_, known, value in zip(found, first, places, strict=True):
            field_[pending[seen]] = value[seen]
            known[pending[fresh]] = value[fresh]
        closer = seen & sure & (reading.excess > _NARROW) & centered
        narrow, pending = pending[closer], pending[closer | ~sure]
        # The next look is around where this one found them, and for values near there.
        center[narrow], around[narrow] = found.center[narrow], found.deviation[narrow]
        counts[narrow], precision[narrow] = 0.0, 0.0
    # What still is narrow after so many looks is a spike: all that varies was in sight at the first.
    for field_, known in zip(found, first, strict=True):
        field_[narrow] = known[narrow]
    return found, outside


def _offset(curator: Curator, is_target: bool, places: _Places, room: float, limits: Limits) -> Floats:
    """By how much means lie beside the centers that looks found, as far as noise leaves it to be believed."""
    offset, seen = np.zeros_like(places.center), np.flatnonzero(places.deviation > 0.0)
    share = mean_share(curator.n_records, len(seen), room)
    if not len(seen) or (share > limits.means and not is_target):
        return offset
    if limits.means >= 1.0:
        share = (1.0 - 1e-9) * curator.gaussian_room / room
    share = min(share, limits.means)
    within = _MEAN_WITHIN * places.deviation[seen]
    columns, ranges, target_range = (np.arange(0), within[:0], float(within[0])) if is_target else (seen, within, None)
    multiplier = 0.0 if math.isinf(room) else 1.0 / math.sqrt(share * room)
    mechanism = ClippedMeans(columns, ranges, target_range, multiplier, center=places.center[seen])
    noise = _MEAN_WITHIN * mechanism.noise_level(curator.n_records)
    offset[seen] = curator.release(mechanism) * within * _DOUBT**2 / (_DOUBT**2 + noise**2)
    return offset


def target_rms(curator: Curator, room: float) -> float | None:
    """Root mean square of the target, for a small part of `room`, and with the data left as they are.

    None where nothing of the target can be seen at this budget.
    """
    found = locate(curator, None, (-math.inf, math.inf), False, room, _TARGET)
    return float(found.spread[0]) or None
