"""Record a run, replay it on a neighbouring data set, and check everything the privacy argument rests on.

A run is private if (1) what is asked of the data depends on earlier answers alone and (2) each answer's input moves by
no more than the declared sensitivity when one record is replaced. So: record the answers on a data set D; let the same
code run on a neighbour D' while a curator hands it the recorded answers, and see that it asks the very same questions;
then put each question to both data sets without noise, and see that the inputs differ by no more than the noise covers.
"""

import dataclasses
import math

import numpy as np

from dpcd.audit import NoNoise, single_updates
from dpcd.compilation import compiled
from dpcd.privacy import Curator, PrivacyCost, SeededNoise, kernels, perturbation
from dpcd.privacy.joint import GradientSizes, JointGradient, MomentMatrix
from dpcd.privacy.levels import DerivativeSizes
from dpcd.privacy.mechanisms import (
    ClippedMeans,
    CoordinateUpdates,
    DyadicCounts,
    LaplaceSecondMoments,
    SecondMoments,
    lattice,
)
from dpcd.privacy.perturbation import MinimumOfNoisyObjective, NoisyMinimum
from dpcd.privacy.selection import SteepestVertex, TopCoordinates
from dpcd.privacy.stochastic import DualSteps, GradientSteps, VarianceReducedSteps


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


def questions(mechanism, answer):
    """Split a mechanism into its single releases, as mechanisms of one release each."""
    if isinstance(mechanism, CoordinateUpdates):
        yield from single_updates(mechanism, answer[1])
    elif isinstance(mechanism, GradientSteps):
        for start in [mechanism.start, *answer[:-1]]:
            yield dataclasses.replace(mechanism, count=1, every=1, start=np.array(start))
    elif isinstance(mechanism, VarianceReducedSteps):
        # The answer is an average; what a step asks is asked at any point, so take a few of all sizes.
        for size in (1e-9, 1e-3, 1.0, 1e6):
            start = mechanism.snapshot + size * np.random.default_rng(8).normal(size=len(mechanism.snapshot))
            yield dataclasses.replace(mechanism, count=1, start=start)
    else:
        yield mechanism


def noiseless(question, columns):
    """What a release is made of before the noise, in lattice units, and the scale of its noise."""
    noise = NoNoise()
    with np.errstate(all="ignore"):
        answer = question.run(columns, noise)
    n = columns.n_records
    if isinstance(question, CoordinateUpdates):
        return np.asarray(answer[0], dtype=float), noise.scales[0]
    if isinstance(question, (SecondMoments, ClippedMeans)):
        scale = question.noise_multiplier * question._reach * math.sqrt(question.size)
        return answer * n * lattice(n, scale, scale).bound, noise.scales[0]
    if isinstance(question, LaplaceSecondMoments):
        return answer * n * lattice(n, 0.0, 64.0 * question.noise_multipliers[0]).bound, noise.scales[0]
    if isinstance(question, DyadicCounts):
        return answer.ravel() * lattice(n, question.noise_level, question.noise_level).bound, noise.scales[0]
    if isinstance(question, GradientSteps):
        scale = question.noise_multiplier * question.sampling.sensitivity
        unit = lattice(n, scale, scale).bound * question.sampling.mean_size / (question.clip * question.step)
        return (question.start - answer[0]) * unit, noise.scales[0]
    if isinstance(question, DerivativeSizes):
        scale = math.sqrt(2.0) * question.noise_multiplier
        return np.diff(answer, append=0.0) * n * lattice(n, scale, scale).bound, noise.scales[0]
    if isinstance(question, JointGradient):
        scale = 2.0 * question.noise_multiplier
        return answer * (lattice(n, scale, 2.0 * scale).bound * n / question.clip), noise.scales[0]
    if isinstance(question, MomentMatrix):
        # Off the diagonal noise is smaller by √2, and entries count twice: stretch them to the diagonal's noise.
        off_diagonal, diagonal = noise.scales
        bound = math.sqrt(diagonal / (math.sqrt(2.0) * question.noise_multiplier)) - math.sqrt(question.size)
        unit = n * (bound / question.radius) ** 2
        above = answer[np.triu_indices(question.size, 1)] * (diagonal / off_diagonal)
        return np.append(np.diag(answer), above) * unit, diagonal
    if isinstance(question, GradientSizes):
        return answer * lattice(n, question.noise_level, question.noise_level).bound, noise.scales[0]
    if isinstance(question, VarianceReducedSteps):
        scale = question.noise_multiplier * question.sampling.sensitivity
        reach = math.sqrt(np.sum(question.smoothness * (question.start - question.snapshot) ** 2))
        clip = min(question.growth * reach, 2.0 * question.clip)
        unit = lattice(n, scale, scale).bound * question.sampling.mean_size / (clip * question.step)
        return (question.start - answer) * unit, noise.scales[0]
    if isinstance(question, NoisyMinimum):
        unit = perturbation._unit(question.noise_multiplier * question.sensitivity)
        return answer * question.scales / unit, noise.scales[0]
    raise NotImplementedError(type(question).__name__)


def dual_steps_apart(mechanism, columns, neighbour, n_lots=6):
    """For lots from a state that a noisy run reaches: how far the increments of (α, v) differ, over what is allowed."""
    n = columns.n_records
    noise = SeededNoise(np.random.default_rng(4))
    scale = mechanism.noise_multiplier * mechanism.sampling.sensitivity * math.sqrt(2.0)
    encoder = lattice(max(n, mechanism.count), scale, scale * math.sqrt(mechanism.count))
    width = mechanism.n_columns
    kernel = compiled(kernels.dual_descent, type(mechanism.loss), kernels.Lattice)
    strength = mechanism.penalty_strength / mechanism.largest_norm**2 * n
    tables = []
    for data in (columns, neighbour):
        rows, norms = data.bounded_rows(mechanism.largest_norm)
        target = data.signed_target(mechanism.positive_class)
        tables.append((rows / mechanism.largest_norm, norms / mechanism.largest_norm, target))
    state = [np.zeros(shape, dtype=np.int64) for shape in ((n, 1), n, (width, 1))]
    allowed = 2.0 * math.sqrt(2.0) * (encoder.bound + math.sqrt(width))

    def after(table, members, starts, draws):
        moved = [part.copy() for part in state]
        lot = members, starts, mechanism.sampling.mean_size, strength, np.array([mechanism.clip])
        with np.errstate(all="ignore"):
            kernel(*table, mechanism.loss, encoder, *lot, draws[:, :n], draws[:, n:], *moved)
        return moved

    silent = np.zeros((1, n + width), dtype=np.int64)
    for _ in range(n_lots):
        members, starts = mechanism.sampling.draw(n, 1, np.random.default_rng(len(tables)))
        # Record 7 is the one that differs: put it into every lot.
        members[0] = 7 if 7 not in members else members[0]
        ours, theirs = (after(table, members, starts, silent) for table in tables)
        difference = [(a - b).ravel().astype(float) for a, b in zip(ours, theirs, strict=True)]
        yield float(np.linalg.norm(np.concatenate(difference))) / allowed
        draws = noise.gaussian(scale * (encoder.bound + math.sqrt(width)), n + width).reshape(1, -1)
        state = after(tables[0], members, starts, draws)


class _Scores(NoNoise):
    """Remembers the scores of choices too."""

    def top(self, scores, scale, k):
        self.scores = scores
        return super().top(scores, scale, k)


def choice_apart(mechanism, columns, neighbour):
    """How far scores move against each other between neighbours, over what makes the choices' bounded range."""
    asked = [_Scores(), _Scores()]
    for noise, data in zip(asked, (columns, neighbour), strict=True):
        with np.errstate(all="ignore"):
            mechanism.run(data, noise)
    ours, theirs = asked
    assert ours.scales == theirs.scales, "the scale of the noise depends on the data"
    moved = [int(a) - int(b) for a, b in zip(ours.scores, theirs.scores, strict=True)]
    return (max(moved) - min(moved)) / (mechanism.loss_range * ours.scales[0])


def minima_apart(mechanism, columns, neighbour):
    """How far gradients of the two objectives differ, and minima found for noise that leads to the same exact one."""
    with np.errstate(all="ignore"):
        for size in (0.0, 1.0, 100.0):
            exact = size * np.random.default_rng(6).normal(size=len(mechanism.active))
            tilts, points = [], []
            for data in (columns, neighbour):
                problem = perturbation._Minimization(mechanism, data, np.zeros(len(exact)))
                slopes, _ = problem._slopes(problem._rows @ exact)
                tilts.append(-problem._gradient(exact, slopes))
                tilted = perturbation._Minimization(mechanism, data, tilts[-1])
                points.append(tilted.certified(mechanism.tolerance(mechanism.largest_tilt)))
            yield float(np.linalg.norm(tilts[0] - tilts[1])) / (mechanism.tilt / mechanism.noise_multiplier)
            yield float(np.linalg.norm(points[0] - points[1])) / (2.0 * mechanism.distance)


def check_sensitivity(tape, columns, neighbour):
    """Each input moves by at most noise scale / noise multiplier between neighbours; returns how close it came."""
    closest = 0.0
    for mechanism, answer in tape:
        if isinstance(mechanism, DualSteps):
            for moved in dual_steps_apart(mechanism, columns, neighbour):
                assert moved <= 1.0, f"DualSteps moved by {moved:.3f} of its sensitivity"
                closest = max(closest, moved)
            continue
        if isinstance(mechanism, MinimumOfNoisyObjective):
            for moved in minima_apart(mechanism, columns, neighbour):
                assert moved <= 1.0, f"MinimumOfNoisyObjective moved by {moved:.3f} of its sensitivity"
                closest = max(closest, moved)
            continue
        if isinstance(mechanism, (SteepestVertex, TopCoordinates)):
            moved = choice_apart(mechanism, columns, neighbour)
            assert moved <= 1.0 + 1e-12, f"{type(mechanism).__name__} moved by {moved:.3f} of its sensitivity"
            closest = max(closest, moved)
            continue
        multipliers = mechanism.noise_multipliers
        for question in questions(mechanism, answer):
            (ours, scale), (theirs, same_scale) = noiseless(question, columns), noiseless(question, neighbour)
            assert scale == same_scale, "the scale of the noise depends on the data"
            allowed = scale / question.noise_multipliers[0]
            order = 1 if isinstance(question, LaplaceSecondMoments) else 2
            if order == 1:
                # p coordinates of sensitivity B each, at ε/p each.
                moved = np.max(np.abs(ours - theirs))
            else:
                moved = np.linalg.norm(ours - theirs)
            # Steps and minima are read back from weights, in floating point.
            slack = 1e-6 if isinstance(question, (GradientSteps, VarianceReducedSteps, NoisyMinimum)) else 1e-12
            assert moved <= allowed * (1 + slack), (
                f"{type(question).__name__} moved by {moved / allowed:.3f} of its sensitivity"
            )
            closest = max(closest, moved / allowed)
        assert multipliers[0] <= multipliers[1]
    return closest


def check_books(tape, curator, drawn):
    """The cost charged is that of the releases made, and no noise is drawn twice."""
    charged = sum((mechanism.cost for mechanism, _ in tape), PrivacyCost())
    assert curator.spent == charged
    assert [release.count for release in curator.releases] == [mechanism.count for mechanism, _ in tape]
    integers = np.concatenate([d.ravel() for d in drawn]) if drawn else np.zeros(0)
    assert len(np.unique(integers)) == len(integers), "a noise value came up twice"
