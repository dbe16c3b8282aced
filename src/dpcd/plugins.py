"""What losses and penalties from elsewhere may not do.

A loss sees raw data. What its derivative returns is clamped, so it may be as wrong as it likes. But an error would tell
that some record is there, whatever is printed is out, and behind the end of an array lie anybody's data. So the code of
a loss, and of the functions it calls, is looked through before it is compiled: it may calculate and compare, no more.

A penalty sees only what is released already. All it may not do is read beyond an array: its own methods are compiled
with checks of every index, and functions that they call must bring their own.
"""

from __future__ import annotations

import builtins
import dis
from collections.abc import Iterator
from functools import cache
from types import CodeType, FunctionType, ModuleType
from typing import Any, NamedTuple

import numpy as np

# Of these, numba compiles what it has itself, which raises nothing for numbers.
_TRUSTED = {"builtins", "cmath", "dpcd", "math", "numba", "numpy"}
_READS = {"BINARY_SUBSCR", "BINARY_SLICE", "STORE_SUBSCR", "STORE_SLICE", "DELETE_SUBSCR"}


@cache
def check_loss_code(loss: type[Any]) -> None:
    """Refuse a loss whose derivative could raise, print, or read what is neither an argument nor a number."""
    for used in _used(loss.derivative):
        where = f"{loss.__name__}.derivative" + ("" if used.value is loss.derivative else f" uses {used.name}, which")
        if used.function is None:
            raise ValueError(
                f"{where} is no number, no module and no function that is known to be harmless: a loss sees raw data, "
                f"and may calculate with its arguments and its fields only"
            )
        instructions = list(_instructions(used.function.__code__))
        if any(instruction.opname == "RAISE_VARARGS" for instruction in instructions):
            raise ValueError(
                f"{where} has a raise or an assert, and an error would tell that some record is there: return a number "
                f"whatever the arguments are"
            )
        if any(map(_reads_entry, instructions)):
            raise ValueError(
                f"{where} has an index, and one that is out of bounds would tell that some record is there: calculate "
                f"and compare instead"
            )
        if used.options.get("error_model", "numpy") != "numpy":
            raise ValueError(
                f"{where} raises where it divides by zero, and an error would tell that some record is there: decorate "
                f"it with numba.extending.register_jitable, or with numba.njit(error_model='numpy')"
            )


@cache
def check_penalty_code(penalty: type[Any]) -> None:
    """Refuse a penalty that looks entries of arrays up in functions whose indices nobody checks."""
    methods = [getattr(penalty, name) for name in ("prox", "value") if hasattr(penalty, name)]
    for used in (used for method in methods for used in _used(method)):
        if used.function is None or used.value in methods or used.options.get("boundscheck"):
            continue
        if any(map(_reads_entry, _instructions(used.function.__code__))):
            raise ValueError(
                f"{penalty.__name__} uses {used.name}, which has an index that nobody checks: move it into the method, "
                f"or decorate the function with numba.njit(boundscheck=True)"
            )


class _Used(NamedTuple):
    """Something from elsewhere that a method uses: its name, the function it is, if any, and how numba compiles it."""

    name: str
    value: Any
    function: FunctionType | None
    options: dict[str, Any]


def _used(method: Any) -> Iterator[_Used]:
    """A method and whatever it uses, directly or not, as far as it is from elsewhere and no number or module."""
    waiting, seen = [(getattr(method, "__name__", ""), method)], set()
    while waiting:
        name, value = waiting.pop()
        if id(value) in seen or _is_harmless(value):
            continue
        seen.add(id(value))
        # What numba has compiled by itself keeps its own rules for errors and indices.
        function = getattr(value, "py_func", value)
        function = function if isinstance(function, FunctionType) else None
        options = {} if function is value else {"error_model": "python"} | getattr(value, "targetoptions", {})
        yield _Used(name, value, function, options)
        if function is not None:
            waiting += _globals(function)


def _is_harmless(value: Any) -> bool:
    if isinstance(value, (int, float, complex, np.number, np.bool_, np.ufunc, ModuleType)):
        return True
    module = getattr(value, "__module__", None)
    trusted = isinstance(module, str) and module.partition(".")[0] in _TRUSTED
    return trusted and callable(value) and value is not builtins.print


def _globals(function: FunctionType) -> Iterator[tuple[str, Any]]:
    """Names and values that a function finds outside of itself, attributes of modules among them."""
    cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=False)
    enclosing = {name: cell.cell_contents for name, cell in cells}
    everywhere = vars(builtins) | function.__globals__
    found: Any = None
    for instruction in _instructions(function.__code__):
        # A name that is not there fails when it is compiled.
        if instruction.opname == "LOAD_GLOBAL":
            found = everywhere.get(instruction.argval)
        elif instruction.opname == "LOAD_DEREF":
            found = enclosing.get(instruction.argval)
        elif isinstance(found, ModuleType) and instruction.opname in ("LOAD_ATTR", "LOAD_METHOD"):
            found = getattr(found, instruction.argval, None)
        else:
            continue
        if found is not None:
            yield instruction.argval, found


def _instructions(code: CodeType) -> Iterator[dis.Instruction]:
    """Those of a function, and of functions inside it."""
    yield from dis.get_instructions(code)
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _instructions(constant)


def _reads_entry(instruction: dis.Instruction) -> bool:
    return instruction.opname in _READS or (instruction.opname == "BINARY_OP" and instruction.argrepr.startswith("["))
