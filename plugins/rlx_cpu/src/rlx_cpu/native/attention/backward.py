"""Attention backward as a native kernel: `backward_tiles.py` has the per-thread code, `sized.py` the dynamic-shape form."""

from __future__ import annotations

from rlx_core.codegen.places import Layout
from rlx_core.ir.graph import Node
from rlx_core.ops.attention import AttentionBackward
from rlx_cpu.native.attention.backward_plan import BackwardPlan
from rlx_cpu.native.attention.backward_tiles import Backward
from rlx_cpu.native.attention.parts import fitting_dtypes
from rlx_cpu.native.attention.sized import sized_attention
from rlx_cpu.native.contract import Emitted
from rlx_cpu.native.llvm import ir
from rlx_cpu.native.llvm.isa import Isa
from rlx_cpu.native.table import native


@native.register(
    AttentionBackward,
    dtypes="f16 bf16 f32 f64 bool",
    when=fitting_dtypes,
    writes_strides=True,
    sized=sized_attention,
)
def attention_backward(module: ir.Module, node: Node, layout: Layout, isa: Isa, name: str) -> Emitted:
    """Weights recomputed by blocks of queries; key heads, or segments of their queries, shared out."""
    op = node.op
    assert isinstance(op, AttentionBackward), "registered for it alone"
    return Backward(BackwardPlan.of(module, op, layout, isa), name).emit()
