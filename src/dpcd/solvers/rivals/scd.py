"""DP-SCD: differentially private stochastic dual coordinate descent (Damaskinos et al. 2021)."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from dpcd.losses import Loss
from dpcd.penalties import L2, Penalty, Rescaled
from dpcd.privacy import Curator
from dpcd.privacy.rivals.batches import DualSteps
from dpcd.privacy.rivals.sampling import FixedSize, planned_order, sampled_noise_multiplier
from dpcd.solvers.problem import Problem, Solution, rehearse


@dataclass(frozen=True)
class DPSCD:
    """Dual coordinate descent on secret lots of records, for smooth losses with an l2 penalty and no intercept.

    Parameters
    ----------
    row_norm
        Public bound on the l2 norm of a record's features; longer records are scaled down to it.
    n_passes
        Passes over the data; each is n/lot_size lots.
    clip
        Largest change of a dual variable in one update.
    lot_size
        Records in a lot. None: a fiftieth of them.
    noise_multiplier
        Noise over sensitivity. None: the least that the budget allows.

    Notes
    -----
    Privacy. Everything goes through `dpcd.privacy.rivals.batches.DualSteps`. The method as published draws noise for
    the dual variables too; here it is drawn for all n of them at every lot: noise on the lot's own alone would show
    who was in it. With secure noise that is slow: n/lot_size·n draws a pass.
    """

    row_norm: float
    n_passes: int = 10
    clip: float = 1.0
    lot_size: int | None = None
    noise_multiplier: float | None = None

    def __post_init__(self) -> None:
        for name in ("n_passes", "lot_size"):
            value = getattr(self, name)
            if value is not None and (value < 1 or value != int(value)):
                raise ValueError(f"{name} must be a whole number of at least 1, got {value!r}")
        for name in ("row_norm", "clip"):
            value = getattr(self, name)
            if not 0.0 < value < math.inf:
                raise ValueError(f"{name} must be positive and finite, got {value!r}")

    @property
    def needs_slope(self) -> bool:
        """The clip is of dual variables."""
        return False

    def renyi_order(
        self, n_records: int, n_columns: int, epsilon: float, delta: float, n_problems: int
    ) -> float | None:
        """The best order for the lots."""
        sampling, every = self._sampling(n_records)
        return planned_order(sampling, epsilon, delta, n_problems * every * self.n_passes, n_records + n_columns)

    def _sampling(self, n_records: int) -> tuple[FixedSize, int]:
        """How lots are drawn, and how many make a pass."""
        lot_size = min(self.lot_size or max(1, n_records // 50), n_records)
        return FixedSize(lot_size, n_records), max(1, round(n_records / lot_size))

    def check(self, loss: Loss, penalty: Penalty, n_columns: int, intercept: bool, private: bool) -> None:
        """Raise unless the penalty is l2, which makes the dual smooth, and covers every column."""
        if intercept:
            raise ValueError("DPSCD has no place for an intercept without penalty: use fit_intercept=False, or DPCD()")
        if isinstance(penalty, Rescaled):
            raise ValueError("DPSCD works with one strength for all columns, in their units: give alpha, or use DPCD()")
        if not (isinstance(penalty, L2) and penalty.alpha > 0.0):
            raise ValueError(
                f"DPSCD works on the dual of a problem with an l2 penalty of alpha > 0, not with {penalty!r}: use "
                f"DPRidge or penalty='l2', or solver=DPCD()"
            )
        rehearse(DualSteps(loss, FixedSize(2, 2), 1, 1.0, 1.0, 1.0, 0.0, 2))

    def solve(self, curator: Curator, problem: Problem, parts: int, choices: np.random.Generator) -> Solution:
        """Spend one of `parts` equal parts of what is left on dual updates."""
        n_records = curator.n_records
        assert isinstance(problem.penalty, L2)
        sampling, every = self._sampling(n_records)
        count = every * self.n_passes
        multiplier = self.noise_multiplier
        if multiplier is None:
            draws = n_records + curator.n_columns
            multiplier = sampled_noise_multiplier(sampling, curator.budget, parts * count, draws, curator.spent)
        steps = DualSteps(
            problem.loss,
            sampling,
            count,
            self.clip,
            problem.penalty.alpha,
            self.row_norm,
            multiplier,
            curator.n_columns,
            problem.positive_class,
            every,
        )
        path = curator.release(steps)
        return Solution(path[-1], self.n_passes, path)
