"""Huber losses whose targets are many thresholds away."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from dpcd.losses import Huber, Squared
from dpcd.privacy.records import GradientSizes
from dpcd.ranges.sizes import Sizes
from dpcd.solvers.joint import Scaled

# Share of the budget that tells how far targets are from the start, for a loss that turns linear, how many thresholds
# away is far and how many are absurd, and how many steps are left for the loss itself.
_SHARE, _FAR, _ABSURDLY_FAR, _UNEASED = 0.01, 4.0, 1e30, 3


@dataclass(frozen=True, eq=False)
class Easing:
    """The problem of each step: with a Huber loss whose threshold comes down to its own from how far targets are away.

    Where targets are many thresholds away, hardly any record has curvature left, and steps that are safe are as short
    as a threshold. With a threshold as large as what is typical of them, one step does most of the way.

    Parameters
    ----------
    scaled
        The problem.
    n_steps
        How many steps there are.
    """

    scaled: Scaled
    n_steps: int

    @property
    def share(self) -> float:
        """Share of the budget that it takes to find out how far targets are away."""
        return _SHARE if isinstance(self.scaled.problem.loss, Huber) and self.n_steps > _UNEASED else 0.0

    @property
    def ends(self) -> tuple[int, ...]:
        """The first step with the loss itself, if there are others before it."""
        return (self.n_steps - _UNEASED,) if self.share else ()

    @cached_property
    def _typical(self) -> float:
        """Mean distance of targets from the start, 0 if only noise can be seen."""
        distances = replace(self.scaled, problem=replace(self.scaled.problem, loss=Squared()))
        view = distances.view(np.ones(self.scaled.size), np.zeros(self.scaled.size))
        sizes = Sizes.of(
            self.scaled.curator,
            GradientSizes(view, self.scaled.multiplier(_SHARE), per_octave=1, of="slopes"),
        )
        return 0.0 if sizes.level is None else sizes.level[0]

    def at(self, step: int) -> Scaled:
        """The problem of a step: the last ones have their own."""
        problem = self.scaled.problem
        if not isinstance(problem.loss, Huber) or self.share == 0.0:
            return self.scaled
        threshold, left = problem.loss.threshold, max(0.0, 1.0 - step / (self.n_steps - _UNEASED))
        away = min(self._typical / threshold, _ABSURDLY_FAR)
        if left == 0.0 or away <= _FAR:
            return self.scaled
        return replace(self.scaled, problem=replace(problem, loss=Huber(threshold * away**left)))
