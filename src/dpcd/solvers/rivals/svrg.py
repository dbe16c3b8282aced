"""DP-SVRG: differentially private proximal gradient descent with variance reduction (Wang, Ye & Xu 2017)."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from dpcd.losses import Loss
from dpcd.penalties import Penalty
from dpcd.privacy import Curator, PrivacyBudget
from dpcd.privacy.accounting import ORDERS, PrivacyCost
from dpcd.privacy.records import JointGradient, View
from dpcd.privacy.rivals.batches import VarianceReducedSteps
from dpcd.privacy.rivals.sampling import FixedSize, planned_order, sampled_noise_multiplier
from dpcd.solvers.problem import Problem, Solution, rehearse

# Clips in units of what is typical: few records are cut, and those that are had most of the leverage.
_DEFAULT_CLIP = 2.5
# A full gradient's noise is worth having where nμ is beyond this many times the number of columns.
_WORTHWHILE = 6.0
# The noise of a step is a part of the way gone since the snapshot, and after too many steps it would feed on itself.
_NOISE_OF_STEPS = 10.0
_LARGEST_DEFAULT_STEPS = 100


@dataclass(frozen=True)
class DPSVRG:
    """Proximal gradient descent with variance reduction.

    A loop releases the gradient of all records at a snapshot and then takes steps along it, each corrected by a batch
    for what gradients have changed since the snapshot. A change is small near the snapshot, and so is the noise that
    hides it: nearly all of the budget can go into a few good gradients. The average of a loop's steps is the next
    snapshot.

    Parameters
    ----------
    n_loops
        Number of snapshots.
    n_steps
        Steps in each loop. None: 100, or as many as leave the noise in check, from n and the budget.
    batch_size
        Records in a batch. None: a fiftieth of them.
    step_size
        γ; the step is γ/β.
    clip
        Largest l2 norm of a record's gradient. None: 2.5 times the root mean square of a row times the loss's slope.
        A change of gradient is clipped to 2.5 times what is typical for the way gone since the snapshot.
    snapshot_share
        Part of the budget for the snapshots' gradients; the rest is for their changes.
    global_smoothness
        β of the problem, public. None: ΣM_j, which is never below it.
    noise_multipliers
        Noise over sensitivity of snapshots' gradients and of steps, to reproduce somebody else's calibration. None: the
        least that the budget allows.

    Notes
    -----
    Privacy. Everything goes through `dpcd.privacy.records.JointGradient` and
    `dpcd.privacy.rivals.batches.VarianceReducedSteps`.
    """

    n_loops: int = 5
    n_steps: int | None = None
    batch_size: int | None = None
    step_size: float = 1.0
    clip: float | None = None
    snapshot_share: float = 0.8
    global_smoothness: float | None = None
    noise_multipliers: tuple[float, float] | None = None

    def __post_init__(self) -> None:
        for name in ("n_loops", "n_steps", "batch_size"):
            value = getattr(self, name)
            if value is not None and (value < 1 or value != int(value)):
                raise ValueError(f"{name} must be a whole number of at least 1, got {value!r}")
        for name in ("step_size", "clip", "global_smoothness"):
            value = getattr(self, name)
            if value is not None and not 0.0 < value < math.inf:
                raise ValueError(f"{name} must be positive and finite, got {value!r}")
        if not 0.0 < self.snapshot_share < 1.0:
            raise ValueError(f"snapshot_share must lie strictly between 0 and 1, got {self.snapshot_share!r}")

    @property
    def needs_slope(self) -> bool:
        """A clip that is not declared is set from the slope."""
        return self.clip is None

    def check(self, loss: Loss, penalty: Penalty, n_columns: int, intercept: bool, private: bool) -> None:
        """Raise if a loss or penalty does not compile; everything separable will do."""
        columns, zeros, ones = np.arange(n_columns), np.zeros(n_columns), np.ones(n_columns)
        rehearse(JointGradient(View(columns, ones, zeros, loss), 0.0, clip=1.0), n_columns)
        problem, points = (loss, penalty, FixedSize(2, 2), 1, n_columns - intercept), (zeros, zeros, zeros)
        rehearse(VarianceReducedSteps(*problem, columns, 1.0, 1.0, 0.0, 0.0, *points, ones, n_columns), n_columns)

    def renyi_order(
        self, n_records: int, n_columns: int, epsilon: float, delta: float, n_problems: int
    ) -> float | None:
        """The best order for all gradients and steps together."""
        room = PrivacyBudget(epsilon, delta).gaussian_room()
        releases = n_problems * self.n_loops * self.steps(n_records, room / n_problems)
        # A budget of one order has room for less than an exact one.
        most = max(PrivacyBudget(epsilon, delta, order).gaussian_room() for order in ORDERS.tolist())
        gradients = PrivacyCost(self.snapshot_share * most)
        return planned_order(self.batches(n_records), epsilon, delta, releases, n_columns, gradients)

    def worthwhile(self, n_records: int, n_columns: int, mu_squared: float) -> bool:
        """Whether a budget buys more than noise, from public numbers."""
        return n_records * math.sqrt(mu_squared) > _WORTHWHILE * n_columns

    def steps(self, n_records: int, mu_squared: float) -> int:
        """Steps in each loop, from public numbers.

        The noise of a step is about z/batch_size ∝ sqrt(n_loops·n_steps)/(nμ) of the way gone, whatever the batch size.
        """
        if self.n_steps is not None:
            return self.n_steps
        steps = n_records * math.sqrt((1.0 - self.snapshot_share) * mu_squared / self.n_loops) / _NOISE_OF_STEPS
        return math.floor(min(max(steps, 1.0), _LARGEST_DEFAULT_STEPS))

    def _calibrated(self, curator: Curator, parts: int, size: int, n_steps: int) -> tuple[float, float]:
        """Noise multipliers of gradients and of steps that spend one of `parts` equal parts of what is left."""
        mu_squared = curator.gaussian_room / parts
        # A hair more noise than the budget asks, for the rounding of sums of costs.
        for_gradients = math.sqrt(self.n_loops / (self.snapshot_share * mu_squared)) * (1.0 + 1e-9)
        gradients = self.n_loops * PrivacyCost.gaussian(for_gradients, size)
        for_steps = sampled_noise_multiplier(
            self.batches(curator.n_records),
            curator.budget,
            parts * self.n_loops * n_steps,
            size,
            curator.spent + parts * gradients,
        )
        return for_gradients, for_steps

    def batches(self, n_records: int) -> FixedSize:
        """How batches are drawn."""
        return FixedSize(min(self.batch_size or math.ceil(n_records / 50), n_records), n_records)

    def solve(self, curator: Curator, problem: Problem, parts: int, choices: np.random.Generator) -> Solution:
        """Spend one of `parts` equal parts of what is left on snapshots and steps."""
        n_records, n_columns = curator.n_records, curator.n_columns
        columns = np.flatnonzero(problem.smoothness > 0.0)
        weights = np.zeros(n_columns)
        mu_squared = curator.gaussian_room / parts
        if len(columns) == 0 or not self.worthwhile(n_records, len(columns), mu_squared):
            return Solution(weights, 0, weights[None, :])
        smoothness = problem.smoothness[columns]
        clip = self.clip
        if clip is None:
            assert problem.slope is not None
            clip = _DEFAULT_CLIP * problem.slope * math.sqrt(smoothness.sum() / problem.loss.curvature)
        sampling, n_steps = self.batches(n_records), self.steps(n_records, mu_squared)
        for_gradients, for_steps = self.noise_multipliers or self._calibrated(curator, parts, len(columns), n_steps)
        path = []
        for _ in range(self.n_loops):
            snapshot = weights[columns]
            records = View(columns, np.ones(len(columns)), weights, problem.loss, problem.positive_class)
            gradient = curator.release(JointGradient(records, for_gradients, clip=clip))
            steps = VarianceReducedSteps(
                problem.loss,
                problem.penalty,
                sampling,
                n_steps,
                problem.n_penalized,
                columns,
                clip,
                # Typical |ℓ'(w) − ℓ'(v)| is curvature·sqrt(mean (x·(w − v))²), which orthogonal columns make this.
                _DEFAULT_CLIP * math.sqrt(smoothness.sum()),
                self.step_size / (self.global_smoothness or float(smoothness.sum())),
                for_steps,
                snapshot,
                gradient,
                snapshot,
                smoothness,
                n_columns,
                problem.positive_class,
            )
            weights = np.zeros(n_columns)
            weights[columns] = curator.release(steps)
            path.append(weights)
        n_passes = self.n_loops * (1.0 + n_steps * sampling.size / n_records)
        return Solution(weights, math.ceil(n_passes), np.array(path))
