"""Products and gathers as one op with the computation of their weights from narrower data: weights are computed where read.

Without this, the computation is bound with the parameters and its result is kept: a weight of 4-bit codes and scales would be an
f32 copy of eight times the size, which every run reads. The computation is repeated in every run instead: a few operations for
each element of the weight, of which a product makes as many multiply-adds as it has rows, and a gather reads few.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from itertools import accumulate, pairwise
from math import prod
from operator import mul
from typing import ClassVar, Final, Literal

from attrs.validators import in_

from rlx_core.codegen.expand import REDUCTIONS, VIEWS, expanded
from rlx_core.codegen.formula import formula_of, progression_of
from rlx_core.codegen.loops import Bound
from rlx_core.ir.graph import Constant, Graph, Node, Value, as_results
from rlx_core.ir.op import Op
from rlx_core.ir.types import Shape
from rlx_core.ops.fused_grouped_matmul import FusedGroupedMatMul
from rlx_core.ops.fused_loop import ABSENT, FusedLoop, LoopStep
from rlx_core.ops.fused_matmul_prologue import FusedMatMulPrologue
from rlx_core.ops.indexing import Gather
from rlx_core.ops.linalg import MatMul, reshaped
from rlx_core.ops.products import GroupedMatMul
from rlx_core.ops.structural import Reshape
from rlx_core.passes.engine.base import Context, Miss, Result, define_pass, field
from rlx_core.passes.engine.bound_values import EXPANSION, bound_nodes
from rlx_core.passes.engine.fusion import FusionPass, Judge
from rlx_core.passes.engine.regroup import Group, Grouping, regroup
from rlx_core.system.records import frozen

STEPS_LIMIT = 64
"""Ops of a load: each is computed for every element of the weight that is read, in every run. Q5_K has 45."""

SOURCES_LIMIT = 12
"""Arrays of more than one element that a load reads."""

PROGRESSION_LIMIT = 64
"""Elements of a constant that a load computes."""

UNKNOWN_INDICES = 64
"""Indices that a gather of a number known only at run time counts as."""


@define_pass("fuse-weight-loads")
class FuseWeightLoads(FusionPass):
    """Compute a weight from narrower parameters where a product or a gather reads it, if a kernel of the target does so.

    Attributes:
        weights: `packed` keeps narrow weights; `expanded` computes wide ones once, when parameters are bound.
    """

    makes: ClassVar = (FusedMatMulPrologue, FusedGroupedMatMul, FusedLoop)

    weights: Literal["packed", "expanded"] = field(default="packed", validator=in_(("packed", "expanded")))

    def fuse(self, graph: Graph, context: Context) -> Result:
        readers = {n: w for n in graph.nodes if (w := computed_weight(n)) is not None}
        if self.weights == "expanded":
            readers = {n: w for n, w in readers.items() if isinstance(n.op, GroupedMatMul)}
        if not readers:
            return Result.unchanged(graph)
        grouping, misses, judge, bound = Grouping(graph), list[Miss](), Judge(context), bound_nodes(graph)
        for node, weight in readers.items():
            # A computation that is not bound is done once a run, so that two readers would do it twice.
            is_shared = len(graph.uses[weight]) > 1 and weight.node not in bound
            fused = None
            if self.weights == "packed" and not is_shared and is_read_by_loads(graph, weight):
                fused = MAKERS[type(node.op)](node, weight, bound)
            if fused is None and isinstance(node.op, GroupedMatMul):
                fused = grouped_product(node, weight)
            if fused is None:
                continue
            op, refusal = judge(fused.op, [v.type for v in fused.operands])
            if refusal is not None:
                misses.append(
                    Miss(f"{self.name.partition('.')[2]}/{node.op.name}", node.label, refusal.reason, refusal.kind)
                )
            else:
                make = partial(in_shape, op, node.result.shape)
                grouping.add(Group((node,), fused.operands, node.results, make, node.op.name))
        return regroup(grouping, self.name, misses)


@frozen(eq=False)
class LoadedRead:
    """The op that replaces a product or a gather together with the computation of its weight, and its operands."""

    op: FusedMatMulPrologue | FusedGroupedMatMul | FusedLoop
    operands: tuple[Value, ...]


@frozen(eq=False)
class WeightLoad:
    """The computation of a weight as a loop.

    Attributes:
        loop: The computation; its result has the elements of the weight, with axes divided where blocks or packed codes end.
        sources: The values that it reads, narrower than the weight together.
        shape: The shape of its result.
    """

    loop: FusedLoop
    sources: tuple[Value, ...]
    shape: tuple[int, ...]


def computed_weight(node: Node) -> Value | None:
    """Return the weight of a product or a gather that the program computes, or `None`; its size is known and not 0.

    The weight of a product is its right operand, a matrix. The weight of a gather along the first axis is its table, of which a
    run reads only a part. A grouped product reads the weights of some experts, of arrays too that are not computed.
    """
    if isinstance(node.op, GroupedMatMul):
        _, weight, _ = node.present()
        return weight if weight.dtype.is_float and weight.type.is_static and weight.type.static_nbytes > 0 else None
    if isinstance(node.op, MatMul) and node.op.acc_dtype is None:
        _, weight = node.present()
        is_weight = weight.ndim == 2 and weight.dtype.is_float  # products of integers read narrow operands themselves
    elif isinstance(node.op, Gather) and node.op.axis == 0 and node.op.batch_dims == 0:
        weight, _ = node.present()
        is_weight = reads_a_part(node)
    else:
        return None
    is_weight = is_weight and weight.type.is_static and not weight.node.is_leaf
    return weight if is_weight and weight.type.static_nbytes > 0 else None


def reads_a_part(gather: Node) -> bool:
    """Return whether a gather yields fewer elements than its table has; an unknown number of indices counts as a few."""
    table, _ = gather.present()
    counted = prod(d if isinstance(d, int) else UNKNOWN_INDICES for d in gather.result.shape)
    return table.type.is_static and counted < table.type.size


def is_read_by_loads(graph: Graph, weight: Value) -> bool:
    """Return whether only products and gathers of a part read a value, as it is or through views of it."""
    waiting = [weight]
    while waiting:
        value = waiting.pop()
        if value in graph.output_set:
            return False
        for user in graph.uses[value]:
            if isinstance(user.op, VIEWS) and len(user.results) == 1:
                waiting.append(user.result)
            elif not (
                isinstance(user.op, MatMul | GroupedMatMul) or (isinstance(user.op, Gather) and reads_a_part(user))
            ):
                return False
    return True


def product_with_load(node: Node, weight: Value, bound: set[Node]) -> LoadedRead | None:
    """Return a product that computes its weight, or `None` if the weight is no load."""
    rows, columns = weight.type.static_shape
    load = load_of(weight, bound, lambda graph, also_small: (*divided(graph, also_small, rows, columns), columns))
    x, _ = node.present()
    return None if load is None else LoadedRead(FusedMatMulPrologue(load.loop), (x, *load.sources))


def grouped_product_with_load(node: Node, weight: Value, bound: set[Node]) -> LoadedRead | None:
    """Return a grouped product that computes its weights, or `None` if they are no load."""
    experts, rows, columns = weight.type.static_shape

    def shape_of(graph: Graph, also_small: bool) -> tuple[int, ...]:
        return (experts, *divided(graph, also_small, rows, columns, outer=experts), columns)

    load = None if weight.node.is_leaf else load_of(weight, bound, shape_of)
    if load is None or load.shape[0] != experts:
        return None
    x, _, idx = node.present()
    return LoadedRead(FusedGroupedMatMul(load.loop), (x, *load.sources, idx))


def grouped_product(node: Node, weight: Value) -> LoadedRead:
    """Return a grouped product that reads its weights where they lie, through the views before them."""
    x, _, idx = node.present()
    members: list[Node] = []
    while weight.node.op.view is not None and isinstance(weight.node.op, VIEWS) and weight.node.operands:
        members.insert(0, weight.node)
        (weight,) = weight.node.present()
    shape = node.operand_types[1]
    assert shape is not None, "weights are present"
    loop = (
        FusedLoop(1, (LoopStep(Reshape(shape.shape), (0,)),), (1,))
        if not members
        else loop_of(members, (weight,), members[-1].result)
    )
    return LoadedRead(FusedGroupedMatMul(loop), (x, weight, idx))


def gather_with_load(node: Node, weight: Value, bound: set[Node]) -> LoadedRead | None:
    """Return a loop that computes those rows of a table that are read, or `None` if the table is no load."""
    rows, *row_shape = weight.type.static_shape
    load = load_of(weight, bound, lambda graph, also_small: (rows, *divided(graph, also_small, prod(row_shape), rows)))
    _, indices = node.present()
    if load is None:
        return None
    sources = (*load.sources, indices)
    steps = [LoopStep(s.op, tuple(r + (r >= len(load.sources)) for r in s.reads)) for s in load.loop.steps]
    steps.append(LoopStep(node.op, (load.loop.results[0] + 1, len(load.sources))))
    return LoadedRead(FusedLoop(len(sources), tuple(steps), (len(sources) + len(steps) - 1,)), sources)


MAKERS: Final[Mapping[type[Op], Callable[[Node, Value, set[Node]], LoadedRead | None]]] = {
    MatMul: product_with_load,
    GroupedMatMul: grouped_product_with_load,
    Gather: gather_with_load,
}
"""The functions that replace a reader of a computed weight."""


def in_shape(op: Op, shape: Shape, *operands: Value) -> Value:
    """Return the result of an op in a shape of as many elements."""
    (result,) = as_results(op(*operands))
    return reshaped(result, shape)


def load_of(weight: Value, bound: set[Node], shape_of: Callable[[Graph, bool], tuple[int, ...]]) -> WeightLoad | None:
    """Return the computation of a weight as a load; `None` if it reads nothing narrower, or is not affine in any known shape.

    The load contains all ops before the weight that are element-wise, or views, and bound if the weight is.

    Args:
        weight: The result of a node that is no leaf.
        bound: The nodes whose results are known once parameters are bound.
        shape_of: Returns a shape with divided axes, given the arguments of `divided` before the sizes; tried if the computation
            is not affine in the weight's own shape.
    """
    members = members_before(weight, bound)
    sources = tuple(dict.fromkeys(v for n in members for v in n.present() if v.node not in members))
    if not members or sum(v.type.size != 1 for v in sources) > SOURCES_LIMIT or len(members) > STEPS_LIMIT:
        return None
    if EXPANSION * sum(v.type.static_nbytes for v in sources) > weight.type.static_nbytes:
        return None
    types = tuple(v.type for v in sources)
    loop = loop_of(members, sources, weight)
    primitives = expanded(loop, types)
    if primitives is None:
        return None
    shapes = (weight.type.static_shape, shape_of(primitives, False), shape_of(primitives, True))
    for shape in dict.fromkeys(shapes):
        load = with_result_shape(loop, weight.type.static_shape, shape)
        formula = formula_of(load, types)
        if formula is not None and not formula.rows:
            is_checked = any(isinstance(t, Bound) and t.is_checked for t in formula.terms)
            return None if is_checked else WeightLoad(load, sources, shape)
    return None


def members_before(weight: Value, bound: set[Node]) -> dict[Node, None]:
    """Return the nodes that compute a value and can be in a loop, in program order; empty if its own node cannot."""
    members: dict[Node, None] = {}
    waiting, is_bound = [weight.node], weight.node in bound
    while waiting:
        node = waiting.pop()
        if node in members or not may_be_inside(node, bound, is_bound):
            continue
        members[node] = None
        waiting += [v.node for v in node.present()]
    return dict.fromkeys(sorted(members, key=lambda n: n.index)) if weight.node in members else {}


def may_be_inside(node: Node, bound: set[Node], is_bound: bool) -> bool:
    """Return whether one loop without reductions expresses a node, and it is computed at binding if the weight is, or not."""
    if is_progression(node):
        return True
    if node.is_leaf or len(node.types) != 1 or not node.op.is_pure or node.op.is_barrier or not node.type.is_static:
        return False
    if (node in bound) != is_bound and node.operands:
        return False
    primitives = expanded(node.op, node.operand_types)
    return primitives is not None and not any(isinstance(n.op, REDUCTIONS) for n in primitives.nodes)


def is_progression(node: Node) -> bool:
    """Return whether a node is a small array of evenly spaced integers, such as the positions of codes in a byte.

    A load computes them instead of reading them, so that kernels know them when they are compiled.
    """
    if not isinstance(node.op, Constant) or not 1 < node.op.value.array.size <= PROGRESSION_LIMIT:
        return False
    return progression_of(node.op.value.array) is not None


def loop_of(members: Collection[Node], sources: Sequence[Value], weight: Value) -> FusedLoop:
    """Return the members as one loop whose result is the weight."""
    numbers: dict[Value, int] = {v: i for i, v in enumerate(sources)}
    steps: list[LoopStep] = []
    for node in members:
        steps.append(LoopStep(node.op, tuple(ABSENT if v is None else numbers[v] for v in node.operands)))
        numbers[node.result] = len(sources) + len(steps) - 1
    return FusedLoop(len(sources), tuple(steps), (numbers[weight],))


def with_result_shape(load: FusedLoop, shape: tuple[int, ...], divided_shape: tuple[int, ...]) -> FusedLoop:
    """Return a load of a result of `shape` whose result has another shape."""
    if shape == divided_shape:
        return load
    steps = (*load.steps, LoopStep(Reshape(divided_shape), load.results))
    return FusedLoop(load.inputs, steps, (load.inputs + len(load.steps),))


def divided(primitives: Graph, also_small: bool, size: int, others: int, *, outer: int = 1) -> tuple[int, ...]:
    """Return sizes into which axes of `size` elements are divided, so that every reshape in a computation divides these alone.

    A position in blocks of packed codes is affine in the number of the block, the code's byte and its place in the byte, and not
    in the number of the row or column.

    Args:
        primitives: The computation.
        also_small: Whether axes of smaller arrays are divided too, each of whose elements belongs to as many neighbours:
            scales of blocks that are themselves unpacked.
        size: Elements along these axes, at least 1.
        others: Elements along the other axes, at least 1.
        outer: Elements along axes around all of them.
    """
    ends = {1, size}
    for node in primitives.nodes:
        for type in node.types:
            repeats, remainder = divmod(size * others * outer, max(type.size.__index__(), 1))
            if repeats > 1 and (remainder or not also_small):
                continue  # repeated along these axes, which it does not divide
            for part in accumulate(reversed(type.static_shape), mul, initial=repeats):
                ends.update(n for n in (part, part // others if part % others == 0 else 1) if n)
    lengths = [1]
    for end in sorted(n for n in ends if n > 1 and size % n == 0):
        if end % lengths[-1] == 0:
            lengths.append(end)
    axes = tuple(outer // inner for inner, outer in pairwise(lengths))[::-1]
    assert prod(axes) == size, "the last end is that of all elements"
    return axes
