"""Reduction of a program that fails to the smallest one that still fails, and to a file that stores it.

The reducer knows nothing of why a program fails: it tries simpler ones (fewer outputs, a leaf or an operand in the place of a
node, plain inputs, smaller dims, attributes at their defaults, plainer numbers) and keeps each that still fails, until none does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import attrs
import numpy as np
from attrs import evolve

from rlx_core.errors import RlxError
from rlx_core.ir.graph import Builder, Constant, Graph, GraphArgument, Node, Param, Value
from rlx_core.ir.interpret import interpret
from rlx_core.ir.op import Op
from rlx_core.ir.types import TensorType
from rlx_core.system.records import frozen
from rlx_core.testing.generate import Generated

Fails = Callable[[Generated], bool]


def reduce(program: Generated, fails: Fails, *, limit: int = 600) -> Generated:
    """Return a smallest known program that fails as `program` does.

    Args:
        program: One that fails.
        fails: Whether a program shows the same failure. It may raise `RlxError`, which means that it does not.
        limit: Maximum number of programs that are tried.
    """
    tried = 0
    is_smaller = True
    while is_smaller and tried < limit:
        is_smaller = False
        for candidate in simpler(program):
            tried += 1
            if tried >= limit:
                break
            if _still(fails, candidate):
                program, is_smaller = candidate, True
                break
    return program


def _still(fails: Fails, candidate: Generated) -> bool:
    try:
        return fails(candidate)
    except RlxError:
        return False


def simpler(program: Generated) -> Iterator[Generated]:
    """Programs that are one step simpler, the largest steps first."""
    graph = program.graph
    if program.donations:
        yield evolve(program, donations={})
    yield from fewer_outputs(program)
    for node in reversed(graph.nodes):
        if not node.is_leaf:
            yield from without(program, node)
    yield from plainer_leaves(program)
    for node in graph.nodes:
        for op in plainer_ops(node.op):
            yield from made(program, Change(ops={node: op}))
    yield from smaller_dims(program)
    yield from plainer_numbers(program)


@frozen(eq=False)
class Change:
    """The differences of a rebuilt program.

    Attributes:
        outputs: The values that are outputs; those of the program if `None`.
        ops: Another op for a node.
        values: A value in the place of another one.
        cut: A value → the array of an input that takes its place.
        leaves: An array for a leaf, which may have another shape.
        as_inputs: Whether params and constants become inputs.
    """

    outputs: tuple[Value, ...] | None = None
    ops: Mapping[Node, Op] = attrs.field(factory=dict)
    values: Mapping[Value, Value] = attrs.field(factory=dict)
    cut: Mapping[Value, np.ndarray] = attrs.field(factory=dict)
    leaves: Mapping[Value, np.ndarray] = attrs.field(factory=dict)
    as_inputs: bool = False


def made(program: Generated, change: Change) -> Iterator[Generated]:
    """Yield the program with a change, without unused nodes; nothing if its types do not fit then."""
    graph = program.graph
    builder, fed = Builder(graph.name), dict[str, np.ndarray]()
    done: dict[Value, Value] = {}
    outputs = [change.values.get(v, v) for v in (change.outputs or graph.outputs)]
    needed = reached(outputs, change)

    def leaf(node: Node, value: Value, array: np.ndarray) -> Value:
        if isinstance(node.op, Constant) and not change.as_inputs:
            return builder.constant(array)
        kind = TensorType(value.dtype, array.shape)
        if isinstance(node.op, Param) and not change.as_inputs:
            fed[node.op.label] = array
            return builder.param(node.op.label, kind)
        label = node.op.label if isinstance(node.op, GraphArgument) else f"c{value.node.index}"
        fed[label] = array
        return builder.input(label, kind)

    try:
        for node in graph.nodes:
            for value in node.results:
                if value in change.cut and value in needed:
                    fed[f"cut{node.index}"] = change.cut[value]
                    done[value] = builder.input(f"cut{node.index}", TensorType(value.dtype, value.shape))
            if not any(v in needed and v not in done for v in node.results):
                continue
            if node.is_leaf:
                array = change.leaves.get(node.result, held(program, node))
                done[node.result] = leaf(node, node.result, array)
                continue
            operands = [None if v is None else done[change.values.get(v, v)] for v in node.operands]
            results = builder.emit(change.ops.get(node, node.op), operands)
            done.update((v, r) for v, r in zip(node.results, results, strict=True) if v not in done)
        made_graph = builder.finish([done[v] for v in outputs])
        interpret(made_graph, fed, mode="wide")
    except (RlxError, AssertionError, KeyError, ValueError, IndexError, TypeError):
        return  # types that do not fit one another: not a program
    kept_outputs = change.outputs or graph.outputs
    donations: dict[str, int | None] = {}
    leaves = {**made_graph.input_types, **made_graph.param_types}
    for name, index in program.donations.items():
        if name in leaves:
            positions = [] if index is None else [i for i, v in enumerate(kept_outputs) if v is graph.outputs[index]]
            donations[name] = positions[0] if positions else None
    for name, index in donations.items():
        if index is not None and made_graph.outputs[index].type != leaves[name]:
            return
    yield Generated(made_graph, fed, donations)


def reached(outputs: list[Value], change: Change) -> set[Value]:
    """The values that outputs depend on, after a change."""
    result: set[Value] = set()
    waiting = list(outputs)
    while waiting:
        value = waiting.pop()
        if value in result:
            continue
        result.add(value)
        if value not in change.cut:
            waiting += [change.values.get(v, v) for v in value.node.present()]
    return result


def held(program: Generated, node: Node) -> np.ndarray:
    """The array of a leaf."""
    if isinstance(node.op, Constant):
        return node.op.value.array
    assert isinstance(node.op, GraphArgument), "a leaf is one of these"
    return program.fed[node.op.label]


def fewer_outputs(program: Generated) -> Iterator[Generated]:
    outputs = program.graph.outputs
    if len(outputs) == 1:
        return
    for value in outputs:
        yield from made(program, Change(outputs=(value,)))
    for i in range(len(outputs)):
        yield from made(program, Change(outputs=(*outputs[:i], *outputs[i + 1 :])))


def without(program: Generated, node: Node) -> Iterator[Generated]:
    """The program with an operand, or an input, in the place of a node."""
    for value in node.results:
        for operand in node.present():
            if operand.type == value.type:
                yield from made(program, Change(values={value: operand}))
    outside = Graph("cut", program.graph.nodes[: node.index + 1], node.results)
    arrays = interpret(
        outside, {n: a for n, a in program.fed.items() if n in outside.input_types | outside.param_types}
    )
    yield from made(program, Change(cut=dict(zip(node.results, arrays, strict=True))))


def plainer_leaves(program: Generated) -> Iterator[Generated]:
    graph = program.graph
    if graph.params or any(isinstance(n.op, Constant) for n in graph.nodes):
        yield from made(program, Change(as_inputs=True))


def plainer_ops(op: Op) -> Iterator[Op]:
    """The op with one attribute at its default."""
    for attribute in attrs.fields(type(op)):
        default = attribute.default
        if default is attrs.NOTHING or isinstance(default, attrs.Factory):  # type: ignore[arg-type]
            continue
        changed = evolve(op, **{attribute.name: default})
        if changed != op:
            yield changed


def smaller_dims(program: Generated) -> Iterator[Generated]:
    """The program with one size smaller, wherever it stands: in the dims of leaves and among attributes."""
    graph = program.graph
    leaves = [n for n in graph.nodes if n.is_leaf]
    sizes = sorted({int(d) for n in leaves for d in n.type.shape if int(d) > 1}, reverse=True)
    for old in sizes:
        for new in dict.fromkeys((1, 2, old // 2, old - 1)):
            if not 0 < new < old:
                continue
            arrays = {n.result: shrunk(held(program, n), old, new) for n in leaves}
            ops = {n: with_number(n.op, old, new) for n in graph.nodes if not n.is_leaf}
            yield from made(program, Change(leaves=arrays))
            yield from made(program, Change(leaves=arrays, ops=ops))


def shrunk(array: np.ndarray, old: int, new: int) -> np.ndarray:
    """The first elements along every axis of size `old`."""
    return np.ascontiguousarray(array[tuple(slice(0, new if n == old else n) for n in array.shape)]).reshape(
        tuple(new if n == old else n for n in array.shape)
    )


def with_number(op: Op, old: int, new: int) -> Op:
    """The op with another number in its attributes."""

    def changed(value: Any) -> Any:
        if isinstance(value, tuple):
            return tuple(changed(each) for each in value)
        return new if isinstance(value, int) and not isinstance(value, bool) and value == old else value

    try:
        return evolve(op, **{name: changed(value) for name, value in op.attributes().items()})
    except (RlxError, ValueError, TypeError):
        return op


def plainer_numbers(program: Generated) -> Iterator[Generated]:
    """The program on ones, and on numbers with a single digit."""
    for name, array in program.fed.items():
        if not array.size or array.dtype.kind in "biu":
            continue
        for plain in (np.ones_like(array), np.asarray(np.round(array, 1), array.dtype)):
            if plain.tobytes() != array.tobytes() and (plain == array).mean() < 0.5:
                changed = {**program.fed, name: plain}
                try:
                    exact = interpret(program.graph, changed, mode="wide")
                except RlxError:
                    continue
                if all(np.isfinite(a).all() for a in exact if a.dtype.kind in "fc"):
                    yield evolve(program, fed=changed)
