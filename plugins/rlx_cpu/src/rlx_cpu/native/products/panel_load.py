"""Panels of an operand that a load computes: the kernel of the load's loop, called for one panel at a time.

A panel has the columns of one tile, as words that the inner loop reads front to back. A block of its rows that fits into L1, or
all of them, is in the scratch memory of the thread that multiplies it.
"""

from __future__ import annotations

from contextlib import nullcontext
from itertools import pairwise

from rlx_core.system.records import frozen
from rlx_cpu.native.contract import OperandView, Pack
from rlx_cpu.native.llvm import ir
from rlx_cpu.native.llvm.build import POINTER
from rlx_cpu.native.llvm.simd import index, offset, pointer_at, times
from rlx_cpu.native.loops.printer import LlvmPrinter
from rlx_cpu.native.products.gemm_plan import ProductPlan

FIRST_SOURCE = 1
"""The operand of the product that is the first array of the load."""


@frozen(eq=False)
class Panels:
    """Panels of one width, side by side.

    Attributes:
        first, end: Numbers of the first panel and of the one after the last.
        function: Computes block `j` of panel `first + i` when it is called for part `i·blocks + j` of all.
    """

    first: int
    end: int
    function: ir.Function


@frozen(eq=False)
class PanelLoad:
    """The functions that compute the panels of a product's operand B.

    Attributes:
        groups: Panels by their width; the last panel is a separate group if the matrix ends inside its last vector.
        sources: Number of arrays that are read.
        depth: Rows of a block.
        blocks: Blocks of a panel.
        packs: The arrays that are rearranged into panels when they are bound; the load reads nothing else of them.
        first_pack: Position of the first of them among the buffers.
    """

    groups: tuple[Panels, ...]
    sources: int
    depth: int
    blocks: int
    packs: tuple[Pack, ...]
    first_pack: int

    @classmethod
    def of(cls, plan: ProductPlan, module: ir.Module, name: str, buffers: int) -> PanelLoad:
        """Add the functions of the panels of a plan to the module; their names start with `name`.

        Args:
            buffers: Number of the product's operands and results.
        """
        load, panels, lanes = plan.product.load, plan.blocks.panels, plan.words.simd.lanes
        assert load is not None, "the operand is a load"
        full = panels.pieces if plan.product.n % lanes == 0 else panels.pieces - 1
        cuts = sorted({0, min(panels.many, full), full, panels.pieces})
        printer, groups = LlvmPrinter(module, plan.isa), list[Panels]()
        depth = plan.load_depth or plan.product.k
        blocks = plan.product.k // depth
        rows = {i: matrix for i in range(len(load.places)) if (matrix := load.source_rows(i)) is not None}
        for first, end in pairwise(cuts):
            column, pitch = panels.start(first) * lanes, panels.size_of(first) * lanes
            width = min(pitch, plan.product.n - column)
            kernel = load.panels(
                column, end - first, width, depth, pitch=pitch, alignment=plan.vector_nbytes, packed=rows
            )
            function = printer.print_parts(kernel, f"{name}.load{first}", (end - first) * blocks)
            groups.append(Panels(first, end, function))
        packs = []
        for number, source in rows.items():
            nbytes = source.rows * plan.blocks.columns * load.places[number].type.dtype.itemsize
            view = OperandView((source.rows, plan.product.n), source.strides, 0)
            packs.append(Pack(FIRST_SOURCE + number, nbytes, "panels", plan.blocks.widths, view=view))
        return cls(tuple(groups), len(load.places), depth, blocks, tuple(packs), buffers + plan.has_memory)

    def table(self, b: ir.IRBuilder, buffers: ir.LlvmValue) -> ir.LlvmValue:
        """Return the addresses of the arrays in stack memory, for `emit`, from those of the product's operands."""
        table = b.alloca(POINTER, size=self.sources + 1)
        where = {pack.operand: self.first_pack + i for i, pack in enumerate(self.packs)}
        for source in range(self.sources):
            operand = FIRST_SOURCE + source
            b.store(pointer_at(b, buffers, where.get(operand, operand)), offset(b, table, 8 * source), align=8)
        return table

    def emit(
        self, b: ir.IRBuilder, panel: ir.LlvmValue, row: ir.LlvmValue, table: ir.LlvmValue, place: ir.LlvmValue
    ) -> None:
        """Compute the block of a panel that begins with a row into the memory at `place`, from the arrays in a table."""
        b.store(place, offset(b, table, 8 * self.sources), align=8)
        block = b.udiv(row, index(self.depth))
        for group in self.groups:
            is_inside = b.and_(
                b.icmp_signed(">=", panel, index(group.first)), b.icmp_signed("<", panel, index(group.end))
            )
            with b.if_then(is_inside) if len(self.groups) > 1 else nullcontext():
                number = b.add(times(b, b.sub(panel, index(group.first)), self.blocks), block)
                b.call(group.function, [table, number, index((group.end - group.first) * self.blocks)])
