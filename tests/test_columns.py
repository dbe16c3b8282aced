"""Every mechanism: its cost, its noise and a search for a pair of neighbours that breaks its sensitivity."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy import stats

from dpcd.losses import Squared
from dpcd.penalties import L1, Zero
from dpcd.privacy import Columns, PrivacyCost, SeededNoise
from dpcd.privacy.accounting import SMALLEST_SCALE
from dpcd.privacy.columns import ClippedMeans, DyadicCounts, SecondMoments
from dpcd.privacy.coordinates import CoordinateUpdates
from dpcd.privacy.kernels import BUCKETS, CELLS
from dpcd.privacy.lattice import lattice
from dpcd.privacy.rivals.batches import DualSteps, GradientSteps
from dpcd.privacy.rivals.laplace import LaplaceSecondMoments
from dpcd.privacy.rivals.sampling import FixedSize
from test_kernels import wild_floats


class Recorder:
    """A noise source that adds nothing and remembers what was asked of it."""

    description = "recorder"
    private = False

    def __init__(self):
        self.asked = []

    def gaussian(self, scale, size):
        self.asked.append(("gaussian", scale, size))
        return np.zeros(size, dtype=np.int64)

    def laplace(self, scale, size):
        self.asked.append(("laplace", scale, size))
        return np.zeros(size, dtype=np.int64)


def updates(coordinates=(0, 1, 2, 1), noise_multiplier=(2.0, 3.0, 3.0), clip=(1.0, 2.0, 0.5), **changes):
    fields = {
        "loss": Squared(),
        "penalty": L1(0.01),
        "coordinates": np.array(coordinates),
        "n_penalized": 3,
        "clip": np.array(clip),
        "steps": np.ones(3),
        "noise_multiplier": np.array(noise_multiplier),
        "start": np.zeros(3),
    }
    return CoordinateUpdates(**(fields | changes))


MECHANISMS = [
    updates(),
    SecondMoments(np.array([0, 2]), np.array([1.0, 3.0]), 2.0, 4.0),
    SecondMoments(np.array([0, 2]), np.array([1.0, 3.0]), None, 4.0),
    SecondMoments(np.array([0, 2]), np.array([1.0, 3.0]), None, 4.0, center=np.array([1e308, -7.0])),
    ClippedMeans(np.array([0, 2]), np.array([1.0, 3.0]), 2.0, 4.0),
    ClippedMeans(np.array([1]), np.array([3.0]), None, 4.0, center=np.array([-1e308])),
    LaplaceSecondMoments(np.array([0, 1]), np.array([1.0, 3.0]), 2.0, 0.3),
    DyadicCounts(3, True, 4.0),
    DyadicCounts(np.array([1, 2]), True, 4.0, center=np.array([1e308, -3.0, 5e-324])),
    DyadicCounts(0, True, 4.0),
]
IDS = [f"{type(m).__name__}-{i}" for i, m in enumerate(MECHANISMS)]


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(MECHANISMS),
    arrays(np.float64, (5, 4), elements=wild_floats),
    arrays(np.float64, 4, elements=wild_floats),
    st.integers(0, 4),
)
def test_neighbours_move_what_is_released_by_no_more_than_the_noise_covers(mechanism, table, record, i):
    """The first release of each mechanism, where nothing was released before that could differ."""
    if isinstance(mechanism, CoordinateUpdates):
        mechanism = updates(coordinates=[1])
    other = table.copy()
    other[i] = record
    outputs, scales = [], []
    for data in (table, other):
        noise = Recorder()
        with np.errstate(all="ignore"):
            result = mechanism.run(Columns.copy_of(data[:, :3], data[:, 3]), noise)
        outputs.append(np.asarray(result[0] if isinstance(result, tuple) else result, dtype=float).ravel())
        scales.append(noise.asked)
    assert scales[0] == scales[1], "what noise is drawn must not depend on the data"
    kind, scale, _ = scales[0][0]
    assert scale >= SMALLEST_SCALE or kind == "laplace"
    multiplier = mechanism.noise_multipliers[0]
    bound = lattice(5, *([2 * multiplier] * 2)).bound if isinstance(mechanism, CoordinateUpdates) else None
    difference = outputs[0] - outputs[1]
    if isinstance(mechanism, CoordinateUpdates):
        assert np.linalg.norm(difference) <= 2 * bound
        assert scale == pytest.approx(multiplier * 2 * bound)
    elif isinstance(mechanism, (SecondMoments, ClippedMeans)):
        # Released means are sums/(nB): the noise in them has standard deviation `noise_level`.
        assert np.linalg.norm(difference) <= mechanism.noise_level(5) / multiplier * (1 + 1e-12)
    elif isinstance(mechanism, LaplaceSecondMoments):
        assert kind == "laplace"
        assert np.max(np.abs(difference)) <= 1 / 5 * (1 + 1e-12)
        assert np.sum(np.abs(difference)) / (math.sqrt(0.5) * mechanism.noise_level(5)) <= mechanism.epsilon * (
            1 + 1e-12
        )
    else:
        assert np.linalg.norm(difference) <= math.sqrt(2 * mechanism.size)
        assert mechanism.noise_level == pytest.approx(multiplier * math.sqrt(2 * mechanism.size))


@pytest.mark.parametrize("mechanism", MECHANISMS, ids=IDS)
def test_cost_equals_what_is_released(mechanism, rng):
    """Recompute the cost from the noise really asked for, the sensitivity in lattice units being known."""
    n = 50
    noise = Recorder()
    mechanism.run(Columns.copy_of(rng.normal(size=(n, 3)), rng.normal(size=n)), noise)
    draws = sum(size for _, _, size in noise.asked)
    if isinstance(mechanism, LaplaceSecondMoments):
        ((_, scale, size),) = noise.asked
        bound = lattice(n, 0.0, 64.0 * mechanism.size / mechanism.epsilon).bound
        assert size * bound / scale == pytest.approx(mechanism.epsilon)
        expected = size * PrivacyCost.pure_dp(bound / scale)
        assert mechanism.cost.mu_squared == pytest.approx(expected.mu_squared, rel=1e-14)
        assert mechanism.cost.discretization == 0.0
        return
    if isinstance(mechanism, CoordinateUpdates):
        bound = lattice(n, *(2 * z for z in mechanism.noise_multipliers)).bound
        spent = sum(size * (2 * bound / scale) ** 2 for _, scale, size in noise.asked)
        assert draws == mechanism.count
    elif isinstance(mechanism, (SecondMoments, ClippedMeans)):
        ((_, scale, size),) = noise.asked
        # A square moves by the bound, a mean by twice that.
        reach = 1.0 if isinstance(mechanism, SecondMoments) else 2.0
        largest = mechanism.noise_multiplier * reach * math.sqrt(mechanism.size)
        spent = size * (reach * lattice(n, largest, largest).bound / scale) ** 2
    else:
        ((_, scale, size),) = noise.asked
        spent = 2 * mechanism.size * (lattice(n, mechanism.noise_level, mechanism.noise_level).bound / scale) ** 2
    assert mechanism.cost.mu_squared == pytest.approx(spent)
    assert mechanism.cost.discretization == pytest.approx(draws * PrivacyCost.gaussian(1.0).discretization, abs=0)


@pytest.mark.parametrize(
    ("features", "target"), [((5, 2), (4,)), ((5, 2), (1,)), ((5, 2), (5, 1)), ((5,), (5,)), ((5, 2), ())]
)
def test_tables_without_a_target_for_each_record_are_refused(features, target):
    with pytest.raises(ValueError, match="an entry for each"):
        Columns(np.zeros(features, order="F"), np.zeros(target))


def test_updates_never_reuse_noise(rng):
    """A data set of zeros releases nothing but noise: 400 updates must show 400 different draws of the right size."""
    mechanism = updates(coordinates=np.tile(np.arange(3), 134)[:400], noise_multiplier=(50.0, 50.0, 50.0))
    released, _ = mechanism.run(Columns.copy_of(np.zeros((20, 3)), np.zeros(20)), SeededNoise(rng))
    assert len(np.unique(released)) == 400
    scale = 50.0 * 2 * lattice(20, 100.0, 100.0).bound
    assert stats.kstest(released / scale, "norm").pvalue > 1e-5


def test_moments_and_counts_are_right_without_noise(rng):
    X = rng.normal(size=(300, 3)) * [1.0, 10.0, 0.1]
    y = rng.normal(size=300)
    data = Columns.copy_of(X, y)
    moments = SecondMoments(np.array([0, 2]), np.array([2.0, 0.2]), 1.5, 0.0).run(data, Recorder())
    expected = [np.mean(np.minimum(np.abs(v) / b, 1) ** 2) for v, b in ((X[:, 0], 2.0), (X[:, 2], 0.2), (y, 1.5))]
    np.testing.assert_allclose(moments, expected, rtol=1e-9)
    laplace = LaplaceSecondMoments(np.array([0, 2]), np.array([2.0, 0.2]), 1.5, math.inf).run(data, Recorder())
    np.testing.assert_allclose(laplace, expected, rtol=1e-9)
    around = ClippedMeans(np.array([1]), np.array([5.0]), 1.0, 0.0, center=np.array([20.0, -0.5])).run(data, Recorder())
    np.testing.assert_allclose(
        around, [np.mean(np.clip((X[:, 1] - 20.0) / 5.0, -1, 1)), np.mean(np.clip(y + 0.5, -1, 1))]
    )
    counts = DyadicCounts(3, True, 0.0).run(data, Recorder())
    assert counts.shape == (4, CELLS)
    assert counts.sum(axis=1).tolist() == [300, 300, 300, 300]
    assert counts[1, BUCKETS + 1 + 60 + 3] == np.count_nonzero((X[:, 1] >= 8) & (X[:, 1] < 16))
    assert counts[1, BUCKETS - 1 - 60 - 3] == np.count_nonzero((X[:, 1] <= -8) & (X[:, 1] > -16))


def test_centers_are_finite_and_one_for_each():
    for center in (np.array([1.0]), np.array([1.0, math.nan]), np.array([math.inf, 0.0])):
        for make in (
            lambda center: ClippedMeans(np.array([0, 1]), np.ones(2), None, 1.0, center=center),
            lambda center: DyadicCounts(2, False, 1.0, center=center),
        ):
            with pytest.raises(ValueError, match="one finite value"):
                make(center)


@pytest.mark.parametrize("n", [1, 2, 1000, 45_312, 10**9, 2**40])
@pytest.mark.parametrize("multiplier", [0.01, 1.0, 1e3, 1e6, 1e12])
def test_no_lattice_overflows(n, multiplier):
    try:
        bound = lattice(n, multiplier, multiplier).bound
    except ValueError as error:
        assert "no integer lattice fits" in str(error)  # noqa: PT017 - which of the two happens is what is tested
        assert multiplier * 2.0**60 / n < 2 * SMALLEST_SCALE
        return
    assert math.log2(bound) == int(math.log2(bound))
    assert bound <= 2.0**51
    assert multiplier * bound >= SMALLEST_SCALE
    assert n * bound + 64 * multiplier * bound < 2.0**63


def test_positive_class_becomes_plus_one_and_all_others_minus_one(rng):
    X, codes = rng.normal(size=(200, 3)), rng.integers(3, size=200)
    signs = np.where(codes == 2, 1.0, -1.0)
    by_class = updates(positive_class=2).run(Columns.copy_of(X, codes), SeededNoise(np.random.default_rng(0)))
    by_sign = updates().run(Columns.copy_of(X, signs), SeededNoise(np.random.default_rng(0)))
    assert np.array_equal(by_class[0], by_sign[0])


def test_wrong_fields_are_refused():
    for bad in (-1.0, np.nan, np.inf):
        with pytest.raises(ValueError, match="noise multipliers"):
            updates(noise_multiplier=(1.0, bad, 1.0))
        with pytest.raises(ValueError, match="noise multipliers"):
            SecondMoments(np.array([0]), np.array([1.0]), None, bad)
        with pytest.raises(ValueError, match="noise multipliers"):
            DyadicCounts(1, False, bad)
    with pytest.raises(ValueError, match="coordinates"):
        updates(coordinates=[3])
    with pytest.raises(ValueError, match="coordinates"):
        updates(coordinates=[-1])
    with pytest.raises(ValueError, match="positive"):
        updates(clip=(1.0, 0.0, 1.0))
    with pytest.raises(ValueError, match="positive"):
        updates(clip=(1.0, np.nan, 1.0))
    with pytest.raises(ValueError, match="infinite clip"):
        updates(clip=(np.inf, np.inf, np.inf))
    with pytest.raises(ValueError, match="infinite clip"):
        updates(clip=(np.inf, 1.0, 1.0), noise_multiplier=(0.0, 0.0, 0.0))
    for ranges in ([0.0], [np.inf], [np.nan], []):
        with pytest.raises(ValueError, match="range"):
            SecondMoments(np.arange(len(ranges)), np.array(ranges), None, 1.0)
    with pytest.raises(ValueError, match="epsilon"):
        LaplaceSecondMoments(np.array([0]), np.array([1.0]), None, 0.0)
    with pytest.raises(ValueError, match="column"):
        DyadicCounts(0, False, 1.0)


def test_nothing_can_be_changed_between_the_charge_and_the_run():
    clip, multiplier = np.ones(3), np.full(3, 50.0)
    mechanism = updates(clip=clip, noise_multiplier=multiplier)
    clip[:], multiplier[:] = np.inf, 0.0
    assert np.all(mechanism.clip == 1.0)
    assert np.all(mechanism.noise_multiplier == 50.0)
    for name in ("coordinates", "clip", "steps", "noise_multiplier", "start"):
        with pytest.raises(ValueError, match="read-only"):
            getattr(mechanism, name)[0] = 0
    # And if somebody manages all the same, noise and clipping go together.
    object.__setattr__(mechanism, "clip", np.full(3, np.inf))
    noise = Recorder()
    mechanism.run(Columns.copy_of(np.ones((4, 3)), np.ones(4)), noise)
    assert noise.asked


def test_shapes_are_checked():
    with pytest.raises(ValueError, match="clip needs one value for each of 3 columns"):
        updates(clip=(1.0, 2.0))
    with pytest.raises(ValueError, match="whole numbers"):
        updates(coordinates=np.array([True, False, True]))
    with pytest.raises(ValueError, match="made for 3 columns"):
        updates().run(Columns.copy_of(np.ones((4, 2)), np.ones(4)), Recorder())


@settings(max_examples=30, deadline=None)
@given(arrays(np.float64, (5, 4), elements=wild_floats), arrays(np.float64, 4, elements=wild_floats), st.data())
def test_every_later_update_keeps_to_its_sensitivity_too(table, record, draw):
    """Steps of zero freeze the weights, so that all of 30 updates are asked the same of both data sets."""
    other = table.copy()
    other[draw.draw(st.integers(0, 4))] = record
    start = draw.draw(arrays(np.float64, 3, elements=st.sampled_from([0.0, 1.0, -1e308, 1e-308, 1e100])))
    mechanism = updates(
        coordinates=np.arange(30) % 3, steps=np.zeros(3), start=start, penalty=Zero(), noise_multiplier=(2.0, 2.0, 2.0)
    )
    with np.errstate(all="ignore"):
        sums = [mechanism.run(Columns.copy_of(t[:, :3], t[:, 3]), Recorder())[0] for t in (table, other)]
    assert sums[0].shape == (30,)
    assert np.max(np.abs(sums[0] - sums[1])) <= 2 * lattice(5, 4.0, 4.0).bound


def test_values_and_moments_are_functions_of_released_integers_alone(rng):
    """Nothing of the data rides along in low-order bits: replaying the integers gives the same doubles."""
    X, y = rng.normal(size=(40, 3)), rng.normal(size=40)
    mechanism = updates(coordinates=np.tile(np.arange(3), 5), noise_multiplier=(9.0, 9.0, 9.0))
    released, values = mechanism.run(Columns.copy_of(X, y), SeededNoise(rng))
    bound = lattice(40, 18.0, 18.0).bound
    w = np.zeros(3)
    for k, j in enumerate(mechanism.coordinates):
        w[j] = mechanism.penalty.prox(w[j] - 1.0 * (released[k] * (mechanism.clip[j] / (bound * 40))), 1.0, j)
        assert values[k] == pytest.approx(w[j], rel=4e-16, abs=0)
        w[j] = values[k]
    moments = SecondMoments(np.arange(3), np.ones(3), None, 4.0).run(Columns.copy_of(X, y), SeededNoise(rng))
    grid = lattice(40, 4 * math.sqrt(3), 4 * math.sqrt(3)).bound * 40
    assert np.array_equal(moments, np.rint(moments * grid) / grid)


def test_a_loss_with_an_array_is_refused():
    """Into an array it could write what it sees."""
    from typing import NamedTuple

    class Spy(NamedTuple):
        memory: np.ndarray
        curvature = 1.0
        lipschitz = 1.0

        def value(self, y, z):
            return 0.0

        def derivative(self, y, z):
            self.memory[0] = y
            return y

    for memory in (np.zeros(1), [0.0], (np.zeros(1),)):
        with pytest.raises(ValueError, match="numbers only"):
            updates(loss=Spy(memory))
        sampling = FixedSize(2, 4)
        with pytest.raises(ValueError, match="numbers only"):
            GradientSteps(Spy(memory), Zero(), sampling, 1, 3, 1.0, 0.1, 2.0, np.zeros(3))
        with pytest.raises(ValueError, match="numbers only"):
            DualSteps(Spy(memory), sampling, 1, 1.0, 1.0, 1.0, 2.0, 3)


def test_a_hostile_loss_cannot_leave_the_lattice(rng):
    """A loss that returns NaN, infinities or raw values shapes contributions that are clamped all the same."""
    from typing import NamedTuple

    class Hostile(NamedTuple):
        curvature = 1.0
        lipschitz = 1.0

        def value(self, y, z):
            return 0.0

        def derivative(self, y, z):
            return y * 1e300 * 1e300 if y > 0 else y * 1e200

    n = 30
    mechanism = updates(loss=Hostile(), penalty=Zero(), coordinates=[0])
    data = Columns.copy_of(rng.normal(size=(n, 3)), rng.normal(size=n))
    released, _ = mechanism.run(data, Recorder())
    bound = lattice(n, *(2 * z for z in mechanism.noise_multipliers)).bound
    assert abs(int(released[0])) <= n * bound
