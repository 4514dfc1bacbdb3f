"""Transformations of Python functions: `grad(f)` is again a function, to be called inside a trace.

Each one traces `f` to a graph of its own, applies the graph transformation of that name (`vjp.py`, `jvp.py`, `batch.py`)
and inlines the result, so transformations nest in any order and closures over traced values just work.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from attrs import evolve, frozen

from rlx_core.errors import AxisError, DtypeError, Fact, ShapeError
from rlx_core.ir.dims import Dim
from rlx_core.ir.dtypes import weak_dtype
from rlx_core.ir.graph import Builder, Graph, Value, ambient_builder
from rlx_core.ir.rewrite import inline
from rlx_core.ir.types import TensorType, normalize_axis
from rlx_core.transforms import linearization
from rlx_core.transforms.batch import vmap_graph
from rlx_core.transforms.contributed import engine_for
from rlx_core.transforms.forward import prepared
from rlx_core.transforms.jvp import jvp_graph
from rlx_core.transforms.lifting import as_value, current_builder, of_type
from rlx_core.transforms.trace import Trace, is_static_leaf, leaf_type, trace
from rlx_core.transforms.vjp import grad_with_loss, vjp_graph
from rlx_core.trees.flatten import Tree, bind_arguments, flatten, flatten_arguments, same_structure, single, spread

__all__ = ["grad", "hessian", "hvp", "jacfwd", "jacrev", "jvp", "linearize", "value_and_grad", "vjp", "vmap"]

Function = Callable[..., Any]
Results = tuple[Value, ...]


@frozen(eq=False)
class Call:
    """A function traced on the arguments of one call, and those arguments as values of the enclosing trace."""

    builder: Builder
    traced: Trace
    values: Mapping[str, Value]
    subtrees: Mapping[str, Tree]

    def select(self, what: str, argnums: int | Sequence[int]) -> tuple[str, ...]:
        """The names of the arguments at these positions.

        Raises:
            AxisError: There are fewer arguments, or something else than a position was given.
        """
        names = list(self.subtrees)
        positions = [argnums] if isinstance(argnums, int) else argnums
        for position in positions:
            if not isinstance(position, int) or not -len(names) <= position < len(names):
                raise AxisError(
                    f"{what}: argument {position!r} of a call with {len(names)} arguments",
                    Fact("arguments", ", ".join(f"{i} {name}" for i, name in enumerate(names))),
                )
        return tuple(names[p] for p in positions)

    def differentiable(self, what: str, arguments: Sequence[str]) -> list[str]:
        """The names of all leaves of these arguments.

        Raises:
            DtypeError: A leaf is an integer, a bool or a Python scalar.
        """
        leaves = [n for a in arguments for n in self.subtrees[a].names]
        statics = {leaf.name: type(leaf.static).__name__ for leaf in self.traced.leaves if leaf.role == "static"}
        for name in leaves:
            found = self.values[name].dtype if name in self.values else f"the Python {statics[name]}"
            if name not in self.values or not self.values[name].dtype.is_differentiable:
                raise DtypeError(
                    f"{what}: argument {name} is {found}, and only floating-point arrays have derivatives",
                    hint="name the arguments to differentiate with argnums=, or pass floating-point arrays",
                )
        return leaves

    def inline(self, graph: Graph, added: Sequence[Any] = (), leaves: Mapping[str, Value] | None = None) -> Results:
        """The outputs of a transformed graph on this call's arguments; `added` feeds the inputs it has besides, in order.

        They go to the innermost trace, which need not be the one of the call: a pullback may be mapped.

        Raises:
            ShapeError, DtypeError: A tangent or cotangent is not of its primal's type.
        """
        builder = ambient_builder() or self.builder
        own = self.traced.graph.input_types
        extra = {name: type for name, type in graph.input_types.items() if name not in own}
        bindings = {**self.values, **(leaves or {}), **self.traced.captures}
        bindings |= {n: of_type(builder, n, a, t) for (n, t), a in zip(extra.items(), added, strict=True)}
        return inline(builder, graph, bindings)

    def prepared(self) -> Call:
        """The call with its function prepared for reverse differentiation."""
        return evolve(self, traced=evolve(self.traced, graph=prepared(self.traced.graph)))

    def held(self) -> Call:
        """The call with values of its own: what the caller assigns to, later, is not what the function was called with."""

        def own(values: Mapping[str, Value]) -> dict[str, Value]:
            return {name: Value(v.node, v.index) for name, v in values.items()}

        return evolve(self, values=own(self.values), traced=evolve(self.traced, captures=own(self.traced.captures)))

    def returned(self, outputs: Sequence[Any]) -> Any:
        """What the function returns, with these leaves."""
        return self.traced.results.unflatten(outputs)

    def argument(self, name: str, leaves: Mapping[str, Any]) -> Any:
        """One argument's pytree with other leaves."""
        tree = self.subtrees[name]
        return tree.unflatten([leaves[n] for n in tree.names])


def as_arrays(argument: Any) -> Any:
    """An argument with its Python floats as arrays of the default dtype, so that it can be differentiated by them."""
    leaves, tree = flatten(argument)
    if not any(type(leaf) is float for leaf in leaves):
        return argument
    return tree.unflatten(
        [np.asarray(leaf, weak_dtype(leaf).numpy) if type(leaf) is float else leaf for leaf in leaves]
    )


def differentiable_arguments(args: Sequence[Any], argnums: int | Sequence[int]) -> list[Any]:
    """Positional arguments, those to differentiate by as arrays. What is no position is refused later, with its name."""
    positions = [argnums] if isinstance(argnums, int) else list(argnums)
    chosen = {p % len(args) for p in positions if isinstance(p, int) and args}
    return [as_arrays(a) if i in chosen else a for i, a in enumerate(args)]


def enter(what: str, function: Function, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Call:
    """Trace `function` on the arguments of a call inside a trace; a `TensorType` stands for an argument to come."""
    builder = current_builder(what)
    traced = trace(function, args, kwargs, capturing=True)
    named = bind_arguments(function, args, kwargs)
    flat, _ = flatten_arguments(named)
    values = {
        leaf.name: as_value(builder, value)
        for leaf, value in zip(traced.leaves, flat, strict=True)
        if leaf.role != "static" and not isinstance(value, TensorType)
    }
    subtrees = {name: flatten_arguments({name: value}) for name, value in named.items()}
    return Call(builder, traced, values, {n: Tree(single(t), t.names) for n, (_, t) in subtrees.items()})


def value_and_grad(
    function: Function, argnums: int | Sequence[int] = 0, *, has_aux: bool = False, allow_unreached: bool = True
) -> Function:
    """The function that returns `(value, gradients)`; see `rlx.value_and_grad`."""

    def transformed(*args: Any, **kwargs: Any) -> Any:
        call = enter("value_and_grad", function, differentiable_arguments(args, argnums), kwargs).prepared()
        chosen = call.select("grad", argnums)
        wrt = call.differentiable("grad", chosen)
        graph = call.traced.graph
        _expect_scalar_loss(graph, has_aux)
        aux = len(graph.outputs) - 1
        both = grad_with_loss(
            graph, wrt, aux=aux, seed="one", allow_unreached=allow_unreached, engine=engine_for(graph)
        )
        results = call.inline(both)
        gradients = dict(zip(wrt, results[len(graph.outputs) :], strict=True))
        trees = tuple(call.argument(name, gradients) for name in chosen)
        return call.returned(results[: len(graph.outputs)]), trees[0] if isinstance(argnums, int) else trees

    return transformed


def _expect_scalar_loss(graph: Graph, has_aux: bool) -> None:
    outputs = graph.outputs
    is_loss = bool(outputs) and outputs[0].shape == () and outputs[0].dtype.is_float
    if is_loss and (has_aux or len(outputs) == 1):
        return
    found = ", ".join(str(o.type) for o in outputs) or "nothing"
    several = is_loss and len(outputs) > 1
    raise ShapeError(
        f"grad: {graph.name} must return one real scalar, not {found}",
        *[Fact("returned", o.type, o.node.origin.source) for o in outputs[:1]],
        hint="return (loss, aux) and say has_aux=True" if several else "sum or average it, or use rlx.vjp",
    )


def grad(
    function: Function, argnums: int | Sequence[int] = 0, *, has_aux: bool = False, allow_unreached: bool = True
) -> Function:
    """The function that returns the gradients, and the auxiliary results after them; see `rlx.grad`."""
    both = value_and_grad(function, argnums, has_aux=has_aux, allow_unreached=allow_unreached)

    def transformed(*args: Any, **kwargs: Any) -> Any:
        value, gradients = both(*args, **kwargs)
        return (gradients, value[1]) if has_aux else gradients

    return transformed


def vjp(function: Function, *primals: Any, has_aux: bool = False) -> tuple[Any, ...]:
    """`(f(*primals), pullback)`; the pullback maps cotangents of the results to one cotangent a primal."""
    call = enter("vjp", function, [as_arrays(p) for p in primals], {}).prepared().held()
    arguments = tuple(call.subtrees)
    wrt = call.differentiable("vjp", arguments)
    outputs = call.traced.graph.outputs
    results = _results(call, "vjp", has_aux)
    graph = vjp_graph(call.traced.graph, wrt, outputs=range(len(results.names)), engine=engine_for(call.traced.graph))

    def pullback(cotangents: Any) -> tuple[Any, ...]:
        flat, tree = flatten(cotangents, "result")
        same_structure("vjp", results, tree)
        taken = [c for c, o in zip(flat, outputs, strict=False) if o.dtype.is_differentiable]
        leaves = dict(zip(wrt, call.inline(graph, taken)[len(outputs) :], strict=True))
        return tuple(call.argument(name, leaves) for name in arguments)

    returned = call.returned(call.inline(call.traced.graph))
    return (returned[0], pullback, returned[1]) if has_aux else (returned, pullback)


def jvp(
    function: Function, primals: Sequence[Any], tangents: Sequence[Any], *, has_aux: bool = False
) -> tuple[Any, ...]:
    """`(f(*primals), its derivative along tangents)`; results without derivatives have the tangent `None`."""
    call, wrt, flat = _directed("jvp", function, primals, tangents)
    graph = jvp_graph(call.traced.graph, wrt, engine=engine_for(call.traced.graph))
    _results(call, "jvp", has_aux)
    results = call.inline(graph, flat)
    outputs = call.traced.graph.outputs
    value = call.returned(results[: len(outputs)])
    tangent = call.returned(_with_derivatives(outputs, results[len(outputs) :]))
    return (value[0], tangent[0], value[1]) if has_aux else (value, tangent)


def _directed(
    what: str, function: Function, primals: Sequence[Any], tangents: Sequence[Any]
) -> tuple[Call, list[str], list[Any]]:
    """A call, the leaves that it is differentiated by, and a tangent for each of them."""
    primals = [as_arrays(p) for p in primals]
    call = enter(what, function, primals, {})
    wrt = call.differentiable(what, tuple(call.subtrees))
    flat, tree = flatten(tuple(tangents), "tangents")
    same_structure(what, flatten(tuple(primals), "tangents")[1], tree)
    return call, wrt, flat


def _with_derivatives(outputs: Sequence[Value], tangents: Sequence[Value]) -> list[Value | None]:
    return [t if o.dtype.is_differentiable else None for o, t in zip(outputs, tangents, strict=True)]


def _results(call: Call, what: str, has_aux: bool) -> Tree:
    """The structure of the results that are differentiated, which come first.

    Raises:
        ShapeError: There is to be an auxiliary result, and the function returns no pair.
    """
    if not has_aux:
        return call.traced.results
    returned = call.returned(range(len(call.traced.graph.outputs)))
    if not isinstance(returned, tuple | list) or len(returned) != 2:
        raise ShapeError(
            f"{what}: {call.traced.graph.name} must return (result, aux), because has_aux=True says so",
            Fact("returned", call.traced.results.structure),
        )
    return flatten(returned[0], "result")[1]


def linearize(function: Function, *primals: Any) -> tuple[Any, Any]:
    """`(f(*primals), its derivative there)`, which is a function of tangents."""
    primals = tuple(as_arrays(p) for p in primals)
    call = enter("linearize", function, primals, {})
    wrt = call.differentiable("linearize", tuple(call.subtrees))
    parts = linearization.linearize(call.traced.graph, wrt, engine=engine_for(call.traced.graph))
    count = len(call.traced.graph.outputs)
    results = call.inline(parts.primal)
    linear = Linear(parts.linear, call.traced, flatten(primals, "tangents")[1], results[count:])
    return call.returned(results[:count]), linear


@frozen(eq=False)
class Linear:
    """The derivative of a function at a point: maps a tangent for each primal to the tangents of the results.

    Attributes:
        graph: What it computes: from `residuals`, and then the tangents.
        traced: The function.
        primals: The structure of its arguments.
        residuals: What was computed at the point.
    """

    graph: Graph
    traced: Trace
    primals: Tree
    residuals: tuple[Any, ...]

    def __call__(self, *tangents: Any) -> Any:
        builder = current_builder("linearize")
        flat, tree = flatten(tangents, "tangents")
        same_structure("linearize", self.primals, tree)
        values = {True: iter(self.residuals), False: iter(flat)}
        types = self.graph.input_types
        given = {name: next(values[name.startswith("residual_")]) for name in types}
        found = inline(builder, self.graph, {n: of_type(builder, n, given[n], t) for n, t in types.items()})
        return self.traced.results.unflatten(_with_derivatives(self.traced.graph.outputs, found))


def hvp(function: Function, primals: Sequence[Any], tangents: Sequence[Any]) -> Any:
    """The product of the Hessian of a scalar function of one argument with a vector, forward over reverse."""
    return jvp(grad(function), primals, tangents)[1]


def jacfwd(function: Function) -> Function:
    """The Jacobian of a function of one array, one tangent a column: dims [result.., x..]."""

    def transformed(*x: Any) -> Any:
        leaf = _single_array("jacfwd", x)
        basis = _basis(leaf)
        columns = vmap(lambda t: jvp(function, (leaf,), (t,))[1])(basis)
        return _each(columns, lambda c: _with_axes_last(c, leaf.shape))

    return transformed


def jacrev(function: Function) -> Function:
    """The Jacobian of a function of one array, one cotangent a row: dims [result.., x..]."""

    def transformed(*x: Any) -> Any:
        leaf = _single_array("jacrev", x)
        result, pullback = vjp(function, leaf)
        y = _single_array("jacrev (result)", result)
        rows = vmap(lambda g: pullback(g)[0])(_basis(y))
        return rows.reshape((*y.shape, *leaf.shape))

    return transformed


def hessian(function: Function) -> Function:
    """The Hessian of a scalar function of one array, forward over reverse: dims [x.., x..]."""
    return jacfwd(grad(function))


def _single_array(what: str, x: Any) -> Value:
    builder = current_builder(what)
    leaves, _ = flatten(x)
    if len(leaves) != 1:
        raise ShapeError(f"{what}: takes one array, not a pytree of {len(leaves)}", hint="use vjp or jvp and vmap")
    return as_value(builder, leaves[0])


def _basis(x: Value) -> np.ndarray:
    size = x.size.__index__()
    return np.eye(size, dtype=x.dtype.numpy).reshape(size, *x.type.static_shape)


def _each(tree: Any, function: Callable[[Value], Any]) -> Any:
    leaves, structure = flatten(tree)
    return structure.unflatten([function(leaf) for leaf in leaves])


def _with_axes_last(columns: Value, shape: Sequence[Dim]) -> Any:
    last = columns.transpose((*range(1, columns.ndim), 0))
    return last.reshape((*columns.shape[1:], *shape))


def vmap(function: Function, in_axes: Any = 0, out_axes: Any = 0, axis_size: Dim | None = None) -> Function:
    """The function mapped over an axis of its arguments; see `rlx.vmap`."""

    def transformed(*args: Any) -> Any:
        per_argument = list(in_axes) if isinstance(in_axes, tuple | list) else [in_axes] * len(args)
        if len(per_argument) != len(args):
            raise AxisError(f"vmap: in_axes has {len(per_argument)} entries for {len(args)} arguments")
        mapped = [_axes_of(axis, a) for axis, a in zip(per_argument, args, strict=True)]
        size = _mapped_size(args, mapped, axis_size)
        call = enter("vmap", function, [_drop_axes(a, m) for a, m in zip(args, mapped, strict=True)], {})
        places = zip(
            call.traced.leaves, [x for a in args for x in flatten(a)[0]], [m for ms in mapped for m in ms], strict=True
        )
        dynamic = [(leaf.name, value, axis) for leaf, value, axis in places if leaf.role != "static"]
        axes = {name: axis for name, _, axis in dynamic}
        outs = _out_axes(out_axes, call.traced.results)
        graph = vmap_graph(call.traced.graph, axes, outs, size=size, engine=engine_for(call.traced.graph))
        return call.returned(call.inline(graph, leaves={n: as_value(call.builder, v) for n, v, _ in dynamic}))

    return transformed


def _axes_of(axis: Any, argument: Any) -> list[int | None]:
    """The mapped axis of each leaf; Python scalars have none, whatever `axis` says."""
    axes = spread("vmap in_axes", axis, argument)
    return [None if is_static_leaf(leaf) else at for leaf, at in zip(flatten(argument)[0], axes, strict=True)]


def _mapped_size(args: Sequence[Any], axes: Sequence[Sequence[int | None]], given: Dim | None) -> Dim:
    found: list[Dim] = [] if given is None else [given]
    for argument, argument_axes in zip(args, axes, strict=True):
        for leaf, axis in zip(flatten(argument)[0], argument_axes, strict=True):
            if axis is not None:
                type = leaf_type(leaf)
                found.append(type.shape[normalize_axis(axis, type.rank)])
    if not found:
        raise AxisError(
            "vmap: no argument is mapped; at least one of in_axes must not be None",
            hint="axis_size= says how many examples there are where no argument does",
        )
    if any(size != found[0] for size in found):
        said = "" if given is None else ", the first of which is axis_size"
        raise ShapeError(f"vmap: mapped axes have different sizes ({', '.join(map(str, found))}{said})")
    return found[0]


def _drop_axes(argument: Any, axes: Sequence[int | None]) -> Any:
    leaves, tree = flatten(argument)
    return tree.unflatten([_drop_axis(leaf, axis) for leaf, axis in zip(leaves, axes, strict=True)])


def _drop_axis(leaf: Any, axis: int | None) -> Any:
    if is_static_leaf(leaf):
        return leaf
    type = leaf_type(leaf)
    if axis is None:
        return leaf
    at = normalize_axis(axis, type.rank)
    return type.with_shape(d for i, d in enumerate(type.shape) if i != at)


def _out_axes(out_axes: Any, results: Tree) -> list[int | None]:
    return spread("vmap out_axes", out_axes, results.unflatten(range(len(results.names))))
