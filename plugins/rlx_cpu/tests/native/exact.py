"""Kernels that only move, or combine in one order: their results are the reference's bits, for any number of threads."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from harness import kernel

from rlx_core.ir.graph import as_results
from rlx_core.ir.op import Op
from rlx_core.testing.cases import Program
from rlx_cpu.native.contract import Emit
from rlx_cpu.native.isa import Isa, available

__all__ = ["agrees", "drawn"]


def drawn(program: Program) -> list[np.ndarray | None]:
    """Arrays for the node of a program; the casts that promotion inserts are nodes of their own."""
    arrays = iter(program.draw())
    return [None if v is None else next(arrays).astype(v.dtype.numpy) for v in program.node.operands]


def agrees(emit: Emit, op: Op, operands: Sequence[np.ndarray | None], isa: Isa | None = None) -> None:
    """One, two and three threads give the very bits that the op's reference gives."""
    assert op.reference is not None, f"{op.name} is a primitive"
    with np.errstate(all="ignore"):
        expected = as_results(op.reference(*operands))
    made = kernel(emit, op, operands, isa or available()[0])
    for threads in (1, 2, 3):
        for found, wanted in zip(made(*operands, threads=threads), expected, strict=True):
            assert found.dtype == wanted.dtype
            assert np.ascontiguousarray(found).tobytes() == np.ascontiguousarray(wanted).tobytes()
