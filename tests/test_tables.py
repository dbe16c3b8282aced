"""Tables: what is stored is what is read, and parts and tiles hold every record once."""

import itertools
import os
from dataclasses import FrozenInstanceError

import numpy as np
import pytest

from dpcd.privacy.lattice import Lattice, Unclipped
from dpcd.tables import Columns
from dpcd.tables.dense import _WORTH_A_THREAD


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.int64, np.uint8, np.bool_])
@pytest.mark.parametrize("intercept", [False, True])
def test_copies_hold_the_same_numbers_in_columns_of_their_own(dtype, intercept, rng):
    X, y = rng.integers(0, 2, size=(3000, 3)).astype(dtype), rng.integers(5, size=3000)
    data = Columns.copy_of(X, y, intercept)
    assert data.features.dtype == (np.float32 if dtype is np.float32 else np.float64)
    assert data.features.flags.f_contiguous
    assert (data.n_records, data.n_columns) == (3000, 3 + intercept)
    assert np.array_equal(data.doubles(), np.column_stack([X, np.ones((3000, int(intercept)))]))
    assert data.target.dtype == np.float64
    assert np.array_equal(data.target, y)
    X[:], y[:] = 7, 7
    assert data.features.max() <= 1
    assert data.target.max() < 5
    with pytest.raises(FrozenInstanceError):
        data.target = y


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_clips_are_those_of_numpy(dtype, rng):
    X, y = rng.normal(size=(50, 3)).astype(dtype), rng.normal(size=50)
    X[3], X[5] = np.nan, [np.inf, -np.inf, 3e38]
    y[7] = np.inf
    data = Columns.copy_of(X, y, True)
    expected, target = X.astype(np.float64), y.copy()
    # Later clips are of what earlier ones left.
    for lower, upper, center in ((-1.0, 1.5, 0.3), (-0.7, np.inf, 0.0), (-0.1, 0.2, -1e9)):
        bounds = [np.full(2, value) for value in (lower, upper, center)]
        data.clip_features(*bounds)
        for bound in bounds:
            bound[:] = 9.9
        expected[:, :2] = np.clip(expected[:, :2], lower, upper) - center
        data.clip_target(lower, upper, center)
        target = np.clip(target, lower, upper) - center
    part = data.part(2, 9)
    assert np.array_equal(data.doubles()[:, :3], expected, equal_nan=True)
    assert np.array_equal(part.doubles()[:, :3], expected[2:9], equal_nan=True)
    assert all(np.array_equal(part.column(j), expected[2:9, j], equal_nan=True) for j in range(3))
    assert np.array_equal(part.column(3), np.ones(7))
    assert np.array_equal(data.target, target)
    assert np.array_equal(part.target, target[2:9])


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("size", [1, 4, 7, 100])
def test_tiles_hold_every_record_of_a_part_once(dtype, size):
    numbers = np.arange(25)
    data = Columns.copy_of(np.column_stack([numbers, -numbers]).astype(dtype), numbers % 3)
    part, seen = data.part(3, 20), []
    assert part.signed_target(2).tolist() == data.signed_target(2)[3:20].tolist()
    for features, row, first, count in part.tiles(size):
        assert features.dtype == np.float64
        assert features.flags.f_contiguous
        assert 1 <= count <= size
        seen.append(features[row : row + count, 0])
        assert np.array_equal(features[row : row + count, 1], part.column(1)[first : first + count])
    assert np.concatenate(seen).tolist() == numbers[3:20].tolist()
    assert part.signed_target(None).tolist() == part.target.tolist()
    assert set(part.signed_target(1)[part.target == 1]) == {1.0}
    assert set(part.signed_target(1)[part.target != 1]) == {-1.0}


class Numbers:
    """Adds up the records, and remembers which parts it was shown."""

    def __init__(self):
        self.parts = []

    def sums(self, part, lattice):
        self.parts.append((part.first, part.last))
        return part.doubles().sum(axis=0).astype(np.int64 if lattice.exact else np.float64)


@pytest.mark.parametrize("cpus", [1, 2, 5, None])
def test_parts_add_up_to_the_table(cpus, monkeypatch, rng):
    n = 3 * _WORTH_A_THREAD + 5
    data = Columns.copy_of(rng.integers(-9, 9, size=(n, 2)), np.zeros(n))
    monkeypatch.setattr(os, "cpu_count", lambda: cpus)
    numbers = Numbers()
    assert np.array_equal(data.sums(numbers, Lattice(2.0**40)), data.features.sum(axis=0))
    assert len(numbers.parts) == min(cpus or 1, 3)
    ends = sorted(last for _, last in numbers.parts)
    assert sorted(numbers.parts) == list(itertools.pairwise([0, *ends])), "no record twice, and none left out"
    assert (min(numbers.parts)[0], max(numbers.parts)[1]) == (0, n)
    # Sums of floating-point numbers depend on the cut, so there is none.
    whole = Numbers()
    data.sums(whole, Unclipped())
    assert whole.parts == [(0, n)]


def test_a_copy_is_as_clipped_as_what_it_is_of(rng):
    X, y = 9.0 * rng.normal(size=(50, 2)), rng.normal(size=50)
    for dtype in (np.float32, np.float64):
        data = Columns.copy_of(X.astype(dtype), y)
        data.clip_features(np.full(2, -1.0), np.full(2, 1.0), np.full(2, 0.5))
        copy = data.copy(intercept=True)
        assert np.array_equal(copy.doubles()[:, :2], data.doubles())
        assert copy.doubles()[:, :2].min() == -1.5
        assert np.all(copy.doubles()[:, 2] == 1.0)


def test_what_fails_in_a_thread_fails(monkeypatch):
    class Failing:
        def sums(self, part, lattice):
            raise ValueError("no" if part.first else "never")

    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    n = 2 * _WORTH_A_THREAD
    with pytest.raises(ValueError, match="never"):
        Columns.copy_of(np.zeros((n, 1)), np.zeros(n)).sums(Failing(), Lattice(1.0))


@pytest.mark.parametrize(
    ("features", "target"), [((5, 2), (4,)), ((5, 2), (1,)), ((5, 2), (5, 1)), ((5,), (5,)), ((5, 2), ())]
)
def test_tables_without_a_target_for_each_record_are_refused(features, target):
    with pytest.raises(ValueError, match="an entry for each"):
        Columns(np.zeros(features, order="F"), np.zeros(target))
