"""What solvers need to know of the columns: second moments of clipped and centered data, declared or released."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from dpcd.losses import Loss
from dpcd.policy import POLICY
from dpcd.privacy import Curator
from dpcd.privacy.columns import SecondMoments
from dpcd.privacy.lattice import Floats
from dpcd.privacy.rivals.laplace import LaplaceSecondMoments
from dpcd.ranges.looks import (
    FEATURES,
    TARGET,
    TARGET_ALONE,
    Range,
    hides_center,
    hides_columns,
    locate,
    look_share,
    mean_share,
)


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
        Part of μ² to spend. None: what makes the noise about .003 of the squared range, between .5 % and 6 %.
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


def moments_share(n_records: int, size: int, room: float) -> float:
    """Part of μ² for a release of the second moments of so many columns, from public numbers."""
    if math.isinf(room):
        return POLICY.least_share
    return min(
        max(size / (POLICY.noise_in_moment * n_records) ** 2 / room, POLICY.least_share), POLICY.most_for_moments
    )


def moments_tell_more(n_records: int, size: int, room: float) -> bool:
    """Whether such a release says more of ordinary columns than their histograms, from public numbers."""
    squared_noise = size / (moments_share(n_records, size, room) * room)
    return POLICY.deviations**2 * math.sqrt(squared_noise) <= POLICY.uncertain_moment * n_records


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
        M_j of each feature, or a way to learn them by a release of their own. None: such a release where it tells more
        than histograms do.
    """

    feature_bounds: tuple[Floats, Floats] | None
    target_bounds: tuple[float, float] | None
    smoothness: Floats | Smoothness | None = None


@dataclass(frozen=True, eq=False)
class Scales:
    """What solvers and models need to know about the columns, declared or released.

    Parameters
    ----------
    smoothness, slope, uncertainty
        As in `Problem`.
    features, target
        Ranges; None where the data are left as they are.
    located
        Whether somebody looked where the target lies.
    """

    smoothness: Floats
    slope: float | None
    uncertainty: Floats
    features: Range | None
    target: Range | None
    located: bool

    def roots(self, loss: Loss) -> Floats:
        """Root mean square of each column, the intercept included, and 1 for those that stay out."""
        return np.where(self.smoothness > 0.0, np.sqrt(self.smoothness / loss.curvature), 1.0)

    @property
    def target_unseen(self) -> bool:
        """Whether somebody looked at the target and saw nothing."""
        return self.located and self.target is not None and not len(self.target.seen)

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


def only_center(n_records: int, n_features: int, room: float, bounded: bool) -> bool:
    """Whether a target's center is all that a budget shows, from public numbers.

    It takes all of the budget to find it, or there are neither looks nor bounds that tell anything about columns.
    """
    return hides_center(n_records, room) or (not bounded and hides_columns(n_records, n_features, room))


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
    bounded = np.isfinite(bounds[0]) & np.isfinite(bounds[1])
    room = curator.gaussian_room
    has_center = looks_at_target and intercept
    alone = has_center and known is None and only_center(curator.n_records, n_features, room, bool(bounded.any()))
    # Where looks would show little, bounds are all there is to know of columns. Those without any leave if there is
    # something better to learn: a target's center.
    hidden = hides_columns(curator.n_records, n_features, room)
    worth_a_look = (not alone) & ~(hidden & (bounded | has_center))
    features = target = None
    if looks_at_target:
        outer = (-math.inf, math.inf) if target_bounds is None else target_bounds
        target = locate(curator, None, outer, intercept, room, TARGET_ALONE if alone else TARGET)
    elif target_bounds is not None:
        target = Range.declared(target_bounds, centered=intercept)
    if known is None:
        features = locate(curator, np.flatnonzero(worth_a_look), bounds, intercept, room, FEATURES)
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
    return Scales(smoothness, slope, uncertainty, features, target, looks_at_target)


def _smoothness(curator: Curator, loss: Loss, how: Smoothness | None, features: Range) -> tuple[Floats, Floats]:
    """M_j of each column and the uncertainty in it, as a part."""
    smoothness, uncertainty = (
        loss.curvature * features.spread**2,
        np.where(features.spread > 0.0, POLICY.uncertain_moment, 0.0),
    )
    seen, room = features.seen, curator.gaussian_room
    if how is None and moments_tell_more(curator.n_records, len(seen), room):
        how = GaussianSmoothness()
    if how is not None and len(seen):
        found, noise = how.second_moments(curator, seen, features.reach[seen], None, room)
        known = (noise <= POLICY.uncertain_moment * features.spread[seen] ** 2) & (found > 0.0)
        smoothness[seen[known]], uncertainty[seen[known]] = loss.curvature * found[known], noise[known] / found[known]
    return smoothness, uncertainty


def usual_shares(n_records: int, n_features: int, with_target: bool, centered: bool, room: float) -> dict[str, float]:
    """Parts of μ² that `prepare` is likely to take where columns have a part, named as in a privacy statement."""
    hidden = with_target and centered and hides_columns(n_records, n_features, room)
    # With centers, once more around them.
    features = 0.0 if hidden else look_share(n_records, n_features, room) * (1 + centered)
    target = look_share(n_records, 1, room, TARGET) * (1 + centered) if with_target else 0.0
    means = [min(mean_share(n_records, 1, room), TARGET.means)] if with_target and centered else []
    of_features = mean_share(n_records, n_features, room)
    means += [of_features] if centered and not hidden and of_features <= FEATURES.means else []
    moments = not hidden and moments_tell_more(n_records, n_features, room)
    return {
        "histograms of values": min(features, FEATURES.looks) + min(target, TARGET.looks),
        "means": sum(means),
        "second moments": moments_share(n_records, n_features, room) if moments else 0.0,
    }
