"""What a solver is given, and what it gives back. It never sees the data."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from dpcd.losses import Loss
from dpcd.penalties import Penalty, sized
from dpcd.privacy import Columns, Curator, PrivacyBudget, SeededNoise
from dpcd.privacy.mechanism import Mechanism
from dpcd.quadratic.model import Quadratic

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Problem:
    """min_w mean ℓ(y, x·w) + Σ_{j < n_penalized} ψ_j(w_j), everything here public or released.

    Parameters
    ----------
    loss, penalty
        ℓ and ψ.
    smoothness
        M_j of each column, the intercept's included. A column with M_j = 0 stays out: its weight is 0.
    n_penalized
        Number of columns with a penalty: all but the intercept.
    slope
        Typical size of |∂ℓ/∂z| at the start, or None where clips are declared and nobody needs it.
    positive_class
        In classification, the class that counts as +1.
    uncertainty
        Standard deviation of the noise in each M_j, as a part of it; None where they are declared.
    compared
        Whether its predictions will be compared with those of other problems, one for each class.
    """

    loss: Loss
    penalty: Penalty
    smoothness: Floats
    n_penalized: int
    slope: float | None = None
    positive_class: int | None = None
    uncertainty: Floats | None = None
    compared: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "penalty", sized(self.penalty, self.n_penalized))

    def uncertainty_of(self, columns: NDArray[np.int64]) -> Floats:
        """Uncertainty of some columns' M_j, 0 where they are declared."""
        return np.zeros(len(columns)) if self.uncertainty is None else self.uncertainty[columns]


@dataclass(frozen=True, eq=False)
class Solution:
    """The weights a solver found, after how many passes over the data, and how it got there.

    `path` holds the weights after each pass, for experiments; it is as private as the weights themselves. Solvers that
    release a quadratic model of the loss return it too, and `notes` say what a reader of the statement should know.
    """

    weights: Floats
    n_passes: int
    path: Floats
    notes: tuple[str, ...] = ()
    quadratic: Quadratic | None = None


def rehearse(mechanism: Mechanism, n_columns: int = 2) -> None:
    """Run a mechanism on a table of zeros, so that a loss or penalty that does not work fails before any charge.

    A penalty is told the columns, and what it holds may be too short for some: it wants as many as there will be.
    """
    zeros = Columns(np.zeros((2, n_columns), order="F"), np.zeros(2))
    Curator(zeros, PrivacyBudget(math.inf, 0.5), SeededNoise(np.random.default_rng(0))).release(mechanism)


class Solver(Protocol):
    """A way to spend a budget on a problem."""

    @property
    def needs_slope(self) -> bool:
        """Whether `Problem.slope` must be known."""

    def check(self, loss: Loss, penalty: Penalty, n_columns: int, intercept: bool, private: bool) -> None:
        """Raise if the solver cannot work with this (columns count the intercept), before anything is charged."""

    def renyi_order(
        self, n_records: int, n_columns: int, epsilon: float, delta: float, n_problems: int
    ) -> float | None:
        """The order of a budget that is to be spent on so many problems; None if all releases are Gaussian."""

    def solve(self, curator: Curator, problem: Problem, parts: int, choices: np.random.Generator) -> Solution:
        """Spend one of `parts` equal parts of what is left; public random choices come from `choices`."""


class ChargedAsGaussian:
    """What solvers have in common whose releases are all charged as Gaussian."""

    def renyi_order(
        self, n_records: int, n_columns: int, epsilon: float, delta: float, n_problems: int
    ) -> float | None:
        """None: no order is needed."""
        return None
