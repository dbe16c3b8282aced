"""Losses and penalties from outside: what they hold, what they read, and what they may not do."""

import math
from types import SimpleNamespace
from typing import NamedTuple

import numba
import numpy as np
import pytest
from numba.extending import register_jitable

from dpcd import DPGeneralizedLinearModel
from dpcd.compilation import exp
from dpcd.losses import Logistic, Squared
from dpcd.penalties import L1, Rescaled, WeightedL1, Zero, sized
from dpcd.privacy import Curator
from dpcd.privacy.coordinates import CoordinateUpdates
from dpcd.privacy.mechanism import check_loss
from dpcd.privacy.rivals.batches import GradientSteps, VarianceReducedSteps
from dpcd.privacy.rivals.sampling import FixedSize
from dpcd.solvers import DPCD, DPGCD, DPSGD, DPSVRG, AdaSSP, Auto, DPBlockCD, DPNewton, Problem, Quadratic
from problems import name

SOLVERS = [Auto(), DPNewton(), DPBlockCD(), AdaSSP(), DPCD(), DPGCD(), DPSGD(), DPSVRG()]


class Shifted(NamedTuple):
    """An l1 penalty with an index that is too large by so much."""

    weights: np.ndarray
    shift: int

    def value(self, w, j):
        return self.weights[j + self.shift] * abs(w)

    def prox(self, v, step, j):
        threshold = step * self.weights[j + self.shift]
        return max(v - threshold, 0.0) - max(-v - threshold, 0.0)


class Table(NamedTuple):
    """A penalty whose index depends on the weight."""

    shrunk: np.ndarray

    def prox(self, v, step, j):
        return self.shrunk[int(v)]


@pytest.fixture
def nothing_charged(monkeypatch):
    release = Curator.release

    def watched(curator, mechanism):
        assert math.isinf(curator.budget.epsilon), "something was charged"
        return release(curator, mechanism)

    monkeypatch.setattr(Curator, "release", watched)


@pytest.fixture
def table(rng):
    X = rng.normal(size=(300, 5))
    return X, X[:, 0] + rng.normal(size=300)


def fit(table, **parameters):
    return DPGeneralizedLinearModel(random_state=0, **parameters).fit(*table)


class TestArrays:
    @pytest.mark.parametrize("solver", SOLVERS, ids=name)
    @pytest.mark.parametrize("weights", [np.ones(4), np.ones((5, 1)), np.ones(())], ids=np.shape)
    def test_that_are_too_short_are_refused_before_anything_is_charged(self, solver, weights, table, nothing_charged):
        for penalty in (WeightedL1(0.1, weights), Rescaled(L1(0.1), weights)):
            with pytest.raises(ValueError, match=r"(weights|scales) must be an array .* for each of 5 columns"):
                fit(table, penalty=penalty, solver=solver)
            with pytest.raises(ValueError, match="for each of 5 columns"):
                solver.check(Squared(), penalty, 6, True, private=True)
            with pytest.raises(ValueError, match="for each of 5 columns"):
                Problem(Squared(), penalty, np.ones(6), 5)

    def test_need_no_entry_for_the_intercept(self, table):
        for solver in (DPCD(n_passes=2), DPNewton()):
            fit(table, penalty=WeightedL1(0.1, np.ones(5)), solver=solver)

    def test_are_copied_as_kernels_want_them(self):
        weights = np.arange(12, dtype=np.float32)[::2]
        penalty = sized(Rescaled(WeightedL1(0.1, weights), [1, 2, 3, 4, 5, 6]), 6)
        assert isinstance(penalty, Rescaled)
        for array, values in ((penalty.penalty.weights, weights), (penalty.scales, [1, 2, 3, 4, 5, 6])):
            assert array.dtype == np.float64
            assert array.flags.c_contiguous
            assert np.array_equal(array, values)
        weights[:] = -1.0
        assert penalty.penalty.weights.min() == 0.0
        assert sized(L1(0.1), 6) == L1(0.1)

    @pytest.mark.parametrize("values", [["a", "b"], [[1.0], [1.0, 2.0]]])
    def test_of_anything_but_numbers_are_refused(self, values):
        with pytest.raises(ValueError, match=r"WeightedL1\.weights must be an array"):
            sized(WeightedL1(0.1, values), 2)

    def test_of_mechanisms_are_long_enough_and_their_own(self):
        def mechanisms(penalty):
            zeros, ones, batches = np.zeros(3), np.ones(3), FixedSize(2, 4)
            settings = np.arange(3), 1.0, 1.0, 0.1, 2.0, zeros, zeros, zeros, ones, 3
            yield lambda: CoordinateUpdates(Squared(), penalty, np.arange(3), 2, ones, ones, ones, zeros)
            yield lambda: GradientSteps(Squared(), penalty, batches, 1, 2, 1.0, 0.1, 2.0, zeros)
            yield lambda: VarianceReducedSteps(Squared(), penalty, batches, 1, 2, *settings)

        for make in mechanisms(WeightedL1(0.1, np.ones(1))):
            with pytest.raises(ValueError, match="for each of 2 columns"):
                make()
        weights = np.ones(2)
        for make in mechanisms(WeightedL1(0.1, weights)):
            mechanism = make()
            weights[0] += 1.0
            assert mechanism.penalty.weights[0] == weights[0] - 1.0

    def test_of_penalties_of_a_quadratic_are_long_enough(self):
        quadratic = Quadratic(np.eye(3), np.ones(3), columns=np.array([0, 2, 5]), n_penalized=5)
        with pytest.raises(ValueError, match="for each of 5 columns"):
            quadratic.minimize(WeightedL1(0.1, np.ones(4)))
        with pytest.raises(ValueError, match="for each of 6 columns"):
            quadratic.minimize(WeightedL1(0.1, np.ones(5)), n_penalized=9)
        assert quadratic.minimize(WeightedL1(0.1, np.ones(5))) == pytest.approx([0.9, 0.9, 1.0])


class TestIndices:
    """Penalties from outside say that they read beyond an array, and nothing of what lies there."""

    @pytest.mark.parametrize("solver", [DPNewton(), DPCD(), DPSGD(), DPSVRG()], ids=name)
    def test_that_are_too_large_are_found_before_anything_is_charged(self, solver, table, nothing_charged):
        with pytest.raises(IndexError, match=r"^Shifted reads beyond the end of an array: every array must have"):
            fit(table, penalty=Shifted(np.ones(5), 1), solver=solver)

    def test_that_depend_on_weights_are_found_when_they_occur(self):
        quadratic = Quadratic(np.eye(2), np.array([1.0, 7.0]))
        assert quadratic.minimize(Table(np.arange(8.0) / 4.0)) == pytest.approx([0.25, 1.75])
        with pytest.raises(IndexError, match=r"^Table reads beyond the end of an array: [^0-9]*$"):
            quadratic.minimize(Table(np.arange(7.0)))

    def test_are_not_checked_for_what_the_library_cannot_see_into(self):
        with pytest.raises(ValueError, match=r"Rescaled is for penalties of dpcd\.penalties, got Shifted"):
            sized(Rescaled(Shifted(np.ones(3), 1), np.ones(3)), 3)


KNOTS = np.arange(21.0)
LIST = [0.0, 1.0]
LIMIT = 40.0
MODULE = type(math)("elsewhere")
MODULE.knots = KNOTS


@register_jitable
def halved(z):
    return 0.5 * z


@register_jitable
def refusing(z):
    assert z < LIMIT
    return z


@register_jitable
def indirect(z):
    return refusing(z)


@register_jitable
def entry(weights, j):
    return weights[j]


@numba.njit
def quotient(y, z):
    return y / z


@numba.njit(error_model="numpy")
def harmless_quotient(y, z):
    return y / z


@numba.njit(boundscheck=True)
def checked_entry(weights, j):
    return weights[j]


def loss(derivative):
    """A loss with this derivative."""
    fields = {"curvature": 1.0, "lipschitz": math.inf, "derivative": derivative}
    return type("Mine", (NamedTuple("Mine", [("threshold", float)]),), fields)(1.0)


def raises(self, y, z):
    if y > LIMIT:
        raise ValueError
    return z - y


def asserts(self, y, z):
    assert y < LIMIT
    return z - y


def looks_up(self, y, z):
    return KNOTS[int((z - y) * 10) + 10]


def interpolates(self, y, z):
    return np.interp(z - y, KNOTS, KNOTS)


def looks_elsewhere(self, y, z):
    return np.interp(z - y, MODULE.knots, MODULE.knots)


def has_a_list(self, y, z):
    return z - y + len(LIST)


def indexes_a_tuple(self, y, z):
    return (0.5, 1.0)[int(z)] * (z - y)


def stores_an_entry(self, y, z):
    memory = np.zeros(3)
    memory[int(y)] = z
    return z - y


def prints(self, y, z):
    print(y)
    return z - y


def divides_by_zero(self, y, z):
    return quotient(y, z)


def calls_what_asserts(self, y, z):
    return indirect(z) - y


def encloses(array):
    def derivative(self, y, z):
        return z - y + len(array)

    return derivative


def calls_what_raises_inside(self, y, z):
    def inner(v):
        if v > LIMIT:
            raise ValueError
        return v

    return inner(z) - y


def calculates(self, y, z):
    residual = halved(max(min(z - y, LIMIT), -self.threshold)) + math.pi - np.pi + harmless_quotient(y, 2.0)
    return residual / (1.0 + exp(-abs(residual))) if np.isfinite(residual) else np.float64(0.0)


class TestLosses:
    """A loss that could tell of data by anything but the number it returns is refused."""

    @pytest.mark.parametrize(
        ("derivative", "message"),
        [
            (raises, r"^Mine\.derivative has a raise or an assert"),
            (asserts, r"^Mine\.derivative has a raise or an assert"),
            (calls_what_asserts, r"^Mine\.derivative uses refusing, which has a raise or an assert"),
            (calls_what_raises_inside, r"has a raise or an assert"),
            (looks_up, r"(KNOTS, which is no number)|(has an index)"),
            (interpolates, r"uses KNOTS, which is no number"),
            (looks_elsewhere, r"uses knots, which is no number"),
            (has_a_list, r"uses LIST, which is no number"),
            (encloses(np.zeros(3)), r"uses array, which is no number"),
            (indexes_a_tuple, r"^Mine\.derivative has an index"),
            (stores_an_entry, r"^Mine\.derivative has an index"),
            (prints, r"uses print, which is no number"),
            (divides_by_zero, r"uses quotient, which raises where it divides by zero"),
            (SimpleNamespace(), r"^Mine\.derivative is no number"),
        ],
        ids=lambda value: getattr(value, "__name__", "") if callable(value) else "",
    )
    def test_that_do_more_than_calculate(self, derivative, message, table, nothing_charged):
        mine = loss(derivative)
        for _ in range(2):
            with pytest.raises(ValueError, match=message):
                check_loss(mine)
        with pytest.raises(ValueError, match=message):
            fit(table, loss=mine)

    def test_that_calculate_are_taken(self, table):
        check_loss(loss(calculates))
        check_loss(Logistic())
        check_loss(type("Steeper", (Logistic,), {})())
        assert np.all(np.isfinite(fit(table, loss=loss(calculates), solver=DPCD(n_passes=2)).coef_))

    def test_are_looked_at_wherever_they_see_data(self):
        zeros, ones = np.zeros(2), np.ones(2)
        with pytest.raises(ValueError, match="has an index"):
            CoordinateUpdates(loss(looks_up), Zero(), np.arange(2), 2, ones, ones, ones, zeros)


class TestHelpers:
    """Functions that a penalty calls are compiled without checks, unless they ask for them."""

    @staticmethod
    def penalty(method):
        return type("Mine", (NamedTuple("Mine", [("weights", np.ndarray)]),), {"prox": method})(np.ones(2))

    def test_that_read_entries_unchecked_are_refused(self, table, nothing_charged):
        mine = self.penalty(lambda self, v, step, j: v - entry(self.weights, j))
        with pytest.raises(ValueError, match="Mine uses entry, which has an index that nobody checks"):
            fit(table, penalty=mine)
        with pytest.raises(ValueError, match="nobody checks"):
            Quadratic(np.eye(2), np.ones(2)).minimize(mine)

    def test_may_check_for_themselves(self):
        mine = self.penalty(lambda self, v, step, j: v - checked_entry(self.weights, j + int(v)))
        quadratic = Quadratic(np.eye(2), np.array([0.5, 0.75]))
        assert quadratic.minimize(mine) == pytest.approx([-0.5, -0.25])
        with pytest.raises(IndexError, match="Mine reads beyond the end of an array"):
            Quadratic(np.eye(2), np.array([5.0, 5.0])).minimize(mine)

    def test_may_hold_what_is_public(self):
        mine = self.penalty(lambda self, v, step, j: v - KNOTS[j])
        assert Quadratic(np.eye(2), np.ones(2)).minimize(mine) == pytest.approx([1.0, 0.0])
