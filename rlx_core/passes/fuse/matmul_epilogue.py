"""A product and the element-wise region that follows it, as one op: the region is computed where the product's sums are.

Without this a product is written, read again and, for the most part, forgotten: the gradient of a weight before its step, the
cotangent of an activation before it meets the slope, a sum before its residual. Every step of any rule that updates weights
element by element is such a region. Regions are as large as they get before this runs. A product that others read as well
stays: to write it in addition to the region's results is no faster than to read it again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import ClassVar

from attrs import evolve

from rlx_core.ir.dtypes import FLOATS, f32, i32
from rlx_core.ir.graph import Graph, Node, Value
from rlx_core.ir.op import Op
from rlx_core.ops.arithmetic import add
from rlx_core.ops.convolution.folded import FoldedMatMul
from rlx_core.ops.fused import FusedMatMulBiasAct
from rlx_core.ops.fused_matmul_epilogue import FusedMatMulEpilogue
from rlx_core.ops.fused_matmul_prologue import FusedMatMulPrologue
from rlx_core.ops.linalg import MatMul
from rlx_core.ops.region import ElementwiseRegion, RegionStep, access_of, may_be_step
from rlx_core.passes.engine.base import Context, Miss, Result, define_pass
from rlx_core.passes.engine.fusion import FusionPass, Judge, declined_if_kept
from rlx_core.passes.engine.regroup import Group, Grouping, regroup
from rlx_core.passes.fuse.mark_elementwise_regions import is_step, region_of

RULE = "epilogue"

PRODUCTS = (FusedMatMulEpilogue, FusedMatMulPrologue, FoldedMatMul)
"""Ops of a product with a region."""


@define_pass("fuse-matmul-epilogue")
class FuseMatMulEpilogue(FusionPass):
    """Compute element-wise ops on the sums of the product that they read, where the target's kernel takes them.

    Of several products the last one takes the region: all that the region reads is there by then.
    """

    makes: ClassVar = (FusedMatMulEpilogue,)

    def fuse(self, graph: Graph, context: Context) -> Result:
        grouping, misses, judge = Grouping(graph), [], Judge(context)
        for node in graph.nodes:
            declined: Miss | None = None
            for group in candidates(graph, node):
                assert isinstance(group.make, PRODUCTS), "the group makes a product"
                op, refusal = judge(group.make, [v.type for v in group.inputs])
                if refusal is not None:
                    declined = Miss(f"{self.name.partition('.')[2]}/{RULE}", node.label, refusal.reason, refusal.kind)
                elif grouping.add(evolve(group, make=op)):
                    break
            else:
                misses += [declined] if declined else []
        return regroup(grouping, self.name, misses)


def candidates(graph: Graph, node: Node) -> Iterator[Group]:
    """Yield the ways in which a node is the epilogue of a product that it reads, the last product first."""
    region, inputs = region_at(graph, node)
    if region is None:
        return
    for value in sorted(dict.fromkeys(inputs), key=lambda v: v.node.index, reverse=True):
        is_whole = is_product(value.node) and value.type.shape == region.shape
        if is_whole and declined_if_kept(graph, [value.node], [node]) is None:
            yield joined(value, node, region, inputs)


def region_at(graph: Graph, node: Node) -> tuple[ElementwiseRegion | None, tuple[Value, ...]]:
    """Return the region of a node, or the region that it could be alone, and its inputs."""
    if isinstance(node.op, ElementwiseRegion):
        return node.op, tuple(node.present())
    is_needed = any(v in graph.output_set or graph.uses[v] for v in node.results)
    if not is_needed or not is_step(node):
        return None, ()
    alone = region_of(graph, [node])
    assert isinstance(alone.make, ElementwiseRegion), "a region's group makes it"
    return alone.make, alone.inputs


def is_product(node: Node) -> bool:
    """Return whether a node is a product of floats, perhaps with its bias and an activation that a region may have inside, or
    one of integers with sums in i32, or of f16 or bf16 with sums in f32."""
    if isinstance(node.op, FoldedMatMul | FusedMatMulPrologue):
        return node.op.region is None
    if isinstance(node.op, FusedMatMulBiasAct):
        return node.op.activation is None or may_be_step(node.op.activation)
    if not isinstance(node.op, MatMul):
        return False
    if node.op.acc_dtype is None:
        return node.type.dtype in FLOATS
    x, _ = node.present()
    return node.op.acc_dtype is (f32 if x.dtype.is_narrow else i32)


def joined(value: Value, node: Node, region: ElementwiseRegion, inputs: tuple[Value, ...]) -> Group:
    """The group of a product and the region at `node`; a bias and an activation become the region's first steps."""
    product = value.node
    product_operands = tuple(product.present())
    count = 1 + product.op.load.inputs if isinstance(product.op, FusedMatMulPrologue) else 2
    factors, bias = product_operands[:count], product_operands[count:]
    others = [v for v in inputs if v is not value]
    operands = (value, *bias, *others)
    number = {v: i for i, v in enumerate(operands)}
    first = [renumbered(step, (0, 1), len(operands)) for step in own_steps(product)]
    start = len(operands) + len(first)
    if first:
        number[value] = start - 1  # the region reads the result of these steps on the product
    following = [renumbered(step, [number[v] for v in inputs], start) for step in region.steps]
    joined_region = ElementwiseRegion(
        shape=region.shape,
        steps=(*first, *following),
        access=tuple(access_of(v.shape, region.shape) for v in operands),
        results=tuple(len(first) + r for r in region.results),
    )
    op: Op = FusedMatMulEpilogue(joined_region, product.op.acc_dtype if isinstance(product.op, MatMul) else None)
    if isinstance(product.op, FoldedMatMul | FusedMatMulPrologue):
        op = evolve(product.op, region=joined_region)
    return Group((product, node), (*factors, *bias, *others), node.results, op, RULE)


def renumbered(step: RegionStep, reads: Sequence[int], start: int) -> RegionStep:
    """Return a step for another region: its operand reads are renumbered to `reads`, and its step numbers begin at `start`."""
    return RegionStep(step.op, tuple(reads[r] if r < len(reads) else start + r - len(reads) for r in step.reads))


def own_steps(product: Node) -> tuple[RegionStep, ...]:
    """Return the steps of a product's op after its multiplication; read 0 is the product, 1 the bias, 2 the first step."""
    if not isinstance(product.op, FusedMatMulBiasAct):
        return ()
    biased = RegionStep(add.op(), (0, 1))
    activation = product.op.activation
    return (biased,) if activation is None else (biased, RegionStep(activation, (2,)))
