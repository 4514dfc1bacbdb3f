"""Transformations of Python functions: `grad(f)` is again a function, to be called inside a trace.

Each one traces `f` to a graph of its own, applies the graph transformation of that name (`vjp.py`, `jvp.py`, `batch.py`)
and inlines the result, so transformations nest in any order and closures over traced values just work.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from attrs import frozen

from rlx_core.errors import AxisError, DtypeError, Fact, ShapeError, TraceError
from rlx_core.ir.apply import as_array
from rlx_core.ir.dims import Dim
from rlx_core.ir.graph import Builder, Graph, Value, ambient_builder
from rlx_core.ir.rewrite import inline
from rlx_core.transforms.batch import vmap_graph
from rlx_core.transforms.jvp import jvp_graph
from rlx_core.transforms.trace import Trace, is_static_leaf, trace
from rlx_core.transforms.tree import Tree, bind_arguments, flatten, flatten_arguments, same_structure
from rlx_core.transforms.vjp import vjp_graph

__all__ = ["grad", "hessian", "hvp", "jacfwd", "jacrev", "jvp", "value_and_grad", "vjp", "vmap"]

Function = Callable[..., Any]


@frozen(eq=False)
class Call:
    """A function traced on the arguments of one call, and those arguments as values of the enclosing trace."""

    builder: Builder
    traced: Trace
    values: Mapping[str, Value]
    parameters: tuple[str, ...]

    def leaves_of(self, argnums: int | Sequence[int]) -> list[str]:
        """The names of the leaves of the arguments with these positions."""
        positions = [argnums] if isinstance(argnums, int) else list(argnums)
        for position in positions:
            if not -len(self.parameters) <= position < len(self.parameters):
                raise AxisError(f"grad: argument {position} of a call with {len(self.parameters)} arguments")
        wanted = {self.parameters[p] for p in positions}
        return [n for n in self.traced.arguments.names if n.split(".", 1)[0] in wanted]

    def inline(self, graph: Graph, **more: Value) -> tuple[Value, ...]:
        """The outputs of a transformed graph on this call's arguments."""
        return inline(self.builder, graph, {**self.values, **self.traced.captures, **more})

    def returned(self, outputs: Sequence[Value]) -> Any:
        """What the function returns, with these leaves."""
        return self.traced.results.unflatten(outputs)


def enter(what: str, function: Function, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Call:
    """Trace `function` on the arguments of a call inside a trace."""
    builder = ambient_builder()
    if builder is None:
        raise TraceError(f"{what}: there is no program being traced", hint=f"call rlx.{what}, which starts one")
    traced = trace(function, args, kwargs, capturing=True)
    named = bind_arguments(function, args, kwargs)
    flat, _ = flatten_arguments(named)
    values = {
        leaf.name: builder._own(value) if isinstance(value, Value) else builder.constant(as_array(value))
        for leaf, value in zip(traced.leaves, flat, strict=True)
        if leaf.role != "static"
    }
    return Call(builder, traced, values, tuple(named))


def _differentiable(what: str, call: Call, argnums: int | Sequence[int]) -> list[str]:
    names = call.leaves_of(argnums)
    for name in names:
        found = call.values[name].dtype if name in call.values else "a Python scalar"
        if name not in call.values or not call.values[name].dtype.is_differentiable:
            raise DtypeError(
                f"{what}: argument {name} is {found}, and only floating-point arrays have gradients",
                hint="differentiate with respect to other arguments (argnums=), or pass a floating-point array",
            )
    return names


def _subtree(
    call: Call, args: Sequence[Any], kwargs: Mapping[str, Any], position: int, leaves: dict[str, Value]
) -> Any:
    name = call.parameters[position]
    named = dict(zip(call.parameters, [*args, *kwargs.values()], strict=False))
    flat, tree = flatten(named[name], name)
    del flat
    return tree.unflatten([leaves[n] for n in tree.names])


def value_and_grad(
    function: Function,
    argnums: int | Sequence[int] = 0,
    *,
    has_aux: bool = False,
    allow_unreached: bool = True,
) -> Function:
    """The function that returns `(value, gradients)`; see `rlx.value_and_grad`."""

    def transformed(*args: Any, **kwargs: Any) -> Any:
        call = enter("value_and_grad", function, args, kwargs)
        wrt = _differentiable("grad", call, argnums)
        outputs = call.traced.graph.outputs
        loss = outputs[0] if outputs else None
        if loss is None or loss.shape != () or not loss.dtype.is_float or (len(outputs) > 1 and not has_aux):
            found = ", ".join(str(o.type) for o in outputs) or "nothing"
            raise ShapeError(
                f"grad: {call.traced.graph.name} must return one real scalar, not {found}",
                *([] if loss is None else [Fact("returned", loss.type, loss.node.origin.source)]),
                hint="return (loss, aux) with has_aux=True"
                if len(outputs) > 1
                else "sum or average it, or use rlx.vjp",
            )
        graph = vjp_graph(call.traced.graph, wrt, outputs=[0], allow_unreached=allow_unreached)
        one = call.builder.constant(np.ones((), loss.dtype.numpy))
        results = call.inline(graph, d_output=one)
        primal = call.returned(results[: len(outputs)])
        gradients = dict(zip(wrt, results[len(outputs) :], strict=True))
        positions = [argnums] if isinstance(argnums, int) else list(argnums)
        trees = tuple(_subtree(call, args, kwargs, p % len(call.parameters), gradients) for p in positions)
        return primal, trees[0] if isinstance(argnums, int) else trees

    return transformed


def grad(
    function: Function,
    argnums: int | Sequence[int] = 0,
    *,
    has_aux: bool = False,
    allow_unreached: bool = True,
) -> Function:
    """The function that returns the gradients (and the auxiliary results); see `rlx.grad`."""
    both = value_and_grad(function, argnums, has_aux=has_aux, allow_unreached=allow_unreached)

    def transformed(*args: Any, **kwargs: Any) -> Any:
        value, gradients = both(*args, **kwargs)
        return (gradients, value[1]) if has_aux else gradients

    return transformed


def vjp(function: Function, *primals: Any) -> tuple[Any, Function]:
    """`(f(*primals), pullback)`; the pullback maps cotangents of the results to one cotangent a primal."""
    call = enter("vjp", function, primals, {})
    wrt = _differentiable("vjp", call, range(len(primals)))
    outputs = call.inline(call.traced.graph)
    graph = vjp_graph(call.traced.graph, wrt, outputs=list(range(len(outputs))))

    def pullback(cotangents: Any) -> tuple[Any, ...]:
        flat, tree = flatten(cotangents, "result")
        same_structure("vjp", call.traced.results, tree)
        labels = ["d_output"] if len(outputs) == 1 else [f"d_output_{k}" for k in range(len(outputs))]
        given = {n: _as_value(call.builder, c) for n, c in zip(labels, flat, strict=True)}
        results = call.inline(graph, **given)
        leaves = dict(zip(wrt, results[len(outputs) :], strict=True))
        return tuple(_subtree(call, primals, {}, i, leaves) for i in range(len(primals)))

    return call.returned(outputs), pullback


def jvp(function: Function, primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[Any, Any]:
    """`(f(*primals), its directional derivative along tangents)`."""
    call = enter("jvp", function, primals, {})
    wrt = _differentiable("jvp", call, range(len(primals)))
    flat, tree = flatten(tuple(tangents), "tangents")
    _, wanted = flatten(tuple(primals), "tangents")
    same_structure("jvp", wanted, tree)
    graph = jvp_graph(call.traced.graph, wrt)
    given = {f"tangent_{n}": _as_value(call.builder, t) for n, t in zip(wrt, flat, strict=True)}
    results = call.inline(graph, **given)
    count = len(call.traced.graph.outputs)
    return call.returned(results[:count]), call.returned(results[count:])


def vmap(function: Function, in_axes: Any = 0, out_axes: Any = 0) -> Function:
    """The function mapped over an axis of its arguments; see `rlx.vmap`."""

    def transformed(*args: Any, **kwargs: Any) -> Any:
        per_argument = list(in_axes) if isinstance(in_axes, tuple | list) else [in_axes] * len(args)
        if len(per_argument) != len(args):
            raise AxisError(f"vmap: in_axes has {len(per_argument)} entries for {len(args)} arguments")
        flat_axes = [_axes_of(axis, a) for axis, a in zip(per_argument, args, strict=True)]
        leaves = [flatten(a)[0] for a in args]
        size = _mapped_size(flat_axes, leaves)
        examples = [_drop_axes(a, axes) for a, axes in zip(args, flat_axes, strict=True)]
        call = enter("vmap", function, examples, kwargs)
        builder = call.builder
        values: dict[str, Value] = {}
        axes: dict[str, int | None] = {}
        names = iter(call.traced.leaves)
        for arg, arg_axes in zip(leaves, flat_axes, strict=True):
            for leaf, axis in zip(arg, arg_axes, strict=True):
                place = next(names)
                if place.role != "static":
                    values[place.name], axes[place.name] = _as_value(builder, leaf), axis
        outs = _out_axes(out_axes, call.traced.results)
        graph = vmap_graph(call.traced.graph, axes, outs, size)
        return call.returned(inline(builder, graph, {**call.values, **values, **call.traced.captures}))

    return transformed


def _as_value(builder: Builder, data: Any) -> Value:
    return builder._own(data) if isinstance(data, Value) else builder.constant(as_array(data))


def _axes_of(axis: Any, argument: Any) -> list[int | None]:
    leaves, tree = flatten(argument)
    if axis is None or isinstance(axis, int):
        return [None if is_static_leaf(leaf) else axis for leaf in leaves]
    flat, given = flatten(axis)
    same_structure("vmap in_axes", tree, given)
    return list(flat)


def _mapped_size(axes: Sequence[Sequence[int | None]], leaves: Sequence[Sequence[Any]]) -> Dim:
    found: list[Dim] = []
    for arg, arg_axes in zip(leaves, axes, strict=True):
        for leaf, axis in zip(arg, arg_axes, strict=True):
            if axis is not None:
                shape = leaf.shape if isinstance(leaf, Value) else as_array(leaf).shape
                if not -len(shape) <= axis < len(shape):
                    raise AxisError(f"vmap: axis {axis} is outside an argument with {len(shape)} axes")
                found.append(shape[axis])
    if not found:
        raise AxisError("vmap: no argument is mapped; at least one of in_axes must not be None")
    if any(size != found[0] for size in found):
        raise ShapeError(f"vmap: mapped axes have different sizes ({', '.join(map(str, found))})")
    return found[0]


def _drop_axes(argument: Any, axes: Sequence[int | None]) -> Any:
    leaves, tree = flatten(argument)
    return tree.unflatten([_drop_axis(leaf, axis) for leaf, axis in zip(leaves, axes, strict=True)])


def _drop_axis(leaf: Any, axis: int | None) -> Any:
    from rlx_core.transforms.trace import leaf_type

    if is_static_leaf(leaf):
        return leaf
    type = leaf_type(leaf)
    if axis is None:
        return leaf
    at = axis % type.rank
    return type.with_shape(d for i, d in enumerate(type.shape) if i != at)


def _out_axes(out_axes: Any, results: Tree) -> list[int | None]:
    if out_axes is None or isinstance(out_axes, int):
        return [out_axes] * len(results.names)
    flat, tree = flatten(out_axes, "result")
    same_structure("vmap out_axes", results, tree)
    return list(flat)
