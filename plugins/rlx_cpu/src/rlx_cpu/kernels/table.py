"""The one table of the CPU target, and the conditions its rows share."""

from __future__ import annotations

import numpy as np

from rlx_core.ir.graph import Node
from rlx_core.ir.op import Op, OpModules
from rlx_core.ops.kinds import Elementwise
from rlx_core.pipeline.kernels import Condition, Kernel, KernelTable, condition

MODULES = OpModules(
    {
        "rlx_cpu.kernels.reference": "Op",
        "rlx_cpu.kernels.control": "rlx.if rlx.while rlx.scan",
        "rlx_cpu.kernels.elementwise": "Elementwise",
        "rlx_cpu.kernels.reduction": "rlx.sum rlx.mean rlx.reduce_max rlx.reduce_min",
        "rlx_cpu.kernels.linalg": "rlx.matmul rlx.dense_solve rlx.batched_dense_solve",
        "rlx_cpu.kernels.fourier": "rlx.fft rlx.real_fft rlx.inverse_real_fft",
        "rlx_cpu.kernels.indexing": "rlx.gather",
        "rlx_cpu.kernels.normalization": "rlx.softmax rlx.log_softmax rlx.layer_norm rlx.rms_norm",
        "rlx_cpu.kernels.attention": "rlx.attention",
        "rlx_cpu.kernels.fused": "rlx.fused_matmul_bias_act rlx.fused_residual_ln",
    }
)
"""The modules of NumPy kernels."""


def imported(op: type[Op] | None) -> tuple[Kernel, ...]:
    """Import the modules of an op, which register their kernels."""
    MODULES.load(op)
    return ()


kernels = KernelTable("cpu", plugin="cpu", more=imported)

FLOAT = "f32 f64"
BLAS = "f32 f64 c64 c128"
"""The dtypes that OpenBLAS multiplies, and whose systems it solves."""

LIBRARY = "library"
"""The tier of rows that call a library because that is the best kernel there is."""

INTEGRAL = "bool i8 i16 i32 i64 u8 u16 u32 u64"
NATIVE = f"{INTEGRAL} {FLOAT} c64 c128"
"""The dtypes whose arithmetic is NumPy's own: all but the two-byte floats, which are widened and rounded once."""


@condition("a NumPy meaning", asks_sizes=False)
def has_reference(node: Node) -> bool:
    return node.op.reference is not None


@condition("operands and results of one dtype", asks_sizes=False)
def one_dtype(node: Node) -> bool:
    return all(v.dtype is node.type.dtype for v in node.present())


@condition("a NumPy ufunc as its meaning", asks_sizes=False)
def has_ufunc(node: Node) -> bool:
    return isinstance(node.op, Elementwise) and isinstance(getattr(type(node.op), "meaning", None), np.ufunc)


def last_axis(attribute: str) -> Condition:
    """The axis (or the only one of the axes) named by an attribute is the last."""

    def holds(node: Node) -> bool:
        operand = node.operands[0]
        assert operand is not None, "normalised operands are required"
        axis = node.op.attributes()[attribute]
        axes = (axis,) if isinstance(axis, int) else tuple(axis)
        return len(axes) == 1 and axes[0] % operand.ndim == operand.ndim - 1

    return Condition(f"{attribute} to be the last axis", holds)
