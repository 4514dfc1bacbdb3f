"""A graph under successive contraction of groups of its nodes, with queries whether a value is computed from another.

A query must not cost a walk through the program. Three measures keep a search short: units (nodes, and groups) have places in an
topological order, so that a search stays between the places of its ends; it goes from both ends at
once, and the smaller side decides a "no"; and a tree along each node's longest path from the inputs answers most of a
"yes" at once, because the steps of an unrolled loop depend on one another along such paths.

Source:
    Pearce, Kelly 2006, "A dynamic topological sort algorithm for directed acyclic graphs", section 3.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Collection, Iterable, Iterator

from rlx_core.ir.graph import Graph, Node, Value


class Contraction:
    """Nodes are numbers, their indices; a group has the number of its first member."""

    def __init__(self, graph: Graph) -> None:
        count = len(graph.nodes)
        self.reads: list[Collection[int]] = [tuple({v.node.index for v in n.present()}) for n in graph.nodes]
        self.readers: list[list[int]] = [[] for _ in range(count)]
        for node, read in enumerate(self.reads):
            for each in read:
                self.readers[each].append(node)
        self.unit = list(range(count))
        self.place = list(range(count))
        self.members: dict[int, tuple[int, ...]] = {}
        self.outputs: dict[int, tuple[int, ...]] = {}
        self.first, self.end = spans(self.reads)

    def depends(self, values: Iterable[Value], on: Iterable[Node]) -> bool:
        """Return whether one of `values` is computed from a node among `on`, or with it."""
        targets = {v.node.index for v in values}
        return self.reaches({n.index for n in on}, targets)

    def reaches(self, sources: Collection[int], targets: Collection[int]) -> bool:
        """Return whether a path leads from a source to a target, both given as nodes."""
        ahead, behind = {self.unit[n] for n in sources}, {self.unit[n] for n in targets}
        if not ahead or not behind:
            return False
        if not ahead.isdisjoint(behind):
            return True
        lowest, highest = min(self.place[u] for u in ahead), max(self.place[u] for u in behind)
        if lowest > highest:
            return False
        positions = sorted(self.first[n] for n in targets)
        forward, backward = deque(ahead), deque(behind)
        while forward and backward:
            unit = forward.popleft()
            if any(is_between(positions, self.first[n], self.end[n]) for n in self.members.get(unit, (unit,))):
                return True
            for each in self.after(unit):
                if each in behind:
                    return True
                if each not in ahead and self.place[each] <= highest:
                    ahead.add(each)
                    forward.append(each)
            for each in self.before(backward.popleft()):
                if each in ahead:
                    return True
                if each not in behind and self.place[each] >= lowest:
                    behind.add(each)
                    backward.append(each)
        return False

    def contract(self, members: Iterable[Node], inputs: Iterable[Value], outputs: Iterable[Value]) -> None:
        """Make one unit of `members`, which reads `inputs` and is read for `outputs`; no input may depend on a member."""
        nodes = sorted(n.index for n in members)
        group, read = nodes[0], frozenset(v.node.index for v in inputs)
        freed = [self.place[n] for n in nodes]
        for node in nodes:
            self.unit[node] = group
        self.members[group] = tuple(nodes)
        self.outputs[group] = tuple({v.node.index for v in outputs})
        self.reads[group] = read
        for each in read:
            self.readers[each].append(group)
        lowest, highest = min(freed), max((*freed, *(self.place[self.unit[n]] for n in read)))
        earlier = self.closure({self.unit[n] for n in read}, lowest, highest, is_forward=False)
        successors = self.closure(set(self.after(group)), lowest, highest, is_forward=True)
        assert earlier.isdisjoint({group, *successors}), "a group that depends on itself"
        # The moved units exchange places: each unit read by the group an earlier one, each reader a later one.
        before, behind = (sorted(units, key=self.place.__getitem__) for units in (earlier, successors))
        free = sorted((*freed, *(self.place[u] for u in (*before, *behind))))
        self.place[group] = free[len(before)]
        for unit, place in (*zip(before, free, strict=False), *zip(reversed(behind), reversed(free), strict=False)):
            self.place[unit] = place

    def closure(self, units: set[int], lowest: int, highest: int, *, is_forward: bool) -> set[int]:
        """Return all units between two places that are reached from `units`, themselves included."""
        around = self.after if is_forward else self.before
        result = {u for u in units if lowest <= self.place[u] <= highest}
        stack = list(result)
        while stack:
            for each in around(stack.pop()):
                if each not in result and lowest <= self.place[each] <= highest:
                    result.add(each)
                    stack.append(each)
        return result

    def after(self, unit: int) -> Iterator[int]:
        """The units that read a unit."""
        for node in self.outputs.get(unit, (unit,)):
            for reader in self.readers[node]:
                each = self.unit[reader]
                # The replacement of a group can have fewer operands than its members.
                if each != unit and (each not in self.members or node in self.reads[each]):
                    yield each

    def before(self, unit: int) -> Iterator[int]:
        """The units that a unit reads."""
        return (self.unit[n] for n in self.reads[unit])


def is_between(numbers: list[int], first: int, end: int) -> bool:
    """Return whether one of the sorted `numbers` is in [first, end)."""
    index = bisect_left(numbers, first)
    return index < len(numbers) and numbers[index] < end


def spans(reads: list[Collection[int]]) -> tuple[list[int], list[int]]:
    """Return preorder numbers in the tree of longest paths from the inputs: each node's, and the one after its descendants."""
    depth, parent, size = [0] * len(reads), [-1] * len(reads), [1] * len(reads)
    for node, read in enumerate(reads):
        if read:
            parent[node] = max(read, key=lambda n: (depth[n], n))
            depth[node] = depth[parent[node]] + 1
    for node in reversed(range(len(reads))):
        if parent[node] >= 0:
            size[parent[node]] += size[node]
    first, free = [0] * len(reads), [0] * len(reads)
    roots = 0
    for node, above in enumerate(parent):
        if above < 0:
            first[node], roots = roots, roots + size[node]
        else:
            first[node], free[above] = free[above], free[above] + size[node]
        free[node] = first[node] + 1
    return first, [a + s for a, s in zip(first, size, strict=True)]
