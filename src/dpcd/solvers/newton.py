"""Private proximal Newton steps, with coordinate descent inside."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from dpcd.losses import Loss, Squared
from dpcd.penalties import Penalty
from dpcd.privacy import Curator
from dpcd.privacy.joint import MomentMatrix
from dpcd.solvers.joint import Moments, Scaled, check_whole_records
from dpcd.solvers.problem import Floats, Problem, Solution

# A loss's second derivative changes between two points by about this part of its curvature, at the distance at which
# predictions differ by 1.
_CHANGE_OF_CURVATURE = 0.1
# Rows too long to be seen lie where a loss that is not quadratic has little curvature left.
_CURVATURE_OF_HIDDEN = 0.1
# Eigenvalues of a noisy Hessian are raised to twice their noise, within these parts of their mean: a direction that
# seems to have no curvature would get an endless step.
_RAISED, _LEAST_EIGENVALUE, _MOST_RAISED = 2.0, 0.05, 0.6
# p²/(nμ) from which on the matrix is nothing but noise.
_HOPELESS = 4.0


@dataclass(frozen=True, eq=False)
class DPNewton:
    """Proximal Newton steps in a private metric: the most accurate solver for few columns and many records.

    First the second moments of the columns are released, as a matrix; they are the Hessian of the squared loss, and an
    upper bound of any other's. Then a few gradients, each clipped in the metric of that matrix, in which records are
    about equally long in all directions. All gradients together make a quadratic model of the objective, and the model
    plus the penalty is minimised by coordinate descent, which costs nothing. For a loss that is not quadratic, the
    Hessian is released again on the way.

    The noise in the matrix grows as p^1.5, so it wants p² well below nμ; `DPBlockCD` takes over from there.

    Parameters
    ----------
    n_steps
        Gradients to release. None: 8 for the squared loss, 6 for others.
    growth
        Each gradient gets so many times the budget of the one before it: the last ones decide.
    moments, hessians
        Shares of the budget for the second moments, and for the Hessians of a loss that is not quadratic.

    Notes
    -----
    Privacy. Everything goes through the mechanisms of `dpcd.privacy.joint`, all Gaussian.
    """

    n_steps: int | None = None
    growth: float | None = None
    moments: float = 0.2
    hessians: float = 0.12

    def __post_init__(self) -> None:
        if self.n_steps is not None and (self.n_steps < 1 or self.n_steps != int(self.n_steps)):
            raise ValueError(f"n_steps must be a whole number of at least 1 or None, got {self.n_steps!r}")
        if self.growth is not None and not 1.0 <= self.growth < math.inf:
            raise ValueError(f"growth must be at least 1, or None, got {self.growth!r}")
        if not (self.moments > 0.0 and self.hessians > 0.0 and self.moments + self.hessians < 0.9):
            raise ValueError("moments and hessians must be positive shares that leave a tenth for gradients")

    @property
    def needs_slope(self) -> bool:
        """Clips are set from a release of its own."""
        return False

    def renyi_order(
        self, n_records: int, n_columns: int, epsilon: float, delta: float, n_problems: int
    ) -> float | None:
        """All releases are Gaussian."""
        return None

    def check(self, loss: Loss, penalty: Penalty, n_columns: int, intercept: bool, private: bool) -> None:
        """Raise if the loss or the penalty does not compile."""
        check_whole_records(loss, penalty)

    def solve(self, curator: Curator, problem: Problem, parts: int, choices: np.random.Generator) -> Solution:
        """Spend one of `parts` equal parts of what is left."""
        scaled = Scaled.of(curator, problem, parts)
        if scaled.size == 0 or scaled.mu == 0.0:
            return scaled.zero_model()
        if scaled.noiseless:
            return scaled.without_noise()
        if scaled.size**2 > _HOPELESS * scaled.records:
            return scaled.zero_model()
        quadratic = isinstance(problem.loss, Squared)
        n_steps = self.n_steps or (8 if quadratic else 6)
        refreshed = () if quadratic else tuple(t for t in (1, 3) if t < n_steps)
        hessians = self.hessians if refreshed else 0.0
        clips = scaled.clips(tuple(t for t in (1, 2, 4) if t < n_steps))
        shares = (self.growth or (1.5 if quadratic else 1.7)) ** np.arange(n_steps)
        shares *= (1.0 - self.moments - hessians - clips.total) / shares.sum()

        moments = scaled.moments(self.moments, rounds=2)
        curvature = problem.loss.curvature
        hessian = curvature * moments.matrix
        # How much less is known about a gradient at u from one at another point, for each unit of their distance².
        doubt = 2.0 * (curvature * moments.noise) ** 2 + (0.0 if quadratic else _CHANGE_OF_CURVATURE**2 / scaled.size)
        point = np.zeros(scaled.size)
        points, gradients, variances, path = [], [], [], []
        for t in range(n_steps):
            if t in refreshed:
                hessian = self._hessian(scaled, moments, point, hessians / len(refreshed))
            clip = clips.at(t, moments.whitening, point)
            if clip is None:
                return scaled.zero_model()
            gradient, noise = scaled.gradient(moments.whitening, point, clip, shares[t])
            points.append(point)
            gradients.append(gradient)
            variances.append(noise**2)
            # Every gradient says what the linear term of the model is; the farther from here, the less it is believed.
            apart = np.array(points) - point
            distances = np.einsum("ki,ij,kj->k", apart, moments.matrix, apart)
            hidden = np.sum((curvature * moments.hidden * apart) ** 2, axis=1) / scaled.size
            trust = 1.0 / (np.array(variances) + doubt * distances + hidden)
            trust /= trust.sum()
            linear = trust @ (np.array(points) @ hessian - np.array(gradients))
            point = _shrunk(
                scaled.step(hessian, linear, point), hessian, moments.matrix, float(trust**2 @ np.array(variances))
            )
            path.append(scaled.weights(point))
        variance = float(trust**2 @ np.array(variances))
        return Solution(
            path[-1],
            n_steps,
            np.array(path),
            quadratic=scaled.quadratic(hessian, linear, moments.matrix, variance, clips.squared_size),
        )

    def _hessian(self, scaled: Scaled, moments: Moments, point: Floats, share: float) -> Floats:
        """Release the Hessian at a point."""
        mechanism = MomentMatrix(
            scaled.view(moments.whitening, point), scaled.multiplier(share), radius=moments.radius, weighted=True
        )
        noise = mechanism.noise_level(scaled.curator.n_records)
        values, vectors = np.linalg.eigh(scaled.curator.release(mechanism))
        mean = max(float(values.mean()), noise)
        floor = min(_MOST_RAISED * mean, max(_LEAST_EIGENVALUE * mean, _RAISED * noise * math.sqrt(scaled.size)))
        back = np.linalg.inv(moments.whitening)
        seen = back @ ((vectors * np.maximum(values, floor)) @ vectors.T) @ back.T
        return np.asarray(scaled.problem.loss.curvature * (seen + _CURVATURE_OF_HIDDEN * np.diag(moments.hidden)))


def _shrunk(point: Floats, hessian: Floats, metric: Floats, variance: float) -> Floats:
    """Shrink a point towards zero as James and Stein do: by the part of its length that noise explains.

    Without signal this leads to the zero model, and with much of it does nothing.
    """
    length = float(point @ hessian @ point)
    if length <= 0.0:
        return point
    return point * max(0.0, 1.0 - variance * float(np.trace(np.linalg.solve(hessian, metric))) / length)
