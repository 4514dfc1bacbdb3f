"""A product, the bias that is added to it and the activation after that, as one op with an epilogue.

It happens in two steps. Product and bias come together first; an activation joins where the target's kernel takes it and
nothing else reads its input. So an activation that the target does not support, or a pre-activation that has another user,
costs only the second step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from attrs import evolve

from rlx_core.ir.dtypes import FLOATS
from rlx_core.ir.graph import Value
from rlx_core.ir.op import Op
from rlx_core.ops.fused import ACTIVATIONS, FusedMatMulBiasAct, fused_matmul_bias_act
from rlx_core.ops.linalg import MatMul, reshaped
from rlx_core.ops.structural import expand
from rlx_core.passes.engine.fusion import declined_if_kept, fusion_of
from rlx_core.passes.engine.patterns import some
from rlx_core.passes.engine.rules import Declined, Match, RewriteRule, rewrite, ruleset


@ruleset("fuse-matmul-bias-act")
def fuse_matmul_bias_act(x: Any, w: Any, b: Any) -> Iterator[RewriteRule]:
    """Fuse a product with its bias, and with the activation after them where the target's kernel has it."""
    product = some(MatMul, acc_dtype=None)(x, w)
    types = {"x": "f32[2, 3]", "w": "f32[3, 4]", "b": "f32[4]"}
    yield rewrite("matmul-bias", product + b).to(with_bias).sharing().sampled(**types)
    for name, op in ACTIVATIONS.items():
        pattern = some(op)(some(FusedMatMulBiasAct, activation=None)(x, w, b))
        rule = rewrite(f"bias-{name.replace('_', '-')}", pattern).to(with_activation).sharing()
        yield rule.sampled(**types, make=activated_sum(op))


def activated_sum(op: type[Op]) -> Callable[..., Value]:
    """Return the sample function on which a rule for `op` is tried."""
    return lambda x, w, b: op()(fused_matmul_bias_act(x, w, b))


def with_bias(x: Value, w: Value, b: Value, match: Match) -> Value | Declined | None:
    product = next(n for n in match.inner if isinstance(n.op, MatMul))
    bias, columns = match["b"], product.type.shape[-1]
    if product.type.dtype not in FLOATS or bias.type == product.type != product.type.with_shape((columns,)):
        return None  # the sum of two products, or a residual: no bias at all
    if match.root.type != product.type:
        return Declined(f"the bias {bias.type} enlarges the product {product.type}", "BiasRankTooHigh")
    *leading, width = (1, *bias.shape) if bias.ndim else (1,)
    if any(d != 1 for d in leading) or width not in (1, columns):
        return Declined(f"the bias is {bias.type}, not {product.type.dtype}[{columns}]", "BiasRankTooHigh")
    declined = declined_if_kept(match.graph, [product], [match.root])
    if declined is not None:
        # A product with another reader was never about to disappear, so it is not reported either.
        return declined if declined.kind == "IsOutput" else None
    row = reshaped(b, (width,)) if bias.ndim else b
    return fused_matmul_bias_act(x, w, row if row.shape == (columns,) else expand(row, (columns,)))


def with_activation(x: Value, w: Value, b: Value, match: Match) -> Value | Declined:
    inner = [n for n in match.inner if isinstance(n.op, FusedMatMulBiasAct)]
    declined = declined_if_kept(match.graph, inner, [match.root])
    return declined or evolve(FusedMatMulBiasAct(), activation=match.root.op)(x, w, b)


FuseMatMulBiasAct = fusion_of(fuse_matmul_bias_act, (FusedMatMulBiasAct,))
