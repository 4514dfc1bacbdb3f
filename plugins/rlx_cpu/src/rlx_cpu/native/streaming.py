"""Large results go past the caches: a line that is written whole need not be read first, and displaces nothing.

A store past the caches (a *streaming* store) writes to memory a cache line that the processor has collected. So a line is
streamed only by a piece of code that writes all of it, with vectors on its boundaries; a line that two pieces share (the end of
one row and the beginning of the next, say) is written by ordinary stores alone, because one that is written both ways is slow.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rlx_cpu.native import ir
from rlx_cpu.native.build import CACHE_LINE, I64, VOID, align_of, declare, width
from rlx_cpu.native.isa import Isa
from rlx_cpu.native.simd import index

__all__ = ["STREAMED", "either_way", "store_streamed"]

STREAMED = 1 << 24
"""Bytes of a result from which it is streamed: a smaller one may still lie in a cache when it is read."""


def either_way(
    b: ir.IRBuilder, isa: Isa, nbytes: int, results: Sequence[ir.Value], write: Callable[[bool], None]
) -> None:
    """Code of one thread's part: written twice where results are large, with streaming stores if they begin at a cache line.

    Args:
        nbytes: Of all results that may be streamed.
        results: Where they begin.
        write: Builds the code; is told whether it streams.
    """
    if isa.fence is None or nbytes < STREAMED:
        write(False)
        return
    starts = index(0)
    for result in results:
        starts = b.or_(starts, b.ptrtoint(result, I64))
    is_at_line = b.icmp_unsigned("==", b.and_(starts, index(CACHE_LINE - 1)), index(0))
    with b.if_else(is_at_line) as (then, otherwise):
        with then:
            write(True)
            b.call(declare(b.module, isa.fence, VOID, []), [])
        with otherwise:
            write(False)


def store_streamed(b: ir.IRBuilder, value: ir.Value, place: ir.Value) -> None:
    """A vector past the caches, at a multiple of its size."""
    b.store(value, place, align=width(value) * align_of(value.type), is_streamed=True)
