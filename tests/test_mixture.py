"""Shrinking estimates of which few carry the signal."""

import numpy as np
import pytest

from dpcd.experiments.families import Sample
from dpcd.losses import Squared
from dpcd.penalties import L2
from dpcd.solvers import DPBlockCD
from dpcd.solvers.mixture import factors_of_two_groups
from fitting import lost


def estimates(signal, rng):
    return signal + rng.normal(size=len(signal))


def james_stein(found):
    return max(0.0, 1.0 - len(found) / float(found @ found)) * found


class TestFactors:
    @pytest.mark.parametrize("large", [8.0, 20.0])
    def test_few_large_ones_among_noise(self, large, rng):
        """One of forty: nearly all of it is kept, and nearly nothing of the others."""
        signal = np.zeros(40)
        signal[7] = large
        ours, usual = [], []
        for _ in range(30):
            found = estimates(signal, rng)
            factors = factors_of_two_groups(found**2)
            assert factors is not None
            ours.append(np.sum((factors * found - signal) ** 2))
            usual.append(np.sum((james_stein(found) - signal) ** 2))
        assert np.mean(ours) < 0.3 * np.mean(usual)

    def test_estimates_of_a_kind_are_left_to_one_factor(self, rng):
        for spread in (0.0, 1.0, 10.0):
            told_apart = [factors_of_two_groups(estimates(spread * rng.normal(size=30), rng) ** 2) for _ in range(100)]
            assert sum(factors is not None for factors in told_apart) <= 3

    def test_small_signal_is_not_taken_for_noise(self, rng):
        """With little noise, the smaller group keeps what it has."""
        signal = 5.0 * rng.normal(size=40)
        signal[:3] = 500.0, -400.0, 300.0
        factors = factors_of_two_groups(estimates(signal, rng) ** 2)
        assert factors is not None
        assert np.all(factors[:3] > 0.999)
        assert 0.85 < np.median(factors) < 0.99

    @pytest.mark.parametrize("size", [5, 6, 1000])
    def test_factors_are_parts(self, size, rng):
        for scale in (0.0, 1e-3, 1.0, 1e6, 1e150):
            squares = (scale * rng.standard_cauchy(size=size)) ** 2
            factors = factors_of_two_groups(squares)
            assert factors is None or (np.all(factors >= 0.0) and np.all(factors <= 1.0 + 1e-12))

    def test_too_few_or_absurd(self):
        assert factors_of_two_groups(np.array([1.0, 1.0, 1.0, 900.0])) is None
        for absurd in (np.inf, np.nan, 1e300):
            assert factors_of_two_groups(np.array([1.0, 1.0, 1.0, 1.0, 1.0, absurd])) is None


def test_a_signal_in_one_of_many_columns(rng):
    """One factor for all columns loses .2 to .3 here."""
    X = rng.normal(size=(8000, 32))
    y = X[:, 5] + 2.0 * rng.normal(size=8000)
    sample = Sample("one of many", X, y, Squared(), L2(1e-4))
    assert np.mean(lost(DPBlockCD(), sample, 0.3, range(4))) < 0.1
