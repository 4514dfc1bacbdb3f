"""One program inside another: the nodes of a source graph copied into a target, its inputs bound to values there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rlx_core.errors import DtypeError, Fact, MissingInputError, RlxError, ShapeError, UnknownNameError, nearest
from rlx_core.ir.graph import Builder, Graph, GraphArgument, Param, Value
from rlx_core.ir.rewrite import copy_nodes
from rlx_core.passes.engine.base import Result


def insert(
    builder: Builder,
    source: Graph,
    inputs: Mapping[str, Value],
    params: Mapping[str, Value] | None = None,
) -> dict[Value, Value]:
    """Copy the nodes of `source` into `builder`; returns the map from values of `source` to values there.

    Every input of `source` is bound by name, params as far as `params` names them; other params become params of the whole,
    once each. Names and origins are kept, nested graphs come along inside their ops.

    Raises:
        MissingInputError: Inputs are not bound; all of them are listed.
        UnknownNameError: A binding names nothing in `source`.
        ShapeError, DtypeError: A value has another type than the leaf it is bound to.
        FormatError: A param of `source` has the name of a leaf of the target.
    """
    bound = bindings(source, inputs, params or {})
    builder.add_guards(source.guards)
    values: dict[Value, Value] = {}
    for node in source.nodes:
        op = node.op
        if isinstance(op, GraphArgument) and op.label in bound:
            values[node.result] = bound[op.label]
        elif isinstance(op, Param):
            values[node.result] = builder.param(op.label, op.type, origin=node.origin)
        else:
            copy_nodes(builder, (node,), values)
    return values


def inline_into(
    target: Graph,
    source: Graph,
    inputs: Mapping[str, Value],
    params: Mapping[str, Value] | None = None,
    *,
    outputs: Sequence[Value] | None = None,
) -> tuple[Result, tuple[Value, ...]]:
    """Return `target` with `source` appended to it.

    Args:
        target: Its nodes come first; the result's map is about its values.
        source: The graph to copy; see `insert`.
        inputs: Input of `source` → value of `target`.
        params: Param of `source` → value of `target`.
        outputs: Values of `target` or `source` that the whole gives; the target's outputs, then the source's, if not given.

    Returns:
        The whole with the map from the target's values, and the source's outputs in it.

    Raises:
        As `insert`.
    """
    builder = Builder(target.name)
    builder.add_guards(target.guards)
    values: dict[Value, Value] = {}
    copy_nodes(builder, target.nodes, values)
    inner = insert(
        builder,
        source,
        {name: values[v] for name, v in inputs.items()},
        {name: values[v] for name, v in (params or {}).items()},
    )
    everything = {**values, **inner}
    chosen = (*target.outputs, *source.outputs) if outputs is None else tuple(outputs)
    merged = builder.finish(everything[v] for v in chosen)
    return Result(merged, values), tuple(inner[v] for v in source.outputs)


def bindings(source: Graph, inputs: Mapping[str, Value], params: Mapping[str, Value]) -> dict[str, Value]:
    """Both tables as one, after everything that can be wrong with them was looked at."""
    for values, known, kind in ((inputs, source.input_types, "input"), (params, source.param_types, "param")):
        for name, value in values.items():
            if name not in known:
                raise UnknownNameError(f"inline: {source.name} has no {kind} {name!r}", hint=nearest(name, known))
            expect_type(source, name, value, known[name])
    missing = [name for name in source.input_types if name not in inputs]
    if missing:
        raise MissingInputError(
            f"inline: {source.name} needs {', '.join(missing)}, which nothing is bound to",
            *(Fact(name, source.input_types[name]) for name in missing),
        )
    return {**inputs, **params}


def expect_type(source: Graph, name: str, value: Value, expected: object) -> None:
    if value.type != expected:
        error: type[RlxError] = DtypeError if str(value.dtype) != str(expected).partition("[")[0] else ShapeError
        raise error(
            f"inline: {name} of {source.name} is {expected}, not {value.type}",
            Fact(name, value.type, value.node.origin.source),
        )
