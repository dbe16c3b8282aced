"""The Laplace mechanism, which the appendix of the paper uses."""

from __future__ import annotations

import math
from dataclasses import dataclass

from dpcd.privacy import kernels
from dpcd.privacy.accounting import PrivacyCost
from dpcd.privacy.columns import WithinRanges
from dpcd.privacy.mechanism import freeze


@dataclass(frozen=True, eq=False)
class LaplaceSecondMoments(WithinRanges):
    """The same moments by the Laplace mechanism, as in the appendix of the paper.

    Notes
    -----
    Privacy. Each of the d sums moves by at most B, as for `SecondMoments` (the paper counts 2B). Discrete Laplace noise
    of scale B·d/ε on an integer of sensitivity B is (ε/d)-private; the d sums compose to ε.
    """

    epsilon: float

    description = "second moments (Laplace)"
    law = "laplace"
    kernel = staticmethod(kernels.square_sum)

    def __post_init__(self) -> None:
        super().__post_init__()
        freeze(self, epsilon=float)
        if not self.epsilon > 0.0:
            raise ValueError(f"epsilon must be positive, got {self.epsilon}")

    @property
    def count(self) -> int:  # type: ignore[override]
        """One release for each moment."""
        return self.size

    @property
    def noise_multipliers(self) -> tuple[float, float]:
        """Laplace scale relative to the sensitivity of one mean, twice."""
        return self.size / self.epsilon, self.size / self.epsilon

    @property
    def cost(self) -> PrivacyCost:
        """D releases that are (ε/d)-private each."""
        return self.size * PrivacyCost.pure_dp(self.epsilon / self.size)

    def sensitivity(self, bound: float) -> float:
        """B, for each sum by itself: the sums compose as d releases."""
        return bound

    def noise_level(self, n_records: int) -> float:
        """Standard deviation of the noise in each released mean."""
        return math.sqrt(2.0) * self.size / (self.epsilon * n_records)
