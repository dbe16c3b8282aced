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
