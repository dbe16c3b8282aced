"""Means, moments and histograms of columns: what they are, and which fields are refused."""

import math

import numpy as np
import pytest

from dpcd.audit import NoNoise
from dpcd.privacy import Columns
from dpcd.privacy.columns import ClippedMeans, DyadicCounts, SecondMoments
from dpcd.privacy.kernels import BUCKETS, CELLS
from dpcd.privacy.rivals.laplace import LaplaceSecondMoments


def test_moments_and_counts_are_right_without_noise(rng):
    X = rng.normal(size=(300, 3)) * [1.0, 10.0, 0.1]
    y = rng.normal(size=300)
    data = Columns.copy_of(X, y)
    moments = SecondMoments(np.array([0, 2]), np.array([2.0, 0.2]), 1.5, 0.0).run(data, NoNoise())
    expected = [np.mean(np.minimum(np.abs(v) / b, 1) ** 2) for v, b in ((X[:, 0], 2.0), (X[:, 2], 0.2), (y, 1.5))]
    np.testing.assert_allclose(moments, expected, rtol=1e-9)
    laplace = LaplaceSecondMoments(np.array([0, 2]), np.array([2.0, 0.2]), 1.5, math.inf).run(data, NoNoise())
    np.testing.assert_allclose(laplace, expected, rtol=1e-9)
    around = ClippedMeans(np.array([1]), np.array([5.0]), 1.0, 0.0, center=np.array([20.0, -0.5])).run(data, NoNoise())
    np.testing.assert_allclose(
        around, [np.mean(np.clip((X[:, 1] - 20.0) / 5.0, -1, 1)), np.mean(np.clip(y + 0.5, -1, 1))]
    )
    counts = DyadicCounts(3, True, 0.0).run(data, NoNoise())
    assert counts.shape == (4, CELLS)
    assert counts.sum(axis=1).tolist() == [300, 300, 300, 300]
    assert counts[1, BUCKETS + 1 + 60 + 3] == np.count_nonzero((X[:, 1] >= 8) & (X[:, 1] < 16))
    assert counts[1, BUCKETS - 1 - 60 - 3] == np.count_nonzero((X[:, 1] <= -8) & (X[:, 1] > -16))


@pytest.mark.parametrize(
    "mechanism",
    [
        ClippedMeans(np.arange(2), np.ones(2), 1.0, 4.0),
        SecondMoments(np.arange(2), np.ones(2), 1.0, 4.0),
        LaplaceSecondMoments(np.arange(2), np.ones(2), 1.0, 0.3),
        DyadicCounts(2, True, 4.0),
    ],
    ids=lambda mechanism: type(mechanism).__name__,
)
def test_the_noise_is_what_is_said_of_it(mechanism):
    """In units of what comes out."""
    n, noise = 50, NoNoise()
    mechanism.run(Columns.copy_of(np.ones((n, 2)), np.ones(n)), noise)
    unit = np.max(mechanism.decode(np.ones(mechanism.size, dtype=np.int64), mechanism.lattice(n), n))
    level = mechanism.noise_level if isinstance(mechanism, DyadicCounts) else mechanism.noise_level(n)
    # A Laplace law of parameter b has standard deviation √2·b.
    assert noise.scales[0] * unit * (math.sqrt(2.0) if mechanism.law == "laplace" else 1.0) == pytest.approx(level)


def test_wrong_fields_are_refused():
    for center in (np.array([1.0]), np.array([1.0, math.nan]), np.array([math.inf, 0.0])):
        for make in (
            lambda center: ClippedMeans(np.array([0, 1]), np.ones(2), None, 1.0, center=center),
            lambda center: DyadicCounts(2, False, 1.0, center=center),
        ):
            with pytest.raises(ValueError, match="one finite value"):
                make(center)
    for ranges in ([0.0], [np.inf], [np.nan], []):
        with pytest.raises(ValueError, match="range"):
            SecondMoments(np.arange(len(ranges)), np.array(ranges), None, 1.0)
    with pytest.raises(ValueError, match="epsilon"):
        LaplaceSecondMoments(np.array([0]), np.array([1.0]), None, 0.0)
    with pytest.raises(ValueError, match="column"):
        DyadicCounts(0, False, 1.0)
