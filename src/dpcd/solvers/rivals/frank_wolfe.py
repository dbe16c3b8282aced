"""DP-Frank–Wolfe: differentially private conditional gradient on an l1 ball (Talwar, Thakurta & Zhang 2015)."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from dpcd.losses import Loss
from dpcd.penalties import L1, Penalty, Zero, bare, strengths
from dpcd.privacy import Curator
from dpcd.privacy.accounting import largest_range
from dpcd.privacy.choices import SteepestVertex
from dpcd.solvers.problem import ChargedAsGaussian, Floats, Problem, Solution, rehearse

# In units of (typical slope)·(column's root mean square). Only the order of sums matters here, so it is a low one.
_DEFAULT_CLIP = 1.0
# In units of slope/curvature. Larger balls need more steps, and so more noise in each.
_DEFAULT_RADIUS = 2.0
_LARGEST_DEFAULT_STEPS = 1000


@dataclass(frozen=True)
class DPFrankWolfe(ChargedAsGaussian):
    """Frank–Wolfe steps towards vertices of an l1 ball, each chosen by a noisy maximum; nothing else is released.

    It minimises the objective over the ball Σ_j s_j|w_j| ≤ radius, where s_j is the root mean square of column j.

    Parameters
    ----------
    radius
        In units of the predictor x·w, that is of the target for the squared loss. None: twice the loss's slope over its
        curvature (twice the root mean square of the target for the squared loss), a guess; or, if that is less, what an
        l1 penalty leaves to models that are better than the zero model (taking |y| to be the slope in a regression).
    n_steps
        Number of steps. None: from n, p, the radius and the budget (0, the zero model, where that buys nothing but
        noise).
    clip
        Largest |ℓ'(y, x·w)·x_j|, in units of s_j. None: once the loss's slope.

    Notes
    -----
    Privacy. Everything goes through `dpcd.privacy.choices.SteepestVertex`.

    With an l1 penalty the step is towards the vertex, or the center, where linearized loss plus penalty is lowest: the
    method then solves the penalised problem if the ball contains its solution, and the error falls as 1/n_steps.
    Other penalties are refused, and so is an intercept, for which a ball has no place.
    """

    radius: float | None = None
    n_steps: int | None = None
    clip: float | None = None

    def __post_init__(self) -> None:
        if self.n_steps is not None and (self.n_steps < 1 or self.n_steps != int(self.n_steps)):
            raise ValueError(f"n_steps must be a whole number of at least 1 or None, got {self.n_steps!r}")
        if self.radius is not None and not 0.0 < self.radius < math.inf:
            raise ValueError(f"radius must be positive and finite, or None, got {self.radius!r}")
        if self.clip is not None and not self.clip > 0.0:
            raise ValueError(f"clip must be positive, or None, got {self.clip!r}")

    @property
    def needs_slope(self) -> bool:
        """A clip or a radius that is not declared is set from the slope."""
        return self.clip is None or self.radius is None

    def check(self, loss: Loss, penalty: Penalty, n_columns: int, intercept: bool, private: bool) -> None:
        """Raise unless the penalty is l1 or none, and the clip finite where there is privacy."""
        if not isinstance(bare(penalty), (L1, Zero)):
            raise ValueError(
                f"DPFrankWolfe works on an l1 ball, with an l1 penalty or none, not with {penalty!r}: use DPLasso, "
                f"penalty='l1' or penalty=None, or solver=DPCD()"
            )
        if intercept:
            raise ValueError("DPFrankWolfe has no place for an intercept: use fit_intercept=False, or DPCD()")
        if private and self.clip is not None and math.isinf(self.clip):
            raise ValueError(
                "an infinite clip leaves the sensitivity unbounded, which no noise can cover: give a finite clip, or "
                "epsilon=math.inf for a fit without privacy"
            )
        zeros = np.zeros(2)
        clip = 1.0 if self.clip is None else self.clip
        rehearse(SteepestVertex(loss, np.arange(2), np.ones(2), clip, zeros, zeros, zeros, math.inf))

    def solve(self, curator: Curator, problem: Problem, parts: int, choices: np.random.Generator) -> Solution:
        """Spend one of `parts` equal parts of what is left on choices of vertices."""
        room = curator.gaussian_room / parts
        weights = np.zeros(curator.n_columns)
        active = np.flatnonzero(problem.smoothness > 0.0)
        scales = np.sqrt(problem.smoothness / problem.loss.curvature)
        strength = strengths(problem.penalty, curator.n_columns)
        if len(active) == 0:
            return Solution(weights, 0, weights[None, :])
        clip = self.clip
        if clip is None:
            assert problem.slope is not None
            clip = _DEFAULT_CLIP * problem.slope
        radius = self.radius or self._default_radius(problem, strength[active], scales[active])
        n_steps = self.n_steps
        if n_steps is None:
            n_steps = self._default_steps(problem, curator.n_records * math.sqrt(room), radius, clip, len(active))
        if n_steps == 0:
            return Solution(weights, 0, weights[None, :])
        if room <= 0.0:
            raise ValueError("there is no budget left for the steps")
        loss_range = largest_range(room / n_steps)
        slopes = strength
        path = []
        for t in range(n_steps):
            choice = SteepestVertex(
                problem.loss, active, scales, clip, weights, -slopes, slopes, loss_range, problem.positive_class
            )
            j, sign = curator.release(choice)
            share = 2.0 / (t + 2.0)
            weights *= 1.0 - share
            if sign != 0:
                weights[j] += share * sign * radius / scales[j]
            path.append(weights.copy())
        return Solution(weights, n_steps, np.array(path))

    @staticmethod
    def _default_radius(problem: Problem, strength: Floats, scales: Floats) -> float:
        """A guess, within Σ alpha_j|w_j| ≤ mean ℓ(y, 0), as all models are that are better than the zero model."""
        assert problem.slope is not None
        guess = _DEFAULT_RADIUS * problem.slope / problem.loss.curvature
        largest = float(np.max(np.divide(scales, strength, out=np.full_like(scales, math.inf), where=strength > 0.0)))
        if math.isinf(largest):
            return guess
        label = 1.0 if problem.positive_class is not None else problem.slope
        zero_model = max(problem.loss.value(label, 0.0), problem.loss.value(-label, 0.0))
        return min(guess, largest * zero_model)

    @staticmethod
    def _default_steps(problem: Problem, records: float, radius: float, clip: float, n_active: int) -> int:
        """Balance what T steps leave, 2·curvature·radius²/T, and what noise costs, 2.5·radius·clip·√T·log(2p)/(nμ)."""
        if math.isinf(records):
            return _LARGEST_DEFAULT_STEPS
        reach = radius * problem.loss.curvature / clip
        n_steps = (0.8 * reach * records / math.log(2.0 * n_active + 1.0)) ** (2.0 / 3.0)
        # Fewer steps may leave more, noise included, than the zero model, whose error is about clip²/(2·curvature).
        return int(min(n_steps, _LARGEST_DEFAULT_STEPS)) if n_steps >= 6.0 * reach**2 else 0
