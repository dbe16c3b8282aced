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

from dpcd.compilation import compiled, derivative, encode
from dpcd.losses import Loss
from dpcd.privacy.accounting import PrivacyCost
from dpcd.privacy.kernels import Unclipped
from dpcd.privacy.mechanisms import Columns, Floats, check_loss, frozen, lattice
from dpcd.privacy.noise import NoiseSource
from dpcd.privacy.statement import REPLACE_ONE


def add_partial_sums(features, target, loss, lattice, weights, columns, encoding, sums):  # type: ignore[no-untyped-def]
    """Add up the encoded partial derivatives ℓ'(y_i, x_i·w)·x_ij of each of some columns j."""
    slopes = np.zeros(features.shape[0])
    for j in range(weights.shape[0]):
        if weights[j] != 0.0:
            for i in range(slopes.shape[0]):
                slopes[i] += weights[j] * features[i, j]
    for i in range(slopes.shape[0]):
        slopes[i] = derivative(loss, target[i], slopes[i])
    for c in range(columns.shape[0]):
        j = columns[c]
        total = encode(lattice, 0.0, 1.0)
        for i in range(slopes.shape[0]):
            total += encode(lattice, slopes[i] * features[i, j], encoding[j])
        sums[c] += total


@dataclass(frozen=True, eq=False)
class _Descents:
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

    def __post_init__(self) -> None:
        if np.asarray(self.columns).dtype.kind not in "iu":
            raise ValueError("columns must be whole numbers")
        object.__setattr__(self, "columns", frozen(self.columns, np.int64))
        for name in ("weights", "units", "lower", "upper"):
            object.__setattr__(self, name, frozen(getattr(self, name), np.float64))
            if getattr(self, name).shape != np.shape(self.weights):
                raise ValueError(f"{name} needs one value for each of {len(self.weights)} columns")
        object.__setattr__(self, "clip", float(self.clip))
        object.__setattr__(self, "loss_range", float(self.loss_range))
        check_loss(self.loss)
        inside = self.columns.size and self.columns.min() >= 0 and self.columns.max() < len(self.weights)
        if not inside or len(np.unique(self.columns)) < len(self.columns):
            raise ValueError(f"columns must be different ones of 0 … {len(self.weights) - 1}, and at least one")
        if not self.loss_range > 0.0:
            raise ValueError(f"loss_range must be positive, got {self.loss_range}")
        if not (np.all(self.units[self.columns] > 0.0) and np.all(np.isfinite(self.units[self.columns]))):
            raise ValueError("units must be positive and finite")
        if not self.clip > 0.0:
            raise ValueError(f"clip must be positive, got {self.clip}")
        if not np.all(self.lower[self.columns] <= self.upper[self.columns]):
            raise ValueError("lower must not exceed upper")
        if math.isinf(self.clip) and math.isfinite(self.loss_range):
            raise ValueError(
                "an infinite clip leaves the sensitivity unbounded, which no noise can cover: give a finite clip, or "
                "epsilon=math.inf for a fit without privacy"
            )

    @property
    def noise_multipliers(self) -> tuple[float, float]:
        """Gumbel scale relative to the sensitivity 2B of one score, twice."""
        return 2.0 / self.loss_range, 2.0 / self.loss_range

    def _sides(self, data: Columns) -> tuple[NDArray[Any], NDArray[Any], float]:
        """Scores of moving each candidate up and down, in lattice units, and the bound B of the lattice."""
        if data.features.shape[1] != len(self.weights):
            raise ValueError(f"made for {len(self.weights)} columns, not for {data.features.shape[1]}")
        # Without noise, and only then, records may go unclipped.
        unclipped = math.isinf(self.loss_range) and math.isinf(self.clip)
        # The choice is exactly private at any scale of its noise, so there is no smallest one.
        encoder: Any = Unclipped() if unclipped else lattice(data.n_records, 0.0, 1.0)
        bound = 1.0 if unclipped else encoder.bound
        encoding = 1.0 / self.units if unclipped else bound / (self.clip * self.units)
        sums = np.zeros(len(self.columns), dtype=np.float64 if unclipped else np.int64)
        kernel = compiled(add_partial_sums, type(self.loss), encoder.__class__)
        target = data.signed_target(self.positive_class)
        kernel(data.features, target, self.loss, encoder, self.weights, self.columns, encoding, sums)
        units = data.n_records * encoding[self.columns]
        lower, upper = (side[self.columns] * units for side in (self.lower, self.upper))
        if not unclipped:
            # Sums stay within ± nB, so what is added to them may be cut there; no sum of both can overflow then.
            lower, upper = (_whole(side, data.n_records * bound) for side in (lower, upper))
        return -sums - upper, sums + lower, bound

    def _scale(self, bound: float) -> float:
        """Scale of the Gumbel noise."""
        return 4.0 * bound / self.loss_range


def _whole(values: Floats, largest: float) -> NDArray[np.int64]:
    """Round to integers of at most this size; NaN, which is 0 times infinity here, to 0."""
    return np.rint(np.clip(np.nan_to_num(values, posinf=largest, neginf=-largest), -largest, largest)).astype(np.int64)


@dataclass(frozen=True, eq=False)
class TopCoordinates(_Descents):
    """The k columns along which the objective falls most steeply, the steepest first.

    The score of a column is the distance of −g_j from [lower_j, upper_j], in its units: |g_j|/unit_j where both are 0.

    Parameters
    ----------
    n_chosen
        k.

    Notes
    -----
    Privacy. The score is the larger of the two sides' and 0. Each of the three moves by at most 2B when a record is
    replaced, and so does their maximum. See `_Descents` for the rest: k choices of bounded range η each.
    """

    n_chosen: int = 1

    description = "choice of coordinates"

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 1 <= self.n_chosen <= len(self.columns) or self.n_chosen != int(self.n_chosen):
            raise ValueError(f"n_chosen must be a whole number in 1 … {len(self.columns)}, got {self.n_chosen!r}")

    @property
    def count(self) -> int:
        """Number of choices."""
        return self.n_chosen

    @property
    def cost(self) -> PrivacyCost:
        """That of k choices."""
        return self.n_chosen * PrivacyCost.bounded_range(self.loss_range)

    def run(self, data: Columns, noise: NoiseSource) -> NDArray[np.int64]:
        """The chosen columns."""
        up, down, bound = self._sides(data)
        scores = np.maximum(np.maximum(up, down), 0)
        return self.columns[noise.top(scores, self._scale(bound), self.n_chosen)]


@dataclass(frozen=True, eq=False)
class SteepestVertex(_Descents):
    """The vertex of an l1 ball, or its center, towards which the linearized objective is lowest.

    The ball's radius along column j is ∝ 1/unit_j, so that rates in these units compare its vertices.

    Notes
    -----
    Privacy. The candidates are both sides of each column, whose scores move by at most 2B when a record is replaced,
    and the center, whose score is always 0. See `_Descents` for the rest: one choice of bounded range η.
    """

    description = "choice of a vertex"
    count = 1

    @property
    def cost(self) -> PrivacyCost:
        """That of one choice."""
        return PrivacyCost.bounded_range(self.loss_range)

    def run(self, data: Columns, noise: NoiseSource) -> tuple[int, int]:
        """The column, and +1 or −1 for its direction; 0 for the center."""
        up, down, bound = self._sides(data)
        scores = np.concatenate([up, down, np.zeros(1, dtype=up.dtype)])
        chosen = int(noise.top(scores, self._scale(bound), 1)[0])
        if chosen == len(scores) - 1:
            return 0, 0
        return int(self.columns[chosen % len(up)]), 1 if chosen < len(up) else -1
