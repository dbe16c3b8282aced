"""Private proximal Newton steps, with coordinate descent inside."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from dpcd.losses import Logistic, Loss, Squared
from dpcd.policy import POLICY
from dpcd.privacy import Curator
from dpcd.privacy.records import MomentMatrix
from dpcd.quadratic import Quadratic
from dpcd.quadratic.evidence import Evidence
from dpcd.quadratic.tails import Cut
from dpcd.solvers.allocation import Allocation, allocate
from dpcd.solvers.clipping import Clips
from dpcd.solvers.initial import release_start, start_share
from dpcd.solvers.noiseless import known_solution
from dpcd.solvers.preconditioner import Moments, hidden_by_noise, raised, shrunk, unexplained
from dpcd.solvers.problem import Floats, Problem, Solution
from dpcd.solvers.scaled import Scaled, WholeRecordSolver, check_growth, check_share, checked_count
from dpcd.solvers.steps import descend


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

    n_steps: int = POLICY.newton_steps
    growth: float | None = None
    moments: float = POLICY.newton_moments
    hessians: float = POLICY.newton_hessians

    def __post_init__(self) -> None:
        object.__setattr__(self, "n_steps", checked_count("n_steps", self.n_steps))
        if self.growth is not None and not 1.0 <= self.growth < math.inf:
            raise ValueError(f"growth must be at least 1, or None, got {self.growth!r}")
        check_growth(self.n_steps, self.growth or POLICY.newton_growth)
        for name in ("moments", "hessians"):
            check_share(name, getattr(self, name))
        if self.moments + self.hessians >= POLICY.largest_share:
            left = 1.0 - POLICY.largest_share
            raise ValueError(f"moments and hessians must be shares that leave {left:g} for sizes and gradients")

    def allocation(self, records: float, loss: Loss, start: float) -> Allocation:
        """How a budget in records is shared out, with this share for the start."""
        hessians = self._hessian_share(loss) * len(self._refreshed(loss))
        return allocate(records, loss, self.n_steps, self.moments, start, hessians)

    def _refreshed(self, loss: Loss) -> tuple[int, ...]:
        """Steps before which the Hessian is released."""
        return () if isinstance(loss, Squared) else tuple(t for t in POLICY.refreshed if t < self.n_steps)

    def _hessian_share(self, loss: Loss) -> float:
        return self.hessians / max(1, len(self._refreshed(loss)))

    def solve(self, curator: Curator, problem: Problem, parts: int, choices: np.random.Generator) -> Solution:
        """Spend one of `parts` equal parts of what is left."""
        scaled, loss = Scaled.of(curator, problem, parts), problem.loss
        known = known_solution(scaled)
        if known is not None:
            return known
        if scaled.size**2 > POLICY.hopeless_matrix * scaled.records:
            return scaled.standing(release_start(scaled, 1.0).point)
        shares = self.allocation(scaled.records, loss, start_share(scaled))
        start = release_start(scaled, shares.start).point
        moments = scaled.release_moments(shares.moments, rounds=2)
        default = POLICY.newton_growth_squared if isinstance(loss, Squared) else POLICY.newton_growth
        weights: Floats = np.float64(self.growth or default) ** np.arange(self.n_steps)
        model = QuadraticModel(scaled, moments, start, weights, self._refreshed(loss), self._hessian_share(loss))
        return descend(scaled, shares, start, model, self.n_steps, used=1.0)


class QuadraticModel:
    """The quadratic model of the objective that all released gradients make together.

    Parameters
    ----------
    scaled, moments
        The problem, and the second moments of its columns.
    start
        Where the steps begin.
    weights
        What each step gets of the gradients' share, relative to the others.
    refreshed, hessian_share
        Steps before which the Hessian is released, and the share of each.
    """

    def __init__(
        self,
        scaled: Scaled,
        moments: Moments,
        start: Floats,
        weights: Floats,
        refreshed: tuple[int, ...],
        hessian_share: float,
    ) -> None:
        self.scaled, self.moments, self.start = scaled, moments, start
        self.weights, self.refreshed, self.hessian_share = weights, refreshed, hessian_share
        self.hessian = scaled.problem.loss.curvature * moments.matrix
        self.whitened = np.eye(scaled.size)
        self.level, self.unsure = 1.0, math.nan
        self.left, self.taken, self.repeats = 0.0, 0, 0
        self.points: list[Floats] = []
        self.gradients: list[Floats] = []
        self.variances: list[float] = []

    @property
    def whitening(self) -> Floats:
        """That of the moments."""
        return self.moments.whitening

    def share_out(self, share: float) -> None:
        """Take note of the share that all steps get together."""
        self.left = share

    def next_share(self, problem: Scaled, point: Floats) -> float | None:
        """The share of the next step, None after the last.

        Where a fresh Hessian says that the start was far away, another step with a fresh one takes the place of a
        later one.
        """
        self._turn_to(problem)
        if self.taken == len(self.weights):
            return None
        again = False
        if self.taken in self.refreshed:
            fall = self._release_hessian(point)
            far = fall < (POLICY.fallen_again if self.repeats else POLICY.fallen)
            room = len(self.weights) > self.refreshed[-1] + 2 and self.hessian_share < 0.2 * self.left
            again = far and room
        share = self.left * self.weights[self.taken] / self.weights[self.taken :].sum()
        self.left -= share
        if again:
            self.left -= self.hessian_share
            self.weights = self.weights[:-1]
            self.repeats += 1
        else:
            self.taken += 1
        return float(share)

    def _turn_to(self, problem: Scaled) -> None:
        """Go on with a problem that differs in its loss: gradients of another say nothing about it."""
        if problem.problem.loss != self.scaled.problem.loss:
            for memory in (self.points, self.gradients, self.variances):
                memory.clear()
        self.scaled = problem

    def _release_hessian(self, point: Floats) -> float:
        """Release the Hessian at a point; returns its mean curvature as a part of what it was."""
        scaled, moments = self.scaled, self.moments
        view, multiplier = scaled.view(moments.whitening, point), scaled.multiplier(self.hessian_share)
        mechanism = MomentMatrix(view, multiplier, radius=moments.radius, weighted=True)
        noise = mechanism.noise_level(scaled.curator.n_records)
        back = np.linalg.inv(moments.whitening)
        released = scaled.curator.release(mechanism)
        self.unsure = hidden_by_noise(released, noise)
        self.whitened, mean = believed_hessian(released, noise, back.T @ point)
        seen = back @ self.whitened @ back.T
        # What was added to the moments is no part of any record, so it is added here too. Rows that are too long for
        # the moments show where a loss has little curvature left of them; a part of what is hidden stands for those
        # that are long and curved.
        unseen = mean * moments.added + POLICY.hidden_curvature * np.diag(moments.hidden)
        self.hessian = scaled.problem.loss.curvature * (seen + unseen)
        fall, self.level = mean / self.level, mean
        return fall

    def add(self, problem: Scaled, point: Floats, gradient: Floats, noise: float) -> Floats:
        """Add a gradient, and return the minimum of the model with it, within the trust region."""
        moments, curvature = self.moments, problem.problem.loss.curvature
        self.points.append(point)
        self.gradients.append(gradient)
        self.variances.append(noise**2)
        # Every gradient says what the linear term of the model is; the farther from here, the less it is believed.
        change = 0.0 if isinstance(problem.problem.loss, Squared) else POLICY.change_of_curvature**2 / problem.size
        doubt = 2.0 * (curvature * moments.noise) ** 2 + change
        points, gradients, variances = np.array(self.points), np.array(self.gradients), np.array(self.variances)
        apart = points - point
        distances = np.einsum("ki,ij,kj->k", apart, moments.matrix, apart)
        hidden = np.sum((curvature * moments.hidden * apart) ** 2, axis=1) / problem.size
        trust = 1.0 / (variances + doubt * distances + hidden)
        trust /= trust.sum()
        self.linear = trust @ (points @ self.hessian - gradients)
        self.variance = float(trust**2 @ variances)
        end = problem.minimum(self.hessian, self._believed_linear(), point)
        length, longest = self._length(end - point), self._longest_move()
        return end if length <= longest else problem.admitted(point + longest / length * (end - point))

    def _longest_move(self) -> float:
        """How far to trust the model: a few times as far as what is safe whatever the curvature, or as the last move.

        Half as far as the last move, if that was surely too long. Of the curvature of a loss that turns linear, or is
        sure of most records, little may be left, and moments that are mostly noise may show too little.
        """
        safe, point = self.scaled.problem.loss.curvature * self.moments.matrix, self.points[-1]
        longest = self._length(self.scaled.minimum(safe, safe @ point - self.gradients[-1], point) - point)
        if len(self.points) > 1:
            last = point - self.points[-2]
            noise = math.sqrt(self.variances[-1] * float(last @ self.moments.metric @ last))
            if last @ self.gradients[-1] > POLICY.surely_too_long * noise:
                return 0.5 * self._length(last)
            longest = max(longest, self._length(last))
        return POLICY.longer * longest

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

    def solution(self, path: list[Floats], clips: Clips) -> Solution:
        """The last point, and the model in the coordinates of the weights."""
        weights = np.array([self.scaled.weights(point) for point in path[1:]])
        return Solution(weights[-1], len(weights), weights, quadratic=self.quadratic(clips))

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
        elif math.isnan(self.unsure):
            return None
        else:
            curvature = loss.curvature * root @ self.whitened @ root
            unsure = math.hypot(self.unsure, self.level * moments.unsure)
            doubts, change = (math.sqrt(loss.curvature * unsure) * root,), POLICY.change_of_curvature / math.sqrt(size)
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
            return POLICY.wrong_labels * (1.0 - clips.clip.kept) * typical
        here, reach = self.points[-1], POLICY.same_sizes * typical / self.scaled.problem.loss.curvature
        looks = [look for look in clips.looks if look.scaled.problem.loss == self.scaled.problem.loss]
        shown = [look for look in looks if look.sizes.level is not None] or clips.looks[:1]
        near = [look.sizes for look in shown if self._length(look.point - here) < reach]
        return Cut(tuple(near or [shown[-1].sizes]), clips.clip.norm, clips.clip.kept, self.scaled.size)


def _root(matrix: Floats) -> Floats:
    """The symmetric root of a matrix, of whose negative part nothing is left."""
    values, vectors = np.linalg.eigh(matrix)
    return np.asarray((vectors * np.sqrt(np.maximum(values, 0.0))) @ vectors.T)


def believed_hessian(released: Floats, noise: float, predictions: Floats) -> tuple[Floats, float]:
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
    turned[0, 0] = max(along, POLICY.least_eigenvalue * mean, noise)
    # Twice what noise explains of what couples the two is taken off: too little of it does no harm.
    turned[1:, 0] = turned[0, 1:] = unexplained(float(cross @ cross), noise**2 * (size - 1)) * cross
    values, vectors = np.linalg.eigh(turned)
    vectors = frame @ vectors
    level = ((size - 1) * mean + float(turned[0, 0])) / size
    return (vectors * np.maximum(values, POLICY.least_eigenvalue * mean)) @ vectors.T, level
