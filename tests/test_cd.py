import math

import numpy as np
import pytest

import twins
from dpcd.losses import Logistic, Squared
from dpcd.nonprivate import optimum
from dpcd.penalties import L1, Zero
from dpcd.privacy import BudgetExceeded, Columns, PrivacyBudget, SeededNoise
from dpcd.solvers import DPCD, Problem
from replay import RecordingCurator

CHOICES = np.random.default_rng
SQUARED = Squared()


def problem_and_curator(n=400, p=4, epsilon=1.0, loss=SQUARED, seed=0):
    rng = np.random.default_rng(seed)
    scales = np.geomspace(0.1, 10, p)
    X = rng.normal(size=(n, p)) * scales
    y = X @ (rng.normal(size=p) / scales) + 0.1 * rng.normal(size=n)
    curator = RecordingCurator(
        Columns.copy_of(X, y), PrivacyBudget(epsilon, 1e-6), SeededNoise(np.random.default_rng(seed + 1))
    )
    return Problem(loss, L1(0.01), np.mean(X**2, axis=0), p, slope=2.0), curator


def test_paper_rule_for_thresholds_steps_and_noise():
    problem, curator = problem_and_curator()
    DPCD(n_passes=5, step_size=0.5, clip=3.0).solve(curator, problem, 1, CHOICES(0))
    ((updates, _),) = curator.tape
    M = problem.smoothness
    np.testing.assert_allclose(updates.clip, 3.0 * np.sqrt(M / M.sum()))
    np.testing.assert_allclose(updates.steps, 0.5 / M)
    assert np.ptp(updates.noise_multiplier) == 0.0
    assert updates.count == 20
    assert 0.9999 < curator.spent.epsilon(1e-6) <= 1.0


@pytest.mark.parametrize("order", ["permuted", "random", "cyclic"])
def test_orders(order):
    problem, curator = problem_and_curator()
    DPCD(n_passes=6, clip=3.0, order=order).solve(curator, problem, 1, CHOICES(0))
    coordinates = curator.tape[0][0].coordinates
    passes = coordinates.reshape(6, 4)
    if order == "cyclic":
        assert np.array_equal(passes, np.tile(np.arange(4), (6, 1)))
    elif order == "permuted":
        assert np.array_equal(np.sort(passes, axis=1), np.tile(np.arange(4), (6, 1)))
        assert len(np.unique(passes, axis=0)) > 1
    else:
        assert set(coordinates) <= set(range(4))
        assert not np.array_equal(np.sort(passes, axis=1), np.tile(np.arange(4), (6, 1)))


@pytest.mark.parametrize(("average", "n_loops"), [("last", 1), ("tail", 1), ("periodic", 1), ("periodic", 3)])
def test_averages_equal_averages_of_the_iterates(average, n_loops):
    problem, curator = problem_and_curator()
    solver = DPCD(n_passes=6, clip=3.0, average=average, n_loops=n_loops)
    solution = solver.solve(curator, problem, 1, CHOICES(0))
    assert len(curator.tape) == n_loops
    assert sum(updates.count for updates, _ in curator.tape) == 4 * solution.n_passes == 24
    expected = np.zeros(4)
    for updates, (_, values) in curator.tape:
        np.testing.assert_allclose(updates.start, expected, atol=1e-12)
        points = twins.iterates(updates.start, updates.coordinates, values)
        kept = {"last": 1, "tail": math.ceil(len(points) / 4), "periodic": len(points)}[average]
        expected = points[-kept:].mean(axis=0)
    np.testing.assert_allclose(solution.weights, expected, rtol=1e-12)
    if n_loops == 1:
        np.testing.assert_array_equal(solution.path, points[3::4])


def test_allocation_minimizes_the_effect_of_noise_for_thresholds_of_ones_own():
    problem, curator = problem_and_curator()
    clip = np.array([0.1, 5.0, 0.3, 1.0])
    room = curator.gaussian_room
    DPCD(n_passes=5, clip=clip).solve(curator, problem, 1, CHOICES(0))
    updates = curator.tape[0][0]
    counts = np.bincount(updates.coordinates)

    def effect(z):
        return np.sum((z * clip) ** 2 / problem.smoothness)

    best = updates.noise_multiplier
    assert np.sum(counts / best**2) == pytest.approx(room, rel=1e-6)
    equal = np.full(4, math.sqrt(counts.sum() / room))
    assert effect(best) < 0.9 * effect(equal)
    rng = np.random.default_rng(0)
    for _ in range(100):
        other = best * np.exp(0.1 * rng.normal(size=4))
        other *= math.sqrt(np.sum(counts / other**2) / room)
        assert effect(other) >= effect(best) * (1 - 1e-9)


def test_equal_shares_are_optimal_under_the_papers_rule():
    """Declaring the paper's own thresholds one by one gives the same noise as its rule."""
    problem, curator = problem_and_curator()
    clip = 3.0 * np.sqrt(problem.smoothness / problem.smoothness.sum())
    DPCD(n_passes=5, clip=clip).solve(curator, problem, 1, CHOICES(0))
    noise = curator.tape[0][0].noise_multiplier
    np.testing.assert_allclose(noise, noise[0], rtol=1e-9)


def test_default_settings_follow_public_numbers_only():
    problem, curator = problem_and_curator(n=5000)
    DPCD().solve(curator, problem, 1, CHOICES(0))
    updates = curator.tape[0][0]
    np.testing.assert_allclose(updates.clip, 2.5 * problem.slope * np.sqrt(problem.smoothness))
    assert 2 * 4 <= updates.count <= 100 * 4
    tiny_problem, tiny_curator = problem_and_curator(n=20, epsilon=0.01)
    solution = DPCD().solve(tiny_curator, tiny_problem, 1, CHOICES(0))
    assert solution.n_passes == 0
    assert not solution.weights.any()
    assert tiny_curator.releases == ()


def test_columns_without_smoothness_stay_out():
    problem, curator = problem_and_curator()
    problem = Problem(problem.loss, Zero(), problem.smoothness * [1, 0, 1, 0], 4, slope=1.0)
    solution = DPCD(n_passes=4).solve(curator, problem, 1, CHOICES(0))
    assert set(curator.tape[0][0].coordinates) == {0, 2}
    assert solution.weights[1] == solution.weights[3] == 0.0
    assert solution.weights[0] != 0.0


def test_budget_is_divided_exactly_whatever_the_loops():
    problem, curator = problem_and_curator()
    solver = DPCD(n_passes=7, clip=2.0, average="periodic", n_loops=3, order="random")
    solver.solve(curator, problem, 2, CHOICES(0))
    solver.solve(curator, problem, 1, CHOICES(1))
    assert 0.9999 < curator.spent.epsilon(1e-6) <= 1.0


def test_logistic_uses_the_slope_bound():
    problem, curator = problem_and_curator(loss=Logistic())
    DPCD(n_passes=2, clip=None).solve(curator, problem, 1, CHOICES(0))
    updates = curator.tape[0][0]
    np.testing.assert_allclose(updates.clip, 2.5 * 2.0 * np.sqrt(problem.smoothness / 0.25))


def test_equal_allocation_is_on_offer():
    problem, curator = problem_and_curator()
    DPCD(n_passes=5, clip=[0.1, 5.0, 0.3, 1.0], allocation="equal").solve(curator, problem, 1, CHOICES(0))
    assert np.ptp(curator.tape[0][0].noise_multiplier) == 0.0
    assert 0.9999 < curator.spent.epsilon(1e-6) <= 1.0


def sparse_problem(n=20_000, p=12, epsilon=1.0, penalty=None, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, p))
    y = 3.0 * X[:, 0] - 2.0 * X[:, 1] + 0.1 * rng.normal(size=n)
    curator = RecordingCurator(Columns.copy_of(X, y), PrivacyBudget(epsilon, 1e-6), SeededNoise(rng))
    return Problem(SQUARED, L1(0.01) if penalty is None else penalty, np.ones(p), p, slope=3.7), curator


def test_adaptive_clips_go_down_with_the_residuals():
    problem, curator = sparse_problem()
    DPCD(n_passes=12, clip="adaptive").solve(curator, problem, 1, CHOICES(0))
    kinds = [type(mechanism).__name__ for mechanism, _ in curator.tape]
    assert kinds == ["CoordinateUpdates", "DerivativeSizes"] * 2 + ["CoordinateUpdates"]
    first, second, third = (mechanism.clip for mechanism, _ in curator.tape[::2])
    np.testing.assert_allclose(first, 2.5 * 3.7)
    assert third[0] <= second[0] < first[0]
    assert np.ptp(third) == 0.0
    assert 0.9999 < curator.spent.epsilon(1e-6) <= 1.0
    levels = sum(mechanism.cost.mu_squared for mechanism, _ in curator.tape[1::2])
    assert levels == pytest.approx(0.04 * curator.spent.mu_squared, rel=1e-4)
    assert [mechanism.count for mechanism, _ in curator.tape[::2]] == [12, 24, 108]


def test_adaptive_clips_stay_where_noise_hides_the_sizes():
    problem, curator = sparse_problem(n=500, epsilon=0.3)
    DPCD(n_passes=4, clip="adaptive").solve(curator, problem, 1, CHOICES(0))
    np.testing.assert_allclose(curator.tape[-1][0].clip, 2.5 * 3.7)
    # One pass leaves nothing to adapt, and all of the budget to itself.
    problem, curator = sparse_problem()
    DPCD(n_passes=1, clip="adaptive").solve(curator, problem, 1, CHOICES(0))
    assert len(curator.tape) == 1
    assert 0.9999 < curator.spent.epsilon(1e-6) <= 1.0


def test_an_active_set_leaves_out_what_is_not_beyond_the_noise():
    problem, curator = sparse_problem(epsilon=0.3)
    solution = DPCD(n_passes=8, active_set=True).solve(curator, problem, 1, CHOICES(0))
    before, after = (mechanism for mechanism, _ in curator.tape)
    assert before.count == 4 * 12
    kept = np.unique(after.coordinates)
    assert {0, 1} <= set(kept.tolist())
    assert len(kept) < 12
    left_out = np.setdiff1d(np.arange(12), kept)
    assert not after.start[left_out].any()
    assert not solution.weights[left_out].any()
    # Half of the budget for fewer updates: less noise in each.
    assert after.noise_multiplier[0] < before.noise_multiplier[0] * math.sqrt(len(kept) / 12) * 1.001
    assert after.cost.mu_squared == pytest.approx(before.cost.mu_squared, rel=1e-6)
    assert 0.2999 < curator.spent.epsilon(1e-6) <= 0.3


def test_an_active_set_never_loses_the_intercept_and_may_be_empty():
    rng = np.random.default_rng(1)
    X, y = rng.normal(size=(5000, 3)), 0.01 * rng.normal(size=5000)
    for n_penalized in (2, 3):
        curator = RecordingCurator(Columns.copy_of(X, y), PrivacyBudget(1.0, 1e-6), SeededNoise(rng))
        problem = Problem(SQUARED, L1(0.5), np.ones(3), n_penalized, slope=0.1)
        solution = DPCD(n_passes=4, active_set=True).solve(curator, problem, 1, CHOICES(0))
        assert not solution.weights[:n_penalized].any()
        if n_penalized == 2:
            assert set(curator.tape[1][0].coordinates) == {2}
        else:
            assert len(curator.tape) == 1
            assert solution.n_passes == 2


@pytest.mark.parametrize(
    "options", [{"active_set": True, "clip": math.inf}, {"clip": "adaptive"}, {"clip": "adaptive", "active_set": True}]
)
def test_options_solve_the_same_problem_without_noise(options):
    """Up to the bias of clipping, which for records this tame is none."""
    penalty = L1(0.2)
    problem, curator = sparse_problem(n=2000, epsilon=math.inf, penalty=penalty)
    weights = DPCD(n_passes=60, average="last", **options).solve(curator, problem, 1, CHOICES(0)).weights
    X, y = curator._columns.features, curator._columns.target
    best, _ = optimum(X, y, SQUARED, penalty)
    np.testing.assert_allclose(weights, best, atol=1e-6)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"clip": "large"}, "adaptive"),
        ({"allocation": "random"}, "allocation"),
        ({"clip": "adaptive", "average": "periodic"}, "periodic"),
        ({"active_set": True, "average": "periodic"}, "periodic"),
        ({"clip": "adaptive", "noise_multiplier": 9.0}, "noise_multiplier"),
        ({"n_passes": 0}, "n_passes"),
        ({"n_passes": 2.5}, "n_passes"),
        ({"step_size": 0.0}, "step_size"),
        ({"step_size": math.inf}, "step_size"),
        ({"clip": -1.0}, "clip"),
        ({"clip": [1.0, math.nan]}, "clip"),
        ({"order": "sideways"}, "order"),
        ({"average": "middle"}, "average"),
        ({"n_loops": 0}, "n_loops"),
        ({"n_loops": 2}, "periodic"),
        ({"noise_multiplier": -1.0}, "noise_multiplier"),
        ({"noise_multiplier": math.inf}, "noise_multiplier"),
    ],
)
def test_wrong_settings(settings, message):
    with pytest.raises(ValueError, match=message):
        DPCD(**settings)


def test_check_before_anything_is_charged():
    with pytest.raises(ValueError, match="each of 3 columns"):
        DPCD(clip=[1.0, 2.0]).check(SQUARED, Zero(), 3, False, private=True)
    with pytest.raises(ValueError, match="infinite clip"):
        DPCD(clip=math.inf).check(SQUARED, Zero(), 3, False, private=True)
    with pytest.raises(ValueError, match="all columns"):
        DPCD(clip=[math.inf, 1.0, 1.0]).check(SQUARED, Zero(), 3, False, private=False)
    DPCD(clip=math.inf).check(SQUARED, Zero(), 3, False, private=False)
    DPCD().check(SQUARED, Zero(), 3, False, private=True)
    DPCD(clip="adaptive").check(SQUARED, Zero(), 3, False, private=True)


def test_a_noise_multiplier_of_ones_own_is_charged_for_what_it_is():
    problem, curator = problem_and_curator()
    solver = DPCD(n_passes=5, clip=2.0, noise_multiplier=80.0)
    solver.solve(curator, problem, 1, CHOICES(0))
    assert curator.spent.mu_squared == pytest.approx(20 / 80.0**2)
    with pytest.raises(BudgetExceeded):
        DPCD(n_passes=5, clip=2.0, noise_multiplier=0.5).solve(curator, problem, 1, CHOICES(0))


def test_a_loss_that_does_not_compile_fails_before_anything_is_charged():
    from typing import NamedTuple

    class Unknown(NamedTuple):
        curvature = 1.0
        lipschitz = 1.0

        def value(self, y, z):
            return 0.0

        def derivative(self, y, z):
            return some_name_that_is_not_there(y)  # noqa: F821

    with pytest.raises(Exception, match="some_name_that_is_not_there"):
        DPCD().check(Unknown(), Zero(), 3, False, private=True)
