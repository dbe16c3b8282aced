import math
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from dpcd import DPRidge, audit
from dpcd.losses import Huber, Logistic, Squared
from dpcd.penalties import L1
from dpcd.privacy import Columns, SecureNoise, SeededNoise
from dpcd.privacy.coordinates import CoordinateUpdates
from dpcd.solvers import DPCD, DPSGD, AdaSSP, DPBlockCD, DPFrankWolfe, DPNewton, OutputPerturbation, Screened
from problems import name

DESCENT = DPCD(n_passes=2, clip=1.0)
RUNS = {"n_trials": 1500, "method": "gaussian"}


def seeded(seed=0):
    return SeededNoise(np.random.default_rng(seed))


class TestBounds:
    def test_clopper_pearson_limits(self):
        for count, total in ((0, 100), (5, 100), (99, 100)):
            limit = audit._largest_rate(count, total, 0.01)
            assert stats.binom.cdf(count, total, limit) == pytest.approx(0.01)
        assert audit._largest_rate(100, 100, 0.01) == 1.0

    @pytest.mark.parametrize("method", ["clopper-pearson", "gaussian"])
    def test_the_bound_holds_as_often_as_it_says(self, method):
        """On Gaussian scores with known μ the bound exceeds the true ε in at most 1 − confidence of all audits."""
        rng = np.random.default_rng(0)
        true = audit.gaussian_epsilon(1.0, 1e-3)
        wrong = 0
        for _ in range(400):
            scores, other = rng.normal(size=600), rng.normal(size=600) + 1.0
            wrong += audit.lower_bound(scores, other, 1e-3, 0.9, method) > true
        # Expected at most 40; beyond 70 has probability below 10⁻⁵.
        assert wrong <= 70

    def test_more_runs_find_more(self):
        found = [audit.expected_lower_bound(1.0, 1e-5, n) for n in (1000, 10_000, 100_000, 10**7)]
        assert sorted(found) == found
        assert found[-1] > 0.98
        assert found[-1] < 1.0

    def test_perfectly_told_apart(self):
        zeros, ones = np.zeros(1000), np.ones(1000)
        assert audit.lower_bound(zeros, ones, 1e-5, 0.99) > 4.0
        assert audit.lower_bound(zeros, zeros, 1e-5, 0.99) == 0.0

    def test_too_few_runs(self):
        with pytest.raises(ValueError, match="at least 50 runs"):
            audit.lower_bound(np.zeros(20), np.zeros(20), 1e-5, 0.99)


class TestHonest:
    @pytest.mark.parametrize(
        "solver",
        [
            DPCD(n_passes=2, clip=1.0),
            DPCD(n_passes=2, clip=[0.5, 2.0], average="last"),
            DPCD(n_passes=4, clip=1.0, average="periodic", n_loops=2, order="random"),
            DPNewton(),
            DPBlockCD(n_steps=10),
            AdaSSP(),
            Screened(DPCD(n_passes=1, clip=1.0), n_kept=1),
            DPFrankWolfe(n_steps=5),
        ],
        ids=["scalar clip", "clips", "loops", "Newton", "one block", "AdaSSP", "choices", "Frank-Wolfe"],
    )
    def test_no_solver_is_refuted(self, solver):
        result = audit.white_box(solver, epsilon=1.0, noise=seeded(), n_trials=200, method="gaussian")
        assert not result.refuted

    @pytest.mark.parametrize("loss", [Squared(), Logistic()], ids=name)
    def test_what_fits_do_by_default_is_not_refuted(self, loss):
        assert not audit.white_box(loss=loss, epsilon=1.0, noise=seeded(), n_trials=60, method="gaussian").refuted

    @pytest.mark.parametrize("solver", [DPSGD(n_passes=2, batch_size=2, clip=1.0), OutputPerturbation(strength=0.3)])
    def test_what_it_would_be_blind_to_is_refused(self, solver):
        with pytest.raises(ValueError, match=r"is not known.*black_box"):
            audit.white_box(solver, noise=seeded(), n_trials=60)

    def test_the_bound_is_close_to_what_can_be_found(self):
        result = audit.white_box(DESCENT, epsilon=4.0, noise=seeded(1), **RUNS)
        expected = audit.expected_lower_bound(4.0, 1e-5, 1500)
        assert result.lower_bound == pytest.approx(expected, rel=0.15)
        assert not result.refuted

    def test_secure_noise(self):
        result = audit.white_box(DESCENT, 4.0, n_trials=300, method="gaussian", noise=SecureNoise())
        assert 1.0 < result.lower_bound <= 4.0

    def test_other_losses_and_penalties(self):
        for loss, penalty in ((Logistic(), L1(0.1)), (Huber(0.5), L1(0.1))):
            result = audit.white_box(DESCENT, loss=loss, penalty=penalty, noise=seeded(), n_trials=300)
            assert not result.refuted

    @pytest.mark.slow
    @pytest.mark.parametrize("epsilon", [1.0, 4.0])
    def test_within_a_fifth_of_the_claim(self, epsilon):
        """99 % lower bound above 0.8 of the claimed ε, and not above it."""
        result = audit.white_box(DESCENT, epsilon=epsilon, noise=SecureNoise(), n_trials=40_000, method="gaussian")
        assert 0.8 * epsilon < result.lower_bound <= epsilon


class Halved(SeededNoise):
    """Noise of half the scale that was paid for."""

    def gaussian(self, scale, size):
        return super().gaussian(scale / 2.0, size)


class Tenth(SeededNoise):
    """Noise of a tenth of the scale that was paid for."""

    def gaussian(self, scale, size):
        return super().gaussian(scale / 10.0, size)


class Reused(SeededNoise):
    """Draws for one pass and uses them in every pass, like a port that indexes noise by coordinate."""

    def gaussian(self, scale, size):
        return np.tile(super().gaussian(scale, size // 2), 2)


class Unclipped(CoordinateUpdates):
    """Sums what records contribute as it is, with the noise for what they would contribute clipped."""

    def run(self, data, noise):
        bound = self.lattice(data.n_records).bound
        draws = self._draw(noise, self.sensitivity(bound))
        weights, released, values = self.start.copy(), [], []
        for k, j in enumerate(self.coordinates):
            slopes = np.array(
                [self.loss.derivative(y, z) for y, z in zip(data.target, data.features @ weights, strict=True)]
            )
            released.append(float(np.sum(slopes * data.features[:, j]) * bound / self.clip[j] + draws[k]))
            weights[j] -= self.steps[j] * released[-1] * self.clip[j] / (bound * data.n_records)
            values.append(weights[j])
        return np.array(released), np.array(values)


class Breaking(DPCD):
    """A solver whose mechanism is replaced by another class."""

    def solve(self, curator, problem, parts, choices):
        release = curator.release

        def broken(mechanism):
            return release(Unclipped(**{name: getattr(mechanism, name) for name in mechanism.__dataclass_fields__}))

        curator.release = broken
        return super().solve(curator, problem, parts, choices)


class ChargedOnce(DPCD):
    """Spends the whole budget twice: the second run's releases are not in the books."""

    def solve(self, curator, problem, parts, choices):
        super().solve(curator, problem, parts, choices)
        curator._spent = type(curator._spent)()
        return super().solve(curator, problem, parts, choices)


class TestBroken:
    """The same audit on deliberately broken twins: each claim is refuted."""

    def test_noise_halved(self):
        assert audit.white_box(DESCENT, epsilon=1.0, noise=Halved(np.random.default_rng(0)), **RUNS).refuted

    @pytest.mark.parametrize("loss", [Squared(), Logistic()], ids=name)
    @pytest.mark.parametrize(
        "solver", [None, DPNewton(n_steps=2), DPBlockCD(n_steps=4)], ids=["default", "Newton", "block"]
    )
    def test_a_tenth_of_the_noise(self, solver, loss):
        pair = None if solver is None else audit.worst_case_pair(400, 2, isinstance(loss, Logistic), others=1.0)
        noise = Tenth(np.random.default_rng(0))
        result = audit.white_box(solver, loss=loss, pair=pair, noise=noise, n_trials=60, method="gaussian")
        assert result.refuted

    def test_clip_forgotten(self):
        # The optimal score weighs contributions that were clipped: the final model is enough here.
        assert audit.white_box(Breaking(n_passes=2, clip=1.0), noise=seeded(), n_trials=300).refuted

    def test_noise_reused(self):
        """One record is far away and the other data set has none: what noise would explain it repeats itself."""
        with_record = np.zeros(4)
        with_record[0] = 1e9
        features = np.zeros((4, 2))
        features[0] = 1.0
        pair = Columns.copy_of(features, with_record), Columns.copy_of(features, np.zeros(4))
        honest = audit.white_box(DPCD(n_passes=2, clip=1.0, order="cyclic"), pair=pair, noise=seeded(), n_trials=300)
        assert not honest.refuted
        reused = Reused(np.random.default_rng(0))
        assert audit.white_box(
            DPCD(n_passes=2, clip=1.0, order="cyclic"), pair=pair, noise=reused, n_trials=300
        ).refuted

    def test_budget_charged_once_for_two_releases(self):
        assert audit.white_box(ChargedOnce(n_passes=2, clip=1.0), epsilon=4.0, noise=seeded(), **RUNS).refuted


class TestBlackBox:
    @pytest.mark.filterwarnings("ignore::dpcd.UselessModelWarning")
    def test_an_honest_model_and_one_that_lies(self):
        X = np.zeros((40, 1))
        X[0] = 1.0
        y, other = np.zeros(40), np.zeros(40)
        y[0], other[0] = 5.0, -5.0

        def factory(claim, real):
            settings = {"feature_bounds": (-1, 1), "target_bounds": (-1, 1), "fit_intercept": False, "alpha": 1.0}
            seeds = iter(range(10**6))

            def make():
                solver = DPCD(n_passes=3, clip=1.0, average="last")
                return DPRidge(epsilon=real, delta=1e-5, solver=solver, random_state=next(seeds), **settings)

            return audit.black_box(make, (X, y), (X, other), claim, 1e-5, n_trials=300, confidence=0.99)

        assert not factory(2.0, 2.0).refuted
        assert factory(0.5, 50.0).refuted


def test_text_and_plot(tmp_path):
    result = audit.white_box(DESCENT, epsilon=1.0, noise=seeded(), n_trials=100)
    assert "claimed  epsilon = 1" in str(result)
    assert "not refuted" in str(result)
    assert "REFUTED" in str(replace(result, claimed_epsilon=-1.0))
    result.plot(tmp_path / "audit.png")
    assert (tmp_path / "audit.png").stat().st_size > 5_000
    positives, negatives = audit.error_rates(result.scores, result.neighbour_scores)
    assert (positives[0], negatives[0]) == (0.0, 1.0)
    assert np.all(np.diff(positives) >= 0.0)
    assert math.isclose(negatives[-1], 0.0, abs_tol=0.02)


def test_progress_is_reported():
    calls = []
    audit.white_box(DESCENT, noise=seeded(), n_trials=60, on_trial=lambda: calls.append(1))
    assert len(calls) == 120
