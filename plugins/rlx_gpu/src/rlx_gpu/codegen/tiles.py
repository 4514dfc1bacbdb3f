"""Tiles of operands in shared memory, and sums of their products in registers: what products and attention share."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from math import prod

from rlx_core.codegen.loops import Buffer, Kernel
from rlx_core.codegen.scalars.table import ScalarTable
from rlx_core.emit.emitters import Emitted
from rlx_core.ir.dtypes import DType, bool_
from rlx_core.system.records import define, frozen
from rlx_gpu.codegen.assembler import Register, TextAssembler
from rlx_gpu.codegen.functions import assembled, each_group
from rlx_gpu.codegen.indexing import IndexType, as_index, index_refusal, index_type, reach
from rlx_gpu.codegen.languages import Argument, GpuDialect
from rlx_gpu.codegen.memory import Memory, index_text
from rlx_gpu.codegen.printer import renamed
from rlx_gpu.codegen.registers import register_dtype
from rlx_gpu.codegen.values import ElementRun, Values
from rlx_gpu.codegen.walks import Machine, Schedule, index_count


@frozen
class Factor:
    """An operand of a product: bytes from one element to the next along each axis of the problem and along the depth."""

    buffer: int
    strides: tuple[int, ...]
    depth: int
    offset: int = 0

    def index(self, places: Mapping[int, str], itemsize: int, kind: str) -> str:
        """Return the index of an element as text, from its place along each axis; along the others it is the first one."""
        strides = [s if a in places else 0 for a, s in enumerate((*self.strides, self.depth))]
        return index_text(strides, self.offset, itemsize, places, kind)


@frozen
class TiledProduct:
    """`Σ_k lhs[…, m, k]·rhs[…, k, n]` for every point of a kernel without rows, and the kernel as its epilogue.

    Attributes:
        kernel: Over the batch axes, then m, then n.
        element: The value of the kernel that is the sum; a `Const` is its placeholder. Its dtype is that of the sums.
        rhs: Of a load, the strides of its largest array, by which its elements are assigned to threads.
        depth: Number of products in a sum.
        load: The loop that computes `rhs` from some of the kernel's buffers, if `rhs` is not in memory: its axes are those of
            the depth, then n; its first store has the value.
    """

    kernel: Kernel
    element: int
    lhs: Factor
    rhs: Factor
    depth: int
    load: Kernel | None = None

    @property
    def used(self) -> list[int]:
        """The numbers of the buffers that the product is given."""
        loads = () if self.load is None else self.load.loads
        accesses = (*self.kernel.accesses, self.lhs, self.rhs, *loads)
        return sorted({each.buffer for each in accesses})

    @property
    def positions(self) -> IndexType:
        """The type of a position along an axis or the depth."""
        return index_type(*self.kernel.extents, self.depth)

    def elements(self, factor: Factor) -> int:
        """The elements of a factor's buffer that the product reaches; of a load, those of the largest of its buffers."""
        if factor is self.rhs and self.load is not None:
            reads = [(v.strides, self.load.extents, v.dtype.itemsize, v.offset) for v in self.load.loads]
            return max((reach(*read) for read in reads), default=1)
        extents = (*self.kernel.extents, self.depth)
        itemsize = self.kernel.buffers[factor.buffer].dtype.itemsize
        return reach((*factor.strides, factor.depth), extents, itemsize, factor.offset)

    def index_type(self, factor: Factor) -> IndexType:
        """The type of an index into a factor's buffer."""
        return index_type(self.elements(factor))


def product_refusal(problem: TiledProduct, language: GpuDialect) -> str | None:
    """Return why a language cannot index a product, as "needs …" would continue."""
    counts = (problem.elements(problem.lhs), problem.elements(problem.rhs), problem.depth)
    return index_refusal(language, index_count(problem.kernel), *counts)


LoadPrinter = Callable[[str, str], Register]
"""Prints an element of a loaded operand at a position along the depth and a column, which are text."""


@frozen
class Span:
    """The part of an axis that a tile has: from `start`, which is text, `size` of its `extent` elements."""

    axis: int
    start: str
    extent: int
    size: int


def bring(
    b: TextAssembler,
    factor: Factor,
    buffer: Buffer,
    tile: str,
    along: Span,
    depth: Span,
    coordinates: Mapping[int, str],
    dtype: DType,
    threads: int,
    kinds: tuple[IndexType, IndexType],
    load: LoadPrinter | None = None,
) -> None:
    """Copy an operand's tile to the shared array `[depth, along + 1]` by all threads of a group, padded with zeros.

    Args:
        coordinates: The other axes along which the operand moves.
        dtype: Dtype of the sums, which is also that of the tile.
        kinds: The types of a position and of an index into the operand.
        load: Computes an element of an operand that is not in memory, from its positions along the axis and the depth.
    """
    memory, flat, place, depth_name = Memory(b, kinds[1]), *(b.fresh(p) for p in ("e", "a", "k"))
    with b.loop(flat, b.language.thread, f"{along.size * depth.size}u", f"{threads}u"):
        # Neighbouring threads read neighbouring elements.
        is_deep_first = abs(factor.depth) <= abs(factor.strides[along.axis])
        inner, outer, size = (depth_name, place, depth.size) if is_deep_first else (place, depth_name, along.size)
        b.let(inner, f"{flat} % {size}u")
        b.let(outer, f"{flat} / {size}u")
        b.let(f"{place}_at", f"{along.start} + {place}", kinds[0])
        b.let(f"{depth_name}_at", f"{depth.start} + {depth_name}", kinds[0])
        is_inside = b.named(f"{place}_at < {along.extent}u && {depth_name}_at < {depth.extent}u", bool_)

        def loaded() -> Register:
            if load is not None:
                return load(f"{depth_name}_at", f"{place}_at")
            moving = {**coordinates, along.axis: f"{place}_at", len(factor.strides): f"{depth_name}_at"}
            index = factor.index(moving, buffer.dtype.itemsize, kinds[1])
            return b.converted(memory.load(buffer.name, buffer.dtype, index), buffer.dtype.accumulator, dtype)

        element = b.rarely(is_inside, loaded, b.literal(register_dtype(dtype), 0))
        b.line(f"{tile}[{depth_name} * {along.size + 1}u + {place}] = {element.text};")


def multiplied(
    b: TextAssembler,
    lhs: str,
    rhs: str,
    sizes: tuple[int, int],
    threads: tuple[int, int],
    depth: int,
    sums: Sequence[Sequence[Register]],
) -> None:
    """The products of two tiles added to a thread's sums: of rows `y + r·threads` and columns `x + c·threads`."""
    dtype = sums[0][0].dtype
    with b.loop("k", "0u", f"{depth}u"):
        rows = [b.named(f"{lhs}[k * {sizes[0] + 1}u + y + {r * threads[0]}u]", dtype) for r in range(len(sums))]
        columns = [b.named(f"{rhs}[k * {sizes[1] + 1}u + x + {c * threads[1]}u]", dtype) for c in range(len(sums[0]))]
        for row, across in zip(rows, sums, strict=True):
            for column, total in zip(columns, across, strict=True):
                is_float = dtype.is_float
                b.assign(total, b.fma(row, column, total) if is_float else b.add(total, b.mul(row, column)))


def values_of(
    problem: TiledProduct, kernel: Kernel, language: GpuDialect, scalars: ScalarTable, group: int, lanes: int = 1
) -> Values:
    """Return the values of a product's kernel, computed on its sums by groups of `group` threads."""
    names = {buffer: f"m{i}" for i, buffer in enumerate(problem.used)}
    schedule = Schedule("point", lanes, group, 1, 1, kind=index_type(index_count(kernel)))
    return Values(TextAssembler(language), renamed(kernel, names), schedule, scalars)


@define(eq=False)
class ProductPrinting:
    """The text of one product while it is written; `values` is its epilogue."""

    problem: TiledProduct
    values: Values

    @property
    def kernel(self) -> Kernel:
        return self.problem.kernel

    @property
    def b(self) -> TextAssembler:
        return self.values.b

    @property
    def threads(self) -> int:
        """Threads of a group."""
        return self.values.schedule.group

    def let(self, name: str, text: str) -> None:
        """Name a position along an axis or the depth."""
        self.b.let(name, text, self.problem.positions)

    @abstractmethod
    def tile(self, grid: dict[int, str]) -> None:
        """The tile of the result that begins at `row0` and `column0`, given its index along each batch axis."""

    def done(
        self, machine: Machine, rows: int, columns: int, shared: Sequence[str], dynamic_nbytes: int = 0
    ) -> Emitted:
        """The function that computes every tile of the result, of so many rows and columns."""
        kernel, b = self.kernel, self.b
        *batch, m, n = kernel.extents
        total = -(-m // rows) * -(-n // columns) * prod(batch)
        groups = min(total, machine.most_groups)
        with each_group(b, "i", total, groups):
            self.tile(place_tile(b, kernel.extents, rows, columns))
        buffers = self.values.kernel.buffers
        arguments = {i: Argument(buffers[i].name, buffers[i].dtype, buffers[i].is_result) for i in self.problem.used}
        return assembled(kernel.name, b, arguments, shared, self.threads, groups, self.values.faults, dynamic_nbytes)

    def store(self, row: str, column: str, sums: Sequence[Register], grid: dict[int, str]) -> None:
        """Apply the kernel to the sum of an element and to those of its next neighbours."""
        extents = self.kernel.extents
        last = len(extents) - 1
        axes = {**grid, last - 1: row, last: column}
        axes = {axis: as_index(text, self.values.schedule.kind) for axis, text in axes.items()}
        point = " + ".join(f"{axes[a]} * {prod(extents[a + 1 :])}u" for a in sorted(axes))
        place = point if len(sums) == 1 else f"({point}) / {len(sums)}u"
        lanes = {(self.problem.element, lane): each for lane, each in enumerate(sums)}
        self.values.store(self.values.kernel.stores, ElementRun(axes, place, place, None, {}, lanes=lanes))


def place_tile(b: TextAssembler, extents: Sequence[int], rows: int, columns: int) -> dict[int, str]:
    """Name where the tile whose number is `i` begins, `row0` and `column0`, and its index along each batch axis."""
    kind = index_type(*extents)
    *batch, m, n = extents
    down, across = -(-m // rows), -(-n // columns)
    b.let("row0", f"i / {across}u % {down}u * {rows}u", kind)
    b.let("column0", f"i % {across}u * {columns}u", kind)
    divisor, grid = down * across, {}
    for axis in reversed(range(len(batch))):
        grid[axis] = f"g{axis}"
        b.let(grid[axis], f"i / {divisor}u % {batch[axis]}u", kind)
        divisor *= batch[axis]
    return grid
