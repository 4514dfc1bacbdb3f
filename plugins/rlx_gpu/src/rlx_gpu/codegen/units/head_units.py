"""Matrices of heads while a function of attention is written: tiles in shared memory, and products of them in registers.

A group is a few subgroups, each of which owns a unit's rows of a tile: in the text they begin at row `first` of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager

from rlx_core.codegen.attention_scores import BATCH, HEAD
from rlx_core.emit.emitters import Emitted
from rlx_core.ir.dtypes import f32
from rlx_core.system.records import define
from rlx_gpu.codegen.assembler import Register
from rlx_gpu.codegen.attention.score_tiles import NAMES, ScoreTiles
from rlx_gpu.codegen.registers import spelled, stored_dtype
from rlx_gpu.codegen.units.head_tiles import HeadTile
from rlx_gpu.codegen.units.matrix_units import MatrixUnit
from rlx_gpu.codegen.units.tiles import COPIED, copied_at_once


@define(eq=False)
class HeadUnits:
    """The text of one function that multiplies by units."""

    t: ScoreTiles
    unit: MatrixUnit

    @property
    def type(self) -> str:
        """Type of an element in shared memory."""
        return spelled(stored_dtype(self.t.problem.problem.stored))

    def done(self, stem: str, tiles: Sequence[HeadTile], arrays: Sequence[str] = ()) -> Emitted:
        """The function that was written; tiles of one name follow one another, and `arrays` have a number for each row owned."""
        language, sizes = self.t.language, dict[str, int]()
        for tile in tiles:
            sizes[tile.name] = max(tile.elements, sizes.get(tile.name, 0))
        aligned = f"__attribute__((aligned({COPIED}))) {self.type}"
        shared = [language.shared(aligned, name, elements) for name, elements in sizes.items()]
        shared += [language.shared(language.type(f32), name, self.t.size) for name in arrays]
        return self.t.done(stem, shared)

    # ----------------------------------------------------------------------------------------- tiles

    def tile(self, name: str, number: int, axis: int, features: int, positions: int | None = None) -> HeadTile:
        """Return a tile of an operand, by default with as many rows as a group owns."""
        rows = self.t.size if positions is None else positions
        return HeadTile(name, number, axis, features, self.unit.size, rows, self.t.problem.problem.stored.itemsize)

    def own_rows(self) -> None:
        """Define the index of a subgroup's first row."""
        self.t.b.let("first", f"{self.t.language.thread} / {self.unit.threads}u * {self.unit.size}u")

    def bring(self, tile: HeadTile) -> None:
        """Copy a tile of positions from the first one on to shared memory, padded with zeros."""
        t, problem = self.t, self.t.problem
        name, dtype = t.buffer(tile.number)
        factor = t.factor(tile.number, tile.axis)
        (start, head), extent = NAMES[tile.axis], problem.sizes[tile.axis]
        width = copied_at_once(factor, len(factor.strides), tile.features, t.buffers[tile.number])
        e, row, feature, position = (t.b.fresh(stem) for stem in ("e", "row", "f", "at"))
        runs = tile.depth // width
        # Copies of elements are too many to be all on their way in registers.
        stop, step, is_unrolled = f"{tile.positions * runs}u", f"{t.group}u", width > 1
        with t.b.loop(e, t.language.thread, stop, step, is_unrolled=is_unrolled):
            t.b.let(row, f"{e} / {runs}u")
            t.b.let(feature, f"{e} % {runs}u * {width}u")
            t.b.let(position, f"{start} + {row}")
            t.b.line(f"const bool {e}_is = {position} < {extent}u && {feature} < {tile.features}u;")
            places = {BATCH: "batch", HEAD: head, tile.axis: position, 4: feature}
            index = factor.index(places, dtype.itemsize, t.index_type(tile.number))
            to = f"{tile.name}[{row} * {tile.step}u + {feature}]"
            if width == 1:
                t.b.line(f"{to} = {e}_is ? {name}[{index}] : ({self.type})0;")
            else:
                t.b.line(f"rlx_copy_ahead(&{to}, &{name}[{e}_is ? {index} : 0u], {e}_is);")
        t.b.line("rlx_copies_end();")

    def await_copies(self, but: int) -> None:
        """Wait for all copies except the last `but` ones, and then for all threads."""
        self.t.b.line(f"rlx_await_copies<{but}>();")
        self.t.b.barrier()

    # -------------------------------------------------------------------------------------- products

    @property
    def _multiply(self) -> str:
        return f"rlx_multiply_{self.t.problem.problem.stored}"

    def own(self, name: str, tile: HeadTile) -> None:
        """A subgroup's rows of a tile as left factors, which stay in registers."""
        size = self.unit.size
        self.t.b.line(f"rlx_lhs {name}[{tile.parts}];")
        with self.t.b.unrolled("k", tile.parts):
            self.t.b.line(f"rlx_bring_lhs({name}[k], {tile.name} + first * {tile.step}u + k * {size}u, {tile.step}u);")

    def dots(self, sums: str, operand: str, tile: HeadTile, parts: int, start: str = "0u") -> None:
        """Products of a subgroup's rows with `parts` units of a tile's rows from `start` on, as new `sums`."""
        t, unrolled, size = self.t, self.t.b.unrolled, self.unit.size
        t.b.line(f"rlx_sums {sums}[{parts}] = {{}};")
        with unrolled("k", tile.parts), unrolled("c", parts):
            t.b.line("rlx_rhs rows;")
            row = f"({start} + c * {size}u) * {tile.step}u"
            t.b.line(f"rlx_bring_rhs_transposed(rows, {tile.name} + {row} + k * {size}u, {tile.step}u);")
            t.b.line(f"{self._multiply}({sums}[c], {operand}[k], rows);")

    def weigh(self, sums: str, weights: str, tile: HeadTile, start: str) -> None:
        """A unit of a tile's rows, from `start` on, times sums rounded to the dtype of the operands, added to other sums."""
        t, size = self.t, self.unit.size
        factor = t.b.fresh("factor")
        t.b.line(f"rlx_lhs {factor};")
        t.b.line(f"rlx_lhs_of_sums_{t.problem.problem.stored}({factor}, {weights});")
        with t.b.unrolled("c", tile.parts):
            t.b.line("rlx_rhs rows;")
            t.b.line(f"rlx_bring_rhs(rows, {tile.name} + ({start}) * {tile.step}u + c * {size}u, {tile.step}u);")
            t.b.line(f"{self._multiply}({sums}[c], {factor}, rows);")

    # ------------------------------------------------------------------------------------------ sums

    @contextmanager
    def each_of(self, count: int) -> Iterator[tuple[str, str]]:
        """Lines for each element that a thread has of `count` matrices of sums: its place in them, and which of the thread's
        rows it is in."""
        unrolled = self.t.b.unrolled
        with unrolled("c", count), unrolled("pair", self.unit.pairs), unrolled("one", 2):
            yield "[c].each[pair * 2u + one]", f"pair % {self.unit.rows}u"

    def each_row(self) -> AbstractContextManager[None]:
        """Context for code per row of which a thread has elements: row `r` is that of pair `r`."""
        return self.t.b.unrolled("r", self.unit.rows)

    def named(self, text: str) -> Register:
        return self.t.b.named(text, f32)

    @property
    def row(self) -> str:
        """The row in the tile of an element: one of those that a subgroup owns."""
        return "first + rlx_sum_row(pair)"

    @property
    def column(self) -> str:
        return f"c * {self.unit.size}u + rlx_sum_column(pair) + one"

    def exchanged(self, name: str, distance: int) -> Register:
        return self.named(self.t.language.exchanged(name, distance))

    def add_up(self, name: str) -> None:
        """Sum the partial sums of row `r` over the threads that share it, in the same order in every thread."""
        for distance in self.unit.distances:
            total = self.t.b.fadd(self.named(f"{name}[r]"), self.exchanged(f"{name}[r]", distance))
            self.t.b.line(f"{name}[r] = {total.text};")

    def store(
        self, sums: str, number: int, axis: int, width: int, adjust: Callable[[Register, str], Register] | None = None
    ) -> None:
        """Sums as the rows of a result that the group owns, along an axis; `adjust` is given each and which of the thread's rows
        it is in."""
        t, (start, _) = self.t, NAMES[axis]
        with self.each_of(-(-width // self.unit.size)) as (place, row):
            t.b.let("position", f"{start} + {self.row}")
            t.b.let("feature", self.column)
            with t.b.when(f"position < {t.problem.sizes[axis]}u && feature < {width}u"):
                one = self.named(sums + place)
                t.store(number, axis, "position", "feature", one if adjust is None else adjust(one, row))
