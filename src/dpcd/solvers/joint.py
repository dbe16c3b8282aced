"""What solvers that clip whole records have in common: scaled coordinates, and what is released in them."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dpcd.losses import ABOUT_LABELS, Logistic, Loss, Squared
from dpcd.penalties import Penalty
from dpcd.privacy import Curator
from dpcd.privacy.records import GradientSizes, JointGradient, MomentMatrix, View
from dpcd.quadratic.model import Quadratic
from dpcd.ranges.sizes import VISIBLE, WINDOW_OCTAVES, Sizes
from dpcd.solvers.moments import Moments
from dpcd.solvers.problem import ChargedAsGaussian, Floats, Problem, Solution, rehearse

# Rows of second moment 1 in every column have norm √p on average; those 1.5 times as long or more are shortened.
_RADIUS = 1.5
# Without noise there is nothing to gain by shortening any but absurd rows.
_NOISELESS_RADIUS = 1000.0

# Where the noise multiplier exceeds 1/30 of the records, buckets of sizes are whole octaves. A bound of the slopes for
# labels leaves twelve of a hundred octaves, among which three show with fewer deviations of noise.
_COARSE, _BOUNDED_OCTAVES, _LONGEST_ROW, _VISIBLE_IF_BOUNDED = 30.0, 12, 8.0, 3.0
# A histogram, or a mean label, gets what makes its noise 1/20 of the records, within these shares of the budget. An
# even-handed clip does not depend on how long the tail of the sizes is, and there is one to fall back on.
_RESOLUTION, _COUNTING_SHARES, _EVEN_HANDED_SHARES = 20.0, (0.01, 0.25), (0.004, 0.15)
# Budget in records with which all of them in one place just stand out at one look.
LEAST_RECORDS = VISIBLE * math.sqrt(2.0 * WINDOW_OCTAVES / _COUNTING_SHARES[1])
# What moments and Hessians may take together, so that something is left for starts, sizes and gradients.
LARGEST_SHARE = 0.65

# Without noise there are at most so many steps, and nothing is left to do where a plain gradient step moves weights by
# this part of them. Of the bound on the Hessian so much is added at least and at the first sign of need, so many times
# more at the next try, and less after a step. A gradient may rise by a little more than expected.
_NOISELESS_STEPS, _NOTHING_LEFT = 1000, 1e-11
_LEAST_ADDED, _FIRST_ADDED, _MORE, _LESS, _A_LITTLE = 1e-9, 1e-4, 10.0, 100.0, 1.5
# The last gradient gets at most so many times the budget of the first, which would else be nothing but noise.
_MOST_GROWTH = 1e6


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
    if not 1e-3 <= value < LARGEST_SHARE:
        raise ValueError(f"{name} must be a share of at least .001 and below {LARGEST_SHARE:g}, got {value!r}")


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
        return (_NOISELESS_RADIUS if self.noiseless else _RADIUS) * math.sqrt(self.size)

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

    def step(self, hessian: Floats, linear: Floats, start: Floats) -> Floats:
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

    def zero_model(self) -> Solution:
        """What is left where the budget buys nothing but noise."""
        return self.standing(np.zeros(self.size))

    def without_noise(self) -> Solution:
        """Proximal Newton steps with the Hessian at each point, until a plain gradient step would move nothing.

        A step that goes too far is tried again with more of an upper bound of the Hessian added, as Levenberg and
        Marquardt do. Where the gradient rises along a step by no more than the model says, the objective has fallen all
        the way, and with the whole bound added it cannot rise by more.
        """
        moments = self.moments(1.0, rounds=1)
        bound = self.problem.loss.curvature * moments.matrix
        steepest = float(np.linalg.eigvalsh(bound)[-1]) * np.eye(self.size)

        def looked_at(point: Floats) -> tuple[Floats, Floats, float]:
            gradient, _ = self.gradient(np.ones(self.size), point, Clip(math.inf), 1.0)
            plain = self.step(steepest, steepest @ point - gradient, point)
            return point, gradient, float(np.linalg.norm(plain - point))

        (point, gradient, left), hessian = looked_at(np.zeros(self.size)), bound
        path: list[Floats] = []
        added, length = 1.0, 0.0
        for _ in range(_NOISELESS_STEPS):
            if not path or not isinstance(self.problem.loss, Squared):
                hessian = self._exact_hessian(moments, point)
            while True:
                model = hessian + added * bound
                tried = looked_at(self.step(model, model @ point - gradient, point))
                move = tried[0] - point
                rise, expected = float(move @ (tried[1] - gradient)), float(move @ model @ move)
                # Where steps get shorter and shorter a little too far is near enough.
                closing_in = rise <= _A_LITTLE * expected and np.linalg.norm(move) <= length / 2.0
                if rise <= expected or closing_in or added >= 1.0:
                    break
                added = min(max(_MORE * added, _FIRST_ADDED), 1.0)
            (point, gradient, left), added = tried, max(added / _LESS, _LEAST_ADDED)
            length = float(np.linalg.norm(move))
            path.append(self.weights(point))
            if left <= _NOTHING_LEFT * np.linalg.norm(point) or not move.any():
                break
        return Solution(path[-1], len(path), np.array(path), quadratic=self._exact_quadratic(moments, point))

    def _exact_hessian(self, moments: Moments, point: Floats) -> Floats:
        """The objective's own Hessian at a point."""
        # In the metric of the moments no row is longer than √n, and short rows want a fine lattice.
        radius = 2.0 * math.sqrt(self.curator.n_records)
        weighted = MomentMatrix(self.view(moments.whitening, point), 0.0, radius=radius, weighted=True)
        back = np.linalg.inv(moments.whitening)
        return np.asarray(self.problem.loss.curvature * back @ self.curator.release(weighted) @ back.T)

    def _exact_quadratic(self, moments: Moments, point: Floats) -> Quadratic:
        """The model at a point without noise."""
        hessian = self._exact_hessian(moments, point) + 1e-12 * np.eye(self.size)
        gradient, _ = self.gradient(moments.whitening, point, Clip(math.inf), 1.0)
        _, squared_size = self.sizes(moments.whitening, point, 1.0).level or (0.0, 0.0)
        error = self.error(hessian, moments.matrix, 0.0, squared_size)
        return self.quadratic(hessian, hessian @ point - gradient, error)

    @property
    def counting_share(self) -> float:
        """The share of the budget that tells counts of records apart, within limits."""
        few, most = _EVEN_HANDED_SHARES if self.even_handed else _COUNTING_SHARES
        return min(max((_RESOLUTION / self.records) ** 2, few), most)

    def quadratic(self, hessian: Floats, linear: Floats, error: Floats) -> Quadratic:
        """The quadratic model in the coordinates of the weights, `error` being the covariance of its linear term's."""
        scale = np.outer(self.roots, self.roots)
        return Quadratic(hessian * scale, linear * self.roots, self.active, error * scale, self.problem.n_penalized)

    def error(self, hessian: Floats, metric: Floats, variance: float, squared_size: float) -> Floats:
        """Covariance of what a linear term is off by: noise of this variance in the metric S, and sampling of records.

        The mean square of a logistic model's gradients is its Hessian, if the model is right; that of other losses is
        known over all p directions together.
        """
        logistic = isinstance(self.problem.loss, Logistic)
        sampling = hessian if logistic else squared_size / self.size * metric
        return np.asarray(variance * metric + sampling / self.curator.n_records)

    def _moments_in(self, whitening: Floats, share: float) -> MomentMatrix:
        """The release of the second moments of x/s in the metric of a whitening."""
        return MomentMatrix(self.view(whitening, np.zeros(self.size)), self.multiplier(share), radius=self.radius)

    def noise_of_moments(self, share: float) -> float:
        """Standard deviation of the noise on the diagonal of second moments that get this share of the budget."""
        return self._moments_in(np.eye(self.size), share).noise_level(self.curator.n_records)

    def moments(self, share: float, rounds: int) -> Moments:
        """Release the second moments of x/s in several rounds, each in the metric that the one before it found."""

        def look(whitening: Floats) -> Floats:
            return self.curator.release(self._moments_in(whitening, share / rounds))

        return Moments.of(look, self.size, self.radius, self.noise_of_moments(share / rounds), rounds)

    def gradient(self, whitening: Floats, point: Floats, clip: Clip, share: float) -> tuple[Floats, float]:
        """Noisy gradient with respect to u, clipped in the metric of the whitening, and its noise in that metric."""
        mechanism = JointGradient(self.view(whitening, point), self.multiplier(share), clip=clip.norm)
        # Rows were multiplied by B, so the sum is B·gradient.
        released = self.curator.release(mechanism)
        gradient = released / whitening if whitening.ndim == 1 else np.linalg.solve(whitening, released)
        return gradient / clip.kept, mechanism.noise_level(self.curator.n_records) / clip.kept

    def sizes(self, whitening: Floats, point: Floats, share: float) -> Sizes:
        """Noisy histogram of the sizes of gradients in the metric of the whitening."""
        multiplier = self.multiplier(share)
        per_octave = 1 if _COARSE * multiplier > self.curator.n_records else 2
        mechanism, visible = GradientSizes(self.view(whitening, point), multiplier, per_octave=per_octave), VISIBLE
        if self.even_handed:
            # Slopes for labels are not far below their bound, and rows have norm √p on average. What is beyond the
            # octaves is counted in the outermost.
            largest = math.ceil(math.log2(_LONGEST_ROW * self.problem.loss.lipschitz * math.sqrt(self.size)))
            mechanism = replace(mechanism, smallest=largest - _BOUNDED_OCTAVES, largest=largest)
            visible = _VISIBLE_IF_BOUNDED
        return Sizes.of(self.curator, mechanism, visible)


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
