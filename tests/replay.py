"""Record a run, replay it on a neighbouring data set, and check everything the privacy argument rests on.

A run is private if (1) what is asked of the data depends on earlier answers alone and (2) each answer's input moves by
no more than the declared sensitivity when one record is replaced. So: record the answers on a data set D; let the same
code run on a neighbour D' while a curator hands it the recorded answers, and see that it asks the very same questions;
then put each question to both data sets without noise, and see that the inputs differ by no more than the noise covers.
"""

import dataclasses

import numpy as np

from attack import apart
from dpcd.audit import NoNoise
from dpcd.privacy import Curator, PrivacyCost, SeededNoise
from dpcd.privacy.rivals import minima
from dpcd.privacy.rivals.batches import DualSteps, VarianceReducedSteps
from dpcd.privacy.rivals.minima import MinimumOfNoisyObjective, NoisyMinimum


class KeepingNoise:
    """Passes another source's noise on and keeps all of it."""

    description, private = "kept", False

    def __init__(self, source):
        self._source = source
        self.drawn = []

    def gaussian(self, scale, size):
        self.drawn.append(self._source.gaussian(scale, size))
        return self.drawn[-1]

    def laplace(self, scale, size):
        self.drawn.append(self._source.laplace(scale, size))
        return self.drawn[-1]

    def top(self, scores, scale, k):
        # The noise of a choice is not what is released, and stays inside.
        return self._source.top(scores, scale, k)

    def generator(self):
        return self._source.generator()


class RecordingCurator(Curator):
    """Remembers every mechanism and its answer."""

    def __init__(self, *args):
        super().__init__(*args)
        self.tape = []

    def release(self, mechanism):
        answer = super().release(mechanism)
        self.tape.append((mechanism, answer))
        return answer


class ReplayingCurator(Curator):
    """Answers from a tape, after checking that the question is the recorded one."""

    def __init__(self, tape, *args):
        super().__init__(*args)
        self._tape = list(tape)
        self._answered = 0

    @property
    def finished(self):
        return self._answered == len(self._tape)

    def release(self, mechanism):
        assert self._answered < len(self._tape), "the neighbour is asked more questions"
        recorded, answer = self._tape[self._answered]
        self._answered += 1
        assert type(mechanism) is type(recorded), "the neighbour is asked other questions"
        for field in dataclasses.fields(recorded):
            ours, theirs = getattr(mechanism, field.name), getattr(recorded, field.name)
            assert _same(ours, theirs), f"{type(recorded).__name__}.{field.name} depends on the data"
        # The curator's books must run along, as solvers ask it what is left.
        self._spent = self._spent + mechanism.cost
        return answer


def _same(a, b):
    if isinstance(a, np.ndarray):
        return np.array_equal(a, b)
    if isinstance(a, tuple):
        return type(a) is type(b) and all(_same(x, y) for x, y in zip(a, b, strict=True))
    return a == b


def single_releases(mechanism, answer):
    """Mechanisms of one release each that a mechanism is made of, given what it answered."""
    if isinstance(mechanism, VarianceReducedSteps):
        # The answer is an average; what a step asks is asked at any point, so take a few of all sizes.
        for size in (1e-9, 1e-3, 1.0, 1e6):
            start = mechanism.snapshot + size * np.random.default_rng(8).normal(size=len(mechanism.snapshot))
            yield dataclasses.replace(mechanism, count=1, start=start)
    elif hasattr(mechanism, "steps_of"):
        yield from (step for step, _ in mechanism.steps_of(answer))
    else:
        yield mechanism


def dual_steps_apart(mechanism, columns, neighbour, n_lots=6):
    """For lots from a state that a noisy run reaches: how far the increments of (α, v) differ, over what is allowed."""
    n, width = columns.n_records, mechanism.width
    units, clips = mechanism.lattice(n), np.array([mechanism.clip])
    sensitivity = mechanism.sensitivity(units.bound)
    tables = [mechanism.data(data) for data in (columns, neighbour)]
    state = mechanism.zeros(n, 1)
    noise = SeededNoise(np.random.default_rng(4))

    def after(table, lot, draws):
        moved = tuple(part.copy() for part in state)
        mechanism.descend(table, units, lot, clips, draws, moved)
        return moved

    silent = np.zeros((1, n + width), dtype=np.int64)
    for _ in range(n_lots):
        members, starts = mechanism.sampling.draw(n, 1, np.random.default_rng(len(tables)))
        # Record 7 is the one that differs: put it into every lot.
        members[0] = 7 if 7 not in members else members[0]
        lot = members, starts
        ours, theirs = (after(table, lot, silent) for table in tables)
        difference = [(a - b).ravel().astype(float) for a, b in zip(ours, theirs, strict=True)]
        yield float(np.linalg.norm(np.concatenate(difference))) / sensitivity
        draws = noise.gaussian(mechanism.noise_multiplier * sensitivity, n + width).reshape(1, -1)
        state = after(tables[0], lot, draws)


def minima_apart(mechanism, columns, neighbour):
    """How far gradients of the two objectives differ, and minima found for noise that leads to the same exact one."""
    for size in (0.0, 1.0, 100.0):
        exact = size * np.random.default_rng(6).normal(size=len(mechanism.active))
        tilts, points = [], []
        for data in (columns, neighbour):
            problem = minima._Minimization(mechanism, data, np.zeros(len(exact)))
            slopes, _ = problem._slopes(problem._rows @ exact)
            tilts.append(-problem._gradient(exact, slopes))
            tilted = minima._Minimization(mechanism, data, tilts[-1])
            points.append(tilted.certified(mechanism.tolerance(mechanism.largest_tilt)))
        yield float(np.linalg.norm(tilts[0] - tilts[1])) / (mechanism.tilt / mechanism.noise_multiplier)
        yield float(np.linalg.norm(points[0] - points[1])) / (2.0 * mechanism.distance)


def releases_apart(mechanism, answer, columns, neighbour):
    """How far the input of each release moves between neighbours, over what its noise is made for."""
    if isinstance(mechanism, DualSteps):
        yield from dual_steps_apart(mechanism, columns, neighbour)
    elif isinstance(mechanism, MinimumOfNoisyObjective):
        yield from minima_apart(mechanism, columns, neighbour)
    elif isinstance(mechanism, NoisyMinimum):
        points = [mechanism.run(data, NoNoise()) * mechanism.scales for data in (columns, neighbour)]
        yield float(np.linalg.norm(points[0] - points[1])) / mechanism.sensitivity
    else:
        for single in single_releases(mechanism, answer):
            yield apart(single, columns, neighbour)


def check_sensitivity(tape, columns, neighbour):
    """Each input moves by at most its sensitivity between neighbours; returns how close it came."""
    closest = 0.0
    for mechanism, answer in tape:
        # As in a curator's release.
        with np.errstate(all="ignore"):
            moved = max(releases_apart(mechanism, answer, columns, neighbour))
        assert moved <= 1.0 + 1e-12, f"{type(mechanism).__name__} moved by {moved:.3f} of its sensitivity"
        closest = max(closest, moved)
    return closest


def check_books(tape, curator, drawn):
    """The cost charged is that of the releases made, and no noise is drawn twice."""
    charged = sum((mechanism.cost for mechanism, _ in tape), PrivacyCost())
    assert curator.spent == charged
    assert [release.count for release in curator.releases] == [mechanism.count for mechanism, _ in tape]
    integers = np.concatenate([d.ravel() for d in drawn]) if drawn else np.zeros(0)
    assert len(np.unique(integers)) == len(integers), "a noise value came up twice"
