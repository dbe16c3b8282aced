"""Rows of bounded norm, for mechanisms that visit records one after the other."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from dpcd.privacy.lattice import LARGEST, SMALLEST, Floats


def bounded_rows(features: NDArray[np.floating], largest_norm: float = math.inf) -> tuple[Floats, Floats]:
    """Row-ordered copy of the features, and the rows' l2 norms.

    Rows longer than `largest_norm` are scaled down to it. A row whose norm is no ordinary number (not finite, or so
    small that dividing by it would overflow) becomes zero: whatever a record holds, its norm is what is said.
    """
    rows = np.array(features, dtype=np.float64, order="C")
    norms = np.sqrt(np.einsum("ij,ij->i", rows, rows))
    odd = ~((norms > SMALLEST) & (norms < LARGEST))
    rows[odd] = 0.0
    norms[odd] = 0.0
    long = norms > largest_norm
    rows[long] *= (largest_norm / norms[long])[:, None]
    norms[long] = largest_norm
    return rows, norms
