"""How gradients of whole records are clipped: from noisy histograms of their sizes."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from dpcd.ranges.sizes import Sizes
from dpcd.solvers.joint import Clip, Scaled
from dpcd.solvers.problem import Floats

# Clips are factor·(nμ/p)^power times the mean size of gradients, within limits: (factor, power, least, most). Noise is
# proportional to them and bias falls with them, so the more budget for each column, the larger a clip. Even-handed
# ones have hardly any bias.
_CLIP = (0.3, 0.45, 0.5, 6.0)
_EVEN_HANDED_CLIP = (0.16, 0.35, 0.3, 2.5)
# Later steps at which sizes are seen again, and the largest share of the budget for each of them. With noise of more
# than 1/30 of the records that is not worth having; nor more than 1/40 where sizes do not fall as a model gets better.
_SEEN_AGAIN, _LATER_SHARE, _WORTH_HAVING, _WORTH_HAVING_IF_EVEN_HANDED = (1, 2, 4, 8, 16), 0.01, 30.0, 40.0
# Where nothing can be seen at first, more looks are taken together, as long as half of what is left is left to steps.
# Where most records have no gradient, it takes many.
_MOST_LOOKS, _FOR_LOOKS = 16, 0.5
# What a clip cuts off pulls in many directions, of which about √p cancel out; noise has √p of them, and so much of it
# is worth a unit of bias.
_WORTH_OF_BIAS = 2.4
# A record that is cut off whatever its label only counts for less, which is worth so little of that.
_EVEN_HANDED_BIAS = 0.1
# The larger slope that either label gives a typical record, over what it is where the prediction is zero.
_TYPICAL_REACH = 1.2


def clip_multiple(records: float, size: int, even_handed: bool) -> float:
    """Clip of whole gradients, in units of their mean size, for a budget in records and so many columns."""
    factor, power, least, most = _EVEN_HANDED_CLIP if even_handed else _CLIP
    return min(max(factor * (records / size) ** power, least), most)


class Look(NamedTuple):
    """Sizes of gradients, and the problem and the point at which they were seen."""

    scaled: Scaled
    point: Floats
    sizes: Sizes


@dataclass(eq=False)
class Clips:
    """The clip of each step, from the sizes of the gradients when last seen.

    Parameters
    ----------
    scaled
        The problem.
    first, share, later
        Shares of the budget for the sizes at step 0 and for those at each of the later steps, and which these are.
    spare
        Share of the budget that may be spent on more looks at step 0.
    used
        Part of the gradients' budget that the answer is made of. The less it is, the more noise is in the answer, and
        the smaller the clips that suit it.
    divided
        Whether gradients are divided by what a clip leaves of them on average.
    """

    scaled: Scaled
    first: float
    share: float
    later: tuple[int, ...]
    spare: float = 0.0
    used: float = 1.0
    divided: bool = True
    clip: Clip | None = None
    squared_size: float = 0.0
    looks: list[Look] = field(default_factory=list)

    @classmethod
    def of(
        cls,
        scaled: Scaled,
        n_steps: int,
        taken: float,
        also: tuple[int, ...] = (),
        used: float = 1.0,
        divided: bool = True,
    ) -> Clips:
        """For so many steps, with a share of the budget taken by other things than sizes and steps.

        Sizes are seen at the first step, and if that is worth it at some later ones. `also` are steps at which the
        problem changes.
        """
        first = scaled.counting_share
        share = min(first, _LATER_SHARE)
        least = _WORTH_HAVING_IF_EVEN_HANDED if scaled.even_handed else _WORTH_HAVING
        worth_it = scaled.records * math.sqrt(share) >= least
        later = tuple(t for t in sorted({*_SEEN_AGAIN, *also}) if t < n_steps) if worth_it else ()
        spare = _FOR_LOOKS * (1.0 - taken - first - share * len(later))
        return cls(scaled, first, share, later, spare, used, divided)

    @property
    def total(self) -> float:
        """Share of the budget that all sizes get together."""
        return self.first + self.share * len(self.later)

    def begin(self, whitening: Floats, point: Floats) -> bool:
        """Look at the sizes of the first step; whether anything can be seen of them. `total` is known from then on."""
        scaled, share = self.scaled, self.first
        sizes = scaled.sizes(whitening, point, share)
        seen = sizes.level
        if seen is None and scaled.even_handed:
            # Rows have norm √p on average, and the larger slope of two labels is little above that at the start.
            reach = _TYPICAL_REACH * _reach(scaled, point)
            seen = reach * math.sqrt(scaled.size), reach**2 * scaled.size
        for _ in range(1, _MOST_LOOKS):
            if seen is not None or share > self.spare:
                break
            self.first += share
            self.spare -= share
            sizes = sizes.joined(scaled.sizes(whitening, point, share))
            seen = sizes.level
        self.looks.append(Look(scaled, point, sizes))
        self._set(sizes, seen)
        return self.clip is not None

    def at(self, step: int, whitening: Floats, point: Floats) -> Clip:
        """The clip at a point."""
        if step in self.later:
            sizes = self.scaled.sizes(whitening, point, self.share)
            self.looks.append(Look(self.scaled, point, sizes))
            self._set(sizes, sizes.level)
        assert self.clip is not None, "steps are taken only if sizes were seen"
        return self.clip

    def _set(self, sizes: Sizes, seen: tuple[float, float] | None) -> None:
        """Set the clip for sizes of this mean and mean square; None leaves it as it is."""
        if seen is None:
            return
        scaled = self.scaled
        mean, self.squared_size = seen
        norm = mean * clip_multiple(math.sqrt(self.used) * scaled.records, scaled.size, scaled.even_handed)
        noise = _WORTH_OF_BIAS * scaled.size / scaled.records
        if scaled.even_handed:
            norm = sizes.lowered(norm, noise / _EVEN_HANDED_BIAS)
        else:
            norm = sizes.raised(norm, noise, self.divided)
        self.clip = Clip(norm, sizes.kept(norm))


def _reach(scaled: Scaled, point: Floats) -> float:
    """The larger slope that either label gives a record for which only the intercept counts."""
    intercept = scaled.active == scaled.problem.n_penalized
    constant = float(np.sum(point[intercept] / scaled.roots[intercept]))
    return max(abs(scaled.problem.loss.derivative(label, constant)) for label in (1.0, -1.0))
