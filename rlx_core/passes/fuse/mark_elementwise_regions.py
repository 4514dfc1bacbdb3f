"""Element-wise regions: chains of element-wise ops become one op each, which a backend runs as one loop.

A region grows from its last node upwards. A producer joins if it is element-wise, has the region's dims, and no path from it
to the region leads through a node outside. A value that is read outside of a region becomes one of its results. The values of a
region that is decomposed again are the chain's, to the last bit.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import ClassVar

from attrs import evolve
from attrs.validators import ge, optional

from rlx_core.ir.graph import Graph, Node, Value
from rlx_core.ir.op import Op
from rlx_core.ir.types import Shape
from rlx_core.ops.region import ElementwiseRegion, RegionStep, access_of, may_be_step
from rlx_core.passes.engine.base import Context, Miss, Result, define_pass, field
from rlx_core.passes.engine.bound_values import bound_nodes
from rlx_core.passes.engine.fusion import FusionPass, Judge
from rlx_core.passes.engine.regroup import Group, Grouping, regroup


@define_pass("mark-elementwise-regions")
class MarkElementwiseRegions(FusionPass):
    """Make regions of element-wise ops, where the target has a kernel for them.

    Attributes:
        steps, inputs: The most of each in one region; the target's own limits if not given.
        shares: Whether values that nodes outside read as well may be inside; they are further results of the region then.
    """

    makes: ClassVar = (ElementwiseRegion,)

    steps: int | None = field(default=None, validator=optional(ge(2)))
    inputs: int | None = field(default=None, validator=optional(ge(1)))
    shares: bool = True

    def fuse(self, graph: Graph, context: Context) -> Result:
        target_limits = (None, None) if context.target is None else context.target.region_limits
        limits = (self.steps or target_limits[0], self.inputs or target_limits[1])
        grouping, misses, bound, judge = Grouping(graph), [], bound_nodes(graph), Judge(context)
        for node in reversed(graph.nodes):
            if not is_step(node) or node in grouping.group_of:
                continue
            members = grown(grouping, node, limits, self.shares, bound)
            if len(members) < 2:
                continue
            group = region_of(graph, members)
            assert isinstance(group.make, Op), "a region's group makes it"
            op, refusal = judge(group.make, [v.type for v in group.inputs])
            if refusal is None:
                added = grouping.add(evolve(group, make=op))
                assert added, "a region grows only by nodes that keep it free of cycles"
            else:
                misses.append(Miss("mark-elementwise-regions/region", node.label, refusal.reason, refusal.kind))
        return regroup(grouping, self.name, misses)


def is_step(node: Node) -> bool:
    """Return whether a node may be inside a region: element-wise with one result, of operands that broadcast to it."""
    is_complete = bool(node.operands) and all(v is not None for v in node.operands)
    is_simple = is_complete and len(node.types) == 1 and may_be_step(node.op)
    return is_simple and all(may_be_read(v.shape, node.type.shape) for v in node.present())


def may_be_read(shape: Shape, region: Shape) -> bool:
    """Return whether an operand of these dims broadcasts to the region's dims by known sizes, and not by assumption."""
    return shape == region or all(d == 1 or d == r for d, r in zip(reversed(shape), reversed(region), strict=False))


def grown(
    grouping: Grouping, last: Node, limits: tuple[int | None, int | None], shares: bool, bound: Collection[Node]
) -> list[Node]:
    """The largest region that ends in `last` within the limits, in program order; of bound nodes alone, or without any."""
    graph, shape = grouping.graph, last.type.shape
    inside = {last}
    most_steps, most_inputs = limits
    # Nearest producers first: candidates in reverse program order are never before one of their readers.
    waiting = {v.node for v in last.present()}
    while waiting:
        node = max(waiting, key=lambda n: n.index)
        waiting.discard(node)
        if not is_step(node) or node.type.shape != shape or node in grouping.group_of:
            continue
        if (node in bound) != (last in bound):
            continue
        if most_steps is not None and len(inside) == most_steps:
            break
        value = node.result
        outside = [u for u in graph.uses[value] if u not in inside]
        if (outside or value in graph.output_set) and not shares:
            continue
        if is_read_around(grouping, outside, inside):
            continue
        wider = {*inside, node}
        if most_inputs is not None and len(inputs_of(sorted_nodes(wider))) > most_inputs:
            continue
        inside = wider
        waiting |= {v.node for v in node.present()} - inside
    return sorted_nodes(inside)


def is_read_around(grouping: Grouping, outside: Sequence[Node], inside: set[Node]) -> bool:
    """Return whether a node outside that would read a result of the region is itself needed by the region (R5)."""
    if not outside:
        return False
    reads = [v for n in inside for v in n.present() if v.node not in inside]
    return grouping.depends(reads, {*outside, *(m for n in outside for m in members_with(grouping, n))})


def members_with(grouping: Grouping, node: Node) -> tuple[Node, ...]:
    group = grouping.group_of.get(node)
    return (node,) if group is None else group.members


def sorted_nodes(nodes: set[Node]) -> list[Node]:
    return sorted(nodes, key=lambda n: n.index)


def inputs_of(members: Sequence[Node]) -> tuple[Value, ...]:
    """Return the values that a region reads from outside, each once, in the order in which it is first read."""
    inside = set(members)
    return tuple(dict.fromkeys(v for n in members for v in n.present() if v.node not in inside))


def region_of(graph: Graph, members: Sequence[Node]) -> Group:
    """Return the group that replaces `members` by a region; its results are the values that are read outside."""
    inside, inputs = set(members), inputs_of(members)
    numbers: dict[Value, int] = {v: i for i, v in enumerate(inputs)}
    numbers |= {n.result: len(inputs) + i for i, n in enumerate(members)}
    steps = tuple(RegionStep(n.op, tuple(numbers[v] for v in n.present())) for n in members)
    shape = members[-1].type.shape
    outputs = tuple(read_outside(graph, members, inside))
    op = ElementwiseRegion(
        shape=shape,
        steps=steps,
        access=tuple(access_of(v.shape, shape) for v in inputs),
        results=tuple(numbers[v] - len(inputs) for v in outputs),
    )
    return Group(tuple(members), inputs, outputs, op, "region")


def read_outside(graph: Graph, members: Sequence[Node], inside: set[Node]) -> Iterator[Value]:
    for node in members:
        value = node.result
        if value in graph.output_set or any(u not in inside for u in graph.uses[value]):
            yield value
