"""Replacing several nodes by one computation with several results.

A rule replaces one root in its position. A *group* replaces nodes that are not adjacent: products that share an operand, a sum
that is read before and after its norm, a region of element-wise ops. Its place is before the first node that reads one of its
results, so everything it reads moves in front of it, once; inputs and params keep their order because they come first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cached_property, reduce

from attrs import evolve, field

from rlx_core.ir.graph import Builder, Graph, GraphArgument, Node, Value, as_results, building
from rlx_core.ir.op import Op
from rlx_core.ir.provenance import Origin, originating
from rlx_core.ir.rewrite import copy_node
from rlx_core.passes.engine.base import Miss, Result
from rlx_core.passes.engine.contraction import Contraction
from rlx_core.passes.engine.splice import draft
from rlx_core.system.records import frozen


@frozen(eq=False)
class Group:
    """Nodes that disappear together.

    Attributes:
        members: In program order.
        inputs: The values from outside that the replacement reads.
        outputs: The members' values that the replacement provides.
        make: The replacement's results from the inputs in the new graph; an op is such a function.
        rule: The name that is recorded on the new nodes.
    """

    members: tuple[Node, ...]
    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]
    make: Callable[..., Value | Sequence[Value]] = field(repr=False)
    rule: str


class Grouping:
    """Disjoint groups of one graph that can all be replaced together: none depends on its own result, even through others."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.groups: list[Group] = []
        self.group_of: dict[Node, Group] = {}

    @cached_property
    def contraction(self) -> Contraction:
        return Contraction(self.graph)

    def add(self, group: Group) -> bool:
        """Take a group in, unless a node of it is taken or its inputs depend on its outputs (R5)."""
        if any(node in self.group_of for node in group.members) or self.depends(group.inputs, group.members):
            return False
        self.groups.append(group)
        self.group_of.update(dict.fromkeys(group.members, group))
        self.contraction.contract(group.members, group.inputs, group.outputs)
        return True

    def depends(self, values: Iterable[Value], on: Iterable[Node]) -> bool:
        """Return whether one of `values` is computed from a node among `on`, or with it, when all groups so far are replaced."""
        return self.contraction.depends(values, on)


def regroup(grouping: Grouping, by: str, misses: Sequence[Miss] = ()) -> Result:
    """The graph with every group replaced; counts are by rule, and `misses` are those of the search.

    Whatever gives an output afterwards has the name of the member that gave it before.
    """
    result = Regrouping(grouping, by).run() if grouping.groups else Result.unchanged(grouping.graph)
    return evolve(result, misses=misses)


class Regrouping:
    """One walk of `regroup`."""

    def __init__(self, grouping: Grouping, by: str) -> None:
        self.graph, self.group_of, self.by = grouping.graph, grouping.group_of, by
        self.builder = Builder(self.graph.name)
        self.builder.add_guards(self.graph.guards)
        self.values: dict[Value, Value] = {}
        self.counts: dict[str, int] = {}

    def run(self) -> Result:
        with building(self.builder):
            for node in self.graph.nodes:
                if isinstance(node.op, GraphArgument):
                    self.place(node)
            last = {group.members[-1] for group in self.group_of.values()}
            for node in self.graph.nodes:
                if node not in self.group_of or node in last:
                    self.place_with_operands(node)
            rebuilt = self.builder.finish(self.values[v] for v in self.graph.outputs)
        return Result(rebuilt, self.values, self.counts)

    def place_with_operands(self, node: Node) -> None:
        """Place a node, or the group it is in, after everything it reads; without recursion, because chains are long."""
        stack = [node]
        while stack:
            top = stack[-1]
            group = self.group_of.get(top)
            provided = top.results if group is None else group.outputs
            if all(v in self.values for v in provided):
                stack.pop()
                continue
            reads = top.present() if group is None else iter(group.inputs)
            waiting = [v.node for v in reads if v not in self.values]
            if waiting:
                stack.extend(reversed(waiting))
            else:
                stack.pop()
                self.place(top)

    def place(self, node: Node) -> None:
        group = self.group_of.get(node)
        if group is None:
            operands = [None if v is None else self.values[v] for v in node.operands]
            self.values.update(zip(node.results, copy_node(self.builder, node, operands), strict=True))
            return
        origin = evolve(merged_origin(group.members), created_by=f"{self.by}/{group.rule}")
        inputs = [self.values[v] for v in group.inputs]
        # A name belongs to the first result of a node, and so it does afterwards.
        names = [v.node.name if v.index == 0 else None for v in group.outputs]
        with originating(origin):
            results = self.made_by_op(group, inputs, names[0]) or self.drafted(group, inputs, names)
        expected, actual = tuple(v.type for v in group.outputs), tuple(v.type for v in results)
        assert actual == expected, f"{self.by}: {expected} became {actual} at {node!r}"
        self.values.update(zip(group.outputs, results, strict=True))
        self.counts[group.rule] = self.counts.get(group.rule, 0) + 1

    def made_by_op(self, group: Group, inputs: Sequence[Value], name: str | None) -> tuple[Value, ...]:
        """Return the results of the op that replaces a group; empty if the replacement is more than one op."""
        op = group.make
        if not isinstance(op, Op):
            return ()
        operands = inputs if op.prepare is None else as_results(op.prepare(*inputs))
        return self.builder.emit(op, operands, name=name)

    def drafted(self, group: Group, inputs: Sequence[Value], names: Sequence[str | None]) -> tuple[Value, ...]:
        replacement = draft(lambda: group.make(*inputs), group.rule)
        assert replacement is not None, f"{self.by}: {group.rule} made nothing"
        return replacement.place_named(names)


def merged_origin(members: Sequence[Node]) -> Origin:
    """Return the origin of a group: its last member's, completed with fields that only earlier ones have."""
    return reduce(Origin.inheriting, (m.origin for m in reversed(members)))
