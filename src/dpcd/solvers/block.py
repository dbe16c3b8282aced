"""One-block DP-CD: all coordinates at once, with one clip for the whole record."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from dpcd.losses import Loss
from dpcd.policy import POLICY
from dpcd.privacy import Curator
from dpcd.privacy.records import GradientSizes
from dpcd.ranges.sizes import Sizes
from dpcd.solvers.allocation import Allocation, allocate
from dpcd.solvers.clipping import Clips
from dpcd.solvers.initial import Start, release_start, start_share
from dpcd.solvers.noiseless import known_solution
from dpcd.solvers.preconditioner import Moments, unexplained
from dpcd.solvers.problem import Floats, Problem, Solution
from dpcd.solvers.scaled import Scaled, WholeRecordSolver, check_growth, check_share, checked_count
from dpcd.solvers.steps import descend

# The length of a move is looked for from so many octaves below what it would be if no direction were steep, and not at
# all if it is longer than this, or shorter than its inverse.
_FLAT_OCTAVES, _ABSURD = 3, 1e100


def full_steps(records: float, size: int) -> float:
    """How many steps of full length suit a budget in records and so many columns; 0 where all they find is noise.

    Noise grows with the number of steps and bias falls with it. Below a part of one step nothing is left of them but
    noise, nor is with a budget of so few records, however few columns there are.
    """
    if records <= POLICY.too_few_records:
        return 0.0
    return max(0.0, records / (POLICY.horizon * size) - POLICY.lost_steps)


@dataclass(frozen=True, eq=False)
class DPBlockCD(WholeRecordSolver):
    """Proximal gradient steps with all coordinates in one block, in a private metric: for tens to hundreds of columns.

    Records are clipped as vectors, so noise grows as √p where clipping each coordinate by itself makes it grow as p.
    The second moments of the columns, released first with a small part of the budget, tell which directions are
    steeper than the rest; steps are shorter there. Directions too flat to be told from noise get the step that is safe
    for all of them.

    Parameters
    ----------
    n_steps
        Gradients to release. None: from n, p and the budget (0 where they would be nothing but noise).
    most_steps
        Limit for ``n_steps=None``; half of it for labels, and where the budget is worth more than eight full steps.
    growth
        Each gradient gets so many times the budget of the one before it. None: 1.01, or 1.02 where the budget is worth
        more than 25 full steps.
    moments
        Share of the budget for the second moments. They are not released where that is too little to tell steep
        directions from noise and steps are so short that they are safe whatever the moments are.

    Notes
    -----
    Privacy. Everything goes through the mechanisms of `dpcd.privacy.records`, all Gaussian.
    """

    n_steps: int | None = None
    most_steps: int = POLICY.most_steps
    growth: float | None = None
    moments: float = POLICY.block_moments

    def __post_init__(self) -> None:
        for name in ("n_steps", "most_steps"):
            if getattr(self, name) is not None:
                object.__setattr__(self, name, checked_count(name, getattr(self, name)))
        if self.growth is not None and not 1.0 <= self.growth <= 1.2:
            raise ValueError(f"growth must be between 1 and 1.2, or None, got {self.growth!r}")
        check_growth(self.n_steps or self.most_steps, self.growth or POLICY.block_growth_forgotten)
        check_share("moments", self.moments)

    def allocation(
        self,
        records: float,
        loss: Loss,
        start: float,
        n_steps: int | None = None,
        moments: float | None = None,
    ) -> Allocation:
        """How a budget in records is shared out, with this share for the start. None: as many steps as there may be."""
        planned = n_steps or self.n_steps or self.most_steps
        taken = self.moments if moments is None else moments
        return allocate(records, loss, planned, taken, start, move=POLICY.length_share)

    def solve(self, curator: Curator, problem: Problem, parts: int, choices: np.random.Generator) -> Solution:
        """Spend one of `parts` equal parts of what is left."""
        scaled = Scaled.of(curator, problem, parts)
        known = known_solution(scaled)
        if known is not None:
            return known
        wanted = full_steps(scaled.records, scaled.size)
        if wanted == 0.0 and self.n_steps is None:
            return scaled.standing(release_start(scaled, 1.0).point)
        start_taken = start_share(scaled)
        start = release_start(scaled, start_taken)
        taken = self._moments_share(scaled, wanted)
        moments = scaled.release_moments(taken, rounds=1) if taken else self._unknown(scaled)
        metric, flattest = believed_metric(moments.matrix, moments.noise * math.sqrt(2.0 * scaled.size))
        steps, limit = max(wanted * flattest, POLICY.fewest_steps), self._limit(wanted, scaled.even_handed)
        n_steps = self.n_steps or math.ceil(min(steps, limit))
        shares = self.allocation(scaled.records, problem.loss, start_taken, n_steps, taken)
        forgotten = wanted > POLICY.many_full_steps
        growth = self.growth or (POLICY.block_growth_forgotten if forgotten else POLICY.block_growth)
        weights: Floats = np.float64(growth) ** np.arange(n_steps)
        model = DampedModel(scaled, start, metric, flattest, wanted, weights)
        return descend(scaled, shares, start.point, model, n_steps, POLICY.used)

    def _unknown(self, scaled: Scaled) -> Moments:
        return Moments.unknown(scaled.size, scaled.radius, scaled.size / math.sqrt(2.0 * scaled.size))

    def _moments_share(self, scaled: Scaled, wanted: float) -> float:
        """The share for second moments: nothing, where steps do not need them."""
        size, reach = scaled.size, math.sqrt(2.0 * scaled.size)
        flattest = _flattest(scaled.noise_of_moments(self.moments) * reach)
        hidden = POLICY.block_stands_out * flattest > 1.0 + POLICY.correlated * (size - 1)
        # No direction is steeper than p.
        safe = wanted * _flattest(size) <= POLICY.longest_step * self._limit(wanted, scaled.even_handed)
        return 0.0 if hidden and safe else self.moments

    def _limit(self, wanted: float, even_handed: bool) -> float:
        """How many steps there may be, for so many of full length."""
        enough = even_handed or wanted > POLICY.few_full_steps
        return self.n_steps or self.most_steps * (POLICY.enough_steps if enough else 1.0)


class DampedModel:
    """Steps of one length in a metric in which directions that could be flat are damped.

    Parameters
    ----------
    scaled, start
        The problem, and where steps begin. Where the loss is flat there, steps forget little.
    metric, flattest
        Second moments as far as they are believed, and what they are in directions that are not. In this metric a step
        of length 1 does 1/flattest of a full step in the flattest directions.
    wanted
        How many steps of full length suit the budget.
    weights
        What each step gets of the gradients' share, relative to the others.
    """

    def __init__(
        self, scaled: Scaled, start: Start, metric: Floats, flattest: float, wanted: float, weights: Floats
    ) -> None:
        self.scaled, self.start, self.metric, self.flattest = scaled, start, metric, flattest
        self.wanted, self.n_steps = wanted, len(weights)
        self.shares, self.noises = weights, list[float]()
        self.whitening = _whitening(metric)
        self.damped = scaled.problem.loss.curvature / self.length * metric

    @property
    def length(self) -> float:
        """How long a step is in the metric, so that all of them together go as far as is wanted."""
        if self.wanted == 0.0:
            return 1.0
        return min(POLICY.longest_step, self.wanted * self.flattest / self.n_steps)

    @property
    def n_averaged(self) -> int:
        """How many of the last points are averaged."""
        part = next((part for least, part in POLICY.tails if self.wanted > least), 0.0)
        return max(1, math.floor(part * self.n_steps))

    def share_out(self, share: float) -> None:
        """Take note of the share that all steps get together."""
        self.shares = self.shares * (share / self.shares.sum())

    def next_share(self, problem: Scaled, point: Floats) -> float | None:
        """The share of the next step, None after the last."""
        return float(self.shares[len(self.noises)]) if len(self.noises) < self.n_steps else None

    def add(self, problem: Scaled, point: Floats, gradient: Floats, noise: float) -> Floats:
        """A proximal gradient step in the damped metric."""
        self.noises.append(noise)
        return self.scaled.minimum(self.damped, self.damped @ point - gradient, point)

    def solution(self, path: list[Floats], clips: Clips) -> Solution:
        """The average of the last points, as far as the move to it is believed."""
        last = self.n_averaged
        move = np.average(path[-last:], axis=0, weights=self.shares[-last:]) - self.start.point
        noise_of_steps = self.length * np.array(self.noises) / self.scaled.problem.loss.curvature
        move *= self.believed(move, noise_of_steps, release_squared_length(self.scaled, move))
        answer = self.scaled.admitted(self.start.point + move)
        points = np.array([self.scaled.weights(point) for point in [*path[1:], answer]])
        return Solution(points[-1], self.n_steps, points)

    def believed(self, move: Floats, noises: Floats, squared_length: float) -> float:
        """The part of a move from the start that is believed; above 1 where steps surely ended too early.

        Parameters
        ----------
        move
            From the start to the average of the last points.
        noises
            Standard deviations of the noise of each step in the metric.
        squared_length
            Mean square of what the move adds to predictions, of what of it can be seen.
        """
        size, length = len(move), float(move @ self.metric @ move)
        full = min(1.0, self.length / max(1.0, self.flattest))
        left = 1.0 - POLICY.forgotten * math.sqrt(self.start.flatness) * full
        weights = _weights_in_average(left, self.n_steps, self.n_averaged)
        explained, steepness, stretch = size * float(weights**2 @ noises**2), 1.0, 1.0
        # Noise is alike in all directions, and signal mostly in steep ones, where it counts for more: what is to be
        # compared is what they do to predictions. There the move is longer by this than noise would be.
        steeper = (
            squared_length * size / (length * float(np.trace(np.linalg.inv(self.metric)))) if length > 0.0 else 0.0
        )
        if steeper > POLICY.steep:
            steepness = (steeper - explained / length) / max(1.0 - explained / length, 0.1)
            explained /= steeper
        if full < 1.0 and unexplained(length, (1.0 + POLICY.sure_move * math.sqrt(2.0 / size)) * explained) > 0.0:
            # Short steps that end early leave part of the way undone: it is made up for if what they found is surely
            # more than noise.
            left = 1.0 - min(1.0, POLICY.done * full * steepness)
            undone = float(np.mean(left ** np.arange(self.n_steps - self.n_averaged + 1.0, self.n_steps + 1.0)))
            stretch = min(1.0 / (1.0 - undone), 1.0 + self.wanted)
        return stretch * unexplained(length, explained)


def release_squared_length(scaled: Scaled, move: Floats) -> float:
    """Mean square of what a move adds to predictions: one number, whose noise does not grow with p.

    0 where nothing of it can be seen.
    """
    length = float(np.linalg.norm(move))
    if not 1.0 / _ABSURD < length < _ABSURD:
        return 0.0
    # From what it is in a direction that is flat to the steepest that there can be.
    smallest = math.floor(math.log2(length)) - _FLAT_OCTAVES
    largest = smallest + _FLAT_OCTAVES + math.ceil(math.log2(math.sqrt(scaled.size))) + 2
    view, multiplier = scaled.view(move[None, :], move), scaled.multiplier(POLICY.length_share)
    sizes = GradientSizes(view, multiplier, per_octave=1, smallest=smallest, largest=largest, of="rows")
    return Sizes.release(scaled.curator, sizes).mean_square


def _weights_in_average(kept: float, n_steps: int, last: int) -> Floats:
    """How much of each step's noise is in the average of the last points, if a step keeps this part of what was there.

    Noise of step t is in point s ≥ t by what the s − t steps between kept of it.
    """
    ages = np.arange(n_steps - last, n_steps)[:, None] - np.arange(n_steps)
    return np.asarray(np.mean(np.where(ages >= 0, kept ** np.abs(ages), 0.0), axis=0))


def believed_metric(moments: Floats, noise: float) -> tuple[Floats, float]:
    """Second moments whose flat directions, in which noise could be all there is, are raised to the same level.

    Where even the steepest direction could be noise, all of them are.
    """
    flattest = _flattest(noise)
    values, vectors = np.linalg.eigh(moments)
    if values[-1] <= POLICY.block_stands_out * flattest:
        return max(flattest, float(values[-1])) * np.eye(len(values)), flattest
    return (vectors * np.maximum(values, flattest)) @ vectors.T, flattest


def _flattest(noise: float) -> float:
    """What second moments are taken for in directions that could be flat, by the largest eigenvalue of their noise."""
    return min(1.0, POLICY.block_believed * noise) + noise


def _whitening(metric: Floats) -> Floats:
    """B with B·M·Bᵀ = I: lower triangular, or its diagonal, which is faster, if M is diagonal."""
    diagonal = np.diag(metric)
    if np.array_equal(metric, np.diag(diagonal)):
        return 1.0 / np.sqrt(diagonal)
    return np.tril(np.linalg.inv(np.linalg.cholesky(metric)))
