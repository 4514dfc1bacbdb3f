"""The gated unit `silu(gate)·up`: two products with one packed weight, and the halves of a packed value.

Weights are joined only where they derive from parameters and constants, because then joining them happens once, when they are
bound. Halves are recognised in either order.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rlx_core.ir.graph import Node, Value
from rlx_core.ops.activation import silu
from rlx_core.ops.fused import FusedSwiGLU, fused_swiglu
from rlx_core.ops.linalg import MatMul, mat_mul
from rlx_core.ops.movement import Narrow, concat
from rlx_core.passes.engine.bound_values import is_bound
from rlx_core.passes.engine.fusion import declined_if_kept, fusion_of
from rlx_core.passes.engine.rules import Declined, Match, RewriteRule, rewrite, ruleset


@ruleset("fuse-swiglu")
def fuse_swiglu(up: Any, gate: Any) -> Iterator[RewriteRule]:
    """Fuse `silu(gate)·up`: of the halves of one value, and of two products with the same data."""
    pattern = silu(gate) * up
    halves = rewrite("halves", pattern).to(of_halves).sharing()
    yield halves.sampled(packed="f32[3, 8]", make=halves_of)
    products = rewrite("two-products", pattern).to(of_products).sharing().giving_up("the last bits")
    yield products.sampled(x="f32[3, 4]", make=products_of)


def halves_of(packed: Value) -> Value:
    first, second = (Narrow(1, start, 4)(packed) for start in (0, 4))
    return silu(second) * first


def products_of(x: Value) -> Value:
    up, gate = ([[0.5] * 3] * 4, [[0.25] * 3] * 4)
    builder = x.node.owner
    return silu(mat_mul(x, builder.constant(gate, x.dtype))) * mat_mul(x, builder.constant(up, x.dtype))


def of_halves(match: Match) -> Value | Declined | None:
    up, gate = match["up"].node, match["gate"].node
    if not (isinstance(up.op, Narrow) and isinstance(gate.op, Narrow)) or up.operands[0] is not gate.operands[0]:
        return None
    packed = up.operands[0]
    assert packed is not None, "narrow has an operand"
    last, size = packed.ndim - 1, packed.shape[-1]
    if any(n.op.attributes()["axis"] % packed.ndim != last for n in (up, gate)):
        return Declined(f"the halves are not cut from the last axis of {packed.type}", "AxisNotLast")
    n = up.type.shape[-1]
    cuts = {(node.op.attributes()["start"], node.op.attributes()["length"]) for node in (up, gate)}
    steps = {node.op.attributes()["step"] for node in (up, gate)}
    if steps != {1} or cuts != {(0, n), (n, n)} or size != 2 * n:
        return Declined(f"the cuts {sorted(cuts, key=str)} are not the two halves of {size}", "NotFused")
    inner = [node for node in match.inner if node is not match.root]
    declined = declined_if_kept(match.graph, [*inner, up, gate], [*inner, up, gate, match.root])
    return declined or fused_swiglu(match.new(packed), gate_first=gate.op.attributes()["start"] == 0)


def of_products(match: Match) -> Value | Declined | None:
    up, gate = match["up"].node, match["gate"].node
    if not all(isinstance(n.op, MatMul) and n.op.acc_dtype is None for n in (up, gate)) or up is gate:
        return None
    (x, up_w), (other, gate_w) = operands(up), operands(gate)
    if x is not other:
        return Declined(f"the products read {x!r} and {other!r}", "SwigluNotSharedInput")
    if up_w.ndim != 2 or up_w.type != gate_w.type:
        return Declined(f"the weights are {up_w.type} and {gate_w.type}", "DtypeMismatch")
    if not is_bound(up_w) or not is_bound(gate_w):
        return None  # joining weights that change costs as much as it saves
    inner = [node for node in match.inner if node is not match.root]
    declined = declined_if_kept(match.graph, [*inner, up, gate], [*inner, up, gate, match.root])
    if declined is not None:
        return declined
    return fused_swiglu(mat_mul(match.new(x), concat([match.new(up_w), match.new(gate_w)], axis=1)))


def operands(product: Node) -> tuple[Value, Value]:
    left, right = product.present()
    return left, right


FuseSwiGLU = fusion_of(fuse_swiglu, (FusedSwiGLU,))
