"""The lattice: contributions are bounded, sums stay below 2⁶⁰, and noise far from the ends of int64."""

import math

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import twins
from attack import WILD, noise_parts, wild_floats
from dpcd.losses import Logistic, Squared
from dpcd.penalties import Zero
from dpcd.privacy.accounting import SMALLEST_SCALE
from dpcd.privacy.columns import ClippedMeans
from dpcd.privacy.lattice import LARGEST, SMALLEST, Lattice, check_ordinary, lattice, ordinary, shortened
from dpcd.privacy.records import GradientSizes, JointGradient, MomentMatrix, View
from dpcd.privacy.rivals.batches import DualSteps, GradientSteps, VarianceReducedSteps
from dpcd.privacy.rivals.sampling import FixedSize
from problems import name

BOUND = 2.0**40


@settings(max_examples=300, deadline=None)
@given(wild_floats, wild_floats, st.integers(1, 50))
@example(np.nan, 1.0, 1)
@example(np.inf, 0.0, 50)
@example(-np.inf, 1e308, 3)
def test_every_contribution_is_an_integer_within_the_bound(value, scale, exponent):
    bound = 2.0**exponent
    with np.errstate(all="ignore"):
        encoded = Lattice(bound).encode(np.float64(value), np.float64(scale))
    assert -bound <= int(encoded) <= bound
    assert int(encoded) == twins.encode(value, scale, bound)


norms = st.one_of(st.sampled_from([0.0, 1.0000001e-150, 9.9e149, 1.0]), st.floats(SMALLEST, LARGEST))


@settings(max_examples=300, deadline=None)
@given(wild_floats, wild_floats, norms, st.one_of(st.sampled_from([SMALLEST, 1.0, LARGEST]), st.floats(1e-9, 1e9)))
@example(np.inf, 0.0, 1.0, 1.0)
@example(-np.inf, 1.0, 1e149, LARGEST)
@example(1.0, np.inf, 1.0, 1.0)
@example(np.nan, 1.0, 1.0, 1.0)
@example(1e308, 0.0, 0.0, 1.0)
def test_every_row_is_shortened_to_the_clip(slope, more, norm, clip):
    """By its reach, which is never below the slope: whatever those are, the norm is at most the bound."""
    slope, reach, norm = np.float64(slope), np.float64(abs(slope) + abs(more)), np.float64(norm)
    with np.errstate(all="ignore"):
        length = shortened(slope, reach, norm, clip, BOUND, BOUND / clip) * norm
        expected = slope * norm * (BOUND / clip) if reach * norm <= clip else slope / reach * BOUND
    assert abs(length) <= BOUND * (1 + 1e-15)
    if norm == 0.0 or np.isnan(reach):
        assert length == 0.0
    elif np.isfinite(reach):
        assert length == pytest.approx(expected, rel=1e-12, abs=1e-9)
    elif np.isinf(slope):
        assert length == pytest.approx(np.sign(slope) * BOUND)


def test_ordinary_numbers_divide_and_multiply_one_another():
    for value in [*WILD, SMALLEST, LARGEST, 1.1 * SMALLEST, 0.9 * LARGEST]:
        if ordinary(value):
            check_ordinary("clip", value)
            assert all(0.0 < abs(value * other) < math.inf and value / other > 0.0 for other in (SMALLEST, LARGEST))
        elif value not in (SMALLEST, LARGEST):
            with pytest.raises(ValueError, match="clip must be a number between"):
                check_ordinary("clip", value)


@pytest.mark.parametrize("n", [1, 2, 1000, 45_312, 10**9, 2**40])
@pytest.mark.parametrize("multiplier", [0.01, 1.0, 1e3, 1e6, 1e12])
@pytest.mark.parametrize("entries", [1, 300, 10**7])
@pytest.mark.parametrize("power", [1, 2])
def test_lattices_are_the_finest_that_fit(n, multiplier, entries, power):
    """Rows, or products of rows: see `lattice` for the four conditions. Where nothing fits, that is said."""

    def sensitivity(bound):
        return 2.0 * (bound + math.sqrt(entries)) ** power

    def fits(bound):
        scale = multiplier * sensitivity(bound)
        no_overflow = n * bound**power <= 2.0**60 and 64.0 * scale <= 2.0**62
        return no_overflow and bound >= math.sqrt(entries) and scale >= SMALLEST_SCALE

    asked = n, sensitivity, (multiplier, multiplier)
    fitting = [2.0**k for k in range(20) if fits(2.0**k)]
    if fitting:
        found = lattice(*asked, entries=entries, entry=lambda bound: bound**power, finest=2.0**19)
        assert found.bound == max(fitting)
    else:
        with pytest.raises(ValueError, match=f"no integer lattice fits {n} records of {entries} entries"):
            lattice(*asked, entries=entries, entry=lambda bound: bound**power, finest=2.0**19)


def mechanisms(z, size):
    """Some of each kind, with so many entries."""
    view, zeros, batches = View(np.arange(1), np.ones((size, 1)), np.zeros(1)), np.zeros(size), FixedSize(2, 5)
    yield JointGradient(view, z, clip=1.0)
    yield GradientSizes(view, z)
    yield ClippedMeans(np.arange(size), np.ones(size), None, z)
    yield GradientSteps(Squared(), Zero(), batches, 30, size, 1.0, 0.1, z, zeros)
    yield VarianceReducedSteps(
        *(Squared(), Zero(), batches, 30, size, np.arange(size), 1.0, 1.0, 0.1, z),
        *(zeros, zeros, zeros, zeros, size),
    )
    yield DualSteps(Logistic(), batches, 30, 1.0, 1.0, 1.0, z, size)
    if size <= 300:
        yield MomentMatrix(view, z, radius=1.0)


@pytest.mark.parametrize("size", [1, 3, 300, 9000])
@pytest.mark.parametrize("z", 2.0 ** np.arange(-14, 62, 5))
def test_noise_stays_far_from_the_ends_of_int64(z, size):
    """As accounting assumes: scales of at least 2³⁰, and 64 of them within int64 with all sums; or an error."""
    for mechanism in mechanisms(z, size):
        try:
            bound = mechanism.lattice(5).bound
        except ValueError as error:
            assert "no integer lattice fits" in str(error), name(mechanism)  # noqa: PT017 - that is one of two outcomes
            assert not 0.01 < z < 2.0**25, name(mechanism)
        else:
            scale = z * mechanism.sensitivity(bound)
            assert scale * min(noise_parts(mechanism, size)) >= SMALLEST_SCALE
            # Noise of the dual variables piles up over all steps.
            assert scale * (math.sqrt(30) if isinstance(mechanism, DualSteps) else 1.0) <= 2.0**56 * (1 + 1e-9)
