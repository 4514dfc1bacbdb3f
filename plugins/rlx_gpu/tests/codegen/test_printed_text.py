"""The text of a few functions in every language, and what the text of any function keeps to."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from attrs import evolve

from plugins.rlx_gpu.tests.codegen.cases import printed
from rlx_core.codegen.loops import Buffer, Kernel, Load, Store
from rlx_core.ir.dtypes import ALL, c64, f32, f64, i64
from rlx_core.ops.activation import erf, exp, sqrt
from rlx_core.ops.arithmetic import add, maximum, multiply, remainder
from rlx_core.ops.conversion import Cast
from rlx_core.ops.indexing import Gather
from rlx_core.ops.region import ElementwiseRegion, RegionStep
from rlx_core.ops.structural import Sum
from rlx_gpu.codegen.cuda import CUDA, HIP
from rlx_gpu.codegen.kernels import refusal
from rlx_gpu.codegen.languages import GpuDialect
from rlx_gpu.codegen.metal import METAL
from rlx_gpu.codegen.opencl import OPENCL
from rlx_gpu.codegen.scalars import scalars_of
from rlx_gpu.codegen.sources import source_of
from rlx_gpu.codegen.walks import Machine
from rlx_gpu.codegen.wgsl import WGSL
from tests.codegen.kernels import kernel

LANGUAGES = (OPENCL, CUDA, HIP, METAL, WGSL)

EXPECTED = Path(__file__).parent / "expected"

FUNCTIONS = {
    "points": (kernel(add.op(), "f32[300]", "f32[300]"), Machine()),
    "neighbours": (kernel(Cast(f32), "bf16[8]"), Machine(wide_points=0)),
    "row": (kernel(Sum(axes=(1,)), "f32[3, 40]"), Machine(group=32)),
    "index": (kernel(Gather(0), "f32[9, 4]", "i64[5]"), Machine()),
}


@pytest.mark.parametrize("language", LANGUAGES, ids=lambda language: language.name)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_the_text_is_the_expected_one(name: str, language: GpuDialect, pytestconfig: pytest.Config) -> None:
    """`pytest --update` writes it, and a person reads the difference."""
    one, machine = FUNCTIONS[name]
    machine = evolve(machine, subgroup=32) if language.exchanged_dtypes else machine
    source = source_of(printed(one, language, machine).functions, language)
    path = EXPECTED / f"{name}{language.suffix}"
    if pytestconfig.getoption("--update"):
        path.write_text(source)
    assert source == path.read_text()


@pytest.mark.parametrize("language", LANGUAGES, ids=lambda language: language.name)
def test_equal_kernels_are_one_function_whatever_their_buffers_are_called(language: GpuDialect) -> None:
    first = kernel(exp.op(), "f32[40]")
    other = evolve(first, buffers=(Buffer("weights", f32), Buffer("gradients", f32, True)))
    beside = evolve(
        first,
        buffers=(Buffer("unused", i64), *first.buffers),
        values=tuple(evolve(v, buffer=1) if isinstance(v, Load) else v for v in first.values),
        stores=tuple(evolve(s, buffer=2) for s in first.stores),
    )
    made = [printed(k, language, Machine()).calls[0] for k in (first, other, beside)]
    assert len({call.function for call in made}) == 1
    assert made[2].buffers == (1, 2)


def test_a_module_holds_of_the_prelude_what_is_used() -> None:
    source = source_of(printed(kernel(sqrt.op(), "f32[4]"), OPENCL, Machine()).functions, OPENCL)
    assert "rlx_f32_of_bf16" not in source
    narrow = source_of(printed(kernel(Cast(f32), "bf16[4]"), OPENCL, Machine()).functions, OPENCL)
    assert narrow.index("f32 rlx_f32_of_u32(") < narrow.index("f32 rlx_f32_of_bf16(") < narrow.index("__kernel")


def test_a_function_of_the_language_is_called_where_it_promises_enough() -> None:
    """OpenCL promises 16 ulp for erf and 3 for exp; CUDA 2 for either."""
    for language, op, is_called in ((OPENCL, erf, False), (OPENCL, exp, True), (CUDA, erf, True), (WGSL, exp, False)):
        source = source_of(printed(kernel(op.op(), "f32[4]"), language, Machine()).functions, language)
        assert (f"= {op.op.name.removeprefix('rlx.')}(" in source) == is_called, (language.name, op)


def test_a_remainder_is_exact_in_languages_whose_own_is_not() -> None:
    one = kernel(remainder.op(), "f32[4]", "f32[4]")
    for language, is_called in ((OPENCL, True), (CUDA, True), (METAL, False), (WGSL, False)):
        source = source_of(printed(one, language, Machine()).functions, language)
        assert ("fmod(" in source) == is_called
        assert ("rlx_remainder" in source) != is_called


def test_what_a_language_lacks_is_refused_by_name() -> None:
    wide = kernel(maximum.op(), "f64[4]", "f64[4]")
    assert refusal(wide, OPENCL, scalars_of(OPENCL)) is None
    assert refusal(wide, WGSL, scalars_of(WGSL)) == "f64 in wgsl"
    assert refusal(wide, METAL, scalars_of(METAL)) == "f64 in metal"
    copied = Kernel(
        "copy", (4,), 1, (Buffer("x", c64), Buffer("y", c64, True)), (Load(0, c64, (8,)),), (Store(1, 0, (8,)),)
    )
    for language in LANGUAGES:
        assert refusal(copied, language, scalars_of(language)) == f"c64 in {language.name}"
    apart = Kernel(
        "copy", (4,), 1, (Buffer("x", f32), Buffer("y", f32, True)), (Load(0, f32, (6,)),), (Store(1, 0, (4,)),)
    )
    assert refusal(apart, CUDA, scalars_of(CUDA)) == "x in steps of whole elements of 4 bytes"


def test_indices_are_as_wide_as_the_elements_need() -> None:
    """What lies beyond 2**31 elements is reached with 64 bits, and refused where the language has none."""
    near, far = kernel(exp.op(), "f32[2147483647]"), kernel(exp.op(), "f32[2147483648]")
    assert "for (u32 i = rlx_group()" in printed(near, OPENCL, Machine()).functions[0].text
    text = printed(far, OPENCL, Machine()).functions[0].text
    assert "for (u64 i = (u64)rlx_group()" in text
    assert "u32 i" not in text
    assert "u32 g0" not in text
    assert refusal(near, WGSL, scalars_of(WGSL)) is None
    assert refusal(far, WGSL, scalars_of(WGSL)) == "fewer than 2147483648 elements in wgsl"


def test_every_dtype_is_printed_or_refused() -> None:
    for language in LANGUAGES:
        for d in ALL:
            is_refused = language.refusal(d) is not None
            assert is_refused == (d.is_complex or (d is f64 and language in (METAL, WGSL)))


def test_numbers_are_printed_exactly() -> None:
    for number in (0.1, -2.5, 1e-40, 3.4e38, 2.0**-149, 1 / 3):
        text = OPENCL.literal(f32, number).strip("()").removesuffix("f")
        read = float.fromhex(text) if "x" in text else float(text)
        assert read == float(np.float32(number))
    assert OPENCL.literal(i64, -1) == "((u64)0xffffffffffffffff)"
    assert WGSL.literal(i64, -2) == "vec2<u32>(4294967294u, 4294967295u)"
    assert WGSL.literal(f32, float("-inf")) == "rlx_f32_of_u32(0xff800000u)"
    assert WGSL.literal(f32, -0.0) == "rlx_f32_of_u32(0x80000000u)"


@pytest.mark.parametrize("wide", [0, 1 << 30], ids=["neighbours", "points"])
@pytest.mark.parametrize("language", LANGUAGES, ids=lambda language: language.name)
def test_operands_are_loaded_before_a_result_is_stored(language: GpuDialect, wide: int) -> None:
    """A result may lie in the bytes of an operand that another result still needs."""
    steps = (RegionStep(exp.op(), (0,)), RegionStep(multiply.op(), (1, 2)))
    region = ElementwiseRegion((300,), steps, ((1,), (1,)), (0, 1))
    text = printed(kernel(region, "f32[300]", "f32[300]"), language, Machine(wide_points=wide)).functions[0].text
    body = text.partition("if (i")[2]
    assert body.rindex("m1") < body.index("m2"), text
