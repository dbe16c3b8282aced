"""One attack on every mechanism: no neighbour moves its sums by more than it tells, and some attain that."""

import importlib
import math
import pkgutil
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

import dpcd.privacy
from attack import WILD, apart, exact_sums, noise_parts
from dpcd.audit import NoNoise
from dpcd.losses import Huber, Logistic, Squared
from dpcd.penalties import L1, Zero
from dpcd.privacy import Columns, PrivacyCost
from dpcd.privacy.accounting import SMALLEST_SCALE
from dpcd.privacy.choices import SteepestVertex, TopCoordinates
from dpcd.privacy.columns import ClippedMeans, DyadicCounts, SecondMoments
from dpcd.privacy.coordinates import CoordinateUpdates, DerivativeSizes
from dpcd.privacy.lattice import LARGEST, SMALLEST
from dpcd.privacy.mechanism import Mechanism, NoisySum
from dpcd.privacy.records import GradientSizes, JointGradient, MomentMatrix, View
from dpcd.privacy.rivals.batches import DualSteps, GradientSteps, VarianceReducedSteps
from dpcd.privacy.rivals.laplace import LaplaceSecondMoments
from dpcd.privacy.rivals.minima import MinimumOfNoisyObjective, NoisyMinimum
from dpcd.privacy.rivals.sampling import FixedSize
from dpcd.privacy.search import BestCandidate, MeanLoss

# Some of all sizes, so that products over- and underflow, and rows of ordinary norm come up often.
SIZES = [1e-155, -1e-154, SMALLEST, 1.0000001e-150, 3e-162, 1e149, -9.9e149, LARGEST, 7e153, 1e154, 1e-75, 1e75]
anything = st.one_of(st.sampled_from(WILD), st.sampled_from(SIZES), st.floats(-3, 3), st.floats())
finite = st.one_of(st.sampled_from([0.0, 1.0, -1e308, 1e-308, 1e100, -7.0]), st.floats(-3, 3))
positive = st.sampled_from([1e-300, 1e-12, 1e-3, 1.0, 3.0, 1e12, 1e300])
lengths = st.one_of(st.sampled_from([SMALLEST, 1e-100, 1e-3, 1.0, 1e100, LARGEST]), st.floats(0.01, 100))
N, P = 5, 3


class Lying(NamedTuple):
    """A loss whose derivative jumps, overflows and is NaN, and whose curvature is whatever it says."""

    curvature: float
    factor: float
    lipschitz = 1.0

    def value(self, y, z):
        return 0.0

    def derivative(self, y, z):
        return self.factor * y * (z - y) if z > y else -self.factor * self.factor


losses = st.one_of(
    st.sampled_from([Squared(), Logistic(), Huber(0.1)]),
    st.builds(
        Lying,
        st.sampled_from([1.0, 0.0, -1.0, np.nan, np.inf, 1e-308, 1e308]),
        st.sampled_from([1.0, 1e300, np.inf, np.nan, 1e-300]),
    ),
)
classes = st.sampled_from([None, 1])
points = arrays(np.float64, P, elements=anything)
transforms = st.one_of(
    arrays(np.float64, (3, P), elements=anything),
    arrays(np.float64, (2, P), elements=st.floats(-2, 2)),
    arrays(np.float64, (1, P), elements=st.floats(-2, 2)),
    arrays(np.float64, P, elements=anything),
    st.sampled_from([np.eye(3), np.ones(3), np.array([[1.0, 1.0, 1.0], [1.0, 1.0 + 1e-15, 1.0], [1e12, 1.0, 1e-12]])]),
)
views = st.builds(View, st.just(np.arange(P)), transforms, points, losses, classes, st.booleans())
each = arrays(np.float64, P, elements=positive)
ranges = arrays(np.float64, 2, elements=positive)
columns = st.just(np.array([0, 2]))


def means(kind, noise):
    centers = arrays(np.float64, 3, elements=finite)
    return st.builds(kind, columns, ranges, positive, st.just(noise), center=centers)


def histograms(columns, with_target, size):
    return st.builds(
        DyadicCounts, st.just(columns), st.just(with_target), st.just(4.0), arrays(np.float64, size, elements=finite)
    )


def choices(kind):
    sides = st.just(np.array([-0.1, 0.2, 0.0])), st.just(np.array([0.1, 0.2, np.inf]))
    clips = st.sampled_from([1.0, 1e-300, 1e300])
    return st.builds(kind, losses, st.just(np.array([0, 2, 1])), each, clips, points, *sides, st.just(0.7), classes)


def mean_losses(rows):
    """Of two classes, or a number, with one row of coefficients, and of three classes."""
    measures = st.sampled_from(["squared error", "absolute error", "misclassification", "log loss"])
    models = arrays(np.float64, (rows, P), elements=anything), arrays(np.float64, rows, elements=anything)
    clips = st.sampled_from([None, np.array([[-1.0, 1.0]] * P)])
    return st.builds(MeanLoss, measures, *models, positive, st.just(2.0), clips)


def derivative_sizes():
    return DerivativeSizes(Squared(), np.array([0, 2]), np.ones(2), np.array([0.5, 4.0]), np.zeros(P), 3.0)


def gradient_steps(clip):
    return GradientSteps(Squared(), Zero(), FixedSize(2, N), 1, P, clip, 0.1, 2.0, np.zeros(P))


def inner_loop(loss, way, clip, growth):
    start = way * np.array([1.0, -2.0, 0.5])
    zeros, smoothness = np.zeros(P), np.array([0.1, 1.0, 2.0])
    problem = loss, Zero(), FixedSize(2, N), 1, P, np.arange(P)
    return VarianceReducedSteps(*problem, clip, growth, 1.0, 2.0, zeros, zeros, start, smoothness, P)


MECHANISMS = {
    ClippedMeans: means(ClippedMeans, 4.0),
    SecondMoments: means(SecondMoments, 4.0),
    LaplaceSecondMoments: means(LaplaceSecondMoments, 0.3),
    DyadicCounts: st.one_of(histograms(3, True, 4), histograms(np.array([1, 2]), False, 2), histograms(0, True, 1)),
    JointGradient: st.builds(JointGradient, views, st.just(2.0), clip=lengths),
    MomentMatrix: st.builds(MomentMatrix, views, st.just(2.0), radius=lengths, weighted=st.booleans()),
    GradientSizes: st.builds(
        GradientSizes,
        views,
        st.just(2.0),
        st.just(3),
        st.just(-5),
        st.just(7),
        st.sampled_from(["gradients", "rows", "slopes"]),
    ),
    CoordinateUpdates: st.builds(
        CoordinateUpdates,
        *(losses, st.just(L1(0.01)), st.sampled_from([np.array([0]), np.array([2])]), st.just(P)),
        *(each, st.just(np.ones(P)), st.just(np.array([2.0, 3.0, 4.0])), points, classes),
    ),
    DerivativeSizes: st.builds(
        DerivativeSizes,
        losses,
        columns,
        ranges,
        st.just(np.array([0.25, 0.5, 1.0, 4.0])),
        points,
        st.just(3.0),
        classes,
    ),
    TopCoordinates: choices(TopCoordinates),
    SteepestVertex: choices(SteepestVertex),
    MeanLoss: st.sampled_from([1, 3]).flatmap(mean_losses),
    GradientSteps: st.builds(
        GradientSteps,
        losses,
        st.just(Zero()),
        st.just(FixedSize(2, N)),
        st.just(1),
        st.just(P),
        lengths,
        positive,
        st.just(2.0),
        points,
        classes,
    ),
    VarianceReducedSteps: st.builds(inner_loop, losses, positive, lengths, positive),
}
#: Mechanisms that are no sums of their records, and where their sensitivity is attacked.
ELSEWHERE = {
    BestCandidate: "test_tuning: a search over other mechanisms",
    DualSteps: "test_batches: each record has sums of its own",
    NoisyMinimum: "test_minima: a minimum",
    MinimumOfNoisyObjective: "test_minima: a minimum",
}


def mechanisms_of_the_core():
    for module in pkgutil.walk_packages(dpcd.privacy.__path__, "dpcd.privacy."):
        for kind in vars(importlib.import_module(module.name)).values():
            own = isinstance(kind, type) and kind.__module__ == module.name and kind is not Mechanism
            if own and "description" in vars(kind) and hasattr(kind, "cost"):
                yield kind


def test_every_mechanism_is_attacked_and_argues_its_sensitivity():
    found = set(mechanisms_of_the_core())
    assert found == set(MECHANISMS) | set(ELSEWHERE)
    for kind in found:
        assert "\n    Privacy. " in kind.__doc__, f"{kind.__name__} does not argue its privacy"
        assert kind.__name__ in dpcd.privacy.__doc__, f"{kind.__name__} is not in the table of the core's page"
        assert kind in ELSEWHERE or kind.sensitivity is not NoisySum.sensitivity


def columns_of(table):
    return Columns.copy_of(table[:, :P], table[:, P])


@pytest.mark.parametrize("kind", MECHANISMS, ids=lambda kind: kind.__name__)
@settings(max_examples=60, deadline=None)
@given(
    arrays(np.float64, (N, P + 1), elements=anything),
    arrays(np.float64, P + 1, elements=anything),
    st.integers(0, N - 1),
    st.integers(0, N),
    st.data(),
)
@example(np.full((N, P + 1), np.nan), np.ones(P + 1), 0, 2, None)
@example(np.ones((N, P + 1)), np.array([1e154, 1e154, 1e154, -1.0]), 1, 0, None)
@example(np.array([[0.0, 0.0, 0.0, 1e308]] * N), np.array([1.0, 1.0, 1.0, -1.0]), 0, 1, None)
def test_no_neighbour_moves_the_sums_by_more_than_is_told(kind, table, record, i, cut, data):
    attack(ATTAINED[kind][0] if data is None else data.draw(MECHANISMS[kind]), table, record, i, cut)


def attack(mechanism, table, record, i, cut):
    other = table.copy()
    other[i] = record
    ours, theirs = columns_of(table), columns_of(other)
    assert apart(mechanism, ours, theirs) <= 1.0 + 1e-12
    # Whatever the records hold, sums add up over any cut of the table into parts.
    whole, units = exact_sums(mechanism, ours), mechanism.lattice(N)
    with np.errstate(all="ignore"):
        parts = [mechanism.sums(ours.part(first, last), units) for first, last in ((0, cut), (cut, N)) if first < last]
    assert np.array_equal(sum(parts), whole)
    assert np.max(np.abs(whole)) <= 2.0**60


def shown(transform=(1.0, 1.0, 1.0), weights=(0.0, 0.0, 0.0), **others):
    return View(np.arange(P), np.array(transform), np.array(weights), **others)


def through(view, length):
    for weighted in (False, True):
        yield MomentMatrix(view, 2.0, radius=length, weighted=weighted)
    for even_handed in (False, True):
        yield JointGradient(view._replace(even_handed=even_handed), 2.0, clip=length)
        yield GradientSizes(view._replace(even_handed=even_handed), 2.0)
    for of in ("rows", "slopes"):
        yield GradientSizes(view, 2.0, of=of)


#: Views, or mechanisms, and what all records hold but one: each pair breaks something that is a little less careful.
HOSTILE = [
    (shown(np.eye(P) * 1e-200, np.ones(P)), [1.0, 1.0, 1.0, 1.0], [1e200, 1.0, 1.0, 1e308]),
    (shown(np.diag([1.0, 1.0, 0.0])), [1.0, 1.0, 1.0, 1.0], [0.0, 0.0, np.inf, 1.0]),
    (shown(weights=np.ones(P), loss=Lying(np.nan, np.inf)), [1.0, 1.0, 1.0, 1.0], [1.0, 2.0, 3.0, 1.0]),
    (shown(weights=np.ones(P), loss=Lying(0.0, 1.0)), [1.0, 1.0, 1.0, 9.0], [1.0, 2.0, 3.0, 1.0]),
    (shown(), [1.0, 1.0, 1.0, 1.0], [np.inf, np.inf, np.inf, 1.0]),
    # What a model is sure of and wrong about: with the other label there would be next to no gradient.
    (shown(weights=[-1.0, 0.0, 0.0], loss=Logistic()), [10.0, -10.0, -10.0, 1.0], [10.0, 10.0, 10.0, 1.0]),
    (gradient_steps(1e-3), [0.0, 0.0, 0.0, 1e308], [1.0, 1.0, 1.0, -1.0]),
    (gradient_steps(1e-3), [np.inf, 0.0, 1.0, 1.0], [5e-324, 0.0, 0.0, 1e308]),
    (inner_loop(Squared(), 1e-3, 0.7e10, 2.0), [0.0, 0.0, 0.0, 1e308], [1.0, 1.0, 1.0, -1.0]),
    (inner_loop(Squared(), 1.0, 0.7e10, 2.0), [1.0, 0.0, 0.0, 0.0], [-1e140, 0.0, 0.0, 0.0]),
    (derivative_sizes(), [1.0, 0.0, 1.0, 1e9], [1.0, 0.0, 1.0, 1.0]),
]


@pytest.mark.parametrize("case", range(len(HOSTILE)))
def test_records_that_break_careless_code_move_the_sums_by_no_more_either(case):
    asked, others, record = HOSTILE[case]
    several = [each for c in (1e-3, 1.0) for each in through(asked, c)] if isinstance(asked, View) else [asked]
    for mechanism in several:
        attack(mechanism, np.tile(others, (N, 1)), np.array(record), 1, 3)


UP, DOWN = np.array([1e3, 2e3, 0.0, -9e9]), np.array([1e3, 2e3, 0.0, 9e9])
#: For each kind a mechanism and two records whose exchange moves its sums as far as it says, or nearly so.
ATTAINED = {
    ClippedMeans: (ClippedMeans(np.array([0, 2]), np.ones(2), 1.0, 4.0), [9.0, 0, 9.0, 9.0], [-9.0, 0, -9.0, -9.0]),
    SecondMoments: (SecondMoments(np.array([0, 2]), np.ones(2), 1.0, 4.0), [9.0, 0, 9.0, 9.0], [0.0] * 4),
    LaplaceSecondMoments: (LaplaceSecondMoments(np.arange(2), np.ones(2), 1.0, 0.3), [9.0] * 4, [0.0] * 4),
    DyadicCounts: (DyadicCounts(3, True, 4.0), [1.0] * 4, [-1.0] * 4),
    JointGradient: (JointGradient(shown(), 3.0, clip=1.5), UP, DOWN),
    MomentMatrix: (MomentMatrix(shown(), 3.0, radius=2.0), [10.0, 0, 0, 0], [0, -100.0, 0, 0]),
    GradientSizes: (GradientSizes(shown(), 3.0), [10.0, 0, 0, 5.0], [0, 1.0, 0, 1e-3]),
    CoordinateUpdates: (
        CoordinateUpdates(Squared(), Zero(), np.array([1]), P, *(np.ones(P),) * 3, np.zeros(P)),
        *(UP, DOWN),
    ),
    DerivativeSizes: (derivative_sizes(), [1.0, 1.0, 1.0, 1e6], [1.0, 1.0, 1.0, 0.7]),
    TopCoordinates: (
        TopCoordinates(Squared(), np.arange(2), np.ones(P), 1.0, np.zeros(P), np.zeros(P), np.zeros(P), 0.7),
        *(UP, DOWN),
    ),
    SteepestVertex: (
        SteepestVertex(Squared(), np.arange(2), np.ones(P), 1.0, np.zeros(P), np.zeros(P), np.zeros(P), 0.7),
        *(UP, DOWN),
    ),
    MeanLoss: (MeanLoss("squared error", np.zeros((1, P)), np.zeros(1), 1.0, 2.0), [0, 0, 0, 9.0], [0] * 4),
    GradientSteps: (gradient_steps(1.0), UP, DOWN),
    VarianceReducedSteps: (inner_loop(Huber(1e6), 1.0, 1.0, 1.0), [2e3, 1e3, 1.0, 0], [-2e3, -1e3, 1.0, 0]),
}


@pytest.mark.parametrize("kind", MECHANISMS, ids=lambda kind: kind.__name__)
def test_some_neighbour_moves_the_sums_as_far_as_is_told(kind):
    """The search above is about something, and no noise is wasted."""
    mechanism, *records = ATTAINED[kind]
    pair = []
    for record in records:
        table = np.ones((N, P + 1))
        table[2] = record
        pair.append(columns_of(table))
    assert 0.999 <= apart(mechanism, *pair) <= 1.0


@pytest.mark.parametrize("kind", MECHANISMS, ids=lambda kind: kind.__name__)
def test_noise_is_made_for_the_sensitivity_and_charged_for(kind, rng):
    """The cost is that of the noise really asked for, over the sensitivity that the tests above attack."""
    mechanism, noise = ATTAINED[kind][0], NoNoise()
    table = columns_of(rng.normal(size=(N, P + 1)))
    mechanism.run(table, noise)
    size, law = len(exact_sums(mechanism, table)), getattr(mechanism, "law", "gaussian")
    relative = max(noise.scales) / mechanism.sensitivity(mechanism.lattice(N).bound)
    assert mechanism.noise_multipliers == pytest.approx((relative, relative), rel=1e-15)
    parts = dict.fromkeys(noise_parts(mechanism, size).tolist())
    assert noise.scales == pytest.approx([max(noise.scales) * part for part in parts], rel=1e-15)
    if law == "laplace":
        expected = size * PrivacyCost.pure_dp(1.0 / relative)
    elif law == "gumbel":
        # One score may move up while another one moves down.
        expected = PrivacyCost.bounded_range(2.0 / relative)
    else:
        assert min(noise.scales) >= SMALLEST_SCALE
        sampled = hasattr(mechanism, "sampling")
        expected = mechanism.sampling.cost(relative, size) if sampled else PrivacyCost.gaussian(relative, size)
    assert mechanism.cost.mu_squared == pytest.approx(expected.mu_squared)
    np.testing.assert_allclose(mechanism.cost.renyi, expected.renyi)
    assert mechanism.cost.discretization == expected.discretization


@pytest.mark.parametrize("kind", MECHANISMS, ids=lambda kind: kind.__name__)
def test_single_precision_is_stored_and_read_in_double(kind, rng):
    """The same integers as of the same numbers in double precision, clipped and centered or not."""
    mechanism = ATTAINED[kind][0]
    X, y = rng.normal(size=(70_000, P)).astype(np.float32), rng.normal(size=70_000)
    X[::7], X[3::11] = [np.inf, np.nan, -np.inf], [1e-42, 3e38, 1.0]
    single, double = Columns.copy_of(X, y), Columns.copy_of(X.astype(np.float64), y)
    assert single.features.dtype == np.float32
    for _ in range(3):
        assert np.array_equal(exact_sums(mechanism, single), exact_sums(mechanism, double))
        for data in (single, double):
            data.clip_features(np.full(2, -1.3), np.full(2, 1.7), np.array([0.3, 0.0]))


def test_half_the_noise_is_caught():
    """A mechanism that tells half of its sensitivity."""

    class Halved(JointGradient):
        def sensitivity(self, bound):
            return super().sensitivity(bound) / 2.0

    mechanism, *records = ATTAINED[JointGradient]
    halved = Halved(mechanism.view, mechanism.noise_multiplier, clip=mechanism.clip)
    pair = [columns_of(np.array([record])) for record in records]
    assert apart(halved, *pair) == pytest.approx(2.0 * apart(mechanism, *pair))
    assert math.isfinite(apart(halved, *pair))
