"""DP-CD's updates, and sizes of derivatives: definitions, noise, costs, and what is refused."""

from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy import stats

from attack import exact_sums, wild_floats
from dpcd.audit import NoNoise
from dpcd.losses import Squared
from dpcd.penalties import L1, Zero
from dpcd.privacy import Columns, PrivacyCost, SeededNoise
from dpcd.privacy.coordinates import CoordinateUpdates, DerivativeSizes
from problems import LOSSES, name, simulate
from replay import KeepingNoise


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


class TestUpdates:
    def test_each_is_charged_for_the_noise_that_it_gets(self, rng):
        mechanism, silence = updates(), NoNoise()
        noise = KeepingNoise(silence)
        mechanism.run(Columns.copy_of(rng.normal(size=(50, 3)), rng.normal(size=50)), noise)
        assert [len(draws) for draws in noise.drawn] == [1, 3]
        reach = mechanism.sensitivity(mechanism.lattice(50).bound)
        assert [scale / reach for scale in silence.scales] == [2.0, 3.0]
        assert mechanism.cost.mu_squared == pytest.approx(2.0**-2 + 3 * 3.0**-2)
        assert mechanism.cost.discretization == pytest.approx(4 * PrivacyCost.gaussian(1.0).discretization, abs=0)
        assert (mechanism.count, mechanism.noise_multipliers) == (4, (2.0, 3.0))

    def test_they_never_reuse_noise(self, rng):
        """A data set of zeros releases nothing but noise: 400 updates show 400 different draws of the right size."""
        mechanism = updates(coordinates=np.tile(np.arange(3), 134)[:400], noise_multiplier=(50.0, 50.0, 50.0))
        released, _ = mechanism.run(Columns.copy_of(np.zeros((20, 3)), np.zeros(20)), SeededNoise(rng))
        assert len(np.unique(released)) == 400
        scale = 50.0 * mechanism.sensitivity(mechanism.lattice(20).bound)
        assert stats.kstest(released / scale, "norm").pvalue > 1e-5

    @settings(max_examples=30, deadline=None)
    @given(arrays(np.float64, (5, 4), elements=wild_floats), arrays(np.float64, 4, elements=wild_floats), st.data())
    def test_every_later_update_keeps_to_its_sensitivity_too(self, table, record, draw):
        """Steps of zero freeze the weights, so that all of 30 updates are asked the same of both data sets."""
        other = table.copy()
        other[draw.draw(st.integers(0, 4))] = record
        start = draw.draw(arrays(np.float64, 3, elements=st.sampled_from([0.0, 1.0, -1e308, 1e-308, 1e100])))
        mechanism = updates(coordinates=np.arange(30) % 3, steps=np.zeros(3), start=start, penalty=Zero())
        with np.errstate(all="ignore"):
            sums = [mechanism.run(Columns.copy_of(t[:, :3], t[:, 3]), NoNoise())[0] for t in (table, other)]
        assert sums[0].shape == (30,)
        assert np.max(np.abs(sums[0] - sums[1])) <= mechanism.sensitivity(mechanism.lattice(5).bound)

    def test_one_by_one_they_ask_what_a_run_asks(self, rng):
        """Numbers whose products and sums are exact, so that both must agree to the last integer."""
        X, y = rng.integers(-16, 17, size=(40, 3)) / 8, rng.integers(-16, 17, size=40) / 4
        X[3], y[4] = [np.nan, np.inf, 1e308], np.inf
        mechanism = updates(coordinates=np.arange(6) % 3, penalty=Zero(), clip=np.full(3, 0.25), steps=np.full(3, 2.0))
        data = Columns.copy_of(X, y)
        answer = mechanism.run(data, NoNoise())
        singles = list(mechanism.steps_of(answer))
        assert [exact_sums(update, data)[0] for update, _ in singles] == answer[0].tolist()
        assert [released.tolist() for _, released in singles] == answer[0][:, None].tolist()
        assert singles[1][0].start.tolist() == [answer[1][0], 0.0, 0.0]

    def test_values_are_functions_of_released_integers_alone(self, rng):
        """Nothing of the data rides along in low-order bits: replaying the integers gives the same doubles."""
        mechanism = updates(coordinates=np.tile(np.arange(3), 5), noise_multiplier=(9.0, 9.0, 9.0))
        data = Columns.copy_of(rng.normal(size=(40, 3)), rng.normal(size=40))
        released, values = mechanism.run(data, SeededNoise(rng))
        bound, w = mechanism.lattice(40).bound, np.zeros(3)
        for k, j in enumerate(mechanism.coordinates):
            w[j] = mechanism.penalty.prox(w[j] - 1.0 * (released[k] * (mechanism.clip[j] / (bound * 40))), 1.0, j)
            assert values[k] == pytest.approx(w[j], rel=4e-16, abs=0)
            w[j] = values[k]

    def test_a_hostile_loss_cannot_leave_the_lattice(self, rng):
        """A loss that returns NaN, infinities or raw values shapes contributions that are clamped all the same."""

        class Hostile(NamedTuple):
            curvature = 1.0
            lipschitz = 1.0

            def value(self, y, z):
                return 0.0

            def derivative(self, y, z):
                return y * 1e300 * 1e300 if y > 0 else y * 1e200

        mechanism = updates(loss=Hostile(), penalty=Zero(), coordinates=[0])
        data = Columns.copy_of(rng.normal(size=(30, 3)), rng.normal(size=30))
        released, _ = mechanism.run(data, NoNoise())
        assert abs(int(released[0])) <= 30 * mechanism.lattice(30).bound

    def test_wrong_fields_are_refused(self):
        for coordinates in ([3], [-1]):
            with pytest.raises(ValueError, match="coordinates"):
                updates(coordinates=coordinates)
        for clip in (0.0, np.nan):
            with pytest.raises(ValueError, match="positive"):
                updates(clip=(1.0, clip, 1.0))
        with pytest.raises(ValueError, match="infinite clip"):
            updates(clip=(np.inf, 1.0, 1.0), noise_multiplier=(0.0, 0.0, 0.0))
        with pytest.raises(ValueError, match="clip needs one value for each of 3 columns"):
            updates(clip=(1.0, 2.0))
        with pytest.raises(ValueError, match="whole numbers"):
            updates(coordinates=np.array([True, False, True]))


LEVELS = np.array([0.25, 0.5, 1.0, 4.0])


def sizes(**changes):
    fields = {
        "loss": Squared(),
        "columns": np.array([0, 2]),
        "units": np.array([0.5, 2.0]),
        "levels": LEVELS,
        "weights": np.array([0.3, -0.1, 0.0]),
        "noise_multiplier": 3.0,
    }
    return DerivativeSizes(**(fields | changes))


class TestSizesOfDerivatives:
    @pytest.mark.parametrize("loss", LOSSES, ids=name)
    def test_they_follow_their_definition(self, loss, rng):
        X, y = simulate(loss, 200, 3, rng)
        mechanism = sizes(loss=loss)
        parts = mechanism.run(Columns.copy_of(X, y), NoNoise())
        slopes = np.array([loss.derivative(y[i], X[i] @ mechanism.weights) for i in range(200)])
        every = np.abs(slopes[:, None] * X[:, [0, 2]]) / [0.5, 2.0]
        np.testing.assert_allclose(parts, [np.mean(every > level) for level in LEVELS], atol=1e-9)
        assert 0.0 < parts[2] < parts[0]

    def test_the_noise_is_what_is_said_of_it(self):
        mechanism = sizes(noise_multiplier=20.0)
        data = Columns.copy_of(np.zeros((50, 3)), np.zeros(50))
        runs = np.array([mechanism.run(data, SeededNoise(np.random.default_rng(seed))) for seed in range(400)])
        np.testing.assert_allclose(runs.std(axis=0), mechanism.noise_levels(50), rtol=0.2)

    @pytest.mark.parametrize(
        ("field", "value", "message"),
        [
            ("columns", [2, 0], "increasing"),
            ("columns", [], "increasing"),
            ("columns", [0, 3], "lie in"),
            ("columns", [-1, 0], "lie in"),
            ("units", [1.0], "units"),
            ("units", [1.0, 0.0], "units"),
            ("levels", [1.0, 1.0], "levels"),
            ("levels", [0.0, 1.0], "levels"),
            ("levels", [], "levels"),
        ],
    )
    def test_wrong_fields_are_refused(self, field, value, message):
        with pytest.raises(ValueError, match=message):
            sizes(**{field: value})


@pytest.mark.parametrize("make", [updates, sizes])
def test_positive_class_becomes_plus_one_and_all_others_minus_one(make, rng):
    X, codes = rng.normal(size=(200, 3)), rng.integers(3, size=200)
    by_class = make(positive_class=2).run(Columns.copy_of(X, codes), NoNoise())
    assert np.array_equal(by_class, make().run(Columns.copy_of(X, np.where(codes == 2, 1.0, -1.0)), NoNoise()))
