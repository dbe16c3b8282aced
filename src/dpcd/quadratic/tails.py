"""What a clip cuts off of gradients, from noisy histograms of their sizes.

A few records far out can hold most of what is cut off, too few for their buckets to stand out. How many there are is
read off the shape of all sizes: of shapes with longer and shorter tails, those count that fit what is seen.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

import numpy as np
from scipy.special import gammaincinv, ndtri, stdtrit

from dpcd.privacy.lattice import Floats
from dpcd.ranges.sizes import Sizes

# Sizes are those of Student's residuals, with so many degrees of freedom, times those of normal rows; or of normal
# residuals times such rows times lognormal numbers with this spread.
_FREEDOMS, _SPREADS = (1.5, 2.0, 3.0, 4.0, 6.0, 10.0, math.inf), (0.3, 0.6, 0.9, 1.2)
_NORMAL = _FREEDOMS.index(math.inf)
# Octaves below and above the typical size in which shapes have a part, parts of an octave, and where the unit is looked
# for.
_REACH, _PARTS, _BESIDE = 14, 8, 4
# Points that stand for a shape: at equal steps of probability, and ever closer to 1 so many times beyond the last.
_POINTS, _HALVINGS = 500, 16
# Shapes fit real sizes to within this part of each bucket, and a part of less than half a record is none.
_MISFIT, _NO_RECORD = 0.3, 0.5
# Half of what is cut off counts as a deviation: a 95 % interval then holds whichever way all of it pulls.
_AS_DEVIATION = 0.5


class _Shape(NamedTuple):
    """Parts of the records about each size, in logarithms to base 2."""

    sizes: Floats
    parts: Floats


@dataclass(frozen=True, eq=False)
class Cut:
    """What a clip cuts off.

    Parameters
    ----------
    looks
        Histograms of sizes that have one shape in common, in units of their own. The last has the unit that counts.
    clip
        What gradients are clipped to.
    kept
        What they are divided by.
    size
        How many columns there are.
    """

    looks: tuple[Sizes, ...]
    clip: float
    kept: float
    size: int

    @property
    def noise(self) -> float:
        """Noise in a count of the clearest look, as a part of the records."""
        return min(look.noise / look.n_records for look in self.looks)

    @property
    def deviation(self) -> float:
        """What may be missing in the mean gradient in any direction, as a standard deviation.

        No direction loses more than the mean of what is cut off of each record. Its square is an average over shapes,
        weighted by how well they fit, of what there is beyond normal sizes: what is cut off of normal residuals cancels
        out, as gradients are divided by what a clip leaves of them.
        """
        shapes = _shapes(self.size)
        fits, beyond = np.zeros((2, len(shapes)))
        for look in self.looks:
            for k, shape in enumerate(shapes):
                units, logs = _fit(look, shape)
                top = float(logs.max())
                weights = np.exp(logs - top)
                fits[k] += top + math.log(weights.sum())
                # The last look overwrites those before it.
                beyond[k] = weights @ _beyond(shape, units, self.clip, look.n_records) / weights.sum()
        weights = np.exp(fits - fits.max())
        more = np.maximum(0.0, beyond - beyond[_NORMAL])
        return _AS_DEVIATION * math.sqrt(float(weights @ more**2 / weights.sum())) / self.kept


@cache
def _shapes(size: int) -> tuple[_Shape, ...]:
    """What sizes of gradients with so many entries are like, about 1."""
    halvings = 2.0 ** -np.arange(_HALVINGS + 1.0)
    tail = 1.0 - (halvings[:-1] + halvings[1:]) / 2.0 / _POINTS
    points = np.concatenate([(np.arange(_POINTS - 1) + 0.5) / _POINTS, tail])
    weights = np.concatenate([np.full(_POINTS - 1, 1.0), halvings[:-1] - halvings[1:]])
    weights /= weights.sum()
    edges = np.arange(-_REACH * _PARTS, _REACH * _PARTS + 1) / _PARTS

    def parts(values: Floats) -> Floats:
        inside = np.clip(np.log2(values), edges[0] + 1e-6, edges[-1] - 1e-6)
        return np.asarray(np.histogram(inside, edges, weights=weights)[0])

    rows = parts(np.sqrt(2.0 * gammaincinv(size / 2.0, points) / size))
    normal = parts(np.abs(ndtri(0.5 + points / 2.0)))
    found = []
    for freedom in _FREEDOMS:
        residuals = normal if math.isinf(freedom) else parts(stdtrit(freedom, 0.5 + points / 2.0))
        found.append(np.convolve(residuals, rows))
    found += [np.convolve(found[-1], parts(np.exp(spread * ndtri(points)))) for spread in _SPREADS]
    shapes = []
    for part in found:
        # A product of so many factors begins at so many times the first octave.
        factors = round(len(part) / (len(edges) - 1))
        shapes.append(_Shape((np.arange(len(part)) + factors / 2.0) / _PARTS - factors * _REACH, part))
    return tuple(shapes)


def _fit(look: Sizes, shape: _Shape) -> tuple[Floats, Floats]:
    """Units that sizes may have, and the logarithm of how well the shape fits with each of them."""
    assert look.level is not None, "only looks that show something are asked"
    units = math.log2(look.level[0]) + np.arange(-_BESIDE * _PARTS, _BESIDE * _PARTS + 1) / _PARTS
    edges = np.log2(look.edges)
    ends = np.concatenate([[edges[0] - 1.0 / look.per_octave], edges])
    below = np.concatenate([[0.0], np.cumsum(shape.parts)])
    places = np.concatenate([shape.sizes - 0.5 / _PARTS, [shape.sizes[-1] + 0.5 / _PARTS]])
    expected = look.n_records * np.diff(np.interp(ends - units[:, None], places, below), axis=1)
    variances = look.noise**2 + (_MISFIT * expected) ** 2
    return units, -0.5 * np.sum((look.counts - expected) ** 2 / variances + np.log(variances), axis=1)


def _beyond(shape: _Shape, units: Floats, clip: float, n_records: int) -> Floats:
    """Mean of what exceeds a clip, for sizes of this shape in some units."""
    above = n_records * np.cumsum(shape.parts[::-1])[::-1]
    parts = np.where(above > _NO_RECORD, shape.parts, 0.0)
    return np.asarray(np.maximum(2.0 ** (shape.sizes + units[:, None]) - clip, 0.0) @ parts)
