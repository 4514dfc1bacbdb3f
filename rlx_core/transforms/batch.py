"""Batching: turn a program for one example into a program for many, along a new axis of any operand.

Internally, a batched value has the new axis first and an unbatched value does not have it; nodes that no batched value reaches
are copied unchanged. Only inputs and outputs therefore deal with the axes that the user chose. If the new axis has a name, ops
over that name are replaced by ops over the axis itself, also on unbatched values: a sum of equal values is a multiple.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from attrs import evolve

from rlx_core.errors import AxisError, Fact, ShapeError, UnknownNameError, WrongInputCountError, nearest
from rlx_core.ir.dims import Dim
from rlx_core.ir.graph import Builder, Graph, GraphArgument, Input, Node, Value, as_results, building
from rlx_core.ir.mesh import NO_AXES, Mesh, OverNamedAxes, named_axes
from rlx_core.ir.module import expect_graph
from rlx_core.ir.op import Op
from rlx_core.ir.rewrite import copy_node
from rlx_core.ir.rules import Replicated
from rlx_core.ir.types import TensorType, normalize_axis
from rlx_core.ops.structural import expand, transpose
from rlx_core.transforms.engine import STANDARD, SWEEPS, Engine, missing_rule, rule_for
from rlx_core.transforms.graphs import padded

Axis = int | None


def vmap_graph(
    graph: Graph,
    in_axes: int | Sequence[Axis] | Mapping[str, Axis],
    out_axes: Axis | Sequence[Axis],
    size: Dim,
    *,
    axis_name: str | None = None,
    engine: Engine = STANDARD,
) -> Graph:
    """Return the program over `size` examples at once; its result is the stack of the results of each.

    Args:
        graph: The program for one example.
        in_axes: The position of the new axis: one for all inputs, one per input in order, or by name. `None` and names
            that a mapping leaves out are shared by all examples. Params are mapped only by name. May be negative.
        out_axes: The same for outputs. `None` requires that the output is the same for all examples; with an axis, an output
            that is the same is repeated.
        size: The number of examples.
        axis_name: The name of the new axis, for ops over it.
        engine: The source of rules.

    Raises:
        AxisNameError: A collective over the axis is in code that only some of the examples may reach.
        AxisError: An axis is outside the rank of the value with the new axis.
        UnknownNameError: `in_axes` names a value that is neither an input nor a param.
        WrongInputCountError: A list of axes has another length than the inputs or outputs.
        ShapeError: An output with `None` for its axis differs between examples.
        MissingRuleError: An op on the path has no batching rule and none can be derived.
    """
    return vmap_with_values(graph, in_axes, out_axes, size, axis_name=axis_name, engine=engine)[0]


def vmap_with_values(
    graph: Graph,
    in_axes: int | Sequence[Axis] | Mapping[str, Axis],
    out_axes: Axis | Sequence[Axis],
    size: Dim,
    *,
    axis_name: str | None = None,
    engine: Engine = STANDARD,
) -> tuple[Graph, dict[Value, Value]]:
    """Return the result of `vmap_graph` and the map from values of `graph` to their copies (batched ones with the axis first)."""
    expect_graph("vmap", graph)
    mesh = NO_AXES if axis_name is None else NO_AXES.extended("vmap", axis_name, size)
    if engine.mesh != mesh:
        engine = evolve(engine, mesh=mesh)
    axes = _axes_of_inputs(graph, in_axes)
    output_axes = _axes_of_outputs(graph, out_axes)
    builder = Builder(f"{graph.name}_vmap")
    bindings: dict[str, Value] = {}
    for leaf in (*graph.inputs, *graph.params):
        op = leaf.node.op
        assert isinstance(op, GraphArgument)
        if axes.get(op.label) is not None:
            bindings[op.label] = _batched_leaf(builder, leaf, axes[op.label], size)
        else:
            (bindings[op.label],) = copy_node(builder, leaf.node, ())
    is_batched = {name: axes.get(name) is not None for name in bindings}
    values, batched = batch_into(builder, graph, bindings, is_batched, size, engine=engine)
    outputs = [
        _placed(builder, values[v], values[v] in batched, axis, size, f"output {i}")
        for i, (v, axis) in enumerate(zip(graph.outputs, output_axes, strict=True))
    ]
    return builder.finish(outputs), values


def _axes_of_inputs(graph: Graph, in_axes: int | Sequence[Axis] | Mapping[str, Axis]) -> dict[str, Axis]:
    names = list(graph.input_types)
    if isinstance(in_axes, int):
        return dict.fromkeys(names, in_axes)
    if isinstance(in_axes, Mapping):
        known = [*names, *graph.param_types]
        for name in in_axes:
            if name not in known:
                raise UnknownNameError(f"vmap: {graph.name} has no input or param {name!r}", hint=nearest(name, known))
        return dict(in_axes)
    if len(in_axes) != len(names):
        raise WrongInputCountError(
            f"vmap: in_axes has {len(in_axes)} entries, {graph.name} has {len(names)} inputs",
            Fact("inputs", ", ".join(names)),
        )
    return dict(zip(names, in_axes, strict=True))


def _axes_of_outputs(graph: Graph, out_axes: Axis | Sequence[Axis]) -> list[Axis]:
    if out_axes is None or isinstance(out_axes, int):
        return [out_axes] * len(graph.outputs)
    if len(out_axes) != len(graph.outputs):
        raise WrongInputCountError(
            f"vmap: out_axes has {len(out_axes)} entries, {graph.name} has {len(graph.outputs)} outputs"
        )
    return list(out_axes)


def _normalized(axis: int, rank: int, what: str) -> int:
    try:
        return normalize_axis(axis, rank)
    except AxisError as error:
        raise AxisError(f"vmap: {what}: {error.message}") from None


def _batched_leaf(builder: Builder, leaf: Value, axis: Axis, size: Dim) -> Value:
    op = leaf.node.op
    assert isinstance(op, GraphArgument)
    assert axis is not None
    place = _normalized(axis, leaf.ndim + 1, op.label)
    type = leaf.type.with_shape((*leaf.shape[:place], size, *leaf.shape[place:]))
    make = builder.input if isinstance(op, Input) else builder.param
    fed = make(op.label, type, origin=leaf.node.origin)
    with building(builder):
        return fed if place == 0 else transpose(fed, (place, *(i for i in range(type.rank) if i != place)))


def _placed(builder: Builder, value: Value, is_batched: bool, axis: Axis, size: Dim, what: str) -> Value:
    if axis is None:
        if is_batched:
            raise ShapeError(
                f"vmap: {what} differs between examples, so its axis cannot be None",
                Fact(what, value.type, value.node.origin.source),
            )
        return value
    rank = value.ndim + (not is_batched)
    place = _normalized(axis, rank, what)
    with building(builder):
        stacked = value if is_batched else expand(value, (size, *value.shape))
        if place == 0:
            return stacked
        others = list(range(1, rank))
        return transpose(stacked, (*others[:place], 0, *others[place:]))


def batch_into(
    builder: Builder,
    graph: Graph,
    bindings: Mapping[str, Value],
    is_batched: Mapping[str, bool],
    size: Dim,
    *,
    engine: Engine = STANDARD,
) -> tuple[dict[Value, Value], set[Value]]:
    """Copy `graph` into `builder` over a new axis.

    Args:
        builder: The destination of the nodes.
        graph: The program for one example.
        bindings: The values of inputs and params; batched ones have the new axis first. Others are copied as leaves.
        is_batched: Which of `bindings` are batched.
        size: The size of the new axis.
        engine: The source of rules.

    Returns:
        The map from old to new values, and which of the new ones are batched.
    """
    values: dict[Value, Value] = {}
    batched: set[Value] = {bindings[name] for name, flag in is_batched.items() if flag}
    builder.add_guards(graph.guards)
    for node in graph.nodes:
        if isinstance(node.op, GraphArgument) and node.op.label in bindings:
            values[node.result] = bindings[node.op.label]
            continue
        operands = [None if v is None else values[v] for v in node.operands]
        values.update(zip(node.results, _batch_node(builder, node, operands, batched, size, engine), strict=True))
    return values, batched


def _batch_node(
    builder: Builder,
    node: Node,
    operands: Sequence[Value | None],
    batched: set[Value],
    size: Dim,
    engine: Engine,
) -> tuple[Value, ...]:
    flags = [v in batched for v in operands if v is not None]
    is_over = bool(engine.mesh.names) and not named_axes(node.op).isdisjoint(engine.mesh.names)
    if not is_over and not any(flags):
        return copy_node(builder, node, operands)
    rule = _over_axis(node.op, engine.mesh) if is_over else None
    rule = rule or engine.rule(node.op, "batch")
    with rule_for(engine, builder, node, "vmap"):
        if rule is None:
            return _by_decomposition(builder, node, operands, batched, size, engine)
        padded_operands = padded(node.op, operands)
        results = as_results(rule(size, padded_operands, [v is not None and v in batched for v in padded_operands]))
    _check(node, results, size)
    batched.update(r for r in results if not isinstance(r, Replicated))
    return tuple(r.value if isinstance(r, Replicated) else r for r in results)


def _over_axis(op: Op, mesh: Mesh) -> Callable[..., Any] | None:
    """Return the replacement for the batching rule of an op over the axis of `mesh`; `None` if only its graphs are over it."""
    if not isinstance(op, OverNamedAxes):
        return None
    (name,) = mesh.names
    return partial(op.over, name)


def _by_decomposition(
    builder: Builder,
    node: Node,
    operands: Sequence[Value | None],
    batched: set[Value],
    size: Dim,
    engine: Engine,
) -> tuple[Value, ...]:
    if engine.rule(node.op, "decompose") is None:
        fact = Fact("node", node.label, node.origin.source)
        raise missing_rule(node.op, "batch", None, fact, lost=engine.lost(node.op.name))
    body = engine.decomposition(node.op, node.operand_types)
    present = [v for v in operands if v is not None]
    bindings = dict(zip(body.input_types, present, strict=True))
    flags = {name: v in batched for name, v in bindings.items()}
    values, inner = batch_into(builder, body, bindings, flags, size, engine=engine)
    results = tuple(values[v] for v in body.outputs)
    batched.update(r for r in results if r in inner)
    return results


def _check(node: Node, results: Sequence[object], size: Dim) -> None:
    where = Fact("node", node.label, node.origin.source)
    if len(results) != len(node.types):
        raise ShapeError(
            f"{node.op.name}: its batch rule gives {len(results)} results, the op has {len(node.types)}", where
        )
    for each, type in zip(results, node.types, strict=True):
        is_replicated = isinstance(each, Replicated)
        result = each.value if isinstance(each, Replicated) else each
        expected = type if is_replicated else TensorType(type.dtype, (size, *type.shape))
        is_fine = isinstance(result, Value) and (result.type == expected or not (expected.is_static and type.is_static))
        if not is_fine:
            actual = result.type if isinstance(result, Value) else result
            raise ShapeError(f"{node.op.name}: its batch rule must give {expected}, not {actual}", where)


def batched_body(
    body: Graph, size: Dim, is_batched: Sequence[bool], *, engine: Engine = STANDARD
) -> tuple[Graph, tuple[bool, ...]]:
    """Return a nested graph over a new first axis of some of its inputs, and which of its outputs have that axis."""
    builder = Builder(body.name)
    bindings: dict[str, Value] = {}
    flags: dict[str, bool] = {}
    for leaf, flag in zip(body.inputs, is_batched, strict=True):
        op = leaf.node.op
        assert isinstance(op, Input)
        shape = (size, *leaf.shape) if flag else leaf.shape
        bindings[op.label] = builder.input(op.label, leaf.type.with_shape(shape), origin=leaf.node.origin)
        flags[op.label] = flag
    values, batched = batch_into(builder, body, bindings, flags, size, engine=engine)
    outputs = [values[v] for v in body.outputs]
    return builder.finish(outputs), tuple(v in batched for v in outputs)


SWEEPS["batch"] = batched_body
