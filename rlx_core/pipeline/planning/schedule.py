"""The order in which a program runs its nodes.

Graphs are built in a valid order, so the default keeps it, except for nodes that only relieve memory: one that frees at least
the bytes that it adds runs as soon as it can. So a gradient is used up while it is in cache, not at the end of the step in the
order of the program. The memory-aware order runs, among the nodes that are ready, the one that frees most; ties go to the
earlier node. Every order here is a function of the graph alone.
"""

from __future__ import annotations

import heapq
from typing import Literal

from rlx_core.ir.dims import Dim
from rlx_core.ir.graph import Graph, Node, Value
from rlx_core.ir.rewrite import needed_nodes
from rlx_core.system.records import frozen

Order = Literal["insertion", "relief", "memory"]


@frozen(eq=False)
class Flow:
    """The size-independent data of a graph for scheduling; all bindings of a template share the template's.

    Nodes are numbered as in the graph, and values by their nodes in order.

    Attributes:
        scheduled: The nodes that run.
        reads: For each node the values that it reads, each once.
        readers: For each value how many scheduled nodes read it.
        results: For each node the number of its first result.
        dependents: For each node the scheduled nodes that must come after it.
        waits: For each node how many scheduled nodes must come before it.
        is_leaf: For each value whether it is a leaf.
        is_output: For each value whether it is an output of the graph.
    """

    scheduled: tuple[int, ...]
    reads: tuple[tuple[int, ...], ...]
    readers: tuple[int, ...]
    results: tuple[int, ...]
    dependents: tuple[tuple[int, ...], ...]
    waits: tuple[int, ...]
    is_leaf: tuple[bool, ...]
    is_output: tuple[bool, ...]

    @classmethod
    def of(cls, graph: Graph) -> Flow:
        """The flow of a graph."""
        needed = needed_nodes(graph.nodes, graph.outputs, lambda node: not node.op.is_pure)
        nodes = tuple(n for n in graph.nodes if n in needed and not n.is_leaf)
        values = [v for node in graph.nodes for v in node.results]
        number = {value: i for i, value in enumerate(values)}
        reads = tuple(tuple(dict.fromkeys(number[v] for v in node.present())) for node in graph.nodes)
        readers = [0] * len(values)
        for node in nodes:
            for value in reads[node.index]:
                readers[value] += 1
        after = _dependents(nodes)
        dependents = tuple(tuple(n.index for n in after.get(node, ())) for node in graph.nodes)
        waits = [0] * len(graph.nodes)
        for each in dependents:
            for node_number in each:
                waits[node_number] += 1
        return cls(
            tuple(n.index for n in nodes),
            reads,
            tuple(readers),
            tuple(number[n.results[0]] if n.results else len(values) for n in graph.nodes),
            dependents,
            tuple(waits),
            tuple(v.node.is_leaf for v in values),
            tuple(v in graph.output_set for v in values),
        )


def schedule(graph: Graph, order: Order = "relief", flow: Flow | None = None) -> tuple[Node, ...]:
    """Return the nodes that a run computes, operands first: without leaves, and without pure nodes that no output needs.

    Args:
        graph: The program.
        order: The priority among nodes that are ready.
        flow: The flow of the graph, if known.
    """
    flow = flow or Flow.of(graph)
    if order == "relief":
        return tuple(graph.nodes[number] for number in _relieving(graph, flow))
    nodes = tuple(graph.nodes[number] for number in flow.scheduled)
    return nodes if order == "insertion" else _memory_aware(graph, nodes)


def _relieving(graph: Graph, flow: Flow) -> tuple[int, ...]:
    """Return the graph's own order, with nodes that add no bytes as early as possible."""
    types = [type for node in graph.nodes for type in node.types]
    unread, waits = list(flow.readers), list(flow.waits)
    ready: dict[int, None] = {}
    done: dict[int, None] = {}

    def run(node: int) -> None:
        done[node] = None
        ready.pop(node, None)
        for value in flow.reads[node]:
            unread[value] -= 1
        for dependent in flow.dependents[node]:
            waits[dependent] -= 1
            if not waits[dependent]:
                ready[dependent] = None

    def relieves(node: int) -> bool:
        """Return whether a node adds no bytes, and is the last to read a leaf that its result may want to take over."""
        result_types = graph.nodes[node].types
        freed = 0
        for value in flow.reads[node]:
            is_last = unread[value] == 1
            if flow.is_leaf[value]:
                if not is_last and types[value] in result_types:
                    return False
            elif is_last and not flow.is_output[value]:
                freed += _known(types[value].nbytes)
        return freed > 0 and freed >= sum([_known(type.nbytes) for type in result_types])

    for node in flow.scheduled:
        if node in done:
            continue
        run(node)
        while (relief := next(filter(relieves, ready), None)) is not None:
            run(relief)
    return tuple(done)


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
            if len(left) == 1:  # the remaining reader frees the operand
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
    """Return the change of live bytes if `node` runs now; negative if it frees more than it adds."""
    born = sum(_known(v.type.nbytes) for v in node.results)
    operands = {v for v in node.present() if v in readers and v not in outputs}
    freed = sum(_known(v.type.nbytes) for v in operands if readers[v] == {node})
    return born - freed


def _known(nbytes: Dim) -> int:
    # A template keeps its symbols: unknown sizes count as nothing, and ties keep the graph's own order.
    return nbytes if isinstance(nbytes, int) else 0
