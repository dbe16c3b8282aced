"""Screening: choose a few columns privately, then spend the rest of the budget on these alone."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

import numpy as np

from dpcd.losses import Loss
from dpcd.penalties import Penalty
from dpcd.policy import POLICY
from dpcd.privacy import Curator
from dpcd.privacy.accounting import largest_range
from dpcd.privacy.choices import TopCoordinates
from dpcd.solvers.cd import DPCD
from dpcd.solvers.initial import release_start
from dpcd.solvers.problem import Problem, Solution, Solver, rehearse
from dpcd.solvers.rivals.scd import DPSCD
from dpcd.solvers.rivals.sgd import DPSGD
from dpcd.solvers.scaled import Scaled


@dataclass(frozen=True)
class Screened:
    """Keep the columns with the largest mean of ℓ'(y, 0)·x_j, chosen by noisy maxima, and solve the problem on them.

    Noise in the weights grows with the number of columns, noise in a choice hardly does: where few of many columns
    matter, and n is not large beside p, choosing first is much better than solving for all.

    Parameters
    ----------
    solver
        What solves the problem on the columns that are kept: any solver for which a column may stay out.
    n_kept
        How many columns to keep, besides the intercept's. None: .3 times the root of the budget in records nμ, at least
        one. If there are no more columns than that anyway, nothing is spent on a choice.
    share
        Part of the budget that is spent on the choice.

    Notes
    -----
    Privacy. The choice goes through `dpcd.privacy.choices.TopCoordinates`, the rest is the solver's.

    Without noise (epsilon = inf) and with n_kept left out, all columns are kept. With n_kept given, the solution is
    that of the problem on those columns, which is not that on all of them.
    """

    solver: Solver = field(default_factory=DPCD)
    n_kept: int | None = None
    share: float = 0.3

    def __post_init__(self) -> None:
        if self.n_kept is not None and (self.n_kept < 1 or self.n_kept != int(self.n_kept)):
            raise ValueError(f"n_kept must be a whole number of at least 1 or None, got {self.n_kept!r}")
        if not 0.0 < self.share < 1.0:
            raise ValueError(f"share must lie between 0 and 1, got {self.share!r}")
        if isinstance(self.solver, type) or not hasattr(self.solver, "solve"):
            raise ValueError(f"solver must be an object such as DPCD(), got {self.solver!r}")
        if isinstance(self.solver, (DPSCD, DPSGD)):
            raise ValueError(
                f"{type(self.solver).__name__} steps along whole records and leaves no column out: use DPCD()"
            )

    @property
    def needs_slope(self) -> bool:
        """The clip of the choice is set from it too, but where the solver does without, a release of its own tells."""
        return self.solver.needs_slope

    def renyi_order(
        self, n_records: int, n_columns: int, epsilon: float, delta: float, n_problems: int
    ) -> float | None:
        """The solver's; choices are charged as Gaussian."""
        return self.solver.renyi_order(n_records, n_columns, epsilon, delta, n_problems)

    def check(self, loss: Loss, penalty: Penalty, n_columns: int, intercept: bool, private: bool) -> None:
        """Raise if the solver does, or a loss does not compile."""
        self.solver.check(loss, penalty, n_columns, intercept, private)
        zeros = np.zeros(2)
        rehearse(TopCoordinates(loss, np.arange(2), np.ones(2), 1.0, zeros, zeros, zeros, math.inf))

    def solve(self, curator: Curator, problem: Problem, parts: int, choices: np.random.Generator) -> Solution:
        """Spend a share of one of `parts` equal parts of what is left on the choice, and the rest of it as usual."""
        room = curator.gaussian_room / parts
        penalized = np.arange(len(problem.smoothness)) < problem.n_penalized
        candidates = np.flatnonzero(penalized & (problem.smoothness > 0.0))
        n_kept = self.n_kept or max(1.0, POLICY.screening_kept * math.sqrt(curator.n_records * math.sqrt(room)))
        if n_kept >= len(candidates):
            return self.solver.solve(curator, problem, parts, choices)
        if room <= 0.0:
            raise ValueError("there is no budget left for the choice of columns")
        slope, share = problem.slope, self.share
        if slope is None:
            scaled = Scaled(curator, problem, math.sqrt(room))
            everywhere = np.full(scaled.size, 1.0 / math.sqrt(scaled.size))
            seen = scaled.release_sizes(everywhere, np.zeros(scaled.size), POLICY.screening_slope * share).level
            if seen is None:
                return scaled.standing(release_start(scaled, 1.0 - share).point)
            # The size of a gradient whose row has norm 1 on average.
            slope, share = seen[0], (1.0 - POLICY.screening_slope) * share
        n_kept, zeros = int(n_kept), np.zeros(len(problem.smoothness))
        scales = np.sqrt(problem.smoothness / problem.loss.curvature)
        loss_range = largest_range(share * room / n_kept)
        kept = curator.release(
            TopCoordinates(
                problem.loss,
                candidates,
                scales,
                POLICY.screening_clip * slope,
                zeros,
                zeros,
                zeros,
                loss_range,
                problem.positive_class,
                n_kept,
            )
        )
        out = penalized.copy()
        out[kept] = False
        restricted = replace(problem, smoothness=np.where(out, 0.0, problem.smoothness))
        # What is left of this part, (1 − share)/parts, as a part of all that is left, 1 − share/parts; never more.
        parts_left = math.ceil((parts - self.share) / (1.0 - self.share) - 1e-9)
        return self.solver.solve(curator, restricted, parts_left, choices)
