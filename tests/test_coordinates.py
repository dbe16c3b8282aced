"""Sizes of derivatives: against their definition, sensitivity by search, cost."""

import math

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from dpcd.losses import Squared
from dpcd.privacy import Columns, PrivacyCost, SeededNoise
from dpcd.privacy.coordinates import DerivativeSizes
from dpcd.privacy.lattice import lattice
from problems import LOSSES, name, simulate
from test_columns import Recorder
from test_kernels import wild_floats

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


@pytest.mark.parametrize("loss", LOSSES, ids=name)
def test_sizes_follow_their_definition(loss, rng):
    X, y = simulate(loss, 200, 3, rng)
    mechanism = sizes(loss=loss)
    parts = mechanism.run(Columns.copy_of(X, y), Recorder())
    slopes = np.array([loss.derivative(y[i], X[i] @ mechanism.weights) for i in range(200)])
    every = np.abs(slopes[:, None] * X[:, [0, 2]]) / [0.5, 2.0]
    np.testing.assert_allclose(parts, [np.mean(every > level) for level in LEVELS], atol=1e-9)
    assert 0.0 < parts[2] < parts[0]


def histogram(parts, n_records, multiplier=3.0):
    scale = math.sqrt(2.0) * multiplier
    return -np.diff(parts, append=0.0) * n_records * lattice(n_records, scale, scale).bound


@settings(max_examples=200, deadline=None)
@given(
    arrays(np.float64, (4, 4), elements=wild_floats),
    arrays(np.float64, 4, elements=wild_floats),
    st.integers(0, 3),
    arrays(np.float64, 3, elements=st.sampled_from([0.0, 1.0, -1e308, 1e-308, np.inf, np.nan])),
)
@example(np.array([[1.0, 0.0, 1.0, 1e9]] * 4), np.array([1.0, 0.0, 1.0, 1.0]), 0, np.zeros(3))
def test_replacing_a_record_moves_the_histogram_by_no_more_than_its_sensitivity(table, record, i, weights):
    other = table.copy()
    other[i] = record
    bound = lattice(4, 3.0 * math.sqrt(2.0), 3.0 * math.sqrt(2.0)).bound
    histograms = []
    for data in (table, other):
        noise = Recorder()
        with np.errstate(all="ignore"):
            parts = sizes(weights=weights).run(Columns.copy_of(data[:, :3], data[:, 3]), noise)
        histograms.append(histogram(parts, 4))
        assert np.all(np.isfinite(parts))
        ((_, scale, size),) = noise.asked
        assert (scale, size) == (pytest.approx(3.0 * math.sqrt(2.0) * bound), 4)
    assert np.linalg.norm(histograms[0] - histograms[1]) <= math.sqrt(2.0) * bound * (1 + 1e-9)


def test_the_sensitivity_is_used_to_the_full():
    """All entries of a record may lie in one bucket, and all of its replacement's in another."""
    X = np.ones((4, 3))
    moved = []
    for y in (1e6, 0.7):
        mechanism = sizes(weights=np.zeros(3), units=np.ones(2))
        parts = mechanism.run(Columns.copy_of(X, np.array([y, 0.0, 0.0, 0.0])), Recorder())
        moved.append(histogram(parts, 4))
    bound = lattice(4, 3.0 * math.sqrt(2.0), 3.0 * math.sqrt(2.0)).bound
    assert np.linalg.norm(moved[0] - moved[1]) == pytest.approx(math.sqrt(2.0) * bound)


def test_cost_and_noise():
    mechanism = sizes(noise_multiplier=20.0)
    assert mechanism.cost == PrivacyCost.gaussian(20.0, 4)
    assert mechanism.count == 1
    data = Columns.copy_of(np.zeros((50, 3)), np.zeros(50))
    runs = np.array([mechanism.run(data, SeededNoise(np.random.default_rng(seed))) for seed in range(400)])
    np.testing.assert_allclose(runs.std(axis=0), mechanism.noise_levels(50), rtol=0.2)


def test_classes_become_signs(rng):
    X, codes = rng.normal(size=(100, 3)), rng.integers(3, size=100)
    by_class = sizes(positive_class=2).run(Columns.copy_of(X, codes), Recorder())
    by_sign = sizes().run(Columns.copy_of(X, np.where(codes == 2, 1.0, -1.0)), Recorder())
    assert np.array_equal(by_class, by_sign)


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
        ("noise_multiplier", -1.0, "noise multipliers"),
    ],
)
def test_wrong_fields(field, value, message):
    with pytest.raises(ValueError, match=message):
        sizes(**{field: value})


def test_other_data_are_refused():
    with pytest.raises(ValueError, match="made for 3 columns"):
        sizes().run(Columns.copy_of(np.ones((4, 2)), np.ones(4)), Recorder())
