"""One-block DP-CD: all coordinates at once, with one clip for the whole record."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from dpcd.privacy import Curator
from dpcd.privacy.records import GradientSizes
from dpcd.ranges.sizes import Sizes
from dpcd.solvers.clips import Clips
from dpcd.solvers.easing import Easing
from dpcd.solvers.joint import Scaled, WholeRecordSolver, check_growth, check_share, checked_count
from dpcd.solvers.moments import Moments, unexplained
from dpcd.solvers.problem import Floats, Problem, Solution
from dpcd.solvers.start import Start

# Noise grows with the number of steps and bias falls with it: best near nμ/(2.5p) steps of full length. Below .3 of one
# step nothing is left of them but noise, nor is with a budget of so few records, however few columns there are.
_HORIZON, _LOST, _TOO_FEW_RECORDS = 2.5, 0.3, 8.0
_FEWEST_STEPS, _LONGEST_STEP = 4, 1.5
# Where more full steps than this suit the budget, and for labels, such a part of the limit of steps is enough: longer
# ones do as well there.
_FEW_FULL_STEPS, _ENOUGH = 8.0, 0.5
# How much more of the budget each gradient gets than the one before it; and where there are more full steps than this,
# so that early ones are forgotten.
_GROWTH, _MANY_FULL_STEPS, _GROWTH_IF_FORGOTTEN = 1.01, 25.0, 1.02
# Eigenvalues of noisy moments below so many times their noise are not believed, but for those above 1, the mean.
_BELIEVED = 2.0
# A steepest direction up to so many times as steep as the flattest ones is not told from noise. Where it would not even
# be if all columns were so correlated, and steps are short enough to be safe for any, moments are not worth a release.
_STANDS_OUT, _CORRELATED = 1.5, 0.3
# Part of the steps at the end whose average is the answer, for so many full steps: where there are fewer, being
# underway is worse than noise, and the last point is the answer.
_TAILS = ((6.0, 0.5), (3.0, 0.3))
#: About the part of the gradients' budget that the answer is made of: its points forgot the noise of early steps.
USED = 0.5
# Part of the way to the minimum that a full step does, and of earlier noise that it forgets: losses have less curvature
# than the moments say, and in some directions much less.
_DONE, _FORGOTTEN = 0.7, 0.7
# A move is stretched only if it is longer than noise by so many deviations.
_SURE = 2.0
# Share of the budget for what the move from the start does to predictions, which is looked for from so many octaves
# below what it would be if no direction were steep. It is in steep directions where it does so many times as much.
_LENGTH_SHARE, _FLAT_OCTAVES, _STEEP = 0.015, 3, 1.2
# Moves longer than this, or shorter than its inverse, are not looked at.
_ABSURD = 1e100


def full_steps(records: float, size: int) -> float:
    """How many steps of full length suit a budget in records and so many columns; 0 where all they find is noise."""
    return max(0.0, records / (_HORIZON * size) - _LOST) if records > _TOO_FEW_RECORDS else 0.0


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
    most_steps: int = 80
    growth: float | None = None
    moments: float = 0.05

    def __post_init__(self) -> None:
        for name in ("n_steps", "most_steps"):
            if getattr(self, name) is not None:
                object.__setattr__(self, name, checked_count(name, getattr(self, name)))
        if self.growth is not None and not 1.0 <= self.growth <= 1.2:
            raise ValueError(f"growth must be between 1 and 1.2, or None, got {self.growth!r}")
        check_growth(self.n_steps or self.most_steps, self.growth or _GROWTH_IF_FORGOTTEN)
        check_share("moments", self.moments)

    def solve(self, curator: Curator, problem: Problem, parts: int, choices: np.random.Generator) -> Solution:
        """Spend one of `parts` equal parts of what is left."""
        scaled = Scaled.of(curator, problem, parts)
        if scaled.size == 0 or scaled.mu == 0.0:
            return scaled.zero_model()
        if scaled.noiseless:
            return scaled.without_noise()
        wanted = full_steps(scaled.records, scaled.size)
        if wanted == 0.0 and self.n_steps is None:
            return scaled.standing(Start.of(scaled, 1.0).point)
        start = Start.of(scaled)
        moments, moments_share = self._moments(scaled, wanted)
        pace = self._pace(moments, wanted, start.flatness, scaled.even_handed)
        whitening, steep = _whitening(pace.metric), problem.loss.curvature / pace.length * pace.metric
        easing = Easing(scaled, pace.n_steps)
        taken = moments_share + start.share + easing.share + _LENGTH_SHARE
        clips = Clips.of(easing.at(0), pace.n_steps, taken, easing.ends, USED)
        if not clips.begin(whitening, start.point):
            return scaled.standing(start.point)
        growth = self.growth or (_GROWTH_IF_FORGOTTEN if wanted > _MANY_FULL_STEPS else _GROWTH)
        shares: Floats = np.float64(growth) ** np.arange(pace.n_steps)
        shares *= (1.0 - taken - clips.total) / shares.sum()
        point, path, noises = start.point, [start.point], []
        for t in range(pace.n_steps):
            clips.scaled = easing.at(t)
            gradient, noise = clips.scaled.gradient(whitening, point, clips.at(t, whitening, point), shares[t])
            noises.append(noise)
            point = scaled.step(steep, steep @ point - gradient, point)
            path.append(point)
        last = pace.n_averaged
        move = np.average(path[-last:], axis=0, weights=shares[-last:]) - start.point
        noise_of_steps = pace.length * np.array(noises) / problem.loss.curvature
        move *= pace.believed(move, noise_of_steps, _squared_length(scaled, move))
        path.append(scaled.admitted(start.point + move))
        points = np.array([scaled.weights(u) for u in path[1:]])
        return Solution(points[-1], pace.n_steps, points)

    def _moments(self, scaled: Scaled, wanted: float) -> tuple[Moments, float]:
        """Second moments, and the share of the budget that they took: nothing, where steps do not need them."""
        size, reach = scaled.size, math.sqrt(2.0 * scaled.size)
        hidden = _STANDS_OUT * _flattest(scaled.noise_of_moments(self.moments) * reach) > 1.0 + _CORRELATED * (size - 1)
        # No direction is steeper than p.
        safe = wanted * _flattest(size) <= _LONGEST_STEP * self._limit(wanted, scaled.even_handed)
        if hidden and safe:
            return Moments.unknown(size, scaled.radius, size / reach), 0.0
        return scaled.moments(self.moments, rounds=1), self.moments

    def _limit(self, wanted: float, even_handed: bool) -> float:
        """How many steps there may be, for so many of full length."""
        return self.n_steps or self.most_steps * (_ENOUGH if even_handed or wanted > _FEW_FULL_STEPS else 1.0)

    def _pace(self, moments: Moments, wanted: float, flatness: float, even_handed: bool) -> _Pace:
        """Steps for noisy moments that together do about as much as so many of full length."""
        metric, flattest = _metric(moments.matrix, moments.noise * math.sqrt(2.0 * len(moments.matrix)))
        steps = max(wanted * flattest, _FEWEST_STEPS)
        n_steps = self.n_steps or math.ceil(min(steps, self._limit(wanted, even_handed)))
        return _Pace(metric, flattest, wanted, n_steps, flatness)


class _Pace(NamedTuple):
    """How steps go.

    Parameters
    ----------
    metric, flattest
        Second moments as far as they are believed, and what they are in directions that are not. In this metric a step
        of length 1 does 1/flattest of a full step in the flattest directions.
    wanted
        How many steps of full length suit the budget.
    n_steps
        How many steps there are.
    flatness
        As in `Start`: where the loss is flat, steps forget little.
    """

    metric: Floats
    flattest: float
    wanted: float
    n_steps: int
    flatness: float = 1.0

    @property
    def length(self) -> float:
        """How long a step is in the metric, so that all of them together go as far as is wanted."""
        return min(_LONGEST_STEP, self.wanted * self.flattest / self.n_steps) if self.wanted > 0.0 else 1.0

    @property
    def n_averaged(self) -> int:
        """How many of the last points are averaged."""
        part = next((part for least, part in _TAILS if self.wanted > least), 0.0)
        return max(1, math.floor(part * self.n_steps))

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
        left = 1.0 - _FORGOTTEN * math.sqrt(self.flatness) * full
        weights = _weights_in_average(left, self.n_steps, self.n_averaged)
        explained, steepness, stretch = size * float(weights**2 @ noises**2), 1.0, 1.0
        # Noise is alike in all directions, and signal mostly in steep ones, where it counts for more: what is to be
        # compared is what they do to predictions. There the move is longer by this than noise would be.
        steeper = (
            squared_length * size / (length * float(np.trace(np.linalg.inv(self.metric)))) if length > 0.0 else 0.0
        )
        if steeper > _STEEP:
            steepness = (steeper - explained / length) / max(1.0 - explained / length, 0.1)
            explained /= steeper
        if full < 1.0 and unexplained(length, (1.0 + _SURE * math.sqrt(2.0 / size)) * explained) > 0.0:
            # Short steps that end early leave part of the way undone: it is made up for if what they found is surely
            # more than noise.
            left = 1.0 - min(1.0, _DONE * full * steepness)
            undone = float(np.mean(left ** np.arange(self.n_steps - self.n_averaged + 1.0, self.n_steps + 1.0)))
            stretch = min(1.0 / (1.0 - undone), 1.0 + self.wanted)
        return stretch * unexplained(length, explained)


def _squared_length(scaled: Scaled, move: Floats) -> float:
    """Mean square of what a move adds to predictions: one number, whose noise does not grow with p.

    0 where nothing of it can be seen.
    """
    length = float(np.linalg.norm(move))
    if not 1.0 / _ABSURD < length < _ABSURD:
        return 0.0
    # From what it is in a direction that is flat to the steepest that there can be.
    smallest = math.floor(math.log2(length)) - _FLAT_OCTAVES
    largest = smallest + _FLAT_OCTAVES + math.ceil(math.log2(math.sqrt(scaled.size))) + 2
    view, multiplier = scaled.view(move[None, :], move), scaled.multiplier(_LENGTH_SHARE)
    sizes = GradientSizes(view, multiplier, per_octave=1, smallest=smallest, largest=largest, of="rows")
    return Sizes.of(scaled.curator, sizes).mean_square


def _weights_in_average(kept: float, n_steps: int, last: int) -> Floats:
    """How much of each step's noise is in the average of the last points, if a step keeps this part of what was there.

    Noise of step t is in point s ≥ t by what the s − t steps between kept of it.
    """
    ages = np.arange(n_steps - last, n_steps)[:, None] - np.arange(n_steps)
    return np.asarray(np.mean(np.where(ages >= 0, kept ** np.abs(ages), 0.0), axis=0))


def _metric(moments: Floats, noise: float) -> tuple[Floats, float]:
    """Second moments whose flat directions, in which noise could be all there is, are raised to the same level.

    Where even the steepest direction could be noise, all of them are.
    """
    flattest = _flattest(noise)
    values, vectors = np.linalg.eigh(moments)
    if values[-1] <= _STANDS_OUT * flattest:
        return max(flattest, float(values[-1])) * np.eye(len(values)), flattest
    return (vectors * np.maximum(values, flattest)) @ vectors.T, flattest


def _flattest(noise: float) -> float:
    """What second moments are taken for in directions that could be flat, by the largest eigenvalue of their noise."""
    return min(1.0, _BELIEVED * noise) + noise


def _whitening(metric: Floats) -> Floats:
    """B with B·M·Bᵀ = I: lower triangular, or its diagonal, which is faster, if M is diagonal."""
    diagonal = np.diag(metric)
    if np.array_equal(metric, np.diag(diagonal)):
        return 1.0 / np.sqrt(diagonal)
    return np.tril(np.linalg.inv(np.linalg.cholesky(metric)))
