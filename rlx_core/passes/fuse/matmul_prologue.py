"""A product and the computation of its weight from narrower data, as one op: the weight is computed where the product reads it.

Without this, the computation is bound with the parameters and its result is kept: a weight of 4-bit codes and scales would be an
f32 copy of eight times the size, which every run reads. The computation is repeated in every run instead: a few operations for
each element of the weight, of which the product makes as many multiply-adds as it has rows.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import accumulate, pairwise
from math import prod
from operator import mul
from typing import ClassVar, Literal

from attrs.validators import in_

from rlx_core.codegen.expand import REDUCTIONS, VIEWS, expanded
from rlx_core.codegen.formula import formula_of
from rlx_core.codegen.loops import Bound
from rlx_core.ir.graph import Graph, Node, Value
from rlx_core.ops.fused_loop import ABSENT, FusedLoop, LoopStep
from rlx_core.ops.fused_matmul_prologue import FusedMatMulPrologue
from rlx_core.ops.linalg import MatMul
from rlx_core.ops.structural import Reshape
from rlx_core.passes.engine.base import Context, Miss, Result, define_pass, field
from rlx_core.passes.engine.bound_values import EXPANSION, bound_nodes
from rlx_core.passes.engine.fusion import FusionPass, Judge
from rlx_core.passes.engine.regroup import Group, Grouping, regroup

__all__ = ["FuseMatMulPrologue", "load_of"]

RULE = "prologue"

STEPS_LIMIT = 32
"""Ops of a load: each is computed for every element of the weight in every run."""

SOURCES_LIMIT = 12
"""Arrays that a load reads."""


@define_pass("fuse-matmul-prologue")
class FuseMatMulPrologue(FusionPass):
    """Compute a bound weight from narrower parameters where its product reads it, if the target's kernel takes the computation.

    Attributes:
        weights: `packed` keeps narrow weights; `expanded` computes wide ones once, when parameters are bound.
    """

    makes: ClassVar = (FusedMatMulPrologue,)

    weights: Literal["packed", "expanded"] = field(default="packed", validator=in_(("packed", "expanded")))

    def fuse(self, graph: Graph, context: Context) -> Result:
        products = [n for n in graph.nodes if has_computed_weight(n)]
        if self.weights == "expanded" or not products:
            return Result.unchanged(graph)
        grouping, misses, judge, bound = Grouping(graph), list[Miss](), Judge(context), bound_nodes(graph)
        for node in products:
            x, w = node.present()
            # A computation that is not bound is done once a run, so that two products would do it twice.
            is_shared = len(graph.uses[w]) > 1 and w.node not in bound
            if is_shared or not is_read_by_products(graph, w):
                continue
            computed = load_of(w, bound)
            if computed is None:
                continue
            load, sources = computed
            op, refusal = judge(FusedMatMulPrologue(load), [x.type, *(v.type for v in sources)])
            if refusal is not None:
                misses.append(Miss(f"{self.name.partition('.')[2]}/{RULE}", node.label, refusal.reason, refusal.kind))
            else:
                grouping.add(Group((node,), (x, *sources), node.results, op, RULE))
        return regroup(grouping, self.name, misses)


def has_computed_weight(node: Node) -> bool:
    """Return whether a node is a product whose right operand is a matrix of known size, not empty, that the program computes."""
    if not isinstance(node.op, MatMul) or node.op.acc_dtype is not None:
        return False
    _, weight = node.present()
    return weight.ndim == 2 and weight.type.is_static and weight.type.static_nbytes > 0 and not weight.node.is_leaf


def is_read_by_products(graph: Graph, weight: Value) -> bool:
    """Return whether only products read a value, as it is or through views of it."""
    waiting = [weight]
    while waiting:
        value = waiting.pop()
        if value in graph.output_set:
            return False
        for user in graph.uses[value]:
            if isinstance(user.op, VIEWS) and len(user.results) == 1:
                waiting.append(user.result)
            elif not isinstance(user.op, MatMul):
                return False
    return True


def load_of(weight: Value, bound: set[Node]) -> tuple[FusedLoop, tuple[Value, ...]] | None:
    """Return the computation of a matrix as a load, and the values that it reads; `None` if these are not narrower.

    The load contains all ops before the matrix that are element-wise, or views, and bound if the matrix is. Its result has the
    rows of the matrix as several axes where blocks or packed codes divide them.

    Args:
        weight: `[k, n]`, the result of a node that is no leaf.
        bound: The nodes whose results are known once parameters are bound.
    """
    members = members_before(weight, bound)
    sources = tuple(dict.fromkeys(v for n in members for v in n.present() if v.node not in members))
    if not members or len(sources) > SOURCES_LIMIT or len(members) > STEPS_LIMIT:
        return None
    if EXPANSION * sum(v.type.static_nbytes for v in sources) > weight.type.static_nbytes:
        return None
    types = tuple(v.type for v in sources)
    rows, columns = weight.type.static_shape
    load = loop_of(members, sources, weight)
    primitives = expanded(load, types)
    if primitives is None:
        return None
    for axes in ((rows,), row_axes(primitives, rows, columns)):
        divided = with_row_axes(load, (*axes, columns))
        formula = formula_of(divided, types)
        if formula is not None and not formula.rows:
            is_checked = any(isinstance(t, Bound) and t.is_checked for t in formula.terms)
            return None if is_checked else (divided, sources)
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
    if node.is_leaf or len(node.types) != 1 or not node.op.is_pure or node.op.is_barrier or not node.type.is_static:
        return False
    if (node in bound) != is_bound and node.operands:
        return False
    primitives = expanded(node.op, node.operand_types)
    return primitives is not None and not any(isinstance(n.op, REDUCTIONS) for n in primitives.nodes)


def loop_of(members: Collection[Node], sources: Sequence[Value], weight: Value) -> FusedLoop:
    """Return the members as one loop whose result is the weight."""
    numbers: dict[Value, int] = {v: i for i, v in enumerate(sources)}
    steps: list[LoopStep] = []
    for node in members:
        steps.append(LoopStep(node.op, tuple(ABSENT if v is None else numbers[v] for v in node.operands)))
        numbers[node.result] = len(sources) + len(steps) - 1
    return FusedLoop(len(sources), tuple(steps), (numbers[weight],))


def with_row_axes(load: FusedLoop, shape: tuple[int, ...]) -> FusedLoop:
    """Return a load whose result has the rows of the matrix as the first axes of `shape`."""
    if len(shape) == 2:
        return load
    steps = (*load.steps, LoopStep(Reshape(shape), load.results))
    return FusedLoop(load.inputs, steps, (load.inputs + len(load.steps),))


def row_axes(primitives: Graph, rows: int, columns: int) -> tuple[int, ...]:
    """Return the sizes into which the rows of a matrix are divided, so that every reshape before it divides these alone.

    A position in rows of blocks of packed codes is affine in the number of the block, the code's byte and its place in the byte,
    and not in the number of the row.

    Args:
        primitives: The computation of the matrix.
        rows: At least 1.
        columns: At least 1.
    """
    ends = {1, rows}
    for node in primitives.nodes:
        for type in node.types:
            if type.size.__index__() < rows * columns:
                continue  # repeated along rows, which it does not divide
            for size in accumulate(reversed(type.static_shape), mul, initial=1):
                ends.update(n for n in (size, size // columns if size % columns == 0 else 1) if n)
    lengths = [1]
    for end in sorted(n for n in ends if n > 1 and rows % n == 0):
        if end % lengths[-1] == 0:
            lengths.append(end)
    axes = tuple(outer // inner for inner, outer in pairwise(lengths))[::-1]
    assert prod(axes) == rows, "the last end is that of all rows"
    return axes
