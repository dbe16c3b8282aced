"""DP-CD: differentially private proximal coordinate descent (algorithm 1 of the paper)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpcd.losses import Loss
from dpcd.penalties import Penalty
from dpcd.privacy import Curator
from dpcd.privacy.coordinates import CoordinateUpdates, DerivativeSizes
from dpcd.solvers.problem import ChargedAsGaussian, Floats, Problem, Solution, rehearse

# Clip, in units of (typical slope)·(column's root mean square), when the user declares none: few records are cut, and
# those that are had most of the leverage.
_DEFAULT_CLIP = 2.5
# Noise grows with the horizon Σ step as (p/nμ)²·horizon and bias falls as 1/horizon: best near nμ/(10 p) − 1.
_HORIZON = 10.0
_LARGEST_DEFAULT_PASSES = 100
# Part of the budget with which adaptive clipping learns its levels.
_LEVEL_SHARE = 0.04
# Noise grows with the clip and bias with what is cut: they balance where that is this many times √p/(nμ) of all
# derivatives. It is never more than a few, as some derivatives are large because they matter.
_CUT = 10.0
_LARGEST_CUT = 0.05
# Levels to choose from, as parts of the default clip.
_LEVELS = 2.0 ** np.arange(-5.0, 0.5, 0.5)


@dataclass(frozen=True, eq=False)
class DPCD(ChargedAsGaussian):
    """Differentially private proximal coordinate descent.

    An update picks a coordinate j, sums the records' partial derivatives, each clipped to ± C_j, adds Gaussian noise,
    and takes a proximal step of size γ/M_j. Clip, noise and step follow each coordinate's own scale, which is what
    makes the method strong on columns of different magnitude.

    Parameters
    ----------
    n_passes
        Passes over the coordinates; each is p updates. None: from n, p and the budget, with no look at the data
        (0, the zero model, where the budget buys nothing but noise).
    step_size
        γ. None: 1, or less where the budget is too small for a full step.
    clip
        A number C gives C_j = C·sqrt(M_j/ΣM), as in the paper. An array gives each C_j itself (the intercept's last);
        noise is then divided among the coordinates so as to minimise its total effect. `math.inf` switches clipping
        off, which is possible with epsilon = inf only. None: 2.5 times the root mean square of the column times the
        loss's slope. ``"adaptive"``: the same at first, lowered after the first pass and again after a quarter of them
        to where few derivatives are cut, all coordinates by the same factor; learning that takes 4 % of the budget. It
        pays where residuals become smaller than the target, and costs where few records carry the signal, as those of
        a rare category do.
    order
        ``"permuted"``: each pass visits every coordinate once in a new random order. ``"random"``: independent uniform
        draws, as the paper has it. ``"cyclic"``: always in the same order. Privacy is the same for all.
    average
        ``"tail"``: the average over the last quarter of the updates. ``"last"``: the last iterate, as in the
        paper's experiments. ``"periodic"``: as in algorithm 1, `n_loops` times, start from the average of the previous
        loop's iterates.
    n_loops
        Outer loops (T in the paper) for ``average="periodic"``; the passes are divided among them.
    allocation
        How noise is divided among coordinates whose clips are given one by one: ``"optimal"``, or the ``"equal"``
        noise multiplier for all. With other clips the two are the same.
    active_set
        After half of the passes, set the weights that are no larger than the noise of an update to 0, and spend what
        is left of the budget on the other coordinates. It pays where many weights are 0 or next to it, and costs where
        small ones matter.
    noise_multiplier
        Noise over sensitivity of every update, to reproduce somebody else's calibration; a budget that it does not
        fit is still refused. None: the least that the budget allows.

    Notes
    -----
    Privacy. Everything goes through `dpcd.privacy.coordinates.CoordinateUpdates` and, for adaptive clipping,
    `dpcd.privacy.coordinates.DerivativeSizes`. Which coordinates are active is decided by released weights.
    """

    n_passes: int | None = None
    step_size: float | None = None
    clip: float | ArrayLike | Literal["adaptive"] | None = None
    order: Literal["permuted", "random", "cyclic"] = "permuted"
    average: Literal["tail", "last", "periodic"] = "tail"
    n_loops: int = 1
    allocation: Literal["optimal", "equal"] = "optimal"
    active_set: bool = False
    noise_multiplier: float | None = None

    def __post_init__(self) -> None:
        if self.n_passes is not None and (self.n_passes < 1 or self.n_passes != int(self.n_passes)):
            raise ValueError(f"n_passes must be a whole number of at least 1 or None, got {self.n_passes!r}")
        if self.step_size is not None and not 0.0 < self.step_size < math.inf:
            raise ValueError(f"step_size must be positive and finite, or None, got {self.step_size!r}")
        if isinstance(self.clip, str) and self.clip != "adaptive":
            raise ValueError(f"clip must be positive, 'adaptive' or None, got {self.clip!r}")
        if self._declared is not None and not np.all(self._declared > 0.0):
            raise ValueError(f"clip must be positive, 'adaptive' or None, got {self.clip!r}")
        if self.order not in ("permuted", "random", "cyclic"):
            raise ValueError(f"order must be 'permuted', 'random' or 'cyclic', got {self.order!r}")
        if self.average not in ("tail", "last", "periodic"):
            raise ValueError(f"average must be 'tail', 'last' or 'periodic', got {self.average!r}")
        if self.n_loops < 1 or self.n_loops != int(self.n_loops):
            raise ValueError(f"n_loops must be a whole number of at least 1, got {self.n_loops!r}")
        if self.noise_multiplier is not None and not 0.0 <= self.noise_multiplier < math.inf:
            raise ValueError(f"noise_multiplier must be a finite number of at least 0, got {self.noise_multiplier!r}")
        if self.n_loops > 1 and self.average != "periodic":
            raise ValueError("n_loops > 1 needs average='periodic', the only scheme that restarts")
        if self.allocation not in ("optimal", "equal"):
            raise ValueError(f"allocation must be 'optimal' or 'equal', got {self.allocation!r}")
        if self.average == "periodic" and (self._adaptive or self.active_set):
            raise ValueError(
                "clip='adaptive' and active_set change the updates half way, where average='periodic' has loops of its "
                "own: use average='tail' or 'last' with them"
            )
        if self._adaptive and self.noise_multiplier is not None:
            raise ValueError(
                "clip='adaptive' takes a part of the budget to learn clips, and noise_multiplier settles all of the "
                "noise: leave one of them None"
            )

    @property
    def _adaptive(self) -> bool:
        return isinstance(self.clip, str)

    @property
    def _declared(self) -> Floats | None:
        """The clip that the user gives in numbers."""
        return None if self.clip is None or isinstance(self.clip, str) else np.array(self.clip, dtype=np.float64)

    @property
    def needs_slope(self) -> bool:
        """A clip that is not declared is set from the slope."""
        return self._declared is None

    def check(self, loss: Loss, penalty: Penalty, n_columns: int, intercept: bool, private: bool) -> None:
        """Raise if a clip has the wrong shape or is infinite where there is privacy, or a loss does not compile."""
        clip = np.array(np.nan) if self._declared is None else self._declared
        if clip.ndim and clip.shape != (n_columns,):
            raise ValueError(
                f"clip has shape {clip.shape}: give one number, or a threshold for each of {n_columns} columns (the "
                f"intercept, if there is one, comes last)"
            )
        if private and np.isinf(clip).any():
            raise ValueError(
                "an infinite clip leaves the sensitivity unbounded, which no noise can cover: give a finite clip, or "
                "epsilon=math.inf for a fit without privacy"
            )
        if np.isinf(clip).any() and not np.isinf(clip).all():
            raise ValueError("clip must be finite for all columns or infinite for all")
        threshold, zeros = np.full(n_columns, math.inf if np.isinf(clip).any() else 1.0), np.zeros(n_columns)
        every, n_penalized = np.arange(n_columns), n_columns - intercept
        rehearse(CoordinateUpdates(loss, penalty, every, n_penalized, threshold, zeros, zeros, zeros), n_columns)
        if self._adaptive:
            rehearse(DerivativeSizes(loss, every, np.ones(n_columns), _LEVELS, zeros, 0.0), n_columns)

    def solve(self, curator: Curator, problem: Problem, parts: int, choices: np.random.Generator) -> Solution:
        """Spend one of `parts` equal parts of what is left on coordinate updates."""
        # Not needed, and slow to find beside releases that are not Gaussian, where the user settles everything.
        settled = self.n_passes is not None and self.noise_multiplier is not None
        mu_squared = math.nan if settled else curator.gaussian_room / parts
        weights = np.zeros(curator.n_columns)
        active = np.flatnonzero(problem.smoothness > 0.0)
        n_passes, step_size = self._horizon(curator.n_records, len(active), mu_squared)
        if n_passes == 0 or len(active) == 0:
            return Solution(weights, 0, weights[None, :])
        clip = self._thresholds(problem, active)
        steps = np.divide(step_size, problem.smoothness, out=np.zeros_like(weights), where=problem.smoothness > 0.0)
        stages = self._stages(n_passes)
        for_levels = _LEVEL_SHARE * mu_squared if self._adaptive and len(stages) > 1 else 0.0
        per_pass = (mu_squared - for_levels) / n_passes if math.isfinite(mu_squared) else mu_squared
        noise_multiplier = np.zeros_like(weights)
        path: list[Floats] = []
        for begin, end in pairwise([*stages, n_passes]):
            if self.active_set and begin >= n_passes / 2:
                deviation = np.where(noise_multiplier > 0.0, clip, 0.0) * noise_multiplier * 2.0 / curator.n_records
                active = _beyond_noise(problem, active, weights, steps * deviation)
                weights = np.where(np.isin(np.arange(len(weights)), active), weights, 0.0)
                if len(active) == 0:
                    return Solution(weights, begin, np.concatenate([*path, weights[None, :]]))
            if self._adaptive and begin > 0:
                clip = self._lowered(curator, problem, active, weights, for_levels / (len(stages) - 1), mu_squared)
            coordinates = self._coordinates(active, end - begin, choices)
            noise_multiplier = self._noise_multipliers(problem.smoothness, clip, coordinates, (end - begin) * per_pass)
            for loop in np.array_split(coordinates, min(self.n_loops, len(coordinates))):
                updates = CoordinateUpdates(
                    problem.loss,
                    problem.penalty,
                    loop,
                    problem.n_penalized,
                    clip,
                    steps,
                    noise_multiplier,
                    weights,
                    problem.positive_class,
                )
                _, values = curator.release(updates)
                path.append(_path(weights, loop, values, len(active)))
                start, weights = weights, path[-1][-1]
                if self.average == "periodic":
                    weights = _averaged(start, loop, values, len(loop))
        if self.average == "tail":
            # A quarter of all passes, which lies within the last stage unless there are hardly any.
            weights = _averaged(start, loop, values, min(len(loop), math.ceil(n_passes * len(active) / 4)))
        return Solution(weights, n_passes, np.concatenate(path))

    def _stages(self, n_passes: int) -> list[int]:
        """Passes at which clips or active coordinates may change, with the first."""
        begins = {0}
        if self._adaptive:
            begins |= {1, n_passes // 4}
        if self.active_set:
            begins.add(math.ceil(n_passes / 2))
        return sorted(begin for begin in begins if begin < n_passes)

    def _horizon(self, n_records: int, n_active: int, mu_squared: float) -> tuple[int, float]:
        """Passes and step size, from public numbers."""
        n_passes, step_size = self.n_passes, 1.0
        if n_passes is None:
            horizon = n_records * math.sqrt(mu_squared) / (_HORIZON * max(n_active, 1)) - 1.0
            if horizon <= 0.0:
                return 0, 1.0
            n_passes = math.ceil(min(max(horizon / 0.7, 2.0), _LARGEST_DEFAULT_PASSES))
            step_size = min(1.0, horizon / n_passes)
        return n_passes, self.step_size or step_size

    def _thresholds(self, problem: Problem, active: NDArray[np.int64]) -> Floats:
        """C_j of every coordinate (1, and unused, for those that stay out)."""
        declared = self._declared
        if declared is None:
            if problem.slope is None:
                raise ValueError("a clip that is not declared needs the slope of the loss to be known")
            clip = _DEFAULT_CLIP * problem.slope * np.sqrt(problem.smoothness / problem.loss.curvature)
        elif declared.ndim == 0:
            clip = declared * np.sqrt(problem.smoothness / problem.smoothness.sum())
        else:
            clip = declared
        clip[np.setdiff1d(np.arange(len(clip)), active)] = 1.0
        return clip

    def _coordinates(self, active: NDArray[np.int64], n_passes: int, choices: np.random.Generator) -> NDArray[np.int64]:
        if self.order == "random":
            return choices.choice(active, size=n_passes * len(active))
        passes = np.tile(active, (n_passes, 1))
        return (choices.permuted(passes, axis=1) if self.order == "permuted" else passes).ravel()

    def _noise_multipliers(
        self, smoothness: Floats, clip: Floats, coordinates: NDArray[np.int64], mu_squared: float
    ) -> Floats:
        """z_j with Σ_k 1/z_{j_k}² = μ².

        The paper's thresholds want the same z everywhere. Thresholds of the user's own do not: with coordinate j used
        a_j times, Σ_j σ_j²/M_j is least, at equal cost, for z_j² ∝ sqrt(a_j M_j)/C_j.
        """
        multipliers = np.zeros_like(clip)
        if self.noise_multiplier is not None:
            return np.full_like(clip, self.noise_multiplier)
        if math.isinf(mu_squared):
            return multipliers
        if mu_squared <= 0.0:
            raise ValueError("there is no budget left for the updates")
        used, counts = np.unique(coordinates, return_counts=True)
        shape = np.ones(len(used))
        if self._declared is not None and self._declared.ndim > 0 and self.allocation == "optimal":
            shape = np.sqrt(counts * smoothness[used]) / clip[used]
        # A hair more noise than the budget asks, for the rounding of sums of many costs.
        multipliers[used] = np.sqrt(shape * np.sum(counts / shape) / mu_squared) * (1.0 + 1e-9)
        return multipliers

    def _lowered(
        self,
        curator: Curator,
        problem: Problem,
        active: NDArray[np.int64],
        weights: Floats,
        for_level: float,
        mu_squared: float,
    ) -> Floats:
        """Default thresholds, lowered to the least of some levels that cuts few derivatives.

        A part that is not beyond its noise counts as few, but for levels at which that noise would hide many.
        """
        default = self._thresholds(problem, active)
        noise_multiplier = 0.0 if math.isinf(mu_squared) else 1.0 / math.sqrt(for_level)
        sizes = DerivativeSizes(
            problem.loss, active, default[active], _LEVELS, weights, noise_multiplier, problem.positive_class
        )
        beyond = curator.release(sizes)
        few = min(_CUT * math.sqrt(len(active) / mu_squared) / curator.n_records, _LARGEST_CUT)
        noise = 2.0 * sizes.noise_levels(curator.n_records)
        many = np.flatnonzero((beyond > np.maximum(few, noise)) | (noise > _LARGEST_CUT))
        lowest = min(int(many[-1]) + 1, len(_LEVELS) - 1) if len(many) else 0
        return default * np.where(np.isin(np.arange(len(default)), active), _LEVELS[lowest], 1.0)


def _beyond_noise(problem: Problem, active: NDArray[np.int64], weights: Floats, noise: Floats) -> NDArray[np.int64]:
    """Coordinates whose weights are larger than the noise of an update; the intercept is always one of them.

    Without noise, all: a weight that is 0 may still become active.
    """
    stays = (np.abs(weights) > noise) | (noise == 0.0) | (np.arange(len(weights)) >= problem.n_penalized)
    return active[stays[active]]


def _averaged(start: Floats, coordinates: NDArray[np.int64], values: Floats, averaged: int) -> Floats:
    """Average of the last so many iterates.

    An update's change stays in every later iterate, so it is weighted by the share of the averaged iterates that come
    after it.
    """
    total = len(coordinates)
    # Updates of the same coordinate side by side, in their order: each changes what the one before it left.
    order = np.argsort(coordinates, kind="stable")
    before = np.concatenate([[0.0], values[order][:-1]])
    firsts = np.flatnonzero(np.diff(coordinates[order], prepend=-1))
    before[firsts] = start[coordinates[order][firsts]]
    share = np.minimum(total - order, averaged) / averaged
    return start + np.bincount(coordinates[order], share * (values[order] - before), minlength=len(start))


def _path(start: Floats, coordinates: NDArray[np.int64], values: Floats, every: int) -> Floats:
    """The iterates after every so many updates, and the last."""
    points, current = [], np.array(start)
    for first in range(0, len(coordinates), every):
        # Where a coordinate comes up twice the last value stays.
        current[coordinates[first : first + every]] = values[first : first + every]
        points.append(current.copy())
    return np.array(points)
