"""DP-SVRG: its inner loop against the definition, costs, and the problem it solves."""

import math

import numpy as np
import pytest

from dpcd import DPGeneralizedLinearModel, DPLogisticRegression, DPRidge
from dpcd.audit import NoNoise
from dpcd.losses import Logistic, Squared
from dpcd.nonprivate import objective, optimum
from dpcd.penalties import L1, L2, Zero
from dpcd.privacy import Columns, PrivacyBudget, PrivacyCost, SeededNoise
from dpcd.privacy.records import JointGradient
from dpcd.privacy.rivals.batches import VarianceReducedSteps
from dpcd.privacy.rivals.sampling import FixedSize, Poisson
from dpcd.solvers import DPSVRG, Problem
from dpcd.verify import verify
from problems import LOSSES, PENALTIES, name, simulate
from replay import KeepingNoise, RecordingCurator
from test_batches import clipped

COLUMNS = np.array([0, 1, 2])


def inner_loop(sampling, count=1, **changes):
    fields = {
        "loss": Squared(),
        "penalty": Zero(),
        "sampling": sampling,
        "count": count,
        "n_penalized": 3,
        "columns": COLUMNS,
        "clip": 0.7,
        "growth": 2.0,
        "step": 0.1,
        "noise_multiplier": 2.0,
        "snapshot": np.array([0.5, -0.2, 0.01]),
        "gradient": np.array([0.1, 0.2, -0.3]),
        "start": np.array([0.1, 0.1, 0.1]),
        "smoothness": np.array([0.1, 1.0, 2.0]),
        "n_columns": 3,
    }
    return VarianceReducedSteps(**(fields | changes))


@pytest.mark.parametrize(
    ("loss", "penalty"),
    [(loss, L2(0.7)) for loss in LOSSES] + [(Logistic(), penalty) for penalty in PENALTIES],
    ids=name,
)
def test_inner_loop_follows_its_definition(loss, penalty, rng):
    """On two of three columns, the second of which has no penalty."""
    X, y = simulate(loss, 30, 3, rng)
    sampling = FixedSize(4, 30)
    columns = np.array([0, 2])
    v, g, M = np.array([0.5, 0.01]), np.array([0.1, -0.3]), np.array([0.1, 2.0])
    two = {"columns": columns, "snapshot": v, "gradient": g, "start": v, "smoothness": M, "n_penalized": 2}
    mechanism = inner_loop(sampling, 20, loss=loss, penalty=penalty, **two)
    released = mechanism.run(Columns.copy_of(X, y), SeededNoise(np.random.default_rng(3)))
    again = SeededNoise(np.random.default_rng(3))
    members, starts = sampling.draw(30, 20, again.generator())
    bound = mechanism.lattice(30).bound
    draws = again.gaussian(4.0 * (bound + math.sqrt(2)), 40).reshape(20, 2)
    rows, w, iterates = X[:, columns], v, []
    for k in range(20):
        batch = members[starts[k] : starts[k + 1]]
        clip = min(2.0 * math.sqrt(np.sum(M * (w - v) ** 2)), 1.4)
        changes = [loss.derivative(y[i], rows[i] @ w) - loss.derivative(y[i], rows[i] @ v) for i in batch]
        total = sum(clipped(c * rows[i], clip) for c, i in zip(changes, batch, strict=True))
        w = w - 0.1 * (g + (total + draws[k] * clip / bound) / 4)
        w = np.array([penalty.prox(w[0], 0.1, 0), w[1]])
        iterates.append(w)
    np.testing.assert_allclose(released, np.mean(iterates, axis=0), rtol=1e-7, atol=1e-9)
    assert np.ptp(np.array(iterates)[:, 1]) > 0.0


def test_where_nothing_was_gone_nothing_is_asked(rng):
    """At the snapshot the step is along the released gradient alone, and without noise."""
    mechanism = inner_loop(FixedSize(2, 20), start=np.array([0.5, -0.2, 0.01]))
    data = Columns.copy_of(rng.normal(size=(20, 3)), rng.normal(size=20))
    after = mechanism.run(data, SeededNoise(rng))
    np.testing.assert_allclose(after, mechanism.start - 0.1 * mechanism.gradient, rtol=1e-15)


def test_costs_equal_what_is_released(rng):
    data = Columns.copy_of(rng.normal(size=(20, 3)), rng.normal(size=20))
    mechanism = inner_loop(FixedSize(2, 20), 30)
    assert mechanism.cost == 30 * FixedSize(2, 20).cost(2.0, 3)
    assert mechanism.relation == "replace one record"
    noise = KeepingNoise(NoNoise())
    mechanism.run(data, noise)
    assert sum(map(len, noise.drawn)) == 90
    assert inner_loop(Poisson(0.1, 20)).relation.startswith("add or remove")


def solve(solver, n=4000, epsilon=1.0, smoothness=None, parts=1, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 4))
    y = X @ [1.0, -1.0, 0.5, 0.0] + 0.5 * rng.normal(size=n)
    order = solver.renyi_order(n, 4, epsilon, 1e-6, parts)
    curator = RecordingCurator(Columns.copy_of(X, y), PrivacyBudget(epsilon, 1e-6, order), SeededNoise(rng))
    problem = Problem(Squared(), L1(0.01), np.ones(4) if smoothness is None else smoothness, 4, slope=1.6)
    return [solver.solve(curator, problem, parts - k, rng) for k in range(parts)], curator


def test_each_loop_is_a_snapshot_and_steps_from_it():
    (solution,), curator = solve(DPSVRG(n_loops=3, n_steps=7, batch_size=40))
    assert [release.count for release in curator.releases] == [1, 7] * 3
    v = np.zeros(4)
    for (gradient, direction), (steps, average) in zip(curator.tape[::2], curator.tape[1::2], strict=True):
        np.testing.assert_array_equal(gradient.view.weights, v)
        np.testing.assert_array_equal(gradient.view.transform, np.ones(4))
        np.testing.assert_array_equal(steps.snapshot, v)
        np.testing.assert_array_equal(steps.start, v)
        np.testing.assert_array_equal(steps.gradient, direction)
        v = average
    np.testing.assert_array_equal(solution.weights, v)
    assert solution.path.shape == (3, 4)
    assert solution.n_passes == math.ceil(3 * (1 + 7 * 0.01))


def test_noise_can_be_calibrated_elsewhere():
    solver = DPSVRG(n_loops=2, n_steps=5, batch_size=40, noise_multipliers=(50.0, 3.0))
    _, curator = solve(solver, epsilon=math.inf)
    expected = 2 * PrivacyCost.gaussian(50.0, 4) + 10 * FixedSize(40, 4000).cost(3.0, 4)
    assert curator.spent.mu_squared == pytest.approx(expected.mu_squared)
    np.testing.assert_allclose(curator.spent.renyi, expected.renyi)


@pytest.mark.parametrize("parts", [1, 3])
@pytest.mark.parametrize("solver", [DPSVRG(), DPSVRG(n_loops=2, n_steps=4, batch_size=4000)], ids=["default", "full"])
def test_budget_is_used_up_and_divided_evenly(solver, parts):
    _, curator = solve(solver, parts=parts)
    assert 0.999 < curator.spent.epsilon(1e-6, curator.budget.order) <= 1.0
    assert (curator.budget.order is None) == (solver.batch_size == 4000)
    gradients = [mechanism.noise_multiplier for mechanism, _ in curator.tape if isinstance(mechanism, JointGradient)]
    assert len(gradients) == parts * solver.n_loops
    np.testing.assert_allclose(gradients, gradients[0], rtol=1e-4)


@pytest.mark.parametrize("delta", [1e-2, 1e-6, 1e-12])
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 30.0])
def test_any_budget_has_an_order_with_room_for_gradients_and_steps(epsilon, delta):
    order = DPSVRG().renyi_order(4000, 4, epsilon, delta, 1)
    assert PrivacyBudget(epsilon, delta, order).gaussian_room() > 0.0


def test_default_settings_follow_public_numbers_only():
    _, curator = solve(DPSVRG())
    gradient, steps = curator.tape[0][0], curator.tape[1][0]
    assert gradient.clip == pytest.approx(2.5 * 1.6 * 2.0)
    assert steps.growth == pytest.approx(2.5 * 2.0)
    assert steps.step == pytest.approx(1 / 4)
    assert steps.sampling == FixedSize(80, 4000)
    assert 1 <= steps.count < 100
    _, rich = solve(DPSVRG(), epsilon=30.0)
    assert rich.tape[1][0].count == 100


def test_a_budget_that_buys_nothing_gives_the_zero_model():
    (solution,), curator = solve(DPSVRG(), n=40, epsilon=0.01)
    assert not solution.weights.any()
    assert solution.n_passes == 0
    assert curator.releases == ()


def test_columns_without_smoothness_stay_out():
    (solution,), curator = solve(DPSVRG(), smoothness=np.array([1.0, 0.0, 1.0, 0.0]))
    assert solution.weights[1] == solution.weights[3] == 0.0
    assert solution.weights[0] != 0.0
    assert curator.tape[0][0].view.columns.tolist() == [0, 2]
    (solution,), curator = solve(DPSVRG(), smoothness=np.zeros(4))
    assert not solution.weights.any()
    assert curator.releases == ()


@pytest.mark.parametrize(("loss", "penalty"), [(loss, L2(0.01)) for loss in LOSSES] + [(Squared(), L1(0.01))], ids=name)
def test_reaches_the_optimum_without_noise(loss, penalty, rng):
    """Clipped changes of gradients make it slower, not wrong: they vanish where the snapshot stays in place."""
    X, y = simulate(loss, 300, 3, rng)
    X = X / np.sqrt(np.mean(X**2, axis=0))
    smoothness = loss.curvature * np.ones(3)
    solver = DPSVRG(n_loops=60, n_steps=60, batch_size=30, clip=1e6)
    settings = {"loss": loss, "penalty": penalty, "epsilon": math.inf, "fit_intercept": False, "random_state": 0}
    model = DPGeneralizedLinearModel(solver=solver, smoothness=smoothness, **settings).fit(X, y)
    best = objective(X, y, loss, penalty, optimum(X, y, loss, penalty)[0])
    zero = objective(X, y, loss, penalty, np.zeros(3))
    assert objective(X, y, loss, penalty, model.coef_) - best <= 1e-5 * (zero - best)


def test_statements_hold_up(rng):
    X, y = simulate(Squared(), 2000, 3, rng)
    model = DPRidge(solver=DPSVRG(n_loops=2), feature_bounds=(-40, 40), random_state=0).fit(X, y)
    assert model.privacy_.relation == "replace one record"
    assert 0.99 < model.privacy_.spent_epsilon <= 1.0
    verification = verify(model.privacy_.to_json())
    assert verification.recomputed_epsilon <= 1.01
    labels = np.argmax(rng.normal(size=(2000, 3)) + X[:, [0, 1, 2]], axis=1)
    classifier = DPLogisticRegression(solver=DPSVRG(n_loops=2), feature_bounds=(-40, 40), random_state=0)
    assert 0.98 < classifier.fit(X, labels).privacy_.spent_epsilon <= 1.0


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"n_loops": 0}, "n_loops"),
        ({"n_steps": 1.5}, "n_steps"),
        ({"batch_size": -1}, "batch_size"),
        ({"clip": math.inf}, "clip"),
        ({"step_size": 0.0}, "step_size"),
        ({"snapshot_share": 1.0}, "snapshot_share"),
    ],
)
def test_wrong_settings(settings, message):
    with pytest.raises(ValueError, match=message):
        DPSVRG(**settings)


def test_wrong_mechanisms():
    def make(**changes):
        return inner_loop(FixedSize(2, 5), **changes)

    with pytest.raises(ValueError, match="clip"):
        make(clip=math.inf)
    for columns in ([0, 0, 1], [0, 1, 3], [-1, 0, 1], []):
        with pytest.raises(ValueError, match="columns"):
            make(columns=columns)
    with pytest.raises(ValueError, match="one value for each of 2 columns"):
        make(columns=[0, 1])
    with pytest.raises(ValueError, match="and 3 columns"):
        make().run(Columns.copy_of(np.ones((6, 2)), np.ones(6)), NoNoise())
    with pytest.raises(ValueError, match="made for 5 records"):
        make().run(Columns.copy_of(np.ones((6, 3)), np.ones(6)), NoNoise())
