"""The reference interpreter: a graph evaluated node by node with NumPy alone. It is the first oracle.

Two modes. `typed` computes each op in its declared dtype (f16 and bf16 are widened to f32 for the arithmetic and
rounded once). `wide` holds every float in f64 and every complex in c128 whatever was declared: the float64 oracle.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from typing import Any, Literal

import numpy as np

from rlx_core.errors import (
    Fact,
    LengthMismatchError,
    MissingInputError,
    RlxError,
    TraceError,
    UnknownNameError,
    nearest,
)
from rlx_core.errors.contained import contained
from rlx_core.hints.keywords import checked_call
from rlx_core.ir.bind import bind, infer_binding
from rlx_core.ir.dtypes import DType
from rlx_core.ir.element_functions import ElementFunctions, is_inexact
from rlx_core.ir.graph import Graph, GraphArgument, Node, Value, as_results
from rlx_core.ir.tape import tape_of_op, widened
from rlx_core.ir.types import TensorType
from rlx_core.system.context import assigned
from rlx_core.system.floating import in_standard_modes

__all__ = ["Mode", "evaluate_nested", "interpret", "stored", "widened"]

Mode = Literal["typed", "wide"]

Rounded = Callable[[Value, np.ndarray], np.ndarray]
"""Function that returns the replacement of a result."""

_mode: ContextVar[Mode] = ContextVar("mode", default="typed")
_rounded: ContextVar[Rounded | None] = ContextVar("rounded", default=None)
_functions: ContextVar[ElementFunctions | None] = ContextVar("functions", default=None)


def stored(dtype: DType, mode: Mode) -> DType:
    """Return the dtype in which the interpreter stores a value that is declared `dtype`."""
    return dtype.wide if mode == "wide" else dtype


@checked_call
@in_standard_modes
def interpret(
    graph: Graph,
    inputs: Mapping[str, np.ndarray],
    params: Mapping[str, np.ndarray] | None = None,
    *,
    mode: Mode = "typed",
    rounded: Rounded | None = None,
    functions: ElementFunctions | None = None,
) -> tuple[np.ndarray, ...]:
    """The outputs of `graph` on named arrays.

    Args:
        graph: The program.
        inputs, params: An array for each name.
        mode: The dtypes in which values are stored.
        rounded: Replaces every result, inside of loops and branches too, before it is used further: to study rounding errors.
        functions: The functions of a target for inexact element-wise ops; by default the NumPy references, as in mode `wide`.

    Raises:
        MissingInputError: An input or param has no array.
        UnknownNameError: An array has a name that the graph does not have.
        LengthMismatchError: An array has other dims than declared.
        BindingError, GuardError: Sizes of symbols, read off the arrays, disagree or violate a guard of the program.
        MissingRuleError: An op has neither a reference nor a decomposition.
    """
    arguments: tuple[Any, ...] = (graph, inputs, params)  # the input is untrusted
    if not all(map(isinstance, arguments, (Graph, Mapping, Mapping | None))):
        kinds = ", ".join(type(each).__name__ for each in arguments)
        raise TraceError(f"interpret: takes a graph and arrays by name, not {kinds}", hint="rlx.trace(f, *specs)")
    fed = {**(params or {}), **inputs}
    _check_names(graph, fed)
    if graph.symbols:
        types = {**graph.input_types, **graph.param_types}
        graph = bind(graph, infer_binding(types, {name: np.asarray(array) for name, array in fed.items()}))[0]
    with assigned(_mode, mode), assigned(_rounded, rounded), assigned(_functions, functions):
        return _run(graph, fed)


def evaluate_nested(graph: Graph, arrays: Sequence[np.ndarray]) -> tuple[np.ndarray, ...]:
    """The outputs of a nested graph, in the mode of the enclosing evaluation; for `reference` rules of ops with bodies."""
    return _run(graph, dict(zip(graph.input_types, arrays, strict=True)))


def _check_names(graph: Graph, fed: Mapping[str, np.ndarray]) -> None:
    known = {**graph.input_types, **graph.param_types}
    for name in fed:
        if name not in known:
            raise UnknownNameError(f"run: {graph.name} has no input {name!r}", hint=nearest(name, known))
    missing = [name for name in known if name not in fed]
    if missing:
        raise MissingInputError(f"run: {graph.name} lacks {', '.join(missing)}", Fact("inputs", dict(known)))


def _run(graph: Graph, fed: Mapping[str, np.ndarray]) -> tuple[np.ndarray, ...]:
    mode, rounded = _mode.get(), _rounded.get()
    values: dict[Value, np.ndarray] = {}
    last_use = _last_uses(graph)
    for node in graph.nodes:
        if isinstance(node.op, GraphArgument):
            results: tuple[np.ndarray, ...] = (_feed(node.op.label, node.op.type, fed[node.op.label], mode),)
        else:
            results = _evaluate(node, [None if v is None else values[v] for v in node.operands], mode)
        if rounded is not None:
            results = tuple(rounded(v, r) for v, r in zip(node.results, results, strict=True))
        values.update(zip(node.results, results, strict=True))
        for value in last_use.get(node.index, ()):
            del values[value]
    return tuple(values[v] for v in graph.outputs)


def _last_uses(graph: Graph) -> dict[int, list[Value]]:
    """Node index → values that nothing reads after it, so that an oracle run does not hold the whole program."""
    last = {v: (users[-1].index if users else v.node.index) for v, users in graph.uses.items()}
    by_index: dict[int, list[Value]] = {}
    for value, index in last.items():
        if value not in graph.output_set:
            by_index.setdefault(index, []).append(value)
    return by_index


def _feed(name: str, type: TensorType, array: np.ndarray, mode: Mode) -> np.ndarray:
    value = np.asarray(array)
    dims_fit = len(value.shape) == type.rank and all(
        not isinstance(d, int) or d == n for d, n in zip(type.shape, value.shape, strict=True)
    )
    if not dims_fit:
        raise LengthMismatchError(f"run: {name} must be {type}, not {list(value.shape)}")
    return value.astype(stored(type.dtype, mode).numpy, copy=False)


def _evaluate(node: Node, operands: Sequence[np.ndarray | None], mode: Mode) -> tuple[np.ndarray, ...]:
    op, functions = node.op, None if mode == "wide" else _functions.get()
    if functions is not None and is_inexact(op, [None if v is None else v.dtype for v in node.operands]):
        function = functions(op, tuple(v.dtype for v in node.present()))
        if function is not None:
            return (function(*operands),)
    if op.reference is None:
        tape = tape_of_op(op, node.operand_types)
        try:
            return tape.play([a for a in operands if a is not None], is_wide=mode == "wide", functions=functions)
        except RlxError as error:
            raise error.with_fact(Fact("node", node.label, node.origin.source)) from error.__cause__
    wide_enough = [None if a is None else widened(a) for a in operands]
    try:
        # The operands determine which results are NaN or infinite, and what rounds to one; NumPy's warnings would be noise.
        with np.errstate(all="ignore"):
            with contained("ops", op.name, "its reference"):
                results = as_results(op.reference(*wide_enough))
            return tuple(
                np.asarray(r).astype(stored(t.dtype, mode).numpy, copy=False)
                for r, t in zip(results, node.types, strict=True)
            )
    except RlxError as error:
        raise error.with_fact(Fact("node", node.label, node.origin.source)) from error.__cause__
