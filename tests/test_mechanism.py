"""What every mechanism does besides adding up to its sensitivity, which `test_sensitivity.py` attacks."""

import copy
import json
import math
import os
from dataclasses import FrozenInstanceError, fields, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from dpcd.audit import NoNoise
from dpcd.losses import Logistic, Squared
from dpcd.privacy import Columns
from dpcd.privacy.choices import SteepestVertex, TopCoordinates
from dpcd.privacy.coordinates import CoordinateUpdates
from dpcd.privacy.records import JointGradient, View
from dpcd.privacy.rivals.batches import DualSteps
from dpcd.privacy.rivals.minima import MinimumOfNoisyObjective, NoisyMinimum
from dpcd.privacy.rivals.sampling import FixedSize
from dpcd.privacy.search import MeanLoss
from dpcd.tables import dense
from problems import name
from test_kernels import run_python
from test_sensitivity import ATTAINED, N, P

SUMS = [mechanism for mechanism, *_ in ATTAINED.values()]
PROBLEM = {"scales": np.ones(P), "ridge": np.zeros(P), "strength": 1.0, "row_norm": 2.0, "clip": 0.8, "n_records": N}
MECHANISMS = [
    *SUMS,
    DualSteps(Logistic(), FixedSize(2, N), 1, 0.5, 0.1, 2.0, 2.0, P),
    NoisyMinimum(loss=Squared(), noise_multiplier=3.0, **PROBLEM),
    MinimumOfNoisyObjective(loss=Squared(), noise_multiplier=3.0, output_multiplier=40.0, **PROBLEM),
]


def writable(value):
    """The same in arrays of its own."""
    if isinstance(value, View):
        return View(*map(writable, value))
    return value.copy() if isinstance(value, np.ndarray) else value


@pytest.mark.parametrize("mechanism", MECHANISMS, ids=name)
def test_nothing_can_be_changed_between_the_charge_and_the_run(mechanism):
    mine = {field.name: writable(getattr(mechanism, field.name)) for field in fields(mechanism)}
    made = type(mechanism)(**mine)
    for field, value in mine.items():
        kept = getattr(made, field)
        for ours, theirs in zip(value, kept, strict=True) if isinstance(value, View) else [(value, kept)]:
            if isinstance(ours, np.ndarray):
                assert not np.shares_memory(ours, theirs), field
                assert not theirs.flags.writeable, field
        with pytest.raises(FrozenInstanceError):
            setattr(made, field, value)


class Spy(NamedTuple):
    """A loss with room to remember what it sees."""

    memory: Any
    curvature = 1.0
    lipschitz = 1.0

    def value(self, y, z):
        return 0.0

    def derivative(self, y, z):
        self.memory[0] = y
        return y


@pytest.mark.parametrize("mechanism", [m for m in MECHANISMS if hasattr(m, "loss") or hasattr(m, "view")], ids=name)
@pytest.mark.parametrize("memory", [np.zeros(1), [0.0], (np.zeros(1),)], ids=name)
def test_losses_that_could_remember_are_refused(mechanism, memory):
    spy = {"view": mechanism.view._replace(loss=Spy(memory))} if hasattr(mechanism, "view") else {"loss": Spy(memory)}
    with pytest.raises(ValueError, match="numbers only"):
        replace(mechanism, **spy)


@pytest.mark.parametrize("mechanism", [m for m in MECHANISMS if hasattr(m, "noise_multiplier")], ids=name)
@pytest.mark.parametrize("bad", [-1.0, math.nan, math.inf])
def test_noise_multipliers_are_numbers(mechanism, bad):
    with pytest.raises(ValueError, match="noise multipliers"):
        replace(mechanism, noise_multiplier=np.full(np.shape(mechanism.noise_multiplier), bad))


@pytest.mark.parametrize("kind", [CoordinateUpdates, JointGradient, SteepestVertex, TopCoordinates], ids=name)
def test_where_there_is_noise_records_are_clipped(kind):
    mechanism = ATTAINED[kind][0]
    unclipped = np.full(np.shape(mechanism.clip), math.inf)
    with pytest.raises(ValueError, match="infinite clip"):
        replace(mechanism, clip=unclipped)
    # And if somebody manages all the same, after the charge, noise and clipping go together.
    changed, noise = copy.copy(mechanism), NoNoise()
    object.__setattr__(changed, "clip", unclipped)
    with np.errstate(all="ignore"):
        changed.run(Columns.copy_of(np.ones((N, P)), np.ones(N)), noise)
    assert noise.scales == [mechanism.noise_multipliers[0] * mechanism.sensitivity(mechanism.lattice(N).bound)]


@pytest.mark.parametrize("mechanism", [m for m in MECHANISMS if not isinstance(m, MeanLoss)], ids=name)
def test_tables_with_fewer_columns_are_refused(mechanism):
    """Compiled loops do not check where they read. (A mean loss reads the columns that it needs, and no loop.)"""
    with pytest.raises((ValueError, IndexError), match=r"made for|out of bounds"):
        mechanism.run(Columns.copy_of(np.ones((N, 1)), np.ones(N)), NoNoise())


@pytest.mark.parametrize("mechanism", SUMS, ids=name)
def test_sums_depend_neither_on_threads_nor_on_the_order_of_records(mechanism, rng, monkeypatch):
    """With wild records and warnings as errors: other threads must not warn about them either."""
    n = 70_000
    X, y = rng.normal(size=(n, P)), np.sign(rng.normal(size=n))
    X[::7], X[3::11], y[5] = [1e308, np.nan, -np.inf], [1e-308, 1e160, 1.0], 1e308

    def sums(rows=slice(None), cpus=1):
        monkeypatch.setattr(os, "cpu_count", lambda: cpus)
        with np.errstate(all="ignore"):
            return Columns.copy_of(X[rows], y[rows]).sums(mechanism, mechanism.lattice(n))

    expected = sums()
    assert np.array_equal(sums(rng.permutation(n)), expected)
    monkeypatch.setattr(dense, "_WORTH_A_THREAD", 1000)
    assert np.array_equal(sums(cpus=2), expected)
    assert np.array_equal(sums(slice(None, None, -1), cpus=5), expected)


RELEASES = """
import sys
sys.path.insert(0, {tests!r})
import numpy as np
from attack import exact_sums
from dpcd.audit import NoNoise
from dpcd.losses import Huber, Logistic, Squared
from dpcd.penalties import ElasticNet
from dpcd.privacy import Columns
from dpcd.privacy.coordinates import CoordinateUpdates
from test_sensitivity import ATTAINED, shown, through
rng = np.random.default_rng(5)
# Numbers whose products and sums are exact, and wild ones.
X, y = rng.integers(-16, 17, size=(60, 3)) / 8, rng.integers(-16, 17, size=60) / 4
X[0], X[1], y[2] = [1e308, 5e-324, -1e308], np.nan, np.inf
data = Columns.copy_of(X, y)
for transform in (np.array([[1.0, 0.0, 0.5], [0.25, -1.0, 0.0]]), np.array([1.0, 2.0, 0.25])):
    for mechanism in through(shown(transform, [0.5, 0.0, -0.25], loss=Huber(1.25)), 1.0):
        # Difference quotients contract.
        print(1e-8 * 2.0**40 if getattr(mechanism, "weighted", False) else 0, exact_sums(mechanism, data).tolist())
for mechanism, *_ in ATTAINED.values():
    print(0, exact_sums(mechanism, data).tolist())
X, ones = rng.normal(size=(60, 3)), np.ones(3)
for loss in (Squared(), Logistic()):
    order = np.tile(np.arange(3), 4)
    updates = CoordinateUpdates(loss, ElasticNet(0.1), order, 3, ones, ones, 5 * ones, 0.0 * ones)
    print(64, updates.run(Columns.copy_of(X, np.sign(X[:, 1])), NoNoise())[0].tolist())
"""


def test_results_are_the_same_with_the_jit_off():
    script = RELEASES.format(tests=str(Path(__file__).parent))
    compiled, plain = (run_python(script, NUMBA_DISABLE_JIT=off).splitlines() for off in ("0", "1"))
    assert len(compiled) == len(plain) == 2 * 8 + len(SUMS) + 2
    for ours, theirs in zip(compiled, plain, strict=True):
        tolerance, sums = ours.split(" ", 1)
        difference = np.array(json.loads(sums)) - np.array(json.loads(theirs.split(" ", 1)[1]))
        assert np.max(np.abs(difference)) <= float(tolerance)
