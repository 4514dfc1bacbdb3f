"""Products that read the same data as one product with their weights side by side: queries, keys and values of attention.

Only weights that derive from parameters and constants are joined, so joining them happens once, when they are bound. Each
product becomes a slice of the columns, which is a view. Members that do not fit are left out; the others still join.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import ClassVar

from attrs.validators import ge

from rlx_core.ir.graph import Graph, Node, Value
from rlx_core.ir.op import Op
from rlx_core.ops.fused import FusedMatMulBiasAct
from rlx_core.ops.linalg import MatMul
from rlx_core.ops.movement import concat, narrow
from rlx_core.passes.engine.base import Context, Miss, Result, define_pass, field
from rlx_core.passes.engine.bound_values import is_bound
from rlx_core.passes.engine.fusion import FusionPass
from rlx_core.passes.engine.regroup import Group, Grouping, regroup
from rlx_core.system.records import frozen


@define_pass("fuse-shared-input-matmul")
class FuseSharedInputMatMul(FusionPass):
    """Join products of one value with several bound weights into one product, of which each takes its columns.

    Products with a bias and the same activation join with their biases.

    Attributes:
        least: The fewest products that are joined.
    """

    makes: ClassVar = (MatMul,)

    least: int = field(default=2, validator=ge(2))

    def fuse(self, graph: Graph, context: Context) -> Result:
        candidates: dict[tuple[Value, Op], list[Node]] = {}
        misses: list[Miss] = []
        for node in graph.nodes:
            if is_product(node):
                candidates.setdefault((next(node.present()), node.op), []).append(node)
        grouping = Grouping(graph)
        for members in candidates.values():
            joined = [n for n in members if is_joinable(n)]
            if len(joined) < self.least:
                if len(members) >= self.least and joined:
                    reason = f"{len(joined)} of {len(members)} products of one value have bound weights"
                    misses.append(
                        Miss("fuse-shared-input-matmul/shared-input", members[0].label, reason, "SharedMatmulCount")
                    )
                continue
            self.add(grouping, joined)
        return regroup(grouping, self.name, misses)

    def add(self, grouping: Grouping, members: Sequence[Node]) -> None:
        """Group as many of `members` as do not depend on one another."""
        chosen: list[Node] = []
        read: list[Value] = []
        for node in members:
            reads = [v for v in node.operands[1:] if v is not None]
            if not grouping.depends(reads, chosen) and not grouping.depends(read, [node]):
                chosen.append(node)
                read += reads
        if len(chosen) >= self.least:
            grouping.add(joined_group(chosen))


def is_product(node: Node) -> bool:
    if isinstance(node.op, MatMul):
        return node.op.acc_dtype is None
    return isinstance(node.op, FusedMatMulBiasAct)


def is_joinable(node: Node) -> bool:
    """Return whether all that is joined is bound: a weight with two axes, and a bias."""
    weight, *bias = node.operands[1:]
    return weight is not None and weight.ndim == 2 and all(v is not None and is_bound(v) for v in (weight, *bias))


@frozen(eq=False)
class Joined:
    """The joined form of several products: the operands of the members are in groups of the same length."""

    op: Op
    widths: tuple[int, ...]

    def __call__(self, x: Value, *bound: Value) -> tuple[Value, ...]:
        count = len(self.widths)
        weight = concat(bound[:count], axis=1)
        bias = (concat(bound[count:], axis=0),) if len(bound) > count else ()
        y = self.op(x, weight, *bias)
        starts = accumulate(self.widths[:-1], initial=0)
        axis = y.ndim - 1
        return tuple(narrow(y, axis=axis, start=s, length=n) for s, n in zip(starts, self.widths, strict=True))


def joined_group(members: Sequence[Node]) -> Group:
    x = members[0].operands[0]
    weights = [n.operands[1] for n in members]
    biases = [n.operands[2] for n in members if len(n.operands) > 2]
    inputs = [v for v in (x, *weights, *biases) if v is not None]
    widths = tuple(n.type.shape[-1].__index__() for n in members)
    return Group(
        tuple(members), tuple(inputs), tuple(n.result for n in members), Joined(members[0].op, widths), "shared-input"
    )
