"""Blocks: both lowerings compute one function, with fused ops only where the policy asks for them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rlx_core.errors import MissingBiasError
from rlx_core.ir.block import Block, FusionPolicy, define_block, lower_block
from rlx_core.ir.graph import Builder, Graph, as_results, building
from rlx_core.ir.hir import lower_hir
from rlx_core.ir.interpret import interpret
from rlx_core.ir.types import spec
from rlx_core.ops.blocks import LinearBlock, shared_linear_pair
from rlx_core.ops.families import Family
from rlx_core.ops.fused import FusedMatMulBiasAct
from rlx_core.ops.linalg import MatMul
from rlx_core.ops.samples import Case, Sample
from rlx_core.transforms.vjp import vjp_graph

CASES = [Case(b, s) for b in Family("blocks") for s in b.samples() if isinstance(s, Sample)]


def lowered(case: Case, policy: FusionPolicy) -> Graph:
    builder = Builder()
    operands = [None if t is None else builder.input(f"x{i}", t) for i, t in enumerate(case.sample.types)]
    block: Any = case.op(**case.sample.attributes)
    with building(builder):
        return builder.finish(as_results(lower_block(block, operands, policy)))


@pytest.mark.parametrize("case", CASES, ids=repr)
def test_direct_and_fusable_have_the_same_values_and_gradients(case: Case) -> None:
    assert isinstance(case.sample, Sample)
    arrays = {f"x{i}": a for i, a in enumerate(case.sample.arrays(case.op)) if a is not None}
    direct, fusable = (lowered(case, policy) for policy in ("direct", "fusable"))
    names = [n for n, t in direct.input_types.items() if t.dtype.is_differentiable]
    both = []
    for graph in (direct, fusable):
        backward = vjp_graph(graph, names)
        seeds = {n: np.ones(t.static_shape) for n, t in backward.input_types.items() if n not in arrays}
        both.append(interpret(backward, {**arrays, **seeds}, mode="wide"))
    for a, b in zip(*both, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-11)  # f64, products in another order


def test_linear_is_one_fused_op_under_the_direct_policy_and_a_chain_under_the_other() -> None:
    case = CASES[0]
    assert [type(n.op) for n in lowered(case, "direct").nodes[3:]] == [FusedMatMulBiasAct]
    assert not any(isinstance(n.op, FusedMatMulBiasAct) for n in lowered(case, "fusable").nodes)


def test_both_slots_of_a_shared_pair_lower_to_one_product() -> None:
    builder = Builder()
    x, w1, w2 = (builder.input(n, spec(t)) for n, t in (("x", "f32[3, 4]"), ("w1", "f32[4, 5]"), ("w2", "f32[4, 2]")))
    graph, _ = lower_hir(builder.finish([shared_linear_pair(x, w1, w2, slot=s) for s in (0, 1)]))
    assert sum(isinstance(n.op, MatMul) for n in graph.nodes) == 1
    assert [str(t) for t in graph.output_types] == ["f32[3, 5]", "f32[3, 2]"]


def test_a_promised_bias_that_is_missing_is_named_even_when_lowering_alone() -> None:
    builder = Builder()
    x, w = builder.input("x", spec("f32[3, 4]")), builder.input("w", spec("f32[4, 5]"))
    with pytest.raises(MissingBiasError, match="linear: has_bias is true"):
        lower_block(LinearBlock(has_bias=True), (x, w), "direct")


def test_a_block_without_a_direct_form_lowers_to_its_meaning() -> None:
    @define_block(domain="acme")
    class TwiceBlock(Block):
        """x + x."""

        def fusable(self, x: Any) -> Any:
            return x + x

    assert (TwiceBlock.name, TwiceBlock.kind) == ("acme.twice_block", "twice")
    assert lower_block(TwiceBlock(), (np.ones(2),), "direct").tolist() == [2, 2]
    assert TwiceBlock()(np.ones(2)).tolist() == [2, 2]
