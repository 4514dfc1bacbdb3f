"""Fusion of two Whiles that go through the same states: one loop has the carries of both.

Forward mode makes such pairs: the program's own loop, and one that carries the same state with its tangents. The two run for as
many steps, because the same values decide when they end.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations

from rlx_core.ir.graph import Graph, Node, Value, as_results, graph_of
from rlx_core.ops.call import results_of
from rlx_core.ops.control.loop import While
from rlx_core.passes.cse import merge_equal
from rlx_core.passes.engine.base import Context, Pass, Result, define_pass, each_graph
from rlx_core.passes.engine.regroup import Group, Grouping, regroup
from rlx_core.passes.engine.same import with_equal_nodes
from rlx_core.system.records import frozen


@define_pass("merge-loops")
class MergeLoops(Pass):
    """Run one While instead of two that compute the same numbers in each step, and that the same condition ends."""

    def run(self, graph: Graph, context: Context) -> Result:
        return each_graph(graph, merge)


def merge(graph: Graph) -> Result:
    """Return `graph` with loops merged pair by pair, while there are pairs; nested graphs are left alone."""
    result = last = merge_pairs(graph)
    while last.counts:
        last = merge_pairs(result.graph)
        result = result.then(last)
    return result


def merge_pairs(graph: Graph) -> Result:
    """Return `graph` with loops merged, none of them twice."""
    grouping = Grouping(graph)
    loops = [WhileLoop(node, node.op) for node in graph.nodes if isinstance(node.op, While) and node.op.is_pure]
    for one, other in combinations(loops, 2):
        pair = pair_of(one, other)
        if pair is not None:
            grouping.add(pair.group())
    return regroup(grouping, MergeLoops.name)


@frozen(eq=False)
class WhileLoop:
    """A While with its carries and its loop-invariant operands."""

    node: Node
    op: While

    @property
    def begins(self) -> tuple[Value, ...]:
        return tuple(self.node.present())[: self.op.carries]

    @property
    def consts(self) -> tuple[Value, ...]:
        return tuple(self.node.present())[self.op.carries :]


@frozen(eq=False)
class Pair:
    """Two loops of as many steps.

    Attributes:
        one, other: In program order.
        places: For each carry of the first, where the second carries the same; `None` where it does not.
    """

    one: WhileLoop
    other: WhileLoop
    places: tuple[int | None, ...]

    @property
    def rest(self) -> list[int]:
        """The carries that only the first loop has."""
        return [i for i, place in enumerate(self.places) if place is None]

    def group(self) -> Group:
        one, other = self.one, self.other
        begins = (*other.begins, *(one.begins[i] for i in self.rest))
        outputs = (*other.node.results, *one.node.results)
        return Group((one.node, other.node), (*begins, *other.consts, *one.consts), outputs, self.loop, "merge")

    def loop(self, *operands: Value) -> tuple[Value, ...]:
        """Return the results of the second loop and then of the first, from one loop with the carries of both."""
        count, types = self.other.op.carries + len(self.rest), [v.type for v in operands]
        body = merge_equal(graph_of(self.other.op.body.name, types, self.step)).graph
        cond = graph_of(self.other.op.cond.name, types, lambda *x: results_of(self.other.op.cond, self.split(x)[1]))
        outputs = as_results(While(cond, body, count, self.other.op.max_steps)(*operands))
        return (*outputs[: self.other.op.carries], *self.firsts(outputs))

    def step(self, *x: Value) -> tuple[Value, ...]:
        firsts, seconds = self.split(x)
        after = results_of(self.one.op.body, firsts)
        return (*results_of(self.other.op.body, seconds), *(after[i] for i in self.rest))

    def split(self, x: Sequence[Value]) -> tuple[tuple[Value, ...], tuple[Value, ...]]:
        """Split the arguments of the merged loop's graphs into the arguments of the first loop's graphs and of the second's."""
        count = self.other.op.carries
        first_const = len(x) - len(self.one.consts)
        consts = x[count + len(self.rest) : first_const]
        return (*self.firsts(x), *x[first_const:]), (*x[:count], *consts)

    def firsts(self, carried: Sequence[Value]) -> Iterator[Value]:
        """Return the carries of the first loop from the carries of the merged loop."""
        remaining = iter(carried[self.other.op.carries :])
        return (next(remaining) if place is None else carried[place] for place in self.places)


def pair_of(one: WhileLoop, other: WhileLoop) -> Pair | None:
    """Return the correspondence of two loops with the same states; `None` if they differ, or share no more than counters."""
    if one.op.max_steps != other.op.max_steps:
        return None
    candidates = [[i for i, v in enumerate(other.begins) if v is begin] for begin in one.begins]
    for k, (begin, matching) in enumerate(zip(one.begins, candidates, strict=True)):
        # Of carries that begin with the same value the first is tried with the first, the next with the next.
        skipped = sum(v is begin for v in one.begins[:k])
        matching[:] = matching[skipped:] + matching[:skipped]
    while differing := differing_carries(pair := Pair(one, other, tuple(f[0] if f else None for f in candidates))):
        for k in differing:
            del candidates[k][0]
    same = [begin for begin, place in zip(one.begins, pair.places, strict=True) if place is not None]
    return pair if any(v.dtype.is_differentiable for v in same) and ends_alike(pair) else None


def differing_carries(pair: Pair) -> list[int]:
    """Return the carries with a counterpart in the second loop whose next values differ there."""
    one, other = pair.one.op.body, pair.other.op.body
    same = with_equal_nodes(known_inputs(pair, one, other), one, other)
    after = zip(one.outputs, pair.places, strict=True)
    return [k for k, (v, place) in enumerate(after) if place is not None and same.get(v) is not other.outputs[place]]


def ends_alike(pair: Pair) -> bool:
    one, other = pair.one.op.cond, pair.other.op.cond
    return with_equal_nodes(known_inputs(pair, one, other), one, other).get(one.outputs[0]) is other.outputs[0]


def known_inputs(pair: Pair, one: Graph, other: Graph) -> dict[Value, Value]:
    """Inputs of a graph of the first loop → those of the second loop's that are the same."""
    carried = {one.inputs[k]: other.inputs[place] for k, place in enumerate(pair.places) if place is not None}
    consts = dict(zip(pair.other.consts, other.inputs[pair.other.op.carries :], strict=True))
    pairs = zip(pair.one.consts, one.inputs[pair.one.op.carries :], strict=True)
    return carried | {v: consts[outside] for outside, v in pairs if outside in consts}
