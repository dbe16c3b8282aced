"""The compiled loops over raw data. They draw nothing: coordinates and noise come in as arrays.

Whatever a record holds (NaN, infinities, 1e308, denormals) and whatever the loss makes of it, its contribution to a
sum is an integer in [−B, B]. Sums of int64 are exact, so they depend neither on the order of the rows nor on how
many threads or shards they are split over, and replacing one record changes a sum by at most 2B.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba.extending import register_jitable

from dpcd.compilation import ROUNDER, ROUNDER_BITS, derivative, encode, prox

#: Buckets of `dyadic_counts`: magnitudes 2⁻⁶⁰ … 2⁶⁰, everything beyond in the outermost.
LARGEST_EXPONENT = 60
BUCKETS = 2 * LARGEST_EXPONENT + 1


class Lattice(NamedTuple):
    """Records contribute integers in [−bound, bound]; `bound` is a power of two below 2⁵¹."""

    bound: float

    def encode(self, v: float, scale: float) -> Any:
        """Round v·scale, clamped to ± bound, to an integer."""
        t = v * scale
        # Written so that NaN, for which every comparison is false, falls on a bound.
        t = t if t < self.bound else self.bound
        t = t if t > -self.bound else -self.bound
        return np.float64(t + ROUNDER).view(np.int64) - ROUNDER_BITS


class Unclipped(NamedTuple):
    """Records contribute real numbers as they are. Not private: for ε = ∞ without clipping only."""

    def encode(self, v: float, scale: float) -> Any:
        """v·scale."""
        return v * scale


@register_jitable
def sweep(  # type: ignore[no-untyped-def]
    previous, change, column, target, predictor, scale, lattice, loss
):
    """Add change·previous to the predictor z and sum the encoded partial derivatives ℓ'(y_i, z_i)·x_ij.

    One fused pass: the previous update is applied while the next coordinate's derivative is computed.
    """
    total = encode(lattice, 0.0, 1.0)
    for i in range(predictor.shape[0]):
        z = predictor[i] + change * previous[i]
        predictor[i] = z
        total += encode(lattice, derivative(loss, target[i], z) * column[i], scale)
    return total


def descend(  # type: ignore[no-untyped-def]
    features,
    target,
    loss,
    penalty,
    lattice,
    coordinates,
    n_penalized,
    encoding,
    decoding,
    steps,
    noise,
    weights,
):
    """All updates of one run of coordinate descent, starting from `weights`, which it overwrites.

    Returns the noisy sums, which are all that the data are seen through, and the value that each update gave its
    coordinate, which is a function of those sums.
    """
    predictor = np.zeros(features.shape[0])
    for j in range(weights.shape[0]):
        if weights[j] != 0.0:
            for i in range(predictor.shape[0]):
                predictor[i] += weights[j] * features[i, j]
    released = np.empty_like(noise)
    values = np.empty(coordinates.shape[0])
    previous, change = 0, 0.0
    for k in range(coordinates.shape[0]):
        j = coordinates[k]
        total = sweep(features[:, previous], change, features[:, j], target, predictor, encoding[j], lattice, loss)
        released[k] = total + noise[k]
        value = weights[j] - steps[j] * (released[k] * decoding[j])
        if j < n_penalized:
            value = prox(penalty, value, steps[j], j)
        change = value - weights[j]
        previous = j
        weights[j] = value
        values[k] = value
    return released, values


def square_sum(column, scale, lattice):  # type: ignore[no-untyped-def]
    """Sum over the column of (x·scale)² as an integer in [0, bound] for each record."""
    total = encode(lattice, 0.0, 1.0)
    for i in range(column.shape[0]):
        t = column[i] * scale
        # A square is never negative, so the lattice's lower bound is out of reach; NaN falls on the upper one.
        total += encode(lattice, t * t, lattice.bound)
    return total


def dyadic_counts(column):  # type: ignore[no-untyped-def]
    """How many records have ⌊log₂|x|⌋ = −60 … 60 (clamped to these). Zero and NaN are in no bucket."""
    counts = np.zeros(BUCKETS, dtype=np.int64)
    for i in range(column.shape[0]):
        magnitude = abs(column[i])
        if magnitude > 0.0:
            # The exponent bits of a double; denormals read −1023 and infinity 1024, both clamped.
            exponent = (np.float64(magnitude).view(np.int64) >> np.int64(52)) - np.int64(1023)
            bucket = min(max(exponent, np.int64(-LARGEST_EXPONENT)), np.int64(LARGEST_EXPONENT))
            counts[bucket + LARGEST_EXPONENT] += 1
    return counts
