"""Matrix products as native kernels: any sizes, strides and batch axes, with the epilogue on the sums.

A product is cut into *items*, a group of row tiles by a group of panels of one batch entry; threads take contiguous ranges of
them. What an element's sum adds up in which order depends on the shapes alone. B is packed ahead when it is bound, in the
kernel when several tiles will read it, and read in place otherwise; A is read in place unless its rows are not contiguous.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Literal

from attrs import frozen
from llvmlite import ir

from rlx_core.ir.graph import Node
from rlx_core.ops.fused import FusedMatMulBiasAct
from rlx_core.ops.linalg import MatMul
from rlx_core.pipeline.kernels import condition
from rlx_cpu.native.build import I64, POINTER, VOID
from rlx_cpu.native.contract import ALIGNMENT, Emitted, Layout, Pack
from rlx_cpu.native.epilogue import Epilogue, Operand, activation, add, vector_function
from rlx_cpu.native.gemm_tiles import FEWEST_TILES, UNROLL, Blocks, Cut, blocks
from rlx_cpu.native.isa import Isa
from rlx_cpu.native.microkernel import Microkernel
from rlx_cpu.native.packing import pack_panel, pack_rows, packed_nbytes
from rlx_cpu.native.problem import Matrix, Product
from rlx_cpu.native.simd import Simd, counting, index, offset, pointer_at, share, times
from rlx_cpu.native.table import native

__all__ = ["emit_product", "matmul", "matmul_bias_activation"]

MakeEpilogue = Callable[[Simd, ir.IRBuilder, ir.Value], Epilogue]
"""Builds the stages inside a microkernel, from the buffers that the kernel is given."""

Panels = Literal["ahead", "packed", "direct"]


@condition("sums in the operands' own dtype")
def sums_in_its_dtype(node: Node) -> bool:
    return isinstance(node.op, MatMul) and node.op.acc_dtype in (None, node.type.dtype)


@native.register(MatMul, dtypes="f32 f64", when=sums_in_its_dtype)
def matmul(module: ir.Module, node: Node, layout: Layout, isa: Isa, name: str) -> Emitted:
    """Register tiles over packed panels."""
    return emit_product(module, layout, isa, name, lambda simd, b, buffers: Epilogue())


@condition("an activation whose steps have vector code, or none")
def has_vector_activation(node: Node) -> bool:
    assert isinstance(node.op, FusedMatMulBiasAct), "registered for it alone"
    return node.op.activation is None or vector_function(node.op.activation, node.type.dtype) is not None


@native.register(FusedMatMulBiasAct, dtypes="f32 f64", when=has_vector_activation)
def matmul_bias_activation(module: ir.Module, node: Node, layout: Layout, isa: Isa, name: str) -> Emitted:
    """Register tiles over packed panels, bias and activation on the sums."""
    op, bias_place = node.op, layout.operands[2]
    assert isinstance(op, FusedMatMulBiasAct), "registered for it alone"
    assert bias_place is not None, "the bias is required"
    by_column = Matrix.of_row(bias_place).by_column

    def epilogue(simd: Simd, b: ir.IRBuilder, buffers: ir.Value) -> Epilogue:
        stages = Epilogue((add(simd, Operand(pointer_at(b, buffers, 2), by_column=by_column)),))
        if op.activation is None:
            return stages
        function = vector_function(op.activation, simd.dtype)
        assert function is not None, "the row refuses other activations"
        return stages.then(activation(function), is_long=function.is_long)

    return emit_product(module, layout, isa, name, epilogue)


def emit_product(
    module: ir.Module,
    layout: Layout,
    isa: Isa,
    name: str,
    epilogue: MakeEpilogue,
) -> Emitted:
    """The product of the first two operands into the first result, then `epilogue`."""
    a, b = layout.operands[:2]
    assert a is not None and b is not None, "a product has two operands"  # noqa: PT018
    product = Product.of(a, b, layout.results[0])
    simd = Simd(module, isa, product.dtype)
    return _Driver(simd, isa, product, layout, b.is_bound, name, epilogue).emit()


@frozen(eq=False)
class _Driver:
    """The function around the inner loop: what a thread does of a product, in which order."""

    simd: Simd
    isa: Isa
    product: Product
    layout: Layout
    is_bound: bool
    name: str
    epilogue: MakeEpilogue

    # ------------------------------------------------------------------------------------- choices

    @property
    def packs_rows(self) -> bool:
        """Whether A is packed in the kernel: its elements along k are not next to each other."""
        return self.product.k > 0 and self.product.a.by_column != self.simd.itemsize

    @property
    def blocks(self) -> Blocks:
        p = self.product
        is_unit = p.c.by_column == self.simd.itemsize
        return blocks(p.entries, p.m, p.n, p.k, p.dtype, self.isa, splits_depth=is_unit, packs_rows=self.packs_rows)

    @property
    def panels(self) -> Panels:
        """Where the inner loop finds B."""
        if self.product.k == 0:
            return "direct"  # nothing is read
        if self.is_bound:
            return "ahead"
        is_direct = self.blocks.rows.pieces <= DIRECT_TILES and self.product.b.by_column == self.simd.itemsize
        return "direct" if is_direct else "packed"

    @property
    def sharers(self) -> int:
        """How many tiles read a panel that streams by; 0 where there are enough of them to hide its coming."""
        tiles = self.blocks
        is_stream = self.panels == "ahead" and tiles.rows.pieces == tiles.row_tiles <= FEWEST_TILES
        return tiles.row_tiles if is_stream and tiles.panel_group == 1 else 0

    @property
    def panel_nbytes(self) -> int:
        """Bytes of a thread's packed panels: the widest group, over all of K."""
        if self.panels != "packed":
            return 0
        cut = self.blocks.panels
        vectors = cut.size * self.blocks.panel_group
        return _aligned(vectors * self.simd.nbytes * self.product.k)

    @property
    def rows_nbytes(self) -> int:
        """Bytes of a thread's packed rows: one item's tiles over one block of K."""
        if not self.packs_rows:
            return 0
        tiles = self.blocks
        return _aligned(tiles.row_tiles * (tiles.rows.size * tiles.depth * self.simd.itemsize + TILE_GAP))

    # ------------------------------------------------------------------------------------- emission

    def emit(self) -> Emitted:
        module, p = self.simd.module, self.product
        kernel = ir.FunctionType(VOID, [POINTER, I64, I64])
        function = ir.Function(module, kernel, self.name)
        b = ir.IRBuilder(function.append_basic_block("entry"))
        packs: tuple[Pack, ...] = ()
        if p.m and p.n and p.entries:
            tiles = self.blocks
            kernels = self._microkernels(tiles)
            self._items(b, function.args, tiles, kernels)
            if self.panels == "ahead":
                nbytes = packed_nbytes(tiles, p.k, self.simd.itemsize) * p.b_entries
                packs = (Pack(1, nbytes, "panels", tiles.widths),)
        b.ret_void()
        return Emitted(
            function=self.name,
            packs=packs,
            workspace=self.panel_nbytes + self.rows_nbytes if p.m and p.n and p.entries else 0,
            uses_threads=p.m * p.n * p.k * p.entries >= SERIAL_PRODUCTS,
            notes={"tile": self.blocks.tile, "depth": self.blocks.depth, "panels": self.panels},
        )

    def _microkernels(self, tiles: Blocks) -> dict[tuple[int, int], ir.Function]:
        """The inner loop for every height and width that occurs."""
        p, simd = self.product, self.simd
        partial = p.n % simd.lanes != 0
        found = {}
        for rows in tiles.rows.sizes:
            for vectors in tiles.panels.sizes:
                found[rows, vectors] = Microkernel(
                    simd=simd,
                    rows=rows,
                    vectors=vectors,
                    a_strides=(simd.itemsize, rows * simd.itemsize) if self.packs_rows else (p.a.by_row, p.a.by_column),
                    b_stride=p.b.by_row if self.panels == "direct" else vectors * simd.nbytes,
                    b_align=simd.itemsize if self.panels == "direct" else simd.nbytes,
                    c_strides=(p.c.by_row, p.c.by_column),
                    columns=p.n if partial else None,
                    masks_b=partial and self.panels == "direct",
                    accumulates=tiles.depth < p.k,
                    sharers=self.sharers,
                    epilogue=self.epilogue,
                ).emit(f"{self.name}.tile{rows}x{vectors}")
        return found

    def _items(
        self,
        b: ir.IRBuilder,
        arguments: tuple[ir.Argument, ...],
        tiles: Blocks,
        kernels: dict[tuple[int, int], ir.Function],
    ) -> None:
        buffers, tid, nthreads = arguments
        p, operands = self.product, len(self.layout.operands)
        a, source, c = (pointer_at(b, buffers, i) for i in (0, 1, operands))
        after = operands + len(self.layout.results)
        has_workspace = self.panel_nbytes + self.rows_nbytes > 0
        own = None
        if has_workspace:
            own = offset(b, pointer_at(b, buffers, after), (tid, self.panel_nbytes + self.rows_nbytes))
        packed = own
        if self.panels == "ahead":
            packed = pointer_at(b, buffers, after + has_workspace)
        group_of_packed = b.alloca(I64)
        b.store(index(-1), group_of_packed, align=8)
        total = p.entries * tiles.panel_items * tiles.row_items
        low, high = share(b, total, tid, nthreads)
        with counting(b, low, high) as item:
            row_item, group = b.srem(item, index(tiles.row_items)), b.sdiv(item, index(tiles.row_items))
            panel_item, entry = b.srem(group, index(tiles.panel_items)), b.sdiv(group, index(tiles.panel_items))
            work = _Item(
                self, tiles, kernels, buffers, entry,
                _range(b, row_item, tiles.row_tiles, tiles.rows.pieces),
                _range(b, panel_item, tiles.panel_group, tiles.panels.pieces),
                a=offset(b, a, p.entry_offset(b, entry, p.a)),
                source=offset(b, source, p.entry_offset(b, entry, p.b)),
                c=offset(b, c, p.entry_offset(b, entry, p.c)),
                packed=packed,
                packed_rows=None if own is None else offset(b, own, self.panel_nbytes),
            )  # fmt: skip
            if self.panels == "packed":
                with b.if_then(b.icmp_signed("!=", b.load(group_of_packed, typ=I64, align=8), group)):
                    work.pack_panels(b)
                    b.store(group, group_of_packed, align=8)
            work.run(b)


@frozen(eq=False)
class _Item:
    """One item of a product while its code is emitted."""

    driver: _Driver
    tiles: Blocks
    kernels: dict[tuple[int, int], ir.Function]
    buffers: ir.Value
    entry: ir.Value
    row_range: tuple[ir.Value, ir.Value]
    panel_range: tuple[ir.Value, ir.Value]
    a: ir.Value
    source: ir.Value
    c: ir.Value
    packed: ir.Value | None
    packed_rows: ir.Value | None

    @property
    def product(self) -> Product:
        return self.driver.product

    @property
    def simd(self) -> Simd:
        return self.driver.simd

    def pack_panels(self, b: ir.IRBuilder) -> None:
        """Pack the item's panels into the thread's workspace, over all of K."""
        p, simd = self.product, self.simd
        assert self.packed is not None, "there is a workspace"
        with counting(b, *self.panel_range) as panel:
            column = times(b, start_of(b, self.tiles.panels, panel), simd.lanes)
            place = self._packed_panel(b, panel)
            for vectors in by_size(b, self.tiles.panels, panel):
                pack_panel(
                    b, simd, offset(b, self.source, (column, p.b.by_column)), place,
                    depth=p.k, vectors=vectors, strides=(p.b.by_row, p.b.by_column), column=column, columns=p.n,
                )  # fmt: skip

    def run(self, b: ir.IRBuilder) -> None:
        """Blocks of K, panels in each, tiles in each."""
        p, depth = self.product, self.tiles.depth
        with counting(b, 0, max(p.k, 1), max(depth, 1)) as k0:
            left = b.sub(index(p.k), k0)
            is_last = b.icmp_signed("<=", left, index(depth))
            count = b.select(is_last, left, index(depth))
            is_first = b.icmp_signed("==", k0, index(0))
            if self.driver.packs_rows:
                self._pack_rows(b, k0, count)
            with counting(b, *self.panel_range) as panel:
                panel_place, column = self._panel(b, panel, k0)
                with counting(b, *self.row_range) as tile:
                    row = start_of(b, self.tiles.rows, tile)
                    c = offset(b, self.c, (row, p.c.by_row), (column, p.c.by_column))
                    a = self._rows(b, tile, row, k0, count)
                    for rows in by_size(b, self.tiles.rows, tile):
                        for vectors in by_size(b, self.tiles.panels, panel):
                            following = self._following(b, panel_place, tile, count, vectors)
                            b.call(
                                self.kernels[rows, vectors],
                                [
                                    a,
                                    panel_place,
                                    c,
                                    following,
                                    count,
                                    is_first,
                                    is_last,
                                    self.entry,
                                    row,
                                    column,
                                    self.buffers,
                                ],
                            )

    def _panel(self, b: ir.IRBuilder, panel: ir.Value, k0: ir.Value) -> tuple[ir.Value, ir.Value]:
        """Where a panel's rows from `k0` on are, and its first column."""
        p = self.product
        first = start_of(b, self.tiles.panels, panel)
        column = times(b, first, self.simd.lanes)
        if self.driver.panels == "direct":
            return offset(b, self.source, (column, p.b.by_column), (k0, p.b.by_row)), column
        width = b.sub(start_of(b, self.tiles.panels, b.add(panel, index(1))), first)
        return offset(b, self._packed_panel(b, panel), b.mul(k0, times(b, width, self.simd.nbytes))), column

    def _following(self, b: ir.IRBuilder, panel: ir.Value, tile: ir.Value, count: ir.Value, vectors: int) -> ir.Value:
        """Where a tile's share of the next panel starts; that lies right behind this one."""
        if not self.driver.sharers:
            return panel
        width = vectors * self.simd.nbytes
        share_start = times(b, b.mul(tile, count), width // self.driver.sharers)
        return offset(b, panel, (count, width), share_start)

    def _packed_panel(self, b: ir.IRBuilder, panel: ir.Value) -> ir.Value:
        """Where a packed panel starts: among all panels of its matrix, or among those of the item."""
        p, nbytes = self.product, self.simd.nbytes * self.product.k
        assert self.packed is not None, "panels are packed"
        first = start_of(b, self.tiles.panels, panel)
        if self.driver.panels == "ahead":
            matrix = p.b_entry(b, self.entry)
            return offset(b, self.packed, (matrix, packed_nbytes(self.tiles, p.k, self.simd.itemsize)), (first, nbytes))
        return offset(b, self.packed, (b.sub(first, start_of(b, self.tiles.panels, self.panel_range[0])), nbytes))

    def _rows(self, b: ir.IRBuilder, tile: ir.Value, row: ir.Value, k0: ir.Value, count: ir.Value) -> ir.Value:
        """Where a tile's part of A is."""
        a = self.product.a
        if not self.driver.packs_rows:
            return offset(b, self.a, (row, a.by_row), (k0, a.by_column))
        assert self.packed_rows is not None, "there is a workspace"
        low = self.row_range[0]
        before = b.mul(b.sub(row, start_of(b, self.tiles.rows, low)), count)
        return offset(b, self.packed_rows, (before, self.simd.itemsize), (b.sub(tile, low), TILE_GAP))

    def _pack_rows(self, b: ir.IRBuilder, k0: ir.Value, count: ir.Value) -> None:
        """A few steps of k for all tiles, then the next: the rows of a transposed A are contiguous across tiles."""
        even = b.and_(count, index(-UNROLL))
        for low, high, steps in ((index(0), even, UNROLL), (even, count, 1)):
            with counting(b, low, high, steps) as k:
                self._pack_steps(b, k0, k, steps, count)

    def _pack_steps(self, b: ir.IRBuilder, k0: ir.Value, k: ir.Value, steps: int, count: ir.Value) -> None:
        a: Matrix = self.product.a
        with counting(b, *self.row_range) as tile:
            row = start_of(b, self.tiles.rows, tile)
            source = offset(b, self.a, (row, a.by_row), (b.add(k0, k), a.by_column))
            place = self._rows(b, tile, row, k0, count)
            for rows in by_size(b, self.tiles.rows, tile):
                there = offset(b, place, (k, rows * self.simd.itemsize))
                pack_rows(b, self.simd, source, there, steps=steps, rows=rows, strides=(a.by_row, a.by_column))


TILE_GAP = ALIGNMENT
"""Bytes between packed tiles of A, so that tiles whose size is a power of two do not compete for the same cache lines."""

DIRECT_TILES = 16
"""Row tiles up to which B is read where it lies: packing pays only once its cost is spread over more of them."""

SERIAL_PRODUCTS = 1 << 15
"""Below so many fused products (a few µs) waking another thread costs more than it saves."""


def _aligned(nbytes: int) -> int:
    return -(-nbytes // ALIGNMENT) * ALIGNMENT


def _range(b: ir.IRBuilder, item: ir.Value, group: int, pieces: int) -> tuple[ir.Value, ir.Value]:
    """The pieces of an item."""
    low = times(b, item, group)
    high = b.add(low, index(group))
    return low, b.select(b.icmp_signed("<", high, index(pieces)), high, index(pieces))


def start_of(b: ir.IRBuilder, cut: Cut, piece: ir.Value) -> ir.Value:
    """`cut.start` of a piece known only at run time."""
    even = times(b, piece, cut.size)
    if cut.many == cut.pieces:
        return even
    beyond = b.sub(piece, index(cut.many))
    return b.sub(even, b.select(b.icmp_signed(">", beyond, index(0)), beyond, index(0)))


def by_size(b: ir.IRBuilder, cut: Cut, piece: ir.Value) -> Iterator[int]:
    """What is built in the loop body runs for the pieces of each size in turn: a branch where there are two."""
    if len(cut.sizes) == 1:
        yield cut.size
        return
    with b.if_else(b.icmp_signed("<", piece, index(cut.many))) as (large, small):
        with large:
            yield cut.size
        with small:
            yield cut.size - 1
