"""The lattice: how a record's contribution becomes an integer, and how fine the integers are.

`Lattice.encode` bounds one number; `shortened` bounds the norm of a whole row. Everything rests on these two, on
`lattice`, which chooses the unit from public numbers, and on the rounding trick of `dpcd.compilation` that they use.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numba.extending import register_jitable
from numpy.typing import NDArray

from dpcd.compilation import ROUNDER, ROUNDER_BITS
from dpcd.privacy.accounting import SMALLEST_SCALE

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

#: Numbers within these divide and multiply one another without overflow: clips, and norms of rows that count.
SMALLEST, LARGEST = 1e-150, 1e150
#: Rows and columns of at most so many entries are covered by the analysis of rounding.
MOST_ENTRIES = 10**7

# Finer than any noise needs; and the sums of n integers stay below 2⁶⁰.
_FINEST, _LARGEST_SUM = 2.0**40, 2.0**60
# How many scales of its noise a sum has room for below 2⁶²: what lies beyond has no probability to speak of.
_ROOM = {"gaussian": 2.0**6, "laplace": 2.0**12, "gumbel": 0.0}


class Lattice(NamedTuple):
    """Records contribute integers in [−bound, bound]; `bound` is a power of two below 2⁵¹.

    Sums of integers are `exact`: they do not depend on the order of additions.
    """

    bound: float
    exact: bool = True

    def encode(self, v: float, scale: float) -> Any:
        """Round v·scale, clamped to ± bound, to an integer."""
        t = v * scale
        # Written so that NaN, for which every comparison is false, falls on a bound.
        t = t if t < self.bound else self.bound
        t = t if t > -self.bound else -self.bound
        return np.float64(t + ROUNDER).view(np.int64) - ROUNDER_BITS


class Unclipped(NamedTuple):
    """Records contribute real numbers as they are, in units of 1. Not private: for ε = ∞ without clipping only."""

    bound: float = 1.0
    exact: bool = False

    def encode(self, v: float, scale: float) -> Any:
        """v·scale."""
        return v * scale


def lattice(
    n_records: int,
    sensitivity: Callable[[float], float],
    noise_multipliers: tuple[float, float],
    law: str = "gaussian",
    entries: int = 1,
    entry: Callable[[float], float] = float,
    finest: float = _FINEST,
) -> Lattice:
    """The finest lattice for integer sums over so many records, and for their noise.

    Its bound B is a power of two such that (1) sums of n integers of at most entry(B) stay below 2⁶⁰; (2) the noise,
    whose scale is noise multiplier × sensitivity(B), stays below 2⁶² with all but no probability, so that adding it
    cannot reach the ends of int64; (3) rounding so many entries moves a record by less than its own norm, √entries ≤ B;
    and (4) Gaussian noise, if there is any, has a scale of at least 2³⁰ units, as the accounting assumes. All of these
    are conditions on public numbers.

    Parameters
    ----------
    sensitivity
        What replacing a record moves the sums by, in lattice units, for a bound B.
    noise_multipliers
        The smallest and the largest one.
    law
        Of the noise. The noise of a choice is not added to the sums.
    entries
        How many entries of a record are rounded together.
    entry
        The largest entry of a record's contribution for a bound B.
    finest
        The largest B.
    """
    least, most = noise_multipliers
    bound = finest
    while bound > 1.0 and (n_records * entry(bound) > _LARGEST_SUM or most * sensitivity(bound) * _ROOM[law] > 2.0**62):
        bound /= 2.0
    too_coarse = bound < math.sqrt(entries) or most * sensitivity(bound) * _ROOM[law] > 2.0**62
    if too_coarse or (law == "gaussian" and 0.0 < least * sensitivity(bound) < SMALLEST_SCALE):
        raise ValueError(
            f"no integer lattice fits {n_records} records of {entries} entries with noise between {least:g} and "
            f"{most:g} times what one record contributes; use a budget between these extremes"
        )
    return Lattice(bound)


@register_jitable
def ordinary(norm):  # type: ignore[no-untyped-def]
    """Whether a norm is a number that others can be divided by."""
    return (norm > SMALLEST) & (norm < LARGEST)


@register_jitable
def shortened(slope, reach, norm, clip, bound, whole):  # type: ignore[no-untyped-def]
    """What to multiply a row of this norm by: slope·row, scaled down so that reach·row has norm at most `clip`.

    In lattice units: `whole` is bound/clip, and what comes out has norm at most bound. A reach is at least the slope's
    magnitude. A row of norm 0 contributes nothing, whatever it holds; nor does a slope that is NaN.
    """
    length = reach * norm
    # At most 1 in magnitude; an infinite slope has its sign only.
    part = slope / reach if (reach > 0.0) & (reach < np.inf) else 0.0
    part = part if abs(slope) < np.inf else np.sign(slope)
    at_most = part * bound / norm if norm > 0.0 else 0.0
    # NaN satisfies neither comparison.
    as_it_is = slope * whole if (length <= clip) & (norm > 0.0) else 0.0
    return at_most if length > clip else as_it_is


def check_ordinary(name: str, value: float) -> None:
    """Refuse what a division or a product could turn into infinity or zero."""
    if not SMALLEST <= value <= LARGEST:
        raise ValueError(f"{name} must be a number between {SMALLEST:g} and {LARGEST:g}, got {value}")


def frozen(values: Any, dtype: type[Any]) -> NDArray[Any]:
    """A copy that nobody can change between the charge and the run."""
    array = np.array(values, dtype=dtype)
    array.setflags(write=False)
    return array
