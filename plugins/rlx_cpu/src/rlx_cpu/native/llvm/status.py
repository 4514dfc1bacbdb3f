"""Stores into a function's status words for input that its op does not accept."""

from __future__ import annotations

from rlx_cpu.native.llvm import ir
from rlx_cpu.native.llvm.build import I64, address
from rlx_cpu.native.llvm.simd import index


def report_lowest(b: ir.IRBuilder, status: ir.LlvmValue, number: ir.LlvmValue) -> None:
    """Report a number unless a lower one is reported by any thread: the raised error does not depend on their order."""
    b.atomic_rmw("min", address(b, status, 8), number, "monotonic")
    b.store(index(1), status, align=8)


def is_lowest(b: ir.IRBuilder, status: ir.LlvmValue, number: ir.LlvmValue) -> ir.LlvmValue:
    """Return whether no number up to this one is reported so far."""
    return b.icmp_signed("<", number, b.load_atomic(address(b, status, 8), "monotonic", 8, typ=I64))
