"""Representations of a graph's values during a walk.

* an *array*: known now, so that nothing of it becomes part of the program;
* *sizes*: an array of objects, some of which are expressions of symbols: the result of `Shape`, and of arithmetic on it;
* a traced value of rlx;
* a list, for a sequence, a dictionary, for a map, and `None`, for an optional that is empty and an omitted operand;
* `Coded`, for element types without an rlx dtype.

Half of the nodes of an exported graph compute sizes. They are done here, with NumPy.
"""

from __future__ import annotations

import contextvars
import functools
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np
from attrs import evolve

import rlx_core as rlx
from rlx_core.ir.array import unwrapped
from rlx_core.ir.dims import Dim, Expr, holds
from rlx_core.system.records import frozen

T = TypeVar("T")


@frozen(eq=False)
class Coded:
    """Numbers of an element type without an rlx dtype, stored in a dtype that represents all of them.

    Attributes:
        value: f32 for floats of eight bits and fewer, i8 and u8 for integers.
        element: ONNX's element type.
    """

    value: Any
    element: int

    @property
    def shape(self) -> tuple[Dim, ...]:
        return tuple(self.value.shape)


def is_array(value: object) -> bool:
    """Return whether it is known now, as numbers."""
    return isinstance(value, np.ndarray | np.generic) and value.dtype != object


def is_sizes(value: object) -> bool:
    """Return whether it is sizes, some of them symbols."""
    return isinstance(value, np.ndarray) and value.dtype == object


def is_known(value: object) -> bool:
    """Return whether a value is independent of the program's inputs."""
    if isinstance(value, list):
        return all(map(is_known, value))
    if isinstance(value, dict):
        return all(map(is_known, value.values()))
    if isinstance(value, Coded):
        return is_array(value.value)
    return value is None or is_array(value)


def dims_array(dims: Sequence[Dim] | Dim) -> np.ndarray:
    """Sizes as an array: of i64 where all are numbers, of objects otherwise."""
    scalar = isinstance(dims, int | Expr | np.integer)
    listed: list[Any] = [dims] if scalar else list(dims)  # type: ignore[arg-type]
    if not any(isinstance(each, Expr) for each in listed):
        result = np.array(listed, np.int64)
    else:
        result = np.empty(len(listed), object)
        result[:] = listed
    return result.reshape(()) if scalar else result


def settled(sizes: np.ndarray) -> np.ndarray:
    """Sizes as numbers where all of them have become numbers."""
    if any(isinstance(each, Expr) for each in sizes.ravel()):
        return sizes
    return sizes.astype(np.int64)


class Undecided(Exception):
    """A relation between sizes that holds for some of them only."""


def decided(relation: str, a: Any, b: Any) -> bool:
    """Return whether a relation holds between sizes, which are never negative."""
    if not isinstance(a, Expr) and not isinstance(b, Expr):
        return bool({"==": a == b, ">": a > b, ">=": a >= b, "<": a < b, "<=": a <= b}[relation])
    if relation in ("<", "<="):
        return decided({"<": ">", "<=": ">="}[relation], b, a)
    if relation == ">":
        return decided(">=", a, b + 1)
    if relation == "==" and True in (holds(">=", a, b + 1), holds(">=", b, a + 1)):
        return False
    result = holds(relation, a, b)  # type: ignore[arg-type]
    if result is None:
        raise Undecided
    return result


def traced(value: Any) -> Any:
    """Return a value as an argument of rlx's functions: sizes become values of the program."""
    if not is_sizes(value):
        return value
    parts = [rlx.asarray(each, dtype=rlx.i64) for each in value.ravel()]
    return rlx.reshape(rlx.stack(parts), value.shape)


def at_once(function: Callable[..., Any], *args: Any) -> Any:
    """Return the result of a function of arrays now, even if the caller is being traced."""
    return _known(contextvars.Context().run(functools.partial(function, *args)))


def _known(result: Any) -> Any:
    """Return a result with NumPy arrays in place of rlx's: values known while a model is read are NumPy arrays."""
    if isinstance(result, list | tuple):
        return type(result)([_known(each) for each in result])
    if isinstance(result, dict):
        return {key: _known(each) for key, each in result.items()}
    return evolve(result, value=unwrapped(result.value)) if isinstance(result, Coded) else unwrapped(result)
