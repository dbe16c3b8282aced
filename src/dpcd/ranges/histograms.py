"""What noisy histograms say about their columns, read by likelihood.

A histogram's sensitivity does not depend on its number of cells, so one release shows sign and octave of all values of
all columns. What noise leaves of it is compared with the shapes that columns have: numbers anywhere, numbers about
zero, amounts with or without zeros, flags, each at every scale. The number of records is public, so a shape says what
each count should be. Where columns lie and how far they spread are averages over the shapes that are likely.

Everything here is post-processing of released counts.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from dpcd.policy import POLICY
from dpcd.privacy.kernels import BUCKETS, LARGEST_EXPONENT
from dpcd.privacy.lattice import Floats

# Octaves below and above its scale in which a shape has a part.
_BELOW, _ABOVE = 12, 9
_WIDTH = _BELOW + _ABOVE + 1
# Numbers anywhere, numbers about zero, amounts, flags.
_KINDS = 4
# Points that stand for a shape, at equal steps of probability.
_POINTS = 1000
_COLUMNS_AT_A_TIME = 8


class Shapes(NamedTuple):
    """What columns are like at scale 1, an entry or a row for each shape.

    Parameters
    ----------
    cells
        Which part of the records is in each octave of the positive numbers, of the negative ones, and is zero (last).
    first, second
        What each cell contributes to the mean, and to the mean square.
    log_prior
        Whatever the scale is.
    is_flag
        Whether the scale can be no other than 1.
    """

    cells: Floats
    first: Floats
    second: Floats
    log_prior: Floats
    is_flag: NDArray[np.bool_]


@cache
def shapes() -> Shapes:
    """Four kinds of columns, each as likely as any other, in a few variants."""
    normal = ndtri((np.arange(_POINTS) + 0.5) / _POINTS)
    places = [(spread, place, 0.25) for spread in (4.0, 2.0, 1.0, 0.5, 0.25) for place in 2.0 ** np.arange(0, 1, 0.25)]
    for spread in (0.125, 0.03125):
        # Numbers so close together are all in one octave, unless they are this close to the end of it.
        places += [(spread, 1.0 + beside * spread, 0.25 * spread) for beside in np.arange(-2.0, 2.25, 0.25)]
        places += [(spread, place, (1.0 - 4.25 * spread) / 4.0) for place in 2.0 ** np.arange(0.125, 1, 0.25)]
    numbers = [sign * place * (1.0 + spread * normal) for spread, place, _ in places for sign in (1.0, -1.0)]
    centered = [deviation * normal for deviation in (1.0, math.sqrt(2.0))]
    rare = 2.0 ** -np.arange(7)
    amounts = [
        sign * median * _with_zeros(np.exp(spread * normal), part)
        for median in (1.0, math.sqrt(2.0))
        for spread in (0.6, 1.0, 1.5, 2.2)
        for part in rare
        for sign in (1.0, -1.0)
    ]
    flags = [_with_zeros(np.ones(_POINTS), part) for part in (0.9, 0.75, *rare[1:])]
    kinds = (numbers, centered, amounts, flags)
    assert len(kinds) == _KINDS

    def within(points: Floats) -> Floats:
        # Noise hides the outermost parts of a column, and ranges cut them off.
        return np.clip(points, *np.quantile(points, [POLICY.outermost, 1.0 - POLICY.outermost]))

    cells, first, second = (
        np.array([_in_cells(points, within(points) ** power) for kind in kinds for points in kind])
        for power in (0, 1, 2)
    )
    weights = [np.repeat([weight for *_, weight in places], 2), *(np.ones(len(kind)) for kind in kinds[1:])]
    prior = np.concatenate([weight / (len(kinds) * weight.sum()) for weight in weights])
    return Shapes(cells, first, second, np.log(prior), np.arange(len(prior)) >= len(prior) - len(flags))


def _with_zeros(points: Floats, part: float) -> Floats:
    """Points of which this part stays and the others become zero."""
    zeros = round((1.0 - part) * _POINTS)
    kept = points[np.linspace(0, _POINTS - 1, _POINTS - zeros).round().astype(int)]
    return np.concatenate([np.zeros(zeros), kept])


def _in_cells(points: Floats, weights: Floats) -> Floats:
    """Mean of the weights of the points in each cell; those beyond the octaves are in the outermost."""
    _, exponents = np.frexp(points)
    octave = np.clip(exponents - 1, -_BELOW, _ABOVE) + _BELOW
    cell = np.where(points == 0.0, 2 * _WIDTH, np.where(points > 0.0, octave, _WIDTH + octave))
    return np.bincount(cell, weights, 2 * _WIDTH + 1) / len(points)


def _windows(counts: Floats) -> Floats:
    """The cells in which a shape at each scale has a part, for several histograms: histogram × scale × cell."""
    width = ((0, 0), (_BELOW, _ABOVE))
    slide = np.lib.stride_tricks.sliding_window_view
    positive, negative = (
        slide(np.pad(side, width), _WIDTH, axis=1) for side in (counts[:, BUCKETS + 1 :], counts[:, BUCKETS - 1 :: -1])
    )
    zeros = np.broadcast_to(counts[:, None, BUCKETS, None], (*positive.shape[:2], 1))
    return np.concatenate([positive, negative, zeros], axis=2)


def _histograms(windows: Floats) -> Floats:
    """The transpose of `_windows`: histograms that add up to what is in the windows."""
    sides = np.zeros((2, len(windows), BUCKETS + _BELOW + _ABOVE))
    for k in range(_WIDTH):
        sides[0, :, k : k + BUCKETS] += windows[:, :, k]
        sides[1, :, k : k + BUCKETS] += windows[:, :, _WIDTH + k]
    positive, negative = sides[:, :, _BELOW : _BELOW + BUCKETS]
    return np.concatenate([negative[:, ::-1], windows[:, :, -1].sum(axis=1)[:, None], positive], axis=1)


# Lower ends of the octaves of absolute values, and signs, in the order of a histogram's cells.
_SCALES = np.ldexp(1.0, np.arange(-LARGEST_EXPONENT, LARGEST_EXPONENT + 1))
_LOWER_ENDS = np.concatenate([_SCALES[::-1], [0.0], _SCALES])
_SIGNS = np.repeat([-1.0, 0.0, 1.0], [BUCKETS, 1, BUCKETS])
# Mean of x and x² over an octave from 1 on, if all parts of it are as likely on a logarithmic scale.
_MEAN_IN_OCTAVE, _SQUARE_IN_OCTAVE = 1.0 / math.log(2.0), 1.5 / math.log(2.0)


@dataclass(frozen=True, eq=False)
class Reading:
    """What histograms around a center say about their columns, an entry for each.

    Parameters
    ----------
    mean, deviation
        Expected distance from the center, and standard deviation, doubt about the mean included.
    reach
        Distance from the center up to which there surely are records.
    belief
        Probability that the column has about the size that is most likely.
    excess
        How much larger the variance is than that of a column of which all is known, on average over what is likely.
    complete
        Whether the records within reach could be all there are.
    """

    mean: Floats
    deviation: Floats
    reach: Floats
    belief: Floats
    excess: Floats
    complete: NDArray[np.bool_]

    @classmethod
    def of(cls, counts: Floats, noise: Floats, n_records: int, lower: Floats, upper: Floats, around: Floats) -> Reading:
        """Read noisy histograms, a row for each column.

        Parameters
        ----------
        counts, noise
            As `DyadicCounts` releases them, and the standard deviation of the noise in each row.
        n_records
            How many records there are.
        lower, upper
            Bounds of the values, as distances from the center; infinite where they are not known. Means lie within
            them, and a deviation is at most half of their distance.
        around
            Deviations that an earlier look found around centers of its own; 0 where there was none.
        """
        near = np.where(around > 0.0, POLICY.near * around, math.inf)
        lower, upper = np.maximum(lower, -near), np.minimum(upper, near)
        few = [slice(k, k + _COLUMNS_AT_A_TIME) for k in range(0, len(counts), _COLUMNS_AT_A_TIME)]
        # Bounds may be as large as doubles are.
        with np.errstate(over="ignore"):
            parts = [
                _read(counts[k], float(n_records), noise[k], lower[k], upper[k], around[k], len(counts)) for k in few
            ]
        return cls(*(np.concatenate(values) for values in zip(*parts, strict=True)))


def _read(
    counts: Floats, n: float, noise: Floats, lower: Floats, upper: Floats, around: Floats, n_columns: int
) -> tuple[Floats, ...]:
    """The fields of a `Reading`, for some of so many columns."""
    bank = shapes()
    weights, belief = _likely(counts, n, noise, lower, upper, around)
    # What likely shapes expect of each cell: records, and what these contribute to the mean and to the mean square.
    scaled = weights * _SCALES[:, None]
    squared = scaled * _SCALES[:, None]
    expected, first, second = (
        n * _histograms(part @ cells)
        for part, cells in ((weights, bank.cells), (scaled, bank.first), (squared, bank.second))
    )
    likely = second.sum(axis=1) / n - (first.sum(axis=1) / n) ** 2
    # What stands out from that is there too, as far out as there surely is something. In a cell values are where likely
    # shapes have them, or anywhere in the octave where these have none.
    reach = _reach(counts, noise, np.sqrt(second.sum(axis=1) / n), n_columns)
    surplus = counts - expected
    stands_out = (np.abs(surplus) > POLICY.count_stands_out * noise[:, None]) & (reach[:, None] > _LOWER_ENDS)
    surplus = np.maximum(np.where(stands_out, surplus, 0.0), -expected)
    known = expected > 1e-6 * n
    records = np.where(known, expected, 1.0)
    total = np.maximum((expected + surplus).sum(axis=1), np.finfo(float).tiny)
    first = first + surplus * np.where(known, first / records, _MEAN_IN_OCTAVE * _SIGNS * _LOWER_ENDS)
    second = second + surplus * np.where(known, second / records, _SQUARE_IN_OCTAVE * _LOWER_ENDS**2)
    mean = first.sum(axis=1) / total
    variance = np.maximum(second.sum(axis=1) / total - mean**2, 0.0)
    spread_out = bank.cells.max(axis=1) < 1.0 - 2.0 * POLICY.misfit
    own = np.where(spread_out, bank.second.sum(axis=1) - bank.first.sum(axis=1) ** 2, 0.0) * _SCALES[:, None] ** 2
    rest, least = np.maximum(variance - likely, 0.0), np.maximum(variance / POLICY.much_smaller, np.finfo(float).tiny)
    own = np.maximum(own + rest[:, None, None], least[:, None, None])
    excess = np.sum(weights * (variance[:, None, None] / own), axis=(1, 2))
    near = (reach[:, None] > _LOWER_ENDS) & (reach[:, None] * 2.0**-_WIDTH < _LOWER_ENDS) | (_SIGNS == 0.0)
    missing = n - np.where(near, counts, 0.0).sum(axis=1)
    complete = missing < POLICY.count_stands_out * noise * np.sqrt(near.sum(axis=1))
    return mean, np.sqrt(variance), reach, belief, excess, complete


def _likely(
    counts: Floats, n: float, noise: Floats, lower: Floats, upper: Floats, around: Floats
) -> tuple[Floats, Floats]:
    """Probabilities of shapes of the most likely size, column × scale × shape, and of that size."""
    bank = shapes()
    mean, square = bank.first.sum(axis=1) * _SCALES[:, None], bank.second.sum(axis=1) * _SCALES[:, None] ** 2
    size, deviation = np.sqrt(square), np.sqrt(square - mean**2)
    usual = -0.5 * (np.log2(_SCALES)[:, None] / POLICY.usual_octaves) ** 2
    # A center that is off falls within a small distance of a value with a probability in proportion to that distance.
    off = np.where(around > 0.0, around, 1.0)[:, None, None]
    beside = np.log(np.minimum(size / off, 1.0))
    log_prior = bank.log_prior + np.where(around[:, None, None] > 0.0, beside, usual)
    log_prior = np.where(bank.is_flag & (_SCALES[:, None] != 1.0), -np.inf, log_prior)
    low, high = lower[:, None, None], upper[:, None, None]
    possible = (mean >= low) & (mean <= high) & (deviation <= (high - low) / 2.0)
    fit = n * (_windows(counts) @ bank.cells.T) - n**2 * np.sum(bank.cells**2, axis=1) / 2.0
    not_zero = np.maximum(n - counts[:, BUCKETS], noise)
    doubt = (noise**2 + (POLICY.misfit * not_zero) ** 2)[:, None, None]
    score = np.where(possible, fit / doubt + log_prior, -np.inf)
    # That there is nothing but zeros is as likely as any kind of column, of whatever scale.
    nothing = n * (counts[:, BUCKETS] - n / 2.0) / doubt[:, 0, 0] + math.log(np.exp(usual).sum() / _KINDS)
    top = np.maximum(score.max(axis=(1, 2)), nothing)
    weights = np.exp(score - top[:, None, None])
    weights /= (weights.sum(axis=(1, 2)) + np.exp(nothing - top))[:, None, None]
    order = np.argsort(size, axis=None)
    below = np.cumsum(weights.reshape(len(counts), -1)[:, order], axis=1)
    median = size.ravel()[order][np.argmax(below >= 0.5 * below[:, -1:], axis=1)][:, None, None]
    weights = np.where((size <= POLICY.one_size * median) & (size >= median / POLICY.one_size), weights, 0.0)
    belief = weights.sum(axis=(1, 2))
    return weights / np.maximum(belief, np.finfo(float).tiny)[:, None, None], belief


def _surely(size: int) -> float:
    """How many deviations of noise none of so many counts exceeds by noise alone."""
    return math.sqrt(2.0 * math.log(size / POLICY.false_alarms))


def _reach(counts: Floats, noise: Floats, size: Floats, n_columns: int) -> Floats:
    """Upper end of the highest octave that belongs to a column of this size: all below it do, or it surely does."""
    either = np.maximum(counts[:, BUCKETS + 1 :], counts[:, BUCKETS - 1 :: -1])
    stands_out = either > POLICY.count_stands_out * noise[:, None]
    surely = either > _surely(2 * BUCKETS * n_columns) * noise[:, None]
    bulk = np.clip(np.frexp(size)[1] - 1 + LARGEST_EXPONENT, 0, BUCKETS - 1)
    top = np.maximum(bulk, np.where(surely.any(axis=1), BUCKETS - 1 - np.argmax(surely[:, ::-1], axis=1), 0))
    for row in range(len(top)):
        while top[row] + 1 < BUCKETS and stands_out[row, top[row] + 1]:
            top[row] += 1
    return 2.0 * _SCALES[top]


def folded(counts: Floats, noise: Floats, lower: Floats, upper: Floats) -> tuple[Floats, Floats]:
    """Histograms of values clipped to bounds on either side of the center, and how many records that moves.

    Of cells beyond a bound those count in which there surely are records.
    """
    # The lowest octave holds all that is closer to zero, too.
    ends = np.where(_SCALES[0] < _LOWER_ENDS, _LOWER_ENDS, 0.0)
    sure = np.where(counts > _surely(counts.size) * noise[:, None], counts, 0.0)
    inside, moved = counts.copy(), np.zeros(len(counts))
    for sign, bound in ((1, upper), (-1, -lower)):
        beyond = (sign * _SIGNS > 0.0) & (ends > bound[:, None])
        records = np.where(beyond, sure, 0.0).sum(axis=1)
        octave = np.clip(np.frexp(bound)[1] - 1 + LARGEST_EXPONENT, 0, BUCKETS - 1)
        inside[beyond] = 0.0
        inside[np.arange(len(counts)), BUCKETS + np.where(bound > 0.0, sign * (1 + octave), 0)] += records
        moved += records
    return inside, moved
