"""A problem in units of its columns, and what is released in them."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dpcd.losses import ABOUT_LABELS, Loss
from dpcd.penalties import Penalty
from dpcd.policy import POLICY
from dpcd.privacy import Curator
from dpcd.privacy.records import GradientSizes, JointGradient, MomentMatrix, View
from dpcd.quadratic import Quadratic
from dpcd.ranges.sizes import Sizes
from dpcd.solvers.allocation import counting_share
from dpcd.solvers.preconditioner import Moments
from dpcd.solvers.problem import ChargedAsGaussian, Floats, Problem, Solution, rehearse

# Without noise there is nothing to gain by shortening any but absurd rows.
_NOISELESS_RADIUS = 1000.0
# The last gradient gets at most so many times the budget of the first, which would else be nothing but noise.
_MOST_GROWTH = 1e6
#: Budget in records with which all of them in one place just stand out at one look.
LEAST_RECORDS = POLICY.visible * math.sqrt(2.0 * POLICY.window_octaves / POLICY.counting_most)


class WholeRecordSolver(ChargedAsGaussian):
    """What solvers that clip whole records have in common."""

    @property
    def needs_slope(self) -> bool:
        """No: clips are set from releases of their own."""
        return False

    def check(self, loss: Loss, penalty: Penalty, n_columns: int, intercept: bool, private: bool) -> None:
        """Raise if the loss or the penalty does not compile."""
        view = View(np.arange(2), np.eye(2), np.zeros(2), loss)
        rehearse(JointGradient(view, 0.0, clip=1.0))
        # Two coordinates stand for all: the first and the last that the penalty is for.
        ends = np.array([0, n_columns - intercept - 1])
        Quadratic(np.eye(2), np.zeros(2), ends).minimize(penalty)


def checked_count(name: str, value: float | None) -> int:
    """A whole number from 1 to 10,000."""
    if value is None or not 1 <= value <= 10_000 or value != int(value):
        raise ValueError(f"{name} must be a whole number from 1 to 10000, got {value!r}")
    return int(value)


def check_share(name: str, value: float) -> None:
    """Raise if a part of the budget buys nothing, or leaves nothing for sizes and gradients."""
    if not 1e-3 <= value < POLICY.largest_share:
        raise ValueError(f"{name} must be a share of at least .001 and below {POLICY.largest_share:g}, got {value!r}")


def check_growth(n_steps: int, growth: float) -> None:
    """Raise if the last of so many steps gets all there is, each getting so many times what the one before it got."""
    if n_steps * math.log(growth) > math.log(_MOST_GROWTH):
        raise ValueError(
            f"with growth {growth:g}, {n_steps} steps leave nothing for the first: use fewer steps or less growth"
        )


@dataclass(frozen=True, eq=False)
class Scaled:
    """A problem in coordinates u = s·w in which every column x/s has second moment 1; columns that stay out are gone.

    Parameters
    ----------
    curator, problem
        Where the data are, and what to solve.
    mu
        √ of the μ² that may be spent, of which releases get shares.
    """

    curator: Curator
    problem: Problem
    mu: float
    active: NDArray[np.int64] = field(init=False)
    roots: Floats = field(init=False)

    def __post_init__(self) -> None:
        active = np.flatnonzero(self.problem.smoothness > 0.0)
        object.__setattr__(self, "active", active)
        object.__setattr__(self, "roots", np.sqrt(self.problem.smoothness[active] / self.problem.loss.curvature))

    @classmethod
    def of(cls, curator: Curator, problem: Problem, parts: int) -> Scaled:
        """With one of `parts` equal parts of what is left of the budget."""
        return cls(curator, problem, math.sqrt(curator.gaussian_room / parts))

    @property
    def size(self) -> int:
        """Number of columns that take part."""
        return len(self.active)

    @property
    def records(self) -> float:
        """N·μ, the budget in records: what one record in so many does is as large as the noise."""
        return self.curator.n_records * self.mu

    @property
    def even_handed(self) -> bool:
        """Whether records are clipped without a look at their labels, see `View`."""
        return isinstance(self.problem.loss, ABOUT_LABELS)

    @property
    def noiseless(self) -> bool:
        """Whether ε is infinite."""
        return math.isinf(self.mu)

    @property
    def radius(self) -> float:
        """Norm beyond which rows of columns with second moment 1 are shortened."""
        return (_NOISELESS_RADIUS if self.noiseless else POLICY.radius) * math.sqrt(self.size)

    def multiplier(self, share: float) -> float:
        """Noise multiplier of a Gaussian release that costs this share of μ²."""
        # A hair more noise than the share asks for, so that shares that add up to 1 fit whatever the rounding.
        return 0.0 if self.noiseless else (1.0 + 1e-9) / (self.mu * math.sqrt(share))

    def weights(self, point: Floats) -> Floats:
        """W of all columns, those that stay out included."""
        weights = np.zeros(self.curator.n_columns)
        weights[self.active] = point / self.roots
        return weights

    def view(self, transform: Floats, point: Floats) -> View:
        """Rows T·x/s and the loss at u."""
        problem = self.problem
        weights, loss, positive_class = self.weights(point), problem.loss, problem.positive_class
        return View(self.active, transform / self.roots, weights, loss, positive_class, self.even_handed)

    def minimum(self, hessian: Floats, linear: Floats, start: Floats) -> Floats:
        """Minimum of ½uᵀHu − bᵀu + ψ, by coordinate descent."""
        quadratic = Quadratic(hessian * np.outer(self.roots, self.roots), linear * self.roots, self.active)
        return quadratic.minimize(self.problem.penalty, self.problem.n_penalized, start / self.roots) * self.roots

    def admitted(self, point: Floats) -> Floats:
        """The point nearest to one, of those that the penalty admits: itself, unless there is a constraint."""
        weights, prox = self.weights(point), self.problem.penalty.prox
        for j in self.active[self.active < self.problem.n_penalized].tolist():
            # A step so short that a finite penalty does not move anything.
            weights[j] = prox(float(weights[j]), 1e-15, j)
        return np.asarray(weights[self.active] * self.roots)

    def standing(self, point: Floats) -> Solution:
        """The model at a point, where the budget buys no steps from there."""
        weights = self.weights(self.admitted(point))
        return Solution(weights, 0, weights[None, :])

    @property
    def counting_share(self) -> float:
        """The share of the budget that tells counts of records apart, within limits."""
        return counting_share(self.records, self.even_handed)

    def quadratic(self, hessian: Floats, linear: Floats, error: Floats) -> Quadratic:
        """The quadratic model in the coordinates of the weights, `error` being the covariance of its linear term's."""
        scale = np.outer(self.roots, self.roots)
        return Quadratic(hessian * scale, linear * self.roots, self.active, error * scale, self.problem.n_penalized)

    def _moments_in(self, whitening: Floats, share: float) -> MomentMatrix:
        """The release of the second moments of x/s in the metric of a whitening."""
        return MomentMatrix(self.view(whitening, np.zeros(self.size)), self.multiplier(share), radius=self.radius)

    def noise_of_moments(self, share: float) -> float:
        """Standard deviation of the noise on the diagonal of second moments that get this share of the budget."""
        return self._moments_in(np.eye(self.size), share).noise_level(self.curator.n_records)

    def release_moments(self, share: float, rounds: int) -> Moments:
        """Release the second moments of x/s in several rounds, each in the metric that the one before it found."""

        def look(whitening: Floats) -> Floats:
            return self.curator.release(self._moments_in(whitening, share / rounds))

        return Moments.of(look, self.size, self.radius, self.noise_of_moments(share / rounds), rounds)

    def release_gradient(self, whitening: Floats, point: Floats, clip: Clip, share: float) -> tuple[Floats, float]:
        """Noisy gradient with respect to u, clipped in the metric of the whitening, and its noise in that metric."""
        mechanism = JointGradient(self.view(whitening, point), self.multiplier(share), clip=clip.norm)
        # Rows were multiplied by B, so the sum is B·gradient.
        released = self.curator.release(mechanism)
        gradient = released / whitening if whitening.ndim == 1 else np.linalg.solve(whitening, released)
        return gradient / clip.kept, mechanism.noise_level(self.curator.n_records) / clip.kept

    def release_sizes(self, whitening: Floats, point: Floats, share: float) -> Sizes:
        """Noisy histogram of the sizes of gradients in the metric of the whitening."""
        multiplier = self.multiplier(share)
        per_octave = 1 if POLICY.coarse * multiplier > self.curator.n_records else 2
        mechanism, visible = (
            GradientSizes(self.view(whitening, point), multiplier, per_octave=per_octave),
            POLICY.visible,
        )
        if self.even_handed:
            # Slopes for labels are not far below their bound, and rows have norm √p on average. What is beyond the
            # octaves is counted in the outermost.
            largest = math.ceil(math.log2(POLICY.longest_row * self.problem.loss.lipschitz * math.sqrt(self.size)))
            mechanism = replace(mechanism, smallest=largest - POLICY.bounded_octaves, largest=largest)
            visible = POLICY.visible_labels
        return Sizes.release(self.curator, mechanism, visible)


class Clip(NamedTuple):
    """How gradients are clipped.

    Parameters
    ----------
    norm
        Largest norm of a record's gradient.
    kept
        What part of gradients is left on average, which their mean is divided by.
    """

    norm: float
    kept: float = 1.0
