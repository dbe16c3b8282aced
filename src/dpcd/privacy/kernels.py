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

#: Buckets of `dyadic_counts` for each sign: magnitudes 2⁻⁶⁰ … 2⁶⁰, everything beyond in the outermost.
LARGEST_EXPONENT = 60
BUCKETS = 2 * LARGEST_EXPONENT + 1
#: Cells of a histogram: the buckets of negative and of positive numbers, and one for zero and NaN.
CELLS = 2 * BUCKETS + 1


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


def stochastic_descent(  # type: ignore[no-untyped-def]
    rows, norms, target, loss, penalty, lattice, members, starts, batch_size, n_penalized, clips, steps, noise, weights
):
    """Proximal gradient steps on batches of records, for many settings (a clip and a step size each) side by side.

    `weights` has a column for each setting and is overwritten. A record adds its gradient ℓ'·x, scaled down to norm at
    most C and rounded to lattice units entry by entry: see the mechanism for the norm of that.
    """
    n_columns, n_settings = weights.shape
    bound = lattice.bound
    sums = np.zeros((n_columns, n_settings), dtype=np.int64)
    factors = np.zeros(n_settings)
    for k in range(starts.shape[0] - 1):
        if starts[k] == starts[k + 1]:
            sums[:, :] = 0
        for position in range(starts[k], starts[k + 1]):
            i = members[position]
            norm = norms[i]
            unit = bound / norm if norm > 0.0 else 0.0
            factors[:] = 0.0
            for j in range(n_columns):
                x = rows[i, j]
                for c in range(n_settings):
                    factors[c] += x * weights[j, c]
            for c in range(n_settings):
                slope = derivative(loss, target[i], factors[c])
                length = abs(slope) * norm
                shortened = unit if slope > 0.0 else -unit
                # NaN satisfies neither comparison and contributes nothing; nor does a row of zeros, whose slope may be
                # too large to multiply.
                whole = slope * (bound / clips[c]) if length <= clips[c] and norm > 0.0 else 0.0
                factors[c] = shortened if length > clips[c] else whole
            first = position == starts[k]
            for j in range(n_columns):
                x = rows[i, j]
                if first:
                    for c in range(n_settings):
                        sums[j, c] = encode(lattice, factors[c], x)
                else:
                    for c in range(n_settings):
                        sums[j, c] += encode(lattice, factors[c], x)
        for j in range(n_columns):
            for c in range(n_settings):
                gradient = (sums[j, c] + noise[k, j]) * (clips[c] / (bound * batch_size))
                value = weights[j, c] - steps[c] * gradient
                weights[j, c] = prox(penalty, value, steps[c], j) if j < n_penalized else value


@register_jitable
def add_changes(  # type: ignore[no-untyped-def]
    rows, norms, target, loss, lattice, members, weights, anchor, clip, sums
):
    """Add what the gradients ℓ'·x of some records differ by from those at `anchor`.

    The difference is a number times the record's row. It is scaled down to norm at most `clip` and rounded to lattice
    units entry by entry, as in `stochastic_descent`.
    """
    for position in range(members.shape[0]):
        i = members[position]
        z, z_anchor = 0.0, 0.0
        for j in range(sums.shape[0]):
            z += rows[i, j] * weights[j]
            z_anchor += rows[i, j] * anchor[j]
        slope = derivative(loss, target[i], z) - derivative(loss, target[i], z_anchor)
        norm = norms[i]
        length = abs(slope) * norm
        # NaN satisfies neither comparison and contributes nothing; nor does a row of zeros.
        factor = 0.0
        if norm > 0.0 and length <= clip:
            factor = slope * (lattice.bound / clip)
        elif norm > 0.0 and length > clip:
            factor = lattice.bound / norm if slope > 0.0 else -lattice.bound / norm
        for j in range(sums.shape[0]):
            sums[j] += encode(lattice, factor, rows[i, j])


def variance_reduced_descent(  # type: ignore[no-untyped-def]
    rows,
    norms,
    target,
    loss,
    penalty,
    lattice,
    members,
    starts,
    batch_size,
    columns,
    n_penalized,
    smoothness,
    clip,
    growth,
    step,
    gradient,
    snapshot,
    noise,
    weights,
    total,
):
    """Proximal steps along a fixed gradient at `snapshot` plus, from a batch, what gradients differ by since then.

    Overwrites `weights` and adds every iterate to `total`.
    """
    n_columns = weights.shape[0]
    sums = np.zeros(n_columns, dtype=np.int64)
    for k in range(starts.shape[0] - 1):
        reach = 0.0
        for j in range(n_columns):
            reach += smoothness[j] * (weights[j] - snapshot[j]) ** 2
        limit = min(growth * np.sqrt(reach), 2.0 * clip)
        # At the snapshot itself nothing differs and nothing is asked.
        ordinary = limit >= 1e-150 and limit <= 1e150
        sums[:] = 0
        if ordinary:
            batch = members[starts[k] : starts[k + 1]]
            add_changes(rows, norms, target, loss, lattice, batch, weights, snapshot, limit, sums)
        unit = limit / (lattice.bound * batch_size) if ordinary else 0.0
        for j in range(n_columns):
            value = weights[j] - step * (gradient[j] + (sums[j] + noise[k, j]) * unit)
            weights[j] = prox(penalty, value, step, columns[j]) if columns[j] < n_penalized else value
            total[j] += weights[j]


def dual_descent(  # type: ignore[no-untyped-def]
    rows,
    norms,
    target,
    loss,
    lattice,
    members,
    starts,
    lot_size,
    strength,
    clips,
    dual_noise,
    noise,
    dual,
    drift,
    total,
):
    """Dual coordinate updates on lots of records (rows of norm at most 1), for many clips side by side.

    The weights are v/strength with v = Σ α_i x_i and strength = λn. In a lot, record i moves α_i to the maximum of its
    own part of the dual, whose quadratic term is multiplied by the size of the lot because all its records move at
    once. What leaves a step are the noisy increments of all α and of v, accumulated in lattice units: α_i is
    dual[i] + drift[i] (the noise, the same for all settings), v is total; all three are overwritten.
    """
    n_columns, n_settings = total.shape
    bound = lattice.bound
    z, low, high = np.zeros(n_settings), np.zeros(n_settings), np.zeros(n_settings)
    alpha, unit = np.zeros(n_settings), clips / bound
    sums = np.zeros((n_columns, n_settings), dtype=np.int64)
    for k in range(starts.shape[0] - 1):
        sums[:, :] = 0
        for position in range(starts[k], starts[k + 1]):
            i = members[position]
            y = target[i]
            spread = lot_size * norms[i] ** 2 / strength
            z[:] = 0.0
            for j in range(n_columns):
                x = rows[i, j] / strength
                for c in range(n_settings):
                    z[c] += x * (total[j, c] * unit[c])
            # The maximum is where α + δ + ℓ'(z + spread·δ) = 0. The left side grows with slope at least 1, so the root
            # lies between 0 and minus its value at 0, and a move longer than the clip need not be found.
            for c in range(n_settings):
                alpha[c] = (dual[i, c] + drift[i]) * unit[c]
                gap = alpha[c] + derivative(loss, y, z[c])
                low[c] = max(min(0.0, -gap), -clips[c])
                high[c] = min(max(0.0, -gap), clips[c])
            for _ in range(40):
                for c in range(n_settings):
                    middle = 0.5 * (low[c] + high[c])
                    above = alpha[c] + middle + derivative(loss, y, z[c] + spread * middle) > 0.0
                    high[c] = middle if above else high[c]
                    low[c] = low[c] if above else middle
            for c in range(n_settings):
                move = 0.5 * (low[c] + high[c]) / unit[c]
                # Whatever the arithmetic above did, a move is a number of at most the bound; NaN is none.
                z[c] = move if abs(move) <= bound else 0.0
                dual[i, c] += encode(lattice, z[c], 1.0)
            for j in range(n_columns):
                x = rows[i, j]
                for c in range(n_settings):
                    sums[j, c] += encode(lattice, z[c], x)
        for i in range(drift.shape[0]):
            drift[i] += dual_noise[k, i]
        for j in range(n_columns):
            for c in range(n_settings):
                total[j, c] += sums[j, c] + noise[k, j]


def has_double(members, starts, large):  # type: ignore[no-untyped-def]
    """Whether a record comes up twice in each batch, but for those that are too large to compare all pairs."""
    double = np.zeros(starts.shape[0] - 1, dtype=np.bool_)
    for k in range(starts.shape[0] - 1):
        if large[k]:
            continue
        for a in range(starts[k] + 1, starts[k + 1]):
            for b in range(starts[k], a):
                if members[a] == members[b]:
                    double[k] = True
    return double


def square_sum(column, center, scale, lattice):  # type: ignore[no-untyped-def]
    """Sum over the column of ((x − center)·scale)² as an integer in [0, bound] for each record."""
    total = encode(lattice, 0.0, 1.0)
    for i in range(column.shape[0]):
        t = (column[i] - center) * scale
        # A square is never negative, so the lattice's lower bound is out of reach; NaN falls on the upper one.
        total += encode(lattice, t * t, lattice.bound)
    return total


def clipped_sum(column, center, scale, lattice):  # type: ignore[no-untyped-def]
    """Sum over the column of (x − center)·scale as an integer in [−bound, bound] for each record."""
    total = encode(lattice, 0.0, 1.0)
    for i in range(column.shape[0]):
        total += encode(lattice, (column[i] - center) * scale, lattice.bound)
    return total


def dyadic_counts(column, center):  # type: ignore[no-untyped-def]
    """How many records have each sign and ⌊log₂|x − center|⌋ = −60 … 60 (clamped to these).

    From the largest negative ones to the largest positive ones; zero and NaN are in the middle. Every record is in
    exactly one cell.
    """
    counts = np.zeros(CELLS, dtype=np.int64)
    for i in range(column.shape[0]):
        value = column[i] - center
        place = np.int64(0)
        if abs(value) > 0.0:
            # The exponent bits of a double; denormals read −1023 and infinity 1024, both clamped.
            exponent = (np.float64(abs(value)).view(np.int64) >> np.int64(52)) - np.int64(1023)
            bucket = min(max(exponent, np.int64(-LARGEST_EXPONENT)), np.int64(LARGEST_EXPONENT))
            place = bucket + np.int64(LARGEST_EXPONENT + 1)
        counts[BUCKETS + (place if value > 0.0 else -place)] += 1
    return counts


@register_jitable
def multiply(transform, features, columns, first, rows):  # type: ignore[no-untyped-def]
    """Overwrite `rows` with T·x, a column for each record x from `first` on.

    Two rows and four columns at a time: what is loaded is used more than once, which is what takes the time.
    """
    last, end = columns.shape[0] - 1, first + rows.shape[1]
    rows[:, :] = 0.0
    for a in range(0, last + 1, 4):
        # Beyond the last column there is the last one again, with a factor of 0.
        x0, x1 = features[first:end, columns[a]], features[first:end, columns[min(a + 1, last)]]
        x2, x3 = features[first:end, columns[min(a + 2, last)]], features[first:end, columns[min(a + 3, last)]]
        factors = np.zeros((rows.shape[0], 4))
        factors[:, : last + 1 - a] = transform[:, a : a + 4]
        used = np.abs(factors).sum(axis=1)
        for k in range(0, rows.shape[0], 2):
            upper, lower = rows[k], rows[min(k + 1, rows.shape[0] - 1)]
            t0, t1, t2, t3 = factors[k, 0], factors[k, 1], factors[k, 2], factors[k, 3]
            if k + 1 == rows.shape[0]:
                for i in range(upper.shape[0]):
                    upper[i] += t0 * x0[i] + t1 * x1[i] + t2 * x2[i] + t3 * x3[i]
            # About half of the tiles of a triangular matrix are empty.
            elif used[k] + used[k + 1] != 0.0:
                u0, u1, u2, u3 = factors[k + 1, 0], factors[k + 1, 1], factors[k + 1, 2], factors[k + 1, 3]
                for i in range(upper.shape[0]):
                    a0, a1, a2, a3 = x0[i], x1[i], x2[i], x3[i]
                    upper[i] += t0 * a0 + t1 * a1 + t2 * a2 + t3 * a3
                    lower[i] += u0 * a0 + u1 * a1 + u2 * a2 + u3 * a3


def transform_records(  # type: ignore[no-untyped-def]
    features,
    target,
    loss,
    curvature,
    near,
    even_handed,
    columns,
    transform,
    diagonal,
    weights,
    first,
    rows,
    norms,
    slopes,
    reaches,
    shares,
):
    """For the records from `first` on: their rows T·x, those rows' l2 norms, and what the loss says at x·w.

    If `diagonal`, `transform` is one row with the diagonal of T. `rows` has a column for each record of this part.
    `slopes` gets ℓ'(y, x·w), `reaches` its magnitude or, if `even_handed`, the larger magnitude of those for y and −y,
    and `shares` the loss's second derivative as a part of its curvature, by a difference quotient over x·w ± `near` and
    clamped to [0, 1]. Whatever a record holds, its norm is an ordinary number or 0, which the callers take to mean that
    the record contributes nothing.
    """
    count = rows.shape[1]
    predictor = np.zeros(count)
    for a in range(columns.shape[0]):
        weight = weights[columns[a]]
        if weight != 0.0:
            column = features[first : first + count, columns[a]]
            for i in range(count):
                predictor[i] += weight * column[i]
    if diagonal:
        for a in range(columns.shape[0]):
            for i in range(count):
                rows[a, i] = transform[0, a] * features[first + i, columns[a]]
    else:
        multiply(transform, features, columns, first, rows)
    norms[:] = 0.0
    for k in range(rows.shape[0]):
        for i in range(count):
            norms[i] += rows[k, i] * rows[k, i]
    for i in range(count):
        norm = np.sqrt(norms[i])
        norms[i] = norm if (norm > 1e-150) & (norm < 1e150) else 0.0
        y, z = target[first + i], predictor[i]
        slopes[i] = derivative(loss, y, z)
        reach, other = abs(slopes[i]), abs(derivative(loss, -y, z)) if even_handed else 0.0
        # A comparison with NaN fails, so that a reach is never below the slope, and NaN if that is.
        reaches[i] = other if other > reach else reach
        # So far apart that rounding does not show in the quotient.
        apart = near if near > 1e-8 * abs(z) else 1e-8 * abs(z)
        share = (derivative(loss, y, z + apart) - derivative(loss, y, z - apart)) / (2.0 * apart * curvature)
        # NaN satisfies no comparison and becomes 0.
        share = share if share > 0.0 else 0.0
        shares[i] = share if share < 1.0 else 1.0


def gradient_sum(rows, norms, slopes, reaches, clip, bound, whole, lattice, sums):  # type: ignore[no-untyped-def]
    """Add the records' gradients slope·row, scaled down so that reach·row has norm at most `clip`, in lattice units.

    A reach is at least the slope's magnitude. `whole` is what a gradient within the clip is multiplied by, bound/clip.
    """
    factors = np.zeros(norms.shape[0])
    for i in range(norms.shape[0]):
        length = reaches[i] * norms[i]
        # At most 1 in magnitude; an infinite slope has its sign only.
        part = slopes[i] / reaches[i] if reaches[i] < np.inf else 0.0
        part = part if abs(slopes[i]) < np.inf else np.sign(slopes[i])
        shortened = part * bound / norms[i] if norms[i] > 0.0 else 0.0
        # NaN satisfies neither comparison and contributes nothing; nor does a row of norm 0.
        factor = slopes[i] * whole if (length <= clip) & (norms[i] > 0.0) else 0.0
        factors[i] = shortened if length > clip else factor
    for k in range(rows.shape[0]):
        total = encode(lattice, 0.0, 1.0)
        for i in range(norms.shape[0]):
            # A row without an ordinary norm may hold NaN or infinity, which a factor of 0 does not remove.
            entry = rows[k, i] if norms[i] > 0.0 else 0.0
            total += encode(lattice, entry, factors[i])
        sums[k] += total


def bound_rows(rows, norms, shares, radius, lattice):  # type: ignore[no-untyped-def]
    """Replace the rows by sqrt(share)·row, scaled down to norm at most `radius`, in whole lattice units."""
    factors = np.zeros(norms.shape[0])
    for i in range(norms.shape[0]):
        part = np.sqrt(shares[i])
        length = part * norms[i] if part * norms[i] > radius else radius
        factors[i] = part * (lattice.bound / length)
    for k in range(rows.shape[0]):
        for i in range(norms.shape[0]):
            entry = rows[k, i] if norms[i] > 0.0 else 0.0
            rows[k, i] = encode(lattice, entry, factors[i])


def product_sum(rows, sums):  # type: ignore[no-untyped-def]
    """Add the lower triangle of rows·rowsᵀ to `sums`, for rows of whole numbers whose sums of products stay below 2⁵³.

    All of these are exact, in whatever order they are added. Two rows with two others at a time, for the reason that
    `multiply` has.
    """
    last = rows.shape[0] - 1
    products = np.zeros(sums.shape)
    for k in range(0, last + 1, 2):
        # Beyond the last row there is the last one again: what it gives is written twice.
        a, b = k, min(k + 1, last)
        for m in range(0, b + 1, 2):
            c, d = m, min(m + 1, last)
            ac, ad, bc, bd = 0.0, 0.0, 0.0, 0.0
            for i in range(rows.shape[1]):
                ac += rows[a, i] * rows[c, i]
                ad += rows[a, i] * rows[d, i]
                bc += rows[b, i] * rows[c, i]
                bd += rows[b, i] * rows[d, i]
            products[a, c], products[a, d], products[b, c], products[b, d] = ac, ad, bc, bd
    for a in range(last + 1):
        for c in range(a + 1):
            sums[a, c] += np.int64(products[a, c])


def size_counts(norms, reaches, per_octave, first, counts):  # type: ignore[no-untyped-def]
    """Count the records by ⌊per_octave·log₂(reach·norm)⌋ − first, clamped to the buckets there are.

    Zero and NaN are in no bucket.
    """
    last = counts.shape[0] - 1
    for i in range(norms.shape[0]):
        size = reaches[i] * norms[i]
        if size > 0.0:
            place = per_octave * np.log2(size) - first
            place = place if place > 0.0 else 0.0
            place = place if place < last else last
            counts[np.int64(place)] += 1


def derivative_counts(features, target, loss, weights, columns, units, levels):  # type: ignore[no-untyped-def]
    """How many |ℓ'(y_i, x_i·w)·x_ij|/unit_j lie beyond each level and not beyond the next. NaN is beyond none."""
    slopes = np.zeros(features.shape[0])
    for j in range(weights.shape[0]):
        if weights[j] != 0.0:
            for i in range(slopes.shape[0]):
                slopes[i] += weights[j] * features[i, j]
    for i in range(slopes.shape[0]):
        slopes[i] = derivative(loss, target[i], slopes[i])
    counts = np.zeros(levels.shape[0], dtype=np.int64)
    for k in range(columns.shape[0]):
        for i in range(slopes.shape[0]):
            size = abs(slopes[i] * features[i, columns[k]]) / units[k]
            # Most are small: few comparisons decide.
            level = -1
            while level + 1 < levels.shape[0] and size > levels[level + 1]:
                level += 1
            if level >= 0:
                counts[level] += 1
    return counts
