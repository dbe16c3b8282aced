"""What noisy histograms of sizes say."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from scipy.special import erf, ndtr

from dpcd.policy import POLICY
from dpcd.privacy import Curator
from dpcd.privacy.lattice import Floats
from dpcd.privacy.records import GradientSizes

# The unit of sizes is looked for in such parts of an octave, up to so many octaves beside where most records are.
_STEP, _BESIDE = 0.05, 3.0
# A clip is lowered in such parts of an octave, with so many sizes for those in a bucket.
_FINE, _SPREAD = 0.125, 8


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
    n_records
        Number of all records.
    visible
        Deviations of noise that three octaves must exceed to show something.
    """

    counts: Floats
    edges: Floats
    noise: float
    per_octave: int
    n_records: int
    visible: float = POLICY.visible

    @classmethod
    def release(cls, curator: Curator, mechanism: GradientSizes, visible: float = POLICY.visible) -> Sizes:
        """Release a histogram."""
        counts, edges, noise = curator.release(mechanism), mechanism.edges, mechanism.noise_level
        return cls(counts, edges, noise, mechanism.per_octave, curator.n_records, visible)

    def joined(self, other: Sizes) -> Sizes:
        """What two histograms of the same sizes say together."""
        own, its = self.noise**-2, other.noise**-2
        counts = (own * self.counts + its * other.counts) / (own + its)
        return replace(self, counts=counts, noise=(own + its) ** -0.5)

    @property
    def _middles(self) -> Floats:
        return np.asarray(self.edges * 2.0 ** (-0.5 / self.per_octave))

    @property
    def _hazy(self) -> bool:
        """Whether there is too much doubt about which buckets are occupied."""
        return self.noise > POLICY.hazy * self.n_records

    @cached_property
    def _first(self) -> int | None:
        """The first of the three octaves' buckets that hold most records; None where only noise can be seen."""
        width = POLICY.window_octaves * self.per_octave
        sums = np.convolve(self.counts, np.ones(width), mode="valid")
        first = int(np.argmax(sums))
        return first if sums[first] > self.visible * self.noise * math.sqrt(width) else None

    @cached_property
    def _near(self) -> tuple[Floats, Floats] | None:
        """Parts of the records in the buckets about where most are, and the buckets' middles."""
        if self._first is None:
            return None
        reach = 2 * POLICY.window_octaves * self.per_octave
        near = slice(max(0, self._first - reach), self._first + reach)
        if self._hazy:
            counts = self._likely(self._first)[near]
        else:
            counts = np.where(self.counts[near] > POLICY.occupied * self.noise, self.counts[near], 0.0)
        return counts / counts.sum(), self._middles[near]

    def _likely(self, first: int) -> Floats:
        """The histogram that is expected of normal or lognormal sizes, given what is seen: a posterior mean.

        Sizes are those of normal numbers where residuals are, and lognormal where targets are all of the same sign.
        """
        expected = np.concatenate([self._expected(first, normal) for normal in (True, False)])
        # How many records there are is left open: some have no gradient at all.
        fit = np.maximum(0.0, expected @ self.counts) / (self.noise * np.linalg.norm(expected, axis=1))
        return np.asarray(np.exp((fit**2 - np.max(fit) ** 2) / 2.0) @ expected)

    def _expected(self, first: int, normal: bool) -> Floats:
        """Parts of normal or lognormal sizes in each bucket, a row for every unit that they may have."""
        start = math.log2(self.edges[first])
        octaves = np.arange(start - _BESIDE, start + POLICY.window_octaves + _BESIDE, _STEP)
        ends = np.concatenate([[self.edges[0] * 2.0 ** (-1.0 / self.per_octave)], self.edges])
        multiples = ends / 2.0 ** octaves[:, None]
        return np.diff(
            erf(multiples / math.sqrt(2.0)) if normal else ndtr(np.log(multiples) / POLICY.log_spread), axis=1
        )

    @cached_property
    def _normal(self) -> Floats:
        """The histogram of normal sizes that comes nearest; nothing where only noise can be seen."""
        if self._first is None:
            return np.zeros_like(self.counts)
        expected = self._expected(self._first, normal=True)
        lengths = np.linalg.norm(expected, axis=1)
        fit = expected @ self.counts / lengths
        best = int(np.argmax(fit))
        return np.asarray(expected[best] * (max(0.0, float(fit[best])) / lengths[best]))

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

    def _outstanding(self, deviations: float, expected: Floats | float = 0.0) -> Floats:
        """What of counts exceeds what is expected, by so many deviations: a few far too large sizes would be noise."""
        more = self.counts - expected
        return np.where(more > deviations * self.noise, more, 0.0)

    @property
    def mean_square(self) -> float:
        """Mean square over all records, those in buckets that do not stand out counted as zero."""
        return float(self._middles**2 @ self._outstanding(POLICY.squares_stand_out)) / self.n_records

    def kept(self, clip: float) -> float:
        """Part of a gradient that a clip leaves, on average over the records; 1 where only noise can be seen."""
        if self._near is None:
            return 1.0
        parts, middles = self._near
        return float(parts @ np.minimum(1.0, clip / middles))

    def raised(self, clip: float, noise: float, normal_cancel_out: bool) -> float:
        """A clip, raised to the end of a bucket where that is worth it: a clip of 1 would have this noise.

        Where gradients are divided by what a clip leaves of them, what it cuts off of normal residuals cancels out.
        """
        if self._hazy:
            noise *= POLICY.by_chance
        start = int(np.searchsorted(self.edges, clip))
        end = start + POLICY.clip_raised * self.per_octave
        choices = np.concatenate([[clip], self.edges[start:end]])
        expected = POLICY.cancels_out * self._normal if normal_cancel_out else 0.0
        beyond = self._outstanding(POLICY.beyond_clip, expected)[start:end]
        cut = np.maximum(self._middles[start:end] - choices[:, None], 0.0) @ beyond / self.n_records
        return float(choices[np.argmin((noise * choices) ** 2 + cut**2)])

    def lowered(self, clip: float, noise: float) -> float:
        """A clip, lowered where that cuts off so little that less noise is worth more: a clip of 1 would have this."""
        choices = clip * 2.0 ** -np.arange(0.0, POLICY.clip_lowered + _FINE, _FINE)
        # Within a bucket sizes are spread evenly on a logarithmic scale.
        spread = np.outer(self.edges, 2.0 ** (-(np.arange(_SPREAD) + 0.5) / (_SPREAD * self.per_octave)))
        beyond = np.maximum(spread - choices[:, None, None], 0.0).mean(axis=2)
        cut = beyond @ self._outstanding(POLICY.occupied) / self.n_records
        return float(choices[np.argmin((noise * choices) ** 2 + cut**2)])
