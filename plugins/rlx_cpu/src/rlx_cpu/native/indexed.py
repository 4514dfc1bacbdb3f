"""What reading and writing at indices share: a problem in five sizes, and the code that makes an index safe.

Whatever the axes of an op are, batch axes are one axis here, and so are the axes before, at and after the indexed one:
table[b, o, n, d], cells[b, o, i, d] (what is read or written), indices[b, i].
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod

from attrs import frozen

from rlx_core.ir.dtypes import DType
from rlx_core.ir.types import TensorType, normalize_axis
from rlx_core.ops.indexing import OutOfBounds
from rlx_cpu.native import ir
from rlx_cpu.native.build import I64, address, memory_type
from rlx_cpu.native.contract import Fault
from rlx_cpu.native.simd import counting, index, offset

__all__ = ["Indexing", "check_indices", "fault_of", "with_index"]


@frozen
class Indexing:
    """A gather or a scatter, all dense.

    Attributes:
        batch, outer, size, count, inner: B, O, N, I and D.
        dtype: Of the indices.
        oob: What an index outside means. Nothing can be clipped to an axis without elements, so that is an error.
    """

    batch: int
    outer: int
    size: int
    count: int
    inner: int
    dtype: DType
    oob: OutOfBounds

    @classmethod
    def of(cls, table: TensorType, indices: TensorType, axis: int, batch_dims: int, oob: OutOfBounds) -> Indexing:
        shape, place = table.static_shape, normalize_axis(axis, table.rank)
        size = shape[place]
        return cls(
            batch=prod(shape[:batch_dims]),
            outer=prod(shape[batch_dims:place]),
            size=size,
            count=prod(indices.static_shape[batch_dims:]),
            inner=prod(shape[place + 1 :]),
            dtype=indices.dtype,
            oob="error" if oob == "clip" and size == 0 else oob,
        )

    @property
    def lines(self) -> int:
        """Pairs of b and o: each is a table of its own."""
        return self.batch * self.outer

    @property
    def has_fault(self) -> bool:
        return self.oob == "error" and self.count > 0


def fault_of(problem: Indexing, title: str) -> Fault | None:
    """What to say of an index outside, if that is a fault."""
    if not problem.has_fault:
        return None
    return Fault(f"{title}: index {{}} is outside an axis of {problem.size} elements")


def with_index(
    b: ir.IRBuilder,
    problem: Indexing,
    indices: ir.Value,
    number: ir.Value,
    status: ir.Value | None,
    use: Callable[[ir.Value], None],
    otherwise: Callable[[], None] | None = None,
) -> None:
    """Code that uses index `number` where it is inside, or reports it, or does `otherwise`.

    Args:
        status: Words for the first index outside that this thread meets; `None` where it is no fault.
    """
    itemsize = problem.dtype.itemsize
    raw = b.load(offset(b, indices, (number, itemsize)), typ=memory_type(problem.dtype), align=itemsize)
    place = raw if itemsize == 8 else (b.sext if problem.dtype.kind == "int" else b.zext)(raw, I64)
    inside = b.icmp_unsigned("<", place, index(problem.size))
    if problem.oob == "clip":
        # As a signed number a huge unsigned one is negative too, but its nearest end is the last.
        is_low = b.icmp_signed("<", place, index(0)) if problem.dtype.kind == "int" else ir.Constant(ir.IntType(1), 0)
        nearest = b.select(is_low, index(0), index(problem.size - 1))
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


def check_indices(b: ir.IRBuilder, problem: Indexing, indices: ir.Value, status: ir.Value) -> None:
    """Report an index outside where there is nothing to read or write."""
    with counting(b, 0, problem.batch * problem.count) as i:
        with_index(b, problem, indices, i, status, lambda place: None)


def _report(b: ir.IRBuilder, status: ir.Value, place: ir.Value) -> None:
    is_first = b.icmp_unsigned("==", b.load(status, typ=I64, align=8), index(0))
    with b.if_then(is_first):
        b.store(place, address(b, status, 8), align=8)
        b.store(index(1), status, align=8)
