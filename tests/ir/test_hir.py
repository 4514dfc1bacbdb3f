"""Lowering blocks: both policies, names and provenance, sharing, nested graphs."""

import numpy as np
import pytest

from rlx_core.errors import WrongInputCountError
from rlx_core.ir.block import Block, define_block
from rlx_core.ir.graph import Builder, building
from rlx_core.ir.hir import has_blocks, lower_hir
from rlx_core.ir.interpret import interpret
from rlx_core.ir.types import spec
from rlx_core.ir.verify import IrStage, verify
from rlx_core.ops.activation import exp
from rlx_core.ops.arithmetic import multiply, negative, subtract

X, W = np.array([0.1, 0.2, 0.3, 0.4], np.float32), np.full(4, 0.5, np.float32)


@pytest.mark.parametrize("policy", ["direct", "fusable"])
def test_both_policies_give_legal_mir_with_the_same_numbers(hir, policy):
    mir, _ = lower_hir(hir, policy)
    assert verify(mir, IrStage.MIR) == []
    assert not has_blocks(mir)
    (expected,), (found,) = (interpret(g, {"x": X}, {"w": W}) for g in (hir, mir))
    np.testing.assert_array_equal(found, expected)


def test_the_policies_take_different_lowerings(hir):
    assert lower_hir(hir, "direct")[0] != lower_hir(hir, "fusable")[0]


def test_every_op_of_a_block_is_tagged_and_named(hir):
    mir, values = lower_hir(hir)
    tags = [(n.op.name, n.name, n.origin.block, n.origin.label) for n in mir.nodes if not n.is_leaf]
    assert tags == [
        ("rlx.add", "first", "first", "first"),
        ("rlx.exp", None, None, None),
        ("rlx.add", None, "scale", "scale"),
        ("rlx.exp", None, "scale", "scale"),
        ("rlx.add", None, "scale#2", "scale"),
        ("rlx.exp", None, "scale#2", "scale"),
    ]
    assert {n.origin.created_by for n in mir.nodes if n.origin.block} == {"lower-hir"}
    assert all("conftest.py" in repr(n.origin.source) for n in mir.nodes)
    assert mir.find("first") is values[hir.find("first")]


def test_a_graph_without_blocks_is_returned_as_it_is(rich):
    graph, values = lower_hir(rich)
    assert graph is rich
    assert all(v is values[v] for v in rich.outputs)


def test_blocks_in_nested_graphs_are_lowered(kinds, make_everything):
    inner = Builder("body")
    a, w = inner.input("a", spec("f32[2]")), inner.input("w", spec("f32[2]"))
    graph = make_everything(body=inner.finish([kinds["Scale"]()(a, w)]))
    assert has_blocks(graph)
    mir, _ = lower_hir(graph)
    assert not has_blocks(mir)
    assert verify(mir, IrStage.MIR) == []


@define_block(domain="test", kind="pair")
class Pair(Block):
    """Two slots of one computation."""

    slot: int

    def fusable(self, x, w):
        both = multiply(x, w)
        return negative(both) if self.slot else both


def test_blocks_of_one_kind_on_the_same_operands_share_what_is_common():
    b = Builder()
    x, w, v = b.input("x", spec("f32[2]")), b.input("w", spec("f32[2]")), b.input("v", spec("f32[2]"))
    with building(b):
        slots = [Pair(0)(x, w), Pair(1)(x, w), Pair(0)(x, v)]
    mir, _ = lower_hir(b.finish(slots))
    assert sorted(n.op.name for n in mir.nodes if not n.is_leaf) == ["rlx.mul", "rlx.mul", "rlx.neg"]


@define_block(domain="test", kind="outer")
class Outer(Block):
    def fusable(self, x, w):
        return subtract(Pair(1)(x, w), exp(x))


def test_a_block_made_of_blocks_is_lowered_to_the_end_under_its_own_id():
    b = Builder()
    x, w = b.input("x", spec("f32[2]")), b.input("w", spec("f32[2]"))
    with building(b):
        y = Outer()(x, w, name="top")
    mir, _ = lower_hir(b.finish([y]))
    assert [n.op.name for n in mir.nodes if not n.is_leaf] == ["rlx.mul", "rlx.neg", "rlx.exp", "rlx.sub"]
    assert {n.origin.block for n in mir.nodes if not n.is_leaf} == {"top"}


def test_a_wrong_number_of_operands_names_the_block(kinds):
    b = Builder()
    x = b.input("x", spec("f32[2]"))
    with pytest.raises(WrongInputCountError, match=r"scale.*2 operands"):
        kinds["Scale"]()(x)
