"""Transformations of Python functions: `grad(f)` is again a function, to be called inside a trace.

Each one traces `f` to a separate graph, applies the graph transformation of that name (`vjp.py`, `jvp.py`, `batch.py`) and
inlines the result, so transformations nest in any order and closures over traced values work.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any

from rlx_core.errors import AxisError, Fact, ShapeError
from rlx_core.functions.calls import Call, Function, as_arrays, differentiable_arguments, enter
from rlx_core.ir.dims import Dim
from rlx_core.ir.graph import Graph, Value
from rlx_core.ir.mesh import current_mesh, in_mesh
from rlx_core.ir.rewrite import inline
from rlx_core.ir.types import normalize_axis
from rlx_core.ops.host.effects import without_effects
from rlx_core.system.records import frozen
from rlx_core.transforms import higher, linearization
from rlx_core.transforms.batch import vmap_graph
from rlx_core.transforms.contributed import engine_for
from rlx_core.transforms.graphs import pruned
from rlx_core.transforms.jvp import jvp_graph
from rlx_core.transforms.lifting import as_value, current_builder, of_type
from rlx_core.transforms.trace import Trace, is_static_leaf, leaf_type
from rlx_core.transforms.vjp import grad_with_loss, vjp_graph
from rlx_core.trees.flatten import Tree, bind_arguments, flatten, same_structure, spread


def value_and_grad(
    function: Function, argnums: int | Sequence[int] = 0, *, has_aux: bool = False, allow_unreached: bool = True
) -> Function:
    """Return the function that returns `(value, gradients)`; see `rlx.value_and_grad`."""

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
    types = ", ".join(str(o.type) for o in outputs) or "nothing"
    several = is_loss and len(outputs) > 1
    raise ShapeError(
        f"grad: {graph.name} must return one real scalar, not {types}",
        *[Fact("returned", o.type, o.node.origin.source) for o in outputs[:1]],
        hint="return (loss, aux) and say has_aux=True" if several else "sum or average it, or use rlx.vjp",
    )


def grad(
    function: Function, argnums: int | Sequence[int] = 0, *, has_aux: bool = False, allow_unreached: bool = True
) -> Function:
    """Return the function that returns the gradients, and the auxiliary results after them; see `rlx.grad`."""
    both = value_and_grad(function, argnums, has_aux=has_aux, allow_unreached=allow_unreached)

    def transformed(*args: Any, **kwargs: Any) -> Any:
        value, gradients = both(*args, **kwargs)
        return (gradients, value[1]) if has_aux else gradients

    return transformed


def vjp(function: Function, *primals: Any, has_aux: bool = False) -> tuple[Any, ...]:
    """Return `(f(*primals), pullback)`; the pullback maps cotangents of the results to one cotangent per primal."""
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
    """Return `(f(*primals), its derivative along tangents)`; results without derivatives have the tangent `None`."""
    primals = [as_arrays(p) for p in primals]
    call = enter("jvp", function, primals, {})
    wrt = call.differentiable("jvp", tuple(call.subtrees))
    flat, tree = flatten(tuple(tangents), "tangents")
    same_structure("jvp", flatten(tuple(primals), "tangents")[1], tree)
    graph = jvp_graph(call.traced.graph, wrt, engine=engine_for(call.traced.graph))
    _results(call, "jvp", has_aux)
    results = call.inline(graph, flat)
    outputs = call.traced.graph.outputs
    value = call.returned(results[: len(outputs)])
    tangent = call.returned(_with_derivatives(outputs, results[len(outputs) :]))
    return (value[0], tangent[0], value[1]) if has_aux else (value, tangent)


def _with_derivatives(outputs: Sequence[Value], tangents: Sequence[Value]) -> list[Value | None]:
    return [t if o.dtype.is_differentiable else None for o, t in zip(outputs, tangents, strict=True)]


def _results(call: Call, what: str, has_aux: bool) -> Tree:
    """Return the structure of the results that are differentiated, which come first.

    Raises:
        ShapeError: `has_aux` is set, and the function does not return a pair.
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
    """Return `(f(*primals), its derivative there)`, which is a function of tangents."""
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
        graph: The linear map: from `residuals`, followed by the tangents.
        traced: The function.
        primals: The structure of its arguments.
        residuals: The values that were computed at the point.
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
        operands = {name: next(values[name.startswith("residual_")]) for name in types}
        outputs = inline(builder, self.graph, {n: of_type(builder, n, operands[n], t) for n, t in types.items()})
        return self.traced.results.unflatten(_with_derivatives(self.traced.graph.outputs, outputs))


def hvp(function: Function, primals: Sequence[Any], tangents: Sequence[Any]) -> Any:
    """Return the product of the Hessian of a scalar function of one argument with a vector, forward over reverse."""
    return jvp(grad(function), primals, tangents)[1]


def jacfwd(function: Function, argnums: int | Sequence[int] = 0, *, has_aux: bool = False) -> Function:
    """Return the function that returns the Jacobian, one tangent per column; see `rlx.jacfwd`."""
    return _jacobian("jacfwd", higher.jacfwd, function, argnums, has_aux)


def jacrev(function: Function, argnums: int | Sequence[int] = 0, *, has_aux: bool = False) -> Function:
    """Return the function that returns the Jacobian, one cotangent per row; see `rlx.jacrev`."""
    return _jacobian("jacrev", higher.jacrev, function, argnums, has_aux)


def _jacobian(
    what: str, of_graph: Callable[..., Graph], function: Function, argnums: int | Sequence[int], has_aux: bool
) -> Function:
    @wraps(function)  # its signature names the leaves in errors, also where a Jacobian is differentiated again
    def transformed(*args: Any, **kwargs: Any) -> Any:
        call = enter(what, function, differentiable_arguments(args, argnums), kwargs)
        chosen = call.select(what, argnums)
        wrt = call.differentiable(what, chosen)
        graph, results = call.traced.graph, _results(call, what, has_aux)
        differentiated = without_effects(pruned(graph, graph.outputs[: len(results.names)]))
        blocks = iter(call.inline(of_graph(differentiated, wrt, engine=engine_for(graph))))
        rows = []
        for _ in results.names:
            leaves = dict(zip(wrt, blocks, strict=False))
            trees = tuple(call.argument(name, leaves) for name in chosen)
            rows.append(trees[0] if isinstance(argnums, int) else trees)
        jacobian = results.unflatten(rows)
        returned = call.returned(call.inline(graph))  # side effects of the function happen here, once
        return (jacobian, returned[1]) if has_aux else jacobian

    return transformed


def hessian(function: Function, argnums: int | Sequence[int] = 0, *, has_aux: bool = False) -> Function:
    """Return the function that returns the second derivatives, forward over reverse; see `rlx.hessian`."""
    return jacfwd(jacrev(function, argnums, has_aux=has_aux), argnums, has_aux=has_aux)


def vmap(
    function: Function,
    in_axes: Any = 0,
    out_axes: Any = 0,
    axis_size: Dim | None = None,
    axis_name: str | None = None,
) -> Function:
    """Return the function mapped over an axis of its arguments; see `rlx.vmap`."""

    def transformed(*args: Any, **kwargs: Any) -> Any:
        per_argument = list(in_axes) if isinstance(in_axes, tuple | list) else [in_axes] * len(args)
        if len(per_argument) != len(args):
            raise AxisError(f"vmap: in_axes has {len(per_argument)} entries for {len(args)} arguments")
        axes = [_axes_of(axis, a) for axis, a in zip(per_argument, args, strict=True)]
        named_axes = {name: _axes_of(0, a) for name, a in kwargs.items()}
        size = _mapped_size([*args, *kwargs.values()], [*axes, *named_axes.values()], axis_size)
        one = [_drop_axes(a, m) for a, m in zip(args, axes, strict=True)]
        others = {name: _drop_axes(a, named_axes[name]) for name, a in kwargs.items()}
        outside = current_mesh()
        with in_mesh(outside if axis_name is None else outside.extended("vmap", axis_name, size)):
            call = enter("vmap", function, one, others)
        inputs = {leaf.name for leaf in call.traced.leaves if leaf.role != "static"}
        values, mapped = bind_arguments(function, args, kwargs), bind_arguments(function, axes, named_axes)
        dynamic = [
            (leaf, value, axis)
            for name, tree in call.subtrees.items()
            for leaf, value, axis in zip(tree.names, flatten(values[name])[0], mapped[name], strict=True)
            if leaf in inputs
        ]
        outs = _out_axes(out_axes, call.traced.results)
        over = {leaf: axis for leaf, _, axis in dynamic}
        engine = engine_for(call.traced.graph)
        graph = vmap_graph(call.traced.graph, over, outs, size, axis_name=axis_name, engine=engine)
        return call.returned(call.inline(graph, leaves={n: as_value(call.builder, v) for n, v, _ in dynamic}))

    return transformed


def _axes_of(axis: Any, argument: Any) -> list[int | None]:
    """Return the mapped axis of each leaf; Python scalars have none, regardless of `axis`."""
    axes = spread("vmap in_axes", axis, argument)
    return [None if is_static_leaf(leaf) else axis for leaf, axis in zip(flatten(argument)[0], axes, strict=True)]


def _mapped_size(args: Sequence[Any], axes: Sequence[Sequence[int | None]], axis_size: Dim | None) -> Dim:
    sizes: list[Dim] = [] if axis_size is None else [axis_size]
    for argument, argument_axes in zip(args, axes, strict=True):
        for leaf, axis in zip(flatten(argument)[0], argument_axes, strict=True):
            if axis is not None:
                type = leaf_type(leaf)
                sizes.append(type.shape[normalize_axis(axis, type.rank)])
    if not sizes:
        raise AxisError(
            "vmap: no argument is mapped; at least one of in_axes must not be None",
            hint="axis_size= says how many examples there are where no argument does",
        )
    if any(size != sizes[0] for size in sizes):
        suffix = "" if axis_size is None else ", the first of which is axis_size"
        raise ShapeError(f"vmap: mapped axes have different sizes ({', '.join(map(str, sizes))}{suffix})")
    return sizes[0]


def _drop_axes(argument: Any, axes: Sequence[int | None]) -> Any:
    leaves, tree = flatten(argument)
    return tree.unflatten([_drop_axis(leaf, axis) for leaf, axis in zip(leaves, axes, strict=True)])


def _drop_axis(leaf: Any, axis: int | None) -> Any:
    if is_static_leaf(leaf):
        return leaf
    type = leaf_type(leaf)
    if axis is None:
        return leaf
    position = normalize_axis(axis, type.rank)
    return type.with_shape(d for i, d in enumerate(type.shape) if i != position)


def _out_axes(out_axes: Any, results: Tree) -> list[int | None]:
    return spread("vmap out_axes", out_axes, results.unflatten(range(len(results.names))))
