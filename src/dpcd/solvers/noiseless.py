"""Solutions that take no private steps: where nothing can be learnt, and where ε is infinite."""

from __future__ import annotations

import math

import numpy as np

from dpcd.losses import Logistic, Squared
from dpcd.privacy.records import MomentMatrix
from dpcd.quadratic import Quadratic
from dpcd.solvers.preconditioner import Moments
from dpcd.solvers.problem import Floats, Solution
from dpcd.solvers.scaled import Clip, Scaled

# There are at most so many steps, and nothing is left to do where a plain gradient step moves weights by this part of
# them. Of the bound on the Hessian so much is added at least and at the first sign of need, so many times more at the
# next try, and less after a step. A gradient may rise by a little more than expected.
_NOISELESS_STEPS, _NOTHING_LEFT = 1000, 1e-11
_LEAST_ADDED, _FIRST_ADDED, _MORE, _LESS, _A_LITTLE = 1e-9, 1e-4, 10.0, 100.0, 1.5


def known_solution(scaled: Scaled) -> Solution | None:
    """The solution where no column takes part, nothing is left to spend, or ε is infinite; None elsewhere."""
    if scaled.size == 0 or scaled.mu == 0.0:
        return scaled.standing(np.zeros(scaled.size))
    return _minimized(scaled) if scaled.noiseless else None


def _minimized(scaled: Scaled) -> Solution:
    """Proximal Newton steps with the Hessian at each point, until a plain gradient step would move nothing.

    A step that goes too far is tried again with more of an upper bound of the Hessian added, as Levenberg and
    Marquardt do. Where the gradient rises along a step by no more than the model says, the objective has fallen all
    the way, and with the whole bound added it cannot rise by more.
    """
    moments = scaled.release_moments(1.0, rounds=1)
    bound = scaled.problem.loss.curvature * moments.matrix
    steepest = float(np.linalg.eigvalsh(bound)[-1]) * np.eye(scaled.size)

    def looked_at(point: Floats) -> tuple[Floats, Floats, float]:
        gradient, _ = scaled.release_gradient(np.ones(scaled.size), point, Clip(math.inf), 1.0)
        plain = scaled.minimum(steepest, steepest @ point - gradient, point)
        return point, gradient, float(np.linalg.norm(plain - point))

    (point, gradient, left), hessian = looked_at(np.zeros(scaled.size)), bound
    path: list[Floats] = []
    added, length = 1.0, 0.0
    for _ in range(_NOISELESS_STEPS):
        if not path or not isinstance(scaled.problem.loss, Squared):
            hessian = _exact_hessian(scaled, moments, point)
        while True:
            model = hessian + added * bound
            tried = looked_at(scaled.minimum(model, model @ point - gradient, point))
            move = tried[0] - point
            rise, expected = float(move @ (tried[1] - gradient)), float(move @ model @ move)
            # Where steps get shorter and shorter a little too far is near enough.
            closing_in = rise <= _A_LITTLE * expected and np.linalg.norm(move) <= length / 2.0
            if rise <= expected or closing_in or added >= 1.0:
                break
            added = min(max(_MORE * added, _FIRST_ADDED), 1.0)
        (point, gradient, left), added = tried, max(added / _LESS, _LEAST_ADDED)
        length = float(np.linalg.norm(move))
        path.append(scaled.weights(point))
        if left <= _NOTHING_LEFT * np.linalg.norm(point) or not move.any():
            break
    return Solution(path[-1], len(path), np.array(path), quadratic=_exact_quadratic(scaled, moments, point))


def _exact_hessian(scaled: Scaled, moments: Moments, point: Floats) -> Floats:
    """The objective's own Hessian at a point."""
    # In the metric of the moments no row is longer than √n, and short rows want a fine lattice.
    radius = 2.0 * math.sqrt(scaled.curator.n_records)
    weighted = MomentMatrix(scaled.view(moments.whitening, point), 0.0, radius=radius, weighted=True)
    back = np.linalg.inv(moments.whitening)
    return np.asarray(scaled.problem.loss.curvature * back @ scaled.curator.release(weighted) @ back.T)


def _exact_quadratic(scaled: Scaled, moments: Moments, point: Floats) -> Quadratic:
    """The model at a point without noise."""
    hessian = _exact_hessian(scaled, moments, point) + 1e-12 * np.eye(scaled.size)
    gradient, _ = scaled.release_gradient(moments.whitening, point, Clip(math.inf), 1.0)
    _, squared_size = scaled.release_sizes(moments.whitening, point, 1.0).level or (0.0, 0.0)
    # The mean square of a logistic model's gradients is its Hessian, if the model is right; that of other losses is
    # known over all p directions together.
    logistic = isinstance(scaled.problem.loss, Logistic)
    sampling = hessian if logistic else squared_size / scaled.size * moments.matrix
    return scaled.quadratic(hessian, hessian @ point - gradient, sampling / scaled.curator.n_records)
