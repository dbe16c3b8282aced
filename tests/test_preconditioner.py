"""Second moments of columns from noisy looks at them."""

import math

import numpy as np
import pytest

from dpcd.solvers.preconditioner import shrunk
from fitting import symmetric_noise


class TestShrunkEigenvalues:
    def test_noise_is_shrunk_to_its_mean(self, rng):
        for size in (3, 20):
            found = [
                shrunk(np.linalg.eigvalsh(5.0 * np.eye(size) + symmetric_noise(size, rng)), 1.0) for _ in range(20)
            ]
            assert np.mean([np.ptp(values) for values, _ in found]) < 0.4 * math.sqrt(2.0 * size)
            assert np.mean([left for _, left in found]) < 0.35
            assert np.mean([values.mean() for values, _ in found]) == pytest.approx(5.0, abs=0.3)

    def test_one_alone_stays(self):
        for value in (0.05, 0.2):
            kept, left = shrunk(np.array([value, 9.0]), 0.1)
            assert left == 1.0
            assert kept[1] == 9.0

    def test_what_noise_does_not_explain_stays(self):
        values = np.array([1.0, 2.0, 3.0, 10.0])
        np.testing.assert_allclose(shrunk(values, 0.0)[0], values)
        np.testing.assert_allclose(shrunk(values, 1e-3)[0], values, rtol=1e-3)
        assert shrunk(np.ones(3), 0.0) == (pytest.approx(np.ones(3)), 0.0)

    def test_one_steep_direction_among_noise_stays_what_it_is(self, rng):
        size = 20
        matrix = np.eye(size) + symmetric_noise(size, rng)
        matrix[0, 0] += 50.0
        values = np.linalg.eigvalsh(matrix)
        kept, left = shrunk(values, 1.0)
        assert kept[-1] == values[-1]
        assert np.ptp(kept[:-1]) < 0.6 * np.ptp(values[:-1])
        assert left < 0.5
