"""Large results go past the caches: a line that is written whole need not be read first, and displaces nothing.

A *nontemporal* store writes to memory a cache line that the processor has collected. So a line is stored
so only by a piece of code that writes all of it, with vectors on its boundaries; a line that two pieces share (the end of
one row and the beginning of the next, say) is written by ordinary stores alone, because one that is written both ways is slow.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from itertools import product

from rlx_cpu.native.llvm import ir
from rlx_cpu.native.llvm.build import CACHE_LINE, I64, VOID, align_of
from rlx_cpu.native.llvm.ir.functions import declare
from rlx_cpu.native.llvm.ir.numbers import width
from rlx_cpu.native.llvm.isa import Isa
from rlx_cpu.native.llvm.simd import index

SMALLEST = 16
"""Bytes of the smallest vector that is stored so."""


def wants_nontemporal(isa: Isa, nbytes: int, vector: int = SMALLEST) -> bool:
    """Whether a result of `nbytes` is worth storing past the caches, and there are instructions for vectors of that size."""
    return isa.fence is not None and nbytes >= isa.machine.nontemporal_nbytes and vector >= SMALLEST


def either_way(
    b: ir.IRBuilder,
    isa: Isa,
    results: Sequence[ir.LlvmValue],
    write: Callable[[bool], None],
    operands: Sequence[ir.LlvmValue] = (),
) -> None:
    """Emit one thread's part: twice if there are large results, once with nontemporal stores for results aligned to cache
    lines.

    Args:
        results: Start addresses of the large results.
        write: Builds the code; its argument is whether it uses nontemporal stores.
        operands: Operands whose memory results may reuse: those lines are cached when they are written, so no store is
            nontemporal.
    """
    if not results or isa.fence is None:
        write(False)
        return
    starts = [b.ptrtoint(result, I64) for result in results]
    is_possible = b.icmp_unsigned("==", b.and_(reduce(b.or_, starts), index(CACHE_LINE - 1)), index(0))
    for operand, start in product(operands, starts):
        is_possible = b.and_(is_possible, b.icmp_unsigned("!=", b.ptrtoint(operand, I64), start))
    with b.if_else(is_possible) as (then, otherwise):
        with then:
            write(True)
            b.call(declare(b.module, isa.fence, VOID, []), [])
        with otherwise:
            write(False)


def store_nontemporal(b: ir.IRBuilder, value: ir.LlvmValue, place: ir.LlvmValue) -> None:
    """A vector past the caches, at a multiple of its size."""
    b.store(value, place, align=width(value) * align_of(value.type), is_nontemporal=True)
