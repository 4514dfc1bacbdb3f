"""Kernels that only move, or combine in one order: their results are the reference's bits, for any number of threads."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Any

import numpy as np
from harness import Kernel, kernel, place_of

from rlx_core.ir.dtypes import DType, dtype
from rlx_core.ir.graph import as_results
from rlx_core.ir.op import Op
from rlx_core.testing.cases import OpProgram
from rlx_cpu.native.contract import Emit
from rlx_cpu.native.llvm.isa import Isa, available

__all__ = ["agrees", "all_agree", "drawn"]


def drawn(program: OpProgram) -> list[np.ndarray | None]:
    """Arrays for the node of a program; the casts that promotion inserts are nodes of their own."""
    arrays = iter(program.draw())
    return [None if v is None else next(arrays).astype(v.dtype.numpy) for v in program.node.operands]


def wide(x: np.ndarray) -> np.ndarray:
    """Two-byte floats as f32, exactly; anything else as it is."""
    return x.astype(np.float32) if dtype(x.dtype).is_narrow else x


def bits(x: np.ndarray) -> bytes:
    """The bytes of an array, with one NaN of a narrow float for all: which one a conversion makes is no part of a result."""
    x = np.ascontiguousarray(x)
    if dtype(x.dtype).is_narrow:
        x = np.where(np.isnan(x), np.asarray(np.nan, x.dtype), x)
    return x.tobytes()


def agrees(
    emit: Emit, op: Op, operands: Sequence[np.ndarray | None], isa: Isa | None = None, shifts: Sequence[int] = (0,)
) -> None:
    """One, two and three threads give the very bits that the op's reference gives, or its decomposition where it has none.

    Args:
        shifts: Bytes after a cache line where results begin, one after the other.
    """
    all_agree(emit, op, [operands], isa, shifts)


def all_agree(
    emit: Emit,
    op: Op,
    calls: Sequence[Sequence[np.ndarray | None]],
    isa: Isa | None = None,
    shifts: Sequence[int] = (0,),
) -> None:
    """The same for operands of several calls, which lie alike: one kernel serves all of them."""
    made = kernel(emit, op, calls[0], isa or available()[0])
    for operands in calls:
        assert [None if x is None else place_of(x) for x in operands] == list(made.layout.operands)
        _agrees(made, op, operands, shifts)


def _agrees(made: Kernel, op: Op, operands: Sequence[np.ndarray | None], shifts: Sequence[int]) -> None:
    meaning: Any = op if op.reference is None else op.reference
    with np.errstate(all="ignore"):
        # As the interpreter does it: references never see two-byte floats, and results are rounded once.
        expected = as_results(meaning(*(None if x is None else wide(x) for x in operands)))
    with np.errstate(invalid="ignore"):  # to look at a signalling NaN is already an invalid operation
        wanted = [
            bits(_declared(result, place.type.dtype))
            for result, place in zip(expected, made.layout.results, strict=True)
        ]
        for threads, shift in product((1, 2, 3), shifts):
            assert [bits(found) for found in made(*operands, threads=threads, shift=shift)] == wanted


def _declared(result: np.ndarray, type: DType) -> np.ndarray:
    """A reference's result as the declared dtype has it: narrow floats are rounded, positions may be short integers."""
    if type.is_narrow or (type.is_integer and result.dtype == np.int64):
        return result.astype(type.numpy)
    assert result.dtype == type.numpy
    return result
