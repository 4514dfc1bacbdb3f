"""f32 functions in sixteen pieces whose coefficients lie in registers: AVX-512 picks one for each lane with one instruction.

A division, or a second branch for large arguments, costs more than a permutation a coefficient. Which piece a lane is in are
four bits of `scale·u + 1`: the last two of its exponent and the first two of its mantissa.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import IntEnum

from rlx_cpu.native.llvm import ir
from rlx_cpu.native.llvm.build import I32
from rlx_cpu.native.llvm.ir.functions import declare
from rlx_cpu.native.llvm.ir.numbers import constant, element_of, width

LANES = 16


def has_pieces(x: ir.LlvmValue) -> bool:
    """Return whether these are registers of AVX-512, the only set with sixteen lanes of f32."""
    return width(x) == LANES and isinstance(element_of(x.type), ir.FloatType)


def picked(b: ir.IRBuilder, table: Sequence[float], index: ir.LlvmValue) -> ir.LlvmValue:
    """The entry of sixteen that the last four bits of each lane of `index` say."""
    entries = ir.LlvmConstant(ir.VectorType(ir.FloatType(), LANES), [constant(ir.FloatType(), c) for c in table])
    name = "llvm.x86.avx512.permvar.sf.512"
    return b.call(declare(b.module, name, entries.type, [entries.type, index.type]), [entries, index])


def piecewise(b: ir.IRBuilder, u: ir.LlvmValue, scale: float, rows: Sequence[Sequence[float]]) -> ir.LlvmValue:
    """The function that `rows` say at u, for 0 <= scale·u < 15; NaN where u is.

    The distance from a piece's centre is exact, and so is the constant term, so that little more than the last sum rounds.
    """
    one = b.constant(u, 1.0)
    place = b.bits(b.fma(u, b.constant(u, scale), one) if scale != 1.0 else b.fadd(u, one))
    index = b.lshr(place, b.constant(place, 21))
    centres, *powers = rows
    t = b.fsub(u, picked(b, centres, index))
    total = picked(b, powers[-1], index)
    for row in reversed(powers[:-1]):
        total = b.fma(total, t, picked(b, row, index))
    return total


class FixupClass(IntEnum):
    """The classes of numbers that `vfixupimmps` distinguishes, by its numbering."""

    QUIET_NAN = 0
    SIGNALLING_NAN = 1
    ZERO = 2
    ONE = 3
    MINUS_INFINITY = 4
    INFINITY = 5
    NEGATIVE = 6
    """Any other below zero."""
    POSITIVE = 7
    """Any other above."""


class FixupResponse(IntEnum):
    """Replacements that the instruction offers, by its codes; only those in use out of sixteen."""

    ITSELF = 1
    QUIETED = 2
    """The number as a quiet NaN."""
    NAN = 3
    MINUS_ZERO = 7


def replaced(b: ir.IRBuilder, x: ir.LlvmValue, answers: Mapping[FixupClass, FixupResponse]) -> ir.LlvmValue:
    """Replace x by a value for each class of x, in one instruction; x itself for classes without an answer."""
    name, mask = "llvm.x86.avx512.mask.fixupimm.ps.512", ir.LlvmConstant(ir.IntType(LANES), 0xFFFF)
    # Four bits per kind, from the lowest up.
    table = constant(
        ir.VectorType(I32, LANES), sum(answers.get(kind, FixupResponse.ITSELF) << 4 * kind for kind in FixupClass)
    )
    function = declare(b.module, name, x.type, [x.type, x.type, table.type, I32, mask.type, I32])
    return b.call(function, [x, x, table, ir.LlvmConstant(I32, 0), mask, ir.LlvmConstant(I32, 4)])
