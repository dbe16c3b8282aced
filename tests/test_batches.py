"""DP-SGD and DP-SCD: mechanisms against definitions, what leaves no sum of records, and the problems they solve."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from attack import exact_sums, wild_floats
from dpcd import DPGeneralizedLinearModel, DPLogisticRegression, DPRidge
from dpcd.audit import NoNoise
from dpcd.losses import Logistic, Squared
from dpcd.nonprivate import objective, optimum
from dpcd.penalties import L1, L2, Zero
from dpcd.privacy import Columns, SeededNoise
from dpcd.privacy.rivals.batches import DualSteps, GradientSteps
from dpcd.privacy.rivals.sampling import FixedSize, Poisson
from dpcd.solvers import DPCD, DPSCD, DPSGD
from problems import CLASSIFICATION, LOSSES, PENALTIES, name, simulate
from replay import KeepingNoise


def gradient_steps(sampling, count=1, **changes):
    fields = {
        "loss": Squared(),
        "penalty": Zero(),
        "sampling": sampling,
        "count": count,
        "n_penalized": 3,
        "clip": 1.0,
        "step": 0.1,
        "noise_multiplier": 2.0,
        "start": np.zeros(3),
    }
    return GradientSteps(**(fields | changes))


def clipped(gradient, clip):
    return gradient * min(1.0, clip / np.linalg.norm(gradient)) if np.any(gradient) else gradient


@pytest.mark.parametrize("loss", LOSSES, ids=name)
@pytest.mark.parametrize("penalty", PENALTIES, ids=name)
def test_gradient_steps_follow_their_definition(loss, penalty, rng):
    X, y = simulate(loss, 30, 3, rng)
    sampling = FixedSize(4, 30)
    mechanism = gradient_steps(sampling, 20, loss=loss, penalty=penalty, n_penalized=2, clip=0.7, every=20)
    noise = SeededNoise(np.random.default_rng(3))
    path = mechanism.run(Columns.copy_of(X, y), noise)
    again = SeededNoise(np.random.default_rng(3))
    members, starts = sampling.draw(30, 20, again.generator())
    bound = mechanism.lattice(30).bound
    draws = again.gaussian(4.0 * (bound + math.sqrt(3)), 60).reshape(20, 3)
    w = np.zeros(3)
    for k in range(20):
        batch = members[starts[k] : starts[k + 1]]
        gradient = sum(clipped(loss.derivative(y[i], X[i] @ w) * X[i], 0.7) for i in batch)
        w = w - 0.1 * (gradient + draws[k] * 0.7 / bound) / 4
        w = np.array([penalty.prox(w[j], 0.1, j) if j < 2 else w[j] for j in range(3)])
    np.testing.assert_allclose(path[0], w, rtol=1e-7, atol=1e-9)


def test_side_by_side_is_one_by_one(rng):
    X, y = simulate(Squared(), 200, 3, rng)
    data = Columns.copy_of(X, y)
    clips, steps = np.array([0.1, 1.0, 10.0]), np.array([0.5, 0.1, 0.01])
    mechanism = gradient_steps(Poisson(0.01, 200), 300, every=100)
    together = mechanism.paths(data, SeededNoise(np.random.default_rng(1)), clips, steps)
    for c in range(3):
        alone = gradient_steps(Poisson(0.01, 200), 300, every=100, clip=clips[c], step=steps[c])
        path = alone.run(data, SeededNoise(np.random.default_rng(1)))
        np.testing.assert_allclose(together[:, :, c], path, rtol=1e-12)
        assert path.shape == (3, 3)


wild_rows = arrays(np.float64, (4, 4), elements=wild_floats)


@settings(max_examples=200, deadline=None)
@given(wild_rows, arrays(np.float64, 4, elements=wild_floats), st.integers(0, 3), st.floats(1e-150, 1e150))
def test_a_record_more_moves_a_batch_by_half_of_what_another_record_does(table, record, i, clip):
    """Where neighbours add or remove one record, in l2 norm and in lattice units."""
    mechanism = gradient_steps(Poisson(0.5, 5), clip=clip)
    with_it, without = (Columns.copy_of(t[:, :3], t[:, 3]) for t in (np.insert(table, i, record, axis=0), table))
    moved = math.hypot(*(exact_sums(mechanism, with_it) - exact_sums(mechanism, without)).tolist())
    assert moved <= mechanism.sensitivity(mechanism.lattice(5).bound) == mechanism.lattice(5).bound + math.sqrt(3)


def dual_steps(sampling, count=1, **changes):
    fields = {
        "loss": Logistic(),
        "sampling": sampling,
        "count": count,
        "clip": 0.5,
        "penalty_strength": 0.1,
        "largest_norm": 2.0,
        "noise_multiplier": 2.0,
        "n_columns": 3,
    }
    return DualSteps(**(fields | changes))


def increments(mechanism, table):
    """What a lot of all records adds to α and v, in lattice units."""
    data, n = Columns.copy_of(table[:, :3], table[:, 3]), len(table)
    state, no_noise = mechanism.zeros(n, 1), np.zeros((1, n + 3), dtype=np.int64)
    everybody, clips = (np.arange(n), np.array([0, n])), np.array([mechanism.clip])
    with np.errstate(all="ignore"):
        mechanism.descend(mechanism.data(data), mechanism.lattice(n), everybody, clips, no_noise, state)
    return np.concatenate([state[0][:, 0], state[2][:, 0]])


@settings(max_examples=100, deadline=None)
@given(wild_rows, arrays(np.float64, 4, elements=wild_floats), st.integers(0, 3), st.sampled_from([1e-140, 0.5, 1e140]))
def test_replacing_a_record_moves_both_vectors_of_dual_steps_by_no_more_than_is_told(table, record, i, clip):
    other = table.copy()
    other[i] = record
    mechanism = dual_steps(FixedSize(2, 4), loss=Squared(), clip=clip)
    moved = math.hypot(*(increments(mechanism, table) - increments(mechanism, other)).tolist())
    assert moved <= mechanism.sensitivity(mechanism.lattice(4).bound) * (1 + 1e-12)


def test_some_record_moves_both_vectors_as_far_as_is_told():
    mechanism, table = dual_steps(FixedSize(2, 4), loss=Squared()), np.zeros((4, 4))
    sums = []
    for y in (1e9, -1e9):
        table[1] = [9.0, 0.0, 0.0, y]
        sums.append(increments(mechanism, table))
    moved = math.hypot(*(sums[0] - sums[1]).tolist())
    assert 0.999 <= moved / mechanism.sensitivity(mechanism.lattice(4).bound) <= 1.0


@pytest.mark.parametrize("loss", LOSSES, ids=name)
def test_dual_steps_solve_their_part_of_the_dual(loss, rng):
    """A lot of one record moves its α to −ℓ'(z) at the new z, or as far as the clip allows."""
    X, y = simulate(loss, 1, 3, rng)
    X /= np.linalg.norm(X)
    for clip in (100.0, 0.05):
        mechanism = dual_steps(FixedSize(1, 1), loss=loss, clip=clip, largest_norm=1.0, noise_multiplier=0.0)
        w = mechanism.run(Columns.copy_of(X, y), NoNoise())[0]
        alpha = float(w @ X[0]) * 0.1
        np.testing.assert_allclose(w, alpha * X[0] / 0.1, atol=1e-8)
        best = -loss.derivative(y[0], float(X[0] @ w))
        if abs(alpha) < clip * 0.999:
            assert alpha == pytest.approx(best, abs=1e-7)
        else:
            assert abs(best) >= clip * 0.999


@pytest.mark.parametrize("mechanism", [gradient_steps(FixedSize(2, 20), 30), dual_steps(FixedSize(2, 20), 30)])
def test_every_step_is_charged_for_the_noise_that_it_gets(mechanism, rng):
    """Of dual steps in every dual variable, in the lot or not."""
    width, silence = 3 + (20 if isinstance(mechanism, DualSteps) else 0), NoNoise()
    noise = KeepingNoise(silence)
    mechanism.run(Columns.copy_of(rng.normal(size=(20, 3)), np.sign(rng.normal(size=20))), noise)
    assert sum(map(len, noise.drawn)) == 30 * width
    assert set(silence.scales) == {2.0 * mechanism.sensitivity(mechanism.lattice(20).bound)}
    assert mechanism.cost == 30 * FixedSize(2, 20).cost(2.0, width)
    assert mechanism.relation == "replace one record"


def test_every_record_gets_fresh_noise_in_every_step(rng):
    data = Columns.copy_of(np.zeros((10, 3)), np.zeros(10))
    path = gradient_steps(FixedSize(1, 10), 500, step=1.0).run(data, SeededNoise(rng))
    moves = np.diff(path, axis=0, prepend=np.zeros((1, 3)))
    assert len(np.unique(moves)) == moves.size


@pytest.mark.parametrize("loss", LOSSES, ids=name)
def test_solvers_approach_the_optimum_without_noise(loss, rng):
    X, y = simulate(loss, 400, 3, rng)
    X = X / np.linalg.norm(X, axis=1).max()
    settings = {"loss": loss, "penalty": L2(0.01), "epsilon": math.inf, "fit_intercept": False, "random_state": 0}
    best = objective(X, y, loss, L2(0.01), optimum(X, y, loss, L2(0.01))[0])
    zero = objective(X, y, loss, L2(0.01), np.zeros(3))
    smoothness = loss.curvature * np.mean(X**2, axis=0)
    for solver in (
        DPSGD(n_passes=300, step_size=1.0, clip=1e3, batch_size=400),
        DPSGD(n_passes=300, step_size=0.05, clip=1e3, batch_size=8, sampling="poisson"),
        DPSCD(row_norm=1.0, n_passes=200, clip=1e3, lot_size=4),
    ):
        model = DPGeneralizedLinearModel(solver=solver, smoothness=smoothness, **settings).fit(X, y)
        excess = objective(X, y, loss, L2(0.01), model.coef_) - best
        assert excess <= 0.02 * (zero - best), type(solver).__name__


def test_statements_name_the_relation(rng):
    X, y = simulate(Squared(), 2000, 3, rng)
    bounded = {"feature_bounds": (-40, 40), "random_state": 0}
    fixed = DPRidge(solver=DPSGD(n_passes=2, batch_size=50), **bounded).fit(X, y)
    assert fixed.privacy_.relation == "replace one record"
    assert 0.99 < fixed.privacy_.spent_epsilon <= 1.0
    assert fixed.privacy_.order is not None
    known = {"smoothness": np.mean(X**2, axis=0), "random_state": 0}
    poisson = DPRidge(solver=DPSGD(n_passes=2, batch_size=50, clip=1.0, sampling="poisson"), **known).fit(X, y)
    assert "neighbours   add or remove one record" in str(poisson.privacy_)
    assert poisson.privacy_.to_dict()["relation"].startswith("add or remove one record")
    assert len(poisson.privacy_.to_dict()["releases"][0]["renyi"]) > 100
    with pytest.raises(ValueError, match="do not add up"):
        DPRidge(solver=DPSGD(n_passes=2, sampling="poisson"), **bounded).fit(X, y)


def test_multiclass_spends_no_more_than_asked(rng):
    X = rng.normal(size=(3000, 2))
    labels = np.argmax(X @ [[1.0, -1.0, 0.0], [0.0, 1.0, -1.0]], axis=1)
    model = DPLogisticRegression(solver=DPSGD(n_passes=1, batch_size=30), feature_bounds=(-4, 4), random_state=0)
    model.fit(X, labels)
    batches = [release for release in model.privacy_.releases if release.description == "gradients of batches"]
    assert len(batches) == 3
    assert 0.98 < model.privacy_.spent_epsilon <= 1.0


def test_dual_solver_says_what_it_cannot_do(rng):
    X, y = simulate(Squared(), 50, 3, rng)
    solver = DPSCD(row_norm=10.0)
    for penalty in (L1(0.1), Zero(), L2(0.0)):
        with pytest.raises(ValueError, match=r"l2 penalty of alpha > 0.*DPCD"):
            DPGeneralizedLinearModel(penalty=penalty, solver=solver, fit_intercept=False).fit(X, y)
    with pytest.raises(ValueError, match="fit_intercept=False"):
        DPRidge(solver=solver).fit(X, y)
    with pytest.raises(ValueError, match="give alpha"):
        DPRidge(solver=solver, fit_intercept=False).fit(X, y)


@pytest.mark.parametrize(
    ("solver", "settings", "message"),
    [
        (DPSGD, {"n_passes": 0}, "n_passes"),
        (DPSGD, {"batch_size": 1.5}, "batch_size"),
        (DPSGD, {"clip": math.inf}, "clip"),
        (DPSGD, {"step_size": -1.0}, "step_size"),
        (DPSGD, {"sampling": "some"}, "sampling"),
        (DPSCD, {"row_norm": 0.0}, "row_norm"),
        (DPSCD, {"row_norm": 1.0, "lot_size": 0}, "lot_size"),
    ],
)
def test_wrong_settings(solver, settings, message):
    with pytest.raises(ValueError, match=message):
        solver(**settings)


def test_wrong_mechanisms():
    with pytest.raises(ValueError, match="clip"):
        gradient_steps(FixedSize(1, 5), clip=math.inf)
    with pytest.raises(ValueError, match="clip"):
        gradient_steps(FixedSize(1, 5), clip=1e-300)
    for norm in (0.0, 5e-324, math.inf):
        with pytest.raises(ValueError, match="largest_norm"):
            dual_steps(FixedSize(1, 5), largest_norm=norm)


@pytest.mark.parametrize("mechanism", [gradient_steps(FixedSize(9, 10**9)), dual_steps(FixedSize(9, 10**9))])
def test_data_other_than_those_paid_for_are_refused(mechanism):
    """A cost for 9 of a billion records must not buy 9 of 10."""
    with pytest.raises(ValueError, match="made for 1000000000 records"):
        mechanism.run(Columns.copy_of(np.ones((10, 3)), np.ones(10)), NoNoise())


def test_coordinate_descent_beats_both_on_imbalanced_columns(rng):
    """The paper's point, in miniature."""
    n = 20_000
    scales = np.array([100.0, 1.0, 1.0])
    X = rng.normal(size=(n, 3)) * scales
    y = np.where(X @ [0.0, 1.0, -1.0] + rng.normal(size=n) > 0, 1.0, -1.0)
    loss, penalty = Logistic(), L2(1e-3)
    assert isinstance(loss, CLASSIFICATION)
    best = objective(X, y, loss, penalty, optimum(X, y, loss, penalty)[0])
    known = {"smoothness": 0.25 * np.mean(X**2, axis=0), "fit_intercept": False, "random_state": 0}

    def error(solver):
        model = DPGeneralizedLinearModel(loss=loss, penalty=penalty, solver=solver, **known).fit(X, y)
        return objective(X, y, loss, penalty, model.coef_) - best

    descent = error(DPCD(n_passes=20))
    assert descent < 0.2 * min(error(DPSGD(n_passes=20, step_size=s, batch_size=100)) for s in (0.03, 0.1, 0.3, 1.0))
    assert descent < 0.2 * min(error(DPSCD(row_norm=500.0, n_passes=5, clip=c)) for c in (1e-3, 1e-2, 1e-1))
