"""The code that makes an index safe: what reading and writing at indices share."""

from __future__ import annotations

from collections.abc import Callable

from rlx_core.codegen.indexing import Indexing
from rlx_cpu.native.llvm import ir
from rlx_cpu.native.llvm.build import I64, address, memory_type
from rlx_cpu.native.llvm.simd import counting, index, offset
from rlx_cpu.native.llvm.sizes import sized


def with_index(
    b: ir.IRBuilder,
    problem: Indexing,
    indices: ir.LlvmValue,
    number: ir.LlvmValue,
    status: ir.LlvmValue | None,
    use: Callable[[ir.LlvmValue], None],
    otherwise: Callable[[], None] | None = None,
) -> None:
    """Code that uses index `number` where it is inside, or reports it, or does `otherwise`.

    Args:
        status: Words for the first index outside that this thread meets; `None` where it is no fault.
    """
    itemsize = problem.dtype.itemsize
    raw = b.load(offset(b, indices, (number, itemsize)), typ=memory_type(problem.dtype), align=itemsize)
    place = raw if itemsize == 8 else (b.sext if problem.dtype.kind == "int" else b.zext)(raw, I64)
    inside = b.icmp_unsigned("<", place, sized(b, problem.size))
    if problem.oob == "clip":
        # As a signed number a huge unsigned one is negative too, but its nearest end is the last.
        is_low = (
            b.icmp_signed("<", place, index(0)) if problem.dtype.kind == "int" else ir.LlvmConstant(ir.IntType(1), 0)
        )
        nearest = b.select(is_low, index(0), sized(b, problem.size - 1))
        use(b.select(inside, place, nearest))
        return
    with b.if_else(inside, likely=True) as (then, other):
        with then:
            use(place)
        with other:
            if status is not None:
                _report(b, status, place)
            if otherwise is not None:
                otherwise()


def check_indices(b: ir.IRBuilder, problem: Indexing, indices: ir.LlvmValue, status: ir.LlvmValue) -> None:
    """Report an index outside where there is nothing to read or write."""
    with counting(b, 0, problem.batch * problem.count) as i:
        with_index(b, problem, indices, i, status, lambda place: None)


def _report(b: ir.IRBuilder, status: ir.LlvmValue, place: ir.LlvmValue) -> None:
    is_first = b.icmp_unsigned("==", b.load(status, typ=I64, align=8), index(0))
    with b.if_then(is_first):
        b.store(place, address(b, status, 8), align=8)
        b.store(index(1), status, align=8)
