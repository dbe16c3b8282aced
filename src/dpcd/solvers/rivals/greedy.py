"""DP-GCD: differentially private greedy coordinate descent (Mangold, Bellet, Salmon & Tommasi 2023)."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from dpcd.losses import Loss
from dpcd.penalties import Penalty
from dpcd.privacy import Curator
from dpcd.privacy.accounting import largest_range
from dpcd.privacy.choices import TopCoordinates
from dpcd.privacy.coordinates import CoordinateUpdates
from dpcd.solvers.cd import DPCD
from dpcd.solvers.problem import ChargedAsGaussian, Floats, Problem, Solution, rehearse

# Noise grows with the number of updates T as (T/nμ)², and what T columns cannot explain shrinks.
_RECORDS_PER_UPDATE = 100.0
_LARGEST_DEFAULT_UPDATES = 1000
# Slopes of the penalty are difference quotients over this part of a typical step.
_NEARBY = 1e-6
# Clip of a choice as a part of the step's: order suffers less from a low clip than a step does.
_CHOICE_CLIP = 0.5


@dataclass(frozen=True, eq=False)
class DPGCD(ChargedAsGaussian):
    """Differentially private greedy coordinate descent.

    An update chooses the coordinate along which the objective falls most steeply, by a noisy maximum, and takes a noisy
    proximal step along it as DP-CD does. Noise enters as many coordinates as there are updates and not all p of them,
    which is what makes the method strong where few columns matter.

    Parameters
    ----------
    n_updates
        Number of updates. None: from n and the budget (0, the zero model, where it buys nothing but noise).
    step_size
        γ; the step is γ/M_j.
    clip
        As in `DPCD`, for the steps. Records are clipped to half of it where coordinates are chosen.
    selection_share
        Part of each update's budget that is spent on choosing its coordinate.

    Notes
    -----
    Privacy. Everything goes through `dpcd.privacy.choices.TopCoordinates` and
    `dpcd.privacy.coordinates.CoordinateUpdates`.

    The coordinate chosen is that with the largest distance between −∂_j f and the penalty's subdifferential, divided by
    C_j, or by √M_j where there is no clip (the rule called GS-s). Without a penalty and with the default clip that is
    the largest |∂_j f|/√M_j. Each update looks at all columns, so it takes as long as a pass of DP-CD.
    """

    n_updates: int | None = None
    step_size: float = 1.0
    clip: float | ArrayLike | None = None
    selection_share: float = 0.5

    def __post_init__(self) -> None:
        if self.n_updates is not None and (self.n_updates < 1 or self.n_updates != int(self.n_updates)):
            raise ValueError(f"n_updates must be a whole number of at least 1 or None, got {self.n_updates!r}")
        if not 0.0 < self.step_size < math.inf:
            raise ValueError(f"step_size must be positive and finite, got {self.step_size!r}")
        if not 0.0 < self.selection_share < 1.0:
            raise ValueError(f"selection_share must lie between 0 and 1, got {self.selection_share!r}")
        if isinstance(self.clip, str):
            raise ValueError(f"clip must be a number, an array or None, got {self.clip!r}")
        DPCD(clip=self.clip)

    @property
    def needs_slope(self) -> bool:
        """A clip that is not declared is set from the slope."""
        return self.clip is None

    def check(self, loss: Loss, penalty: Penalty, n_columns: int, intercept: bool, private: bool) -> None:
        """Raise if a clip has the wrong shape or is infinite where there is privacy, or a loss does not compile."""
        DPCD(clip=self.clip).check(loss, penalty, n_columns, intercept, private)
        _slopes(penalty, np.zeros(n_columns), np.ones(n_columns), np.arange(n_columns - intercept))
        zeros, columns = np.zeros(2), np.arange(2)
        clip = math.inf if np.isinf(np.nan if self.clip is None else np.asarray(self.clip, dtype=float)).any() else 1.0
        rehearse(TopCoordinates(loss, columns, np.ones(2), clip, zeros, zeros, zeros, math.inf))

    def solve(self, curator: Curator, problem: Problem, parts: int, choices: np.random.Generator) -> Solution:
        """Spend one of `parts` equal parts of what is left on choices and updates."""
        room = curator.gaussian_room / parts
        weights = np.zeros(curator.n_columns)
        active = np.flatnonzero(problem.smoothness > 0.0)
        n_updates = self.n_updates
        if n_updates is None:
            affordable = curator.n_records * math.sqrt(room) / _RECORDS_PER_UPDATE
            n_updates = int(min(affordable, _LARGEST_DEFAULT_UPDATES))
        if n_updates == 0 or len(active) == 0:
            return Solution(weights, 0, weights[None, :])
        if room <= 0.0:
            raise ValueError("there is no budget left for the updates")
        # The rule of DP-CD, so that a step is clipped alike in both.
        clip = DPCD(clip=self.clip)._thresholds(problem, active)
        steps = np.divide(
            self.step_size, problem.smoothness, out=np.zeros_like(weights), where=problem.smoothness > 0.0
        )
        loss_range = largest_range(self.selection_share * room / n_updates)
        noise_multiplier = np.full_like(weights, math.sqrt(n_updates / ((1.0 - self.selection_share) * room)))
        unclipped = math.isinf(clip[active[0]])
        units = np.sqrt(problem.smoothness) if unclipped else clip
        nearby = _NEARBY * units * steps
        path = []
        lower, upper = np.zeros_like(weights), np.zeros_like(weights)
        moved = active[active < problem.n_penalized]
        for _ in range(n_updates):
            lower[moved], upper[moved] = _slopes(problem.penalty, weights, nearby, moved)
            choice = TopCoordinates(
                problem.loss,
                active,
                units,
                math.inf if unclipped else _CHOICE_CLIP,
                weights,
                lower,
                upper,
                loss_range,
                problem.positive_class,
            )
            chosen = curator.release(choice)
            step = CoordinateUpdates(
                problem.loss,
                problem.penalty,
                chosen,
                problem.n_penalized,
                clip,
                steps,
                noise_multiplier * (1.0 + 1e-9),
                weights,
                problem.positive_class,
            )
            _, weights[chosen] = curator.release(step)
            path.append(weights.copy())
            moved = chosen[chosen < problem.n_penalized]
        return Solution(weights, n_updates, np.array(path))


def _slopes(penalty: Penalty, weights: Floats, nearby: Floats, columns: ArrayLike) -> tuple[Floats, Floats]:
    """Slopes of the penalty to the left and to the right of some weights: its subdifferential."""
    lower, upper = [], []
    for j in np.asarray(columns).tolist():
        here, step = float(weights[j]), float(nearby[j])
        middle = penalty.value(here, j)
        left, right = (middle - penalty.value(here - step, j)) / step, (penalty.value(here + step, j) - middle) / step
        # Undefined where the weight lies outside of the penalty's domain; out of order for none that is convex.
        left, right = (0.0 if math.isnan(slope) else slope for slope in (left, right))
        lower.append(min(left, right))
        upper.append(max(left, right))
    return np.array(lower), np.array(upper)
