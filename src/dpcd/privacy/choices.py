"""Private choice of coordinates: which of them has the steepest descent.

A choice releases no number, only which candidate came out on top of noisy scores. Scores are exact integers, made of
sums of clamped contributions as everywhere in the core, and the choice is the exponential mechanism.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpcd.losses import Loss
from dpcd.privacy.accounting import PrivacyCost
from dpcd.privacy.coordinates import partial_sums
from dpcd.privacy.lattice import Floats, Unclipped, lattice
from dpcd.privacy.mechanism import check_clip, check_loss, freeze
from dpcd.privacy.noise import NoiseSource
from dpcd.privacy.statement import REPLACE_ONE
from dpcd.tables import Part, Table


@dataclass(frozen=True, eq=False)
class Choice:
    """Candidates for a step, scored by how fast the objective falls along them.

    With g_j the mean over the records of ℓ'(y_i, x_i·w)·x_ij, each clamped to ± clip·unit_j, the objective falls at the
    rate −g_j − upper_j where w_j moves up and at the rate g_j + lower_j where it moves down; [lower_j, upper_j] are the
    slopes of the penalty. Rates are compared in each column's own units.

    Parameters
    ----------
    loss
        ℓ. Nothing here relies on its being what it says.
    columns
        The candidates.
    units
        unit_j, for every column: public, or functions of what was released.
    clip
        In these units, the same for all. Infinite is admitted where there is no noise (ε = ∞) only.
    weights
        w.
    lower, upper
        Slopes of the penalty to both sides of w, for every column; likewise.
    loss_range
        η: the privacy loss of one choice lies in an interval of this length. Infinite means no noise.
    positive_class
        As in `CoordinateUpdates`.

    Notes
    -----
    Record i contributes to the sum S_j an integer in [−B, B] that depends on record i and on public numbers, so that
    replacing it moves each S_j by at most 2B. A side's score is ± S_j plus a whole number that does not depend on the
    data, and moves by at most 2B either way. Scores of two candidates move by at most 4B against each other, so
    Gumbel noise of scale 4B/η makes choices of bounded range η. Noise that is drawn once for k choices has the same
    law as k choices with fresh noise, each among the candidates that are left.
    """

    loss: Loss
    columns: NDArray[np.int64]
    units: Floats
    clip: float
    weights: Floats
    lower: Floats
    upper: Floats
    loss_range: float
    positive_class: int | None = None

    law = "gumbel"
    relation = REPLACE_ONE
    #: Choices, each among the candidates that are left.
    count = 1

    def __post_init__(self) -> None:
        if np.asarray(self.columns).dtype.kind not in "iu":
            raise ValueError("columns must be whole numbers")
        arrays = ("weights", "units", "lower", "upper")
        freeze(self, columns=np.int64, clip=float, loss_range=float, **dict.fromkeys(arrays, np.float64))
        for name in arrays:
            if getattr(self, name).shape != np.shape(self.weights):
                raise ValueError(f"{name} needs one value for each of {len(self.weights)} columns")
        check_loss(self.loss)
        inside = self.columns.size and self.columns.min() >= 0 and self.columns.max() < len(self.weights)
        if not inside or len(np.unique(self.columns)) < len(self.columns):
            raise ValueError(f"columns must be different ones of 0 … {len(self.weights) - 1}, and at least one")
        if not self.loss_range > 0.0:
            raise ValueError(f"loss_range must be positive, got {self.loss_range}")
        if not (np.all(self.units[self.columns] > 0.0) and np.all(np.isfinite(self.units[self.columns]))):
            raise ValueError("units must be positive and finite")
        if not np.all(self.lower[self.columns] <= self.upper[self.columns]):
            raise ValueError("lower must not exceed upper")
        check_clip(self.clip, private=math.isfinite(self.loss_range))

    @property
    def noise_multipliers(self) -> tuple[float, float]:
        """Gumbel scale relative to the sensitivity 2B of one score, twice."""
        return 2.0 / self.loss_range, 2.0 / self.loss_range

    def lattice(self, n_records: int) -> Any:
        """The units of the sums; none without noise, and only then, where records go unclipped."""
        if math.isinf(self.clip) and math.isinf(self.loss_range):
            return Unclipped()
        # The choice is exactly private at any scale of its noise, so there is no smallest one.
        return lattice(n_records, self.sensitivity, self.noise_multipliers, self.law)

    def sensitivity(self, bound: float) -> float:
        """2B, for each sum by itself: scores are compared, not added up."""
        return 2.0 * bound

    def sums(self, part: Part, lattice: Any) -> NDArray[Any]:
        """The sum S_j of each candidate."""
        encoding = (lattice.bound / (self.clip * self.units)) if lattice.exact else 1.0 / self.units
        return partial_sums(part, lattice, self.loss, self.positive_class, self.weights, self.columns, encoding)

    @property
    def cost(self) -> PrivacyCost:
        """That of the choices."""
        return self.count * PrivacyCost.bounded_range(self.loss_range)

    def scores(self, table: Table) -> tuple[NDArray[Any], float]:
        """A score for each candidate, in lattice units, and the scale of the noise."""
        raise NotImplementedError

    def candidate(self, answer: Any) -> list[int]:
        """Which of the scores an answer stands for."""
        raise NotImplementedError

    def log_probability(self, answer: Any, table: Table) -> float:
        """How likely an answer is for a table, for an audit: it depends on the data and is no release."""
        scores, scale = self.scores(table)
        left = scores / scale - np.max(scores / scale)
        total = 0.0
        for chosen in self.candidate(answer):
            total += float(left[chosen] - np.logaddexp.reduce(left))
            left[chosen] = -np.inf
        return total

    def _sides(self, table: Table) -> tuple[NDArray[Any], NDArray[Any], float]:
        """Scores of moving each candidate up and down, in lattice units, and the scale of the noise."""
        units = self.lattice(table.n_records)
        sums = table.sums(self, units)
        encoding = units.bound / (self.clip * self.units) if units.exact else 1.0 / self.units
        whole = table.n_records * encoding[self.columns]
        lower, upper = (side[self.columns] * whole for side in (self.lower, self.upper))
        if units.exact:
            # Sums stay within ± nB, so what is added to them may be cut there; no sum of both can overflow then.
            lower, upper = (_whole(side, table.n_records * units.bound) for side in (lower, upper))
        scale = self.noise_multipliers[0] * self.sensitivity(units.bound)
        return -sums - upper, sums + lower, scale


def _whole(values: Floats, largest: float) -> NDArray[np.int64]:
    """Round to integers of at most this size; NaN, which is 0 times infinity here, to 0."""
    return np.rint(np.clip(np.nan_to_num(values, posinf=largest, neginf=-largest), -largest, largest)).astype(np.int64)


@dataclass(frozen=True, eq=False)
class TopCoordinates(Choice):
    """The k columns along which the objective falls most steeply, the steepest first.

    The score of a column is the distance of −g_j from [lower_j, upper_j], in its units: |g_j|/unit_j where both are 0.

    Parameters
    ----------
    n_chosen
        k.

    Notes
    -----
    Privacy. The score is the larger of the two sides' and 0. Each of the three moves by at most 2B when a record is
    replaced, and so does their maximum. See `Choice` for the rest: k choices of bounded range η each.
    """

    n_chosen: int = 1

    description = "choice of coordinates"

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 1 <= self.n_chosen <= len(self.columns) or self.n_chosen != int(self.n_chosen):
            raise ValueError(f"n_chosen must be a whole number in 1 … {len(self.columns)}, got {self.n_chosen!r}")

    @property
    def count(self) -> int:  # type: ignore[override]
        """K, one after the other."""
        return self.n_chosen

    def scores(self, table: Table) -> tuple[NDArray[Any], float]:
        """The larger of both sides' scores and 0, for each column."""
        up, down, scale = self._sides(table)
        return np.maximum(np.maximum(up, down), 0), scale

    def candidate(self, answer: NDArray[np.int64]) -> list[int]:
        """Places of the chosen columns."""
        return [self.columns.tolist().index(j) for j in answer.tolist()]

    def run(self, table: Table, noise: NoiseSource) -> NDArray[np.int64]:
        """The chosen columns."""
        scores, scale = self.scores(table)
        return self.columns[noise.top(scores, scale, self.n_chosen)]


@dataclass(frozen=True, eq=False)
class SteepestVertex(Choice):
    """The vertex of an l1 ball, or its center, towards which the linearized objective is lowest.

    The ball's radius along column j is ∝ 1/unit_j, so that rates in these units compare its vertices.

    Notes
    -----
    Privacy. The candidates are both sides of each column, whose scores move by at most 2B when a record is replaced,
    and the center, whose score is always 0. See `Choice` for the rest: one choice of bounded range η.
    """

    description = "choice of a vertex"

    def scores(self, table: Table) -> tuple[NDArray[Any], float]:
        """Up along each column, down along each, and the center."""
        up, down, scale = self._sides(table)
        return np.concatenate([up, down, np.zeros(1, dtype=up.dtype)]), scale

    def candidate(self, answer: tuple[int, int]) -> list[int]:
        """Place of the vertex."""
        column, side = answer
        width = len(self.columns)
        return [2 * width if side == 0 else self.columns.tolist().index(column) + (0 if side > 0 else width)]

    def run(self, table: Table, noise: NoiseSource) -> tuple[int, int]:
        """The column, and +1 or −1 for its direction; 0 for the center."""
        scores, scale = self.scores(table)
        side, place = divmod(int(noise.top(scores, scale, 1)[0]), len(self.columns))
        return (0, 0) if side == 2 else (int(self.columns[place]), 1 - 2 * side)
