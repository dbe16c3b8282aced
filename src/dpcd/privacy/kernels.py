"""The compiled loops over raw data. They draw nothing: coordinates and noise come in as arrays.

Whatever a record holds (NaN, infinities, 1e308, denormals) and whatever the loss makes of it, its contribution to a
sum is an integer in [−B, B]. Sums of int64 are exact, so they depend neither on the order of the rows nor on how
many threads or shards they are split over, and replacing one record changes a sum by at most 2B.
"""

from __future__ import annotations

import numpy as np
from numba.extending import register_jitable

from dpcd.compilation import derivative, encode, prox
from dpcd.privacy.lattice import ordinary, shortened

#: Buckets of `dyadic_counts` for each sign: magnitudes 2⁻⁶⁰ … 2⁶⁰, everything beyond in the outermost.
LARGEST_EXPONENT = 60
BUCKETS = 2 * LARGEST_EXPONENT + 1
#: Cells of a histogram: the buckets of negative and of positive numbers, and one for zero and NaN.
CELLS = 2 * BUCKETS + 1


@register_jitable
def add_prediction(features, row, columns, weights, predictor):  # type: ignore[no-untyped-def]
    """Add to `predictor` what some columns contribute to x·w, for the records from `row` on."""
    for a in range(columns.shape[0]):
        weight = weights[columns[a]]
        if weight != 0.0:
            column = features[row : row + predictor.shape[0], columns[a]]
            for i in range(predictor.shape[0]):
                predictor[i] += weight * column[i]


@register_jitable
def slopes_at(features, row, target, loss, columns, weights, slopes):  # type: ignore[no-untyped-def]
    """Overwrite `slopes` with ℓ'(y, x·w) of the records from `row` on."""
    slopes[:] = 0.0
    add_prediction(features, row, columns, weights, slopes)
    for i in range(slopes.shape[0]):
        slopes[i] = derivative(loss, target[i], slopes[i])


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
    add_prediction(features, 0, np.arange(weights.shape[0]), weights, predictor)
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
def multiply(transform, features, columns, row, rows):  # type: ignore[no-untyped-def]
    """Overwrite `rows` with T·x, a column for each record x from this row of the features on.

    Two rows and four columns at a time: what is loaded is used more than once, which is what takes the time.
    """
    last, end = columns.shape[0] - 1, row + rows.shape[1]
    rows[:, :] = 0.0
    for a in range(0, last + 1, 4):
        # Beyond the last column there is the last one again, with a factor of 0.
        x0, x1 = features[row:end, columns[a]], features[row:end, columns[min(a + 1, last)]]
        x2, x3 = features[row:end, columns[min(a + 2, last)]], features[row:end, columns[min(a + 3, last)]]
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
    row,
    rows,
    norms,
    slopes,
    reaches,
    shares,
):
    """For the records from this row of the features on: rows T·x, those rows' l2 norms, and the loss at x·w.

    If `diagonal`, `transform` is one row with the diagonal of T. `rows` has a column for each record of this part.
    `slopes` gets ℓ'(y, x·w), `reaches` its magnitude or, if `even_handed`, the larger magnitude of those for y and −y,
    and `shares` the loss's second derivative as a part of its curvature, by a difference quotient over x·w ± `near` and
    clamped to [0, 1]. Whatever a record holds, its norm is an ordinary number or 0, which the callers take to mean that
    the record contributes nothing.
    """
    count = rows.shape[1]
    predictor = np.zeros(count)
    add_prediction(features, row, columns, weights, predictor)
    if diagonal:
        for a in range(columns.shape[0]):
            for i in range(count):
                rows[a, i] = transform[0, a] * features[row + i, columns[a]]
    else:
        multiply(transform, features, columns, row, rows)
    norms[:] = 0.0
    for k in range(rows.shape[0]):
        for i in range(count):
            norms[i] += rows[k, i] * rows[k, i]
    for i in range(count):
        norm = np.sqrt(norms[i])
        norms[i] = norm if ordinary(norm) else 0.0
        y, z = target[i], predictor[i]
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
    """Add the records' gradients slope·row, scaled down so that reach·row has norm at most `clip`, in lattice units."""
    factors = np.zeros(norms.shape[0])
    for i in range(norms.shape[0]):
        factors[i] = shortened(slopes[i], reaches[i], norms[i], clip, bound, whole)
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


def derivative_counts(  # type: ignore[no-untyped-def]
    features, row, target, loss, weights, columns, units, levels, counts
):
    """Count the |ℓ'(y_i, x_i·w)·x_ij|/unit_j that lie beyond each level and not beyond the next. NaN is beyond none."""
    slopes = np.zeros(target.shape[0])
    slopes_at(features, row, target, loss, np.arange(weights.shape[0]), weights, slopes)
    for k in range(columns.shape[0]):
        for i in range(slopes.shape[0]):
            size = abs(slopes[i] * features[row + i, columns[k]]) / units[k]
            # Most are small: few comparisons decide.
            level = -1
            while level + 1 < levels.shape[0] and size > levels[level + 1]:
                level += 1
            if level >= 0:
                counts[level] += 1


def add_partial_sums(  # type: ignore[no-untyped-def]
    features, row, target, loss, lattice, weights, columns, encoding, sums
):
    """Add up the encoded partial derivatives ℓ'(y_i, x_i·w)·x_ij of each of some columns j."""
    slopes = np.zeros(target.shape[0])
    slopes_at(features, row, target, loss, np.arange(weights.shape[0]), weights, slopes)
    for c in range(columns.shape[0]):
        j = columns[c]
        total = encode(lattice, 0.0, 1.0)
        for i in range(slopes.shape[0]):
            total += encode(lattice, slopes[i] * features[row + i, j], encoding[j])
        sums[c] += total
