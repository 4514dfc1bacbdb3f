"""Lowering as a pass: the policy comes from the pass, then from the configuration, and no block is left."""

import numpy as np
import pytest

from rlx_core.ir.block import Block, define_block
from rlx_core.ir.graph import Builder
from rlx_core.ir.interpret import interpret
from rlx_core.ir.types import spec
from rlx_core.ir.verify import IrStage, check
from rlx_core.ops.activation import gelu
from rlx_core.passes.engine.base import LOWERED, Context
from rlx_core.passes.lower_hir import LowerHir


@define_block(domain="test")
class ActivatedBlock(Block):
    """gelu(2x), which `direct` says in one op fewer."""

    def fusable(self, x):
        return gelu(x + x)

    def direct(self, x):
        return gelu(2 * x)


@pytest.fixture
def graph():
    b = Builder()
    return b.finish([ActivatedBlock()(b.input("x", spec("f32[3]")), name="act")])


@pytest.mark.parametrize(
    ("own", "configured", "op"),
    [("fusable", "direct", "add"), (None, "fusable", "add"), (None, "direct", "mul"), ("direct", "fusable", "mul")],
)
def test_the_pass_decides_before_the_configuration(graph, own, configured, op):
    after = LowerHir(policy=own).run(graph, Context(settings={"fusion-policy": configured})).graph
    check(after, IrStage.MIR)
    assert [n.op.name for n in after.nodes if not n.is_leaf] == [f"rlx.{op}", "rlx.gelu"]
    np.testing.assert_array_equal(
        interpret(after, {"x": np.arange(3.0)})[0], interpret(graph, {"x": np.arange(3.0)})[0]
    )
    assert after.outputs[0].node.origin.block == "act"


def test_a_graph_without_blocks_is_left_as_it_is(graph):
    after = LowerHir().run(graph, Context()).graph
    assert LowerHir().run(after, Context()).graph is after
    assert LowerHir.ensures == {LOWERED}
