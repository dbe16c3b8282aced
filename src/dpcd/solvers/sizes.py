"""What noisy histograms of sizes say."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from dpcd.privacy import Curator
from dpcd.privacy.joint import GradientSizes
from dpcd.solvers.problem import Floats

#: A histogram shows something when three octaves hold more than so many deviations of noise, if they could be any three
#: of a hundred.
VISIBLE, WINDOW_OCTAVES = 5.0, 3
# A bucket counts as occupied when it exceeds so many deviations of noise.
_OCCUPIED = 1.0
# A clip is raised by at most four octaves, for buckets that exceed so many deviations of noise.
_RAISED_OCTAVES, _STANDS_OUT = 4, 3.5
# A mean square is that of buckets that exceed so many, and a tail that of those that exceed the second.
_SQUARES_STAND_OUT, _IN_A_TAIL = 2.5, 2.0


@dataclass(frozen=True, eq=False)
class Sizes:
    """What a noisy histogram says about the sizes of gradients.

    Parameters
    ----------
    counts, edges
        Noisy number of records in each bucket, and the buckets' upper ends.
    noise
        Standard deviation of the noise in each count.
    per_octave
        Buckets between a size and its double.
    visible
        Deviations of noise that three octaves must exceed to show something.
    """

    counts: Floats
    edges: Floats
    noise: float
    per_octave: int
    visible: float = VISIBLE

    @classmethod
    def of(cls, curator: Curator, mechanism: GradientSizes, visible: float = VISIBLE) -> Sizes:
        """Release a histogram."""
        return cls(curator.release(mechanism), mechanism.edges, mechanism.noise_level, mechanism.per_octave, visible)

    def joined(self, other: Sizes) -> Sizes:
        """What two histograms of the same sizes say together."""
        own, its = self.noise**-2, other.noise**-2
        counts = (own * self.counts + its * other.counts) / (own + its)
        return replace(self, counts=counts, noise=(own + its) ** -0.5)

    @property
    def _middles(self) -> Floats:
        return np.asarray(self.edges * 2.0 ** (-0.5 / self.per_octave))

    @cached_property
    def _near(self) -> tuple[Floats, Floats] | None:
        """Counts and middles of the buckets about where most records are; None where only noise can be seen."""
        width = WINDOW_OCTAVES * self.per_octave
        sums = np.convolve(self.counts, np.ones(width), mode="valid")
        first = int(np.argmax(sums))
        if sums[first] <= self.visible * self.noise * math.sqrt(width):
            return None
        near = slice(max(0, first - 2 * width), first + 2 * width)
        counts = np.where(self.counts[near] > _OCCUPIED * self.noise, self.counts[near], 0.0)
        return counts / counts.sum(), self._middles[near]

    @property
    def level(self) -> tuple[float, float] | None:
        """Mean and mean square, sizes above four times the mean counted as that; None where only noise can be seen."""
        if self._near is None:
            return None
        parts, middles = self._near
        mean = float(parts @ middles)
        for _ in range(5):
            mean = float(parts @ np.minimum(middles, 4.0 * mean))
        return mean, float(parts @ np.minimum(middles, 4.0 * mean) ** 2)

    def _outstanding(self, deviations: float) -> Floats:
        """Counts that exceed so many deviations of noise: a few far too large sizes would be noise."""
        return np.where(self.counts > deviations * self.noise, self.counts, 0.0)

    def mean_square(self, n_records: int) -> float:
        """Mean square over all records, those in buckets that do not stand out counted as zero."""
        return float(self._middles**2 @ self._outstanding(_SQUARES_STAND_OUT)) / n_records

    def exceeded_by(self, count: float) -> float:
        """The size that so many records exceed, from buckets that stand out; 0 where these hold fewer."""
        counts, ends = self._outstanding(_IN_A_TAIL)[::-1], self.edges[::-1]
        above = np.cumsum(counts)
        if count > above[-1]:
            return 0.0
        bucket = int(np.searchsorted(above, count))
        part = 1.0 - (above[bucket] - count) / counts[bucket]
        return float(ends[bucket] * 2.0 ** (-part / self.per_octave))

    def kept(self, clip: float) -> float:
        """Part of a gradient that a clip leaves, on average over the records; 1 where only noise can be seen."""
        if self._near is None:
            return 1.0
        parts, middles = self._near
        return float(parts @ np.minimum(1.0, clip / middles))

    def raised(self, clip: float, n_records: int, unit: float) -> float:
        """A clip, raised where it cuts off so much that this is worth more noise: `unit` for each unit of a clip."""
        start = int(np.searchsorted(self.edges, clip))
        end = start + _RAISED_OCTAVES * self.per_octave
        choices = np.concatenate([[clip], self.edges[start:end]])
        beyond = self._outstanding(_STANDS_OUT)[start:end]
        cut = np.maximum(self._middles[start:end] - choices[:, None], 0.0) @ beyond / n_records
        return float(choices[np.argmin((unit * choices) ** 2 + cut**2)])
