"""Second moments of scaled columns, as far as noisy releases tell."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from dpcd.policy import POLICY
from dpcd.solvers.problem import Floats


@dataclass(frozen=True, eq=False)
class Moments:
    """Second moments of scaled columns, as far as they can be told.

    Parameters
    ----------
    matrix
        S, positive definite.
    whitening
        B, lower triangular, with B·S·Bᵀ = I.
    added, hidden
        What of S is there only because of noise, and what was added to its diagonal, which is 1 by construction.
    noise
        Standard deviation of the noise on the diagonal, in whitened coordinates.
    radius
        Norm beyond which whitened rows are shortened.
    unwhitened, doubt, unsure
        Noise is that of A·N·Aᵀ, for such a matrix A and noise N that is alike in all directions; of it, shrinking has
        left this standard deviation on the diagonal of N. And the matrix may be off by so much there, if eigenvalues
        differ by as much as noise could hide.
    """

    matrix: Floats
    whitening: Floats
    added: Floats
    hidden: Floats
    noise: float
    radius: float
    unwhitened: Floats
    doubt: float
    unsure: float

    @classmethod
    def of(cls, look: Callable[[Floats], Floats], size: int, radius: float, noise: float, rounds: int) -> Moments:
        """From several looks at so many columns, each in the metric that the one before it found.

        `look` releases B·S·Bᵀ for a B, rows B·x longer than `radius` shortened, with this noise on its diagonal.
        """
        whitening = np.eye(size)
        for past in range(rounds):
            released = look(whitening)
            unsure = hidden_by_noise(released, noise)
            unwhitened = np.asarray(np.linalg.inv(whitening), dtype=np.float64)
            values, vectors = np.linalg.eigh(released)
            values, left = shrunk(values, noise)
            believed = raised(values, left, noise)
            if past:
                nothing = values < POLICY.nothing * noise * math.sqrt(2.0 * size)
                believed = np.where(nothing, np.maximum(believed, POLICY.nothing_keeps), believed)
            back = unwhitened @ vectors
            matrix, added = (back * believed) @ back.T, (back * (believed - values)) @ back.T
            # Second moments are 1 by construction: what is missing was hidden by shortening long rows, or the scale was
            # learnt and is too large. With too much curvature steps are short, with too little they diverge.
            hidden = np.maximum(0.0, 1.0 - np.diag(matrix))
            matrix = matrix + np.diag(hidden)
            whitening = np.tril(np.linalg.inv(np.linalg.cholesky(matrix)))
        return cls(matrix, whitening, added, hidden, noise, radius, unwhitened, left * noise, unsure)

    @classmethod
    def unknown(cls, size: int, radius: float, noise: float) -> Moments:
        """Moments of so many columns that were not released: those of columns of which no two agree.

        They are as doubtful as a release with this noise.
        """
        one = np.eye(size)
        return cls(one, one, np.zeros((size, size)), np.zeros(size), noise, radius, one, noise, noise)

    @property
    def seen(self) -> Floats:
        """What of S is neither guessed nor there only because of noise; not positive where noise is larger."""
        return self.matrix - np.diag(self.hidden) - self.added

    @property
    def metric(self) -> Floats:
        """The matrix in which noise is alike in all directions: S, unless part of it was found not to be there."""
        back = np.linalg.inv(self.whitening)
        return np.asarray(back @ back.T)


def unexplained(square: float, noise: float) -> float:
    """The part of an estimate that is believed, as James and Stein shrink: of its square, noise explains so much."""
    return max(0.0, 1.0 - noise / square) if square > 0.0 else 0.0


def shrunk(values: Floats, noise: float) -> tuple[Floats, float]:
    """Eigenvalues of a noisy symmetric matrix, shrunk towards their mean, and the part of their spread that is left.

    They are shrunk by the part of the spread that noise on the diagonal of this standard deviation explains. Those that
    stand out above the rest stay what they are.
    """
    reach = POLICY.beyond_noise * noise * math.sqrt(2.0 * len(values))
    ordinary = np.ones(len(values), dtype=bool)
    for _ in range(3):
        ordinary = values <= max(float(values[ordinary].mean()) + reach, float(values.min()))
    count = int(ordinary.sum())
    mean = max(float(values[ordinary].mean()), noise)
    spread = float(np.sum((values[ordinary] - mean) ** 2))
    explained = noise**2 * (count * (count + 1) / 2 - 1)
    # One alone is its own mean, from which it has no distance to shrink.
    left = 1.0 if count == 1 else unexplained(spread, explained)
    return np.where(ordinary, mean + left * (values - mean), values), left


def raised(values: Floats, left: float, noise: float) -> Floats:
    """Shrunk eigenvalues, raised by a part of the noise that is left in them: none may seem flat because of it."""
    return np.asarray(np.maximum(values, 0.0) + POLICY.raised * left * noise * math.sqrt(len(values)) + 1e-12)


def hidden_by_noise(released: Floats, noise: float) -> float:
    """By how much entries on the diagonal of a noisy matrix may be off once its eigenvalues are shrunk to their mean.

    Noise explains the eigenvalues' spread up to its own fluctuations. So much of it may be there after all: where
    entries differ by v times the variance of noise, v/(1 + v) of that variance is left of it.
    """
    size = len(released)
    freedom = size * (size + 1) / 2.0 - 1.0
    if freedom <= 0.0 or noise == 0.0:
        return noise
    spread = float(np.sum((released - np.trace(released) / size * np.eye(size)) ** 2)) / (noise**2 * freedom)
    ratio = max(0.0, spread - 1.0) + POLICY.fluctuations * math.sqrt(2.0 / freedom)
    return noise * math.sqrt(ratio / (1.0 + ratio))
