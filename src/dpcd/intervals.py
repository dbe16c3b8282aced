"""Confidence intervals with the names of their columns, in the units of the data."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dpcd.solvers.quadratic import Quadratic, half_width

Floats = NDArray[np.float64]


class ConfidenceIntervals(NamedTuple):
    """One interval for each coefficient, in the order of the columns, and the intercept's last.

    Parameters
    ----------
    names
        Names of the columns, and ``"intercept"`` if there is one.
    lower, upper
        Ends of the intervals; NaN for a column that stayed out of the fit, of which nothing is known.
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
    """Intervals for the coefficients of all columns, and for the intercept of columns that nobody shifted.

    Parameters
    ----------
    quadratic, level
        What the fit released, and the probability with which an interval shall cover.
    names
        Names of the columns, the intercept's included where there is one.
    centers
        What was subtracted from each feature before the fit; None where there is no intercept to shift.
    target_center
        What was subtracted from the target.
    """
    half = half_width(level)
    point, covariance = quadratic.located()
    places = np.arange(len(point)) if quadratic.columns is None else quadratic.columns
    size = len(names)
    # Rows of what is asked for, in terms of the coordinates that took part.
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
