"""f32 functions in sixteen pieces whose coefficients lie in registers: AVX-512 picks one for each lane with one instruction.

A division, or a second branch for large arguments, costs more than a permutation a coefficient. Which piece a lane is in are
four bits of `scale·u + 1`: the last two of its exponent and the first two of its mantissa.
"""

from __future__ import annotations

from collections.abc import Sequence

from rlx_cpu.native import ir
from rlx_cpu.native.build import I32, constant, declare, is_floating, width
from rlx_cpu.native.floats import bits, fma, is_double

__all__ = ["has_pieces", "picked", "piecewise", "replaced"]

LANES = 16


def has_pieces(x: ir.Value) -> bool:
    """Whether these are registers of AVX-512, the only set with sixteen lanes of f32."""
    return width(x) == LANES and is_floating(x.type) and not is_double(x)


def picked(b: ir.IRBuilder, table: Sequence[float], index: ir.Value) -> ir.Value:
    """The entry of sixteen that the last four bits of each lane of `index` say."""
    entries = ir.Constant(ir.VectorType(ir.FloatType(), LANES), [constant(ir.FloatType(), c) for c in table])
    name = "llvm.x86.avx512.permvar.sf.512"
    return b.call(declare(b.module, name, entries.type, [entries.type, index.type]), [entries, index])


def piecewise(b: ir.IRBuilder, u: ir.Value, scale: float, rows: Sequence[Sequence[float]]) -> ir.Value:
    """The function that `rows` say at u, for 0 <= scale·u < 15; NaN where u is.

    The distance from a piece's centre is exact, and so is the constant term, so that little more than the last sum rounds.
    """
    one = constant(u.type, 1.0)
    place = bits(b, fma(b, u, constant(u.type, scale), one) if scale != 1.0 else b.fadd(u, one))
    index = b.lshr(place, constant(place.type, 21))
    centres, *powers = rows
    t = b.fsub(u, picked(b, centres, index))
    total = picked(b, powers[-1], index)
    for row in reversed(powers[:-1]):
        total = fma(b, total, t, picked(b, row, index))
    return total


def replaced(b: ir.IRBuilder, x: ir.Value, answers: int) -> ir.Value:
    """Something for each kind of x, in one instruction.

    Args:
        answers: Four bits a kind, from the lowest up: quiet NaN, signalling NaN, 0, 1, -inf, inf, another negative or positive
            number. Answers are 1 for x itself, 2 for x as a quiet NaN, 3 for NaN, 7 for -0.
    """
    name, mask = "llvm.x86.avx512.mask.fixupimm.ps.512", ir.Constant(ir.IntType(LANES), 0xFFFF)
    table = constant(ir.VectorType(I32, LANES), answers)
    function = declare(b.module, name, x.type, [x.type, x.type, table.type, I32, mask.type, I32])
    return b.call(function, [x, x, table, ir.Constant(I32, 0), mask, ir.Constant(I32, 4)])
