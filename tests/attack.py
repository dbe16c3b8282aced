"""Records that break floating-point code, and how far neighbours are apart in the eyes of a mechanism."""

import math

import numpy as np
from hypothesis import strategies as st

#: Values that anything a record holds may take.
WILD = [0.0, -0.0, 1.0, -1.0, np.nan, np.inf, -np.inf, 1e308, -1e308, 5e-324, -5e-324, 2.2e-308, 1e-160, 1e160]
wild_floats = st.one_of(st.sampled_from(WILD), st.floats())


def exact_sums(mechanism, table):
    """What all records of a table add, without noise."""
    with np.errstate(all="ignore"):
        return mechanism.sums(table.part(0, table.n_records), mechanism.lattice(table.n_records))


def noise_parts(mechanism, size):
    """What part of the noise each sum gets."""
    groups = getattr(mechanism, "noise_groups", ((size, 1.0),))
    return np.repeat([part for _, part in groups], [count for count, _ in groups])


def apart(mechanism, table, neighbour):
    """Norm of the difference of the sums, in which the noise is isotropic, over the sensitivity."""
    ours, theirs = exact_sums(mechanism, table), exact_sums(mechanism, neighbour)
    assert ours.dtype == theirs.dtype == np.int64
    moved = [int(a) - int(b) for a, b in zip(ours, theirs, strict=True)]
    stretched = [m / part for m, part in zip(moved, noise_parts(mechanism, len(moved)), strict=True)]
    # Laplace noise and the noise of choices are for each sum by itself.
    alone = getattr(mechanism, "law", "gaussian") in ("laplace", "gumbel")
    norm = max(map(abs, stretched)) if alone else math.hypot(*stretched)
    return norm / mechanism.sensitivity(mechanism.lattice(table.n_records).bound)
