"""Where integer noise comes from.

`SecureNoise` draws from OpenDP's exact samplers for the discrete Gaussian and the discrete Laplace law and for the
exponential mechanism: arbitrary precision, cryptographic randomness, no floating point. `SeededNoise` is a
reproducible stand-in for experiments and tests; whoever knows the seed can subtract it, so a fit made with it is not
private and its statement says so.
"""

from __future__ import annotations

import math
import secrets
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

Integers = NDArray[np.int64]


class NoiseSource(Protocol):
    """Independent integer noise, and what to call it in a privacy statement."""

    @property
    def description(self) -> str:
        """Name in the privacy statement."""

    @property
    def private(self) -> bool:
        """Whether nobody can reproduce the noise."""

    def gaussian(self, scale: float, size: int) -> Integers:
        """`size` independent draws of the discrete Gaussian of parameter `scale` (zeros if it is 0)."""

    def laplace(self, scale: float, size: int) -> Integers:
        """`size` independent draws of the discrete Laplace law of parameter `scale` (zeros if it is 0)."""

    def top(self, scores: NDArray[Any], scale: float, k: int) -> Integers:
        """Indices of the k largest scores, in order, after Gumbel noise of parameter `scale` on each (none if it is 0).

        That is the exponential mechanism k times: it picks j with probability ∝ e^{score_j/scale} among those left.
        """

    def generator(self) -> np.random.Generator:
        """A generator for secret choices, such as which records are in a batch."""


def _checked(scale: float, size: int) -> bool:
    """Whether there is noise to draw; refuses scales that are not numbers."""
    if not (scale >= 0.0 and math.isfinite(scale)):
        raise ValueError(f"the scale of noise must be finite and not negative, got {scale}")
    return scale > 0.0 and size > 0


def _checked_top(scores: NDArray[Any], scale: float, k: int) -> Integers | None:
    """The k largest scores where there is no noise to draw, the first of equal ones first; None where there is."""
    if not 1 <= k <= len(scores):
        raise ValueError(f"cannot choose {k} of {len(scores)}")
    return None if _checked(scale, k) else np.argsort(-scores, kind="stable")[:k]


class SecureNoise:
    """OpenDP's discrete samplers."""

    description = "OpenDP discrete Gaussian"
    private = True

    def gaussian(self, scale: float, size: int) -> Integers:
        """Discrete Gaussian integers."""
        return self._draw("make_gaussian", "l2_distance", scale, size)

    def laplace(self, scale: float, size: int) -> Integers:
        """Discrete Laplace integers."""
        return self._draw("make_laplace", "l1_distance", scale, size)

    def top(self, scores: NDArray[Any], scale: float, k: int) -> Integers:
        """The exponential mechanism by exact rejection sampling. How long it takes depends on the scores."""
        exact = _checked_top(scores, scale, k)
        if exact is not None:
            return exact
        from opendp import domains, measurements, measures, metrics, mod

        mod.enable_features("contrib")
        space = domains.vector_domain(domains.atom_domain(T="i64")), metrics.linf_distance(T="i64")
        # This measure stands for the exponential mechanism; with the other one OpenDP would permute and flip.
        measure = measures.zero_concentrated_divergence()
        mechanism: Any = measurements.make_noisy_top_k(*space, measure, k=k, scale=scale)
        return np.asarray(mechanism(scores.tolist()), dtype=np.int64)

    def generator(self) -> np.random.Generator:
        """Seeded anew with 256 bits from the operating system, for one use: batches, or one candidate's settings."""
        return np.random.Generator(np.random.PCG64DXSM(secrets.randbits(256)))

    @staticmethod
    def _draw(constructor: str, metric: str, scale: float, size: int) -> Integers:
        if not _checked(scale, size):
            return np.zeros(size, dtype=np.int64)
        # Only those who draw from OpenDP load it, and not its prelude, which takes ten times as long.
        from opendp import domains, measurements, metrics, mod

        mod.enable_features("contrib")
        space = domains.vector_domain(domains.atom_domain(T="i64")), getattr(metrics, metric)(T="i64")
        mechanism: Any = getattr(measurements, constructor)(*space, scale=scale)
        # The mechanism adds its noise to what it is given: give it zeros, in bulk (ten times cheaper than one by one).
        return np.asarray(mechanism([0] * size), dtype=np.int64)


class SeededNoise:
    """Rounded draws from a NumPy generator: reproducible, and therefore not private."""

    description = "seeded: not private"
    private = False

    def __init__(self, generator: np.random.Generator) -> None:
        self._generator = generator

    def gaussian(self, scale: float, size: int) -> Integers:
        """Rounded Gaussian integers."""
        if not _checked(scale, size):
            return np.zeros(size, dtype=np.int64)
        return np.rint(self._generator.normal(0.0, scale, size)).astype(np.int64)

    def laplace(self, scale: float, size: int) -> Integers:
        """Rounded Laplace integers."""
        if not _checked(scale, size):
            return np.zeros(size, dtype=np.int64)
        return np.rint(self._generator.laplace(0.0, scale, size)).astype(np.int64)

    def top(self, scores: NDArray[Any], scale: float, k: int) -> Integers:
        """The largest after Gumbel noise in floating point."""
        exact = _checked_top(scores, scale, k)
        if exact is not None:
            return exact
        return np.argsort(-(scores / scale + self._generator.gumbel(size=len(scores))), kind="stable")[:k]

    def generator(self) -> np.random.Generator:
        """The next of the generator's own children."""
        return self._generator.spawn(1)[0]


def randomness(random_state: Any) -> tuple[NoiseSource, np.random.Generator]:
    """Noise for releases, and a generator for public choices such as the order of coordinates.

    `None` gives secure noise; a seed (an int, a NumPy generator or a RandomState) gives reproducible noise from a
    stream of its own.
    """
    if random_state is None:
        return SecureNoise(), np.random.default_rng()
    if isinstance(random_state, np.random.Generator):
        entropy = random_state.integers(2**32, size=4).tolist()
    elif isinstance(random_state, np.random.RandomState):
        entropy = random_state.randint(2**31 - 1, size=4).tolist()
    else:
        try:
            entropy = [int(np.random.SeedSequence(random_state).entropy)]  # type: ignore[arg-type]
        except (TypeError, ValueError):
            raise ValueError(
                f"random_state must be None (private noise), an int, a numpy Generator or a RandomState (reproducible, "
                f"not private), got {random_state!r}"
            ) from None
    for_noise, for_choices = np.random.SeedSequence(entropy).spawn(2)
    return SeededNoise(np.random.default_rng(for_noise)), np.random.default_rng(for_choices)
