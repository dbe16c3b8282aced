"""The choice of a solver, from public numbers alone."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from dpcd.losses import Loss, Squared
from dpcd.penalties import L1, ElasticNet, Penalty, WeightedL1, Zero, bare
from dpcd.policy import POLICY
from dpcd.privacy import Curator
from dpcd.solvers.block import DPBlockCD
from dpcd.solvers.newton import DPNewton
from dpcd.solvers.problem import Problem, Solution, Solver
from dpcd.solvers.scaled import WholeRecordSolver
from dpcd.solvers.screening import Screened


@dataclass(frozen=True)
class Choice:
    """A solver, and why it was chosen."""

    solver: Solver
    reason: str


def choose(n_records: int, n_columns: int, mu: float, penalty: Penalty, loss: Loss) -> Choice:
    """The solver for so many records and columns that take part, a budget μ, a penalty and a loss.

    Parameters
    ----------
    n_records, n_columns
        n and p.
    mu
        μ of the Gaussian releases that the budget has room for.
    penalty
        Whether it makes weights exactly zero decides if columns are screened first.
    loss
        Whether it is quadratic decides what a matrix of second moments is worth.
    """
    records = n_records * mu
    if math.isinf(mu):
        return Choice(DPNewton(), "proximal Newton, because there is no noise")
    penalty = bare(penalty)
    sparse = isinstance(penalty, (L1, WeightedL1)) or (isinstance(penalty, ElasticNet) and penalty.l1_ratio > 0.0)
    if sparse and n_columns >= POLICY.many_columns and n_columns * POLICY.records_per_column > records:
        return Choice(
            Screened(Auto(screening=False)),
            f"screening first, because an l1 penalty expects few of the {n_columns} columns to matter and the budget "
            f"is worth {records:.0f} records, fewer than {POLICY.records_per_column:.0f} for each column",
        )
    crowded = n_columns**3 / records if records > 0.0 else math.inf
    limit, least = POLICY.crowded_if_curved, POLICY.records_for_hessians
    if isinstance(loss, Squared):
        limit, least = POLICY.crowded, POLICY.records_for_a_matrix
    if records < least:
        return Choice(
            DPBlockCD(),
            f"one-block DP-CD, because the budget is worth {math.floor(records)} records, fewer than {least:.0f}",
        )
    if crowded <= limit:
        return Choice(DPNewton(), f"proximal Newton, because p³/(nμ) = {crowded:.2g} is at most {limit:g}")
    return Choice(DPBlockCD(), f"one-block DP-CD, because p³/(nμ) = {crowded:.2g} is above {limit:g}")


@dataclass(frozen=True)
class Auto(WholeRecordSolver):
    """The solver that `choose` finds best for the numbers of records and columns, the budget, the penalty and the loss.

    It looks at public and released numbers only, and the privacy statement says what was chosen and why.

    Parameters
    ----------
    screening
        Whether columns may be screened first.

    Notes
    -----
    Privacy. Everything goes through the solver that is chosen; the choice itself releases nothing.
    """

    screening: bool = True

    def check(self, loss: Loss, penalty: Penalty, n_columns: int, intercept: bool, private: bool) -> None:
        """Raise if one of the solvers does."""
        for solver in (Screened(DPNewton()), DPBlockCD()):
            solver.check(loss, penalty, n_columns, intercept, private)

    def solve(self, curator: Curator, problem: Problem, parts: int, choices: np.random.Generator) -> Solution:
        """Choose, and let the chosen solver spend one of `parts` equal parts of what is left."""
        n_columns = int(np.count_nonzero(problem.smoothness))
        penalty = problem.penalty if self.screening else Zero()
        mu = math.sqrt(curator.gaussian_room / parts)
        choice = choose(curator.n_records, n_columns, mu, penalty, problem.loss)
        solution = choice.solver.solve(curator, problem, parts, choices)
        return replace(solution, notes=(choice.reason, *solution.notes))
