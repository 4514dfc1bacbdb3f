"""Tracing: run a Python function once on values without elements, and return the recorded graph.

Every array leaf of the arguments becomes an input (or a parameter), every Python scalar a constant of the program. Calls of
`rlx.nn` are recorded as HIR blocks, everything else as ops, so traced and built models take the same path.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from typing import Any, Literal

from rlx_core.errors import Fact, TraceError
from rlx_core.ir.apply import array_value, as_array
from rlx_core.ir.dims import Expr
from rlx_core.ir.dtypes import dtype, weak_dtype
from rlx_core.ir.graph import Builder, Graph, LiftedArrays, Value, building, lifting, operator, refused_ufunc
from rlx_core.ir.mesh import NO_AXES, current_mesh, expect_named_axes, in_mesh
from rlx_core.ir.placed import placed_type
from rlx_core.ir.provenance import locating
from rlx_core.ir.types import TensorType
from rlx_core.system.records import frozen
from rlx_core.trees.flatten import Tree, bind_arguments, flatten, flatten_arguments, function_name

Role = Literal["input", "param", "static"]


@frozen
class Leaf:
    """One leaf of the arguments: its name, its role in the program, and its type or static value."""

    name: str
    role: Role
    type: TensorType | None = None
    static: Any = None


@frozen(eq=False)
class Trace:
    """A traced function.

    Attributes:
        graph: HIR; inputs and params are named by their position in the arguments.
        leaves: Every leaf of the arguments, in order.
        arguments: Their structure: one tree over the dictionary of arguments.
        results: The structure of the function's result.
        captures: Values of enclosing traces that the function uses, by the input that receives them.
        lifted: Arrays that the function uses in addition to its arguments, in the order of their inputs, which follow the
            others.
    """

    graph: Graph
    leaves: tuple[Leaf, ...]
    arguments: Tree
    results: Tree
    captures: Mapping[str, Value]
    lifted: tuple[Any, ...] = ()


def is_static_leaf(leaf: Any) -> bool:
    """Return whether a leaf is a Python scalar or string, a constant of the program; a NumPy scalar is a value that varies."""
    return type(leaf) in (bool, int, float, complex, str)


def leaf_type(leaf: Any) -> TensorType:
    """Return the type of an array-like leaf: of a value, of a spec, or an array's dtype and dims.

    Raises:
        TraceError, DtypeError: It is not an array.
    """
    if isinstance(leaf, TensorType):
        return leaf
    if isinstance(leaf, Value):
        return leaf.type
    placed = placed_type(leaf)
    if placed is not None:
        return placed
    array = as_array(leaf)
    return TensorType(dtype(array.dtype), array.shape)


def trace(
    function: Callable[..., Any],
    args: Sequence[Any],
    kwargs: Mapping[str, Any] | None = None,
    *,
    params: Callable[[str, Any], bool] = lambda name, leaf: False,
    capturing: bool = False,
    lifted: Mapping[str, Any] | None = None,
) -> Trace:
    """Return the graph of `function` on these arguments.

    Args:
        function: Any Python function of pytrees of arrays.
        args, kwargs: Arrays, values of an enclosing trace, or types (`rlx.spec`) in place of arrays.
        params: Returns whether the leaf of that name becomes a parameter (bound once) instead of an input.
        capturing: Whether values of enclosing traces may be used by the function's body.
        lifted: Arrays by name that become inputs, instead of constants, if the function uses them.

    Raises:
        TraceError: A leaf is not an array, or the function needs the elements of a value.
    """
    named = bind_arguments(function, args, kwargs or {})
    flat, tree = flatten_arguments(named)
    leaves = [_leaf(name, value, params) for name, value in zip(tree.names, flat, strict=True)]

    def call(stand_ins: list[Any]) -> Any:
        values = dict(zip(named, tree.unflatten(stand_ins), strict=True))
        by_name = {k: values.pop(k) for k in named if k in (kwargs or {})}
        return function(*values.values(), **by_name)

    used: list[Any] = []
    traced = trace_flat(function_name(function), leaves, call, capturing=capturing, lifted=lifted, used=used)
    graph, results, captures = traced
    return Trace(graph, tuple(leaves), tree, results, captures, tuple(used))


def trace_flat(
    name: str,
    leaves: Sequence[Leaf],
    call: Callable[[list[Any]], Any],
    *,
    capturing: bool,
    lifted: Mapping[str, Any] | None = None,
    used: list[Any] | None = None,
) -> tuple[Graph, Tree, dict[str, Value]]:
    """Return the graph of `call` on placeholders for `leaves`, the structure of its results, and its captures.

    Arrays of `lifted` that `call` uses become inputs after the leaves, and are appended to `used` in the same order.

    Raises:
        AxisNameError: An op is over a named axis that no enclosing mapping adds.
    """
    builder = Builder(name, capturing=capturing)
    # A separate program does not run for the members of an enclosing mapping.
    mesh = current_mesh() if capturing else NO_AXES
    arrays = None if lifted is None else LiftedArrays(builder, lifted, leaf_type)
    try:
        # A nested trace without captures cannot use the inputs of the enclosing trace either.
        with building(builder), in_mesh(mesh), locating(), nullcontext() if capturing else lifting(arrays):
            stand_ins = [_stand_in(builder, leaf) for leaf in leaves]
            returned, results = flatten(_called(call, stand_ins), "result")
            outputs = [_output(builder, n, v) for n, v in zip(results.names, returned, strict=True)]
        graph = builder.finish(outputs)
        expect_named_axes(graph, mesh)
        if arrays is not None and used is not None:
            used += [arrays.arrays[each] for each in arrays.inputs]
    finally:
        builder.is_finished = builder.trace_has_ended = True  # after an error too: values that it kept have leaked
    captures = {inner.node.op.label: outer for outer, inner in builder.captures.items()}  # type: ignore[attr-defined]
    return graph, results, captures


def _called(call: Callable[[list[Any]], Any], stand_ins: list[Any]) -> Any:
    try:
        return call(stand_ins)
    except TypeError as error:
        refused = refused_ufunc(error)
        if refused is None:
            raise
        raise refused.with_traceback(error.__traceback__) from None


def _leaf(name: str, value: Any, params: Callable[[str, Any], bool]) -> Leaf:
    if is_static_leaf(value):
        return Leaf(name, "static", static=value)
    try:
        value_type = leaf_type(value)
    except TraceError as error:
        raise not_an_array(name, value, error) from None
    return Leaf(name, "param" if params(name, value) else "input", value_type)


def not_an_array(name: str, value: Any, error: TraceError) -> TraceError:
    """Return the error for a leaf of the arguments that is not an array; a traced value keeps its own error."""
    if isinstance(value, Value):
        return error
    hint = (
        f"{error.hint}; what a function is written with otherwise is bound beforehand (functools.partial, a closure), or is "
        f"static: rlx.jit(..., static_argnames={name.partition('.')[0]!r}); a class that holds arrays becomes a container of "
        "them by rlx.register_dataclass"
    )
    return TraceError(f"trace: argument {name} is {type(value).__name__}, not an array", hint=hint)


def _stand_in(builder: Builder, leaf: Leaf) -> Any:
    if leaf.role == "static":
        return leaf.static
    assert leaf.type is not None, "inputs and params have types"
    make = builder.param if leaf.role == "param" else builder.input
    return make(leaf.name, leaf.type)


def _output(builder: Builder, name: str, value: Any) -> Value:
    if isinstance(value, Value):
        return builder._own(value)
    if isinstance(value, Expr):
        return builder._own(operator("dim_value")(size=value))
    if isinstance(value, str):
        raise TraceError(f"trace: the function returns {name} = {value!r}, which is not an array")
    if is_static_leaf(value):
        return builder.constant(value, weak_dtype(value))  # the same conversion as `asarray`
    try:
        return array_value(builder, value)
    except TraceError:
        kind = type(value).__name__
        raise TraceError(f"trace: the function returns {name} of type {kind}", Fact(name, kind)) from None
