"""Instruction sets of one width: the same text but for products of bf16, so that other tests need one of each width."""

from __future__ import annotations

from harness import WIDTHS

from rlx_core.ir.dtypes import bf16
from rlx_core.ir.graph import Node
from rlx_core.ops import standard_ops
from rlx_core.testing.cases import programs
from rlx_cpu.native.codegen import new_module
from rlx_cpu.native.contract import Layout, Place
from rlx_cpu.native.isa import Isa, available
from rlx_cpu.native.kernels import native

PRODUCTS = {"rlx.matmul", "rlx.fused_matmul_bias_act", "rlx.fused_matmul_epilogue"}


def printed(node: Node, isa: Isa) -> str | None:
    """The module of a node; `None` if it has no native kernel."""
    row = next((row for row in native.rows(type(node.op)) if row.refusal(node) is None), None)
    emit = None if row is None else native.emitter(row.name)
    if emit is None:
        return None
    dense = (None if t is None else Place.dense(t) for t in node.operand_types)
    module = new_module("kernel")
    emit(module, node, Layout(tuple(dense), tuple(map(Place.dense, node.types))), isa, "kernel")
    return str(module)


def multiplies_bf16(node: Node) -> bool:
    return node.op.name in PRODUCTS and {t.dtype for t in node.operand_types[:2] if t is not None} == {bf16}


def test_every_sample_is_printed_alike_for_sets_of_one_width_unless_it_is_a_product_of_bf16() -> None:
    alike = 0
    for others in ([isa for isa in available() if isa.vector_bytes == width.vector_bytes] for width in WIDTHS):
        for program in programs(standard_ops()) if len(others) > 1 else ():
            if not program.is_static:
                continue
            first, *rest = (printed(program.node, isa) for isa in others)
            assert all((text == first) != multiplies_bf16(program.node) for text in rest), program
            alike += first is not None
    assert alike > 1000 or len(WIDTHS) == len(available())
