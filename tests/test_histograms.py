"""What noisy histograms say about their columns."""

import math

import numpy as np
import pytest

from dpcd.compilation import compiled
from dpcd.privacy import kernels
from dpcd.privacy.kernels import BUCKETS, CELLS
from dpcd.ranges.histograms import Reading, _histograms, _windows, folded, shapes

N = 10_000


def read(columns, noise, seed=0, center=0.0, bounds=(-math.inf, math.inf), around=0.0):
    """Read the histograms of some columns, with noise that is this part of the records."""
    counts = np.array([compiled(kernels.dyadic_counts)(column, center) for column in columns], dtype=float)
    noisy = counts + noise * N * np.random.default_rng(seed).normal(size=counts.shape)
    one = np.ones(len(columns))
    return Reading.of(noisy, max(noise, 1e-6) * N * one, N, bounds[0] * one, bounds[1] * one, around * one)


def kinds(rng):
    return {
        "centered": rng.normal(size=N),
        "far": 30.0 + rng.normal(size=N),
        "negative": -5.0 + rng.normal(size=N),
        "lognormal": np.exp(rng.normal(size=N)),
        "amounts": np.exp(rng.normal(size=N)) * (rng.random(N) < 0.4),
        "uniform": rng.random(N),
        "flag": (rng.random(N) < 0.3).astype(float),
    }


class TestShapes:
    def test_every_shape_is_a_distribution(self):
        bank = shapes()
        assert np.allclose(bank.cells.sum(axis=1), 1.0)
        assert math.exp(0.0) == pytest.approx(np.exp(bank.log_prior).sum())
        assert np.all(bank.second.sum(axis=1) >= bank.first.sum(axis=1) ** 2 - 1e-12)

    def test_windows_and_histograms_are_transposes(self, rng):
        """⟨windows(a), b⟩ = ⟨a, histograms(b)⟩: what shapes expect is in the cells that they are compared with."""
        counts = rng.normal(size=(2, CELLS))
        windows = _windows(counts)
        others = rng.normal(size=windows.shape)
        assert np.vdot(windows, others) == pytest.approx(np.vdot(counts, _histograms(others)))

    def test_shapes_of_both_signs_come_in_pairs(self):
        bank = shapes()
        width = (bank.cells.shape[1] - 1) // 2
        mirrored = np.concatenate([bank.cells[:, width:-1], bank.cells[:, :width], bank.cells[:, -1:]], axis=1)
        numbers = ~bank.is_flag
        ours, theirs = (
            np.sort(np.round(cells[numbers] @ np.arange(2 * width + 1), 9)) for cells in (bank.cells, mirrored)
        )
        np.testing.assert_allclose(ours, theirs)


class TestReading:
    @pytest.mark.parametrize("noise", [0.0, 0.01, 0.05])
    def test_size_and_place_of_columns_of_all_kinds(self, noise, rng):
        columns = kinds(rng)
        reading = read(columns.values(), noise)
        for name, column, mean, deviation in zip(
            columns, columns.values(), reading.mean, reading.deviation, strict=True
        ):
            size = math.hypot(column.mean(), column.std())
            assert 0.4 * size < math.hypot(mean, deviation) < 2.5 * size, name
            assert abs(mean - column.mean()) < max(0.5 * deviation, 0.35 * size), name
        assert np.all(reading.belief > 0.5)

    def test_any_unit_will_do(self, rng):
        """A power of two is the same histogram, shifted, and its reading differs by the prior of the octaves alone."""
        columns = [column for name, column in kinds(rng).items() if name != "flag"]
        ours = read(columns, 0.02)
        for exponent in (-30, -10, 20):
            unit = 2.0**exponent
            theirs = read([column * unit for column in columns], 0.0)
            plain = read(columns, 0.0)
            np.testing.assert_allclose(theirs.deviation / unit, plain.deviation, rtol=0.1)
            np.testing.assert_allclose(theirs.mean / unit, plain.mean, rtol=0.1, atol=0.1)
        assert ours.deviation.shape == (6,)

    def test_noise_alone_is_rarely_believed(self, rng):
        reading = read(np.zeros((400, N)) * np.nan, 0.1)
        # All records are in the middle cell, which no shape of a column that varies has.
        assert np.mean((reading.belief > 0.5) & (reading.deviation > 0.0)) < 0.05

    def test_doubt_shows_in_the_deviation(self, rng):
        sharp, hazy = (read([50.0 + rng.normal(size=N)], noise) for noise in (0.01, 0.15))
        assert sharp.excess[0] > 2.0, "all of it is in one octave: it may be much narrower"
        assert hazy.deviation[0] > 3.0
        close = read([50.0 + rng.normal(size=N)], 0.02, center=49.0, around=10.0)
        assert close.deviation[0] < 2.0
        assert close.excess[0] < 2.0

    def test_numbers_near_the_end_of_an_octave_are_still_narrow(self, rng):
        """Half of them in each of two octaves is no sign of a wide column."""
        for split in np.linspace(-1.5, 1.5, 7):
            reading = read([64.0 * (1.0 + (split + rng.normal(size=N)) / 40.0)], 0.03)
            assert reading.deviation[0] < 20.0, split
            assert reading.excess[0] > 2.0 or reading.deviation[0] < 6.0, split

    def test_what_is_all_in_one_octave_may_be_narrower_than_any_shape(self, rng):
        """An earlier look leaves only the lowest part of the octave, and shapes are no narrower than 1/32 of it."""
        for spread in (1.0, 0.1, 0.001):
            reading = read([516.0 + spread * rng.normal(size=N)], 0.005, around=276.0)
            assert reading.excess[0] > 2.0, spread

    def test_what_an_earlier_look_has_shown_is_believed(self):
        """Noise alone, around a center that is known to be off by about 8: no reading of nanometers."""
        reading = read(np.zeros((200, N)) * np.nan, 0.25, around=8.0)
        seen = reading.belief >= 0.5
        assert np.all(reading.deviation <= 16.0)
        assert np.mean(seen & (reading.deviation < 1e-3)) < 0.02

    def test_means_lie_within_bounds(self, rng):
        columns = [rng.exponential(size=N), 100.0 * rng.random(N)]
        for low, high in ((0.0, 1.0), (-0.5, 0.5), (0.0, math.inf)):
            reading = read(columns, 0.2, bounds=(low, high))
            assert np.all((reading.mean >= low - 1e-9) & (reading.mean <= high + 1e-9))

    def test_a_clear_tail_is_reached(self, rng):
        column = np.where(rng.random(N) < 0.05, 1000.0, rng.normal(size=N))
        reading = read([column], 0.001)
        assert reading.reach[0] == 1024.0
        assert 150.0 < reading.deviation[0] < 300.0
        hazy = read([column] * 20, 0.1)
        seen = hazy.belief > 0.9
        assert np.mean(seen) > 0.5
        assert np.mean(hazy.deviation[seen] < 50.0) > 0.8, "a twentieth of the records is noise there"

    def test_constants(self):
        reading = read([np.full(N, 3.0)], 0.0)
        assert 2.0 < abs(reading.mean[0]) < 4.0
        assert BUCKETS * 2 + 1 == CELLS


class TestFolded:
    def test_values_beyond_a_bound_are_counted_where_the_bound_is(self, rng):
        """The same histogram as that of clipped values, but for the octave that the bound cuts in two."""
        for low, high in ((-4.0, 32.0), (0.0, 4.0), (-math.inf, 0.0), (-0.5, math.inf), (-math.inf, math.inf)):
            column = rng.normal(size=N) * np.exp(3.0 * rng.normal(size=N))
            counts, clipped = (
                compiled(kernels.dyadic_counts)(values, 0.0)[None].astype(float)
                for values in (column, np.clip(column, low, high))
            )
            inside, moved = folded(counts, np.array([1e-6]), np.array([low]), np.array([high]))
            np.testing.assert_array_equal(inside, clipped)
            assert inside.sum() == N
            beyond = np.count_nonzero((column >= max(2.0 * high, 1e-18)) | (column <= min(2.0 * low, -1e-18)))
            assert moved[0] >= beyond

    def test_noise_beyond_a_bound_is_not_counted(self, rng):
        """One cell in thirty thousand of noise is above four deviations: there are that many in a few looks."""
        counts = 50.0 * rng.normal(size=(2000, CELLS))
        inside, moved = folded(counts, np.full(2000, 50.0), np.full(2000, -1.0), np.full(2000, 1.0))
        assert not moved.any()
        assert np.count_nonzero(inside) < counts.size / 1.9
