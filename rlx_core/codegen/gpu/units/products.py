"""Products by matrix units: tiles in shared memory as they are stored, sums in f32 in registers.

A group computes a tile of the result, and each of its subgroups a part of that. Tiles of both operands are brought several steps
along the depth ahead, each in the order in which it lies in memory: 16 bytes at once where rows begin at such places, else an
element at a time. What becomes of the sums is a loop kernel, computed on pairs of neighbours where they are stored.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from attrs import evolve, field

from rlx_core.codegen.gpu.assembler import Register, TextAssembler
from rlx_core.codegen.gpu.functions import Function, assembled, each_group
from rlx_core.codegen.gpu.languages import Argument, Language
from rlx_core.codegen.gpu.memory import index_text
from rlx_core.codegen.gpu.printer import renamed
from rlx_core.codegen.gpu.registers import spelled, stored_dtype
from rlx_core.codegen.gpu.tiles import Factor, TiledProduct, place_tile
from rlx_core.codegen.gpu.units.matrix_units import MatrixUnit
from rlx_core.codegen.gpu.units.tiles import COPIED, UnitTiles, unit_tiles_of
from rlx_core.codegen.gpu.values import At, Values
from rlx_core.codegen.gpu.walks import Machine, Schedule, has_pairs
from rlx_core.codegen.loops import Index, Kernel
from rlx_core.codegen.scalars.table import ScalarTable
from rlx_core.ir.dtypes import f32
from rlx_core.system.records import define, frozen

__all__ = ["print_unit_product"]


def print_unit_product(
    problem: TiledProduct, unit: MatrixUnit, language: Language, machine: Machine, scalars: ScalarTable
) -> Function:
    """The function that computes a product for which `unit_for` found a unit, and whose indices fit into 32 bits."""
    kernel, tiles = problem.kernel, unit_tiles_of(problem, machine, unit)
    b = TextAssembler(language)
    used = sorted({a.buffer for a in kernel.accesses} | {problem.lhs.buffer, problem.rhs.buffer})
    names = {buffer: f"m{i}" for i, buffer in enumerate(used)}
    group = tiles.subgroups * unit.threads
    # The sums vary along all axes, as positions do; what stands for them is never computed.
    sums = Index(f32, len(kernel.extents) - 1)
    values = tuple(sums if i == problem.element else v for i, v in enumerate(kernel.values))
    lanes = 2 if has_pairs(kernel) else 1
    written = Values(b, renamed(evolve(kernel, values=values), names), Schedule("point", lanes, group, 1, 1), scalars)
    *batch, m, n = kernel.extents
    total = -(-m // tiles.rows) * -(-n // tiles.columns) * prod(batch)
    groups = min(total, machine.most_groups)
    printing = _Printing(problem, tiles, unit, written)
    with each_group(b, "i", total, groups):
        printing.tile()
    arguments = {i: Argument(names[i], kernel.buffers[i].dtype, kernel.buffers[i].is_result) for i in used}
    shared = [each.declared(b.language) for each in printing.sides]
    return assembled(kernel.name, b, arguments, shared, group, groups, tuple(written.sites))


@frozen
class _Side:
    """An operand's tiles in shared memory, all stages after one another.

    Attributes:
        axis: Of the problem, along which the tile has `size` elements from `start`.
        is_deep: Whether the depth is the axis along which neighbours are neighbours.
        width: Elements that are copied at once.
        type: Of an element.
    """

    name: str
    factor: Factor
    axis: int
    start: str
    size: int
    tiles: UnitTiles
    is_deep: bool
    width: int
    type: str

    @property
    def step(self) -> int:
        """Elements from a row of the tile to the next."""
        return (self.tiles.depth if self.is_deep else self.size) + self.tiles.padding

    @property
    def elements(self) -> int:
        """Of one stage."""
        return (self.size if self.is_deep else self.tiles.depth) * self.step

    def place(self, along: str, deep: str) -> str:
        """The index of an element of a stage."""
        return f"({along}) * {self.step}u + {deep}" if self.is_deep else f"({deep}) * {self.step}u + {along}"

    def declared(self, language: Language) -> str:
        return language.shared(
            f"__attribute__((aligned(16))) {self.type}", self.name, self.elements * self.tiles.stages
        )


@define(eq=False)
class _Printing:
    """The text of one product while it is written."""

    problem: TiledProduct
    tiles: UnitTiles
    unit: MatrixUnit
    values: Values
    sides: tuple[_Side, _Side] = field(init=False)

    def __attrs_post_init__(self) -> None:
        p, t, rank = self.problem, self.tiles, len(self.problem.kernel.extents)
        self.sides = (
            self._side("tile_of_lhs", p.lhs, rank - 2, "row0", t.rows),
            self._side("tile_of_rhs", p.rhs, rank - 1, "column0", t.columns),
        )

    def _side(self, name: str, factor: Factor, axis: int, start: str, size: int) -> _Side:
        kernel = self.kernel
        is_deep = abs(factor.depth) <= abs(factor.strides[axis])
        inner, extent = (factor.depth, self.problem.depth) if is_deep else (factor.strides[axis], kernel.extents[axis])
        buffer = kernel.buffers[factor.buffer]
        outer = (
            *(s for a, s in enumerate(factor.strides) if a != axis),
            factor.strides[axis] if is_deep else factor.depth,
        )
        width = COPIED // buffer.dtype.itemsize
        is_whole = inner == buffer.dtype.itemsize and extent % width == 0
        is_whole = is_whole and all(s % COPIED == 0 for s in (*outer, factor.offset, buffer.alignment))
        type = spelled(stored_dtype(buffer.dtype))
        return _Side(name, factor, axis, start, size, self.tiles, is_deep, width if is_whole else 1, type)

    @property
    def kernel(self) -> Kernel:
        return self.problem.kernel

    @property
    def b(self) -> TextAssembler:
        return self.values.b

    def let(self, name: str, text: str) -> None:
        self.b.writer.line(self.b.language.declared("u32", name, text))

    def unrolled(self, name: str, count: int) -> str:
        return self.b.language.unrolled + self.b.language.loop("u32", name, "0u", f"{count}u", "1u")

    # ------------------------------------------------------------------------------------------ tile

    def tile(self) -> None:
        """The tile of the result whose number is `i`."""
        b, t, unit = self.b, self.tiles, self.unit
        grid = place_tile(b, self.kernel.extents, t.rows, t.columns)
        down, across = t.rows // t.down, t.columns // t.across
        self.let("part", f"{b.language.thread} / {unit.threads}u")
        self.let("part_row", f"part / {t.across}u * {down}u")
        self.let("part_column", f"part % {t.across}u * {across}u")
        parts = (down // unit.size, across // unit.size)
        b.writer.line(f"rlx_sums sums[{prod(parts)}] = {{}};")
        steps = -(-self.problem.depth // t.depth)
        for stage in range(t.stages - 1):
            self._bring(f"{stage * t.depth}u", f"{stage}u", grid)
        with b.writer.block(b.language.loop("u32", "turn", "0u", f"{steps}u", "1u")):
            b.writer.line(f"rlx_await_copies<{t.stages - 2}>();")
            b.writer.line(b.language.barrier)  # what was brought is there for all, and the stage before is read by all
            self.let("ahead", f"turn + {t.stages - 1}u")
            self._bring(f"ahead * {t.depth}u", f"ahead % {t.stages}u", grid)
            self.let("stage", f"turn % {t.stages}u")
            with b.writer.block(self.unrolled("k", t.depth // unit.size)):
                self._multiply(parts)
        b.writer.line("rlx_await_copies<0>();")
        self._finish(parts, grid)

    def _bring(self, deep0: str, stage: str, grid: dict[int, str]) -> None:
        """The tiles of both operands from one place along the depth on, zeros where an operand ends."""
        for side in self.sides:
            self._bring_side(side, deep0, stage, grid)
        self.b.writer.line("rlx_copies_end();")

    def _bring_side(self, side: _Side, deep0: str, stage: str, grid: dict[int, str]) -> None:
        b, t, kernel, problem = self.b, self.tiles, self.kernel, self.problem
        buffer, width = self.values.kernel.buffers[side.factor.buffer], side.width
        flat, along, deep = (b.writer.fresh(stem) for stem in ("e", "a", "d"))
        threads, runs = t.subgroups * self.unit.threads, side.size * t.depth // width
        with b.writer.block(
            b.language.unrolled + b.language.loop("u32", flat, b.language.thread, f"{runs}u", f"{threads}u")
        ):
            inner, outer, size = (deep, along, t.depth) if side.is_deep else (along, deep, side.size)
            self.let(inner, f"{flat} % {size // width}u * {width}u")
            self.let(outer, f"{flat} / {size // width}u")
            self.let(f"{along}_at", f"{side.start} + {along}")
            self.let(f"{deep}_at", f"{deep0} + {deep}")
            extent = kernel.extents[side.axis]
            b.writer.line(f"const bool {flat}_is = {along}_at < {extent}u && {deep}_at < {problem.depth}u;")
            moving = {**grid, side.axis: f"{along}_at", len(kernel.extents): f"{deep}_at"}
            strides = [s if a in moving else 0 for a, s in enumerate((*side.factor.strides, side.factor.depth))]
            index = index_text(strides, side.factor.offset, buffer.dtype.itemsize, moving)
            to = f"{side.name}[{stage} * {side.elements}u + {side.place(along, deep)}]"
            if width == 1:
                b.writer.line(f"{to} = {flat}_is ? {buffer.name}[{index}] : ({side.type})0;")
            else:
                b.writer.line(f"rlx_copy_ahead(&{to}, &{buffer.name}[{flat}_is ? {index} : 0u], {flat}_is);")

    def _multiply(self, parts: tuple[int, int]) -> None:
        """The products of one step of a unit's size along the depth, added to the sums of a subgroup."""
        b, size, dtype = self.b, self.unit.size, self.kernel.buffers[self.problem.lhs.buffer].dtype
        for name, stem, start, count, side in zip(
            ("lhs", "rhs"), "ab", ("part_row", "part_column"), parts, self.sides, strict=True
        ):
            b.writer.line(f"rlx_{name} {stem}[{count}];")
            # A matrix whose rows are those of the result, or of the depth, is in the order that a unit reads.
            order = "" if side.is_deep is (name == "lhs") else "_transposed"
            place = side.place(f"{start} + r * {size}u", f"k * {size}u")
            with b.writer.block(self.unrolled("r", count)):
                at = f"{side.name} + stage * {side.elements}u + {place}"
                b.writer.line(f"rlx_bring_{name}{order}({stem}[r], {at}, {side.step}u);")
        with b.writer.block(self.unrolled("r", parts[0])), b.writer.block(self.unrolled("c", parts[1])):
            b.writer.line(f"rlx_multiply_{dtype}(sums[r * {parts[1]}u + c], a[r], b[c]);")

    # ---------------------------------------------------------------------------------------- result

    def _finish(self, parts: tuple[int, int], grid: dict[int, str]) -> None:
        """What the kernel makes of a thread's sums, pair by pair."""
        b, size, lanes = self.b, self.unit.size, self.values.schedule.lanes
        *_, m, n = self.kernel.extents
        with (
            b.writer.block(self.unrolled("r", parts[0])),
            b.writer.block(self.unrolled("c", parts[1])),
            b.writer.block(self.unrolled("pair", self.unit.pairs)),
        ):
            self.let("row", f"row0 + part_row + r * {size}u + rlx_sum_row(pair)")
            self.let("column", f"column0 + part_column + c * {size}u + rlx_sum_column(pair)")
            of = f"sums[r * {parts[1]}u + c].each[pair * 2u"
            if lanes == 2:
                with b.writer.block(f"if (row < {m}u && column < {n}u) {{"):
                    self._store("column", [f"{of}]", f"{of} + 1u]"], grid)
                return
            with b.writer.block(self.unrolled("one", 2)):
                self.let("at_column", "column + one")
                with b.writer.block(f"if (row < {m}u && at_column < {n}u) {{"):
                    self._store("at_column", [f"{of} + one]"], grid)

    def _store(self, column: str, sums: Sequence[str], grid: dict[int, str]) -> None:
        extents = self.kernel.extents
        last = len(extents) - 1
        axes = {**grid, last - 1: "row", last: column}
        point = " + ".join(f"{axes[a]} * {prod(extents[a + 1 :])}u" for a in sorted(axes))
        place = point if len(sums) == 1 else f"({point}) / {len(sums)}u"
        at = At(axes, place, place, None, {})
        at.lanes = {(self.problem.element, lane): Register(text, f32) for lane, text in enumerate(sums)}
        self.values.store(self.values.kernel.stores, at)
