"""What the figures show: paths of the tuned methods, error against ε, and the theory's bounds beside measured errors.

Every function returns rows of a tidy table. They are recomputed when a file is missing, from the one seed.
"""

from __future__ import annotations

import math
import time
from typing import NamedTuple

import numpy as np

from dpcd import theory
from dpcd.experiments.runs import Cell, Unit, coordinate_descent, dual_descent, generators, gradient_descent
from dpcd.experiments.settings import CURVE_RUNS, Floats, instance
from dpcd.privacy import Columns, Curator, PrivacyBudget, noise_multiplier
from dpcd.solvers import DPCD, Problem

EPSILONS = (0.05, 0.1, 0.3, 1.0, 3.0, 10.0)
# Runs of the curves take other seeds than the runs that chose their settings.
_CURVE_RUN = 1000


class Point(NamedTuple):
    """Mean, least and largest relative error of a tuned method's runs, at one point of its path."""

    problem: str
    method: str
    total_passes: int
    passes: float
    seconds: float
    mean: float
    low: float
    high: float


def one_path(unit: Unit, cell: Cell, seed: int, epsilon: float | None = None) -> Floats:
    """Weights after each pass of one run with a tuned setting."""
    if unit.method == "DP-SGD":
        return gradient_descent(unit, np.array([cell.step]), np.array([cell.clip]), seed, epsilon)[:, :, 0]
    if unit.method == "DP-SCD":
        return dual_descent(unit, np.array([cell.clip]), seed, epsilon)[:, :, 0]
    solution = coordinate_descent(unit, cell.step, cell.clip, seed, epsilon)
    # The path is of iterates; what is reported at its end may be their average.
    return np.vstack([solution.path[:-1], solution.weights])


def tuned_path(cell: Cell, seed: int, runs: int = CURVE_RUNS) -> list[Point]:
    """Error along the path of a tuned method: one point for the start and one for each pass."""
    data = instance(cell.problem)
    errors, seconds = [], []
    for run in range(runs):
        unit = Unit(cell.problem, cell.method, cell.passes, _CURVE_RUN + run)
        start = time.perf_counter()
        path = one_path(unit, cell, seed)
        seconds.append(time.perf_counter() - start)
        errors.append([data.relative_error(weights) for weights in np.vstack([np.zeros(path.shape[1]), path])])
    # The first run in a process may compile.
    pace = float(np.median(seconds)) / cell.passes
    table = np.array(errors)
    return [
        Point(
            cell.problem,
            cell.method,
            cell.passes,
            k,
            k * pace,
            float(table[:, k].mean()),
            float(table[:, k].min()),
            float(table[:, k].max()),
        )
        for k in range(table.shape[1])
    ]


class BudgetPoint(NamedTuple):
    """Relative error of a method at one ε, its settings those tuned at the paper's ε."""

    problem: str
    method: str
    epsilon: float
    mean: float
    low: float
    high: float


def error_against_epsilon(candidates: list[Cell], seed: int, runs: int = CURVE_RUNS) -> list[BudgetPoint]:
    """For each ε, the best of the settings tuned for the different numbers of passes."""
    data = instance(candidates[0].problem)
    points = []
    for epsilon in EPSILONS:
        results = []
        for cell in candidates:
            errors = []
            for run in range(runs):
                unit = Unit(cell.problem, cell.method, cell.passes, _CURVE_RUN + run)
                errors.append(data.relative_error(one_path(unit, cell, seed, epsilon)[-1]))
            results.append(errors)
        best = min(results, key=np.mean)
        first = candidates[0]
        points.append(
            BudgetPoint(first.problem, first.method, epsilon, float(np.mean(best)), float(min(best)), float(max(best)))
        )
    return points


class BoundPoint(NamedTuple):
    """Theorem 2's bound, Theorem 3's bound and the measured error of DP-CD on one of Theorem 3's problems."""

    case: str
    varied: str
    n_records: int
    n_features: int
    upper: float
    measured: float
    lower: float


def bounds_and_errors(seed: int, runs: int = CURVE_RUNS, epsilon: float = 1.0) -> list[BoundPoint]:
    """Over n at p = 100 and over p at n = 3000, δ = 1/n²: DP-CD as Theorem 2 sets it, on both problems of Theorem 3."""
    sizes = [("n", n, 100) for n in (300, 1000, 3000, 10_000, 30_000)]
    sizes += [("p", 3000, p) for p in (10, 30, 100, 300)]
    return [
        _bound_point(case, varied, n, p, seed, runs, epsilon)
        for case in ("convex", "strongly convex")
        for varied, n, p in sizes
    ]


def _bound_point(case: str, varied: str, n: int, p: int, seed: int, runs: int, epsilon: float) -> BoundPoint:
    L, delta = np.ones(p), 1.0 / n**2
    if case == "convex":
        problem = theory.convex_instance(L, 1.0, n, epsilon, random_state=seed)
        lower = theory.convex_lower_bound(L, 1.0, n, epsilon, delta)
    else:
        problem = theory.strongly_convex_instance(L, 1.0, n, epsilon, random_state=seed)
        lower = theory.strongly_convex_lower_bound(L, 1.0, n, epsilon, delta)
    constants = problem.lipschitz, problem.smoothness
    gap, distance = problem.excess(np.zeros(p)), theory.m_norm(problem.weights, problem.smoothness)
    if case == "convex":
        guarantee = theory.convex_guarantee(*constants, theory.initial_radius(distance, gap), n, epsilon, delta)
    else:
        guarantee = theory.strongly_convex_guarantee(*constants, gap, problem.strong_convexity, n, epsilon, delta)
    # The solver counts in passes: K is rounded up to whole ones, and the bound is that of the K it runs.
    loops = guarantee.n_loops
    passes = math.ceil(guarantee.n_updates / p)
    scales = theory.noise_scales(problem.lipschitz, n, loops * passes * p, epsilon, delta)
    if case == "convex":
        upper = theory.convex_bound(passes * p, distance, gap, scales, problem.smoothness)
    else:
        upper = theory.strongly_convex_bound(
            passes * p, loops, gap, problem.strong_convexity, scales, problem.smoothness
        )
    solver = DPCD(
        n_passes=loops * passes,
        step_size=1.0,
        clip=problem.lipschitz,
        order="random",
        average="periodic",
        n_loops=loops,
        noise_multiplier=noise_multiplier(epsilon, delta, loops * passes * p, accounting="closed-form"),
    )
    errors = []
    for run in range(runs):
        noise, choices = generators(seed, Unit(f"theorem3-{case}-{n}-{p}", "DP-CD", passes, run))
        curator = Curator(Columns.copy_of(problem.features, problem.target), PrivacyBudget(epsilon, delta), noise)
        solution = solver.solve(curator, Problem(problem.loss, problem.penalty, problem.smoothness, p), 1, choices)
        errors.append(problem.excess(solution.weights))
    return BoundPoint(case, varied, n, p, upper, float(np.mean(errors)), lower)
