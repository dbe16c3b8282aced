"""Output and objective perturbation: sensitivity, the theorem, the certificate, the cost, and what comes out."""

import math
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.integrate import quad

from attack import wild_floats
from dpcd import DPLogisticRegression, DPRidge
from dpcd.audit import NoNoise
from dpcd.losses import Huber, Logistic, SmoothedHinge, Squared
from dpcd.nonprivate import objective, optimum
from dpcd.penalties import L1, L2, Zero
from dpcd.privacy import Columns, Curator, PrivacyBudget, PrivacyCost, SeededNoise
from dpcd.privacy.accounting import ORDERS, SMALLEST_SCALE
from dpcd.privacy.rivals import minima as core
from dpcd.privacy.rivals.minima import MinimumOfNoisyObjective, NoisyMinimum, tilt_divergence
from dpcd.solvers import ObjectivePerturbation, OutputPerturbation, Problem
from dpcd.verify import StatementError, verify
from problems import LOSSES, name, simulate

MECHANISM_LOSSES = [Squared(), Logistic(), Huber(0.7), SmoothedHinge(0.25)]
SOLVERS = [OutputPerturbation(), ObjectivePerturbation()]


class Scripted:
    """A noise source that hands out given integers (zeros after that) and remembers the scales it was asked for."""

    description, private = "scripted", False

    def __init__(self, *draws):
        self._draws = list(draws)
        self.scales = []

    def gaussian(self, scale, size):
        self.scales.append((scale, size))
        return self._draws.pop(0) if self._draws else np.zeros(size, dtype=np.int64)


def fields(loss, n=6, p=3, **changes):
    problem = {
        "loss": loss,
        "scales": np.geomspace(0.5, 2.0, p),
        "ridge": np.linspace(0.0, 0.1, p),
        "strength": 0.02,
        "row_norm": 2.0,
        "clip": 0.8,
        "n_records": n,
    }
    return problem | changes


def noisy_minimum(loss, **changes):
    return NoisyMinimum(**fields(loss, **changes), noise_multiplier=3.0)


def perturbed(loss, s=3.0, **changes):
    return MinimumOfNoisyObjective(**fields(loss, **changes), noise_multiplier=s, output_multiplier=40.0)


def run(mechanism, X, y, *draws):
    """What comes out, in scaled coordinates, and the noise asked for."""
    noise = Scripted(*draws)
    with np.errstate(all="ignore"):
        weights = mechanism.run(Columns.copy_of(X, y), noise)
    return weights * mechanism.scales, noise.scales


def slope(loss, y, z):
    """∂ℓ/∂z of arrays, in the precision they come in."""
    if isinstance(loss, Logistic):
        return -y / (1 + np.exp(np.minimum(y * z, 700)))
    if isinstance(loss, SmoothedHinge):
        return -y * np.clip((1 - y * z) / loss.width, 0, 1)
    threshold = getattr(loss, "threshold", np.inf)
    return np.clip(z - y, -threshold, threshold)


def gradient(mechanism, X, y, u):
    """The obvious gradient of J without its linear term."""
    rows = np.asarray(X, dtype=float) / mechanism.scales
    with np.errstate(all="ignore"):
        norms = np.linalg.norm(rows, axis=1)
    rows[~((norms > 1e-150) & (norms < 1e150))] = 0.0
    long = norms > mechanism.row_norm
    rows[long & np.isfinite(norms)] *= (mechanism.row_norm / norms[long & np.isfinite(norms)])[:, None]
    if isinstance(mechanism.loss, (Logistic, SmoothedHinge)):
        y = np.where(np.asarray(y) > 0, 1.0, -1.0)
    slopes = np.clip(slope(mechanism.loss, y, rows @ u), -mechanism.clip, mechanism.clip)
    pull = mechanism.n_records * (mechanism.ridge + mechanism.strength)
    return rows.T @ slopes + pull * u


class TestSensitivity:
    @settings(max_examples=60, deadline=None)
    @given(
        st.sampled_from(MECHANISM_LOSSES),
        arrays(np.float64, (6, 4), elements=wild_floats),
        arrays(np.float64, 4, elements=wild_floats),
        st.integers(0, 5),
    )
    def test_no_neighbours_move_the_minimum_by_more_than_the_noise_covers(self, loss, table, record, i):
        mechanism = noisy_minimum(loss)
        other = table.copy()
        other[i] = record
        (ours, scales), (theirs, same) = (run(mechanism, t[:, :3], t[:, 3]) for t in (table, other))
        assert scales == same
        ((scale, size),) = scales
        assert size == 3
        assert scale >= SMALLEST_SCALE
        unit = core._unit(3.0 * mechanism.sensitivity)
        assert np.linalg.norm(ours - theirs) / unit <= scale / 3.0 * (1 + 1e-12)

    @pytest.mark.parametrize("loss", MECHANISM_LOSSES, ids=name)
    def test_a_search_comes_close_to_the_bound_and_stays_below(self, loss, rng):
        """Records that pull as hard as they may, at the ends of the rows' ball, among few others."""
        mechanism = noisy_minimum(loss, ridge=np.zeros(3), strength=2.0)
        closest = 0.0
        for _ in range(60):
            X = rng.normal(size=(6, 3)) * rng.choice([0.0, 1.0, 10.0])
            y = rng.choice([-1.0, 1.0], size=6) * rng.choice([1.0, 30.0])
            X[0] = 100.0 * rng.normal(size=3)
            other_X, other_y = X.copy(), y.copy()
            other_X[0], other_y[0] = (X[0], -y[0]) if rng.random() < 0.5 else (100.0 * rng.normal(size=3), y[0])
            moved = np.linalg.norm(run(mechanism, X, y)[0] - run(mechanism, other_X, other_y)[0])
            closest = max(closest, moved / mechanism.sensitivity)
        assert 0.5 < closest <= 1.0 + 1e-6

    def test_the_bound_is_reached(self):
        """A record alone against the penalty moves the minimum by 2LR/m."""
        mechanism = noisy_minimum(Squared(), ridge=np.zeros(3))
        X = np.zeros((6, 3))
        X[0, 0] = 1e9
        ours, theirs = (run(mechanism, X, np.full(6, y))[0] for y in (1e12, -1e12))
        assert np.linalg.norm(ours - theirs) == pytest.approx(mechanism.sensitivity, rel=1e-4)

    @pytest.mark.parametrize("loss", MECHANISM_LOSSES, ids=name)
    def test_output_noise_covers_the_approximate_minimum(self, loss, rng):
        """The step from the theorem to the mechanism: noise that leads to the same exact minimum on both data sets."""
        mechanism = perturbed(loss)
        unit = core._unit(mechanism.tilt)
        closest = 0.0
        for _ in range(30):
            X, y = 3.0 * rng.normal(size=(6, 3)), rng.choice([-1.0, 1.0], size=6)
            other_X, other_y = X.copy(), y.copy()
            other_X[0], other_y[0] = [np.nan, 1.0, 1e200] if rng.random() < 0.2 else 50.0 * rng.normal(size=3), -y[0]
            exact = 5.0 * rng.normal(size=3)
            # As coarse as the lattice is: b is rounded, exactly as the coupling has it.
            points = []
            for features, target in ((X, y), (other_X, other_y)):
                b = -gradient(mechanism, features, target, exact)
                point, scales = run(mechanism, features, target, np.rint(b / unit).astype(np.int64))
                assert np.linalg.norm(point - exact) <= mechanism.distance * (1 + 1e-6)
                points.append(point)
            (tilt_scale, _), (scale, _) = scales
            assert tilt_scale * unit == pytest.approx(3.0 * 2 * mechanism.record_gradient)
            moved = np.linalg.norm(points[0] - points[1]) / core._unit(40.0 * 2 * mechanism.distance)
            assert moved <= scale / 40.0
            closest = max(closest, moved / (scale / 40.0))
        assert closest > 0.0

    @pytest.mark.parametrize("loss", [Logistic(), SmoothedHinge(0.25)], ids=name)
    def test_labels_are_made_labels(self, loss, rng):
        """A label of 5 would multiply the curvature by 25, beyond what the determinant is charged."""
        X, y = rng.normal(size=(6, 3)), rng.choice([-1.0, 1.0], size=6)
        odd = y * 5.0
        odd[y < 0] = [-5.0, math.nan, 0.0, -math.inf, -1e308, -1e-320][: np.count_nonzero(y < 0)]
        assert np.array_equal(run(noisy_minimum(loss), X, y)[0], run(noisy_minimum(loss), X, odd)[0])


class TestTheorem:
    """Rényi divergences in one dimension, by quadrature."""

    @staticmethod
    def divergences(mechanism, D, D_other, orders):
        """Of the densities of u*(b), on a grid that is fine where kinks are."""
        ends = (mechanism.n_records * mechanism.record_gradient + 12.0 * mechanism.tilt) / mechanism.convexity
        fine = np.linspace(-40.0, 40.0, 40_001)
        grid = np.unique(np.concatenate([np.linspace(-ends, ends, 40_001), fine[np.abs(fine) < ends]]))
        middle, width = 0.5 * (grid[1:] + grid[:-1]), np.diff(grid)

        def log_density(X, y):
            def value(u):
                slopes = slope(mechanism.loss, y[:, None], X * u)
                return np.sum(X * np.clip(slopes, -mechanism.clip, mechanism.clip), axis=0) + mechanism.convexity * u

            noise = value(middle) / mechanism.tilt
            return -0.5 * noise**2 + np.log(np.diff(value(grid)) / width / mechanism.tilt / math.sqrt(2 * math.pi))

        p, q = log_density(*D), log_density(*D_other)
        for log_law in (p, q):
            assert np.sum(np.exp(log_law) * width) == pytest.approx(1.0, abs=2e-3)
        for order in orders:
            exponent = order * p - (order - 1.0) * q
            top = exponent.max()
            yield (top + math.log(np.sum(np.exp(exponent - top) * width))) / (order - 1.0)

    def pairs(self, classes, rng):
        for x, y, other_x, other_y in (
            (1.0, 1.0, 1.0, -1.0),
            (1.0, 1.0, -1.0, 1.0),
            (1.0, 1.0, 0.0, 1.0),
            (1.0, 30.0, 1.0, -30.0),
            (1.0, 0.3, 1.0, 30.0),
        ):
            if classes and abs(y * other_y) != 1.0:
                continue
            X, target = rng.uniform(-1.0, 1.0, size=(2, 1)), rng.choice([-1.0, 1.0], size=2)
            X[0], target[0] = x, y
            other_X, other_target = X.copy(), target.copy()
            other_X[0], other_target[0] = other_x, other_y
            yield (X, target), (other_X, other_target)

    @pytest.mark.parametrize("loss", [Squared(), Logistic(), SmoothedHinge(0.25)], ids=name)
    @pytest.mark.parametrize(("strength", "s"), [(2.0, 0.7), (0.3, 2.0), (0.3, 0.5)])
    def test_divergences_stay_below_the_curve(self, loss, strength, s, rng):
        bounds = {"strength": strength, "row_norm": 1.0, "clip": 1.0}
        mechanism = perturbed(loss, s=s, n=2, p=1, scales=np.ones(1), ridge=np.zeros(1), **bounds)
        closest = 0.0
        for D, D_other in self.pairs(isinstance(loss, (Logistic, SmoothedHinge)), rng):
            orders = np.array([1.5, 3.0, 12.0, 50.0])
            bounds = mechanism.determinant + tilt_divergence(orders, s)
            for bound, measured in zip(bounds, self.divergences(mechanism, D, D_other, orders), strict=True):
                assert measured <= bound + 1e-3
                closest = max(closest, measured / bound)
        assert closest > 0.15

    def test_the_determinant_cannot_be_left_out(self):
        """Much noise, little pull: one record is curved where the other is flat."""
        mechanism = perturbed(
            Squared(), s=20.0, n=2, p=1, scales=np.ones(1), ridge=np.zeros(1), strength=0.1, row_norm=1.0, clip=0.5
        )
        X = np.array([[1.0], [0.0]])
        D, D_other = (X, np.zeros(2)), (X, np.array([1e6, 0.0]))
        (measured,) = self.divergences(mechanism, D, D_other, [60.0])
        assert (
            float(tilt_divergence(60.0, 20.0)) < measured <= mechanism.determinant + float(tilt_divergence(60.0, 20.0))
        )

    def test_the_sign_of_v_cannot_be_left_out(self):
        """A v that takes its sign from b has more than the Gaussian's divergence, and the curve covers it."""
        s, order = 2.0, 4.0
        folded = quad(lambda b: math.exp((order - 1) * (abs(b) / s + 0.5 / s**2) - b * b / 2), -30, 30)[0]
        exact = math.log(folded / math.sqrt(2 * math.pi)) / (order - 1)
        assert exact > order / (2 * s**2)
        assert exact == pytest.approx(float(tilt_divergence(order, s)), rel=1e-9)

    def test_one_record_changes_the_determinant_by_one_factor(self, rng):
        mechanism = perturbed(Logistic())
        for _ in range(50):
            rows = rng.normal(size=(7, 3)) * 10.0 ** rng.uniform(-2, 2, size=(7, 1))
            rows *= np.minimum(1.0, 2.0 / np.linalg.norm(rows, axis=1))[:, None]
            curvatures = rng.choice([0.0, 0.1, 0.25], size=7)
            common = (rows[2:].T * curvatures[2:]) @ rows[2:] + mechanism.convexity * np.eye(3)
            logs = [np.linalg.slogdet(common + curvatures[i] * np.outer(rows[i], rows[i]))[1] for i in (0, 1)]
            assert abs(logs[0] - logs[1]) <= mechanism.determinant


class TestCertificate:
    @pytest.mark.parametrize("loss", MECHANISM_LOSSES, ids=name)
    def test_rounding_is_what_it_is_said_to_be_at_most(self, loss, rng):
        """Gradients against extended precision, at points near and far."""
        n, p = 5000, 3
        mechanism = noisy_minimum(loss, n=n)
        X, y = 3.0 * rng.normal(size=(n, p)), rng.choice([-1.0, 1.0], size=n)
        task = core._Minimization(mechanism, Columns.copy_of(X, y), np.zeros(p))
        rows = task._rows.astype(np.longdouble)
        for length in (0.0, 1.0, 1e3, 1e6):
            u = length * rng.normal(size=p)
            slopes, _ = task._slopes(task._rows @ u)
            computed = task._gradient(u, slopes)
            z = rows @ u.astype(np.longdouble)
            labels = task._target.astype(np.longdouble)
            true = np.clip(slope(loss, labels, z), -mechanism.clip, mechanism.clip)
            exact = rows.T @ true + n * (mechanism.ridge + mechanism.strength) * u.astype(np.longdouble)
            error = float(np.linalg.norm((computed - exact).astype(float)))
            assert error <= mechanism.rounding(float(np.linalg.norm(u)), 0.0)

    @pytest.mark.parametrize("loss", MECHANISM_LOSSES, ids=name)
    def test_newton_finds_a_certificate_on_hard_problems(self, loss, rng, monkeypatch):
        """Weak penalties, separable labels, outliers, huge targets, doubled columns: the slow steps are not needed."""
        steps = []
        original = core._Minimization._newton_step
        monkeypatch.setattr(core._Minimization, "_newton_step", lambda self, *a: steps.append(0) or original(self, *a))
        for strength in (1e-6, 1e-3, 1.0):
            for kind in range(5):
                n = 200
                X = rng.normal(size=(n, 3)) * 10.0 ** rng.uniform(-3, 3, size=3)
                y = np.sign(X[:, 0]) * (1.0 if kind < 3 else 1e6)
                if kind == 1:
                    X[:, 1] = X[:, 0]
                if kind == 2:
                    X[::50] *= 1e12
                if kind == 4:
                    y[::2] = 0.0
                steps.clear()
                mechanism = noisy_minimum(loss, n=n, strength=strength, ridge=np.zeros(3), scales=np.ones(3))
                problem = core._Minimization(mechanism, Columns.copy_of(X, y), np.zeros(3))
                point = problem.certified(mechanism.tolerance(0.0))
                assert len(steps) < 60
                assert np.linalg.norm(gradient(mechanism, X, y, point)) <= 1.01 * mechanism.tolerance(0.0)

    def test_gradient_steps_get_there_too(self, rng, monkeypatch):
        monkeypatch.setattr(core, "_NEWTON_STEPS", 0)
        mechanism = noisy_minimum(Logistic(), strength=0.5)
        X, y = rng.normal(size=(6, 3)), rng.choice([-1.0, 1.0], size=6)
        slow, _ = run(mechanism, X, y)
        monkeypatch.undo()
        np.testing.assert_allclose(slow, run(mechanism, X, y)[0], atol=2 * mechanism.sensitivity * 1e-5)

    def test_the_tolerance_is_small_beside_the_sensitivity(self):
        for n in (10, 10**4, 10**7):
            mechanism = noisy_minimum(Logistic(), n=n, strength=100.0 / n, ridge=np.zeros(3))
            assert mechanism.tolerance(0.0) <= 0.02 * mechanism.record_gradient


class TestCost:
    def test_of_output_perturbation_is_that_of_a_gaussian(self):
        assert noisy_minimum(Squared()).cost == PrivacyCost.gaussian(3.0, draws=3)

    def test_of_objective_perturbation_is_the_theorem_and_the_output(self):
        mechanism = perturbed(Logistic())
        m = 6 * 0.02
        expected = math.log1p(0.25 * 4.0 / m) + tilt_divergence(ORDERS, 3.0)
        np.testing.assert_allclose(mechanism.cost.renyi, expected, rtol=1e-6)
        assert mechanism.cost.mu_squared == pytest.approx(1 / 40.0**2)
        assert mechanism.cost.discretization == pytest.approx(2 * PrivacyCost.gaussian(1.0, 3).discretization, abs=0)

    def test_noise_drawn_is_noise_charged(self, rng):
        X, y = rng.normal(size=(6, 3)), rng.choice([-1.0, 1.0], size=6)
        mechanism = perturbed(Logistic())
        none, one = np.zeros(3, dtype=np.int64), np.ones(3, dtype=np.int64)
        silent, ((tilt, size), (output, same_size)) = run(mechanism, X, y)
        assert (size, same_size) == (3, 3)
        assert min(tilt, output) >= SMALLEST_SCALE
        assert tilt * core._unit(mechanism.tilt) == pytest.approx(3.0 * 2 * 0.8 * 2.0)
        # What one unit of noise does to the output, and so what all of it does.
        unit = float(np.mean(run(mechanism, X, y, none, one)[0] - silent))
        assert output * unit == pytest.approx(40.0 * 2 * mechanism.distance, rel=1e-3)
        single = noisy_minimum(Logistic())
        silent, ((scale, _),) = run(single, X, y)
        unit = float(np.mean(run(single, X, y, one)[0] - silent))
        assert scale * unit == pytest.approx(3.0 * single.sensitivity, rel=1e-3)

    def test_what_comes_out_lies_on_the_lattice(self, rng):
        X, y = rng.normal(size=(6, 3)), rng.choice([-1.0, 1.0], size=6)
        for mechanism, scale in (
            (noisy_minimum(Logistic(), scales=np.ones(3)), 3.0 * noisy_minimum(Logistic()).sensitivity),
            (perturbed(Logistic(), scales=np.ones(3)), 80.0 * perturbed(Logistic()).distance),
        ):
            weights = mechanism.run(Columns.copy_of(X, y), SeededNoise(rng))
            units = weights / core._unit(scale)
            assert np.array_equal(units, np.rint(units))

    @pytest.mark.parametrize("solver", SOLVERS, ids=name)
    @pytest.mark.parametrize("epsilon", [0.1, 1.0, 10.0])
    def test_a_fit_uses_its_budget_up_and_no_more(self, solver, epsilon, rng):
        X, y = simulate(Logistic(), 4000, 3, rng)
        order = solver.renyi_order(4000, 3, epsilon, 1e-6, 2)
        budget = PrivacyBudget(epsilon, 1e-6, order)
        curator = Curator(Columns.copy_of(X, y), budget, SeededNoise(rng))
        problem = Problem(Logistic(), L2(0.01), 0.25 * np.mean(X**2, axis=0), 3, 1.0)
        for parts in (2, 1):
            solution = solver.solve(curator, problem, parts, rng)
            assert solution.n_passes == 1
        assert 0.999 * epsilon <= curator.spent.epsilon(1e-6, order) <= epsilon


class Sneaky(NamedTuple):
    curvature = 0.25
    lipschitz = 1.0

    def value(self, y, z):
        return 0.0

    def derivative(self, y, z):
        return math.sin(1e9 * z)


class Steeper(Logistic):
    """A subclass may override what the argument rests on."""


class TestRefusals:
    @pytest.mark.parametrize("solver", SOLVERS, ids=name)
    def test_problems_that_cannot_be_covered(self, solver):
        for loss in (Sneaky(), Steeper()):
            with pytest.raises(ValueError, match="losses' own"):
                solver.check(loss, Zero(), 3, False, True)
        with pytest.raises(ValueError, match="threshold or width"):
            solver.check(Huber(-1.0), Zero(), 3, False, True)
        with pytest.raises(ValueError, match="l2 penalty or none"):
            solver.check(Logistic(), L1(0.1), 3, False, True)
        with pytest.raises(ValueError, match="l2 penalty or none"):
            solver.check(Logistic(), L2(-0.1), 3, False, True)
        for bad in ({"row_bound": math.inf}, {"clip": math.inf}):
            with pytest.raises(ValueError, match="no noise can cover"):
                type(solver)(**bad).check(Logistic(), Zero(), 3, False, True)
            type(solver)(**bad).check(Logistic(), Zero(), 3, False, False)
        for bad in ({"row_bound": 0.0}, {"clip": -1.0}, {"strength": -1.0}, {"strength": math.nan}):
            with pytest.raises(ValueError, match=next(iter(bad))):
                type(solver)(**bad)

    @pytest.mark.parametrize("make", [noisy_minimum, perturbed])
    def test_mechanisms_check_for_themselves(self, make):
        for bad in (
            {"clip": math.inf},
            {"row_norm": math.inf},
            {"strength": 0.0, "ridge": np.zeros(3)},
            {"strength": -1.0},
            {"ridge": np.full(3, -1.0)},
            {"scales": np.zeros(3)},
            {"clip": math.nan},
            {"row_norm": 0.0},
        ):
            with pytest.raises(ValueError, match="must"):
                make(Logistic(), **bad)
        with pytest.raises(ValueError, match="losses' own"):
            make(Sneaky())
        with pytest.raises(ValueError, match="made for 6 records"):
            make(Logistic()).run(Columns.copy_of(np.zeros((5, 3)), np.zeros(5)), Scripted())

    def test_noise_comes_in_both_places_or_none(self):
        with pytest.raises(ValueError, match="come together"):
            MinimumOfNoisyObjective(**fields(Logistic()), noise_multiplier=1.0, output_multiplier=0.0)

    def test_no_second_opinion_on_objective_perturbation(self, rng):
        X, y = simulate(Logistic(), 500, 2, rng)
        model = DPLogisticRegression(epsilon=5.0, solver=ObjectivePerturbation(strength=1.0), random_state=0).fit(X, y)
        with pytest.raises(StatementError, match="no second opinion"):
            verify(model.privacy_.to_json())

    def test_a_strength_that_the_budget_cannot_pay(self, rng):
        solver = ObjectivePerturbation(strength=1e-9)
        budget = PrivacyBudget(1.0, 1e-6, solver.renyi_order(100, 3, 1.0, 1e-6, 1))
        curator = Curator(Columns.copy_of(np.zeros((100, 3)), np.zeros(100)), budget, SeededNoise(rng))
        with pytest.raises(ValueError, match="too weak"):
            solver.solve(curator, Problem(Logistic(), Zero(), np.ones(3), 3, 1.0), 1, rng)
        assert curator.spent == PrivacyCost()


class TestOutcome:
    @pytest.mark.parametrize("solver", SOLVERS, ids=name)
    @pytest.mark.parametrize("loss", LOSSES, ids=name)
    @pytest.mark.parametrize("penalty", [Zero(), L2(0.05)], ids=name)
    def test_without_privacy_it_is_the_minimum(self, solver, loss, penalty, rng):
        X, y = simulate(loss, 300, 3, rng)
        y = np.where(rng.random(300) < 0.2, -y, y)
        curator = Curator(Columns.copy_of(X, y), PrivacyBudget(math.inf, 1e-6), SeededNoise(rng))
        problem = Problem(loss, penalty, loss.curvature * np.mean(X**2, axis=0), 3, 1.0)
        weights = solver.solve(curator, problem, 1, rng).weights
        best, _ = optimum(X, y, loss, penalty)
        assert objective(X, y, loss, penalty, weights) <= objective(X, y, loss, penalty, best) + 1e-12

    @pytest.mark.parametrize("solver", SOLVERS, ids=name)
    def test_columns_that_stay_out_have_no_weight(self, solver, rng):
        X, y = simulate(Logistic(), 3000, 3, rng)
        order = solver.renyi_order(3000, 3, 1.0, 1e-6, 1)
        smoothness = 0.25 * np.mean(X**2, axis=0)
        smoothness[1] = 0.0
        curator = Curator(Columns.copy_of(X, y), PrivacyBudget(1.0, 1e-6, order), SeededNoise(rng))
        weights = solver.solve(curator, Problem(Logistic(), Zero(), smoothness, 3, 1.0), 1, rng).weights
        assert weights[1] == 0.0
        assert np.all(weights[[0, 2]] != 0.0)
        nothing = solver.solve(curator, Problem(Logistic(), Zero(), np.zeros(3), 3, 1.0), 1, rng)
        assert nothing.n_passes == 0
        assert not nothing.weights.any()

    @pytest.mark.parametrize("solver", SOLVERS, ids=name)
    def test_a_budget_that_buys_only_noise_gives_the_zero_model(self, solver, rng):
        order = solver.renyi_order(60, 5, 0.1, 1e-4, 1)
        curator = Curator(
            Columns.copy_of(np.ones((60, 5)), np.ones(60)), PrivacyBudget(0.1, 1e-4, order), SeededNoise(rng)
        )
        solution = solver.solve(curator, Problem(Logistic(), Zero(), np.ones(5), 5, 1.0), 1, rng)
        assert solution.n_passes == 0
        assert curator.spent == PrivacyCost()

    @pytest.mark.parametrize("loss", [Squared(), Logistic()], ids=name)
    def test_it_beats_the_zero_model(self, loss, rng):
        """Most of what there is to gain at ε = 1, of what output perturbation leaves too."""
        n = 20_000
        X, y = simulate(loss, n, 3, rng)
        slope = 1.0 if isinstance(loss, Logistic) else float(np.sqrt(np.mean(y**2)))
        best, _ = optimum(X, y, loss, Zero())
        low, high = (objective(X, y, loss, Zero(), w) for w in (best, np.zeros(3)))
        lost = []
        for solver in SOLVERS:
            order = solver.renyi_order(n, 3, 1.0, 1 / n**2, 1)
            curator = Curator(Columns.copy_of(X, y), PrivacyBudget(1.0, 1 / n**2, order), SeededNoise(rng))
            problem = Problem(loss, Zero(), loss.curvature * np.mean(X**2, axis=0), 3, slope)
            weights = solver.solve(curator, problem, 1, rng).weights
            lost.append((objective(X, y, loss, Zero(), weights) - low) / (high - low))
        assert lost[1] < 0.05
        assert lost[1] < lost[0] < 0.8

    @pytest.mark.parametrize("solver", SOLVERS, ids=name)
    def test_estimators_take_them(self, solver, rng):
        X = rng.normal(size=(3000, 3))
        y = np.digitize(X[:, 0] + 0.3 * rng.normal(size=3000), [-0.5, 0.5])
        model = DPLogisticRegression(epsilon=5.0, solver=solver, random_state=0).fit(X, y)
        assert model.score(X, y) > 0.5
        assert model.privacy_.spent_epsilon <= 5.0
        assert "minimum" in str(model.privacy_)
        ridge = DPRidge(epsilon=5.0, solver=solver, random_state=0).fit(X, X @ [1.0, -1.0, 0.0])
        assert ridge.score(X, X @ [1.0, -1.0, 0.0]) > 0.3


def test_accelerated_steps_find_the_minimum_where_newton_does_not(monkeypatch, rng):
    """A minimum that is never certified would be an outcome, and one that depends on the data."""
    X, y = rng.normal(size=(40, 3)) * [1.0, 5.0, 20.0], rng.normal(size=40) * 30.0
    mechanism = NoisyMinimum(
        loss=Squared(),
        scales=np.ones(3),
        ridge=np.zeros(3),
        strength=1e-3,
        row_norm=50.0,
        clip=50.0,
        n_records=40,
        noise_multiplier=5.0,
    )
    assert mechanism.smoothness / mechanism.convexity > 1e6
    by_newton = mechanism.run(Columns.copy_of(X, y), NoNoise())
    monkeypatch.setattr(core, "_NEWTON_STEPS", 0)
    by_steps = mechanism.run(Columns.copy_of(X, y), NoNoise())
    np.testing.assert_allclose(by_steps, by_newton, atol=1e-6 * np.abs(by_newton).max())
