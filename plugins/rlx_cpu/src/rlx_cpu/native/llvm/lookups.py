"""Lookups in tables of up to sixteen entries, by instructions that permute the elements of registers.

Bytes are looked up by `pshufb` and `tbl`; f32 by `vpermps`, of which tables of two registers need two, and a selection.
"""

from __future__ import annotations

from typing import Final

from rlx_core.ir.dtypes import DType, f32
from rlx_cpu.native.llvm import ir
from rlx_cpu.native.llvm.build import FLOAT, I8, I32, address, shuffled
from rlx_cpu.native.llvm.ir.functions import declare
from rlx_cpu.native.llvm.ir.numbers import constant
from rlx_cpu.native.llvm.isa import Isa

PERMUTES: Final = {32: "llvm.x86.avx2.permps", 64: "llvm.x86.avx512.permvar.sf.512"}
"""The intrinsic for f32 by the bytes of a vector; it takes the number of an element from the lowest bits of an index."""

BYTES: Final = 16
"""Entries of a table of bytes, and of a register."""


def shuffle_of(isa: Isa) -> str | None:
    """Return the intrinsic that looks up bytes in a register of sixteen; `None` if the set has none."""
    if isa.arch == "aarch64":
        return "llvm.aarch64.neon.tbl1.v16i8"
    return "llvm.x86.ssse3.pshuf.b.128" if isa.vector_bytes in PERMUTES else None


def has_lookup(isa: Isa, dtype: DType, entries: int, lanes: int) -> bool:
    """Return whether a set looks up vectors of so many lanes in a table of so many entries, which fills whole registers."""
    if dtype.itemsize == 1 and dtype.is_integer:
        return entries == BYTES and lanes <= BYTES and shuffle_of(isa) is not None
    is_permuted = isa.arch == "x86_64" and isa.vector_bytes in PERMUTES and lanes == isa.lanes(f32)
    return dtype is f32 and is_permuted and entries in (isa.lanes(f32), BYTES)


def lookup(
    b: ir.IRBuilder, isa: Isa, dtype: DType, table: ir.LlvmValue, entries: int, indices: ir.LlvmValue, lanes: int
) -> ir.LlvmValue:
    """Return the entries of the table at an address for a vector of indices inside of it, i64; `has_lookup` holds."""
    return permuted(b, isa, table, entries, indices) if dtype is f32 else shuffled_bytes(b, isa, table, indices, lanes)


def permuted(b: ir.IRBuilder, isa: Isa, table: ir.LlvmValue, entries: int, indices: ir.LlvmValue) -> ir.LlvmValue:
    """Return entries of f32."""
    lanes = isa.lanes(f32)
    type, places = ir.VectorType(FLOAT, lanes), ir.VectorType(I32, lanes)
    numbers = b.trunc(indices, places)
    permute = declare(b.module, PERMUTES[isa.vector_bytes], type, [type, places])
    registers = [
        b.call(permute, [b.load(address(b, table, first * f32.itemsize), typ=type, align=f32.itemsize), numbers])
        for first in range(0, entries, lanes)
    ]
    if len(registers) == 1:
        return registers[0]
    low, high = registers
    return b.select(b.icmp_unsigned("<", numbers, constant(places, lanes)), low, high)


def shuffled_bytes(b: ir.IRBuilder, isa: Isa, table: ir.LlvmValue, indices: ir.LlvmValue, lanes: int) -> ir.LlvmValue:
    """Return entries of bytes, of up to sixteen lanes."""
    register, narrow = ir.VectorType(I8, BYTES), ir.VectorType(I8, lanes)
    name = shuffle_of(isa)
    assert name is not None and lanes <= BYTES, "the set has the instruction"  # noqa: PT018
    numbers = b.trunc(indices, narrow)
    if lanes < BYTES:
        numbers = shuffled(b, numbers, constant(narrow, 0), [min(i, lanes) for i in range(BYTES)])
    looked_up = b.call(
        declare(b.module, name, register, [register, register]), [b.load(table, typ=register, align=1), numbers]
    )
    return shuffled(b, looked_up, ir.LlvmConstant(register, ir.Undefined), range(lanes)) if lanes < BYTES else looked_up
