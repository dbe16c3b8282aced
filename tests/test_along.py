"""What moves do to predictions, and how far they should go."""

import math
from typing import NamedTuple

import numpy as np
import pytest

from dpcd.experiments.families import Sample, family
from dpcd.losses import Huber, Logistic, Squared
from dpcd.nonprivate import newton_optimum, optimum
from dpcd.penalties import L1, L2, Zero
from dpcd.solvers import DPBlockCD
from dpcd.solvers.along import Along
from fitting import lost, scaled, spent_share

LOSSES = [Squared(), Logistic(), Huber(1.0)]
ENDLESS = 20.0


def table(loss, rng, n=4000, p=10):
    """Columns that agree, and targets or labels that follow them."""
    X = rng.normal(size=(n, 1)) + rng.normal(size=(n, p))
    X = np.asfortranarray(X / np.sqrt(np.mean(X**2, axis=0)))
    signal = X[:, 0] + 0.5 * X[:, 1]
    if isinstance(loss, Logistic):
        return X, np.where(rng.logistic(size=n) < signal, 1.0, -1.0)
    return X, signal + rng.normal(size=n)


def factor(problem, X, y, move, full_steps=2.0):
    """What a move from zero is multiplied by, its length and the slopes at its end being known."""
    move = np.asarray(move, dtype=float)
    loss = problem.problem.loss
    # For labels, the larger of the slopes that either gives.
    targets = np.array([y, -y] if isinstance(loss, Logistic) else [y])
    slopes = np.vectorize(loss.derivative)(targets, X @ move)
    slope = math.sqrt(np.mean(np.max(slopes**2, axis=0)))
    return Along(problem, full_steps).factor(np.zeros(len(move)), move, float(np.mean((X @ move) ** 2)), slope)


class TestLength:
    @pytest.mark.parametrize("scale", [1e-3, 1.0, 1e6])
    def test_what_a_move_does_to_predictions_is_seen(self, scale, rng):
        common = rng.normal(size=(4000, 1))
        X = common + 0.3 * rng.normal(size=(4000, 10))
        X /= np.sqrt(np.mean(X**2, axis=0))
        along = Along(scaled(X, common[:, 0], Squared(), 2.0, intercept=False), 2.0)
        for move in (np.ones(10), np.eye(10)[0] - np.eye(10)[1]):
            # Octaves are coarse.
            expected = np.mean((X @ (scale * move)) ** 2)
            assert along.squared_length(scale * move) / expected == pytest.approx(1.0, rel=0.4)
        assert along.squared_length(np.zeros(10)) == 0.0

    def test_hardly_any_budget_shows_nothing(self, rng):
        X = rng.normal(size=(4000, 10))
        assert Along(scaled(X, X[:, 0], Squared(), 1e-4, intercept=False), 2.0).squared_length(np.ones(10)) == 0.0

    @pytest.mark.parametrize("epsilon", [0.1, 0.3])
    def test_noise_in_a_histogram_does_not_make_moves_long(self, epsilon, rng):
        X = rng.normal(size=(2000, 30))
        problems = [scaled(X, X[:, 0], Squared(), epsilon, intercept=False, seed=seed) for seed in range(60)]
        seen = [Along(problem, 2.0).squared_length(np.ones(30)) for problem in problems]
        assert np.mean(np.array(seen) > 1.5 * 30.0) < 0.15


class TestFactor:
    @pytest.mark.parametrize("part", [0.5, 1.0, 1.6])
    @pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: type(loss).__name__)
    def test_leads_to_the_minimum_along_the_move(self, loss, part, rng):
        X, y = table(loss, rng)
        problem = scaled(X, y, loss, ENDLESS, intercept=False, penalty=Zero())
        best, _ = newton_optimum(X, y, loss, Zero())
        # One Newton step does not do all of the way where a loss is the flatter the farther out one is.
        undone = 0.0 if isinstance(loss, Squared) else 0.65 * abs(part - 1.0)
        assert part * factor(problem, X, y, part * best) == pytest.approx(1.0, abs=0.08 + undone)

    @pytest.mark.parametrize("penalty", [L2(1.5), L1(0.7)], ids=["l2", "l1"])
    def test_penalties_count(self, penalty, rng):
        X, y = table(Squared(), rng)
        best, _ = optimum(X, y, Squared(), penalty)
        with_penalty, without = (
            factor(scaled(X, y, Squared(), ENDLESS, intercept=False, penalty=what), X, y, best)
            for what in (penalty, Zero())
        )
        assert with_penalty == pytest.approx(1.0, abs=0.05)
        assert without > 1.3, "the penalty had shortened it"

    @pytest.mark.parametrize("penalty", [L2(1.5), L1(0.7)], ids=["l2", "l1"])
    def test_what_a_clip_leaves_of_a_slope_balances_the_penalty(self, penalty, rng):
        X, y = table(Squared(), rng)
        best, _ = optimum(X, y, Squared(), penalty)
        factors = [factor(scaled(X, y, Squared(), 0.3, False, seed, penalty), X, y, best) for seed in range(40)]
        assert np.mean(factors) == pytest.approx(1.0, abs=0.1)

    def test_a_penalty_that_is_endless_at_zero_does_not_send_a_move_there(self, rng):
        class LogBarrier(NamedTuple):
            alpha: float

            def prox(self, v, step, j):
                return 0.5 * (v + math.sqrt(v * v + 4.0 * step * self.alpha))

        X, y = table(Squared(), rng)
        move = np.full(10, 0.1)
        assert factor(scaled(X, y, Squared(), ENDLESS, False, 0, LogBarrier(0.1)), X, y, move) > 0.5

    def test_the_scale_of_columns_does_not_matter(self, rng):
        X, y = table(Squared(), rng)
        factors = []
        for unit in (1e-6, 1.0, 1e6):
            problem = scaled(X, unit * y, Squared(), ENDLESS, intercept=False, penalty=L2(0.5))
            factors.append(factor(problem, X, unit * y, 0.5 * unit * np.eye(10)[0]))
        assert factors == pytest.approx([factors[0]] * 3, rel=1e-3)

    def test_noise_leaves_a_move_as_it_is(self, rng):
        """The more steps led there, the less is believed of a noisy slope."""
        X, y = table(Squared(), rng)
        best, _ = newton_optimum(X, y, Squared(), Zero())
        spread = {}
        for full_steps in (0.5, 3.0, 10.0):
            problems = [scaled(X, y, Squared(), 0.1, False, seed, Zero()) for seed in range(60)]
            spread[full_steps] = np.std([factor(problem, X, y, best, full_steps) for problem in problems])
        assert spread[10.0] < 0.8 * spread[3.0] < 0.8 * spread[0.5]

    def test_no_move_turns_round_or_becomes_endless(self, rng):
        X, y = table(Squared(), rng)
        best, _ = newton_optimum(X, y, Squared(), Zero())
        problem = scaled(X, y, Squared(), ENDLESS, intercept=False, penalty=Zero())
        assert factor(problem, X, y, -best) == 0.0
        assert factor(problem, X, y, 0.05 * best) == pytest.approx(3.0)

    def test_slopes_of_a_loss_that_was_eased_do_not_count(self, rng):
        """A clip as large as they were would drown the slope in noise."""
        X, y = table(Huber(1.0), rng)
        move, length = np.full(10, 0.1), float(np.mean((X @ np.full(10, 0.1)) ** 2))
        known, eased = (
            Along(scaled(X, y, Huber(1.0), 1.0, intercept=False), 2.0).factor(np.zeros(10), move, length, slope)
            for slope in (1.0, 3000.0)
        )
        assert known == eased != pytest.approx(1.0, abs=0.01)


class TestBudget:
    @pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: type(loss).__name__)
    def test_costs_what_it_says(self, loss, rng):
        X, y = table(loss, rng)
        problem = scaled(X, y, loss, 1.0, intercept=False)
        along, move = Along(problem, 2.0), 0.1 * np.ones(10)
        along.factor(np.zeros(10), move, along.squared_length(move), 0.5)
        assert spent_share(problem.curator) == pytest.approx(along.share)

    @pytest.mark.parametrize(("loss", "full_steps"), [(Squared(), 13.0), (Logistic(), 32.0)])
    def test_nothing_is_released_where_there_is_hardly_any_doubt(self, loss, full_steps, rng):
        X, y = table(loss, rng)
        problem = scaled(X, y, loss, 1.0, intercept=False)
        along, move = Along(problem, full_steps), 0.1 * np.ones(10)
        assert along.share == along.squared_length(move) == 0.0
        assert along.factor(np.zeros(10), move, 1.0, 1.0) == 1.0
        assert spent_share(problem.curator) == 0.0

    def test_few_records_tell_what_it_does_to_predictions_and_nothing_else(self, rng):
        X, y = table(Squared(), rng, n=500)
        few, many = (Along(scaled(X, y, Squared(), epsilon, intercept=False), 2.0) for epsilon in (0.3, 3.0))
        assert 0.0 < few.share < many.share
        assert few.factor(np.zeros(10), np.ones(10), 1.0, 1.0) == 1.0
        assert spent_share(few.scaled.curator) == 0.0


class TestInSolver:
    def test_a_strong_signal_in_steep_directions_loses_less(self, monkeypatch):
        """The loss is so flat where the signal leads that steps stop half-way."""
        sample = family("strongly-correlated", 20_000, 30, Logistic())
        ours = np.mean(lost(DPBlockCD(), sample, 0.3, range(8)))
        monkeypatch.setattr(Along, "factor", lambda *arguments: 1.0)
        assert ours < 0.9 * np.mean(lost(DPBlockCD(), sample, 0.3, range(8)))

    def test_a_signal_in_one_steep_direction_is_not_taken_for_noise(self, monkeypatch):
        """All columns nearly agree, as stations nearby do, and the target follows them."""
        rng = np.random.default_rng(0)
        common = rng.normal(size=(6000, 2))
        X = common @ rng.normal(size=(2, 100)) + 0.4 * rng.normal(size=(6000, 100))
        y = common[:, 0] + 0.3 * rng.normal(size=6000)

        sample = Sample("", X, y, Squared(), L2(1e-4))
        ours = lost(DPBlockCD(), sample, 0.3, range(6))
        monkeypatch.setattr("dpcd.solvers.block._STEEP", math.inf)
        without = lost(DPBlockCD(), sample, 0.3, range(6))
        assert ours.mean() < 0.5 * without.mean()
        assert ours.max() < 0.3
