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

import dpcd
import twins
from attack import WILD
from dpcd.compilation import compiled
from dpcd.losses import Logistic
from dpcd.penalties import L1
from dpcd.privacy import kernels
from dpcd.privacy.kernels import BUCKETS, CELLS
from dpcd.privacy.lattice import Lattice
from problems import LOSSES, PENALTIES, name, simulate

BOUND = 2.0**40


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
