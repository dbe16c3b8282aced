"""Private proximal Newton steps, with coordinate descent inside."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

from dpcd.losses import Logistic, Squared
from dpcd.privacy import Curator
from dpcd.privacy.records import MomentMatrix
from dpcd.quadratic.evidence import Evidence
from dpcd.quadratic.model import Quadratic
from dpcd.quadratic.tails import Cut
from dpcd.solvers.clips import Clips
from dpcd.solvers.easing import Easing
from dpcd.solvers.joint import (
    LARGEST_SHARE,
    Clip,
    Scaled,
    WholeRecordSolver,
    check_growth,
    check_share,
    checked_count,
)
from dpcd.solvers.moments import Moments, hidden_by_noise, raised, shrunk, unexplained
from dpcd.solvers.problem import Floats, Problem, Solution
from dpcd.solvers.start import Start

# How much more of the budget each gradient gets than the one before it.
_GROWTH, _GROWTH_IF_QUADRATIC = 1.6, 1.2
# Steps before which the Hessian of a loss that is not quadratic is released.
_REFRESHED = (1, 3)
# Where the curvature falls below this part of what it was, the start was far away: another step with a fresh Hessian
# takes the place of a later one. Once that has happened, less of a fall is enough.
_FALLEN, _FALLEN_AGAIN = 0.5, 0.65
# A loss's second derivative changes between two points by about this part of its curvature, at the distance at which
# predictions differ by 1.
_CHANGE_OF_CURVATURE = 0.05
# A Hessian shows rows that are too long for the moments where a loss that is not quadratic has little curvature left of
# them. This part of what is hidden stands for those that are long and curved.
_CURVATURE_OF_HIDDEN = 0.15
# No eigenvalue of a Hessian is taken for less than this part of their mean: a direction that seems to have no curvature
# would get an endless step.
_LEAST_EIGENVALUE = 0.05
# No step changes predictions by more than so many times what the last one or a safe one does, nor by more than half of
# what the last one did, if the slope at its end says by so many deviations of noise that it was too long.
_LONGER, _CERTAIN = 3.0, 3.0
# Sizes are the same where predictions differ by less than this part of a typical residual.
_SAME_SIZES = 0.5
# What records whose labels a clip does not look at would pull, this part of it does not cancel out.
_WRONG = 0.05
# p²/(nμ) from which on the matrix is nothing but noise.
_HOPELESS = 4.0


@dataclass(frozen=True, eq=False)
class DPNewton(WholeRecordSolver):
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
        Gradients to release.
    growth
        Each gradient gets so many times the budget of the one before it: the last ones decide. None: 1.2 for the
        squared loss, whose model all gradients make together, and 1.6 for others.
    moments, hessians
        Shares of the budget for the second moments, and for the Hessians of a loss that is not quadratic.

    Notes
    -----
    Privacy. Everything goes through the mechanisms of `dpcd.privacy.records`, all Gaussian.
    """

    n_steps: int = 8
    growth: float | None = None
    moments: float = 0.1
    hessians: float = 0.08

    def __post_init__(self) -> None:
        object.__setattr__(self, "n_steps", checked_count("n_steps", self.n_steps))
        if self.growth is not None and not 1.0 <= self.growth < math.inf:
            raise ValueError(f"growth must be at least 1, or None, got {self.growth!r}")
        check_growth(self.n_steps, self.growth or _GROWTH)
        for name in ("moments", "hessians"):
            check_share(name, getattr(self, name))
        if self.moments + self.hessians >= LARGEST_SHARE:
            left = 1.0 - LARGEST_SHARE
            raise ValueError(f"moments and hessians must be shares that leave {left:g} for sizes and gradients")

    def solve(self, curator: Curator, problem: Problem, parts: int, choices: np.random.Generator) -> Solution:
        """Spend one of `parts` equal parts of what is left."""
        scaled = Scaled.of(curator, problem, parts)
        if scaled.size == 0 or scaled.mu == 0.0:
            return scaled.zero_model()
        if scaled.noiseless:
            return scaled.without_noise()
        if scaled.size**2 > _HOPELESS * scaled.records:
            return scaled.standing(Start.of(scaled, 1.0).point)
        quadratic = isinstance(problem.loss, Squared)
        refreshed = () if quadratic else tuple(t for t in _REFRESHED if t < self.n_steps)
        hessian_share = self.hessians / max(1, len(refreshed))
        weights = (self.growth or (_GROWTH_IF_QUADRATIC if quadratic else _GROWTH)) ** np.arange(self.n_steps)
        start, easing = Start.of(scaled), Easing(scaled, self.n_steps)
        moments = scaled.moments(self.moments, rounds=2)
        taken = self.moments + start.share + hessian_share * len(refreshed) + easing.share
        clips = Clips.of(easing.at(0), self.n_steps, taken, easing.ends)
        if not clips.begin(moments.whitening, start.point):
            return scaled.standing(start.point)
        left = 1.0 - taken - clips.total

        model = _Model(scaled, moments, start.point)
        path: list[Floats] = []
        point, step, repeats = start.point, 0, 0
        while step < len(weights):
            repeated = False
            clips.scaled = easing.at(len(path))
            model.turn_to(clips.scaled)
            if step in refreshed:
                fall = model.refresh(point, hessian_share)
                far = fall < (_FALLEN_AGAIN if repeats else _FALLEN)
                room = len(weights) > refreshed[-1] + 2 and hessian_share < 0.2 * left
                repeated = far and room
            share = left * weights[step] / weights[step:].sum()
            left -= share
            if repeated:
                left -= hessian_share
                weights = weights[:-1]
                repeats += 1
            else:
                step += 1
            point = model.step(point, clips.at(len(path), moments.whitening, point), share)
            path.append(scaled.weights(point))
        return Solution(path[-1], len(path), np.array(path), quadratic=model.quadratic(clips))


@dataclass(eq=False)
class _Model:
    """The quadratic model that all released gradients make together.

    Parameters
    ----------
    scaled, moments
        The problem, and the second moments of its columns.
    start
        Where the steps begin.
    """

    scaled: Scaled
    moments: Moments
    start: Floats
    hessian: Floats = field(init=False)
    whitened: Floats = field(init=False)
    linear: Floats = field(init=False)
    variance: float = field(init=False)
    level: float = 1.0
    unsure: float | None = None
    points: list[Floats] = field(default_factory=list)
    gradients: list[Floats] = field(default_factory=list)
    variances: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.hessian = self.scaled.problem.loss.curvature * self.moments.matrix
        self.whitened = np.eye(self.scaled.size)

    def turn_to(self, scaled: Scaled) -> None:
        """Go on with a problem that differs in its loss: gradients of another say nothing about it."""
        if scaled.problem.loss != self.scaled.problem.loss:
            for memory in (self.points, self.gradients, self.variances):
                memory.clear()
        self.scaled = scaled

    def refresh(self, point: Floats, share: float) -> float:
        """Release the Hessian at a point; returns its mean curvature as a part of what it was."""
        scaled, moments = self.scaled, self.moments
        mechanism = MomentMatrix(
            scaled.view(moments.whitening, point), scaled.multiplier(share), radius=moments.radius, weighted=True
        )
        noise = mechanism.noise_level(scaled.curator.n_records)
        back = np.linalg.inv(moments.whitening)
        released = scaled.curator.release(mechanism)
        self.unsure = hidden_by_noise(released, noise)
        self.whitened, mean = _believed_hessian(released, noise, back.T @ point)
        seen = back @ self.whitened @ back.T
        # What was added to the moments is no part of any record, so it is added here too.
        unseen = mean * moments.added + _CURVATURE_OF_HIDDEN * np.diag(moments.hidden)
        self.hessian = scaled.problem.loss.curvature * (seen + unseen)
        fall, self.level = mean / self.level, mean
        return fall

    def step(self, point: Floats, clip: Clip, share: float) -> Floats:
        """Release the gradient at a point, and return the minimum of the model with it."""
        scaled, moments = self.scaled, self.moments
        gradient, noise = scaled.gradient(moments.whitening, point, clip, share)
        self.points.append(point)
        self.gradients.append(gradient)
        self.variances.append(noise**2)
        quadratic = isinstance(scaled.problem.loss, Squared)
        # Every gradient says what the linear term of the model is; the farther from here, the less it is believed.
        curvature = scaled.problem.loss.curvature
        doubt = 2.0 * (curvature * moments.noise) ** 2 + (0.0 if quadratic else _CHANGE_OF_CURVATURE**2 / scaled.size)
        points, gradients, variances = np.array(self.points), np.array(self.gradients), np.array(self.variances)
        apart = points - point
        distances = np.einsum("ki,ij,kj->k", apart, moments.matrix, apart)
        hidden = np.sum((curvature * moments.hidden * apart) ** 2, axis=1) / scaled.size
        trust = 1.0 / (variances + doubt * distances + hidden)
        trust /= trust.sum()
        self.linear = trust @ (points @ self.hessian - gradients)
        self.variance = float(trust**2 @ variances)
        end = scaled.step(self.hessian, self._believed_linear(), point)
        length, longest = self._length(end - point), self._longest_move()
        return end if length <= longest else scaled.admitted(point + longest / length * (end - point))

    def _longest_move(self) -> float:
        """How far to trust the model: a few times as far as what is safe whatever the curvature, or as the last move.

        Half as far as the last move, if that was surely too long. Of the curvature of a loss that turns linear, or is
        sure of most records, little may be left, and moments that are mostly noise may show too little.
        """
        safe, point = self.scaled.problem.loss.curvature * self.moments.matrix, self.points[-1]
        longest = self._length(self.scaled.step(safe, safe @ point - self.gradients[-1], point) - point)
        if len(self.points) > 1:
            last = point - self.points[-2]
            noise = math.sqrt(self.variances[-1] * float(last @ self.moments.metric @ last))
            if last @ self.gradients[-1] > _CERTAIN * noise:
                return 0.5 * self._length(last)
            longest = max(longest, self._length(last))
        return _LONGER * longest

    def _length(self, move: Floats) -> float:
        """By how much a move changes predictions, in root mean square."""
        return math.sqrt(float(move @ self.moments.matrix @ move))

    def _believed_linear(self) -> Floats:
        """The linear term, less the part of the move from the start that noise explains.

        Without signal this leads back to the start, and with much of it does nothing.
        """
        standing = self.hessian @ self.start
        pull = self.linear - standing
        length = float(pull @ np.linalg.solve(self.hessian, pull))
        explained = self.variance * float(np.trace(np.linalg.solve(self.hessian, self.moments.metric)))
        return np.asarray(standing + unexplained(length, explained) * pull)

    def quadratic(self, clips: Clips) -> Quadratic:
        """The model in the coordinates of the weights."""
        roots = self.scaled.roots
        scale = np.outer(roots, roots)
        evidence = self._evidence(clips) if self.points else None
        columns, n_penalized = self.scaled.active, self.scaled.problem.n_penalized
        return Quadratic(self.hessian * scale, self.linear * roots, columns, None, n_penalized, evidence)

    def _evidence(self, clips: Clips) -> Evidence | None:
        """What gradients say of the minimum, in the metric of the moments."""
        scaled, moments, loss = self.scaled, self.moments, self.scaled.problem.loss
        size, whitening, quadratic = scaled.size, moments.whitening, isinstance(loss, Squared)
        back = np.linalg.inv(whitening)
        seen = whitening @ moments.seen @ whitening.T
        noise = whitening @ moments.unwhitened * math.sqrt(moments.unsure)
        # Rows that were shortened are missing in all directions, in proportion to what is there.
        lost = max(0.0, 1.0 - float(np.trace(seen)) / size)
        root, doubts = _root(seen), tuple[Floats, ...]()
        if quadratic:
            doubts = (noise, math.sqrt(math.sqrt(2.0) * lost) * root)
            curvature, change = seen, 0.0
        elif self.unsure is None:
            return None
        else:
            curvature = loss.curvature * root @ self.whitened @ root
            unsure = math.hypot(self.unsure, self.level * moments.unsure)
            doubts, change = (math.sqrt(loss.curvature * unsure) * root,), _CHANGE_OF_CURVATURE / math.sqrt(size)
        typical = math.sqrt(clips.squared_size / size)
        sampling = curvature if isinstance(loss, Logistic) else typical**2 * np.eye(size)
        return Evidence(
            points=np.array(self.points) @ back,
            gradients=np.array(self.gradients) @ whitening.T,
            variances=np.array(self.variances),
            curvature=curvature,
            doubts=doubts,
            metric=whitening @ (moments.matrix - np.diag(moments.hidden)) @ whitening.T,
            sampling=sampling / scaled.curator.n_records,
            change=change,
            bias=self._bias(clips, typical),
            reach=typical / loss.curvature,
            start=self.start @ back,
            back=whitening.T / scaled.roots[:, None],
        )

    def _bias(self, clips: Clips, typical: float) -> float | Cut:
        """What clips may take from a mean gradient, whose numbers are as large as what is typical of a record."""
        assert clips.clip is not None, "steps are taken only if sizes were seen"
        if self.scaled.even_handed:
            # Records that are cut off count for less, whatever their labels, which matters only as the model is wrong.
            return _WRONG * (1.0 - clips.clip.kept) * typical
        here, reach = self.points[-1], _SAME_SIZES * typical / self.scaled.problem.loss.curvature
        looks = [look for look in clips.looks if look.scaled.problem.loss == self.scaled.problem.loss]
        shown = [look for look in looks if look.sizes.level is not None] or clips.looks[:1]
        near = [look.sizes for look in shown if self._length(look.point - here) < reach]
        return Cut(tuple(near or [shown[-1].sizes]), clips.clip.norm, clips.clip.kept, self.scaled.size)


def _root(matrix: Floats) -> Floats:
    """The symmetric root of a matrix, of whose negative part nothing is left."""
    values, vectors = np.linalg.eigh(matrix)
    return np.asarray((vectors * np.sqrt(np.maximum(values, 0.0))) @ vectors.T)


def _believed_hessian(released: Floats, noise: float, predictions: Floats) -> tuple[Floats, float]:
    """What is believed of a noisy Hessian in whitened coordinates, and its mean curvature.

    In these coordinates all eigenvalues would be the same if the curvature were the same for all records, so they are
    shrunk towards their mean. There is one direction in which it is known to be another: that of the predictions, where
    the records that are far out, of which a model is sure, have little curvature left. Along one direction there is
    √p times less noise than in the worst of all, so it is believed as it is.

    Parameters
    ----------
    released, noise
        The matrix, and the standard deviation of the noise on its diagonal.
    predictions
        The direction.
    """
    size = len(released)
    if size == 1:
        mean = max(float(released[0, 0]), noise)
        return np.array([[mean]]), mean
    # Its first column is the direction (any one, if there are no predictions yet), the others are what is left.
    frame = np.linalg.qr(predictions[:, None], mode="complete")[0]
    turned = frame.T @ released @ frame
    along, cross, rest = float(turned[0, 0]), turned[1:, 0], turned[1:, 1:]
    mean = max(float(np.trace(rest)) / (size - 1), noise)
    values, vectors = np.linalg.eigh(rest)
    turned[1:, 1:] = (vectors * raised(*shrunk(values, noise), noise)) @ vectors.T
    turned[0, 0] = max(along, _LEAST_EIGENVALUE * mean, noise)
    # Twice what noise explains of what couples the two is taken off: too little of it does no harm.
    turned[1:, 0] = turned[0, 1:] = unexplained(float(cross @ cross), noise**2 * (size - 1)) * cross
    values, vectors = np.linalg.eigh(turned)
    vectors = frame @ vectors
    level = ((size - 1) * mean + float(turned[0, 0])) / size
    return (vectors * np.maximum(values, _LEAST_EIGENVALUE * mean)) @ vectors.T, level
