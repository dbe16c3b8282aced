"""How scalar Python methods become part of a compiled kernel.

A loss or a penalty is a NamedTuple with plain scalar methods. A kernel calls them through the functions below
(``derivative(loss, y, z)``, ``prox(penalty, v, step, j)``), which numba replaces by the very methods of the class it
is given, inlined and vectorised. With the JIT off the same functions are ordinary calls, so there is one definition
of every formula.

`compiled` turns a kernel into machine code. Numba keeps compiled code on disk but only watches the kernel's own file:
after an edit of a loss in another file it would silently run the old one. So the name under which a kernel is stored
carries a digest of the package's sources, and kernels that contain a class from elsewhere (a user's own loss) are
never stored; they cost about a second of compilation in each process.

Compiled code reads beyond the end of an array without a word, and what it finds there may be anybody's data. Methods of
classes from elsewhere are therefore compiled with checks of every index.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from functools import cache
from pathlib import Path
from types import FunctionType
from typing import Any

import numba
import numpy as np
from numba.extending import overload, register_jitable

# Adding 1.5·2⁵² to a double of magnitude below 2⁵¹ leaves its nearest integer in the low bits (ties to even).
# It is the one way to round and convert to int64 that the compiler turns into vector instructions.
ROUNDER = 6755399441055744.0
ROUNDER_BITS = np.float64(ROUNDER).view(np.int64)


def value(loss: Any, y: Any, z: Any) -> Any:
    """``loss.value(y, z)``."""
    return loss.value(y, z)


def derivative(loss: Any, y: Any, z: Any) -> Any:
    """``loss.derivative(y, z)``."""
    return loss.derivative(y, z)


def penalty_value(penalty: Any, w: Any, j: Any) -> Any:
    """``penalty.value(w, j)``."""
    return penalty.value(w, j)


def prox(penalty: Any, v: Any, step: Any, j: Any) -> Any:
    """``penalty.prox(v, step, j)``."""
    return penalty.prox(v, step, j)


def encode(lattice: Any, v: Any, scale: Any) -> Any:
    """``lattice.encode(v, scale)``."""
    return lattice.encode(v, scale)


def from_elsewhere(plugin: Any) -> bool:
    """Whether a class or a function is none of this package's."""
    return (plugin.__module__ or "").partition(".")[0] != __name__.partition(".")[0]


def _method(plugin: Any, name: str) -> Any:
    """A method of a class, with checks of every index if it is from elsewhere."""
    method = getattr(plugin.instance_class, name)
    if not from_elsewhere(method):
        return method
    # Numba compiles what a kernel calls without the kernel's own checks, so they must be asked for here.
    checked = numba.njit(boundscheck=True)(method)
    return lambda *arguments: checked(*arguments)


# `strict=False`: the method's first argument is called `self`, and a user may rename the others.
@overload(value, strict=False)
def _value(loss, y, z):
    return _method(loss, "value")


@overload(derivative, strict=False)
def _derivative(loss, y, z):
    return _method(loss, "derivative")


@overload(penalty_value, strict=False)
def _penalty_value(penalty, w, j):
    return _method(penalty, "value")


@overload(prox, strict=False)
def _prox(penalty, v, step, j):
    return _method(penalty, "prox")


@overload(encode, strict=False)
def _encode(lattice, v, scale):
    return lattice.instance_class.encode


@register_jitable
def exp(x):
    """e^x to 4·10⁻¹⁶ relative for |x| ≤ 708 (clamped beyond), without a branch, so that loops over it vectorise.

    A call to the C library's exponential inside a kernel keeps the whole loop scalar: four times slower.
    NaN gives some positive number; kernels clamp every record's contribution afterwards, so it can do no harm.
    """
    x = x if x > -708.0 else -708.0
    x = x if x < 708.0 else 708.0
    shifted = x * 1.4426950408889634 + ROUNDER
    k = shifted - ROUNDER
    # x = k·log 2 + r with |r| ≤ (log 2)/2; log 2 in two parts, the first of few enough bits that k times it is exact.
    r = (x - k * 0.69314718036912381649) - k * 1.90821492927058770002e-10
    p = 1.0 / 479001600.0
    p = p * r + 1.0 / 39916800.0
    p = p * r + 1.0 / 3628800.0
    p = p * r + 1.0 / 362880.0
    p = p * r + 1.0 / 40320.0
    p = p * r + 1.0 / 5040.0
    p = p * r + 1.0 / 720.0
    p = p * r + 1.0 / 120.0
    p = p * r + 1.0 / 24.0
    p = p * r + 1.0 / 6.0
    p = p * r + 0.5
    p = p * r + 1.0
    p = p * r + 1.0
    # 2^k by writing k + 1023 into the exponent bits; the shift drops what the rounder left above them.
    exponent = (np.float64(shifted).view(np.int64) + np.int64(1023)) << np.int64(52)
    return p * np.int64(exponent).view(np.float64)


@cache
def _source_digest() -> str:
    digest = hashlib.sha256()
    for path in sorted(Path(__file__).parent.rglob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


@cache
def compiled(kernel: Callable[..., Any], *plugins: Any, exact_sums: bool = False) -> Any:
    """Compile `kernel`, which calls methods of the classes `plugins`.

    Strict IEEE arithmetic except for fused multiply-adds (`contract`): NaN and infinities behave as written. Only where
    all sums are exact may they be added in another order (`reassoc`), which lets loops over them vectorise. The GIL is
    released while the kernel runs.
    """
    assert isinstance(kernel, FunctionType)
    elsewhere = [plugin for plugin in plugins if from_elsewhere(plugin)]
    source = FunctionType(kernel.__code__, kernel.__globals__, kernel.__name__, kernel.__defaults__)
    source.__module__ = kernel.__module__
    freedom = {"contract", "reassoc"} if exact_sums else {"contract"}
    # What the compiler may do is no part of the key under which numba stores code.
    source.__qualname__ = "_".join([kernel.__qualname__, *sorted(freedom), _source_digest()])
    jitted = numba.njit(cache=not elsewhere, nogil=True, fastmath=freedom, error_model="numpy")(source)
    return _guarded(jitted, elsewhere) if elsewhere else jitted


def _guarded(jitted: Callable[..., Any], plugins: list[Any]) -> Callable[..., Any]:
    """A kernel that says whose index is out of bounds."""
    names = " or ".join(plugin.__name__ for plugin in plugins)

    def kernel(*arguments: Any) -> Any:
        try:
            return jitted(*arguments)
        except IndexError:
            raise IndexError(
                f"{names} reads beyond the end of an array: every array must have an entry for each index that its "
                f"methods use"
            ) from None

    return kernel
