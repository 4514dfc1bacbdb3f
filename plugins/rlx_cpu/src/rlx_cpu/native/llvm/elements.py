"""Loads and stores of elements for kernels other than loop kernels: narrow floats are f32 in registers.

A bool remains the byte that it is in memory: comparisons and combinations here need no more.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rlx_core.ir.dtypes import DType
from rlx_cpu.native.llvm import ir
from rlx_cpu.native.llvm.build import memory_type
from rlx_cpu.native.llvm.ir.numbers import width
from rlx_cpu.native.llvm.isa import Isa
from rlx_cpu.native.llvm.narrow import narrowed, widened
from rlx_cpu.native.llvm.nontemporal import store_nontemporal


def held_type(dtype: DType, lanes: int = 1) -> Any:
    """Return the register type of elements of `dtype`."""
    return memory_type(dtype.accumulator, lanes)


def load_elements(b: ir.IRBuilder, isa: Isa, dtype: DType, place: ir.LlvmValue, lanes: int = 1) -> ir.LlvmValue:
    """`lanes` neighbours from memory."""
    value = b.load(place, typ=memory_type(dtype, lanes), align=dtype.itemsize)
    return widened(b, dtype, value, isa) if dtype.is_narrow else value


def store_elements(
    b: ir.IRBuilder,
    isa: Isa,
    dtype: DType,
    value: ir.LlvmValue,
    place: ir.LlvmValue,
    *,
    is_nontemporal: bool = False,
) -> None:
    """Neighbours to memory, rounded once; whole vectors past the caches if they are nontemporal, which are not rounded."""
    if is_nontemporal and width(value) * dtype.itemsize == isa.vector_bytes:
        store_nontemporal(b, value, place)
        return
    b.store(for_memory(b, isa, dtype, value), place, align=dtype.itemsize)


def for_memory(b: ir.IRBuilder, isa: Isa, dtype: DType, value: ir.LlvmValue) -> ir.LlvmValue:
    """Return a value in registers converted to its memory representation."""
    return narrowed(b, dtype, value, isa) if dtype.is_narrow else value


def pieces(start: int, end: int, lanes: int) -> Iterator[tuple[int, int]]:
    """Yield (place, lanes) of vectors from `start` to `end`, with decreasing widths at the end."""
    while start < end:
        while lanes > end - start:
            lanes //= 2
        yield start, lanes
        start += lanes
