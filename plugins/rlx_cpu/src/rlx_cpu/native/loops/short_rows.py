"""Short rows of an element-wise kernel, such as the channels of a place: a unit takes several, and reads once what they share.

A scale and a shift a channel are read again for every row. Where a row has few vectors, those reads and the steps around the
row are most of the work.
"""

from __future__ import annotations

from rlx_core.codegen.loops import Apply, Bound, Kernel, Load, Scalar
from rlx_core.codegen.scalars.long import LONG
from rlx_core.codegen.scalars.standard import IDIOMS
from rlx_core.codegen.schedule import is_expensive
from rlx_cpu.native.llvm.sizes import is_known

_MOST_VECTORS = 8
"""Vectors that are written out, at most, each with all steps of the kernel; of a row half as many."""

_MOST_VALUES = 32
"""Values of a kernel, beyond which the steps are most of the work."""


def rows_at_once(kernel: Kernel, axis: int, lane: int, lanes: int) -> int:
    """Return how many neighbours along `axis` a unit computes, a divisor of their number; 1 if more is no improvement."""
    if not all(map(is_known, kernel.extents)) or len(kernel.values) > _MOST_VALUES:
        return 1
    if any(isinstance(v, Bound) or is_expensive(v) or is_long(v) for v in kernel.values):
        return 1
    if any(a.strides[lane] not in (0, kernel.buffers[a.buffer].accessed.itemsize) for a in kernel.accesses):
        return 1
    if not any(isinstance(v, Load) and v.strides[lane] and not v.strides[axis] for v in kernel.values):
        return 1
    max_rows = _MOST_VECTORS // -(-kernel.extents[lane] // lanes)
    return next((n for n in range(max_rows, 1, -1) if kernel.extents[axis] % n == 0), 1)


def is_long(value: Scalar) -> bool:
    """Return whether a step is one of many instructions."""
    return isinstance(value, Apply) and type(value.op) in (*LONG, *IDIOMS)
