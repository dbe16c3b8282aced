"""Second moments of columns from noisy looks at them."""

import math

import numpy as np
import pytest

from dpcd.losses import Squared
from dpcd.penalties import Zero
from dpcd.privacy import Columns, Curator, PrivacyBudget, SeededNoise
from dpcd.solvers import Problem
from dpcd.solvers.joint import Scaled
from dpcd.solvers.moments import Moments, _lost_by_ordinary_rows, shrunk
from dpcd.solvers.unseen import Unseen
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


def one_factor(rng, n_records, size, common):
    """Normal columns of variance 1, any two of them with this correlation."""
    factor = rng.normal(size=(n_records, 1))
    return math.sqrt(common) * factor + math.sqrt(1.0 - common) * rng.normal(size=(n_records, size))


class TestWhatIsMissing:
    """What looks do not show of second moments of 1."""

    def looks(self, true, noise, rounds, rng, count=200):
        """Moments from noisy looks at a matrix, many times over."""
        size = len(true)

        def look(whitening):
            return whitening @ true @ whitening.T + noise * symmetric_noise(size, rng)

        return [Moments.of(look, size, 100.0, noise, rounds) for _ in range(count)]

    @pytest.mark.parametrize("rounds", [1, 2])
    def test_it_is_off_by_its_noise(self, rounds, rng):
        """Of the first column .7 is missing, whatever shrinking eigenvalues puts there."""
        true = np.diag([0.3, 1.0, 1.0, 1.0, 1.0, 1.0])
        found = self.looks(true, 0.15, rounds, rng)
        missing, said = np.array([each.missing[0] for each in found]), np.mean([each.uncertainty[0] for each in found])
        assert missing.mean() == pytest.approx(0.7, abs=0.05)
        # One look alone is not believed as far as its noise says.
        assert said == pytest.approx(missing.std() * (1.5 if rounds == 1 else 1.0), rel=0.15)
        assert np.mean([each.hidden[0] for each in found]) < 0.5, "what shrinking leaves"

    def test_two_looks_see_more_than_the_last_of_them(self, rng):
        found = self.looks(np.eye(6), 0.1, 2, rng)
        last = [each.noise * np.sum(each.unwhitened**2, axis=1) for each in found]
        assert np.mean([each.uncertainty for each in found]) < 0.8 * np.mean(last)

    def test_without_noise_nothing_is_doubtful(self, rng):
        (found,) = self.looks(np.diag([0.5, 1.0]), 0.0, 2, rng, count=1)
        assert found.missing == pytest.approx([0.5, 0.0], abs=1e-9)
        assert np.all(found.uncertainty == 0.0)

    @pytest.mark.parametrize(("size", "common"), [(1, 0.0), (8, 0.0), (8, 0.5), (8, 0.9), (40, 0.3)])
    def test_what_ordinary_rows_lose(self, size, common, rng):
        X, radius = one_factor(rng, 200_000, size, common), 1.5 * math.sqrt(size)
        shortened = np.minimum(1.0, radius / np.linalg.norm(X, axis=1))[:, None] * X
        lost = 1.0 - np.mean(shortened**2)
        assert _lost_by_ordinary_rows(shortened.T @ shortened / len(X), 0.0, radius) == pytest.approx(lost, abs=0.02)

    @pytest.mark.parametrize("rounds", [1, 2])
    def test_columns_that_agree_hide_nothing(self, rounds, rng):
        """Where they do, many rows are long without being far out: a third of all second moments is shortened away."""
        X = one_factor(rng, 50_000, 8, 0.9)
        curator = Curator(Columns.copy_of(X, X[:, 0]), PrivacyBudget(10.0, 1e-6), SeededNoise(np.random.default_rng(0)))
        scaled = Scaled.of(curator, Problem(Squared(), Zero(), np.mean(X**2, axis=0), 8), 1)
        assert not np.any(Unseen(scaled, scaled.moments(0.1, rounds)).hidden)
