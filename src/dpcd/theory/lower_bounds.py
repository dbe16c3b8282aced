"""Theorem 3: what no private algorithm can beat, and the problems of its proof."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from dpcd.penalties import L2
from dpcd.privacy.accounting import check_delta, check_epsilon
from dpcd.theory.constants import Floats, positive, vector, whole

# A private algorithm misses more than 1/75 of the marginals by more than 1/3, with probability 1/3 (Bun, Ullman &
# Vadhan 2014). Stretching [0, 1] to [−L_j, L_j] and adding two rows of ones to each row turns 1/3 into 2L_j/9.
_MISSED = 75
_MISS = 2.0 / 9.0
_PROBABILITY = 1.0 / 3.0


def subset_ratio(lipschitz: ArrayLike) -> float:
    """Theorem 3's condition as a number: the least share of ‖L‖₂² that ⌈p/75⌉ of the L_j² can have.

    The condition, Σ_{j∈J} L_j² = Ω(‖L‖₂²) for every J that large, says that this stays away from 0; the lower bounds
    are proportional to it. It is about 1/75 where all L_j are equal, and never below (L_min/L_max)²/75.

    Notes
    -----
    The appendix once states the condition without the square, which no change of units would survive.
    """
    squares = np.sort(vector("lipschitz", lipschitz) ** 2)
    return float(squares[: -(-squares.size // _MISSED)].sum() / squares.sum())


def hard_records(n_features: int, n_records: int, epsilon: float, fingerprinting: float = 1.0) -> int:
    """How many of n records carry information that an ε-private algorithm must miss: 3 min(⌊n/3⌋, ⌊c√p/ε⌋).

    Parameters
    ----------
    n_features, n_records, epsilon
        p, n and ε.
    fingerprinting
        c in n* = c√p/ε, the number of records up to which private marginals are impossible. The result that the paper
        cites says n* = Ω(√p/ε), without a number (and Tardos' codes lose a logarithm): 1 is an order of magnitude.
    """
    check_epsilon(epsilon)
    star = positive("fingerprinting", fingerprinting) * math.sqrt(whole("n_features", n_features)) / epsilon
    return 3 * min(whole("n_records", n_records) // 3, math.floor(star))


def _hard_share(lipschitz: Floats, n_records: int, epsilon: float, delta: float, fingerprinting: float) -> float:
    check_delta(delta)
    if delta >= 1.0 / n_records:
        raise ValueError(
            f"delta = {delta!r} is not below 1/n = {1.0 / n_records:g}: the theorem assumes δ = o(1/n), as a δ of 1/n "
            f"lets an algorithm publish a random record"
        )
    return hard_records(lipschitz.size, n_records, epsilon, fingerprinting) / n_records


def convex_lower_bound(
    lipschitz: ArrayLike,
    radius: float,
    n_records: int,
    epsilon: float,
    delta: float,
    fingerprinting: float = 1.0,
) -> float:
    """Theorem 3, convex case: no (ε, δ)-private algorithm has smaller E F(w) − F(w*) on all the data sets of its proof.

    The bound is (2/243) · `subset_ratio` · (m/n) · ‖L‖₂ · β with m = `hard_records` and β ≥ ‖w*‖₂, of the order of
    √p ‖L‖₂ ‖w*‖₂/(nε).

    Parameters
    ----------
    lipschitz
        L_j.
    radius
        β, which bounds ‖w*‖₂ in `convex_instance`.
    n_records, epsilon, delta
        The budget; δ must be below 1/n.
    fingerprinting
        See `hard_records`. Everything else in the bound is explicit; this constant makes it an order of magnitude.

    Notes
    -----
    For each algorithm there is a data set: on a given one a given algorithm may do better. The marginals' error is
    2L_j/9 on the coordinates missed: the proof drops the accuracy α = 1/3 and has 2L_j/3. The probability ⅓ is
    included. The regularizer of the proof contains ‖Σd_i‖, which is private data, and lacks a ½; with the public
    m‖L‖₂ in its place the reduction goes through. The claim that the condition can be had for a factor L_min/L_max
    would need an upper bound on ‖Σd_i‖ that the proof lacks; what follows is its square, through `subset_ratio`.
    """
    L = vector("lipschitz", lipschitz)
    share = _hard_share(L, whole("n_records", n_records), epsilon, delta, fingerprinting)
    # excess = (n β / 2 m ‖L‖₂) · ‖error of the marginals‖², and that error is _MISS · share · (Σ_J L_j²)^½.
    constant = _PROBABILITY * _MISS**2 / 2.0
    return constant * subset_ratio(L) * share * float(np.linalg.norm(L)) * positive("radius", radius)


def strongly_convex_lower_bound(
    lipschitz: ArrayLike,
    strong_convexity: float,
    n_records: int,
    epsilon: float,
    delta: float,
    fingerprinting: float = 1.0,
) -> float:
    """Theorem 3, strongly convex case: `subset_ratio` · (m/n)² · ‖L‖₂² / (486 μ_I), of the order of p‖L‖₂²/(μ_I n²ε²).

    Parameters
    ----------
    lipschitz
        L_j.
    strong_convexity
        μ_I, with respect to ‖·‖₂.
    n_records, epsilon, delta, fingerprinting
        As for `convex_lower_bound`.

    Notes
    -----
    As for `convex_lower_bound`. The theorem has data in Π{±L_j}, its proof in Π{±L_j/(2μ_I)}, which is what makes the
    loss L-component-Lipschitz on its box; the constant here is the proof's.
    """
    L = vector("lipschitz", lipschitz)
    share = _hard_share(L, whole("n_records", n_records), epsilon, delta, fingerprinting)
    # excess = (μ/2) ‖error of the marginals‖², for marginals that are 2μ times smaller.
    constant = _PROBABILITY * _MISS**2 / 8.0
    squared = float(np.sum(L**2))
    return constant * subset_ratio(L) * share**2 * squared / positive("strong_convexity", strong_convexity)


class Linear(NamedTuple):
    """−z, the loss −⟨w, d⟩ of a record x = d.

    Parameters
    ----------
    curvature
        Any positive number bounds the second derivative, 0; it sets the steps of solvers that ask.
    """

    curvature: float = 1.0

    @property
    def lipschitz(self):
        """1."""
        return 1.0

    def value(self, y, z):
        """−z."""
        return -z

    def derivative(self, y, z):
        """−1."""
        return -1.0


class BoxedL2(NamedTuple):
    """½ alpha · w² for |w_j| ≤ bounds[j], infinite elsewhere."""

    alpha: float
    bounds: np.ndarray

    def value(self, w, j):
        """½ alpha · w² inside, infinite outside."""
        return 0.5 * self.alpha * w * w if abs(w) <= self.bounds[j] else math.inf

    def prox(self, v, step, j):
        """Shrinkage, then projection."""
        return min(max(v / (1.0 + step * self.alpha), -self.bounds[j]), self.bounds[j])


@dataclass(frozen=True, eq=False)
class LowerBoundInstance:
    """A problem from the proof of Theorem 3, in the library's own terms: mean loss of x·w plus penalty.

    Attributes
    ----------
    features, target
        The records; the loss ignores the target, which is 0.
    loss, penalty
        `Linear`, and a quadratic that may end at a box.
    lipschitz
        Component-Lipschitz constants of the loss: |∂_j ℓ| is equal to them for every record.
    smoothness
        M_j. The loss is linear, so that any M_j > 0 is valid; the penalty's curvature costs Theorem 2's bound a factor
        of 2 at most.
    weights, objective
        w* and the minimum, in closed form.
    constant
        What the paper's F adds to the objective.
    """

    features: Floats
    target: Floats
    loss: Linear
    penalty: L2 | BoxedL2
    lipschitz: Floats
    smoothness: Floats
    weights: Floats
    objective: float
    constant: float = 0.0

    @property
    def strong_convexity(self) -> float:
        """μ_M of the objective with respect to ‖·‖_M: the penalty's curvature, M_j, is the only one."""
        return 1.0

    def excess(self, weights: ArrayLike) -> float:
        """F(w) − F(w*) = ½ alpha ‖w − w*‖₂², infinite outside the box."""
        w = np.asarray(weights, dtype=np.float64)
        if isinstance(self.penalty, BoxedL2) and np.any(np.abs(w) > self.penalty.bounds):
            return math.inf
        return 0.5 * self.penalty.alpha * float(np.sum((w - self.weights) ** 2))


def fingerprinting_bits(n_records: int, n_features: int, random_state: Any = None) -> Floats:
    """A draw of the codes behind Theorem 3: rows of bits whose column means give their owners away.

    One column in five is from a Tardos code (biases from the arcsine law, cut off at 1/(300 n)); of the others half
    are all 0 and half all 1, so that which is which cannot be told, in random order.
    """
    n, p = whole("n_records", n_records), whole("n_features", n_features)
    generator = np.random.default_rng(random_state)
    coded = -(-p // 5)
    cutoff = math.asin(math.sqrt(1.0 / (300.0 * n)))
    biases = np.sin(generator.uniform(cutoff, math.pi / 2.0 - cutoff, coded)) ** 2
    bits = np.empty((n, p))
    bits[:, :coded] = generator.uniform(size=(n, coded)) < biases
    bits[:, coded:] = np.arange(p - coded) % 2
    return bits[:, generator.permutation(p)]


def augmented(bits: ArrayLike, lipschitz: ArrayLike) -> Floats:
    """Add two rows of ones for each row of bits, then map {0, 1} to {−L_j, L_j} (χ_L in the paper).

    A column's sum is then between a third and all of what it can be, so none vanishes. Means q of bits become
    (2q + 1) L_j / 3.

    Notes
    -----
    Hence q = 3 q'/(2L_j) − ½; the proof subtracts L_j/3 in the place of ½.
    """
    bits = np.asarray(bits, dtype=np.float64)
    rows = np.concatenate([bits, np.ones((2 * len(bits), bits.shape[1]))])
    return (2.0 * rows - 1.0) * vector("lipschitz", lipschitz, bits.shape[1])


def _hard_data(
    lipschitz: Floats, n_records: int, epsilon: float, fingerprinting: float, random_state: Any
) -> tuple[Floats, int]:
    """N records of ±L_j, m of them hard, the rest in pairs that cancel (an odd one is −L)."""
    hard = hard_records(lipschitz.size, n_records, epsilon, fingerprinting)
    if hard == 0:
        raise ValueError(
            f"nothing must be missed with n = {n_records}, p = {lipschitz.size}, epsilon = {epsilon:g}: give n ≥ 3 and "
            f"epsilon ≤ fingerprinting·√p"
        )
    data = np.empty((n_records, lipschitz.size))
    data[:hard] = augmented(fingerprinting_bits(hard // 3, lipschitz.size, random_state), lipschitz)
    data[hard::2] = -lipschitz
    data[hard + 1 :: 2] = lipschitz
    return data, hard


def convex_instance(
    lipschitz: ArrayLike,
    radius: float,
    n_records: int,
    epsilon: float,
    random_state: Any = None,
    fingerprinting: float = 1.0,
) -> LowerBoundInstance:
    """The convex problem of Theorem 3: F(w) = −⟨w, mean d⟩ + ½ (m‖L‖₂/(βn)) ‖w‖₂², with ‖w*‖₂ ≤ β.

    Parameters
    ----------
    lipschitz, radius, n_records, epsilon, fingerprinting
        As for `convex_lower_bound`.
    random_state
        Seed or generator for the bits.

    Notes
    -----
    The regularizer is public, see `convex_lower_bound`. It makes the problem strongly convex; the theorem's "convex"
    means that its constant is chosen as small as n, p and ε allow.
    """
    L = vector("lipschitz", lipschitz)
    data, hard = _hard_data(L, whole("n_records", n_records), epsilon, fingerprinting, random_state)
    alpha = hard * float(np.linalg.norm(L)) / (positive("radius", radius) * n_records)
    mean = data.mean(axis=0)
    return LowerBoundInstance(
        features=data,
        target=np.zeros(n_records),
        loss=Linear(),
        penalty=L2(alpha),
        lipschitz=L,
        smoothness=np.full(L.size, alpha),
        weights=mean / alpha,
        objective=-float(mean @ mean) / (2.0 * alpha),
    )


def strongly_convex_instance(
    lipschitz: ArrayLike,
    strong_convexity: float,
    n_records: int,
    epsilon: float,
    random_state: Any = None,
    fingerprinting: float = 1.0,
) -> LowerBoundInstance:
    """The strongly convex problem of Theorem 3: F(w) = (μ/2) mean ‖w − d‖₂² for |w_j| ≤ L_j/(2μ), with w* = mean d.

    Parameters
    ----------
    lipschitz, strong_convexity, n_records, epsilon, fingerprinting
        As for `strongly_convex_lower_bound`.
    random_state
        Seed or generator for the bits.

    Notes
    -----
    ‖w − d‖² is not a function of one inner product, so the square is expanded: records are x = μd, the loss −⟨w, x⟩,
    (μ/2)‖w‖² goes to the penalty and (μ/2)‖d‖² = ‖L‖₂²/(8μ) is a constant. The objective and the sensitivities, L_j,
    are the paper's; this loss is L/2-component-Lipschitz, where the paper's split of the same F has L.
    """
    L, mu = vector("lipschitz", lipschitz), positive("strong_convexity", strong_convexity)
    data, _ = _hard_data(L, whole("n_records", n_records), epsilon, fingerprinting, random_state)
    optimum = data.mean(axis=0) / (2.0 * mu)
    return LowerBoundInstance(
        features=data / 2.0,
        target=np.zeros(n_records),
        loss=Linear(),
        penalty=BoxedL2(mu, L / (2.0 * mu)),
        lipschitz=L / 2.0,
        smoothness=np.full(L.size, mu),
        weights=optimum,
        objective=-0.5 * mu * float(optimum @ optimum),
        constant=float(np.sum(L**2)) / (8.0 * mu),
    )
