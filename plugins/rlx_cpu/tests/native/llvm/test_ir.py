"""LLVM reads what the builder writes as it was meant: constants to the bit, control, names that are asked for twice."""

from __future__ import annotations

import ctypes
from math import inf, nan
from typing import Any

import numpy as np
import pytest

from rlx_cpu.native.llvm import ir, jit, optimise
from rlx_cpu.native.llvm.build import I64, VOID, counting, variable
from rlx_cpu.native.llvm.isa import host_isa

ISA = host_isa()
FLOATS = {
    "f16": (ir.HalfType(), np.float16, np.uint16),
    "f32": (ir.FloatType(), np.float32, np.uint32),
    "f64": (ir.DoubleType(), np.float64, np.uint64),
}
NUMBERS = (0.0, -0.0, 1.0, -1.5, 1 / 3, 65504.0, 6e-8, 1e-45, 5e-324, inf, -inf, nan)


def built(signature: ir.FunctionType) -> tuple[ir.Module, ir.Function, ir.IRBuilder]:
    module = optimise.new_module("test")
    function = ir.Function(module, signature, "f")
    return module, function, ir.IRBuilder(function.append_basic_block("entry"))


def called(module: ir.Module, *operands: int) -> int:
    """What the module's function `f` of words returns."""
    assert ISA is not None
    code = jit.compile_module(module, ISA)
    word = ctypes.c_int64
    return int(ctypes.CFUNCTYPE(word, *[word] * len(operands))(code.address("f"))(*operands))


@pytest.mark.parametrize("value", NUMBERS, ids=str)
@pytest.mark.parametrize("kind", FLOATS)
def test_a_constant_is_the_number_nearest_to_what_was_said(kind: str, value: float) -> None:
    type, dtype, bits = FLOATS[kind]
    module, _, b = built(ir.FunctionType(I64, []))
    size = 8 * np.dtype(dtype).itemsize
    b.ret(b.zext(b.bitcast(ir.LlvmConstant(type, float(dtype(value))), ir.IntType(size)), I64))
    assert np.array(called(module)).astype(np.uint64).astype(bits) == dtype(value).view(bits)


@pytest.mark.parametrize("items", [[7, 7, 7, 7], [1, -2, 3, -4]], ids=["equal", "different"])
def test_a_vector_has_its_items_in_order(items: list[int]) -> None:
    module, function, b = built(ir.FunctionType(I64, [I64]))
    vector = ir.LlvmConstant(ir.VectorType(I64, 4), items)
    b.ret(b.extract_element(vector, function.args[0]))
    assert [called(module, lane) for lane in range(4)] == items


def test_branches_loops_and_names_asked_for_twice() -> None:
    """The sum of the even numbers below n, less 1 for each odd one."""
    module, function, b = built(ir.FunctionType(I64, [I64]))
    total = variable(b, I64)
    b.store(ir.LlvmConstant(I64, 0), total, align=8)
    with counting(b, 0, function.args[0]) as i:
        is_odd = b.trunc(i, ir.IntType(1))
        with b.if_else(is_odd, likely=False) as (odd, even):
            for side, change in ((odd, ir.LlvmConstant(I64, -1)), (even, i)):
                with side:
                    b.store(b.add(b.load(total, typ=I64, align=8), change), total, align=8)
    b.ret(b.load(total, typ=I64, align=8))
    assert [called(module, n) for n in (0, 1, 2, 7)] == [0, 0, -1, 0 - 1 + 2 - 1 + 4 - 1 + 6]


@pytest.mark.parametrize(
    "mistake",
    [
        lambda b: b.ret_void() or b.ret_void(),
        lambda b: b.phi(I64).add_incoming(ir.LlvmConstant(ir.FloatType(), 1.0), b.block),
        lambda b: ir.LlvmConstant(ir.VectorType(I64, 4), [1, 2]),
        lambda b: b.call(ir.LlvmConstant(ir.PointerType(), None), []),
        lambda b: str(b.module),
    ],
    ids=["two ends", "another type", "too few lanes", "no signature", "no end"],
)
def test_what_llvm_would_not_read_is_not_written(mistake: Any) -> None:
    _, _, b = built(ir.FunctionType(VOID, []))
    with pytest.raises(AssertionError):
        mistake(b)
