"""Instruction sets of one width: the same text but for products of bf16, so that other tests need one of each width."""

from __future__ import annotations

import pytest
from harness import WIDTHS

from rlx_core.codegen.places import Layout, Place
from rlx_core.ir.dtypes import bf16
from rlx_core.ir.graph import Node
from rlx_core.ops import standard_ops
from rlx_core.pipeline.kernels import emitter_of
from rlx_core.testing.cases import programs
from rlx_cpu.native.llvm.isa import ISAS, Isa, available
from rlx_cpu.native.llvm.optimise import new_module
from rlx_cpu.native.table import native

PRODUCTS = {"rlx.matmul", "rlx.fused_matmul_bias_act", "rlx.fused_matmul_epilogue"}


def printed(node: Node, isa: Isa) -> str | None:
    """The module of a node; `None` if it has no native kernel."""
    row = next((row for row in native.candidates(type(node.op)) if row.refusal(node) is None), None)
    # What holds graphs is made of the code of other rows.
    emit = None if row is None or row.runs_nested else emitter_of(row.run)
    if emit is None:
        return None
    dense = (None if t is None else Place.dense(t) for t in node.operand_types)
    module = new_module("kernel")
    emit(module, node, Layout(tuple(dense), tuple(map(Place.dense, node.types))), isa, "kernel")
    return str(module)


def multiplies_bf16(node: Node) -> bool:
    return node.op.name in PRODUCTS and {t.dtype for t in node.operand_types[:2] if t is not None} == {bf16}


WIDEST = [isa for isa in ISAS if isa.vector_bytes == 64]
"""The sets of one width; nothing is run, so that no machine has to have them."""


@pytest.mark.parametrize("step", [pytest.param(1, marks=pytest.mark.slow), 20])
def test_samples_are_printed_alike_for_sets_of_one_width_unless_they_are_products_of_bf16(step: int) -> None:
    nodes = [program.node for program in programs(standard_ops()) if program.is_static]
    chosen = {id(node): node for node in (*nodes[::step], *filter(multiplies_bf16, nodes))}
    alike = 0
    for node in chosen.values():
        first, other = (printed(node, isa) for isa in WIDEST)
        assert (other == first) != multiplies_bf16(node), node
        alike += first is not None
    assert alike > 1000 // step


def test_other_tests_need_one_set_of_each_width() -> None:
    assert {isa.vector_bytes for isa in WIDTHS} == {isa.vector_bytes for isa in available()}
