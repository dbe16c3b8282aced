"""DP-SGD: differentially private proximal stochastic gradient descent, the paper's main rival."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np

from dpcd.losses import Loss
from dpcd.penalties import Penalty
from dpcd.privacy import Curator
from dpcd.privacy.rivals.batches import GradientSteps
from dpcd.privacy.rivals.sampling import FixedSize, Poisson, Sampling, planned_order, sampled_noise_multiplier
from dpcd.solvers.problem import Problem, Solution, rehearse


@dataclass(frozen=True)
class DPSGD:
    """Proximal stochastic gradient descent on secret batches, each record's gradient clipped in l2 norm.

    Parameters
    ----------
    n_passes
        Passes over the data; each is n/batch_size steps.
    step_size
        γ; the step is γ/β.
    clip
        Largest l2 norm C of a record's gradient. None: 2.5 times the root mean square of a row times the loss's slope.
    batch_size
        Records in a batch, or their expected number. The paper uses 1.
    sampling
        ``"fixed"``: batches of that size, neighbours replace one record as everywhere in this library. ``"poisson"``:
        every record by itself, neighbours **add or remove** one record, as the paper accounts for it; the privacy
        statement says so.
    global_smoothness
        β of the problem, public. None: ΣM_j, which is never below it.
    noise_multiplier
        Noise over sensitivity, to reproduce somebody else's calibration. None: the least that the budget allows.

    Notes
    -----
    Privacy. Everything goes through `dpcd.privacy.rivals.batches.GradientSteps`.
    """

    n_passes: int = 10
    step_size: float = 1.0
    clip: float | None = None
    batch_size: int = 1
    sampling: Literal["fixed", "poisson"] = "fixed"
    global_smoothness: float | None = None
    noise_multiplier: float | None = None

    def __post_init__(self) -> None:
        for name in ("n_passes", "batch_size"):
            value = getattr(self, name)
            if value < 1 or value != int(value):
                raise ValueError(f"{name} must be a whole number of at least 1, got {value!r}")
        for name in ("step_size", "clip", "global_smoothness"):
            value = getattr(self, name)
            if value is not None and not 0.0 < value < math.inf:
                raise ValueError(f"{name} must be positive and finite, got {value!r}")
        if self.sampling not in ("fixed", "poisson"):
            raise ValueError(f"sampling must be 'fixed' or 'poisson', got {self.sampling!r}")

    @property
    def needs_slope(self) -> bool:
        """A clip that is not declared is set from the slope."""
        return self.clip is None

    def check(self, loss: Loss, penalty: Penalty, n_columns: int, intercept: bool, private: bool) -> None:
        """Raise if a loss or penalty does not compile; everything separable will do."""
        n_penalized, start = n_columns - intercept, np.zeros(n_columns)
        rehearse(GradientSteps(loss, penalty, FixedSize(2, 2), 1, n_penalized, 1.0, 0.0, 0.0, start), n_columns)

    def renyi_order(
        self, n_records: int, n_columns: int, epsilon: float, delta: float, n_problems: int
    ) -> float | None:
        """The best order for the steps alone; what is released before them is little beside it."""
        sampling, every = self._sampling(n_records)
        return planned_order(sampling, epsilon, delta, n_problems * every * self.n_passes, n_columns)

    def _sampling(self, n_records: int) -> tuple[Sampling, int]:
        """How batches are drawn, and how many make a pass."""
        sampling: Sampling = FixedSize(min(self.batch_size, n_records), n_records)
        if self.sampling == "poisson":
            sampling = Poisson(min(1.0, self.batch_size / n_records), n_records)
        return sampling, max(1, round(n_records / sampling.mean_size))

    def solve(self, curator: Curator, problem: Problem, parts: int, choices: np.random.Generator) -> Solution:
        """Spend one of `parts` equal parts of what is left on gradients of batches."""
        n_records = curator.n_records
        smoothness = self.global_smoothness or float(problem.smoothness.sum())
        start = np.zeros(curator.n_columns)
        if smoothness == 0.0:
            return Solution(start, 0, start[None, :])
        sampling, every = self._sampling(n_records)
        count = every * self.n_passes
        multiplier = self.noise_multiplier
        if multiplier is None:
            multiplier = sampled_noise_multiplier(sampling, curator.budget, parts * count, len(start), curator.spent)
        clip = self.clip
        if clip is None:
            assert problem.slope is not None
            clip = 2.5 * problem.slope * math.sqrt(problem.smoothness.sum() / problem.loss.curvature)
        steps = GradientSteps(
            problem.loss,
            problem.penalty,
            sampling,
            count,
            problem.n_penalized,
            clip,
            self.step_size / smoothness,
            multiplier,
            start,
            problem.positive_class,
            every,
        )
        path = curator.release(steps)
        return Solution(path[-1], self.n_passes, path)
