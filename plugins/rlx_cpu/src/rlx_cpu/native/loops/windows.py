"""Places side by side whose windows overlap: a unit takes several of them, and reads what they share once.

A depthwise convolution or a pool with channels last reads every element of its operand for each place whose window has it, and
all weights for each place. Taken one place after the other, most of its work is loads. So a unit has as many places as there
are registers for their sums, and along the innermost axis of the window each step is written out: which places read the same
address is then known. Every place still adds up its own terms in the order of the row.
"""

from __future__ import annotations

from rlx_core.codegen.loops import Bound, Kernel, Load
from rlx_core.system.records import frozen
from rlx_cpu.native.llvm.sizes import is_known

_MOST_TERMS = 128
"""Terms of a window from which on it is a row like any other."""

_MOST_STEPS = 16
"""Steps that are written out, at most."""

_MOST_SUMS = 10
"""Sums in registers: eight hide the latency of a multiply-add, and more make more code and are no faster."""


@frozen
class LaneWindows:
    """The adjacent positions of a unit.

    Attributes:
        axis: The axis of the grid along which they are adjacent.
        places: Number of positions in a unit; the last unit along the axis may have fewer.
        vectors: Number of vectors of the lane axis at each.
        row_axis: The axis of the row whose steps are written out.
    """

    axis: int
    places: int
    vectors: int
    row_axis: int


def windows_of(kernel: Kernel, lane: int, lanes: int, reduces: int, registers: int) -> LaneWindows | None:
    """The windows of a kernel that does nothing but `reduces` reductions, with lanes along the axis `lane` of the grid."""
    rows = [a for a in kernel.row_axes if kernel.extents[a] != 1]
    sizes = [kernel.extents[lane], *(kernel.extents[a] for a in rows)]
    if not rows or not all(map(is_known, sizes)):
        return None
    if kernel.row_size > _MOST_TERMS or kernel.extents[rows[-1]] > _MOST_STEPS:
        return None
    if any(isinstance(v, Bound) for v in kernel.values):
        return None
    axis = next((a for a in reversed(kernel.grid_axes) if a != lane and _overlap(kernel, a, rows[-1])), None)
    if axis is None:
        return None
    vectors = -(-kernel.extents[lane] // lanes)
    together = vectors if kernel.extents[lane] % lanes and vectors <= 2 else 1
    max_places = min(registers // 2, _MOST_SUMS) // reduces // together
    if max_places < 2:
        return None
    return LaneWindows(axis, _evenly(kernel.extents[axis], max_places), together, rows[-1])


def _overlap(kernel: Kernel, axis: int, row_axis: int) -> bool:
    """Return whether neighbours along an axis of the grid read some of the same elements."""
    size, steps = kernel.extents[axis], kernel.extents[row_axis]
    if not is_known(size) or size < 2:
        return False
    for value in kernel.values:
        if isinstance(value, Load) and is_known(value.strides[axis]) and is_known(value.strides[row_axis]):
            distance, step = abs(value.strides[axis]), abs(value.strides[row_axis])
            if step and 0 < distance < step * steps and 0 in (distance % step, step % distance):
                return True
    return False


def _evenly(size: int, limit: int) -> int:
    """Return how many places make a unit: a divisor of all, if there is one that is not small; else the last unit has fewer."""
    for places in range(min(size, limit), limit // 2, -1):
        if size % places == 0:
            return places
    return -(-size // -(-size // limit))
