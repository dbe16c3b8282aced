"""Shrinking many noisy estimates of which few may carry the signal."""

from __future__ import annotations

import math

import numpy as np

from dpcd.solvers.problem import Floats

# Of fewer estimates than this, or of absurd ones, there is no telling groups apart.
_FEWEST, _ABSURD = 5, 1e150
# Two groups are believed in if they explain the estimates better than one by this much, in log likelihood.
_CLEARLY = 3.0
# Parts of the estimates that the search for a group of large ones begins with, besides a single one, and its length.
_PARTS, _ROUNDS = (0.1, 0.3), 100


def factors_of_two_groups(squares: Floats) -> Floats | None:
    """What part of each estimate is believed if few are large and the others small; None if they are all of a kind.

    James and Stein shrink all estimates by the same factor, as if all of them had about as much signal. Where few of
    many have nearly all of it, that keeps too much noise in the others and takes too much of the few. Here estimates
    are θ + noise, and θ comes from either of two normal distributions of mean zero, whose variances and proportion are
    those under which the estimates are most likely (by EM). What is believed of an estimate is the posterior mean.

    Parameters
    ----------
    squares
        Squares of the estimates, in units of the variance of their noise.

    Notes
    -----
    All of it is made of what was released already.
    """
    if len(squares) < _FEWEST or not np.all(squares < _ABSURD):
        return None
    common = max(0.0, float(np.mean(squares)) - 1.0)
    best, factors = float(np.sum(_log_density(squares, common))) + _CLEARLY, None
    for part in (1.0 / len(squares), *_PARTS):
        large, small = max(1.0, float(squares.max())), 0.1 * common
        for _ in range(_ROUNDS):
            likelihood, in_large = _memberships(squares, part, large, small)
            total = float(in_large.sum())
            part = min(max(total / len(squares), 0.5 / len(squares)), 1.0 - 1e-6)
            large = max(0.0, float(in_large @ squares) / max(total, 1e-12) - 1.0)
            small = max(0.0, float((1.0 - in_large) @ squares) / max(len(squares) - total, 1e-12) - 1.0)
        likelihood, in_large = _memberships(squares, part, large, small)
        if likelihood > best:
            best, factors = likelihood, in_large * large / (1.0 + large) + (1.0 - in_large) * small / (1.0 + small)
    return factors


def _memberships(squares: Floats, part: float, large: float, small: float) -> tuple[float, Floats]:
    """Log likelihood but for a constant, and how probably each estimate is in the group of large ones."""
    one, other = math.log(part) + _log_density(squares, large), math.log1p(-part) + _log_density(squares, small)
    either = np.logaddexp(one, other)
    return float(either.sum()), np.exp(one - either)


def _log_density(squares: Floats, variance: float) -> Floats:
    """Of θ + noise for θ of this variance, but for a constant."""
    return np.asarray(-0.5 * (math.log1p(variance) + squares / (1.0 + variance)))
