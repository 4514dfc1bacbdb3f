"""Products with their epilogue, and residual sums with their norm, each in the result's buffer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from rlx_core.ir.graph import Node
from rlx_core.ir.op import Op
from rlx_core.ops.activation import gelu, relu, sigmoid, silu, tanh
from rlx_core.ops.fused import FusedMatMulBiasAct, FusedResidualLN
from rlx_core.pipeline.kernels import condition
from rlx_cpu.kernels import special
from rlx_cpu.kernels.elementwise import gelu_in_place, silu_in_place
from rlx_cpu.kernels.linalg import product
from rlx_cpu.kernels.normalization import normalize
from rlx_cpu.kernels.table import FLOAT, kernels

EPILOGUES: dict[type[Op], Callable[[np.ndarray], object]] = {
    relu.op: lambda x: np.maximum(x, x.dtype.type(0), out=x),
    gelu.op: gelu_in_place,
    silu.op: silu_in_place,
    tanh.op: lambda x: np.tanh(x, out=x),
    sigmoid.op: lambda x: special.expit(x, out=x),
}
"""Activations that work on a dense buffer in place."""


@condition(f"an activation among {', '.join(sorted(op.name for op in EPILOGUES))}, or none")
def has_epilogue(node: Node) -> bool:
    op = node.op
    return isinstance(op, FusedMatMulBiasAct) and (op.activation is None or type(op.activation) in EPILOGUES)


@kernels.register(FusedMatMulBiasAct, dtypes=FLOAT, when=has_epilogue, accepts_strides=True)
def matmul_bias_activation(
    op: FusedMatMulBiasAct, x: np.ndarray, w: np.ndarray, b: np.ndarray, *, out: np.ndarray, workspace: Any
) -> None:
    """The product, then bias and activation on the result while it is warm."""
    product(x, w, out)
    np.add(out, b, out=out)
    if op.activation is not None:
        EPILOGUES[type(op.activation)](out)


@condition("one result")
def one_result(node: Node) -> bool:
    return len(node.types) == 1


@kernels.register(FusedResidualLN, dtypes=FLOAT, when=one_result, accepts_strides=True)
def residual_layer_norm(
    op: FusedResidualLN,
    x: np.ndarray,
    residual: np.ndarray,
    gamma: np.ndarray | None = None,
    beta: np.ndarray | None = None,
    bias: np.ndarray | None = None,
    *,
    out: np.ndarray,
    workspace: Any,
) -> None:
    """The sum takes shape in the result's buffer and is normalised there."""
    np.add(x, residual, out=out)
    if bias is not None:
        np.add(out, bias, out=out)
    normalize(out, gamma, beta, op.eps, out)
