"""Slow, obvious versions of what the library does fast. Tests compare the two."""

import math
from fractions import Fraction

import numpy as np


def encode(value, scale, bound):
    """round(clamp(value·scale, ± bound)) with NaN on a bound, by Python's own exact rounding (ties to even)."""
    t = value * scale
    if math.isnan(t) or t >= bound:
        return int(bound)
    if t <= -bound:
        return -int(bound)
    return round(Fraction(t))


def descend(X, y, loss, penalty, bound, coordinates, n_penalized, clip, steps, noise, start):
    """Coordinate descent from the definition: the predictor is computed anew for every record and update."""
    n_records = len(y)
    w = np.array(start, dtype=float)
    released, values = [], []
    for k, j in enumerate(coordinates):
        total = 0
        for i in range(n_records):
            with np.errstate(all="ignore"):
                z = float(sum(X[i, m] * w[m] for m in range(len(w)) if w[m] != 0.0))
                total += encode(loss.derivative(y[i], z) * X[i, j], bound / clip[j], bound)
        released.append(total + int(noise[k]))
        v = w[j] - steps[j] * (released[-1] * (clip[j] / (bound * n_records)))
        w[j] = penalty.prox(v, steps[j], j) if j < n_penalized else v
        values.append(w[j])
    return np.array(released), np.array(values)


def iterates(start, coordinates, values):
    """Every point of a run, from the value that each update gave its coordinate."""
    points, w = [], np.array(start, dtype=float)
    for j, v in zip(coordinates, values, strict=True):
        w[j] = v
        points.append(w.copy())
    return np.array(points)


def partial_sums(X, y, loss, bound, columns, clip, weights):
    """Sums over the records of the encoded partial derivatives along some columns, record by record."""
    totals = []
    for j in columns:
        total = 0
        for i in range(len(y)):
            with np.errstate(all="ignore"):
                z = float(sum(X[i, m] * weights[m] for m in range(len(weights)) if weights[m] != 0.0))
                total += encode(loss.derivative(y[i], z) * X[i, j], bound / clip[j], bound)
        totals.append(total)
    return totals


def _views(X, y, loss, view):
    """Each record as a `View` shows it: row T·x, its norm or 0 where it is not ordinary, and the loss."""
    for x, target in zip(X[:, view.columns], y, strict=True):
        if view.transform.ndim == 1:
            row = (view.transform * x).tolist()
        else:
            # A zero in T hides what a column holds, but in the first column.
            used = [[a for a in range(len(x)) if a == 0 or line[a] != 0.0] for line in view.transform]
            row = [float(sum(line[a] * x[a] for a in some)) for line, some in zip(view.transform, used, strict=True)]
        total = sum(r * r for r in row)
        norm = math.sqrt(total) if total >= 0.0 else math.nan
        z = float(sum(w * v for w, v in zip(view.weights[view.columns], x, strict=True) if w))
        apart = max(1e-3 * loss.lipschitz / loss.curvature if loss.lipschitz < math.inf else 1e-3, 1e-8 * abs(z))
        rise = loss.derivative(target, z + apart) - loss.derivative(target, z - apart)
        share = rise / np.float64(2.0 * apart * loss.curvature)
        share = 0.0 if math.isnan(share) else min(max(float(share), 0.0), 1.0)
        slope = float(loss.derivative(target, z))
        other = abs(float(loss.derivative(-target, z))) if view.even_handed else 0.0
        reach = other if other > abs(slope) else abs(slope)
        yield row, norm if 1e-150 < norm < 1e150 else 0.0, slope, reach, share


def joint_gradient(X, y, loss, view, clip, bound):
    """Sum over the records of slope·row, shortened to `clip`, in units of clip/bound."""
    totals = [0] * len(view.transform)
    for row, norm, slope, reach, _ in _views(X, y, loss, view):
        length = reach * norm
        if norm == 0.0 or math.isnan(length):
            continue
        if length <= clip:
            factor = slope * (1.0 / (clip / bound))
        elif math.isinf(slope):
            factor = math.copysign(bound / norm, slope)
        else:
            factor = slope / reach * bound / norm
        totals = [total + encode(entry, factor, bound) for total, entry in zip(totals, row, strict=True)]
    return totals


def moment_matrix(X, y, loss, view, radius, weighted, bound):
    """Sum over the records of a·r·rᵀ, √a·r shortened to `radius`, in Python's integers."""
    size = len(view.transform)
    totals = [[0] * size for _ in range(size)]
    for row, norm, _, _, share in _views(X, y, loss, view):
        if norm == 0.0:
            continue
        part = math.sqrt(share if weighted else 1.0)
        factor = part * (bound / max(part * norm, radius))
        q = [encode(entry, factor, bound) for entry in row]
        totals = [[totals[j][k] + q[j] * q[k] for k in range(size)] for j in range(size)]
    return totals


def gradient_sizes(X, y, loss, view, per_octave, smallest, largest, of="gradients"):
    """How many reach·norm, or one of the two alone, lie between the buckets' ends, by comparing with each of them."""
    edges = [2.0 ** (smallest + k / per_octave) for k in range(1, per_octave * (largest - smallest))]
    counts = [0] * (len(edges) + 1)
    for _, norm, _, reach, _ in _views(X, y, loss, view):
        size = {"gradients": reach * norm, "rows": norm, "slopes": reach}[of]
        if size > 0.0:
            counts[sum(size >= edge for edge in edges)] += 1
    return counts
