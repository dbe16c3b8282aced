"""The loop of both default solvers, on one screen.

A step releases a gradient and moves to the minimum of what the solver makes of it. The two solvers differ in just that:
`newton.QuadraticModel` fits one quadratic model to all gradients, `block.DampedModel` steps in a damped metric.
"""

from __future__ import annotations

from typing import Protocol

from dpcd.solvers.allocation import Allocation
from dpcd.solvers.clipping import Clips
from dpcd.solvers.initial import Continuation
from dpcd.solvers.problem import Floats, Solution
from dpcd.solvers.scaled import Scaled


class Model(Protocol):
    """What a solver makes of gradients."""

    @property
    def whitening(self) -> Floats:
        """The metric in which gradients are clipped: B, or its diagonal, with B·M·Bᵀ = I for moments M."""

    def share_out(self, share: float) -> None:
        """Take note of the share that all steps get together."""

    def next_share(self, problem: Scaled, point: Floats) -> float | None:
        """The share of the next step, None after the last; a fresh Hessian may be released before it."""

    def add(self, problem: Scaled, point: Floats, gradient: Floats, noise: float) -> Floats:
        """Learn from a gradient and its noise, and return the next point."""

    def solution(self, path: list[Floats], clips: Clips) -> Solution:
        """What all points and gradients come to."""


def descend(problem: Scaled, shares: Allocation, start: Floats, model: Model, n_steps: int, used: float) -> Solution:
    """Step from a start, as often as the model says, or stand still where no gradients can be seen.

    Parameters
    ----------
    problem, shares
        What to solve, and what may be spent on what.
    start
        The first point.
    model
        What gradients come to.
    n_steps, used
        How many steps are planned, and what part of their budget the answer is made of.
    """
    continuation = Continuation.release(problem, shares, n_steps)
    clips = Clips(shares, used)
    if not clips.release_first(continuation.at(0), model.whitening, start):
        return problem.standing(start)
    model.share_out(clips.shares.steps)
    path = [start]
    while True:
        step, point, current = len(path) - 1, path[-1], continuation.at(len(path) - 1)
        share = model.next_share(current, point)
        if share is None:
            return model.solution(path, clips)
        clip = clips.release_at(step, current, model.whitening, point)
        gradient, noise = current.release_gradient(model.whitening, point, clip, share)
        path.append(model.add(current, point, gradient, noise))
