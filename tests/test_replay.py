"""Record and replay of every solver with every loss and every penalty: see replay.py."""

import math

import numpy as np
import pytest

from dpcd.losses import Huber, Logistic, Squared
from dpcd.penalties import L1, L2, Zero
from dpcd.privacy import Columns, PrivacyBudget, SeededNoise
from dpcd.privacy.records import GradientSizes, JointGradient, MomentMatrix
from dpcd.ranges.scales import Declared, prepare
from dpcd.solvers import (
    DPCD,
    DPGCD,
    DPSCD,
    DPSGD,
    DPSVRG,
    AdaSSP,
    Auto,
    BoostedAdaSSP,
    DPBlockCD,
    DPFrankWolfe,
    DPNewton,
    GaussianSmoothness,
    LaplaceSmoothness,
    ObjectivePerturbation,
    OutputPerturbation,
    Problem,
    Screened,
)
from problems import LOSSES, PENALTIES, name, simulate
from replay import KeepingNoise, RecordingCurator, ReplayingCurator, check_books, check_sensitivity

SOLVERS = [
    DPCD(n_passes=3),
    DPCD(n_passes=4, clip=1.0, order="random", average="periodic", n_loops=2),
    DPCD(n_passes=2, clip=[0.1, 1.0, 3.0, 0.5], order="cyclic", average="last"),
    DPCD(n_passes=4, clip="adaptive", active_set=True),
    DPSGD(n_passes=2, batch_size=5, clip=1.0),
    DPSGD(n_passes=1, batch_size=60),
    DPSCD(row_norm=5.0, n_passes=2, lot_size=10),
    DPSVRG(n_loops=2, n_steps=5, batch_size=5),
    DPGCD(n_updates=4),
    DPFrankWolfe(n_steps=4),
    Screened(DPCD(n_passes=2), n_kept=1),
    OutputPerturbation(strength=0.3),
    ObjectivePerturbation(strength=1.0, row_bound=0.7),
    DPNewton(),
    DPNewton(n_steps=3),
    DPBlockCD(),
    DPBlockCD(n_steps=5),
    Auto(),
    Screened(Auto(), n_kept=2),
    AdaSSP(),
    BoostedAdaSSP(),
]
BUDGET = PrivacyBudget(2.0, 1e-4)


def ids(value):
    return f"{type(value).__name__}{SOLVERS.index(value)}" if value in SOLVERS else name(value)


def neighbours(loss, rng, n=60):
    X, y = simulate(loss, n, 3, rng)
    other_X, other_y = X.copy(), y.copy()
    # A record as unlike the one it replaces as can be.
    other_X[7] = [1e6, -1e308, 5e-324]
    other_y[7] = -y[7] if abs(y[7]) == 1.0 else 1e9
    return (X, y), (other_X, other_y)


def run(curator, solver, loss, penalty, smoothness, bounds):
    """What an estimator does between the curator and the model."""
    declared = Declared(bounds, None, smoothness)
    scales = prepare(curator, loss, declared, 3, intercept=True, needs_slope=solver.needs_slope)
    n_penalized = 4 if isinstance(solver, DPSCD) else 3
    problem = Problem(loss, penalty, scales.smoothness, n_penalized, scales.slope)
    return solver.solve(curator, problem, 1, np.random.default_rng(5)).weights


@pytest.mark.parametrize("solver", SOLVERS, ids=ids)
@pytest.mark.parametrize("loss", LOSSES, ids=name)
@pytest.mark.parametrize("penalty", PENALTIES, ids=name)
def test_record_and_replay(solver, loss, penalty, rng):
    if isinstance(solver, DPSCD) and not isinstance(penalty, L2):
        pytest.skip("DP-SCD takes the l2 penalty only, and says so")
    if isinstance(solver, DPFrankWolfe) and not isinstance(penalty, (L1, Zero)):
        pytest.skip("DP-Frank–Wolfe takes the l1 penalty only, or none, and says so")
    if isinstance(solver, (OutputPerturbation, ObjectivePerturbation)) and not isinstance(penalty, (L2, Zero)):
        pytest.skip("perturbed minima take the l2 penalty only, or none, and say so")
    if isinstance(solver, (AdaSSP, BoostedAdaSSP)) and not isinstance(loss, Squared):
        pytest.skip("sufficient statistics are for the squared loss only, and say so")
    (X, y), (other_X, other_y) = neighbours(loss, rng)
    for smoothness, bounds in (
        (GaussianSmoothness(), (np.full(3, -20.0), np.full(3, 20.0))),
        (np.ones(3), None),
    ):
        noise = KeepingNoise(SeededNoise(np.random.default_rng(2)))
        budget = PrivacyBudget(2.0, 1e-4, solver.renyi_order(len(y), 4, 2.0, 1e-4, 1))
        recorder = RecordingCurator(Columns.copy_of(X, y, True), budget, noise)
        weights = run(recorder, solver, loss, penalty, smoothness, bounds)
        assert recorder.budget.admits(recorder.spent)
        check_books(recorder.tape, recorder, noise.drawn)
        neighbour = ReplayingCurator(recorder.tape, Columns.copy_of(other_X, other_y, True), budget, noise)
        assert np.array_equal(run(neighbour, solver, loss, penalty, smoothness, bounds), weights, equal_nan=True)
        assert neighbour.finished, "the neighbour is asked fewer questions"
        check_sensitivity(recorder.tape, recorder._columns, neighbour._columns)


@pytest.mark.parametrize("smoothness", [GaussianSmoothness(), LaplaceSmoothness(0.2)], ids=name)
def test_learnt_ranges_replay(smoothness, rng):
    (X, y), (other_X, other_y) = neighbours(LOSSES[0], rng, n=3000)
    # A column far from zero, so that there is a centre to learn.
    X[:, 1] += 500.0
    other_X[:, 1] += 500.0
    noise = KeepingNoise(SeededNoise(np.random.default_rng(2)))
    recorder = RecordingCurator(Columns.copy_of(X, y, True), BUDGET, noise)
    weights = run(recorder, DPCD(n_passes=2), LOSSES[0], L2(0.1), smoothness, None)
    asked = [type(mechanism).__name__ for mechanism, _ in recorder.tape]
    assert asked.count("DyadicCounts") >= 3, "the target, columns, and again around what was found"
    assert asked.count("ClippedMeans") == 2
    check_books(recorder.tape, recorder, noise.drawn)
    neighbour = ReplayingCurator(recorder.tape, Columns.copy_of(other_X, other_y, True), BUDGET, noise)
    assert np.array_equal(run(neighbour, DPCD(n_passes=2), LOSSES[0], L2(0.1), smoothness, None), weights)
    check_sensitivity(recorder.tape, recorder._columns, neighbour._columns)


@pytest.mark.parametrize(
    "solver",
    [
        DPNewton(),
        DPNewton(n_steps=3),
        DPBlockCD(),
        DPBlockCD(n_steps=5),
        Screened(Auto(), n_kept=2),
        AdaSSP(),
        BoostedAdaSSP(),
    ],
    ids=lambda solver: f"{type(solver).__name__}-{getattr(solver, 'n_steps', None)}",
)
@pytest.mark.parametrize("loss", LOSSES, ids=name)
def test_whole_records_replay_where_there_is_enough_to_see(solver, loss, rng):
    """Sixty records are too few for solvers that set clips from what they see of the gradients."""
    if isinstance(solver, (AdaSSP, BoostedAdaSSP)) and not isinstance(loss, Squared):
        pytest.skip("sufficient statistics are for the squared loss only, and say so")
    (X, y), (other_X, other_y) = neighbours(loss, rng, n=1500)
    noise = KeepingNoise(SeededNoise(np.random.default_rng(2)))
    recorder = RecordingCurator(Columns.copy_of(X, y, True), BUDGET, noise)
    penalty = PENALTIES[2]
    smoothness = loss.curvature * np.mean(X**2, axis=0)
    weights = run(recorder, solver, loss, penalty, smoothness, None)
    asked = {type(mechanism).__name__ for mechanism, _ in recorder.tape}
    assert {"MomentMatrix", "GradientSizes", "JointGradient"} <= asked
    assert weights.any()
    assert recorder.spent.mu_squared <= BUDGET.gaussian_room()
    check_books(recorder.tape, recorder, noise.drawn)
    neighbour = ReplayingCurator(recorder.tape, Columns.copy_of(other_X, other_y, True), BUDGET, noise)
    assert np.array_equal(run(neighbour, solver, loss, penalty, smoothness, None), weights)
    assert neighbour.finished, "the neighbour is asked fewer questions"
    check_sensitivity(recorder.tape, recorder._columns, neighbour._columns)


def far_targets(rng):
    X = rng.normal(size=(2000, 3))
    return X, 50.0 * X[:, 0] + rng.normal(size=2000), Huber(1.0)


def a_rare_class(rng):
    X = np.column_stack([np.ones(40_000), rng.normal(size=(40_000, 3))])
    return X, np.where(rng.random(40_000) < 1.0 / (1.0 + np.exp(5.5 - X[:, 1])), 1.0, -1.0), Logistic()


def looks_before_the_first_step(mechanisms):
    """How often sizes are looked at; 0 if no step follows."""
    kinds = [type(mechanism) for mechanism in mechanisms]
    return kinds[: kinds.index(JointGradient)].count(GradientSizes) if JointGradient in kinds else 0


def few_records(rng):
    X = rng.normal(size=(60, 2))
    return X, X[:, 0] + 0.3 * rng.normal(size=60), Squared()


def many_columns(rng):
    X = rng.normal(size=(200, 20))
    return X, X[:, 0] + rng.normal(size=200), Squared()


@pytest.mark.parametrize(
    ("sample", "solver"),
    [
        (far_targets, DPNewton()),
        (far_targets, DPBlockCD()),
        (a_rare_class, DPNewton()),
        (few_records, DPNewton()),
        (few_records, DPBlockCD()),
        (few_records, AdaSSP(moments=0.2)),
        (many_columns, DPBlockCD()),
    ],
    ids=lambda value: getattr(value, "__name__", type(value).__name__),
)
def test_paths_that_few_tables_take_replay(sample, solver, rng):
    """Eased thresholds, Hessians that are released again, second looks, and no moments."""
    X, y, loss = sample(rng)
    other_X, other_y = X.copy(), y.copy()
    other_X[7], other_y[7] = 1e6, (-y[7] if isinstance(loss, Logistic) else 1e9)
    problem = Problem(loss, L2(1e-4), loss.curvature * np.mean(X**2, axis=0), X.shape[1])
    noise = KeepingNoise(SeededNoise(np.random.default_rng(2)))
    recorder = RecordingCurator(Columns.copy_of(X, y), BUDGET, noise)
    weights = solver.solve(recorder, problem, 1, np.random.default_rng(5)).weights
    mechanisms = [mechanism for mechanism, _ in recorder.tape]
    thresholds = {mechanism.view.loss for mechanism in mechanisms if isinstance(mechanism, JointGradient)}
    assert {
        far_targets: len(thresholds) > 3,
        a_rare_class: sum(isinstance(mechanism, MomentMatrix) and mechanism.weighted for mechanism in mechanisms) > 2,
        few_records: looks_before_the_first_step(mechanisms) == 2,
        many_columns: not any(isinstance(mechanism, MomentMatrix) for mechanism in mechanisms),
    }[sample], "the path is not taken"
    check_books(recorder.tape, recorder, noise.drawn)
    neighbour = ReplayingCurator(recorder.tape, Columns.copy_of(other_X, other_y), BUDGET, noise)
    assert np.array_equal(solver.solve(neighbour, problem, 1, np.random.default_rng(5)).weights, weights)
    assert neighbour.finished, "the neighbour is asked fewer questions"
    check_sensitivity(recorder.tape, recorder._columns, neighbour._columns)


class TestTheHarnessCatches:
    """Deliberately broken twins of the solver and its mechanism."""

    def tape(self, rng, solver):
        (X, y), (other_X, other_y) = neighbours(LOSSES[0], rng)
        noise = KeepingNoise(SeededNoise(np.random.default_rng(2)))
        recorder = RecordingCurator(Columns.copy_of(X, y, True), BUDGET, noise)
        run(recorder, solver, LOSSES[0], L2(0.1), np.ones(3), None)
        return recorder, noise, Columns.copy_of(other_X, other_y, True)

    def test_a_step_that_looks_at_the_data(self, rng):
        class Peeking(DPCD):
            def solve(self, curator, problem, parts, choices):
                step = 1.0 / (1.0 + float(np.abs(curator._columns.target).max()))
                return DPCD(n_passes=2, clip=1.0, step_size=step).solve(curator, problem, parts, choices)

        solver = Peeking(n_passes=2, clip=1.0)
        recorder, noise, neighbour = self.tape(rng, solver)
        replaying = ReplayingCurator(recorder.tape, neighbour, BUDGET, noise)
        with pytest.raises(AssertionError, match="steps depends on the data"):
            run(replaying, solver, LOSSES[0], L2(0.1), np.ones(3), None)

    def test_noise_made_for_half_the_sensitivity(self, rng):
        recorder, _, neighbour = self.tape(rng, DPCD(n_passes=2, clip=1.0))
        mechanism, answer = recorder.tape[-1]

        class Halved(type(mechanism)):
            def sensitivity(self, bound):
                return super().sensitivity(bound) / 4.0

        fields = {name: getattr(mechanism, name) for name in mechanism.__dataclass_fields__}
        with pytest.raises(AssertionError, match="of its sensitivity"):
            check_sensitivity([(Halved(**fields), answer)], recorder._columns, neighbour)

    def test_noise_that_is_reused(self, rng):
        recorder, noise, _ = self.tape(rng, DPCD(n_passes=2, clip=1.0))
        with pytest.raises(AssertionError, match="came up twice"):
            check_books(recorder.tape, recorder, noise.drawn + noise.drawn[:1])

    def test_a_release_that_was_not_charged(self, rng):
        recorder, noise, _ = self.tape(rng, DPCD(n_passes=2, clip=1.0))
        with pytest.raises(AssertionError):
            check_books(recorder.tape * 2, recorder, noise.drawn)

    def test_the_sensitivity_is_used_to_the_full(self, rng):
        """The check has teeth: an honest run comes close to what it allows."""
        recorder, _, neighbour = self.tape(rng, DPCD(n_passes=2, clip=1e-3))
        closest = check_sensitivity(recorder.tape, recorder._columns, neighbour)
        assert 0.9 < closest <= 1.0 + 1e-12
        assert math.isfinite(closest)

    def test_dual_steps_are_asked_about_a_record_that_differs(self, rng):
        (X, y), (other_X, other_y) = neighbours(LOSSES[0], rng)
        solver = DPSCD(row_norm=5.0, n_passes=1, lot_size=10, clip=1e-3)
        budget = PrivacyBudget(2.0, 1e-4, solver.renyi_order(len(y), 3, 2.0, 1e-4, 1))
        recorder = RecordingCurator(Columns.copy_of(X, y), budget, SeededNoise(rng))
        solver.solve(recorder, Problem(LOSSES[0], L2(0.1), np.ones(3), 3), 1, rng)
        other_X[7], other_y[7] = X[7], -1e9 * np.sign(y[7])
        closest = check_sensitivity(recorder.tape, recorder._columns, Columns.copy_of(other_X, other_y))
        assert 0.5 < closest <= 1.0
