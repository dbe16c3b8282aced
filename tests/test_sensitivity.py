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
from attack import apart, exact_sums, noise_parts
from dpcd.audit import NoNoise
from dpcd.losses import Huber, Logistic, Squared
from dpcd.penalties import L1, Zero
from dpcd.privacy import Columns
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

# Values that break floating-point code, and some of all sizes, so that products over- and underflow.
WILD = [0.0, -0.0, 1.0, -1.0, np.nan, np.inf, -np.inf, 1e308, -1e308, 5e-324, -5e-324, 2.2e-308, 1e-160, 1e160]
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
    MeanLoss: st.builds(
        MeanLoss,
        st.sampled_from(["squared error", "absolute error", "misclassification", "log loss"]),
        arrays(np.float64, (1, P), elements=anything),
        arrays(np.float64, 1, elements=anything),
        positive,
        st.just(2.0),
        st.sampled_from([None, np.array([[-1.0, 1.0]] * P)]),
    ),
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
            if own and "description" in vars(kind):
                yield kind


def test_every_mechanism_is_attacked_and_argues_its_sensitivity():
    found = set(mechanisms_of_the_core())
    assert found == set(MECHANISMS) | set(ELSEWHERE)
    for kind in found:
        assert "\n    Privacy. " in kind.__doc__, f"{kind.__name__} does not argue its privacy"
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
@example(np.ones((N, P + 1)), np.array([0.0, 0.0, np.inf, 1.0]), 2, N, None)
@example(np.array([[0.0, 0.0, 0.0, 1e308]] * N), np.array([1.0, 1.0, 1.0, -1.0]), 0, 1, None)
# What a model may be sure of and wrong about: with the other label there would be next to no gradient.
@example(np.tile([10.0, -10.0, -10.0, 1.0], (N, 1)), np.array([10.0, 10.0, 10.0, 1.0]), 1, 3, None)
def test_no_neighbour_moves_the_sums_by_more_than_is_told(kind, table, record, i, cut, data):
    mechanism = ATTAINED[kind][0] if data is None else data.draw(MECHANISMS[kind])
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


def sure(**changes):
    """A model of nothing, and a record that pulls at it as hard as it can, one way or the other."""
    return {"view": View(np.arange(P), np.ones(P), np.zeros(P)), "noise_multiplier": 3.0} | changes


UP, DOWN = np.array([1e3, 2e3, 0.0, -9e9]), np.array([1e3, 2e3, 0.0, 9e9])
#: For each kind a mechanism and two records whose exchange moves its sums as far as it says, or nearly so.
ATTAINED = {
    ClippedMeans: (ClippedMeans(np.array([0, 2]), np.ones(2), 1.0, 4.0), [9.0, 0, 9.0, 9.0], [-9.0, 0, -9.0, -9.0]),
    SecondMoments: (SecondMoments(np.array([0, 2]), np.ones(2), 1.0, 4.0), [9.0, 0, 9.0, 9.0], [0.0] * 4),
    LaplaceSecondMoments: (LaplaceSecondMoments(np.arange(2), np.ones(2), 1.0, 0.3), [9.0] * 4, [0.0] * 4),
    DyadicCounts: (DyadicCounts(3, True, 4.0), [1.0] * 4, [-1.0] * 4),
    JointGradient: (JointGradient(**sure(), clip=1.5), UP, DOWN),
    MomentMatrix: (MomentMatrix(**sure(), radius=2.0), [10.0, 0, 0, 0], [0, -100.0, 0, 0]),
    GradientSizes: (GradientSizes(**sure()), [10.0, 0, 0, 5.0], [0, 1.0, 0, 1e-3]),
    CoordinateUpdates: (
        CoordinateUpdates(Squared(), Zero(), np.array([1]), P, *(np.ones(P),) * 3, np.zeros(P)),
        *(UP, DOWN),
    ),
    DerivativeSizes: (
        DerivativeSizes(Squared(), np.array([0, 2]), np.ones(2), np.array([0.5, 4.0]), np.zeros(P), 3.0),
        *([1.0, 1.0, 1.0, 1e6], [1.0, 1.0, 1.0, 0.7]),
    ),
    TopCoordinates: (
        TopCoordinates(Squared(), np.arange(2), np.ones(P), 1.0, np.zeros(P), np.zeros(P), np.zeros(P), 0.7),
        *(UP, DOWN),
    ),
    SteepestVertex: (
        SteepestVertex(Squared(), np.arange(2), np.ones(P), 1.0, np.zeros(P), np.zeros(P), np.zeros(P), 0.7),
        *(UP, DOWN),
    ),
    MeanLoss: (MeanLoss("squared error", np.zeros((1, P)), np.zeros(1), 1.0, 2.0), [0, 0, 0, 9.0], [0] * 4),
    GradientSteps: (
        GradientSteps(Squared(), Zero(), FixedSize(2, N), 1, P, 1.0, 0.1, 2.0, np.zeros(P)),
        *(UP, DOWN),
    ),
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
    mechanism = ATTAINED[kind][0]
    table = columns_of(rng.normal(size=(N, P + 1)))
    noise = NoNoise()
    mechanism.run(table, noise)
    size = len(exact_sums(mechanism, table))
    unit = mechanism.noise_multipliers[0] * mechanism.sensitivity(mechanism.lattice(N).bound)
    expected = [unit * part for part in dict.fromkeys(noise_parts(mechanism, size).tolist())]
    assert noise.scales == pytest.approx(expected, rel=1e-15)
    law = getattr(mechanism, "law", "gaussian")
    assert law != "gaussian" or min(noise.scales) >= SMALLEST_SCALE
    if law == "gaussian" and not hasattr(mechanism, "sampling"):
        assert mechanism.cost.mu_squared == pytest.approx(mechanism.noise_multipliers[0] ** -2)
        assert mechanism.cost.discretization == pytest.approx(
            size * type(mechanism.cost).gaussian(1.0).discretization, abs=0
        )


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
