"""The order in which a program runs its nodes.

Graphs are built in an order that works, so the default keeps it, but for nodes that only relieve: one that frees at least the
bytes that it adds runs as soon as it can. So a gradient is used up while it is in cache, not at the end of the step where the
program says so. The memory-aware order runs, among the nodes that are ready, the one that frees most; ties go to the earlier
node. Every order here is a function of the graph alone.
"""

from __future__ import annotations

import heapq
from typing import Literal

from rlx_core.ir.dims import Dim
from rlx_core.ir.graph import Graph, Node, Value

__all__ = ["Order", "schedule"]

Order = Literal["insertion", "relief", "memory"]


def schedule(graph: Graph, order: Order = "relief") -> tuple[Node, ...]:
    """The nodes that a run computes, operands first: no leaves, and nothing pure that no output needs."""
    needed = _needed(graph)
    nodes = tuple(n for n in graph.nodes if n in needed and not n.is_leaf)
    if order == "insertion":
        return nodes
    return _relieving(graph, nodes) if order == "relief" else _memory_aware(graph, nodes)


def _relieving(graph: Graph, nodes: tuple[Node, ...]) -> tuple[Node, ...]:
    """The graph's own order, in which nodes that add no bytes come as early as they can."""
    inside = frozenset(nodes)
    readers: dict[Value, set[Node]] = {v: {u for u in users if u in inside} for v, users in graph.uses.items()}
    after = _dependents(nodes)
    waiting = dict.fromkeys(nodes, 0)
    for dependents in after.values():
        for node in dependents:
            waiting[node] += 1
    ready: dict[Node, None] = {}
    done: dict[Node, None] = {}

    def run(node: Node) -> None:
        done[node] = None
        ready.pop(node, None)
        for value in dict.fromkeys(node.present()):
            readers[value].discard(node)
        for dependent in after[node]:
            waiting[dependent] -= 1
            if not waiting[dependent]:
                ready[dependent] = None

    for node in nodes:
        if node in done:
            continue
        run(node)
        while (relief := next((n for n in ready if _relieves(n, readers, graph.output_set)), None)) is not None:
            run(relief)
    return tuple(done)


def _relieves(node: Node, readers: dict[Value, set[Node]], outputs: frozenset[Value]) -> bool:
    """Whether a node adds no bytes, and is the last to read a leaf that its result may want to take over."""
    freed = 0
    for value in dict.fromkeys(node.present()):
        is_last = len(readers[value]) == 1
        if value.node.is_leaf:
            if not is_last and value.type in node.types:
                return False
        elif is_last and value not in outputs:
            freed += _known(value.type.nbytes)
    return 0 < freed >= sum(_known(t.nbytes) for t in node.types)


def _needed(graph: Graph) -> frozenset[Node]:
    found = {v.node for v in graph.outputs}
    for node in reversed(graph.nodes):
        if node in found or not node.op.is_pure:
            found.add(node)
            found.update(v.node for v in node.present())
    return frozenset(found)


def _memory_aware(graph: Graph, nodes: tuple[Node, ...]) -> tuple[Node, ...]:
    """Greedy list scheduling by the change in live bytes.

    A node's score falls only when the second-to-last reader of one of its operands runs, so each edge pushes a node at most
    once more: stale heap entries are skipped, and the whole is O(edges · log nodes).
    """
    inside = frozenset(nodes)
    readers: dict[Value, set[Node]] = {
        v: {u for u in users if u in inside} for v, users in graph.uses.items() if not v.node.is_leaf
    }
    after = _dependents(nodes)
    waiting = dict.fromkeys(nodes, 0)
    for dependents in after.values():
        for node in dependents:
            waiting[node] += 1
    heap: list[tuple[int, int]] = []

    def push(node: Node) -> None:
        heapq.heappush(heap, (_change(node, readers, graph.output_set), node.index))

    for node in nodes:
        if not waiting[node]:
            push(node)
    done: dict[Node, None] = {}
    while heap:
        node = graph.nodes[heapq.heappop(heap)[1]]
        if node in done:
            continue
        done[node] = None
        for value in node.present():
            left = readers.get(value)
            if left is None or node not in left:
                continue
            left.remove(node)
            if len(left) == 1:  # whoever is last now frees the operand
                (last,) = left
                if last not in done and not waiting[last]:
                    push(last)
        for dependent in after[node]:
            waiting[dependent] -= 1
            if not waiting[dependent]:
                push(dependent)
    assert len(done) == len(nodes), "a graph's nodes are in topological order"
    return tuple(done)


def _dependents(nodes: tuple[Node, ...]) -> dict[Node, list[Node]]:
    """Node → the nodes that must come after it: its readers, and for effects and barriers the next of them."""
    after: dict[Node, dict[Node, None]] = {n: {} for n in nodes}
    previous: Node | None = None
    for node in nodes:
        for value in node.present():
            if value.node in after:
                after[value.node][node] = None
        if not node.op.is_pure or node.op.is_barrier:
            if previous is not None:
                after[previous][node] = None
            previous = node
    return {n: list(dependents) for n, dependents in after.items()}


def _change(node: Node, readers: dict[Value, set[Node]], outputs: frozenset[Value]) -> int:
    """Bytes that running `node` now adds to what is live; negative if it frees more."""
    born = sum(_known(v.type.nbytes) for v in node.results)
    operands = {v for v in node.present() if v in readers and v not in outputs}
    freed = sum(_known(v.type.nbytes) for v in operands if readers[v] == {node})
    return born - freed


def _known(nbytes: Dim) -> int:
    # A template keeps its symbols: unknown sizes count as nothing, and ties keep the graph's own order.
    return nbytes if isinstance(nbytes, int) else 0
