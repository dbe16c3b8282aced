import doctest
import math

import numpy as np
import pytest

from dpcd import penalties
from problems import PENALTIES, name


@pytest.mark.parametrize("penalty", PENALTIES, ids=name)
@pytest.mark.parametrize("j", [0, 1, 2])
@pytest.mark.parametrize("step", [0.1, 1.0, 3.0])
def test_prox_minimizes_its_definition(penalty, j, step):
    for v in np.linspace(-3.0, 3.0, 25):
        w = penalty.prox(v, step, j)

        def criterion(u, v=v):
            return 0.5 * (u - v) ** 2 + step * penalty.value(u, j)

        # No point of a grid, no kink and no neighbour of the answer is better.
        candidates = [*np.linspace(-4.0, 4.0, 2001), 0.0, -0.5, 0.25]
        candidates += [w + sign * 10.0**-k for k in range(1, 8) for sign in (-1, 1)]
        assert criterion(w) <= min(criterion(u) for u in candidates) + 1e-14


def test_values():
    assert penalties.Zero().value(3.0, 0) == 0.0
    assert penalties.L1(2.0).value(-3.0, 0) == 6.0
    assert penalties.WeightedL1(2.0, np.array([1.0, 5.0])).value(-3.0, 1) == 30.0
    assert penalties.L2(2.0).value(-3.0, 0) == 9.0
    assert penalties.ElasticNet(2.0, 0.25).value(2.0, 0) == 2.0 * (0.5 + 0.375 * 4.0)
    assert penalties.Box(-1.0, 1.0).value(2.0, 0) == math.inf
    assert penalties.non_negative().prox(-2.0, 1.0, 0) == 0.0


def test_documented_example_runs():
    assert doctest.testmod(penalties).failed == 0
