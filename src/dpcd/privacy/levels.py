"""How large partial derivatives are, over all records and columns together: what adaptive clipping goes by."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dpcd.compilation import compiled
from dpcd.losses import Loss
from dpcd.privacy import kernels
from dpcd.privacy.accounting import PrivacyCost
from dpcd.privacy.mechanisms import Columns, Floats, check_loss, check_multipliers, frozen, lattice
from dpcd.privacy.noise import NoiseSource
from dpcd.privacy.statement import REPLACE_ONE


@dataclass(frozen=True, eq=False)
class DerivativeSizes:
    """What part of all |ℓ'(y_i, x_i·w)·x_ij|/unit_j, over records i and columns j, lies beyond each of some levels.

    Parameters
    ----------
    loss, positive_class
        As in `CoordinateUpdates`.
    columns, units
        Columns that take part, and the unit in which each is measured.
    levels
        Increasing.
    weights
        w, with an entry for each column of the data.
    noise_multiplier
        Noise over the sensitivity of the histogram that the parts come from.

    Notes
    -----
    Privacy. The d entries of a record fall into at most d buckets between levels (NaN into none), and each adds the
    integer ⌊B/d⌋: a record adds a vector of non-negative integers that sum to at most B, so of l2 norm at most B, and
    replacing it moves the histogram by at most √2·B, however many columns there are. The noise is discrete Gaussian of
    scale z·√2·B in every bucket. Sums from the top are post-processing.
    """

    loss: Loss
    columns: NDArray[np.int64]
    units: Floats
    levels: Floats
    weights: Floats
    noise_multiplier: float
    positive_class: int | None = None

    description = "sizes of derivatives"
    relation = REPLACE_ONE
    count = 1

    def __post_init__(self) -> None:
        object.__setattr__(self, "noise_multiplier", float(self.noise_multiplier))
        object.__setattr__(self, "columns", frozen(self.columns, np.int64))
        for name in ("units", "levels", "weights"):
            object.__setattr__(self, name, frozen(getattr(self, name), np.float64))
        check_multipliers(self.noise_multiplier)
        check_loss(self.loss)
        if not (len(self.columns) and np.all(np.diff(self.columns) > 0)):
            raise ValueError("columns must be increasing, and there must be one")
        if not (self.columns[0] >= 0 and self.columns[-1] < len(self.weights)):
            raise ValueError(f"columns must lie in 0 … {len(self.weights) - 1}")
        if self.units.shape != self.columns.shape or not np.all(self.units > 0.0):
            raise ValueError(f"units must be positive, one for each of {len(self.columns)} columns")
        if not (len(self.levels) and self.levels[0] > 0.0 and np.all(np.diff(self.levels) > 0.0)):
            raise ValueError("levels must be positive and increasing")

    @property
    def noise_multipliers(self) -> tuple[float, float]:
        """The one noise multiplier, twice."""
        return self.noise_multiplier, self.noise_multiplier

    @property
    def cost(self) -> PrivacyCost:
        """One Gaussian release of a histogram."""
        return PrivacyCost.gaussian(self.noise_multiplier, draws=len(self.levels))

    def noise_levels(self, n_records: int) -> Floats:
        """Standard deviation of the noise in each part: the more buckets it is the sum of, the larger."""
        buckets = np.arange(len(self.levels), 0, -1)
        return math.sqrt(2.0) * self.noise_multiplier / n_records * np.sqrt(buckets)

    def run(self, data: Columns, noise: NoiseSource) -> Floats:
        """Noisy parts, one for each level."""
        if data.features.shape[1] != len(self.weights):
            raise ValueError(f"made for {len(self.weights)} columns, not for {data.features.shape[1]}")
        scale = math.sqrt(2.0) * self.noise_multiplier
        encoder = lattice(data.n_records, scale, scale)
        width = len(self.columns)
        draws = noise.gaussian(scale * encoder.bound, len(self.levels))
        kernel = compiled(kernels.derivative_counts, type(self.loss))
        target = data.signed_target(self.positive_class)
        counts = kernel(data.features, target, self.loss, self.weights, self.columns, self.units, self.levels)
        histogram = counts * np.int64(encoder.bound // width) + draws
        return np.cumsum(histogram[::-1].astype(np.float64))[::-1] / (encoder.bound * data.n_records)
