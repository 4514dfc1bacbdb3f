"""Matrix products as native kernels: any sizes, strides and batch axes, with the epilogue on the sums.

A product is cut into *items*, a group of row tiles by a group of panels of one batch entry; threads claim contiguous ranges of
them. What an element's sum adds up in which order depends on the shapes alone. B is packed ahead when it is bound, by all
threads together before the product when several items will read it, by each for itself when batches are many, and read in
place otherwise. A is read in place unless its rows are not contiguous; then it is packed in the same two ways.
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
from rlx_cpu.native.build import I64, KERNEL
from rlx_cpu.native.contract import ALIGNMENT, MOST_PARTS, Emitted, Layout, Pack
from rlx_cpu.native.epilogue import Epilogue, Operand, activation, add, vector_function
from rlx_cpu.native.gemm_tiles import FEWEST_TILES, Blocks, Cut, blocks
from rlx_cpu.native.isa import Isa
from rlx_cpu.native.microkernel import Microkernel
from rlx_cpu.native.packing import pack_panel, pack_rows, packed_nbytes
from rlx_cpu.native.problem import Matrix, Product
from rlx_cpu.native.simd import Simd, counting, index, offset, pointer_at, share, times
from rlx_cpu.native.table import native

__all__ = ["emit_product", "matmul", "matmul_bias_activation"]

MakeEpilogue = Callable[[Simd, ir.IRBuilder, ir.Value], Epilogue]
"""Builds the stages inside a microkernel, from the buffers that the kernel is given."""

Panels = Literal["ahead", "shared", "packed", "direct"]
"""Where panels of B come from: packed when it was bound, by all threads before, by each thread for itself, or not packed."""


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
    def shares_rows(self) -> bool:
        """Whether A is packed once for all, rather than for every item."""
        p = self.product
        return self.packs_rows and p.entries * p.m * p.k * self.simd.itemsize <= SHARED_NBYTES

    @property
    def blocks(self) -> Blocks:
        p = self.product
        is_unit = p.c.by_column == self.simd.itemsize
        packs_rows = self.packs_rows and not self.shares_rows
        return blocks(p.entries, p.m, p.n, p.k, p.dtype, self.isa, splits_depth=is_unit, packs_rows=packs_rows)

    @property
    def panels(self) -> Panels:
        """Where the inner loop finds B."""
        tiles = self.blocks
        if self.product.k == 0:
            return "direct"  # nothing is read
        if self.is_bound:
            return "ahead"
        if tiles.rows.pieces <= DIRECT_TILES and self.product.b.by_column == self.simd.itemsize:
            return "direct"
        is_small = self.product.b_entries * self._packed_nbytes <= SHARED_NBYTES
        return "shared" if is_small and tiles.row_items > 1 else "packed"

    @property
    def sharers(self) -> int:
        """How many tiles read a panel that streams by; 0 where there are enough of them to hide its coming."""
        tiles = self.blocks
        is_stream = self.panels == "ahead" and tiles.rows.pieces == tiles.row_tiles <= FEWEST_TILES
        return tiles.row_tiles if is_stream and tiles.panel_group == 1 else 0

    @property
    def _packed_nbytes(self) -> int:
        """Bytes of one matrix B in panels."""
        return packed_nbytes(self.blocks, self.product.k, self.simd.itemsize)

    @property
    def own_panels(self) -> int:
        """Bytes of a thread's own packed panels: the widest group, over all of K."""
        if self.panels != "packed":
            return 0
        vectors = self.blocks.panels.size * self.blocks.panel_group
        return _aligned(vectors * self.simd.nbytes * self.product.k)

    @property
    def own_rows(self) -> int:
        """Bytes of a thread's own packed rows: one item's tiles over one block of K."""
        if not self.packs_rows or self.shares_rows:
            return 0
        tiles = self.blocks
        return _aligned(tiles.row_tiles * (tiles.rows.size * tiles.depth * self.simd.itemsize + TILE_GAP))

    @property
    def shared_panels(self) -> int:
        """Bytes of all matrices B in panels, where they are packed together."""
        return _aligned(self.product.b_entries * self._packed_nbytes) if self.panels == "shared" else 0

    @property
    def entry_rows(self) -> int:
        """Bytes of one packed A."""
        return _aligned(self.product.m * self.product.k * self.simd.itemsize + self.blocks.rows.pieces * TILE_GAP)

    @property
    def shared_rows(self) -> int:
        """Bytes of all packed A together, where they are packed together."""
        return self.product.entries * self.entry_rows if self.shares_rows else 0

    @property
    def parts(self) -> int:
        """Into how many parts a product is cut."""
        p, tiles = self.product, self.blocks
        items = p.entries * tiles.panel_items * tiles.row_items
        return max(1, min(MOST_PARTS, items, p.m * p.n * p.k * p.entries // PART_PRODUCTS))

    # ------------------------------------------------------------------------------------- emission

    def emit(self) -> Emitted:
        module, p = self.simd.module, self.product
        function = ir.Function(module, KERNEL, self.name)
        b = ir.IRBuilder(function.append_basic_block("entry"))
        if not (p.m and p.n and p.entries):
            b.ret_void()
            return Emitted(self.name, uses_threads=False)
        tiles = self.blocks
        self._items(b, function.args, tiles, self._microkernels(tiles))
        b.ret_void()
        packs: tuple[Pack, ...] = ()
        if self.panels == "ahead":
            packs = (Pack(1, self._packed_nbytes * p.b_entries, "panels", tiles.widths),)
        shared = self.shared_panels + self.shared_rows
        return Emitted(
            function=self.name,
            packs=packs,
            workspace=self.own_panels + self.own_rows,
            shared_workspace=shared,
            uses_threads=p.m * p.n * p.k * p.entries >= SERIAL_PRODUCTS,
            parts=self.parts,
            prologue=self._prologue(tiles) if shared else None,
            notes={"tile": tiles.tile, "depth": tiles.depth, "panels": self.panels},
        )

    def _prologue(self, tiles: Blocks) -> str:
        """The function that packs what all items read: panels of B, rows of A."""
        p, name = self.product, f"{self.name}.pack"
        function = ir.Function(self.simd.module, KERNEL, name)
        b = ir.IRBuilder(function.append_basic_block("entry"))
        buffers, part, parts, _ = function.args
        shared = pointer_at(b, buffers, len(self.layout.operands) + len(self.layout.results))
        if self.shared_panels:
            source = pointer_at(b, buffers, 1)
            with counting(b, *share(b, p.b_entries * tiles.panels.pieces, part, parts)) as unit:
                panel, matrix = b.srem(unit, index(tiles.panels.pieces)), b.sdiv(unit, index(tiles.panels.pieces))
                place = offset(b, shared, (matrix, self._packed_nbytes))
                self._pack_panel(
                    b, tiles, panel, offset(b, source, p.b_offset(b, matrix)), self._panel(b, panel, place)
                )
        if self.shared_rows:
            a, rounds = pointer_at(b, buffers, 0), -(-p.k // PACKED_STEPS)
            with counting(b, *share(b, p.entries * rounds, part, parts)) as unit:
                turn, entry = b.srem(unit, index(rounds)), b.sdiv(unit, index(rounds))
                low = times(b, turn, PACKED_STEPS)
                rows = _PackedRows(
                    self, tiles, offset(b, a, p.entry_offset(b, entry, p.a)), self._rows_of(b, shared, entry)
                )
                rows.pack(b, (index(0), index(tiles.rows.pieces)), low, _least(b, b.add(low, index(PACKED_STEPS)), p.k))
        b.ret_void()
        return name

    def _rows_of(self, b: ir.IRBuilder, shared: ir.Value, entry: ir.Value) -> ir.Value:
        return offset(b, shared, self.shared_panels, (entry, self.entry_rows))

    def _panel(self, b: ir.IRBuilder, panel: ir.Value, matrix: ir.Value) -> ir.Value:
        """Where a panel of a packed matrix starts."""
        return offset(b, matrix, (start_of(b, self.blocks.panels, panel), self.simd.nbytes * self.product.k))

    def _pack_panel(self, b: ir.IRBuilder, tiles: Blocks, panel: ir.Value, source: ir.Value, place: ir.Value) -> None:
        p, simd = self.product, self.simd
        column = times(b, start_of(b, tiles.panels, panel), simd.lanes)
        for vectors in by_size(b, tiles.panels, panel):
            pack_panel(
                b, simd, offset(b, source, (column, p.b.by_column)), place,
                depth=p.k, vectors=vectors, strides=(p.b.by_row, p.b.by_column), column=column, columns=p.n,
            )  # fmt: skip

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
        buffers, part, parts, thread = arguments
        p, operands = self.product, len(self.layout.operands)
        a, source, c = (pointer_at(b, buffers, i) for i in (0, 1, operands))
        after = operands + len(self.layout.results)
        shared_nbytes, own_nbytes = self.shared_panels + self.shared_rows, self.own_panels + self.own_rows
        shared = pointer_at(b, buffers, after) if shared_nbytes + own_nbytes else None
        own = None if shared is None else offset(b, shared, shared_nbytes, (thread, own_nbytes))
        packed = shared if self.panels == "shared" else own
        if self.panels == "ahead":
            packed = pointer_at(b, buffers, after + (shared is not None))
        group_of_packed = b.alloca(I64)
        b.store(index(-1), group_of_packed, align=8)
        total = p.entries * tiles.panel_items * tiles.row_items
        low, high = share(b, total, part, parts)
        with counting(b, low, high) as item:
            # Panels that a thread packs for itself serve all rows before the next ones are packed. Otherwise rows come last, so
            # that a thread gets rows that are whole, as it does in the steps before and after: what it reads, it wrote.
            sizes = (tiles.row_items, tiles.panel_items)
            inner, outer = sizes if self.own_panels else reversed(sizes)
            first, group = b.srem(item, index(inner)), b.sdiv(item, index(inner))
            second, entry = b.srem(group, index(outer)), b.sdiv(group, index(outer))
            row_item, panel_item = (first, second) if self.own_panels else (second, first)
            work = _Item(
                self, tiles, kernels, buffers, entry,
                _range(b, row_item, tiles.row_tiles, tiles.rows.pieces),
                _range(b, panel_item, tiles.panel_group, tiles.panels.pieces),
                a=offset(b, a, p.entry_offset(b, entry, p.a)),
                source=offset(b, source, p.entry_offset(b, entry, p.b)),
                c=offset(b, c, p.entry_offset(b, entry, p.c)),
                packed=packed,
                packed_rows=self._rows_of(b, shared, entry) if self.shares_rows and shared is not None
                else None if own is None else offset(b, own, self.own_panels),
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
        with counting(b, *self.panel_range) as panel:
            self.driver._pack_panel(b, self.tiles, panel, self.source, self._packed_panel(b, panel))

    def run(self, b: ir.IRBuilder) -> None:
        """Blocks of K, panels in each, tiles in each."""
        p, depth = self.product, self.tiles.depth
        with counting(b, 0, max(p.k, 1), max(depth, 1)) as k0:
            left = b.sub(index(p.k), k0)
            is_last = b.icmp_signed("<=", left, index(depth))
            count = b.select(is_last, left, index(depth))
            is_first = b.icmp_signed("==", k0, index(0))
            if self.driver.own_rows:
                self._own_rows(k0, count).pack(b, self.row_range, index(0), count)
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
        if self.driver.panels in ("ahead", "shared"):
            matrix = offset(b, self.packed, (p.b_entry(b, self.entry), self.driver._packed_nbytes))
            return self.driver._panel(b, panel, matrix)
        first = start_of(b, self.tiles.panels, panel)
        return offset(b, self.packed, (b.sub(first, start_of(b, self.tiles.panels, self.panel_range[0])), nbytes))

    def _rows(self, b: ir.IRBuilder, tile: ir.Value, row: ir.Value, k0: ir.Value, count: ir.Value) -> ir.Value:
        """Where a tile's part of A is, from step `k0` on."""
        a = self.product.a
        if not self.driver.packs_rows:
            return offset(b, self.a, (row, a.by_row), (k0, a.by_column))
        if self.driver.own_rows:
            return self._own_rows(k0, count).tile(b, tile, row, index(0))
        assert self.packed_rows is not None, "there is a workspace"
        return _PackedRows(self.driver, self.tiles, self.a, self.packed_rows).tile(b, tile, row, k0)

    def _own_rows(self, k0: ir.Value, count: ir.Value) -> _PackedRows:
        assert self.packed_rows is not None, "there is a workspace"
        return _PackedRows(self.driver, self.tiles, self.a, self.packed_rows, self.row_range[0], k0, count)


@frozen(eq=False)
class _PackedRows:
    """Tiles of A packed one after the other, `[k, rows]` each.

    Attributes:
        a: The operand.
        place: Where the first tile is.
        first: The first tile that is there; all of them if `None`.
        start: The step along K that they begin with, and `depth`, how many there are; all if `None`.
    """

    driver: _Driver
    tiles: Blocks
    a: ir.Value
    place: ir.Value
    first: ir.Value | None = None
    start: ir.Value | None = None
    depth: ir.Value | None = None

    def tile(self, b: ir.IRBuilder, tile: ir.Value, row: ir.Value, k: ir.Value) -> ir.Value:
        """Where step `k` of a tile is; the tile begins with `row`."""
        itemsize = self.driver.simd.itemsize
        number = tile if self.first is None else b.sub(tile, self.first)
        before = row if self.first is None else b.sub(row, start_of(b, self.tiles.rows, self.first))
        depth = index(self.driver.product.k) if self.depth is None else self.depth
        there = offset(b, self.place, (b.mul(before, depth), itemsize), (number, TILE_GAP))
        rows = b.sub(start_of(b, self.tiles.rows, b.add(tile, index(1))), row)
        return offset(b, there, (b.mul(k, rows), itemsize))

    def pack(self, b: ir.IRBuilder, tiles: tuple[ir.Value, ir.Value], low: ir.Value, high: ir.Value) -> None:
        """Steps from `low` to `high`, a few for all tiles, then the next: the rows of a transposed A are contiguous there."""
        even = b.add(low, b.and_(b.sub(high, low), index(-PACKED_ROUND)))
        for start, end, steps in ((low, even, PACKED_ROUND), (even, high, 1)):
            with counting(b, start, end, steps) as k, counting(b, *tiles) as tile:
                self._pack_steps(b, tile, k, steps)

    def _pack_steps(self, b: ir.IRBuilder, tile: ir.Value, k: ir.Value, steps: int) -> None:
        a: Matrix = self.driver.product.a
        row = start_of(b, self.tiles.rows, tile)
        step = k if self.start is None else b.add(self.start, k)
        source = offset(b, self.a, (row, a.by_row), (step, a.by_column))
        place = self.tile(b, tile, row, k)
        for rows in by_size(b, self.tiles.rows, tile):
            pack_rows(b, self.driver.simd, source, place, steps=steps, rows=rows, strides=(a.by_row, a.by_column))


TILE_GAP = ALIGNMENT
"""Bytes between packed tiles of A, so that tiles whose size is a power of two do not compete for the same cache lines."""

DIRECT_TILES = 16
"""Row tiles up to which B is read where it lies: packing pays only once its cost is spread over more of them."""

SHARED_NBYTES = 1 << 24
"""Bytes up to which an operand is packed for all threads at once, which takes as much memory again."""

PACKED_STEPS = 64
"""Steps along K that are packed of A by one thread: what threads share of a packing."""

PACKED_ROUND = 16
"""Steps along K that are packed of a tile before the next: each has its own page, which so many stores are worth finding."""

PART_PRODUCTS = 1 << 19
"""Fused products of a part: some 10 µs, a hundred times what claiming it costs."""

SERIAL_PRODUCTS = 1 << 15
"""Below so many fused products (a few µs) waking another thread costs more than it saves."""


def _aligned(nbytes: int) -> int:
    return -(-nbytes // ALIGNMENT) * ALIGNMENT


def _least(b: ir.IRBuilder, value: ir.Value, bound: int) -> ir.Value:
    return b.select(b.icmp_signed("<", value, index(bound)), value, index(bound))


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
