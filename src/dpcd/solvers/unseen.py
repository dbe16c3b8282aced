"""Records too far out to be seen, of which nothing is known but their second moments."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
from scipy.special import gammaincc, ndtri

from dpcd.losses import Squared
from dpcd.privacy.joint import GradientSizes
from dpcd.solvers.joint import Clips, Moments, Scaled, Sizes
from dpcd.solvers.problem import Floats

# Rows a little longer than most are shortened in the moments and seen in gradients. What normal rows would lose so,
# times this, is not hidden, and neither are so many deviations of the noise in a scale. Less than the third number is
# not worth a look, more than the last is worth a word.
_ORDINARY, _DOUBT, _WORTH_A_LOOK, _MOSTLY = 2.0, 2.0, 0.05, 0.5
# Share of the budget for the sizes of the targets, which are looked for in so many octaves about their mean. No more
# than so many times that are expected where nothing can be seen of them.
_TARGETS_SHARE, _OCTAVES_BELOW, _OCTAVES_ABOVE, _OF_NORMAL_TARGETS = 0.04, 8, 5, 4.0
# Where the tail of the targets begins: with so many records as these multiples of the noise in a count, if that is a
# small part of them all.
_TAIL, _SMALL_PART = (4.0, 8.0), 0.25
# Unseen records are a couple, and as many more as so many deviations of the noise that the whole budget could count
# them with.
_COUPLE, _COUNTED = 2.0, 0.7
# Where the tail is longer than so many times that of the normal distribution, targets may be farther out than any that
# can be seen, by this power of how much longer it is.
_LONG_TAIL, _EXTRAPOLATED = 1.1, 12.0


@dataclass(eq=False)
class Unseen:
    """What records that no release shows add to the gradient of the squared loss.

    Second moments are known, and the part of them that is hidden by shortening long rows belongs to records far out,
    too few to be seen. No gradient tells of them, but the squares of what a model predicts for them are in the
    objective, and may well be most of it: a model that suits all other records can be worse than none. Their targets
    are not known either. All there is to go by is that these are hardly larger than the largest that can be seen, so
    a model may predict that much for each of them, and pays for what it predicts beyond.

    It is a guess. Where such records follow the model, their targets are far out too, and among all targets that makes
    for a long tail: where it can be seen, more is allowed. Where it cannot, weights are kept too small.

    Parameters
    ----------
    scaled, moments
        The problem, and the second moments of its columns.
    """

    scaled: Scaled
    moments: Moments
    hidden: Floats = field(init=False)
    plausible: float = math.inf

    def __post_init__(self) -> None:
        self.hidden = self._hidden()

    def _hidden(self) -> Floats:
        """The part of each column's second moment that is hidden in records far out."""
        moments, size = self.moments, self.scaled.size
        if not isinstance(self.scaled.problem.loss, Squared):
            # Other losses grow as predictions do, and not as their squares: what a few records add is small.
            return np.zeros(size)
        # E(‖x‖² − r²)₊/p of normal rows, half of whose squared norm has the gamma distribution.
        half, bound = size / 2.0, moments.radius**2 / 2.0
        ordinary = gammaincc(half + 1.0, bound) - bound / half * gammaincc(half, bound)
        # A scale that was learnt may be too large by its own noise, and what is missing for that reason is not hidden.
        doubt = _DOUBT * self.scaled.problem.uncertainty_of(self.scaled.active)
        hidden = np.maximum(0.0, moments.hidden - doubt - _ORDINARY * ordinary)
        # Shrunk by the part of it that noise explains.
        hidden = hidden**3 / np.maximum(hidden**2 + moments.noise**2, np.finfo(float).tiny)
        return hidden if np.any(hidden > _WORTH_A_LOOK) else np.zeros(size)

    @property
    def share(self) -> float:
        """Share of the budget that `look` takes: nothing, if nothing is hidden."""
        return _TARGETS_SHARE if np.any(self.hidden) else 0.0

    def look(self, point: Floats, clips: Clips) -> None:
        """Release the sizes of the targets around the constant of a point, and find out what may be predicted."""
        scaled, share = self.scaled, self.share
        # The size of a gradient at the start is that of the target times that of the row, which is √p on average.
        typical = math.sqrt(clips.squared_size / scaled.size)
        if share == 0.0 or not 1e-100 < typical < 1e100:
            return
        constant = np.where(scaled.active == scaled.problem.n_penalized, point, 0.0)
        octave = round(math.log2(typical))
        mechanism = GradientSizes(
            scaled.view(np.ones(scaled.size), constant),
            scaled.multiplier(share),
            per_octave=2,
            smallest=octave - _OCTAVES_BELOW,
            largest=octave + _OCTAVES_ABOVE,
            of="slopes",
        )
        targets, n_records = Sizes.of(scaled.curator, mechanism), scaled.curator.n_records
        largest = _largest_target(targets, n_records) or _OF_NORMAL_TARGETS * typical
        self.plausible = math.sqrt((_COUPLE + _COUNTED / scaled.mu) / n_records) * largest

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
        return np.asarray(roots * beyond * np.sign(points))

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
        noise = variance + moments.noise**2 * float(np.mean(np.sum(moves**2, axis=1)))
        shown = weights @ (expected * (rest - weights @ rest)) / (weights @ expected**2 + noise)
        return np.clip(shown, 0.0, 1.0)

    @property
    def notes(self) -> tuple[str, ...]:
        """What a reader of the statement should know about it."""
        count = int(np.sum(self.hidden > _MOSTLY))
        if count == 0 or math.isinf(self.plausible):
            return ()
        columns = "a column's second moment is" if count == 1 else f"the second moments of {count} columns are"
        return (
            f"most of {columns} in records too few to be seen, or declared larger than it is; predictions for such "
            "records are held to the size of the targets",
        )


def _largest_target(targets: Sizes, n_records: int) -> float | None:
    """A size beyond which no target is expected; None where too little can be seen of them."""
    counts = np.array(_TAIL) * targets.noise
    median, sizes = targets.exceeded_by(n_records / 2.0), [targets.exceeded_by(count) for count in counts]
    if counts[-1] > _SMALL_PART * n_records or median == 0.0:
        return None
    # Of normal targets, with this median, as many would exceed these sizes.
    normal = median * ndtri(counts / (2.0 * n_records)) / ndtri(0.25)
    longer = float(np.exp(np.mean(np.log(sizes / normal)))) / _LONG_TAIL
    return float(sizes[0] * max(1.0, longer) ** _EXTRAPOLATED)
