"""Confidence intervals with names of columns, in the units of the data."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dpcd.quadratic.model import Quadratic, half_width

Floats = NDArray[np.float64]


class ConfidenceIntervals(NamedTuple):
    """One interval for each coefficient, in the order of the columns, and for the intercept last. It prints as a table.

    Parameters
    ----------
    names
        Names of the columns, and ``"intercept"`` if one was fitted.
    lower, upper
        Ends of the intervals. NaN for columns that stayed out of the fit.
    """

    names: tuple[str, ...]
    lower: Floats
    upper: Floats

    def __repr__(self) -> str:
        rows = [("", "lower", "upper")]
        rows += [
            (name, f"{lower:.4g}", f"{upper:.4g}")
            for name, lower, upper in zip(self.names, self.lower, self.upper, strict=True)
        ]
        widths = [max(len(row[k]) for row in rows) for k in range(3)]
        return "\n".join(f"{a:<{widths[0]}}  {b:>{widths[1]}}  {c:>{widths[2]}}" for a, b, c in rows)


def in_original_units(
    quadratic: Quadratic, level: float, names: tuple[str, ...], centers: Floats | None, target_center: float
) -> ConfidenceIntervals:
    """Intervals for the coefficients of all columns, and for the intercept of the uncentered columns.

    Parameters
    ----------
    quadratic, level
        Quadratic model that the fit released, and the probability with which each interval covers.
    names
        Names of the columns, including ``"intercept"`` if one was fitted.
    centers
        Center that the fit subtracted from each feature. None if no intercept was fitted.
    target_center
        Center that the fit subtracted from the target.
    """
    half = half_width(level)
    point, covariance = quadratic.located()
    places = np.arange(len(point)) if quadratic.columns is None else quadratic.columns
    size = len(names)
    # Each row expresses one coefficient in the coordinates that took part.
    wanted = np.zeros((size, len(point)))
    wanted[places, np.arange(len(point))] = 1.0
    known = np.zeros(size, dtype=bool)
    known[places] = True
    if centers is not None and known[-1]:
        features = places < size - 1
        wanted[-1, features] -= centers[places[features]]
    middle = wanted @ point
    if centers is not None:
        middle[-1] += target_center
    spread = half * np.sqrt(np.einsum("ij,jk,ik->i", wanted, covariance, wanted))
    lower, upper = (np.where(known, end, math.nan) for end in (middle - spread, middle + spread))
    return ConfidenceIntervals(names, lower, upper)
