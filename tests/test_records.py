"""Mechanisms on whole records: cost, noise, twins, and a search for neighbours that break their sensitivity."""

import json
import math
import os
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy import stats

import twins
from dpcd.losses import Huber, Logistic, Squared
from dpcd.privacy import Columns, Curator, PrivacyBudget, PrivacyCost, SeededNoise, joint
from dpcd.privacy.accounting import SMALLEST_SCALE
from dpcd.privacy.lattice import lattice
from dpcd.privacy.records import GradientSizes, JointGradient, MomentMatrix, View
from problems import LOSSES, name
from test_columns import Recorder
from test_kernels import run_python, wild_floats

THREE = np.arange(3)


class Lying(NamedTuple):
    """A loss whose derivative jumps, overflows and is NaN, and whose curvature is whatever it says."""

    curvature: float
    factor: float
    lipschitz = 1.0

    def value(self, y, z):
        return 0.0

    def derivative(self, y, z):
        return self.factor * y * (z - y) if z > y else -self.factor * self.factor


def view(transform=((1.0, 0.0, 0.5), (0.25, -1.0, 0.0)), weights=(0.5, -0.25, 0.125), loss=None, **others):
    return View(THREE, np.array(transform), np.array(weights), Squared() if loss is None else loss, **others)


def mechanisms(shown=None, z=3.0):
    shown = view() if shown is None else shown
    return [
        JointGradient(shown, z, clip=1.5),
        MomentMatrix(shown, z, radius=2.0),
        MomentMatrix(shown, z, radius=2.0, weighted=True),
        GradientSizes(shown, z, per_octave=3, smallest=-5, largest=7),
        GradientSizes(shown, z, per_octave=3, smallest=-5, largest=7, of="rows"),
        GradientSizes(shown, z, per_octave=3, smallest=-5, largest=7, of="slopes"),
    ]


def lattice_bound(mechanism, n):
    """What a record's row, or a count, is at most in lattice units."""
    z = mechanism.noise_multiplier
    if isinstance(mechanism, JointGradient):
        return lattice(n, 2 * z, 4 * z).bound
    if isinstance(mechanism, GradientSizes):
        return lattice(n, math.sqrt(2) * z, math.sqrt(2) * z).bound
    squared = math.log2(lattice(n, z, 2 * math.sqrt(2) * z).bound)
    return 2.0 ** ((int(squared) + 1) // 2 - 1)


def sensitivity(mechanism, n):
    """In lattice units and the norm in which the noise is isotropic."""
    bound, rounding = lattice_bound(mechanism, n), math.sqrt(mechanism.size)
    if isinstance(mechanism, JointGradient):
        return 2 * (bound + rounding)
    return math.sqrt(2) * (bound if isinstance(mechanism, GradientSizes) else (bound + rounding) ** 2)


def integers(mechanism, X, y):
    """The noiseless sums as integers, and the noise asked for."""
    noise = Recorder()
    with np.errstate(all="ignore"):
        answer = mechanism.run(Columns.copy_of(X, y), noise)
    n, bound = len(y), lattice_bound(mechanism, len(y))
    if isinstance(mechanism, JointGradient):
        exact = answer / (mechanism.clip / bound / n)
    elif isinstance(mechanism, MomentMatrix):
        exact = answer / ((mechanism.radius / bound) ** 2 / n)
    else:
        exact = answer * bound
    sums = np.rint(exact)
    # Where the unit is a denormal number, sums are read back with its few digits.
    if not (isinstance(mechanism, MomentMatrix) and mechanism.radius < 1e-130):
        np.testing.assert_allclose(sums, exact, rtol=1e-9, atol=1e-3)
    return sums, noise.asked


def length(mechanism, difference):
    """Norm in which the noise is isotropic: for matrices Frobenius', entries off the diagonal counting twice."""
    return math.sqrt(sum(float(value) ** 2 for value in np.ravel(difference)))


@pytest.mark.parametrize("mechanism", mechanisms(), ids=name)
@pytest.mark.parametrize("n", [7, 5000])
def test_cost_equals_what_is_released(mechanism, n, rng):
    _, asked = integers(mechanism, rng.normal(size=(n, 3)), rng.normal(size=n))
    if isinstance(mechanism, MomentMatrix):
        (_, off_diagonal, above), (_, scale, diagonal) = asked
        assert (above, diagonal) == (1, 2)
        assert off_diagonal == pytest.approx(scale / math.sqrt(2), rel=1e-12)
    else:
        ((_, scale, size),) = asked
        assert size == (36 if isinstance(mechanism, GradientSizes) else 2)
    assert mechanism.cost.mu_squared == pytest.approx((sensitivity(mechanism, n) / scale) ** 2, rel=1e-12)
    draws = sum(size for _, _, size in asked)
    assert mechanism.cost.discretization == draws * PrivacyCost.gaussian(1.0).discretization
    assert min(scale for _, scale, _ in asked) >= SMALLEST_SCALE
    assert mechanism.noise_multipliers == (3.0, 3.0)
    assert mechanism.count == 1
    # What solvers are told of the noise is what there is, but for the rounding of rows.
    if isinstance(mechanism, JointGradient):
        assert mechanism.noise_level(n) == pytest.approx(scale * 1.5 / lattice_bound(mechanism, n) / n, rel=1e-6)
    elif isinstance(mechanism, MomentMatrix):
        assert mechanism.noise_level(n) == pytest.approx(scale * (2.0 / lattice_bound(mechanism, n)) ** 2 / n, rel=1e-4)
    else:
        assert mechanism.noise_level == pytest.approx(scale / lattice_bound(mechanism, n), rel=1e-12)


# Values of all sizes, so that rows of ordinary norm come up often, and products over- and underflow.
any_floats = st.one_of(
    wild_floats,
    st.floats(-3, 3),
    st.sampled_from([1e-155, -1e-154, 1e-150, 1.0000001e-150, 3e-162, 1e149, -9.9e149, 7e153, 1e154, 1e-75, 1e75]),
)
tables = arrays(np.float64, (4, 4), elements=any_floats)
transforms = st.one_of(
    arrays(np.float64, (3, 3), elements=any_floats),
    arrays(np.float64, (2, 3), elements=st.floats(-2, 2)),
    arrays(np.float64, (1, 3), elements=st.floats(-2, 2)),
    arrays(np.float64, 3, elements=any_floats),
    st.sampled_from([np.eye(3), np.ones(3), np.array([[1.0, 1.0, 1.0], [1.0, 1.0 + 1e-15, 1.0], [1e12, 1.0, 1e-12]])]),
)
points = arrays(np.float64, 3, elements=any_floats)
curvatures = st.sampled_from([1.0, 0.0, -1.0, np.nan, np.inf, 1e-308, 1e308])
losses = st.one_of(
    st.sampled_from([Squared(), Logistic(), Huber(0.1)]),
    st.builds(Lying, curvatures, st.sampled_from([1.0, 1e300, np.inf, np.nan, 1e-300])),
)
lengths = st.one_of(st.sampled_from([1e-150, 1e-100, 1.0, 1e100, 1e150]), st.floats(0.01, 100))


@settings(max_examples=300, deadline=None)
@given(tables, arrays(np.float64, 4, elements=any_floats), st.integers(0, 3), transforms, points, losses, lengths)
@example(np.full((4, 4), np.nan), np.ones(4), 0, np.eye(3), np.zeros(3), Squared(), 1.0)
@example(np.ones((4, 4)), np.array([1e154, 1e154, 1e154, -1.0]), 1, np.ones(3), np.zeros(3), Squared(), 1e-3)
@example(np.ones((4, 4)), np.array([1e200, 1.0, 1.0, 1e308]), 1, np.eye(3) * 1e-200, np.ones(3), Squared(), 1e-3)
@example(np.ones((4, 4)), np.array([0.0, 0.0, np.inf, 1.0]), 2, np.diag([1.0, 1.0, 0.0]), np.zeros(3), Squared(), 1.0)
@example(np.ones((4, 4)), np.array([1.0, 2.0, 3.0, 1.0]), 2, np.eye(3), np.ones(3), Lying(np.nan, np.inf), 1.0)
# What the model is sure of and wrong about: with the other label there would be next to no gradient.
@example(
    np.tile([10.0, -10.0, -10.0, 1.0], (4, 1)),
    np.array([10.0, 10.0, 10.0, 1.0]),
    1,
    np.eye(3),
    np.array([-1.0, 0.0, 0.0]),
    Logistic(),
    1.0,
)
def test_neighbours_move_what_is_released_by_no_more_than_the_noise_covers(table, record, i, transform, w, loss, reach):
    other = table.copy()
    other[i] = record
    shown = view(transform, w, loss)
    for mechanism in (
        JointGradient(shown, 2.0, clip=reach),
        MomentMatrix(shown, 2.0, radius=reach),
        MomentMatrix(shown, 2.0, radius=reach, weighted=True),
        GradientSizes(shown, 2.0),
        GradientSizes(shown, 2.0, of="rows"),
        GradientSizes(shown, 2.0, of="slopes"),
        JointGradient(shown._replace(even_handed=True), 2.0, clip=reach),
        GradientSizes(shown._replace(even_handed=True), 2.0),
    ):
        (ours, asked), (theirs, same) = (integers(mechanism, data[:, :3], data[:, 3]) for data in (table, other))
        assert asked == same, "what noise is drawn must not depend on the data"
        assert np.all(np.isfinite(ours))
        assert asked[-1][1] == pytest.approx(2.0 * sensitivity(mechanism, 4), rel=1e-12)
        assert length(mechanism, ours - theirs) <= sensitivity(mechanism, 4) * (1 + 1e-12)


@settings(max_examples=150, deadline=None)
@given(
    arrays(np.float64, 12, elements=st.floats(0.0, 1.0)),
    st.integers(-501, 501),
    arrays(np.int64, 12, elements=st.sampled_from([0, 0, 0, -8, -30, -170])),
)
def test_floating_point_lengthens_no_row_beyond_what_is_counted(row, size, smaller):
    """Rows of any size, entries far apart: what a record adds has norm at most B + √d/2 and a hair, exactly."""
    row = np.ldexp(row, size + smaller)
    X, y = row[None, :], np.array([1e3])
    shown = View(np.arange(12), np.ones(12), np.zeros(12))
    for mechanism in (JointGradient(shown, 2.0, clip=1e-150), MomentMatrix(shown, 2.0, radius=1e-150)):
        sums, _ = integers(mechanism, X, y)
        squared = np.diag(sums) if sums.ndim == 2 else sums**2
        bound = lattice_bound(mechanism, 1)
        assert math.sqrt(sum(int(value) for value in squared)) <= bound + 0.51 * math.sqrt(12)
        # And it has that norm, if it is of an ordinary size: the search is about something.
        if 1e-149 < np.linalg.norm(row / np.max(row, initial=1e-300)) * np.max(row) < 1e149 and sums.ndim == 1:
            assert math.sqrt(sum(int(value) for value in squared)) >= bound - 0.51 * math.sqrt(12)


@pytest.mark.parametrize("mechanism", mechanisms(view(np.ones(3), np.zeros(3))), ids=name)
def test_a_pair_comes_close_to_the_bound(mechanism):
    """Opposite gradients, orthogonal rows, different buckets: the sensitivity is not overstated either."""
    records = ([10.0, 0.0, 0.0, 5.0], [0.0, -100.0, 0.0, 1e-3])
    if isinstance(mechanism, JointGradient):
        records = ([1e3, 2e3, 0.0, 5.0], [1e3, 2e3, 0.0, -5.0])
    table = np.ones((6, 4))
    sums = []
    for record in records:
        table[2] = record
        sums.append(integers(mechanism, table[:, :3], table[:, 3])[0])
    moved = length(mechanism, sums[0] - sums[1]) / sensitivity(mechanism, 6)
    assert 0.999 <= moved <= 1.0 + 1e-12


def dyadic(rng, n, wild=True):
    """Numbers whose products and sums are exact, so that twins must agree to the last integer, and wild records."""
    X, y = rng.integers(-16, 17, size=(n, 3)) / 8, rng.integers(-16, 17, size=n) / 4
    if wild:
        X[3], X[5, 1], X[8], X[11], y[4], y[7] = np.nan, np.inf, 1e308, 1e-308, np.inf, np.nan
        X[13] = [1e160, 1.0, 1.0]
        X[14], X[15] = 0.0, [2.0**-400, 0.0, -(2.0**-401)]
    return X, y


@pytest.mark.parametrize("transform", [((1.0, 0.0, 0.5), (0.25, -1.0, 0.0)), (0.5, 0.0, 2.0)], ids=["full", "diagonal"])
@pytest.mark.parametrize("loss", LOSSES, ids=name)
@pytest.mark.parametrize("even_handed", [False, True])
def test_sums_equal_their_twins(loss, transform, even_handed, rng):
    X, y = dyadic(rng, 40)
    y = np.where(y > 0, 1.0, -1.0) if isinstance(loss, Logistic) else y
    shown = view(transform, loss=loss, even_handed=even_handed)
    gradient, moments, hessian, *histograms = mechanisms(shown)
    with np.errstate(all="ignore"):
        expected = [
            twins.joint_gradient(X, y, loss, shown, 1.5, lattice_bound(gradient, 40)),
            twins.moment_matrix(X, y, loss, shown, 2.0, False, lattice_bound(moments, 40)),
            twins.moment_matrix(X, y, loss, shown, 2.0, True, lattice_bound(hessian, 40)),
            *(twins.gradient_sizes(X, y, loss, shown, 3, -5, 7, of) for of in ("gradients", "rows", "slopes")),
        ]
    ours = [integers(mechanism, X, y)[0] for mechanism in (gradient, moments, hessian, *histograms)]
    ours[3:] = [counts / lattice_bound(each, 40) for counts, each in zip(ours[3:], histograms, strict=True)]
    assert np.array_equal(ours[1], expected[1])
    # Exponentials and difference quotients contract in the kernel and not in the twin.
    assert np.max(np.abs(ours[0] - expected[0])) <= (64 if isinstance(loss, Logistic) else 0)
    assert np.max(np.abs(ours[2] - np.array(expected[2]))) <= 1e-9 * lattice_bound(hessian, 40) ** 2
    if not isinstance(loss, Logistic):
        assert ours[3].tolist() == expected[3]
    assert ours[3].sum() == sum(expected[3]) > 20
    assert ours[4].tolist() == expected[4]


def test_matrix_products_of_integers_are_exact(rng):
    """The largest integers there are, over more than one part, against Python's: in any order of summation."""
    n = 3 * joint._PART + 17
    assert joint._PART * joint._LARGEST_ROW**2 <= 2.0**53
    X = rng.integers(-1000, 1001, size=(n, 6)).astype(float)
    X[::2, 0] = 10.0**6
    shown = View(np.arange(6), np.eye(6), np.zeros(6))
    mechanism = MomentMatrix(shown, 3.0, radius=1.0)
    bound = lattice_bound(mechanism, n)
    assert bound == 2.0**19
    q = np.array([[twins.encode(v, bound / np.sqrt(sum(x * x)), bound) for v in x] for x in X], dtype=object)
    expected = q.T @ q
    sums, _ = integers(mechanism, X, np.zeros(n))
    assert 2**49 < np.max(expected) < 2**51
    assert [int(total) for total in sums.ravel()] == expected.ravel().tolist()


@pytest.mark.parametrize("mechanism", mechanisms(view(loss=Logistic())), ids=name)
def test_sums_depend_neither_on_threads_nor_on_the_order_of_records(mechanism, rng, monkeypatch):
    """Through the curator, with wild records and warnings as errors: other threads must not warn about them either."""
    n = 2 * joint._WORTH_A_THREAD + 77
    X, y = rng.normal(size=(n, 3)), np.sign(rng.normal(size=n))
    X[::7], X[3::11] = [1e308, np.nan, -np.inf], [1e-308, 1e160, 1.0]

    def released(rows=slice(None), cpus=1):
        monkeypatch.setattr(os, "cpu_count", lambda: cpus)
        noise = SeededNoise(np.random.default_rng(1))
        return Curator(Columns.copy_of(X[rows], y[rows]), PrivacyBudget(10.0, 1e-6), noise).release(mechanism)

    expected = released()
    assert np.array_equal(released(cpus=2), expected)
    assert np.array_equal(released(rng.permutation(n)), expected)
    monkeypatch.setattr(joint, "_WORTH_A_THREAD", 100)
    assert np.array_equal(released(slice(None, None, -1), cpus=5), expected)


def test_many_columns_come_few_records_at_a_time(rng, monkeypatch):
    X, y = rng.normal(size=(300, 3)), rng.normal(size=300)
    expected = [integers(mechanism, X, y)[0] for mechanism in mechanisms()]
    monkeypatch.setattr(joint, "_LARGEST_PART", 14)
    for mechanism, sums in zip(mechanisms(), expected, strict=True):
        assert np.array_equal(integers(mechanism, X, y)[0], sums)


@pytest.mark.parametrize("n_columns", range(1, 11))
@pytest.mark.parametrize("length", range(1, 6))
def test_every_number_of_rows_and_columns(length, n_columns, rng):
    """Kernels take several of them at a time; none may be left out or come up twice, and empty ones may be skipped."""
    X, y = rng.normal(size=(40, 12)), rng.normal(size=40)
    columns, w = rng.permutation(12)[:n_columns], rng.normal(size=12)
    for transform in (rng.normal(size=(length, n_columns)), np.tril(rng.normal(size=(length, n_columns)))):
        shown, rows = View(columns, transform, w), X[:, columns] @ transform.T
        slopes = X[:, columns] @ w[columns] - y
        longest = np.max(np.linalg.norm(rows, axis=1)) * (1.0 + np.max(np.abs(slopes)))
        released = [
            mechanism.run(Columns.copy_of(X, y), Recorder())
            for mechanism in (JointGradient(shown, 1.0, clip=longest), MomentMatrix(shown, 1.0, radius=longest))
        ]
        np.testing.assert_allclose(released[0], slopes @ rows / 40, rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(released[1], rows.T @ rows / 40, rtol=1e-3, atol=1e-3)


def test_a_diagonal_is_a_matrix(rng):
    X, y = rng.normal(size=(300, 3)), rng.normal(size=300)
    diagonal = np.array([2.0, 0.3, -1.0])
    for a, b in zip(mechanisms(view(diagonal)), mechanisms(view(np.diag(diagonal))), strict=True):
        assert a.size == b.size == 3
        assert a.cost == b.cost
        assert np.array_equal(integers(a, X, y)[0], integers(b, X, y)[0])


JOINT = """
import numpy as np
from dpcd.losses import Huber
from dpcd.privacy import Columns, Curator, PrivacyBudget, SeededNoise
from dpcd.privacy.records import GradientSizes, JointGradient, MomentMatrix, View
rng = np.random.default_rng(5)
X, y = rng.integers(-16, 17, size=(60, 3)) / 8, rng.integers(-16, 17, size=60) / 4
X[0], X[1], y[2] = [1e308, 5e-324, -1e308], np.nan, np.inf
curator = Curator(Columns.copy_of(X, y), PrivacyBudget(100.0, 1e-3), SeededNoise(np.random.default_rng(1)))
for transform in (np.array([[1.0, 0.0, 0.5], [0.25, -1.0, 0.0]]), np.array([1.0, 2.0, 0.25])):
    view = View(np.arange(3), transform, np.array([0.5, 0.0, -0.25]), Huber(1.25))
    print(curator.release(JointGradient(view, 5.0, clip=1.0)).tolist())
    print(curator.release(GradientSizes(view, 5.0)).tolist())
    for weighted in (False, True):
        print(curator.release(MomentMatrix(view, 5.0, radius=1.0, weighted=weighted)).tolist())
"""


def test_results_are_the_same_with_the_jit_off():
    compiled_lines, plain_lines = (run_python(JOINT, NUMBA_DISABLE_JIT=off).splitlines() for off in ("0", "1"))
    assert len(compiled_lines) == len(plain_lines) == 8
    for k, (ours, plain) in enumerate(zip(compiled_lines, plain_lines, strict=True)):
        if k % 4 == 3:  # difference quotients contract
            np.testing.assert_allclose(json.loads(ours), json.loads(plain), atol=1e-6)
        else:
            assert ours == plain


def test_noise_is_fresh_and_of_the_right_size(rng):
    """Records of zeros release nothing but noise. False alarms: 1e-5 for each of four tests."""
    data = Columns.copy_of(np.zeros((20, 3)), np.zeros(20))
    many = View(THREE, np.zeros((400, 3)), np.zeros(3))
    gradient = JointGradient(many, 50.0, clip=3.0)
    sizes = GradientSizes(many, 50.0)
    for released, level in (
        (gradient.run(data, SeededNoise(rng)), gradient.noise_level(20)),
        (sizes.run(data, SeededNoise(rng)), sizes.noise_level),
    ):
        assert len(np.unique(released)) == len(released) >= 400
        assert stats.kstest(released / level, "norm").pvalue > 1e-5
    matrix = MomentMatrix(View(THREE, np.zeros((60, 3)), np.zeros(3)), 50.0, radius=3.0)
    released = matrix.run(data, SeededNoise(rng))
    assert np.array_equal(released, released.T)
    above = released[np.triu_indices(60, 1)]
    assert len(np.unique(np.append(above, np.diag(released)))) == 60 * 61 // 2
    assert stats.kstest(np.diag(released) / matrix.noise_level(20), "norm").pvalue > 1e-5
    assert stats.kstest(above / matrix.noise_level(20), "norm", args=(0.0, math.sqrt(0.5))).pvalue > 1e-5


def test_what_is_released_is_right_without_noise(rng):
    X, y = rng.normal(size=(400, 3)), np.sign(rng.normal(size=400))
    T, w = rng.normal(size=(2, 3)), np.array([0.3, -0.2, 0.1])
    shown, data = View(THREE, T, w, Logistic()), Columns.copy_of(X, y)
    rows, slopes = X @ T.T, np.array([Logistic().derivative(y[i], X[i] @ w) for i in range(400)])
    norms = np.linalg.norm(rows, axis=1)
    gradients = rows * slopes[:, None]
    np.testing.assert_allclose(
        JointGradient(shown, 0.0, clip=math.inf).run(data, Recorder()), gradients.mean(axis=0), rtol=1e-9
    )
    short = gradients * np.minimum(1.0, 0.7 / np.linalg.norm(gradients, axis=1))[:, None]
    np.testing.assert_allclose(JointGradient(shown, 0.0, clip=0.7).run(data, Recorder()), short.mean(axis=0), rtol=1e-8)
    bounded = rows * np.minimum(1.0, 1.1 / norms)[:, None]
    np.testing.assert_allclose(
        MomentMatrix(shown, 0.0, radius=1.1).run(data, Recorder()), bounded.T @ bounded / 400, atol=1e-5
    )
    # The logistic loss's second derivative is σ(1 − σ), four of which are its share of the curvature.
    sigma = 1.0 / (1.0 + np.exp(-X @ w))
    weighted = rows * np.sqrt(4 * sigma * (1 - sigma))[:, None]
    weighted *= np.minimum(1.0, 1.1 / np.linalg.norm(weighted, axis=1))[:, None]
    np.testing.assert_allclose(
        MomentMatrix(shown, 0.0, radius=1.1, weighted=True).run(data, Recorder()),
        weighted.T @ weighted / 400,
        atol=1e-5,
    )
    mechanism = GradientSizes(shown, 0.0, per_octave=4, smallest=-8, largest=2)
    edges = np.concatenate([[0.0], mechanism.edges[:-1], [np.inf]])
    assert np.array_equal(mechanism.run(data, Recorder()), np.histogram(np.abs(slopes) * norms, edges)[0])
    assert mechanism.description == "sizes of gradients"
    for of, sizes in (("rows", norms), ("slopes", np.abs(slopes))):
        each = replace(mechanism, of=of)
        assert each.description == f"sizes of {of}"
        assert np.array_equal(each.run(data, Recorder()), np.histogram(sizes, edges)[0])
    with pytest.raises(ValueError, match='"slopes", got'):
        replace(mechanism, of="columns")


def test_even_handed_clips_do_not_look_at_labels(rng):
    """Records are shortened by the same factor whatever their label, and longer ones by more."""
    X, T, w = 3.0 * rng.normal(size=(300, 3)), rng.normal(size=(2, 3)), np.array([0.9, -0.6, 0.3])
    shown = View(THREE, T, w, Logistic(), even_handed=True)
    norms, sigma = np.linalg.norm(X @ T.T, axis=1), 1.0 / (1.0 + np.exp(-X @ w))
    factors = np.minimum(1.0, 0.7 / (norms * np.maximum(sigma, 1.0 - sigma)))
    assert 0.2 < np.mean(factors < 1.0) < 1.0
    means = []
    for label in (1.0, -1.0):
        slopes = sigma - (1.0 + label) / 2.0
        expected = ((X @ T.T) * (slopes * factors)[:, None]).mean(axis=0)
        data = Columns.copy_of(X, np.full(300, label))
        means.append(JointGradient(shown, 0.0, clip=0.7).run(data, Recorder()))
        np.testing.assert_allclose(means[-1], expected, rtol=1e-7)
    sizes = GradientSizes(shown, 0.0, per_octave=4, smallest=-8, largest=6)
    counts = [sizes.run(Columns.copy_of(X, np.full(300, label)), Recorder()) for label in (1.0, -1.0)]
    assert np.array_equal(*counts)


def test_positive_class_becomes_plus_one_and_all_others_minus_one(rng):
    X, codes = rng.normal(size=(200, 3)), rng.integers(3, size=200).astype(float)
    signs = np.where(codes == 2, 1.0, -1.0)
    for by_class, by_sign in zip(
        mechanisms(view(loss=Logistic(), positive_class=2)), mechanisms(view(loss=Logistic())), strict=True
    ):
        assert np.array_equal(integers(by_class, X, codes)[0], integers(by_sign, X, signs)[0])


@pytest.mark.parametrize("size", [1, 3, 300, 9000])
@pytest.mark.parametrize("z", 2.0 ** np.arange(-14, 62, 5))
def test_noise_stays_far_from_the_ends_of_int64(z, size):
    """As accounting assumes: scales of at least 2³⁰, 64 of them within int64 with all sums; or an error."""
    data = Columns.copy_of(np.ones((5, 1)), np.ones(5))
    shown = View(np.arange(1), np.ones((size, 1)), np.zeros(1))
    fitted = 0
    for mechanism in (JointGradient(shown, z, clip=1.0), MomentMatrix(shown, z, radius=1.0), GradientSizes(shown, z)):
        noise = Recorder()
        if isinstance(mechanism, MomentMatrix) and size > 300:
            continue
        try:
            mechanism.run(data, noise)
        except ValueError as error:
            assert "no integer lattice fits" in str(error)  # noqa: PT017 - which of the two happens is what is tested
            assert not noise.asked
        else:
            fitted += 1
            for _, scale, count in noise.asked:
                assert count == 0 or SMALLEST_SCALE <= scale <= 2.0**56 * (1 + 1e-9)
    assert fitted == (2 if size > 300 else 3) or not 0.01 < z < 2.0**25


def test_nothing_can_be_changed_between_the_charge_and_the_run():
    transform, weights = np.eye(3), np.zeros(3)
    shown = View(THREE, transform, weights)
    mechanism = JointGradient(shown, 2.0, clip=np.array(1.0))
    transform[:], weights[:] = 9.0, 9.0
    assert np.array_equal(mechanism.view.transform, np.eye(3))
    assert not mechanism.view.weights.any()
    assert isinstance(mechanism.clip, float)
    for field in ("columns", "transform", "weights"):
        with pytest.raises(ValueError, match="read-only"):
            getattr(mechanism.view, field)[0] = 0
    # And if somebody manages all the same, noise and clipping go together.
    object.__setattr__(mechanism, "clip", math.inf)
    noise = Recorder()
    with np.errstate(all="ignore"):
        mechanism.run(Columns.copy_of(np.ones((4, 3)), np.ones(4)), noise)
    assert noise.asked


def test_wrong_fields_are_refused():
    for bad in (-1.0, np.nan, np.inf):
        for make in (
            lambda z: JointGradient(view(), z, clip=1.0),
            lambda z: MomentMatrix(view(), z, radius=1.0),
            lambda z: GradientSizes(view(), z),
        ):
            with pytest.raises(ValueError, match="noise multipliers"):
                make(bad)
    for bad in (0.0, -1.0, np.nan, np.inf, 1e151, 1e-151):
        with pytest.raises(ValueError, match="radius must be"):
            MomentMatrix(view(), 1.0, radius=bad)
        with pytest.raises(ValueError, match="clip"):
            JointGradient(view(), 1.0, clip=bad)
    with pytest.raises(ValueError, match="infinite clip"):
        JointGradient(view(), 0.0, clip=-np.inf)
    with pytest.raises(ValueError, match="too many entries"):
        MomentMatrix(View(THREE, np.zeros((10_001, 3)), np.zeros(3)), 1.0, radius=1.0)
    for bad in ({"per_octave": 0}, {"per_octave": 2.5}, {"smallest": 3, "largest": 3}, {"largest": 1001}):
        with pytest.raises(ValueError, match="octave"):
            GradientSizes(view(), 1.0, **bad)
    for columns, transform in (([0, 1], np.eye(3)), ([], np.zeros((2, 0))), ([0, 1, 2], np.zeros((0, 3))), ([0], 1.0)):
        with pytest.raises(ValueError, match="transform needs"):
            JointGradient(View(np.array(columns, dtype=int), np.array(transform), np.zeros(3)), 1.0, clip=1.0)
    for columns in ([0, 1, 3], [-1, 0, 1]):
        with pytest.raises(ValueError, match="columns must lie"):
            JointGradient(View(np.array(columns), np.eye(3), np.zeros(3)), 1.0, clip=1.0)
    for mechanism in mechanisms():
        with pytest.raises(ValueError, match="made for 3 columns"):
            mechanism.run(Columns.copy_of(np.ones((4, 2)), np.ones(4)), Recorder())

    class Spy(NamedTuple):
        memory: np.ndarray
        curvature = 1.0

        def derivative(self, y, z):
            self.memory[0] = y
            return y

    with pytest.raises(ValueError, match="numbers only"):
        JointGradient(view(loss=Spy(np.zeros(1))), 1.0, clip=1.0)
