"""A product and what it is added to, as one op: the sum is made where the product's sums are.

The step of a weight by its gradient, `w - rate·(xᵀ·dy)`, is the case that pays most: without this the gradient is written,
read again and forgotten. A product that others read as well stays, and so does a bias, which has a rule of its own.
"""

from __future__ import annotations

from collections.abc import Iterator

from rlx_core.ir.dtypes import FLOATS
from rlx_core.ir.graph import Node, Value
from rlx_core.ops.arithmetic import add, multiply, subtract
from rlx_core.ops.fused_matmul_add import FusedMatMulAdd
from rlx_core.ops.linalg import MatMul, mat_mul
from rlx_core.passes.chains import constant_of
from rlx_core.passes.fusion import declined_if_kept, fusion_of
from rlx_core.passes.rules import Declined, Match, Rule, rewrite, ruleset

__all__ = ["FuseMatMulAdd", "fuse_matmul_add"]

TYPES = {"x": "f32[2, 3]", "w": "f32[3, 4]", "r": "f32[2, 4]"}


@ruleset("fuse-matmul-add")
def fuse_matmul_add() -> Iterator[Rule]:
    """Fuse a product, and a constant factor of it, with the tensor of its own shape that it is added to or taken from."""
    added = rewrite("added", add.op).to(with_residual)
    yield added.sampled(**TYPES, make=lambda x, w, r: mat_mul(x, w) * 0.5 + r)
    stepped = rewrite("subtracted", subtract.op).to(with_residual)
    yield stepped.sampled(**TYPES, make=lambda x, w, r: r - mat_mul(x, w) * 0.5)


def with_residual(match: Match) -> Value | Declined | None:
    left, right = match.root.operands
    assert left is not None, "both operands of a sum are required"
    assert right is not None, "both operands of a sum are required"
    is_sum = type(match.root.op) is add.op
    declined: Declined | None = None
    for term, residual in ((right, left), (left, right)) if is_sum else ((right, left),):
        found = scaled_product(term)
        if found is None or residual.type != match.root.type or term.type != match.root.type:
            continue
        product, scale, passed = found
        kept = declined_if_kept(match.graph, passed, [*passed, match.root])
        if kept is not None:
            # A product that somebody else reads was never about to disappear.
            declined = declined or (kept if kept.kind == "IsOutput" else None)
            continue
        x, w = product.operands
        assert x is not None, "both operands of a product are required"
        assert w is not None, "both operands of a product are required"
        op = FusedMatMulAdd(scale if is_sum else -scale)
        return op(match.new(x), match.new(w), match.new(residual))
    return declined


def scaled_product(value: Value) -> tuple[Node, float, list[Node]] | None:
    """The product that `value` is a constant times of, that constant, and the nodes on the way."""
    node = value.node
    scale, passed = 1.0, [node]
    if type(node.op) is multiply.op:
        first, second = node.operands
        for factor, other in ((first, second), (second, first)):
            number = constant_of(factor)
            if number is not None and other is not None and other.type == value.type:
                scale, node = number, other.node
                passed.append(node)
                break
    is_product = isinstance(node.op, MatMul) and node.op.acc_dtype is None and node.type.dtype in FLOATS
    return (node, scale, passed) if is_product else None


FuseMatMulAdd = fusion_of(fuse_matmul_add, (FusedMatMulAdd,))
