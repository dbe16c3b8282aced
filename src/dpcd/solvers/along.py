"""How far a move should go, from releases about that one direction."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.special import ndtr

from dpcd.losses import Squared
from dpcd.privacy.records import GradientSizes, JointGradient, MomentMatrix
from dpcd.ranges.sizes import Sizes
from dpcd.solvers.clips import clip_multiple
from dpcd.solvers.joint import Scaled
from dpcd.solvers.problem import Floats

# Shares of the budget for what a move does to predictions, and for the curvature and the slope of the loss at its end.
# A budget of so few records tells nothing about the latter two.
_LENGTH_SHARE, _CURVATURE_SHARE, _SLOPE_SHARE, _FEWEST_RECORDS = 0.015, 0.01, 0.02, 60.0
# What a move adds to predictions is looked for from so many octaves below what it would be if no direction were steep.
_FLAT_OCTAVES = 3
# By what part of itself a move is too long or too short as a rule (found on public tables): so much over the number of
# full steps that led there, for residuals and for labels, whose losses may be much flatter than they are at the start.
# More than the first limit is not expected, and less than the second is not worth a look.
_DOUBT, _DOUBT_ABOUT_LABELS, _MOST_DOUBT, _LEAST_DOUBT = 1.0, 2.5, 1.5, 0.08
# No move becomes longer than so many times what it was.
_LONGEST = 3.0
# Rows are shortened from where they are so many times as long as typical ones, or so many times as long as the clip.
_LONG_ROWS, _BEYOND_CLIP = 2.0, 1.25
# The mean size of normal numbers, over their root mean square.
_MEAN = math.sqrt(2.0 / math.pi)
# A loss has at least this part of its curvature.
_LEAST_CURVATURE = 0.05
# Numbers beyond this, or below its inverse, are left alone.
_ABSURD = 1e100
# How often the range in which the minimum is found is halved.
_HALVINGS = 30
# Step of a prox that tells the slope of a penalty, over the square of a weight in units of the loss.
_SMALL_STEP = 1e-6


@dataclass(frozen=True, eq=False)
class Along:
    """Releases about the direction of a move: one number has as much noise as each of p, but no other p − 1 beside it.

    Parameters
    ----------
    scaled
        The problem.
    full_steps
        How many steps of full length led there: the fewer, the more doubt there is about how far to go.
    """

    scaled: Scaled
    full_steps: float

    @property
    def _doubt(self) -> float:
        """By what part of itself a move is expected to be too long or too short."""
        doubt = _DOUBT_ABOUT_LABELS if self.scaled.even_handed else _DOUBT
        return min(doubt / self.full_steps, _MOST_DOUBT) if self.full_steps > 0.0 else _MOST_DOUBT

    @property
    def _length_share(self) -> float:
        return _LENGTH_SHARE if self._doubt >= _LEAST_DOUBT else 0.0

    @property
    def _slope_is_told(self) -> bool:
        return self._length_share > 0.0 and self.scaled.records >= _FEWEST_RECORDS

    @property
    def share(self) -> float:
        """Share of the budget that it takes: nothing, where there is hardly any doubt."""
        return self._length_share + (_CURVATURE_SHARE + _SLOPE_SHARE if self._slope_is_told else 0.0)

    def squared_length(self, move: Floats) -> float:
        """Mean square of what a move adds to predictions, of what of it can be seen; 0 where it is not looked at."""
        length = float(np.linalg.norm(move))
        if self._length_share == 0.0 or not 1.0 / _ABSURD < length < _ABSURD:
            return 0.0
        # From what it is in a direction that is flat to the steepest that there can be.
        smallest = math.floor(math.log2(length)) - _FLAT_OCTAVES
        largest = smallest + _FLAT_OCTAVES + math.ceil(math.log2(math.sqrt(self.scaled.size))) + 2
        view, multiplier = self.scaled.view(move[None, :], move), self.scaled.multiplier(self._length_share)
        sizes = GradientSizes(view, multiplier, per_octave=1, smallest=smallest, largest=largest, of="rows")
        return Sizes.of(self.scaled.curator, sizes).mean_square

    def factor(self, start: Floats, move: Floats, squared_length: float, slope: float) -> float:
        """What a move from a start is to be multiplied by.

        The slope and the curvature of the loss at its end tell how much farther the minimum along it is. The answer is
        the likeliest one: between that and the move as it is, by the noise in the slope and by how far moves are from
        their minimum as a rule.

        Parameters
        ----------
        start, move
            Where it begins, and how far it goes by now.
        squared_length
            Mean square of what it adds to predictions.
        slope
            Root mean square of the slopes of the loss.
        """
        scaled, length = self.scaled, math.sqrt(squared_length)
        loss, n_records = scaled.problem.loss, scaled.curator.n_records
        # Where targets were far out at first, slopes were those of another loss.
        slope = min(slope, loss.lipschitz)
        if not self._slope_is_told or not all(1.0 / _ABSURD < number < _ABSURD for number in (length, slope)):
            return 1.0
        # Rows in this view are what the move adds to predictions, in units of their root mean square.
        view = scaled.view(move[None, :] / length, start + move)
        clip = _MEAN * clip_multiple(scaled.records * math.sqrt(_SLOPE_SHARE), 1, scaled.even_handed)
        kept = _kept(clip, scaled.even_handed)
        radius, weighted = max(_LONG_ROWS, _BEYOND_CLIP * clip), not isinstance(loss, Squared)
        moment = MomentMatrix(view, scaled.multiplier(_CURVATURE_SHARE), radius=radius, weighted=weighted)
        gradient = JointGradient(view, scaled.multiplier(_SLOPE_SHARE), clip=clip * slope)
        least = max(_LEAST_CURVATURE, 2.0 * moment.noise_level(n_records))
        steep = loss.curvature * squared_length * max(least, float(scaled.curator.release(moment)[0, 0]))
        rise = length * float(scaled.curator.release(gradient)[0])
        noise = length * gradient.noise_level(n_records) / steep if steep > 0.0 else math.inf
        if noise > _ABSURD:
            return 1.0
        # Doubt about the slope makes for a model that is steeper around the move as it is.
        steeper = steep * (1.0 + (noise / self._doubt) ** 2)

        # A clip leaves part of the slope, which makes for shorter steps than noise alone asks for; the penalty is to
        # balance what it leaves.
        def falls(factor: float) -> bool:
            return rise + steeper * (factor - 1.0) + kept * self._slope_of_penalty(start, move, factor, steep) < 0.0

        low, high = 0.0, _LONGEST
        for _ in range(_HALVINGS):
            middle = (low + high) / 2.0
            low, high = (middle, high) if falls(middle) else (low, middle)
        return low

    def _slope_of_penalty(self, start: Floats, move: Floats, factor: float, unit: float) -> float:
        """How fast the penalty rises along a move, from how far a small step of its prox goes; `unit` is the loss's."""
        scaled = self.scaled
        weights, along = scaled.weights(start + factor * move), scaled.weights(move)
        total = 0.0
        for j in scaled.active[scaled.active < scaled.problem.n_penalized].tolist():
            weight = float(weights[j])
            step = _SMALL_STEP * weight * weight / unit
            if 0.0 < step < _ABSURD:
                total += float(along[j]) * (weight - scaled.problem.penalty.prox(weight, step, j)) / step
        return total


def _kept(clip: float, even_handed: bool) -> float:
    """What a clip leaves of a slope along one direction, if rows and residuals are normal; in units of their sizes.

    Where a clip looks at residuals, those beyond it do not change with the model any more. An even-handed one only
    makes records count for less, whose slopes are about equally large.
    """
    rows = np.arange(0.005, 8.0, 0.01)
    parts = np.exp(-(rows**2) / 2.0)
    counted = np.minimum(1.0, clip / rows) if even_handed else 2.0 * ndtr(clip / rows) - 1.0
    return float(np.sum(parts * rows**2 * counted) / np.sum(parts * rows**2))
