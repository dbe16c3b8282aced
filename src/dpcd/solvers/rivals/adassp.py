"""Sufficient statistics: least squares from a noisy XᵀX and a noisy Xᵀy, once or boosted."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from dpcd.losses import Loss, Squared
from dpcd.penalties import Penalty
from dpcd.privacy import Curator
from dpcd.privacy.records import MomentMatrix
from dpcd.solvers.allocation import allocate
from dpcd.solvers.clipping import Clips
from dpcd.solvers.noiseless import known_solution
from dpcd.solvers.problem import Floats, Problem, Solution
from dpcd.solvers.scaled import Clip, Scaled, WholeRecordSolver, check_share, checked_count

# A shortened row biases what has no second look, so rows are left longer than elsewhere where there are few columns:
# normal ones of p columns are rarely longer than √p + 2.5.
_TAIL = 2.5
# Eigenvalues are raised to so many times the largest one that noise alone would have.
_RAISED = 0.8
# Below so many records of budget for each column, noise in Xᵀy is about as long as Xᵀy itself.
_RECORDS_PER_COLUMN = 4.0


class _LeastSquares(WholeRecordSolver):
    """A solver from XᵀX and Xᵀy."""

    def check(self, loss: Loss, penalty: Penalty, n_columns: int, intercept: bool, private: bool) -> None:
        """Raise if the loss is not the squared one, or the penalty does not compile."""
        if not isinstance(loss, Squared):
            raise ValueError(
                f"{type(self).__name__} works from XᵀX and Xᵀy, which hold all there is to know for the squared loss "
                f"only, and this is {type(loss).__name__}: use Squared(), or another solver such as DPNewton()"
            )
        super().check(loss, penalty, n_columns, intercept, private)


@dataclass(frozen=True, eq=False)
class AdaSSP(_LeastSquares):
    """Least squares from one noisy XᵀX and one noisy Xᵀy, with a ridge that adapts to the noise (Wang 2018).

    Noise can make XᵀX nearly singular. The ridge is what lifts its smallest eigenvalue to the level of the noise: none
    where the data are plenty, and much where they are not. Wang releases the smallest eigenvalue for a third of the
    budget. Here it is read off the noisy matrix, which is the one to be inverted, costs nothing and leaves more for
    the statistics. Columns are scaled to second moment 1 before rows are shortened, and the penalty is part of the
    minimisation, by coordinate descent on the noisy quadratic.

    Parameters
    ----------
    moments
        Share of the budget for XᵀX; most of the rest is for Xᵀy.

    Notes
    -----
    Privacy. Everything goes through the mechanisms of `dpcd.privacy.records`, all Gaussian; the ridge is
    post-processing.

    Biased by the ridge, by rows that were shortened in XᵀX and by clipped y·x: the error does not vanish with the noise
    where tails are heavy. At ε = ∞ all three are gone.
    """

    moments: float = 0.6

    def __post_init__(self) -> None:
        check_share("moments", self.moments)

    def solve(self, curator: Curator, problem: Problem, parts: int, choices: np.random.Generator) -> Solution:
        """Spend one of `parts` equal parts of what is left."""
        return _boosted(Scaled.of(curator, problem, parts), self.moments, n_rounds=1)


@dataclass(frozen=True, eq=False)
class BoostedAdaSSP(_LeastSquares):
    """`AdaSSP` on the residuals of the rounds before, several times over (Tang et al. 2023).

    XᵀX is released once. Residuals get smaller from round to round and with them the clip and the noise, and each round
    corrects what the ridge of the one before it has shrunk. With a penalty, a round minimises the quadratic around the
    weights found so far plus the penalty of all of the weights.

    Parameters
    ----------
    n_rounds
        How many Xᵀ(y − Xw) are released, with equal shares of the budget.
    moments
        Share of the budget for XᵀX.

    Notes
    -----
    Privacy. Everything goes through the mechanisms of `dpcd.privacy.records`, all Gaussian; the ridge is
    post-processing.
    """

    n_rounds: int = 3
    moments: float = 0.35

    def __post_init__(self) -> None:
        object.__setattr__(self, "n_rounds", checked_count("n_rounds", self.n_rounds))
        check_share("moments", self.moments)

    def solve(self, curator: Curator, problem: Problem, parts: int, choices: np.random.Generator) -> Solution:
        """Spend one of `parts` equal parts of what is left."""
        return _boosted(Scaled.of(curator, problem, parts), self.moments, self.n_rounds)


def _boosted(scaled: Scaled, share: float, n_rounds: int) -> Solution:
    """Fit residuals in so many rounds, with this share of the budget for the second moments."""
    # Without noise the ridge is zero, and rounds may go on until nothing is left to fit.
    known = known_solution(scaled)
    if known is not None:
        return known
    upright, point = np.eye(scaled.size), np.zeros(scaled.size)
    clips = Clips(allocate(scaled.records, scaled.problem.loss, n_rounds, share), used=1.0, divided=False)
    hopeless = scaled.records * math.sqrt(1.0 - share) <= _RECORDS_PER_COLUMN * scaled.size
    if hopeless or not clips.release_first(scaled, upright, point):
        return scaled.standing(point)
    hessian, doubt = _ridged_moments(scaled, share)
    path = []
    for t in range(n_rounds):
        clip = clips.release_at(t, scaled, upright, point)
        # As published, what the clip cuts off is not made up for.
        gradient, noise = scaled.release_gradient(upright, point, Clip(clip.norm), clips.shares.steps / n_rounds)
        before, linear = point, hessian @ point - gradient
        point = scaled.minimum(hessian, linear, before)
        path.append(scaled.weights(point))
    # The error of the linear term: noise of Xᵀ(y − Xw), that of XᵀX times the last move, and sampling.
    moved = point - before
    from_moments = 0.5 * doubt**2 * (moved @ moved * upright + np.outer(moved, moved))
    sampling = clips.squared_size / (scaled.size * scaled.curator.n_records) * hessian
    quadratic = scaled.quadratic(hessian, linear, noise**2 * upright + from_moments + sampling)
    return Solution(path[-1], n_rounds, np.array(path), quadratic=quadratic)


def _ridged_moments(scaled: Scaled, share: float) -> tuple[Floats, float]:
    """XᵀX/n of scaled columns with the ridge that it needs, and the noise on its diagonal."""
    size = scaled.size
    radius = max(scaled.radius, math.sqrt(size) + _TAIL)
    mechanism = MomentMatrix(scaled.view(np.eye(size), np.zeros(size)), scaled.multiplier(share), radius=radius)
    noise = mechanism.noise_level(scaled.curator.n_records)
    matrix = scaled.curator.release(mechanism)
    # As in `Moments.of`: what is missing of a second moment of 1 was hidden by shortening long rows.
    seen = np.diag(matrix) + 2.0 * scaled.problem.uncertainty_of(scaled.active)
    matrix = matrix + np.diag(np.maximum(0.0, 1.0 - seen))
    # The largest eigenvalue of a symmetric matrix of noise is about √(2p) times what it has on the diagonal.
    level = _RAISED * noise * math.sqrt(2.0 * size)
    ridge = max(0.0, level - float(np.linalg.eigvalsh(matrix)[0]))
    return matrix + ridge * np.eye(size), noise
