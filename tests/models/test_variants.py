"""Variants, component keys, reflection and the layout of weights."""

import pytest

from rlx_core.errors import BindingError, ConfigError, ShapeError
from rlx_core.ir.dims import BATCH, SEQ, DimBinding
from rlx_core.ir.graph import Builder, building
from rlx_core.ir.module import Module
from rlx_core.ir.types import TensorType, spec
from rlx_core.models.reflect import binding_manifest, reflect
from rlx_core.models.variants import ModelComponent, PhaseVariant
from rlx_core.ops.activation import exp
from rlx_core.ops.arithmetic import add


def test_bindings_and_keys_of_each_phase():
    prefill = PhaseVariant("prefill", batch=2, seq=128)
    decode = PhaseVariant("decode", batch=2, past_seq=128)
    assert prefill.binding == DimBinding.of(BATCH=2, SEQ=128, ROWS=256)
    assert decode.binding == DimBinding.of(BATCH=2, SEQ=1, ROWS=2, PAST_SEQ=128)
    assert PhaseVariant("encoder", 1, 8, extra={"heads": 4}).binding == DimBinding.of(BATCH=1, SEQ=8, ROWS=8, heads=4)
    assert (prefill.key, decode.key) == ("prefill-b2-s128", "decode-b2-s1-p128")


@pytest.mark.parametrize(
    ("make", "error", "says"),
    [
        (lambda: PhaseVariant("decode"), BindingError, "decode needs past_seq"),
        (lambda: PhaseVariant("prefill", past_seq=3), BindingError, "prefill has no past_seq"),
        (lambda: PhaseVariant("decode", seq=2, past_seq=3), BindingError, "1 token a call, not 2"),
        (lambda: PhaseVariant("encoder", extra={"SEQ": 3}), BindingError, "SEQ is given"),
        (lambda: PhaseVariant("encode"), ConfigError, "'encode'"),
        (lambda: PhaseVariant("encoder", batch=-1).binding, BindingError, "BATCH"),
    ],
)
def test_variants_that_make_no_sense_are_refused(make, error, says):
    with pytest.raises(error, match=says):
        make()


def module(op=exp):
    b = Builder()
    x = b.input("x", TensorType(spec("f32[]").dtype, (BATCH, SEQ)))
    with building(b):
        return Module.of_mir(b.finish([op(x)]))


def test_the_key_of_a_component_changes_with_each_part():
    base = ModelComponent(module(), PhaseVariant("prefill", seq=8))
    others = [
        ModelComponent(module(lambda x: exp(exp(x))), PhaseVariant("prefill", seq=8)),
        ModelComponent(module(), PhaseVariant("prefill", seq=9)),
        ModelComponent(module(), PhaseVariant("prefill", seq=8), "aot"),
        ModelComponent(module(), PhaseVariant("prefill", seq=8), profile={"precision": "bf16"}),
    ]
    assert len({c.key for c in (base, *others)}) == 5
    assert ModelComponent(module(), PhaseVariant("prefill", seq=8)).key == base.key


def test_a_component_binds_its_module():
    bound = ModelComponent(module(), PhaseVariant("prefill", batch=2, seq=8)).bound()
    assert bound.mir.output_types == (spec("f32[2, 8]"),)


def model():
    b = Builder()
    x = b.input("x", spec("f32[5]"))
    with building(b):
        for name in ("enc.1.w", "enc.0.w", "head.b", "scale"):
            x = add(x, b.param(name, spec("f32[5]")))
    return b.finish([x])


def test_reflection_lists_names_and_types_in_calling_order():
    found = reflect(model(), ["y"])
    assert [(p.name, str(p.type)) for p in found.inputs] == [("x", "f32[5]")]
    assert [p.name for p in found.params] == ["enc.1.w", "enc.0.w", "head.b", "scale"]
    assert [(p.name, str(p.type)) for p in found.outputs] == [("y", "f32[5]")]


def test_the_manifest_lays_weights_out_by_name_without_overlap():
    found = binding_manifest(model(), alignment=64)
    assert [(p.name, p.offset, p.nbytes) for p in found.places] == [
        ("enc.0.w", 0, 20),
        ("enc.1.w", 64, 20),
        ("head.b", 128, 20),
        ("scale", 192, 20),
    ]
    assert found.nbytes == 212  # the region ends with the last weight: no gap after it
    assert {prefix: len(places) for prefix, places in found.blocks().items()} == {"enc": 2, "head": 1, "": 1}
    assert set(found.blocks(depth=2)) == {"enc.0", "enc.1", "head", ""}
    assert found.find("head.b").end == 148


def test_a_param_of_unknown_size_has_no_place():
    b = Builder()
    b.param("w", spec("f32[n]"))
    with pytest.raises(ShapeError, match="param w is"):
        binding_manifest(b.finish([]))
