"""Reuse between loops: a value that a Scan computes again is returned by the earlier Scan, and the later one reads it.

The derivative of a loop iterates over the trajectory of its carries and computes each step again. That is cheap except for the
products of the step, which cost as much as the derivative's own. Two loops of as many steps have the same value where the later
one's xs are results of the earlier one, or both read the same xs and constants, and the same ops follow.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from attrs import evolve, field

from rlx_core.ir.graph import Builder, Graph, GraphArgument, Node, Value, as_results
from rlx_core.ir.rewrite import copy_node, rebuild
from rlx_core.ops.control.scan import Scan
from rlx_core.ops.linalg import MatMul
from rlx_core.passes.engine.base import Context, Pass, Result, define_pass, each_graph
from rlx_core.passes.engine.same import with_equal_nodes
from rlx_core.system.records import define

LEAST_TERMS: Final = 32
"""Terms of a product's sums from which reading one takes less time than adding it up again."""

MOST_GROWTH: Final = 8
"""Maximum size, relative to its left side, of a product that is stored for all steps."""


@define_pass("reuse-from-loops")
class ReuseFromLoops(Pass):
    """Keep the products of a Scan's steps, and values computed directly from them, for a later Scan that would recompute them."""

    def run(self, graph: Graph, context: Context) -> Result:
        return each_graph(graph, reuse)


@define(eq=False)
class Sharing:
    """The values that one Scan provides and reads.

    Attributes:
        added: Values of its body that it returns in addition to its results, one a step, and their places among these.
        taken: Value of its body → the Scan that returns it, and the index among the values that that one provides.
    """

    added: dict[Value, int] = field(factory=dict)
    taken: dict[Value, tuple[Node, int]] = field(factory=dict)


def reuse(graph: Graph) -> Result:
    """Return `graph` with loops that read values computed by earlier ones; nested graphs are left alone."""
    sharing: dict[Node, Sharing] = {}
    for node in graph.nodes:
        for earlier in earlier_loops(node):
            known = {reused: value for reused, value in same_values(earlier, node).items() if reused.type.is_static}
            for value in worth_keeping(node, known):
                positions = sharing.setdefault(earlier, Sharing()).added
                taken = sharing.setdefault(node, Sharing()).taken
                if value not in taken:
                    taken[value] = earlier, positions.setdefault(known[value], len(positions))
    if not sharing:
        return Result.unchanged(graph)
    placed: dict[Node, tuple[Value, ...]] = {}

    def replace(node: Node, operands: tuple[Value | None, ...]) -> tuple[Value, ...] | None:
        if node not in sharing:
            return None
        each, op = sharing[node], node.op
        assert isinstance(op, Scan), "only loops share"
        new = evolve(op, body=shared_body(op.body, each))
        stacks = [placed[earlier][place] for earlier, place in each.taken.values()]
        results = as_results(new(*(v for v in operands if v is not None), *stacks))
        count = len(node.results)
        placed[node] = results[count:]
        return results[:count]

    counts = {"reused": sum(len(each.taken) for each in sharing.values())}
    return Result(*rebuild(graph, replace, by=ReuseFromLoops.name), counts)


def earlier_loops(node: Node) -> Iterator[Node]:
    """Yield the Scans of as many steps over whose results a Scan iterates."""
    op = node.op
    if isinstance(op, Scan) and isinstance(op.length, int) and op.length > 0:
        makers = dict.fromkeys(v.node for v in op.split([*node.present()])[2])
        yield from (m for m in makers if isinstance(m.op, Scan) and m.op.length == op.length)


def same_values(earlier: Node, following: Node) -> dict[Value, Value]:
    """Value of the later body → the value of the earlier one that it is in every step."""
    assert isinstance(earlier.op, Scan) and isinstance(following.op, Scan), "loops"  # noqa: PT018
    return with_equal_nodes(dict(same_inputs(earlier, following)), following.op.body, earlier.op.body)


def same_inputs(earlier: Node, following: Node) -> Iterator[tuple[Value, Value]]:
    """The inputs of the later body that the earlier one has, or returns, in every step: a y lies where its x does."""
    assert isinstance(earlier.op, Scan) and isinstance(following.op, Scan), "loops"  # noqa: PT018
    first, second = earlier.op, following.op
    steady, per_step = (
        dict(zip(outside, inside, strict=True))
        for outside, inside in zip(
            first.split([*earlier.present()])[1:], first.split(first.body.inputs)[1:], strict=True
        )
    )
    per_step |= zip(earlier.results[first.carries :], first.body.outputs[first.carries :], strict=True)
    _, *outsides = second.split([*following.present()])
    _, *insides = second.split(second.body.inputs)
    for mapping, outside, inside in zip((steady, per_step), outsides, insides, strict=True):
        yield from ((i, mapping[o]) for o, i in zip(outside, inside, strict=True) if o in mapping)


def worth_keeping(following: Node, known: Mapping[Value, Value]) -> Iterator[Value]:
    """Yield the known products of the later body, each extended by known values of its size along its single uses."""
    assert isinstance(following.op, Scan), "a loop"
    body = following.op.body
    for node in body.nodes:
        if isinstance(node.op, MatMul) and node.result in known and is_long(node):
            value = node.result
            after = only_use(body, value)
            while after is not value and after in known and after.type.size == value.type.size:
                value, after = after, only_use(body, after)
            yield value


def is_long(node: Node) -> bool:
    """Return whether reading a product takes less time than computing it, and keeping it for all steps not too much memory."""
    left, _ = node.present()
    return left.shape[-1] >= LEAST_TERMS and node.type.size <= MOST_GROWTH * left.type.size


def only_use(body: Graph, value: Value) -> Value:
    """Return the one result of the only reader of a value; the value itself where it has others."""
    users = dict.fromkeys(body.uses[value])
    if len(users) != 1 or value in body.output_set:
        return value
    (user,) = users
    return user.result if len(user.results) == 1 else value


def shared_body(body: Graph, sharing: Sharing) -> Graph:
    """Return a body that reads the taken values as further xs, and returns the given values after its own results."""
    builder = Builder(body.name)
    builder.add_guards(body.guards)
    values = {v: builder.input(f"in{i}", v.type) for i, v in enumerate((*body.inputs, *sharing.taken))}
    outputs = (*body.outputs, *sharing.added)
    needed = set(nodes_for(body, outputs, values))
    for node in body.nodes:
        if node in needed:
            operands = [None if v is None else values[v] for v in node.operands]
            copies = copy_node(builder, node, operands)
            values.update((old, new) for old, new in zip(node.results, copies, strict=True) if old not in values)
    return builder.finish(values[v] for v in outputs)


def nodes_for(body: Graph, outputs: Sequence[Value], known: Mapping[Value, Value]) -> Iterator[Node]:
    """Yield the nodes that outputs need, backwards, where some values are given; and the ones with effects."""
    needed = {v for v in outputs if v not in known}
    for node in reversed(body.nodes):
        if isinstance(node.op, GraphArgument):
            continue
        if not node.op.is_pure or any(v in needed for v in node.results):
            needed.update(v for v in node.present() if v not in known)
            yield node
