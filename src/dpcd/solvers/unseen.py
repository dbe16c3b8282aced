"""Records too far out to be seen, of which nothing is known but their second moments."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammainccinv, ndtri

from dpcd.losses import Squared
from dpcd.privacy.records import GradientSizes
from dpcd.ranges.sizes import Sizes
from dpcd.solvers.clips import Clips
from dpcd.solvers.joint import Scaled
from dpcd.solvers.moments import Moments
from dpcd.solvers.problem import Floats

# So many deviations of the noise in a scale are not hidden.
_DOUBT = 2.0
# Less than this part of a column is not worth a look. Where more than the second part of the columns hides something,
# moments may have been declared too large.
_WORTH_A_LOOK, _MOST_COLUMNS = 0.05, 0.5
# Shares of the budget for the sizes of the targets and of the rows. Sizes are looked for in so many octaves about what
# is typical of them.
_TARGETS_SHARE, _ROWS_SHARE, _OCTAVES_BELOW, _OCTAVES_ABOVE = 0.04, 0.02, 8, 5
# Rows are told apart by less than targets, and so by more buckets.
_PER_OCTAVE = {"rows": 4, "slopes": 2}
# Where a tail begins: with so many records as these multiples of the noise in a count, if that is a small part of all.
_TAIL, _SMALL_PART = (4.0, 8.0), 0.25
# Where the tail of the rows is not longer than so many times that of normal rows, none is far out; if it is seen from
# such a part of all on.
_LONG_ROWS, _ALL_BUT_FEW = 1.15, 0.1
# Where the tail of the targets is longer than so many times a normal one, they may be farther out than any that can be
# seen, by this power of how much longer it is. Where nothing can be seen, none is beyond so many times what is typical.
_LONG_TARGETS, _EXTRAPOLATED, _OF_NORMAL_TARGETS = 1.1, 12.0, 4.0
# Unseen records are a couple, and as many more as so many deviations of the noise that the whole budget could count
# them with.
_COUPLE, _COUNTED = 2.0, 0.6


@dataclass(eq=False)
class Unseen:
    """What records that no release shows add to the gradient of the squared loss.

    Second moments are known, and the part of them that is hidden by shortening long rows belongs to records far out,
    too few to be seen. No gradient tells of them, but the squares of what a model predicts for them are in the
    objective, and may well be most of it: a model that suits all other records can be worse than none. Their targets
    are not known either. All there is to go by is that these are hardly larger than the largest that can be seen, so
    a model may predict that much for each of them, and pays for what it predicts beyond.

    It is a guess. Where such records follow the model, their targets are far out too, and among all targets that makes
    for a long tail: where it can be seen, more is allowed. Where it cannot, weights are kept too small. And where most
    columns hide something while no row is seen to be longer than others, the moments were declared too large: there is
    nothing far out.

    Parameters
    ----------
    scaled, moments
        The problem, and the second moments of its columns.
    """

    scaled: Scaled
    moments: Moments
    hidden: Floats = field(init=False)
    plausible: float = math.inf
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        self.hidden = self._hidden()
        # The curvature of what pulls must be in the moments, or steps would diverge.
        moments, more = self.moments, np.maximum(0.0, self.hidden - self.moments.hidden)
        self.moments = replace(moments, matrix=moments.matrix + np.diag(more), hidden=moments.hidden + more)

    def _hidden(self) -> Floats:
        """The part of each column's second moment that is hidden in records far out."""
        size, noise = self.scaled.size, self.moments.uncertainty
        if not isinstance(self.scaled.problem.loss, Squared):
            # Other losses grow as predictions do, and not as their squares: what a few records add is small.
            return np.zeros(size)
        # A scale that was learnt may be too large by its own noise, and what is missing for that reason is not hidden.
        doubt = _DOUBT * self.scaled.problem.uncertainty_of(self.scaled.active)
        hidden = np.maximum(0.0, self.moments.missing - doubt)
        # Shrunk by the part of it that noise explains, and nothing if the largest of so many noises could be as large.
        surely = hidden > noise * math.sqrt(2.0 * math.log(size + 1.0))
        hidden = np.divide(hidden**3, hidden**2 + noise**2, out=np.zeros(size), where=surely)
        # Nothing of the intercept is far out, whatever part of it long rows take along.
        hidden = np.where(self._features, hidden, 0.0)
        return hidden if np.any(hidden > _WORTH_A_LOOK) else np.zeros(size)

    @property
    def _features(self) -> NDArray[np.bool_]:
        """Which columns are not the intercept."""
        return np.asarray(self.scaled.active < self.scaled.problem.n_penalized)

    @property
    def _widespread(self) -> bool:
        """Whether most columns hide something."""
        return float(np.mean(self.hidden[self._features] > _WORTH_A_LOOK)) > _MOST_COLUMNS

    @property
    def share(self) -> float:
        """Share of the budget that `look` takes: nothing, if nothing is hidden."""
        if not np.any(self.hidden):
            return 0.0
        return _TARGETS_SHARE + _ROWS_SHARE if self._widespread else _TARGETS_SHARE

    def look(self, point: Floats, clips: Clips) -> None:
        """Find out what may be predicted, from the sizes of the targets around the constant of a point."""
        scaled, size = self.scaled, self.scaled.size
        # The size of a gradient at the start is that of the target times that of the row, which is √p on average.
        typical = math.sqrt(clips.squared_size / size)
        if self.share == 0.0 or not 1e-100 < typical < 1e100:
            return
        if self._widespread:
            rows = self._sizes("rows", 1.0, np.zeros(size), _ROWS_SHARE)
            half = np.sum(self._features) / 2.0
            tail = _tail(rows, lambda part: np.sqrt(gammainccinv(half, part)))
            if tail is not None and tail.part < _ALL_BUT_FEW and tail.longer < _LONG_ROWS:
                self._take_moments_for_bounds()
                return
        constant = np.where(scaled.active == scaled.problem.n_penalized, point, 0.0)
        targets = self._sizes("slopes", typical, constant, _TARGETS_SHARE)
        tail = _tail(targets, lambda part: -ndtri(part / 2.0))
        if tail is None:
            largest = _OF_NORMAL_TARGETS * typical
        else:
            largest = tail.size * max(1.0, tail.longer / _LONG_TARGETS) ** _EXTRAPOLATED
        self.plausible = math.sqrt((_COUPLE + _COUNTED / scaled.mu) / scaled.curator.n_records) * largest

    def _take_moments_for_bounds(self) -> None:
        """Forget what is hidden, and its curvature too."""
        self.hidden = nothing = np.zeros(self.scaled.size)
        visible = self.moments.matrix - np.diag(self.moments.hidden)
        self.moments = replace(self.moments, matrix=visible, hidden=nothing, missing=nothing)
        self.notes = ("second moments are taken for bounds: most columns have less of them, and no record is far out",)

    def _sizes(self, of: str, typical: float, point: Floats, share: float) -> Sizes:
        """Release a histogram of sizes about a typical one, which is 1 for rows without the intercept."""
        scaled, octave = self.scaled, round(math.log2(typical))
        mechanism = GradientSizes(
            scaled.view(self._features / math.sqrt(scaled.size), point),
            scaled.multiplier(share),
            per_octave=_PER_OCTAVE[of],
            smallest=octave - _OCTAVES_BELOW,
            largest=octave + _OCTAVES_ABOVE,
            of=of,
        )
        return Sizes.of(scaled.curator, mechanism)

    def pulls(self, points: Floats, gradients: Floats, variances: Floats) -> Floats:
        """What unseen records add to the gradient at each point.

        Parameters
        ----------
        points, gradients, variances
            Where gradients were released, these gradients, and the variance of the noise in each of their numbers.
        """
        if not np.any(self.hidden):
            return np.zeros_like(points)
        roots = np.sqrt(self.hidden * (1.0 - self._shown(points, gradients, variances)))
        beyond = np.maximum(0.0, roots * np.abs(points) - self.plausible)
        self.notes = self._held_back(int(np.count_nonzero(beyond[-1])))
        return np.asarray(roots * beyond * np.sign(points))

    @staticmethod
    def _held_back(count: int) -> tuple[str, ...]:
        """What a reader of the statement should know about so many columns."""
        if count == 0:
            return ()
        columns = "a column" if count == 1 else f"{count} columns"
        return (
            f"part of the second moments of {columns} is in records too few to be seen, or was declared and is not "
            "there: predictions for such records are held to the size of the targets",
        )

    def _shown(self, points: Floats, gradients: Floats, variances: Floats) -> Floats:
        """The part of each column's hidden second moment that gradients show after all.

        How gradients change from point to point tells of curvature that is not in the moments, where long rows are
        shortened whatever the model says about them.
        """
        moments = self.moments
        variance = 1.0 / float(np.sum(1.0 / variances))
        weights = variance / variances
        moves = points - weights @ points
        rest = gradients - points @ (moments.matrix - np.diag(moments.hidden))
        expected = moments.hidden * moves
        noise = variance + moments.noise**2 * float(weights @ np.sum(moves**2, axis=1))
        shown = weights @ (expected * (rest - weights @ rest)) / (weights @ expected**2 + noise)
        return np.clip(shown, 0.0, 1.0)


class _Tail(NamedTuple):
    """A size that few records exceed, the part of them in the tail, and how many times longer it is than expected."""

    size: float
    part: float
    longer: float


def _tail(sizes: Sizes, expected: Callable[[Floats], Floats]) -> _Tail | None:
    """The tail of some sizes; None where too little can be seen of them.

    `expected` tells which multiple of some unit a part of all sizes is expected to exceed.
    """
    n_records, counts = sizes.n_records, np.array(_TAIL) * sizes.noise
    median, tail = sizes.exceeded_by(n_records / 2.0), np.array([sizes.exceeded_by(count) for count in counts])
    if counts[-1] > _SMALL_PART * n_records or median == 0.0:
        return None
    multiples = expected(counts / n_records) / expected(np.array(0.5))
    longer = float(np.exp(np.mean(np.log(tail / (median * multiples)))))
    return _Tail(float(tail[0]), float(counts[-1]) / n_records, longer)
