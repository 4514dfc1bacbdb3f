"""Attention forward as a native kernel: `forward_tiles.py` has the per-thread code, `sized.py` the dynamic-shape form."""

from __future__ import annotations

from rlx_core.codegen.places import Layout
from rlx_core.ir.graph import Node
from rlx_core.ops.attention import Attention
from rlx_cpu.native.attention.forward_plan import ForwardPlan
from rlx_cpu.native.attention.forward_tiles import Forward
from rlx_cpu.native.attention.parts import fitting_dtypes
from rlx_cpu.native.attention.sized import sized_attention
from rlx_cpu.native.contract import Emitted
from rlx_cpu.native.llvm import ir
from rlx_cpu.native.llvm.isa import Isa
from rlx_cpu.native.table import native


@native.register(
    Attention, dtypes="f16 bf16 f32 f64 bool", when=fitting_dtypes, writes_strides=True, sized=sized_attention
)
def attention(module: ir.Module, node: Node, layout: Layout, isa: Isa, name: str) -> Emitted:
    """Blocks of keys with an online softmax."""
    op = node.op
    assert isinstance(op, Attention), "registered for it alone"
    return Forward(ForwardPlan.of(module, op, layout, isa), name).emit()
