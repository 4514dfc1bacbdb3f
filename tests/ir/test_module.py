"""Modules: what each stage has, what it refuses and how it says so."""

import pytest

from rlx_core.errors import VerifyError, WrongStageError
from rlx_core.ir.dims import DimBinding
from rlx_core.ir.graph import Builder, building
from rlx_core.ir.module import HirBuilder, IrStage, Module
from rlx_core.ir.text import parse_graph
from rlx_core.ir.types import spec
from rlx_core.ops.activation import exp
from rlx_core.ops.arithmetic import negative


def test_each_stage_gives_its_own_graph(hir):
    module = Module.of_hir(hir)
    assert module.hir is hir
    assert module.lower().mir == module.lower("direct").mir
    assert module.lower("fusable") != module.lower("direct")
    assert module.with_policy("fusable").lower() == module.lower("fusable")


@pytest.mark.parametrize(
    ("ask", "says", "hint"),
    [
        (lambda m: m.mir, "a MIR graph belongs to MIR, and this module is HIR", "call lower() first"),
        (lambda m: m.lir, "an execution plan belongs to LIR, and this module is HIR", "lower() and then plan"),
        (lambda m: m.lower().hir, "belongs to HIR, and this module is MIR", "cannot be undone"),
        (lambda m: m.lower().lower(), "lowering to MIR belongs to HIR, and this module is MIR", "cannot be undone"),
        (lambda m: m.lower().lir, "belongs to LIR, and this module is MIR", "plan"),
        (lambda m: m.lower().extended(exp), "belongs to HIR, and this module is MIR", "keep the HIR module"),
        (lambda m: m.lower().with_policy("fusable"), "a fusion policy belongs to HIR", "keep the HIR module"),
        (
            lambda m: m.require(IrStage.MIR, "a gradient"),
            "a gradient belongs to MIR, and this module is HIR",
            "lower()",
        ),
    ],
)
def test_the_wrong_stage_is_named_with_the_right_one_and_the_conversion(hir, ask, says, hint):
    with pytest.raises(WrongStageError) as error:
        ask(Module.of_hir(hir))
    assert says in error.value.message
    assert hint in error.value.hint


def test_equality_is_structural(hir):
    assert Module.of_hir(hir) == Module.of_hir(hir)
    assert Module.of_hir(hir) != Module.of_hir(hir, "fusable")
    assert Module.of_hir(hir) != Module.of_hir(hir).lower()


def test_blocks_are_not_mir(hir):
    with pytest.raises(VerifyError, match="3 faults"):
        Module.of_mir(hir)


def test_inspect_shows_the_stage_and_parses_back(hir, ops):
    text = Module.of_hir(hir, "fusable").inspect()
    assert text.startswith("# HIR, fusable\ngraph blocks {\n")
    assert parse_graph(text, ops) == hir
    assert Module.of_hir(hir).lower().inspect().startswith("# MIR\n")


def test_the_builder_equals_building_the_graph_directly(hir, kinds):
    b = Module.builder("blocks")
    x, w = b.input("x", "f32[4]"), b.param("w", "f32[4]")
    scale = kinds["Scale"]
    with b:
        a = scale()(x, w, name="first")
        c = exp(a)
    d = b.block(scale(is_exp=True), c, w)
    module = b.finish(b.block(scale(is_exp=True), d, w))
    assert module == Module.of_hir(hir)


def test_a_mir_graph_can_be_wrapped_node_by_node(hir):
    mir = Module.of_hir(hir).lower().mir
    b = HirBuilder("blocks")
    x, w = b.input("x", "f32[4]"), b.param("w", "f32[4]")
    assert b.finish(b.wrap(mir, {"x": x, "w": w})).lower() == Module.of_hir(hir).lower()


def test_extended_appends_to_a_module(hir):
    module = Module.of_hir(hir).extended(lambda y: (negative(y), y))
    assert module.hir.output_types == (spec("f32[4]"),) * 2
    assert len(module.hir.nodes) == len(hir.nodes) + 1


def test_binding_keeps_the_stage():
    b = Builder()
    with building(b):
        graph = b.finish([exp(b.input("x", spec("f32[n]")))])
    assert Module.of_mir(graph).bound(DimBinding.of(n=3)).mir.output_types == (spec("f32[3]"),)


def test_the_fingerprint_covers_stage_and_policy(hir):
    module = Module.of_hir(hir)
    made = [module, module.with_policy("fusable"), module.lower(), module.lower("fusable")]
    assert len({m.fingerprint() for m in made}) == 4
