"""The grid: every method on every problem, for every number of passes, step size and clip.

A *unit* is one run of one method on one problem with one number of passes, for all step sizes and clips at once; they
share the order of coordinates or batches, and the noise. That is common random numbers: each setting's runs are
independent of one another, and settings are compared on equal luck. Each unit is written to a file of its own as soon
as it is done, so an interrupted run goes on where it stopped.
"""

from __future__ import annotations

import csv
import gzip
import io
import os
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeVar

import numpy as np
from threadpoolctl import threadpool_limits

from dpcd.experiments.settings import (
    CD_STEPS,
    CLIPS,
    METHODS,
    PASSES,
    SGD_STEPS,
    TUNING_RUNS,
    Floats,
    Instance,
    instance,
)
from dpcd.privacy import Curator, PrivacyBudget, SeededNoise, noise_multiplier
from dpcd.privacy.rivals.batches import DualSteps, GradientSteps
from dpcd.privacy.rivals.sampling import (
    FixedSize,
    Poisson,
    paper_noise_multiplier,
    planned_order,
    sampled_noise_multiplier,
)
from dpcd.solvers import DPCD, LaplaceSmoothness, Problem, Solution

# Part of ε that DP-CD-P spends on smoothness constants.
_SMOOTHNESS_SHARE = 0.1
# Lots of DP-SCD, as a part of the records.
_LOTS = 50


class Grid(NamedTuple):
    """Which settings are tried."""

    passes: tuple[int, ...]
    cd_steps: Floats
    sgd_steps: Floats
    clips: Floats
    runs: int

    def steps(self, method: str) -> Floats:
        """Step sizes of a method; DP-SCD has none."""
        return {"DP-SGD": self.sgd_steps, "DP-SCD": np.ones(1)}.get(method, self.cd_steps)


FULL = Grid(PASSES, CD_STEPS, SGD_STEPS, CLIPS, TUNING_RUNS)
# Every ninth clip and every third step of the paper's grid.
QUICK = Grid((2, 10, 50), CD_STEPS[::3], SGD_STEPS[::3], CLIPS[::9], 2)


class Unit(NamedTuple):
    """One run of a method for all settings of a grid."""

    problem: str
    method: str
    passes: int
    run: int

    @property
    def name(self) -> str:
        """File name."""
        return f"{self.problem}_{self.method.replace(', ', '-')}_{self.passes}_{self.run}.npy"


def units(grid: Grid) -> list[Unit]:
    """All units, the longest first so that no core waits at the end."""
    every = [
        Unit(problem, method, passes, run)
        for method, problems in METHODS.items()
        for problem in problems
        for passes in grid.passes
        for run in range(grid.runs)
    ]
    return sorted(every, key=lambda unit: -work(unit, grid))


def work(unit: Unit, grid: Grid) -> float:
    """Seconds that a unit takes, roughly: for the order of units and the progress bar."""
    n, p = (1000, 1000) if unit.problem == "sparse-lasso" else (45312 if "elec" in unit.problem else 20640, 8)
    nanoseconds = {"DP-SGD": 1.3, "DP-SCD": 75.0 / p}.get(unit.method, 1.2 if "elec" in unit.problem else 0.4)
    return nanoseconds * 1e-9 * n * p * unit.passes * len(grid.steps(unit.method)) * len(grid.clips)


def generators(seed: int, unit: Unit) -> tuple[SeededNoise, np.random.Generator]:
    """Noise and public choices of a unit, from the one seed; the same for all its settings.

    DP-CD has one sequence of coordinates for all runs, as the small spreads in the paper's Table 2 suggest: they are
    those of the noise alone. "DP-CD, exact" has the same sequence, so that the two differ in what they are about.
    """
    sequence = [seed, *unit.problem.encode(), *unit.method.removesuffix(", exact").encode(), unit.passes]
    key = [seed, *unit.problem.encode(), *unit.method.encode(), unit.passes, unit.run]
    noise, choices = np.random.SeedSequence(key).spawn(2)
    if unit.method.startswith("DP-CD"):
        (choices,) = np.random.SeedSequence(sequence).spawn(1)
    return SeededNoise(np.random.default_rng(noise)), np.random.default_rng(choices)


def coordinate_descent(unit: Unit, step: float, clip: float, seed: int, epsilon: float | None = None) -> Solution:
    """One run of DP-CD, as the paper calibrates it or (``"DP-CD, exact"``) as this library does."""
    data = instance(unit.problem)
    noise, choices = generators(seed, unit)
    budget = PrivacyBudget(epsilon or data.epsilon, data.delta)
    curator = Curator(data.columns, budget, noise)
    smoothness, left = data.smoothness, budget.epsilon
    if unit.method == "DP-CD-P":
        smoothness = _private_smoothness(curator, data)
        left *= 1.0 - _SMOOTHNESS_SHARE
    solver = DPCD(n_passes=unit.passes, step_size=step, clip=clip)
    if unit.method != "DP-CD, exact":
        count = unit.passes * len(smoothness)
        multiplier = noise_multiplier(left, budget.delta, count, accounting="renyi")
        solver = replace(solver, noise_multiplier=multiplier, average="last")
    return solver.solve(curator, Problem(data.loss, data.penalty, smoothness, len(smoothness)), 1, choices)


def _private_smoothness(curator: Curator, data: Instance) -> Floats:
    """M_j by the paper's Laplace mechanism, from twice the largest value of each feature.

    The paper counts a sensitivity of 2b for values in [0, b]; a range larger by √2 gives its noise.
    """
    ranges = np.sqrt(2.0) * 2.0 * data.largest
    learn = LaplaceSmoothness(_SMOOTHNESS_SHARE)
    columns = np.arange(len(ranges))
    moments, _ = learn.second_moments(curator, columns, ranges, None, curator.gaussian_room)
    return data.loss.curvature * moments


def gradient_descent(unit: Unit, steps: Floats, clips: Floats, seed: int, epsilon: float | None = None) -> Floats:
    """Paths of DP-SGD at batch size 1 for pairs of step size and clip, calibrated as in the paper.

    Poisson sampling and Rényi accounting for neighbours that add or remove a record; the paper scales the noise to a
    sensitivity of 2C all the same, hence the factor 2.
    """
    data = instance(unit.problem)
    noise, _ = generators(seed, unit)
    n_records, n_features = data.X.shape
    sampling = Poisson(1.0 / n_records, n_records)
    budget = PrivacyBudget(epsilon or data.epsilon, data.delta)
    multiplier = 2.0 * paper_noise_multiplier(sampling, budget.epsilon, budget.delta, unit.passes * n_records)
    mechanism = GradientSteps(
        data.loss,
        data.penalty,
        sampling,
        unit.passes * n_records,
        n_features,
        1.0,
        1.0,
        multiplier,
        np.zeros(n_features),
        every=n_records,
    )
    with np.errstate(all="ignore"):
        return mechanism.paths(data.columns, noise, clips, steps / data.global_smoothness)


def dual_descent(unit: Unit, clips: Floats, seed: int, epsilon: float | None = None) -> Floats:
    """Paths of DP-SCD for many clips."""
    data = instance(unit.problem)
    noise, _ = generators(seed, unit)
    n_records = len(data.y)
    sampling = FixedSize(n_records // _LOTS, n_records)
    size = data.X.shape
    order = planned_order(sampling, epsilon or data.epsilon, data.delta, unit.passes * _LOTS, sum(size))
    budget = PrivacyBudget(epsilon or data.epsilon, data.delta, order)
    multiplier = sampled_noise_multiplier(sampling, budget, unit.passes * _LOTS, sum(size))
    mechanism = DualSteps(
        data.loss,
        sampling,
        unit.passes * _LOTS,
        1.0,
        data.penalty.alpha,
        data.row_norm,
        multiplier,
        size[1],
        every=_LOTS,
    )
    with np.errstate(all="ignore"):
        return mechanism.paths(data.columns, noise, clips)


def run_unit(unit: Unit, grid: Grid, seed: int) -> Floats:
    """Relative error of the last iterate for every step size (rows) and clip (columns)."""
    data = instance(unit.problem)
    steps = grid.steps(unit.method)
    errors = np.empty((len(steps), len(grid.clips)))
    if unit.method == "DP-SGD":
        # A few steps at a time where the weights would not fit the cache.
        rows = 10 if data.X.shape[1] < 100 else 1
        for first in range(0, len(steps), rows):
            some = steps[first : first + rows]
            pairs = np.repeat(some, len(grid.clips)), np.tile(grid.clips, len(some))
            last = gradient_descent(unit, *pairs, seed)[-1]
            errors[first : first + rows] = np.reshape([data.relative_error(w) for w in last.T], (len(some), -1))
    elif unit.method == "DP-SCD":
        errors[0] = [data.relative_error(w) for w in dual_descent(unit, grid.clips, seed)[-1].T]
    else:
        for i, step in enumerate(steps):
            for j, clip in enumerate(grid.clips):
                errors[i, j] = data.relative_error(coordinate_descent(unit, step, clip, seed).weights)
    return errors


def write_atomically(path: Path, content: bytes) -> None:
    """All or nothing: a reader never sees half a file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(f".partial{os.getpid()}")
    partial.write_bytes(content)
    partial.replace(path)


class Named(Protocol):
    """Something to run, with a name for its file."""

    @property
    def name(self) -> str:
        """File name."""


AnyUnit = TypeVar("AnyUnit", bound=Named)


def run_units(
    units: Iterable[AnyUnit],
    run: Callable[[AnyUnit], bytes],
    folder: Path,
    jobs: int,
    on_done: Callable[[AnyUnit, float], Any] = lambda unit, seconds: None,
) -> None:
    """Run the units that have no file in `folder` yet, in `jobs` processes; `on_done` hears of each, old ones first."""
    todo: list[AnyUnit] = []
    for unit in units:
        if (folder / unit.name).is_file():
            on_done(unit, 0.0)
        else:
            todo.append(unit)
    if not todo:
        return
    # One thread of linear algebra in each process: more would fight over the cores.
    with ProcessPoolExecutor(jobs, initializer=threadpool_limits, initargs=(1,)) as pool:
        futures = [pool.submit(_run_and_store, unit, run, folder) for unit in todo]
        try:
            for future in as_completed(futures):
                on_done(*future.result())
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise


def _run_and_store(unit: AnyUnit, run: Callable[[AnyUnit], bytes], folder: Path) -> tuple[AnyUnit, float]:
    start = time.perf_counter()
    write_atomically(folder / unit.name, run(unit))
    return unit, time.perf_counter() - start


def run_grid(
    grid: Grid, folder: Path, seed: int, jobs: int, on_done: Callable[[Unit, float], Any] = lambda unit, seconds: None
) -> None:
    """Run the whole grid, as `run_units` does."""
    run_units(units(grid), partial(_errors_as_bytes, grid=grid, seed=seed), folder, jobs, on_done)


def _errors_as_bytes(unit: Unit, grid: Grid, seed: int) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, run_unit(unit, grid, seed))
    return buffer.getvalue()


@dataclass(frozen=True)
class Cell:
    """A row of the results table: one setting's mean and standard deviation over the runs."""

    problem: str
    method: str
    passes: int
    step: float
    clip: float
    mean: float
    std: float


def cells(grid: Grid, folder: Path) -> Iterator[Cell]:
    """The tidy table, from the units' files."""
    for method, problems in METHODS.items():
        for problem in problems:
            for passes in grid.passes:
                runs = [np.load(folder / Unit(problem, method, passes, run).name) for run in range(grid.runs)]
                errors = np.array(runs)
                with np.errstate(invalid="ignore"):
                    mean, std = errors.mean(axis=0), errors.std(axis=0)
                for i, step in enumerate(grid.steps(method).tolist()):
                    for j, clip in enumerate(grid.clips.tolist()):
                        yield Cell(problem, method, passes, step, clip, float(mean[i, j]), float(std[i, j]))


def write_table(table: Iterable[Cell], path: Path) -> None:
    """Store the table as compressed CSV, the same bytes for the same numbers."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(Cell.__annotations__)
    for cell in table:
        numbers = (f"{value:.4g}" for value in (cell.step, cell.clip, cell.mean, cell.std))
        writer.writerow([cell.problem, cell.method, cell.passes, *numbers])
    write_atomically(path, gzip.compress(text.getvalue().encode(), mtime=0))


def best_cells(table: Iterable[Cell]) -> dict[tuple[str, str, int], Cell]:
    """The setting with the lowest mean error for each problem, method and number of passes."""
    best: dict[tuple[str, str, int], Cell] = {}
    for cell in table:
        key = cell.problem, cell.method, cell.passes
        if np.isfinite(cell.mean) and (key not in best or cell.mean < best[key].mean):
            best[key] = cell
    return best
