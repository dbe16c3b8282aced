"""Mechanisms on whole records: twins, noise, what is released, and which fields are refused."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy import stats

import twins
from attack import exact_sums
from dpcd.audit import NoNoise
from dpcd.losses import Logistic, Squared
from dpcd.privacy import Columns, SeededNoise, records
from dpcd.privacy.records import GradientSizes, JointGradient, MomentMatrix, View
from problems import LOSSES, name

THREE = np.arange(3)


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


def sums(mechanism, X, y):
    return exact_sums(mechanism, Columns.copy_of(X, y))


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
        entries, bound = sums(mechanism, X, y).tolist(), mechanism.lattice(1).bound
        # The matrix's diagonal comes last, and has squares.
        squared = entries[-12:] if isinstance(mechanism, MomentMatrix) else [value**2 for value in entries]
        assert math.sqrt(sum(squared)) <= bound + 0.51 * math.sqrt(12)
        # And it has that norm, if it is of an ordinary size: the search is about something.
        if 1e-149 < np.linalg.norm(row / np.max(row, initial=1e-300)) * np.max(row) < 1e149:
            assert math.sqrt(sum(squared)) >= bound - 0.51 * math.sqrt(12)


def dyadic(rng, n, wild=True):
    """Numbers whose products and sums are exact, so that twins must agree to the last integer, and wild records."""
    X, y = rng.integers(-16, 17, size=(n, 3)) / 8, rng.integers(-16, 17, size=n) / 4
    if wild:
        X[3], X[5, 1], X[8], X[11], y[4], y[7] = np.nan, np.inf, 1e308, 1e-308, np.inf, np.nan
        X[13] = [1e160, 1.0, 1.0]
        X[14], X[15] = 0.0, [2.0**-400, 0.0, -(2.0**-401)]
    return X, y


def triangle(matrix):
    """The entries that are released: those above the diagonal, and those on it."""
    return np.append(np.array(matrix)[np.triu_indices(len(matrix), 1)], np.diag(matrix))


@pytest.mark.parametrize("transform", [((1.0, 0.0, 0.5), (0.25, -1.0, 0.0)), (0.5, 0.0, 2.0)], ids=["full", "diagonal"])
@pytest.mark.parametrize("loss", LOSSES, ids=name)
@pytest.mark.parametrize("even_handed", [False, True])
def test_sums_equal_their_twins(loss, transform, even_handed, rng):
    X, y = dyadic(rng, 40)
    y = np.where(y > 0, 1.0, -1.0) if isinstance(loss, Logistic) else y
    shown = view(transform, loss=loss, even_handed=even_handed)
    gradient, moments, hessian, *histograms = mechanisms(shown)
    row = moments.lattice(40).bound
    with np.errstate(all="ignore"):
        expected = [
            twins.joint_gradient(X, y, loss, shown, 1.5, gradient.lattice(40).bound),
            triangle(twins.moment_matrix(X, y, loss, shown, 2.0, False, row)),
            triangle(twins.moment_matrix(X, y, loss, shown, 2.0, True, row)),
            *(twins.gradient_sizes(X, y, loss, shown, 3, -5, 7, of) for of in ("gradients", "rows", "slopes")),
        ]
    ours = [sums(mechanism, X, y) for mechanism in (gradient, moments, hessian, *histograms)]
    ours[3:] = [counts // int(each.lattice(40).bound) for counts, each in zip(ours[3:], histograms, strict=True)]
    assert np.array_equal(ours[1], expected[1])
    # Exponentials and difference quotients contract in the kernel and not in the twin.
    assert np.max(np.abs(ours[0] - expected[0])) <= (64 if isinstance(loss, Logistic) else 0)
    assert np.max(np.abs(ours[2] - expected[2])) <= 1e-9 * row**2
    if not isinstance(loss, Logistic):
        assert ours[3].tolist() == expected[3]
    assert ours[3].sum() == np.sum(expected[3]) > 20
    assert ours[4].tolist() == expected[4]


def test_matrix_products_of_integers_are_exact(rng):
    """The largest integers there are, over more than one tile, against Python's: in any order of summation."""
    n = 3 * records._TILE + 17
    assert records._TILE * records._FINEST_ROW**2 <= 2.0**53
    X = rng.integers(-1000, 1001, size=(n, 6)).astype(float)
    X[::2, 0] = 10.0**6
    mechanism = MomentMatrix(View(np.arange(6), np.eye(6), np.zeros(6)), 3.0, radius=1.0)
    bound = mechanism.lattice(n).bound
    assert bound == 2.0**19
    q = np.array([[twins.encode(v, bound / np.sqrt(sum(x * x)), bound) for v in x] for x in X], dtype=object)
    expected = q.T @ q
    assert 2**49 < np.max(expected) < 2**51
    assert sums(mechanism, X, np.zeros(n)).tolist() == triangle(expected).tolist()


def test_many_columns_come_few_records_at_a_time(rng, monkeypatch):
    X, y = rng.normal(size=(300, 3)), rng.normal(size=300)
    expected = [sums(mechanism, X, y) for mechanism in mechanisms()]
    monkeypatch.setattr(records, "_LARGEST_TILE", 14)
    for mechanism, whole in zip(mechanisms(), expected, strict=True):
        assert np.array_equal(sums(mechanism, X, y), whole)


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
            mechanism.run(Columns.copy_of(X, y), NoNoise())
            for mechanism in (JointGradient(shown, 1.0, clip=longest), MomentMatrix(shown, 1.0, radius=longest))
        ]
        np.testing.assert_allclose(released[0], slopes @ rows / 40, rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(released[1], rows.T @ rows / 40, rtol=1e-3, atol=1e-3)


def test_a_diagonal_is_a_matrix(rng):
    X, y = rng.normal(size=(300, 3)), rng.normal(size=300)
    diagonal = np.array([2.0, 0.3, -1.0])
    for a, b in zip(mechanisms(view(diagonal)), mechanisms(view(np.diag(diagonal))), strict=True):
        assert a.size == b.size
        assert a.cost == b.cost
        assert np.array_equal(sums(a, X, y), sums(b, X, y))


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
        JointGradient(shown, 0.0, clip=math.inf).run(data, NoNoise()), gradients.mean(axis=0), rtol=1e-9
    )
    short = gradients * np.minimum(1.0, 0.7 / np.linalg.norm(gradients, axis=1))[:, None]
    np.testing.assert_allclose(JointGradient(shown, 0.0, clip=0.7).run(data, NoNoise()), short.mean(axis=0), rtol=1e-8)
    bounded = rows * np.minimum(1.0, 1.1 / norms)[:, None]
    np.testing.assert_allclose(
        MomentMatrix(shown, 0.0, radius=1.1).run(data, NoNoise()), bounded.T @ bounded / 400, atol=1e-5
    )
    # The logistic loss's second derivative is σ(1 − σ), four of which are its share of the curvature.
    sigma = 1.0 / (1.0 + np.exp(-X @ w))
    weighted = rows * np.sqrt(4 * sigma * (1 - sigma))[:, None]
    weighted *= np.minimum(1.0, 1.1 / np.linalg.norm(weighted, axis=1))[:, None]
    np.testing.assert_allclose(
        MomentMatrix(shown, 0.0, radius=1.1, weighted=True).run(data, NoNoise()),
        weighted.T @ weighted / 400,
        atol=1e-5,
    )
    mechanism = GradientSizes(shown, 0.0, per_octave=4, smallest=-8, largest=2)
    edges = np.concatenate([[0.0], mechanism.edges[:-1], [np.inf]])
    assert np.array_equal(mechanism.run(data, NoNoise()), np.histogram(np.abs(slopes) * norms, edges)[0])
    assert mechanism.description == "sizes of gradients"
    for of, sizes in (("rows", norms), ("slopes", np.abs(slopes))):
        each = replace(mechanism, of=of)
        assert each.description == f"sizes of {of}"
        assert np.array_equal(each.run(data, NoNoise()), np.histogram(sizes, edges)[0])
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
        means.append(JointGradient(shown, 0.0, clip=0.7).run(data, NoNoise()))
        np.testing.assert_allclose(means[-1], expected, rtol=1e-7)
    sizes = GradientSizes(shown, 0.0, per_octave=4, smallest=-8, largest=6)
    counts = [sizes.run(Columns.copy_of(X, np.full(300, label)), NoNoise()) for label in (1.0, -1.0)]
    assert np.array_equal(*counts)


def test_positive_class_becomes_plus_one_and_all_others_minus_one(rng):
    X, codes = rng.normal(size=(200, 3)), rng.integers(3, size=200).astype(float)
    signs = np.where(codes == 2, 1.0, -1.0)
    for by_class, by_sign in zip(
        mechanisms(view(loss=Logistic(), positive_class=2)), mechanisms(view(loss=Logistic())), strict=True
    ):
        assert np.array_equal(sums(by_class, X, codes), sums(by_sign, X, signs))


def test_wrong_fields_are_refused():
    for bad in (0.0, -1.0, np.nan, np.inf, 1e151, 1e-151):
        with pytest.raises(ValueError, match="radius must be"):
            MomentMatrix(view(), 1.0, radius=bad)
        with pytest.raises(ValueError, match="clip"):
            JointGradient(view(), 1.0, clip=bad)
    with pytest.raises(ValueError, match="clip thresholds must be positive"):
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
