"""How gradients of whole records are clipped: from noisy histograms of their sizes."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from dpcd.policy import POLICY
from dpcd.ranges.sizes import Sizes
from dpcd.solvers.allocation import Allocation
from dpcd.solvers.problem import Floats
from dpcd.solvers.scaled import Clip, Scaled


def clip_multiple(records: float, size: int, labels: bool) -> float:
    """Clip of whole gradients, in units of their mean size, for a budget in records and so many columns.

    Noise is proportional to clips and bias falls with them, so the more budget for each column, the larger a clip.
    Clips that do not look at labels have hardly any bias.
    """
    if labels:
        multiple = POLICY.label_clip_factor * (records / size) ** POLICY.label_clip_power
        return min(max(multiple, POLICY.label_clip_least), POLICY.label_clip_most)
    return min(max(POLICY.clip_factor * (records / size) ** POLICY.clip_power, POLICY.clip_least), POLICY.clip_most)


class Look(NamedTuple):
    """Sizes of gradients, and the problem and the point at which they were seen."""

    scaled: Scaled
    point: Floats
    sizes: Sizes


class Clips:
    """The clip of each step, from the sizes of the gradients when last seen.

    Parameters
    ----------
    shares
        What may be spent. More looks at the first step take from what is left for gradients.
    used
        Part of the gradients' budget that the answer is made of. The smaller it is, the more noise is in the answer,
        and the smaller the clips that suit it.
    divided
        Whether gradients are divided by what a clip leaves of them on average.
    """

    def __init__(self, shares: Allocation, used: float, divided: bool = True) -> None:
        self.shares, self.used, self.divided = shares, used, divided
        self.clip: Clip | None = None
        self.squared_size = 0.0
        self.looks: list[Look] = []

    def release_first(self, scaled: Scaled, whitening: Floats, point: Floats) -> bool:
        """Look at the sizes of the first step; whether anything can be seen of them.

        Where nothing can be seen at first, as where most records have no gradient, more looks are taken together.
        """
        share, spare = self.shares.sizes, self.shares.spare
        sizes = scaled.release_sizes(whitening, point, share)
        seen = sizes.level
        if seen is None and scaled.even_handed:
            # Rows have norm √p on average, and the larger slope of two labels is little above that at the start.
            reach = POLICY.typical_reach * _reach(scaled, point)
            seen = reach * math.sqrt(scaled.size), reach**2 * scaled.size
        for _ in range(1, POLICY.size_looks):
            if seen is not None or share > spare:
                break
            self.shares = self.shares._replace(sizes=self.shares.sizes + share)
            spare -= share
            sizes = sizes.joined(scaled.release_sizes(whitening, point, share))
            seen = sizes.level
        self.looks.append(Look(scaled, point, sizes))
        self._set(scaled, sizes, seen)
        return self.clip is not None

    def release_at(self, step: int, scaled: Scaled, whitening: Floats, point: Floats) -> Clip:
        """The clip at a point; sizes are seen again before some steps."""
        if step in self.shares.looks:
            sizes = scaled.release_sizes(whitening, point, self.shares.later_sizes)
            self.looks.append(Look(scaled, point, sizes))
            self._set(scaled, sizes, sizes.level)
        assert self.clip is not None, "steps are taken only if sizes were seen"
        return self.clip

    def _set(self, scaled: Scaled, sizes: Sizes, seen: tuple[float, float] | None) -> None:
        """Set the clip for sizes of this mean and mean square; None leaves it as it is."""
        if seen is None:
            return
        mean, self.squared_size = seen
        norm = mean * clip_multiple(math.sqrt(self.used) * scaled.records, scaled.size, scaled.even_handed)
        # What a clip cuts off pulls in many directions, of which about √p cancel out, and noise has √p of them.
        noise = POLICY.worth_of_bias * scaled.size / scaled.records
        if scaled.even_handed:
            # A record that is cut off whatever its label only counts for less.
            norm = sizes.lowered(norm, noise / POLICY.label_bias)
        else:
            norm = sizes.raised(norm, noise, self.divided)
        self.clip = Clip(norm, sizes.kept(norm))


def _reach(scaled: Scaled, point: Floats) -> float:
    """The larger slope that either label gives a record for which only the intercept counts."""
    intercept = scaled.active == scaled.problem.n_penalized
    constant = float(np.sum(point[intercept] / scaled.roots[intercept]))
    return max(abs(scaled.problem.loss.derivative(label, constant)) for label in (1.0, -1.0))
