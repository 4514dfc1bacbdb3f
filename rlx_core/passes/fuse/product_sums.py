"""Fusion of a product with sums of one of its factors over the contracted axis, or of its result's rows, into one library call.

In a training step the gradient of a weight is `xᵀ·dy` and the gradient of its bias is the sum of dy's rows: the product for the
weight reads dy anyway. Where that weight is not trained, the product whose result is dy can add up its rows. No loop computes
both, so the pair is a `FusedLoop` only where a target has a library kernel for it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from rlx_core.ir.graph import Builder, Constant, Graph, Node, Value
from rlx_core.ir.types import normalize_axes, normalize_axis
from rlx_core.ops.fused_loop import FusedLoop, LoopStep
from rlx_core.ops.fused_matmul_epilogue import FusedMatMulEpilogue
from rlx_core.ops.linalg import MatMul
from rlx_core.ops.structural import Reshape, Sum, Transpose
from rlx_core.passes.engine.base import Context, Result, define_pass
from rlx_core.passes.engine.fusion import FusionPass, refusal_of
from rlx_core.passes.engine.regroup import Group, Grouping, regroup

FIRST, SECOND = 0, 1
"""A product's factors."""


@define_pass("fuse-product-sums")
class FuseProductSums(FusionPass):
    """Multiply matrices and add up a factor's rows (of the second) or columns (of the first) at once, or the rows of a product
    with its epilogue, where the target's library does.

    It comes before `fuse-matmul-epilogue`, so that readers of such a product stay outside, and once more after it.
    """

    makes: ClassVar = (FusedLoop,)

    def fuse(self, graph: Graph, context: Context) -> Result:
        grouping = Grouping(graph)
        for node in () if context.target is None else graph.nodes:
            for group in candidates(graph, node):
                if refusal_of(context, probe(group)) is None and grouping.add(group):
                    break
        return regroup(grouping, self.name)


def probe(group: Group) -> Node:
    """Return the node of a group in a separate graph that knows its constants: a library recognises a slope by them."""
    builder = Builder("probe")
    operands = [
        builder.constant(v.node.op.value) if isinstance(v.node.op, Constant) else builder.input(f"x{i}", v.type)
        for i, v in enumerate(group.inputs)
    ]
    assert isinstance(group.make, FusedLoop), "the group makes both"
    return builder.emit(group.make, operands)[0].node


def candidates(graph: Graph, node: Node) -> Iterator[Group]:
    """Yield the groups that could compute a node's sums: products of its operand first, then the product that the operand is."""
    if not isinstance(node.op, Sum) or node.op.keep_dim:
        return
    (value,) = node.present()
    if value.ndim < 2 or {*normalize_axes(node.op.axes, value.ndim)} != {*range(value.ndim - 1)}:
        return
    for rows in as_rows(graph, value):
        yield from (joined(p, node, SECOND) for p in products(graph, rows, SECOND))
        for user in graph.uses[rows]:
            if isinstance(user.op, Transpose) and normalize_axis(user.op.perm[0], 2) == 1:
                yield from (joined(p, node, FIRST) for p in products(graph, user.result, FIRST))
    product = value.node
    if isinstance(product.op, FusedMatMulEpilogue) and len(product.results) == 1:
        operands = tuple(product.present())
        op = epilogue_with_sums(product.op)
        if len(operands) == op.inputs:
            yield Group((product, node), operands, (value, node.result), op, "result-sums")


def as_rows(graph: Graph, value: Value) -> Iterator[Value]:
    """A value whose leading axes are one."""
    if value.ndim == 2:
        yield value
    for user in graph.uses[value]:
        if isinstance(user.op, Reshape) and user.type.rank == 2 and user.type.shape[-1] == value.shape[-1]:
            yield user.result


def products(graph: Graph, value: Value, place: int) -> Iterator[Node]:
    """Products of two matrices of which `value` is the first or the second."""
    for user in graph.uses[value]:
        is_product = isinstance(user.op, MatMul) and user.op.acc_dtype is None
        if is_product and user.operands[place] is value and all(v.ndim == 2 for v in user.present()):
            yield user


def joined(product: Node, total: Node, place: int) -> Group:
    """The group of a product and of the sums of a factor of it."""
    members = sorted((product, total), key=lambda node: node.index)
    factors, results = tuple(product.present()), (product.result, total.result)
    return Group(tuple(members), factors, results, product_with_sums(place), "product-sums")


def product_with_sums(place: int) -> FusedLoop:
    """Return the op that multiplies two matrices and adds up one of them, `FIRST` or `SECOND`, over the contracted axis."""
    steps = (LoopStep(MatMul(), (FIRST, SECOND)), LoopStep(Sum((1 - place,)), (place,)))
    return FusedLoop(inputs=2, steps=steps, results=(2, 3))


def epilogue_with_sums(product: FusedMatMulEpilogue) -> FusedLoop:
    """The op that adds up the rows of a product with its epilogue as well."""
    inputs = 1 + len(product.region.access)  # the region's first is the product of the first two
    leading = tuple(range(len(product.region.shape) - 1))
    steps = (LoopStep(product, tuple(range(inputs))), LoopStep(Sum(leading), (inputs,)))
    return FusedLoop(inputs=inputs, steps=steps, results=(inputs, inputs + 1))
