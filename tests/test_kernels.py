import json
import math
import os
import shutil
import subprocess
import sys
import textwrap
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numba
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

import dpcd
import twins
from dpcd.compilation import compiled
from dpcd.losses import Logistic, Squared
from dpcd.penalties import L1
from dpcd.privacy import kernels
from dpcd.privacy.kernels import BUCKETS, CELLS, Lattice
from problems import LOSSES, PENALTIES, name, simulate

BOUND = 2.0**40
# Values that break floating-point code: anything a row may hold.
WILD = [0.0, -0.0, 1.0, -1.0, np.nan, np.inf, -np.inf, 1e308, -1e308, 5e-324, -5e-324, 2.2e-308, 1e-160, 1e160]
wild_floats = st.one_of(st.sampled_from(WILD), st.floats(allow_nan=True, allow_infinity=True))


@numba.njit(nogil=True, fastmath={"contract"}, error_model="numpy")
def sweep(previous, change, column, target, predictor, scale, lattice, loss):
    return kernels.sweep(previous, change, column, target, predictor, scale, lattice, loss)


def run_kernel(X, y, loss, penalty, coordinates, n_penalized, clip, steps, noise, start):
    kernel = compiled(kernels.descend, type(loss), type(penalty), Lattice)
    n = len(y)
    return kernel(
        np.asfortranarray(X),
        y,
        loss,
        penalty,
        Lattice(BOUND),
        coordinates,
        n_penalized,
        BOUND / clip,
        clip / (BOUND * n),
        steps,
        noise,
        np.array(start),
    )


@pytest.mark.parametrize("loss", LOSSES, ids=name)
@pytest.mark.parametrize("penalty", PENALTIES, ids=name)
def test_descend_equals_its_twin(loss, penalty, rng):
    X, y = simulate(loss, 40, 3, rng)
    coordinates = rng.integers(3, size=12)
    clip, steps = np.array([0.05, 0.5, 5.0]), 0.5 / np.mean(X**2, axis=0)
    noise = rng.integers(-(2**40), 2**40, size=12)
    start = np.array([0.3, 0.0, -0.01])
    arguments = (coordinates, 2, clip, steps, noise, start)
    released, values = run_kernel(X, y, loss, penalty, *arguments)
    expected_released, expected_values = twins.descend(X, y, loss, penalty, BOUND, *arguments)
    # A fused multiply-add rounds once where the twin rounds twice: 2⁻⁵² of a derivative is 2⁻¹² of a lattice unit, and
    # what it does to the predictor grows over the updates.
    assert np.max(np.abs(released - expected_released)) <= 64
    np.testing.assert_allclose(values, expected_values, rtol=1e-9, atol=1e-12)


def test_first_update_from_zero_equals_its_twin_to_the_last_integer(rng):
    for loss in LOSSES:
        X, y = simulate(loss, 500, 3, rng)
        if isinstance(loss, Logistic):
            continue  # its exponential contracts, and the twin's does not
        arguments = (np.array([1]), 3, np.array([0.05, 0.5, 5.0]), np.ones(3), np.array([12345]), np.zeros(3))
        released, _ = run_kernel(X, y, loss, L1(0.1), *arguments)
        expected, _ = twins.descend(X, y, loss, L1(0.1), BOUND, *arguments)
        assert np.array_equal(released, expected)


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


@settings(max_examples=150, deadline=None)
@given(
    arrays(np.float64, (6, 3), elements=wild_floats),
    arrays(np.float64, (1, 3), elements=wild_floats),
    st.integers(0, 5),
    st.sampled_from([Squared(), Logistic()]),
    st.floats(1e-300, 1e300),
    arrays(np.float64, 2, elements=wild_floats),
)
def test_replacing_a_record_moves_no_sum_by_more_than_twice_the_bound(table, record, i, loss, clip, weights):
    """Given the same released values, hence the same weights and change, the sum moves by at most 2B."""
    other = table.copy()
    other[i] = record[0]
    sums = []
    for data in (table, other):
        predictor = data[:, 0].copy()
        with np.errstate(all="ignore"):
            scale = np.float64(BOUND) / clip
        sums.append(
            int(
                sweep(
                    data[:, 1].copy(),
                    weights[0],
                    data[:, 0].copy(),
                    data[:, 2].copy(),
                    predictor,
                    scale,
                    Lattice(BOUND),
                    loss,
                )
            )
        )
    assert abs(sums[0] - sums[1]) <= 2 * BOUND
    assert all(abs(total) <= 6 * BOUND for total in sums)


def test_twice_the_bound_is_reached():
    """The sensitivity is not overstated either: an opposite pair moves the sum by exactly 2B."""
    zeros, ones = np.zeros(1), np.ones(1)
    sums = [sweep(zeros, 0.0, ones, np.array([y]), np.zeros(1), BOUND, Lattice(BOUND), Squared()) for y in (9.0, -9.0)]
    assert sums == [-BOUND, BOUND]


def test_sums_do_not_depend_on_the_order_of_rows_nor_on_threads(rng):
    n = 10_007
    X, y = rng.normal(size=(n, 2)), np.sign(rng.normal(size=n))
    z = rng.normal(size=n)
    x0, x1 = X[:, 0].copy(), X[:, 1].copy()

    def total(rows):
        return int(sweep(x0[rows], 0.37, x1[rows], y[rows], z[rows].copy(), BOUND / 1.3, Lattice(BOUND), Logistic()))

    expected = total(np.arange(n))
    assert total(rng.permutation(n)) == expected
    assert total(np.arange(n)[::-1]) == expected
    for threads in (2, 3, 8):
        with ThreadPoolExecutor(threads) as pool:
            assert sum(pool.map(total, np.array_split(rng.permutation(n), threads))) == expected


def test_square_sum_equals_its_definition_and_stays_within_the_bound():
    kernel, center = compiled(kernels.square_sum, Lattice), 3.0
    column = np.array(WILD)
    with np.errstate(all="ignore"):
        away = column - center
        expected = sum(twins.encode(float(x * 0.5) ** 2 if abs(x) < 1e150 else np.inf, BOUND, BOUND) for x in away)
        # NaN counts as the largest value, like infinities.
    assert kernel(column, center, 0.5, Lattice(BOUND)) == expected
    for x in column:
        assert 0 <= kernel(np.array([x]), center, 0.5, Lattice(BOUND)) <= BOUND


def test_dyadic_counts_put_a_record_into_exactly_one_cell():
    kernel = compiled(kernels.dyadic_counts)
    for x in WILD:
        for center in (0.0, 1.0, -1e308):
            counts = kernel(np.array([x]), center)
            assert counts.shape == (CELLS,)
            assert counts.min() == 0
            assert counts.sum() == 1
    middle = BUCKETS
    for x, cell in (
        (0.0, middle),
        (math.nan, middle),
        (1.0, middle + 61),
        (-1.5, middle - 61),
        (2.0, middle + 62),
        (-0.75, middle - 60),
        (2.0**-59, middle + 2),
        (5e-324, middle + 1),
        (-(2.0**60), 0),
        (math.inf, CELLS - 1),
    ):
        assert np.flatnonzero(kernel(np.array([x]), 0.0)).tolist() == [cell], x
    column = np.array([1.0, -1.5, 2.0, -0.75])
    assert np.array_equal(kernel(column + 3.0, 3.0), kernel(column, 0.0))


def run_python(code, **environment):
    result = subprocess.run(
        [sys.executable, "-W", "error", "-c", textwrap.dedent(code)],
        capture_output=True,
        text=True,
        env={**os.environ, **environment},
    )
    assert result.returncode == 0, result.stderr
    return result.stdout


DESCENT = """
import numpy as np
from dpcd.losses import Logistic, Squared
from dpcd.penalties import ElasticNet
from dpcd.privacy import Columns, Curator, PrivacyBudget, SeededNoise
from dpcd.privacy.columns import DyadicCounts, SecondMoments
from dpcd.privacy.coordinates import CoordinateUpdates
rng = np.random.default_rng(5)
X = rng.normal(size=(60, 3))
X[0] = [1e308, 5e-324, -1e308]
y = np.sign(X[:, 1] + rng.normal(size=60))
ones = np.ones(3)
curator = Curator(Columns.copy_of(X, y), PrivacyBudget(100.0, 1e-3), SeededNoise(np.random.default_rng(1)))
for loss in (Squared(), Logistic()):
    order = np.tile(np.arange(3), 4)
    updates = CoordinateUpdates(loss, ElasticNet(0.1), order, 3, ones, ones, 5 * ones, 0.0 * ones)
    print(curator.release(updates)[0].tolist())
print(curator.release(SecondMoments(np.arange(3), ones, 2.0, 1.0)).tolist())
print(curator.release(DyadicCounts(3, True, 1.0)).tolist())
"""


def test_results_are_the_same_with_the_jit_off():
    compiled_lines, plain_lines = (run_python(DESCENT, NUMBA_DISABLE_JIT=off).splitlines() for off in ("0", "1"))
    assert len(compiled_lines) == len(plain_lines) == 4
    for ours, plain in zip(compiled_lines[:2], plain_lines[:2], strict=True):
        difference = np.abs(np.array(json.loads(ours)) - np.array(json.loads(plain)))
        assert np.max(difference) <= 64
    assert compiled_lines[2:] == plain_lines[2:]


FIT_A_LINE = """
import numpy as np, {module}
from dpcd import DPGeneralizedLinearModel
from dpcd.solvers import DPCD
X = np.linspace(-1, 1, 100)[:, None]
model = DPGeneralizedLinearModel(loss={module}.Squared(), epsilon=np.inf, smoothness=[0.4], fit_intercept=False,
                                 solver=DPCD(n_passes=50, clip=100.0))
print(round(float(model.fit(X, X[:, 0]).coef_[0]), 3))
"""


def test_editing_a_loss_recompiles_its_kernels(tmp_path):
    """Numba's cache on disk watches the kernel's file alone; an edited loss elsewhere must not run stale code."""
    package = tmp_path / "site" / "dpcd"
    shutil.copytree(Path(dpcd.__file__).parent, package, ignore=shutil.ignore_patterns("__pycache__"))
    environment = {"PYTHONPATH": str(package.parent), "NUMBA_CACHE_DIR": str(tmp_path / "cache")}
    code = FIT_A_LINE.format(module="dpcd.losses")
    assert run_python(code, **environment) == "1.0\n"
    stored = len(list((tmp_path / "cache").rglob("*.nbc")))
    assert stored > 0
    assert run_python(code, **environment) == "1.0\n"
    assert len(list((tmp_path / "cache").rglob("*.nbc"))) == stored, "an unchanged package must reuse its kernels"
    losses = package / "losses.py"
    losses.write_text(losses.read_text().replace("return z - y\n", "return z - 2.0 * y\n"))
    assert run_python(code, **environment) == "2.0\n"


def test_editing_a_users_loss_recompiles_its_kernels(tmp_path):
    source = """
        from typing import NamedTuple
        class Squared(NamedTuple):
            curvature = 1.0
            lipschitz = float("inf")
            def value(self, y, z):
                return 0.5 * (z - {factor} * y) ** 2
            def derivative(self, y, z):
                return z - {factor} * y
        """
    environment = {"PYTHONPATH": str(tmp_path), "NUMBA_CACHE_DIR": str(tmp_path / "cache")}
    for factor in (1.0, 3.0):
        (tmp_path / "mine.py").write_text(textwrap.dedent(source).format(factor=factor))
        assert run_python(FIT_A_LINE.format(module="mine"), **environment) == f"{factor}\n"


def test_code_that_may_reorder_sums_is_stored_under_a_name_of_its_own():
    strict, free = compiled(kernels.product_sum), compiled(kernels.product_sum, exact_sums=True)
    assert strict is not free
    assert strict.py_func.__qualname__ != free.py_func.__qualname__
    assert [kernel.targetoptions["fastmath"] for kernel in (strict, free)] == [{"contract"}, {"contract", "reassoc"}]
