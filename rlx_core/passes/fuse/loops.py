"""Loop fusion: neighbouring steps that would be separate loop nests become one, where the loop language can express it.

Regions hold element-wise ops of one shape. The remaining nodes around them are reductions, norms, gathers and the arithmetic on
their results, every one a pass over the same memory. A loop grows from its last node upwards, through views, as long as the
whole has one index space; and loops that read the same data are merged side by side. A cost model decides each time: nothing
expensive is computed more often than before, and no wide work is left to one thread.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from math import prod
from typing import Any, ClassVar

from attrs import Factory
from attrs.validators import ge

from rlx_core.codegen import Formula, formula_of
from rlx_core.codegen.cost import cost_of, points, units
from rlx_core.ir.graph import Graph, Node, Value
from rlx_core.ir.types import TensorType
from rlx_core.ops.fused_loop import ABSENT, FusedLoop, LoopStep
from rlx_core.ops.region import ElementwiseRegion
from rlx_core.passes.engine.base import Context, Miss, Result, define_pass, field
from rlx_core.passes.engine.bound_values import bound_nodes
from rlx_core.passes.engine.fusion import FusionPass, Judge
from rlx_core.passes.engine.regroup import Group, Grouping, regroup
from rlx_core.passes.engine.rules import Declined
from rlx_core.passes.fuse.mark_elementwise_regions import inputs_of, is_read_around, sorted_nodes
from rlx_core.system.records import frozen

FEWEST_UNITS = 64
"""Rows below which a wide loop would leave threads without work."""

WIDE = 32768
"""Elements from which on that matters."""

NEIGHBOURS = 64
"""Readers of a value, in program order, among which a loop looks for another to join: a step of an unrolled loop has few."""

VIEWS = 3
"""Views in a row that a loop looks through for its next producer."""


@define_pass("fuse-loops")
class FuseLoops(FusionPass):
    """Run neighbouring loop nests as one, where the target generates kernels from ops' definitions and the cost model agrees.

    A loop of several nests holds at most as many element-wise ops as the target allows in a region.

    Attributes:
        steps, inputs: The most of each in one loop; a region is one step.
        siblings: Whether loops that read the same data join, or only those of which one reads the other's result.
    """

    makes: ClassVar = (FusedLoop,)

    steps: int = field(default=24, validator=ge(2))
    inputs: int = field(default=16, validator=ge(1))
    siblings: bool = True

    def fuse(self, graph: Graph, context: Context) -> Result:
        fused = ProducerFusion(graph, context, self).run()
        return fused.then(Siblings(fused.graph, context, self).run()) if self.siblings else fused


@frozen(eq=False)
class Loop:
    """Nodes that could be one loop nest: their fused op, its inputs and results, and its formula."""

    members: tuple[Node, ...]
    group: Group
    formula: Formula

    @property
    def cost(self) -> int:
        return cost_of(self.formula)


@frozen(eq=False)
class FusionSearch:
    """Common parts of both kinds of loop fusion."""

    graph: Graph
    context: Context
    limits: FuseLoops
    judge: Judge = field(init=False, default=Factory(lambda self: Judge(self.context), takes_self=True))
    bound: Collection[Node] = field(init=False, default=Factory(lambda self: bound_nodes(self.graph), takes_self=True))

    def may_be_one(self, first: Node, second: Node) -> bool:
        """Return whether both run, or both are done at binding: a loop of both kinds would repeat the latter in every run."""
        return (first in self.bound) == (second in self.bound)

    def is_loop(self, node: Node) -> bool:
        """Return whether a node runs as a loop nest that is generated from its definition."""
        if node.is_leaf or not node.op.is_pure or node.op.is_barrier or not node.operands:
            return False
        target: Any = self.context.target
        if target is not None and target.kernels:
            kernel = target.kernels.choose(node).kernel
            return kernel is not None and kernel.is_generated
        return formula_of(node.op, node.operand_types) is not None

    def loop(self, members: Sequence[Node]) -> Loop | None:
        """Return these nodes as one loop; `None` if they do not form one, or one that is larger than allowed."""
        if sum(map(steps_in, members)) > self.limits.steps:
            return None
        limit = None if self.context.target is None else self.context.target.region_limits[0]
        if len(members) > 1 and limit is not None and sum(map(ops_in, members)) > limit:
            return None
        if len(members) == 1:
            formula = formula_of(members[0].op, members[0].operand_types)
            return None if formula is None else Loop(tuple(members), group_of(self.graph, members), formula)
        inputs = inputs_of(members)
        if len(inputs) > self.limits.inputs:
            return None
        group = group_of(self.graph, members)
        assert isinstance(group.make, FusedLoop), "several nodes become a fused loop"
        formula = formula_of(group.make, tuple(v.type for v in inputs))
        return None if formula is None else Loop(tuple(members), group, formula)

    def joined(self, parts: Sequence[Loop], members: Sequence[Node]) -> Loop | None:
        """Return the loop over `members`, if it is worth more than its parts."""
        fused = self.loop(members)
        if fused is None or fused.cost > sum(p.cost for p in parts):
            return None
        is_wide = points(fused.formula) >= WIDE and units(fused.formula) < FEWEST_UNITS
        if is_wide and any(units(p.formula) > units(fused.formula) for p in parts):
            return None
        return fused

    def refusal(self, loop: Loop) -> Declined | None:
        """Return the reason why the target would not run a loop of several nodes."""
        assert isinstance(loop.group.make, FusedLoop), "several nodes become a fused loop"
        return self.judge(loop.group.make, [v.type for v in loop.group.inputs])[1]


class ProducerFusion(FusionSearch):
    """Fusion of loops with their producers."""

    def run(self) -> Result:
        grouping, misses = Grouping(self.graph), []
        for node in reversed(self.graph.nodes):
            if node in grouping.group_of or is_view(node) or not self.is_loop(node):
                continue
            candidate = self.grown(grouping, node)
            if candidate is None or len(candidate.members) < 2:
                continue
            refusal = self.refusal(candidate)
            if refusal is not None:
                misses.append(Miss("fuse-loops/chain", node.label, refusal.reason, refusal.kind))
            else:
                added = grouping.add(candidate.group)
                assert added, "a loop grows only by nodes that keep it free of cycles"
        return regroup(grouping, self.limits.name, misses)

    def grown(self, grouping: Grouping, last: Node) -> Loop | None:
        """The largest loop that ends in `last`."""
        loop = self.loop([last])
        if loop is None:
            return None
        tried: set[Node] = set()
        while True:
            # Nearest producers first: candidates in reverse program order are never before one of their readers.
            waiting = {v.node: (v.node, *through) for v, through in self.sources(loop) if v.node not in tried}
            if not waiting:
                return loop
            node = max(waiting, key=lambda n: n.index)
            tried.add(node)
            if node in grouping.group_of or not self.may_be_one(node, last) or not self.is_loop(node):
                continue
            inside = {*loop.members, *waiting[node]}
            outside = [u for n in waiting[node] for r in n.results for u in self.graph.uses[r] if u not in inside]
            if is_read_around(grouping, outside, inside):
                continue
            alone = self.loop([node])
            wider = None if alone is None else self.joined([loop, alone], sorted_nodes(inside))
            loop = wider or loop

    def sources(self, loop: Loop) -> Iterator[tuple[Value, tuple[Node, ...]]]:
        """Yield the sources of a loop, each with the views through which it is read."""
        for value in loop.group.inputs:
            through: list[Node] = []
            while is_view(value.node) and len(through) < VIEWS and len(value.node.operands) == 1:
                through.append(value.node)
                (source,) = value.node.operands
                assert source is not None, "a view has an operand"
                value = source
            if not value.node.is_leaf:
                yield value, tuple(through)


class Siblings(FusionSearch):
    """Fusion of loops over the same data, where the results of one are small compared with the shared inputs."""

    def run(self) -> Result:
        grouping = Grouping(self.graph)
        readers: dict[Value, list[Node]] = {}
        for node in self.graph.nodes:
            if not is_view(node) and self.is_loop(node):
                for value in dict.fromkeys(node.present()):
                    if elements(value.type) >= FEWEST_UNITS**2:
                        readers.setdefault(value, []).append(node)
        for value, nodes in readers.items():
            for i, first in enumerate(nodes):
                for second in nodes[i + 1 : i + 1 + NEIGHBOURS]:
                    self.join(grouping, value, first, second)
        return regroup(grouping, self.limits.name)

    def join(self, grouping: Grouping, value: Value, first: Node, second: Node) -> None:
        if first in grouping.group_of or second in grouping.group_of or not self.may_meet(value, first, second):
            return
        if not self.may_be_one(first, second) or grouping.depends(second.present(), {first}):
            return
        parts = [self.loop([first]), self.loop([second])]
        known = [p for p in parts if p is not None]
        if len(known) < 2 or known[0].formula.extents != known[1].formula.extents:
            return
        both = self.joined(known, [first, second])
        if both is not None and self.refusal(both) is None:
            grouping.add(both.group)

    def may_meet(self, value: Value, first: Node, second: Node) -> bool:
        """Return whether nothing large is computed earlier than it was for the sake of something small."""
        smaller, larger = sorted((first, second), key=lambda n: sum(map(elements, n.types)))
        if sum(map(elements, smaller.types)) * 8 > elements(value.type):
            return False
        return smaller is first or all(u.index > larger.index for r in smaller.results for u in self.graph.uses[r])


def elements(type: TensorType) -> int:
    """Return the number of elements; an unknown size counts as one that is worth a loop."""
    return prod(d if isinstance(d, int) else FEWEST_UNITS for d in type.shape)


def is_view(node: Node) -> bool:
    """Return whether a node only changes the layout of elements."""
    return node.op.view is not None


def steps_in(node: Node) -> int:
    return len(node.op.steps) if isinstance(node.op, FusedLoop) else 1


def ops_in(node: Node) -> int:
    """Return the number of ops of a node, the ops in its regions counted one by one."""
    inside = [step.op for step in node.op.steps] if isinstance(node.op, FusedLoop) else [node.op]
    return sum(len(op.steps) if isinstance(op, ElementwiseRegion) else 1 for op in inside)


# ------------------------------------------------------------------------------------ the replacement


def group_of(graph: Graph, members: Sequence[Node]) -> Group:
    """Return the group that replaces `members` by a fused loop; its results are the values that are read outside."""
    inside, inputs = set(members), inputs_of(members)
    numbers: dict[Value, int] = {v: i for i, v in enumerate(inputs)}
    steps: list[LoopStep] = []
    for node in members:
        steps.append(LoopStep(node.op, tuple(ABSENT if v is None else numbers[v] for v in node.operands)))
        numbers |= {r: len(numbers) + i for i, r in enumerate(node.results)}
    outputs = tuple(
        v for n in members for v in n.results if v in graph.output_set or any(u not in inside for u in graph.uses[v])
    )
    op = FusedLoop(inputs=len(inputs), steps=tuple(steps), results=tuple(numbers[v] for v in outputs))
    return Group(tuple(members), inputs, outputs, op, "loop")
