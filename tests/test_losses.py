import doctest

import numpy as np
import pytest

from dpcd import losses
from dpcd.compilation import exp
from problems import CLASSIFICATION, LOSSES, name


def targets(loss):
    return (-1.0, 1.0) if isinstance(loss, CLASSIFICATION) else (-2.0, 0.0, 0.7)


@pytest.mark.parametrize("loss", LOSSES, ids=name)
def test_derivative_is_the_slope_of_the_value(loss):
    step = 1e-6
    for y in targets(loss):
        for z in np.linspace(-4.0, 4.0, 41) + 0.0123:
            slope = (loss.value(y, z + step) - loss.value(y, z - step)) / (2 * step)
            assert loss.derivative(y, z) == pytest.approx(slope, abs=1e-6)


@pytest.mark.parametrize("loss", LOSSES, ids=name)
def test_curvature_and_lipschitz_are_the_suprema_they_say(loss):
    grid = np.linspace(-8.0, 8.0, 20_001)
    for y in targets(loss):
        slopes = np.array([loss.derivative(y, z) for z in grid])
        curvature = np.max(np.diff(slopes) / np.diff(grid))
        assert curvature <= loss.curvature * (1 + 1e-6)
        assert curvature >= loss.curvature * (1 - 1e-3)
        assert np.max(np.abs(slopes)) <= loss.lipschitz
        assert np.all(np.diff(slopes) >= -1e-12), "a loss must be convex"


def test_known_values():
    assert losses.Squared().value(1.0, 4.0) == 4.5
    assert losses.Logistic().value(1.0, 0.0) == pytest.approx(np.log(2))
    assert losses.Logistic().value(-1.0, 800.0) == pytest.approx(800.0)
    assert losses.Huber(2.0).value(0.0, 5.0) == 2.0 * (5.0 - 1.0)
    assert losses.SmoothedHinge(0.5).value(1.0, -2.0) == 3.0 - 0.25
    assert losses.SmoothedHinge(0.5).value(1.0, 1.0) == 0.0


def test_exponential_is_accurate_and_saturates():
    x = np.concatenate([np.linspace(-708, 708, 5001), np.linspace(-1, 1, 1001), [0.0]])
    ours = np.array([exp(v) for v in x])
    assert np.max(np.abs(ours / np.exp(x) - 1.0)) < 4e-16 * 2
    assert exp(1e300) == pytest.approx(np.exp(708.0))
    assert exp(-np.inf) == pytest.approx(np.exp(-708.0))


def test_documented_example_runs():
    assert doctest.testmod(losses).failed == 0
