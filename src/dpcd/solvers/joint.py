"""What solvers that clip whole records have in common: scaled coordinates, moments, and clips from sizes."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dpcd.losses import ABOUT_LABELS, Huber, Logistic, Loss, Squared
from dpcd.penalties import Penalty
from dpcd.privacy import Curator
from dpcd.privacy.joint import GradientSizes, JointGradient, MomentMatrix, View
from dpcd.solvers.problem import ChargedAsGaussian, Floats, Problem, Solution, rehearse
from dpcd.solvers.quadratic import Quadratic

# Eigenvalues of a noisy matrix that exceed their mean by so many times the reach of noise are not noise. All are raised
# by so many times √p·noise: a step in a direction that only seems flat would be too long.
_BEYOND_NOISE, _RAISED = 1.5, 0.75
# Rows of second moment 1 in every column have norm √p on average; those 1.5 times as long or more are shortened.
_RADIUS = 1.5
# Without noise there is nothing to gain by shortening any but absurd rows.
_NOISELESS_RADIUS = 1000.0

# A histogram of sizes shows something when three octaves hold more than so many deviations of noise: more if they could
# be any three of a hundred, less where a bound of the slopes for labels leaves twelve. Where the noise multiplier
# exceeds 1/30 of the records, buckets are whole octaves.
_VISIBLE, _VISIBLE_IF_BOUNDED, _WINDOW_OCTAVES, _COARSE = 5.0, 3.0, 3, 30.0
_BOUNDED_OCTAVES, _LONGEST_ROW, _FLAT_OCTAVES = 12, 8.0, 3
# A bucket counts as occupied when it exceeds so many deviations of noise.
_OCCUPIED = 1.0
# A histogram gets what makes its noise 1/40 of the records, within these shares of the budget, the first one more than
# those that follow. With less than 1/30 of the records it is not worth having. An even-handed clip does not depend on
# how long the tail of the sizes is, and there is one to fall back on.
_RESOLUTION, _WORTH_HAVING, _LATER_SIZES = 40.0, 30.0, 0.01
_FEW_SIZES, _MOST_SIZES = 0.01, 0.25
_FEW_EVEN_HANDED, _MOST_EVEN_HANDED = 0.004, 0.15
# So does the mean label, which is believed if it exceeds so many deviations of noise. No constant prediction is beyond
# the next number, and none is looked for with a loss that hardly has a slope.
_SURE_LABELS, _FARTHEST_CONSTANT, _LEAST_SLOPE = 3.0, 20.0, 1e-100
# How far second derivatives look to either side, as a part of the way on which a loss is curved, and the least part of
# its curvature that they are taken for.
_SHORT_WAY, _FLATTEST = 1e-3, 0.05
# What moments and Hessians may take together, so that with all this something is left for gradients.
LARGEST_SHARE = 0.65
# Budget in records with which all of them in one place just stand out; below it, only even-handed clips are known.
LEAST_RECORDS = _VISIBLE * math.sqrt(2.0 * _WINDOW_OCTAVES / _MOST_SIZES)
# A clip is raised by at most four octaves, for buckets that exceed so many deviations of noise. What it cuts off pulls
# in many directions, of which about √p cancel out; noise has √p of them, and so much of it is worth a unit of bias.
_RAISED_OCTAVES, _STANDS_OUT, _WORTH_OF_BIAS = 4, 3.5, 2.4
# A mean square is that of buckets that exceed so many, and a tail that of those that exceed the second.
_SQUARES_STAND_OUT, _IN_A_TAIL = 2.5, 2.0
# The larger slope that either label gives a typical record, over what it is where the prediction is zero.
_TYPICAL_REACH = 1.2

# Clips are factor·(nμ/p)^power times the mean size of gradients, within limits: (factor, power, least, most). Noise is
# proportional to them and bias falls with them, so the more budget for each column, the larger a clip. Even-handed
# ones have hardly any bias.
_CLIP = (0.3, 0.45, 0.6, 6.0)
_EVEN_HANDED_CLIP = (0.16, 0.35, 0.3, 2.5)

# Share of the budget that tells how far targets are from the start, for a loss that turns linear, how many thresholds
# away is far and how many are absurd, and how many steps are left for the loss itself.
_EASING_SHARE, _FAR, _ABSURDLY_FAR, _UNEASED = 0.01, 4.0, 1e30, 3

_NOISELESS_STEPS = 5000
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
        Quadratic(np.eye(2), np.zeros(2)).minimize(penalty)


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


def clip_multiple(records: float, size: int, even_handed: bool) -> float:
    """Clip of whole gradients, in units of their mean size, for a budget in records and so many columns."""
    factor, power, least, most = _EVEN_HANDED_CLIP if even_handed else _CLIP
    return min(max(factor * (records / size) ** power, least), most)


def shrunk(values: Floats, noise: float) -> tuple[Floats, float]:
    """Eigenvalues of a noisy symmetric matrix, shrunk towards their mean, and the part of their spread that is left.

    They are shrunk as James and Stein do, by the part of the spread that noise on the diagonal of this standard
    deviation explains. Those that stand out above the rest stay what they are.
    """
    reach = _BEYOND_NOISE * noise * math.sqrt(2.0 * len(values))
    ordinary = np.ones(len(values), dtype=bool)
    for _ in range(3):
        ordinary = values <= max(float(values[ordinary].mean()) + reach, float(values.min()))
    count = int(ordinary.sum())
    mean = max(float(values[ordinary].mean()), noise)
    spread = float(np.sum((values[ordinary] - mean) ** 2))
    explained = noise**2 * (count * (count + 1) / 2 - 1)
    # One alone is its own mean, from which it has no distance to shrink.
    left = 1.0 if count == 1 else max(0.0, 1.0 - explained / spread) if spread > 0.0 else 0.0
    return np.where(ordinary, mean + left * (values - mean), values), left


def best_constant(loss: Loss, mean: float) -> float:
    """The prediction that is best for all records alike, whose labels ±1 have this mean."""
    if mean == 0.0:
        return 0.0
    more, less = 1.0 + abs(mean), 1.0 - abs(mean)
    low, high = 0.0, _FARTHEST_CONSTANT
    for _ in range(50):
        middle = (low + high) / 2.0
        slope = more * loss.derivative(1.0, middle) + less * loss.derivative(-1.0, middle)
        low, high = (middle, high) if slope < 0.0 else (low, middle)
    return math.copysign((low + high) / 2.0, mean)


def _flatness(loss: Loss, constant: float, mean: float) -> float:
    """Mean second derivative at a constant prediction for labels of this mean, as a part of the loss's curvature."""
    # A part of the way on which its slope changes from one end to the other.
    way = _SHORT_WAY * loss.lipschitz / loss.curvature
    ends = constant - way, constant + way
    low, high = ((1.0 + mean) * loss.derivative(1.0, end) + (1.0 - mean) * loss.derivative(-1.0, end) for end in ends)
    return min(max((high - low) / (4.0 * way * loss.curvature), _FLATTEST), 1.0)


class Start(NamedTuple):
    """Where steps begin.

    Parameters
    ----------
    point
        The zero model, or a constant one.
    share
        Share of the budget that it took to find out.
    flatness
        Mean second derivative of the loss there, as a part of the largest that it has anywhere.
    """

    point: Floats
    share: float = 0.0
    flatness: float = 1.0


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

    def start(self, share: float | None = None) -> Start:
        """Where steps begin: for labels with an intercept at the best constant model, else at the zero model.

        The best constant takes one number, the mean label, where a gradient has noise in p of them. Where one class is
        rare, it is most of what a small budget can learn. Where predictions for several classes are compared, noise in
        their constants would decide. None: what is worth spending on it if steps follow.
        """
        point = np.zeros(self.size)
        intercept = np.flatnonzero(self.active == self.problem.n_penalized)
        if not self.even_handed or self.problem.compared or len(intercept) == 0 or self.mu == 0.0:
            return Start(point)
        if share is None:
            share = self._resolving(_FEW_EVEN_HANDED, _MOST_EVEN_HANDED)
        loss, weights = self.problem.loss, np.zeros(self.curator.n_columns)
        # At zero all slopes are equally large, so that the gradient of a column of ones is the mean label.
        slope = abs(loss.derivative(1.0, 0.0))
        if slope < _LEAST_SLOPE:
            return Start(point)
        ones = View(self.active[intercept], np.ones(1), weights, loss, self.problem.positive_class)
        mechanism = JointGradient(ones, self.multiplier(share), clip=slope)
        mean = -float(self.curator.release(mechanism)[0]) / slope
        noise = mechanism.noise_level(self.curator.n_records) / slope
        # Believed where it is surely more than noise, and never closer to certainty than noise allows.
        believed = abs(mean) > _SURE_LABELS * noise
        mean = math.copysign(min(abs(mean) - noise**2 / abs(mean), 1.0 - noise), mean) if believed else 0.0
        constant = best_constant(loss, mean)
        point[intercept] = constant * self.roots[intercept]
        return Start(point, share, _flatness(loss, constant, mean))

    def reach(self, point: Floats) -> float:
        """The larger slope that either label gives a record for which only the intercept counts."""
        intercept = self.active == self.problem.n_penalized
        constant = float(np.sum(point[intercept] / self.roots[intercept]))
        return max(abs(self.problem.loss.derivative(label, constant)) for label in (1.0, -1.0))

    def standing(self, point: Floats) -> Solution:
        """The model at a point, where the budget buys no steps from there."""
        weights = self.weights(self.admitted(point))
        return Solution(weights, 0, weights[None, :])

    def zero_model(self) -> Solution:
        """What is left where the budget buys nothing but noise."""
        return self.standing(np.zeros(self.size))

    def without_noise(self) -> Solution:
        """Steps on an upper bound of the objective, which nothing keeps from the minimum, until they stop moving."""
        moments = self.moments(1.0, rounds=1)
        hessian = self.problem.loss.curvature * moments.matrix
        point, path = np.zeros(self.size), []
        for _ in range(_NOISELESS_STEPS):
            gradient, _ = self.gradient(moments.whitening, point, Clip(math.inf), 1.0)
            before, linear = point, hessian @ point - gradient
            point = self.step(hessian, linear, before)
            path.append(self.weights(point))
            if np.max(np.abs(point - before)) <= 1e-12 * np.max(np.abs(point)):
                break
        return Solution(path[-1], len(path), np.array(path), quadratic=self._exact_quadratic(moments, point))

    def _exact_quadratic(self, moments: Moments, point: Floats) -> Quadratic:
        """The model at a point without noise, whose Hessian is the objective's own."""
        weighted = MomentMatrix(self.view(moments.whitening, point), 0.0, radius=moments.radius, weighted=True)
        back = np.linalg.inv(moments.whitening)
        seen = back @ self.curator.release(weighted) @ back.T + 1e-12 * np.eye(self.size)
        hessian = self.problem.loss.curvature * seen
        gradient, _ = self.gradient(moments.whitening, point, Clip(math.inf), 1.0)
        _, squared_size = self.sizes(moments.whitening, point, 1.0).level or (0.0, 0.0)
        return self.quadratic(hessian, hessian @ point - gradient, moments.matrix, 0.0, squared_size)

    def _resolving(self, few: float, most: float) -> float:
        """The share of the budget that tells counts of records apart, within limits."""
        return min(max((_RESOLUTION / self.records) ** 2, few), most)

    def clips(self, later: tuple[int, ...]) -> Clips:
        """Clips from sizes that are released at the first step, and again at some later ones if that is worth it."""
        few, most = (_FEW_EVEN_HANDED, _MOST_EVEN_HANDED) if self.even_handed else (_FEW_SIZES, _MOST_SIZES)
        first = self._resolving(few, most)
        share = min(first, _LATER_SIZES)
        if self.records * math.sqrt(share) < _WORTH_HAVING:
            later = ()
        return Clips(self, first, share, later)

    def quadratic(
        self,
        hessian: Floats,
        linear: Floats,
        metric: Floats,
        variance: float,
        squared_size: float,
        guessed: Floats | float = 0.0,
    ) -> Quadratic:
        """The quadratic model in the coordinates of the weights.

        Its linear term is off by privacy noise of this variance in the metric S, and by the sampling of the records.
        The mean square of a logistic model's gradients is its Hessian, if the model is right; that of other losses is
        known over all p directions together. What of the linear term is guessed may be wrong by as much as it is.
        """
        logistic = isinstance(self.problem.loss, Logistic)
        sampling = hessian if logistic else squared_size / self.size * metric
        scale = np.outer(self.roots, self.roots)
        doubt = np.diag(np.broadcast_to(np.square(guessed), self.size))
        covariance = (variance * metric + sampling / self.curator.n_records + doubt) * scale
        return Quadratic(hessian * scale, linear * self.roots, self.active, covariance, self.problem.n_penalized)

    def moments(self, share: float, rounds: int) -> Moments:
        """Release the second moments of x/s in several rounds, each in the metric that the one before it found."""
        size, radius = self.size, self.radius
        whitening = np.eye(size)
        for _ in range(rounds):
            mechanism = MomentMatrix(
                self.view(whitening, np.zeros(size)), self.multiplier(share / rounds), radius=radius
            )
            noise = mechanism.noise_level(self.curator.n_records)
            released = self.curator.release(mechanism)
            unwhitened = np.linalg.inv(whitening)
            values, vectors = np.linalg.eigh(released)
            values, left = shrunk(values, noise)
            raised = np.maximum(values, 0.0) + _RAISED * left * noise * math.sqrt(size) + 1e-12
            back = unwhitened @ vectors
            matrix, added = (back * raised) @ back.T, (back * (raised - values)) @ back.T
            # Second moments are 1 by construction: what is missing was hidden by shortening long rows, or the scale was
            # learnt and is too large. With too much curvature steps are short, with too little they diverge.
            hidden = np.maximum(0.0, 1.0 - np.diag(matrix))
            # Of a column that stands apart from others, shrinking eigenvalues takes away what the release had shown.
            missing = np.clip(1.0 - np.diag(unwhitened @ released @ unwhitened.T), 0.0, hidden)
            matrix = matrix + np.diag(hidden)
            whitening = np.tril(np.linalg.inv(np.linalg.cholesky(matrix)))
        return Moments(matrix, whitening, added, hidden, missing, noise, radius)

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
        mechanism, visible = GradientSizes(self.view(whitening, point), multiplier, per_octave=per_octave), _VISIBLE
        if self.even_handed:
            # Slopes for labels are not far below their bound, and rows have norm √p on average. What is beyond the
            # octaves is counted in the outermost.
            largest = math.ceil(math.log2(_LONGEST_ROW * self.problem.loss.lipschitz * math.sqrt(self.size)))
            mechanism = replace(mechanism, smallest=largest - _BOUNDED_OCTAVES, largest=largest)
            visible = _VISIBLE_IF_BOUNDED
        return Sizes.of(self.curator, mechanism, visible)

    def squared_length(self, move: Floats, share: float) -> float:
        """Mean square of what a move adds to predictions, of what of it can be seen."""
        length = float(np.linalg.norm(move))
        if not 1e-100 < length < 1e100:
            return 0.0
        # From what it is in a direction that is flat to the steepest that there can be.
        smallest = math.floor(math.log2(length)) - _FLAT_OCTAVES
        largest = smallest + _FLAT_OCTAVES + math.ceil(math.log2(math.sqrt(self.size))) + 2
        along = self.view(move[None, :], move)
        mechanism = GradientSizes(
            along, self.multiplier(share), per_octave=1, smallest=smallest, largest=largest, of="rows"
        )
        return Sizes.of(self.curator, mechanism).mean_square(self.curator.n_records)


@dataclass(frozen=True, eq=False)
class Easing:
    """The problem of each step: with a Huber loss whose threshold comes down to its own from how far targets are away.

    Where targets are many thresholds away, hardly any record has curvature left, and steps that are safe are as short
    as a threshold. With a threshold as large as what is typical of them, one step does most of the way.

    Parameters
    ----------
    scaled
        The problem.
    n_steps
        How many steps there are.
    """

    scaled: Scaled
    n_steps: int

    @property
    def share(self) -> float:
        """Share of the budget that it takes to find out how far targets are away."""
        return _EASING_SHARE if isinstance(self.scaled.problem.loss, Huber) and self.n_steps > _UNEASED else 0.0

    @property
    def ends(self) -> tuple[int, ...]:
        """The first step with the loss itself, if there are others before it."""
        return (self.n_steps - _UNEASED,) if self.share else ()

    @cached_property
    def _typical(self) -> float:
        """Mean distance of targets from the start, 0 if only noise can be seen."""
        distances = replace(self.scaled, problem=replace(self.scaled.problem, loss=Squared()))
        view = distances.view(np.ones(self.scaled.size), np.zeros(self.scaled.size))
        sizes = Sizes.of(
            self.scaled.curator,
            GradientSizes(view, self.scaled.multiplier(_EASING_SHARE), per_octave=1, of="slopes"),
        )
        return 0.0 if sizes.level is None else sizes.level[0]

    def at(self, step: int) -> Scaled:
        """The problem of a step: the last ones have their own."""
        problem = self.scaled.problem
        if not isinstance(problem.loss, Huber) or self.share == 0.0:
            return self.scaled
        threshold, left = problem.loss.threshold, max(0.0, 1.0 - step / (self.n_steps - _UNEASED))
        away = min(self._typical / threshold, _ABSURDLY_FAR)
        if left == 0.0 or away <= _FAR:
            return self.scaled
        return replace(self.scaled, problem=replace(problem, loss=Huber(threshold * away**left)))


@dataclass(frozen=True, eq=False)
class Moments:
    """Second moments of scaled columns, as far as they can be told.

    Parameters
    ----------
    matrix
        S, positive definite.
    whitening
        B, lower triangular, with B·S·Bᵀ = I.
    added, hidden, missing
        What of S is there only because of noise, what was added to its diagonal, and what of that the release did not
        show for rows that were shortened.
    noise
        Standard deviation of the noise on the diagonal, in whitened coordinates.
    radius
        Norm beyond which whitened rows are shortened.
    """

    matrix: Floats
    whitening: Floats
    added: Floats
    hidden: Floats
    missing: Floats
    noise: float
    radius: float

    @property
    def metric(self) -> Floats:
        """The matrix in which noise is alike in all directions: S, unless part of it was found not to be there."""
        back = np.linalg.inv(self.whitening)
        return np.asarray(back @ back.T)


@dataclass(frozen=True, eq=False)
class Sizes:
    """What a noisy histogram says about the sizes of gradients.

    Parameters
    ----------
    counts, edges
        Noisy number of records in each bucket, and the buckets' upper ends.
    noise
        Standard deviation of the noise in each count.
    per_octave
        Buckets between a size and its double.
    visible
        Deviations of noise that three octaves must exceed to show something.
    """

    counts: Floats
    edges: Floats
    noise: float
    per_octave: int
    visible: float = _VISIBLE

    @classmethod
    def of(cls, curator: Curator, mechanism: GradientSizes, visible: float = _VISIBLE) -> Sizes:
        """Release a histogram."""
        return cls(curator.release(mechanism), mechanism.edges, mechanism.noise_level, mechanism.per_octave, visible)

    @property
    def _middles(self) -> Floats:
        return np.asarray(self.edges * 2.0 ** (-0.5 / self.per_octave))

    @cached_property
    def _near(self) -> tuple[Floats, Floats] | None:
        """Counts and middles of the buckets about where most records are; None where only noise can be seen."""
        width = _WINDOW_OCTAVES * self.per_octave
        sums = np.convolve(self.counts, np.ones(width), mode="valid")
        first = int(np.argmax(sums))
        if sums[first] <= self.visible * self.noise * math.sqrt(width):
            return None
        near = slice(max(0, first - 2 * width), first + 2 * width)
        counts = np.where(self.counts[near] > _OCCUPIED * self.noise, self.counts[near], 0.0)
        return counts / counts.sum(), self._middles[near]

    @property
    def level(self) -> tuple[float, float] | None:
        """Mean and mean square, sizes above four times the mean counted as that; None where only noise can be seen."""
        if self._near is None:
            return None
        parts, middles = self._near
        mean = float(parts @ middles)
        for _ in range(5):
            mean = float(parts @ np.minimum(middles, 4.0 * mean))
        return mean, float(parts @ np.minimum(middles, 4.0 * mean) ** 2)

    def _outstanding(self, deviations: float) -> Floats:
        """Counts that exceed so many deviations of noise: a few far too large sizes would be noise."""
        return np.where(self.counts > deviations * self.noise, self.counts, 0.0)

    def mean_square(self, n_records: int) -> float:
        """Mean square over all records, those in buckets that do not stand out counted as zero."""
        return float(self._middles**2 @ self._outstanding(_SQUARES_STAND_OUT)) / n_records

    def exceeded_by(self, count: float) -> float:
        """The size that so many records exceed, from buckets that stand out; 0 where these hold fewer."""
        counts, ends = self._outstanding(_IN_A_TAIL)[::-1], self.edges[::-1]
        above = np.cumsum(counts)
        if count > above[-1]:
            return 0.0
        bucket = int(np.searchsorted(above, count))
        part = 1.0 - (above[bucket] - count) / counts[bucket]
        return float(ends[bucket] * 2.0 ** (-part / self.per_octave))

    def kept(self, clip: float) -> float:
        """Part of a gradient that a clip leaves, on average over the records; 1 where only noise can be seen."""
        if self._near is None:
            return 1.0
        parts, middles = self._near
        return float(parts @ np.minimum(1.0, clip / middles))

    def raised(self, clip: float, n_records: int, unit: float) -> float:
        """A clip, raised where it cuts off so much that this is worth more noise: `unit` for each unit of a clip."""
        start = int(np.searchsorted(self.edges, clip))
        end = start + _RAISED_OCTAVES * self.per_octave
        choices = np.concatenate([[clip], self.edges[start:end]])
        beyond = self._outstanding(_STANDS_OUT)[start:end]
        cut = np.maximum(self._middles[start:end] - choices[:, None], 0.0) @ beyond / n_records
        return float(choices[np.argmin((unit * choices) ** 2 + cut**2)])


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


@dataclass(eq=False)
class Clips:
    """The clip of each step, from the sizes of the gradients when last seen.

    Parameters
    ----------
    scaled
        The problem.
    first, share, later
        Shares of the budget for the sizes at step 0 and for those at each of the later steps, and which these are.
    """

    scaled: Scaled
    first: float
    share: float
    later: tuple[int, ...]
    clip: Clip | None = None
    squared_size: float = 0.0

    @property
    def total(self) -> float:
        """Share of the budget that all sizes get together."""
        return self.first + self.share * len(self.later)

    def at(self, step: int, whitening: Floats, point: Floats) -> Clip | None:
        """The clip at a point; None if at the first step nothing can be seen of the gradients."""
        if step == 0 or step in self.later:
            scaled = self.scaled
            sizes = scaled.sizes(whitening, point, self.share if step else self.first)
            seen = sizes.level
            if seen is None and step == 0 and scaled.even_handed:
                # Rows have norm √p on average, and the larger slope of two labels is little above that at the start.
                reach = _TYPICAL_REACH * scaled.reach(point)
                seen = reach * math.sqrt(scaled.size), reach**2 * scaled.size
            if seen is not None:
                mean, self.squared_size = seen
                norm = mean * clip_multiple(scaled.records, scaled.size, scaled.even_handed)
                if not scaled.even_handed:
                    unit = _WORTH_OF_BIAS * scaled.size / scaled.records
                    norm = sizes.raised(norm, scaled.curator.n_records, unit)
                self.clip = Clip(norm, sizes.kept(norm))
        return self.clip
