"""The backward pass of a stride without products with zeros: cells of the result in phases, which are temporarily channels.

Cell i of the result is reached by element k of the kernel if i + lo = o·stride + k. With i + lo = q·stride + r and k = j·stride
+ r this is o = q - j: for each r < stride a convolution at stride 1 with every stride-th element of the kernel. All of them are
one convolution, whose channels are those of the result times the phases.
"""

from __future__ import annotations

from rlx_core.ir.dims import Dim, floor_quotient, product
from rlx_core.ir.graph import Value
from rlx_core.ir.types import Shape
from rlx_core.ops.convolution.geometry import Geometry
from rlx_core.ops.movement import fitted, flip, narrow
from rlx_core.ops.structural import reshape, transpose
from rlx_core.system.records import frozen


@frozen
class Phases:
    """The phases of the transpose of a strided convolution.

    Attributes:
        geometry: The geometry of the forward convolution, without dilation.
        sizes: The spatial sizes of its operand.
    """

    geometry: Geometry
    sizes: Shape

    @property
    def counts(self) -> tuple[int, ...]:
        """Return the number of phases of each axis that have an element of the kernel."""
        return tuple(map(min, self.geometry.stride, self.geometry.kernel))

    @property
    def kernel(self) -> tuple[int, ...]:
        """Return the number of elements of the kernel in a phase; shorter ones are padded with a zero."""
        return tuple(-(-k // r) for k, r in zip(self.geometry.kernel, self.counts, strict=True))

    @property
    def cells(self) -> tuple[Dim, ...]:
        """Return the number of cells of a phase along each axis."""
        ends = zip(self.geometry.lo, self.sizes, self.geometry.stride, strict=True)
        return tuple(floor_quotient(lo + n + s - 1, s) for lo, n, s in ends)

    def weights(self, w: Value, groups: Dim) -> Value:
        """Return `[m, c/g, k..]` as `[c·phases, m/g, j..]`."""
        m, each, *kernel = w.shape
        rank, inner = len(kernel), floor_quotient(m, groups)
        padded_sizes = [j * r for j, r in zip(self.kernel, self.counts, strict=True)]
        padded = fitted(w, (0,) * w.ndim, (0, 0, *(n - k for n, k in zip(padded_sizes, kernel, strict=True))))
        parts = [n for pair in zip(self.kernel, self.counts, strict=True) for n in pair]
        expanded = reshape(padded, (groups, inner, each, *parts))
        flipped = flip(expanded, axes=tuple(range(3, 3 + 2 * rank, 2)))
        order = (0, 2, *range(4, 3 + 2 * rank, 2), 1, *range(3, 3 + 2 * rank, 2))
        return reshape(transpose(flipped, order), (groups * each * product(self.counts), inner, *self.kernel))

    def operand(self, dy: Value) -> Value:
        """Return `dy` padded so that every cell of a phase has its windows."""
        before = tuple(j - 1 for j in self.kernel)
        after = tuple(q - o for q, o in zip(self.cells, dy.shape[2:], strict=True))
        return fitted(dy, (0, 0, *before), (0, 0, *after))

    def result(self, y: Value, channels: Dim) -> Value:
        """Return `[n, c·phases, q..]` as `[n, c, sizes..]`."""
        n, rank, stride = y.shape[0], self.geometry.rank, self.geometry.stride
        expanded = reshape(y, (n, channels, *self.counts, *self.cells))
        absent = tuple(s - r for s, r in zip(stride, self.counts, strict=True))
        padded = fitted(expanded, (0,) * expanded.ndim, (0, 0, *absent, *(0,) * rank))
        between = (axis for i in range(rank) for axis in (2 + rank + i, 2 + i))
        lengths = tuple(q * s for q, s in zip(self.cells, stride, strict=True))
        dx = reshape(transpose(padded, (0, 1, *between)), (n, channels, *lengths))
        for i, (lo, size) in enumerate(zip(self.geometry.lo, self.sizes, strict=True)):
            dx = narrow(dx, axis=2 + i, start=lo, length=size)
        return dx


@frozen
class StridePhase:
    """Every stride-th cell of one axis, with its terms: cell t of it is the sum over j of dy[first + t + j]·k[..].

    Attributes:
        start: The first of every stride-th element of the kernel that reaches it, and `elements`, their number; j goes backwards.
        first: The cell of dy paired with the last of them at its first cell; negative for one before the first.
    """

    start: int
    elements: int
    first: int


@frozen
class PhasesOfAxis:
    """The phases of one axis, in the order of the cells of the result.

    Attributes:
        size: Cells of the result, `kernel`, `stride` and `lo` as in the forward convolution.
    """

    size: int
    kernel: int
    stride: int
    lo: int

    @property
    def cells(self) -> int:
        """Return the number of cells of a phase; the last of some are after the end of the result."""
        return -(-self.size // self.stride)

    @property
    def phases(self) -> list[StridePhase]:
        """Return one phase per cell of a stride; some may have no element of the kernel."""
        result = []
        for cell in range(self.stride):
            ahead, start = divmod(cell + self.lo, self.stride)
            elements = len(range(start, self.kernel, self.stride))
            result.append(StridePhase(start, elements, ahead - elements + 1))
        return result

    @property
    def first(self) -> int:
        """Return the first phase that has an element."""
        return next(i for i, phase in enumerate(self.phases) if phase.elements)

    @property
    def last(self) -> int:
        """Return the last phase that has an element."""
        return max(i for i, phase in enumerate(self.phases) if phase.elements)

    @property
    def before(self) -> int:
        """Return the number of cells that are read before dy."""
        return max(0, *(-phase.first for phase in self.phases if phase.elements))

    @property
    def end(self) -> int:
        """Return the cell of dy after the last that is read."""
        return max(phase.first + self.cells + phase.elements - 1 for phase in self.phases if phase.elements)
