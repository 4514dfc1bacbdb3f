"""Hoisting from Scan loops: computations that need not run in every step move before the loop.

Two kinds are moved. Values that depend on constants alone are the same in every step. And products of few rows of an x with a
constant become one product for all steps: `xs @ w` reads `w` once, where the loop would read it in every step. The cotangents
of a recurrent net are full of such products, because a step is computed again in its own derivative.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from attrs import evolve, field

from rlx_core.ir.graph import Builder, Graph, GraphArgument, Node, Value, as_results
from rlx_core.ir.rewrite import copy_nodes, rebuild
from rlx_core.ops.control.scan import Scan
from rlx_core.ops.linalg import MatMul
from rlx_core.ops.structural import Reshape, reshape
from rlx_core.passes.engine.base import Context, Pass, Result, define_pass, each_graph
from rlx_core.system.records import frozen

MOST_ROWS: Final = 16
"""Rows of a product of one step from which it reads its constant often enough itself."""

MOST_GROWTH: Final = 8
"""Maximum ratio of a hoisted value's bytes to its operands' bytes: it has to be stored, and read again."""


@define_pass("hoist-from-loops")
class HoistFromLoops(Pass):
    """Compute before a Scan the values that depend on its constants alone, and products of its xs with constants.

    Loops whose number of steps is not known, or 0, stay as they are: nothing is computed that would not have been.
    """

    def run(self, graph: Graph, context: Context) -> Result:
        return each_graph(graph, hoist)


def hoist(graph: Graph) -> Result:
    """Return `graph` with smaller loops; nested graphs are left alone."""
    hoistings = {node: hoisting for node in graph.nodes if (hoisting := hoisting_of(node)) is not None}
    if not hoistings:
        return Result.unchanged(graph)

    def replace(node: Node, operands: tuple[Value | None, ...]) -> tuple[Value, ...] | None:
        hoisting = hoistings.get(node)
        return None if hoisting is None else hoisting.place([v for v in operands if v is not None])

    counts = {"hoisted": sum(len(each.same) + len(each.products) for each in hoistings.values())}
    return Result(*rebuild(graph, replace, by=HoistFromLoops.name), counts)


def hoisting_of(node: Node) -> Hoisting | None:
    """Return the computations that can move before a loop; `None` if none can, or the node is no loop."""
    op = node.op
    if not isinstance(op, Scan) or not isinstance(op.length, int) or op.length < 1:
        return None
    nodes = op.body.nodes
    if not all(t.is_static for each in nodes for t in each.types):
        return None
    _, consts, xs = op.split(op.body.inputs)
    steady, per_step = set(consts), set(xs)
    for each in nodes:
        if each.op.is_pure and not isinstance(each.op, GraphArgument) and all(v in steady for v in each.present()):
            steady.update(each.results)
    products = [v for each in nodes for v in each.results if is_product(each, per_step, steady)]
    weights = {constant_of([*each.present()][1]) for each in nodes if isinstance(each.op, MatMul)}
    done = {*steady, *products}
    used = [v for each in nodes if not done.issuperset(each.results) for v in each.present() if v in steady]
    used += [v for v in op.body.outputs if v in steady]
    same = [v for v in dict.fromkeys(kept_of(used, weights)) if not isinstance(v.node.op, GraphArgument)]
    return Hoisting(op, tuple(same), tuple(products)) if same or products else None


def in_order(value: Value) -> Value:
    """The value whose elements another one has in the same order."""
    while isinstance(value.node.op, Reshape):
        value = next(value.node.present())
    return value


def constant_of(value: Value) -> Value:
    """The value that a value is a view of."""
    while value.node.op.view is not None:
        value = next(value.node.present())
    return value


def is_product(node: Node, per_step: set[Value], steady: set[Value]) -> bool:
    """Return whether a node is a product of few rows of an x with a loop-invariant value."""
    if not isinstance(node.op, MatMul):
        return False
    left, right = node.present()
    return (
        in_order(left) in per_step
        and right in steady
        and left.ndim == right.ndim == 2
        and left.type.static_shape[0] < MOST_ROWS
        and node.type.size <= MOST_GROWTH * left.type.size
    )


def kept_of(values: Sequence[Value], weights: set[Value]) -> Iterator[Value]:
    """The values to hand in, so that a step has these.

    A view, and a value far larger than its operands, is computed from these in the step. Of constants, the weights are passed
    in, because they are packed for the loop then.
    """
    waiting, seen = list(reversed(values)), set(values)
    while waiting:
        value = waiting.pop()
        operands = [*value.node.present()]
        limit = MOST_GROWTH * sum(v.type.static_nbytes for v in operands)
        if value in weights or (operands and value.node.op.view is None and value.type.static_nbytes <= limit):
            yield value
        else:
            waiting += (v for v in operands if v not in seen)
            seen.update(operands)


@frozen(eq=False)
class Hoisting:
    """The part of a loop's body that is computed before the loop.

    Attributes:
        same: The values that are the same in every step, and become constants.
        products: The products that become xs.
    """

    op: Scan
    same: tuple[Value, ...]
    products: tuple[Value, ...]
    body: Graph = field(init=False)

    @body.default
    def _smaller_body(self) -> Graph:
        body, first = self.op.body, self.op.carries + self.op.consts
        builder = Builder(body.name)
        builder.add_guards(body.guards)
        order = (*body.inputs[:first], *self.same, *body.inputs[first:], *self.products)
        values = {v: builder.input(f"in{i}", v.type) for i, v in enumerate(order)}
        needed = set(self._nodes(set(body.outputs), effects=True))
        copy_nodes(builder, (node for node in body.nodes if node in needed), values)
        return builder.finish(values[v] for v in body.outputs)

    def _nodes(self, needed: set[Value], *, effects: bool) -> Iterator[Node]:
        """Yield the nodes that some values need, backwards, and the ones with effects; inputs and values passed in need none."""
        excluded = {*self.op.body.inputs, *self.same, *self.products} if effects else set(self.op.body.inputs)
        for node in reversed(self.op.body.nodes):
            is_wanted = any(v in needed and v not in excluded for v in node.results)
            if is_wanted or (effects and not node.op.is_pure):
                needed.update(node.present())
                yield node

    def place(self, operands: Sequence[Value]) -> tuple[Value, ...]:
        """Return the results of the loop and its hoisted computations, in the graph under construction."""
        op, body = self.op, self.op.body
        carries, consts, xs = op.split(operands)
        before: dict[Value, Value] = dict(zip(body.inputs[op.carries :], (*consts, *xs), strict=True))
        rights = ([*p.node.present()][1] for p in self.products)
        for node in reversed(list(self._nodes({*self.same, *rights}, effects=False))):
            placed = node.op(*(None if v is None else before[v] for v in node.operands))
            before.update(zip(node.results, as_results(placed), strict=True))
        new = [before[v] for v in self.same]
        stacks = [self._stacked(p, before) for p in self.products]
        smaller = evolve(op, body=self.body, consts=op.consts + len(new))
        return as_results(smaller(*carries, *consts, *new, *xs, *stacks))

    def _stacked(self, product: Value, before: dict[Value, Value]) -> Value:
        """The product of all steps: their rows one below the other."""
        left, right = product.node.present()
        rows = reshape(before[in_order(left)], (-1, left.shape[-1]))
        stacked = product.node.op(rows, before[right])
        return reshape(stacked, (self.op.length, *product.shape))
