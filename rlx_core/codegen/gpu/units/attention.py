"""Attention by matrix units: an online softmax whose scores, weights and sums stay in registers.

Each subgroup of a group has a unit's rows of queries, in registers throughout. The group walks over the keys that its queries
see: a tile of keys and one of values are copied to shared memory as they are stored, scores are made of products in registers,
the threads that share a row exchange its maximum, and weights, rounded to the operands' dtype, are the other factor of the
values. Sums are f32; what a query's weights add up to is added before they are rounded.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from math import inf

from attrs import define, field

from rlx_core.codegen.attention_scores import BATCH, HEAD, KEY, QUERY, PlacedAttention
from rlx_core.codegen.gpu.assembler import Register
from rlx_core.codegen.gpu.attention.score_tiles import ScoreTiles
from rlx_core.codegen.gpu.functions import Function, assembled, each_group
from rlx_core.codegen.gpu.languages import Language
from rlx_core.codegen.gpu.memory import index_text
from rlx_core.codegen.gpu.reductions import Reductions
from rlx_core.codegen.gpu.registers import spelled, stored_dtype
from rlx_core.codegen.gpu.units.head_tiles import SUBGROUPS, HeadTile, head_tiles
from rlx_core.codegen.gpu.units.matrix_units import MatrixUnit
from rlx_core.codegen.gpu.units.tiles import COPIED
from rlx_core.codegen.gpu.values import At
from rlx_core.codegen.gpu.walks import Machine
from rlx_core.codegen.scalars.table import ScalarTable
from rlx_core.ir.dtypes import f32

__all__ = ["print_unit_attention"]


def print_unit_attention(
    problem: PlacedAttention, unit: MatrixUnit, language: Language, machine: Machine, scalars: ScalarTable
) -> Function:
    """The function that computes attention for which `unit_for_attention` found a unit."""
    t = ScoreTiles(problem, language, machine, scalars, problem.buffers, (), rows=SUBGROUPS * unit.size)
    batch, heads, queries, _ = problem.sizes
    tiles = -(-queries // t.size)
    total = batch * heads * tiles
    groups = min(total, machine.most_groups)
    found = head_tiles(problem, unit, machine)
    assert found is not None, "there is room for its tiles"
    printing = _Printing(t, unit, *found)
    with each_group(t.b, "i", total, groups):
        t.let("query0", f"i % {tiles}u * {t.size}u")
        t.let("head", f"i / {tiles}u % {heads}u")
        t.let("batch", f"i / {tiles * heads}u")
        t.let("group_head", f"head / {problem.sharing}u")
        t.let("first", f"{language.thread} / {unit.threads}u * {unit.size}u")
        printing.attention()
    return printing.done(groups)


@define(eq=False)
class _Printing:
    """The text of one function while it is written."""

    t: ScoreTiles
    unit: MatrixUnit
    queries: HeadTile
    keys: HeadTile
    values: HeadTile
    reductions: Reductions = field(init=False)

    def __attrs_post_init__(self) -> None:
        self.reductions = Reductions(self.t.b, self.t.scalars, self.group, None)

    @property
    def group(self) -> int:
        return SUBGROUPS * self.unit.threads

    @property
    def type(self) -> str:
        """Of an element in shared memory."""
        return spelled(stored_dtype(self.t.problem.problem.stored))

    @property
    def multiply(self) -> str:
        return f"rlx_multiply_{self.t.problem.problem.stored}"

    def unrolled(self, name: str, count: int) -> str:
        language = self.t.language
        return language.unrolled + language.loop("u32", name, "0u", f"{count}u", "1u")

    def done(self, groups: int) -> Function:
        language = self.t.language
        shared = [
            language.shared(f"__attribute__((aligned({COPIED}))) {self.type}", tile.name, elements)
            for tile, elements in (
                (self.keys, max(self.queries.elements, self.keys.elements)),
                (self.values, self.values.elements),
            )
        ]
        return assembled("attention", self.t.b, self.t.arguments(), shared, self.group, groups)

    # ------------------------------------------------------------------------------------ the algorithm

    def attention(self) -> None:
        t, block = self.t, self.t.b.writer.block
        rows, parts = self.unit.rows, self.keys.positions // self.unit.size
        self.bring(self.queries)
        self.await_copies(0)
        t.line(f"rlx_lhs queries[{self.queries.parts}];")
        with block(self.unrolled("k", self.queries.parts)):
            t.line(f"rlx_bring_lhs(queries[k], keys_tile + first * {self.queries.step}u + k * {self.unit.size}u, "
                   f"{self.queries.step}u);")  # fmt: skip
        t.line(f"rlx_sums sums[{self.values.parts}] = {{}};")
        for name in ("largest", "most", "totals", "shrinking"):
            t.line(f"f32 {name}[{rows}];")
        with block(self.unrolled("r", rows)):
            t.line(f"largest[r] = {t.b.literal(f32, -inf).text};")
            t.line(f"totals[r] = {t.zero().text};")
        start, end = t.keys_seen()
        t.let("start", start)
        t.let("end", end)
        with t.loop("key0", "start", "end", self.keys.positions):
            t.barrier()  # the tiles before are read by all
            self.bring(self.keys)
            self.bring(self.values)
            self.await_copies(1)
            t.line(f"rlx_sums scores[{parts}] = {{}};")
            with block(self.unrolled("k", self.keys.parts)), block(self.unrolled("c", parts)):
                t.line("rlx_rhs keys;")
                t.line(f"rlx_bring_rhs_transposed(keys, keys_tile + c * {self.unit.size * self.keys.step}u + "
                       f"k * {self.unit.size}u, {self.keys.step}u);")  # fmt: skip
                t.line(f"{self.multiply}(scores[c], queries[k], keys);")
            self._scores(parts)
            self._weights(parts)
            self.await_copies(0)
            self._weigh(parts)
        self._divide()
        self._store()

    def bring(self, tile: HeadTile) -> None:
        """A tile of positions from the first one on, zeros where there are none."""
        t, problem = self.t, self.t.problem
        name, dtype = t.buffer(tile.number)
        factor = t.factor(tile.number, tile.axis)
        start, extent = ("query0" if tile.axis == QUERY else "key0"), problem.sizes[tile.axis]
        head = "head" if tile.axis == QUERY else "group_head"
        width = self._copied_at_once(tile)
        e, row, feature, position = (t.b.writer.fresh(stem) for stem in ("e", "row", "f", "at"))
        runs = tile.depth // width
        with t.b.writer.block(
            t.language.unrolled
            + t.language.loop("u32", e, t.language.thread, f"{tile.positions * runs}u", f"{self.group}u")
        ):
            t.let(row, f"{e} / {runs}u")
            t.let(feature, f"{e} % {runs}u * {width}u")
            t.let(position, f"{start} + {row}")
            t.line(f"const bool {e}_is = {position} < {extent}u && {feature} < {tile.features}u;")
            places = {BATCH: "batch", HEAD: head, tile.axis: position, 4: feature}
            strides = [s if a in places else 0 for a, s in enumerate((*factor.strides, factor.depth))]
            index = index_text(strides, factor.offset, dtype.itemsize, places)
            to = f"{tile.name}[{row} * {tile.step}u + {feature}]"
            if width == 1:
                t.line(f"{to} = {e}_is ? {name}[{index}] : ({self.type})0;")
            else:
                t.line(f"rlx_copy_ahead(&{to}, &{name}[{e}_is ? {index} : 0u], {e}_is);")
        t.line("rlx_copies_end();")

    def _copied_at_once(self, tile: HeadTile) -> int:
        """Elements of 16 bytes where every row begins at a multiple of them, else one."""
        factor, buffer = self.t.factor(tile.number, tile.axis), self.t.buffers[tile.number]
        width = COPIED // buffer.dtype.itemsize
        is_whole = factor.depth == buffer.dtype.itemsize and tile.features % width == 0
        is_whole = is_whole and all(s % COPIED == 0 for s in (*factor.strides, factor.offset, buffer.alignment))
        return width if is_whole else 1

    def await_copies(self, but: int) -> None:
        """Wait for all copies but those that were asked for last, and until all threads have."""
        self.t.line(f"rlx_await_copies<{but}>();")
        self.t.barrier()

    @contextmanager
    def _each_of(self, name: str, count: int) -> Iterator[tuple[Register, str]]:
        """Lines for each element that a thread has of `count` matrices of sums: it, and which of the thread's rows it is in."""
        block = self.t.b.writer.block
        with (
            block(self.unrolled("c", count)),
            block(self.unrolled("pair", self.unit.pairs)),
            block(self.unrolled("one", 2)),
        ):
            yield self.t.b.named(f"{name}[c].each[pair * 2u + one]", f32), f"pair % {self.unit.rows}u"

    def _scores(self, parts: int) -> None:
        """Products become scores: -inf where there is no such key, or the query may not see it."""
        t, scores = self.t, self.t.problem.scores
        _, _, queries, keys = t.problem.sizes
        with self._each_of("scores", parts) as (dot, _):
            t.let("query", "query0 + first + rlx_sum_row(pair)")
            t.let("key", f"key0 + c * {self.unit.size}u + rlx_sum_column(pair) + one")
            score = t.b.variable(t.b.literal(f32, -inf), "score")
            with t.when(f"query < {queries}u && key < {keys}u"):
                at = At(
                    {BATCH: "batch", HEAD: "head", QUERY: "query", KEY: "key"}, "0u", "0u", None, {scores.element: dot}
                )
                t.b.assign(score, t.values.value(scores.score, 0, at))
            t.line(f"scores[c].each[pair * 2u + one] = {score.text};")

    def _weights(self, parts: int) -> None:
        """Scores become weights by the largest so far; of earlier ones `shrinking` says by what they were too large."""
        t, b, block, rows = self.t, self.t.b, self.t.b.writer.block, self.unit.rows
        with block(self.unrolled("r", rows)):
            t.line("most[r] = largest[r];")
        with self._each_of("scores", parts) as (one, row):
            t.line(f"most[{row}] = {self._larger(f'most[{row}]', one).text};")
        with block(self.unrolled("r", rows)):
            for distance in self.unit.distances:
                t.line(f"most[r] = {self._larger('most[r]', self._exchanged('most[r]', distance)).text};")
            most = t.finite(Register("most[r]", f32))
            t.line(f"shrinking[r] = {t.exp(b.fsub(b.named('largest[r]', f32), most)).text};")
            t.line("largest[r] = most[r];")
            t.line(f"most[r] = {most.text};")
            t.line(f"totals[r] = {b.fmul(b.named('totals[r]', f32), b.named('shrinking[r]', f32)).text};")
        with self._each_of("scores", parts) as (one, row):
            weight = t.exp(b.fsub(one, b.named(f"most[{row}]", f32)))
            t.line(f"scores[c].each[pair * 2u + one] = {weight.text};")
            t.line(f"totals[{row}] = {b.fadd(b.named(f'totals[{row}]', f32), weight).text};")

    def _weigh(self, parts: int) -> None:
        """Values, weighed, added to what has shrunk."""
        t, block, size = self.t, self.t.b.writer.block, self.unit.size
        with self._each_of("sums", self.values.parts) as (one, row):
            t.line(f"sums[c].each[pair * 2u + one] = {t.b.fmul(one, t.b.named(f'shrinking[{row}]', f32)).text};")
        with block(self.unrolled("k", parts)):
            t.line("rlx_lhs weights;")
            t.line(f"rlx_lhs_of_sums_{t.problem.problem.stored}(weights, scores[k]);")
            with block(self.unrolled("c", self.values.parts)):
                t.line("rlx_rhs values;")
                t.line(f"rlx_bring_rhs(values, values_tile + k * {size * self.values.step}u + c * {size}u, "
                       f"{self.values.step}u);")  # fmt: skip
                t.line(f"{self.multiply}(sums[c], weights, values);")

    def _divide(self) -> None:
        """Weighted sums become means; a query that sees no key is given what the problem says."""
        t, b, p = self.t, self.t.b, self.t.problem
        with b.writer.block(self.unrolled("r", self.unit.rows)):
            for distance in self.unit.distances:
                other = self._exchanged("totals[r]", distance)
                t.line(f"totals[r] = {b.fadd(b.named('totals[r]', f32), other).text};")
        if p.empty_row == "uniform":
            with self._each_of("sums", self.values.parts) as (_, row):
                self._add_all_values(row)
        with b.writer.block(self.unrolled("r", self.unit.rows)):
            if p.empty_row != "nan":
                is_empty = b.fcmp_ordered("==", b.named("totals[r]", f32), b.literal(f32, 0))
                with t.when(is_empty.text):
                    t.line(f"totals[r] = {b.literal(f32, 1 if p.empty_row == 'zero' else p.sizes[KEY]).text};")

    def _add_all_values(self, row: str) -> None:
        t, b = self.t, self.t.b
        t.let("feature", self._feature())
        is_empty = b.fcmp_ordered("==", b.named(f"totals[{row}]", f32), b.literal(f32, 0))
        with (
            t.when(f"{is_empty.text} && feature < {t.problem.width}u"),
            t.loop("key", "0u", f"{t.problem.sizes[KEY]}u"),
        ):
            value = t.load(2, KEY, "group_head", "key", "feature")
            t.line(
                f"sums[c].each[pair * 2u + one] = {b.fadd(b.named('sums[c].each[pair * 2u + one]', f32), value).text};"
            )

    def _store(self) -> None:
        t, b, p = self.t, self.t.b, self.t.problem
        with self._each_of("sums", self.values.parts) as (one, row):
            t.let("query", "query0 + first + rlx_sum_row(pair)")
            t.let("feature", self._feature())
            with t.when(f"query < {p.sizes[QUERY]}u && feature < {p.width}u"):
                mean = b.fdiv(one, b.named(f"totals[{row}]", f32))
                t.store(len(p.layout.operands), QUERY, "head", "query", "feature", mean)

    # ------------------------------------------------------------------------------------------ details

    def _feature(self) -> str:
        return f"c * {self.unit.size}u + rlx_sum_column(pair) + one"

    def _larger(self, name: str, other: Register) -> Register:
        return self.reductions.combined("max", f32, self.t.b.named(name, f32), other)

    def _exchanged(self, name: str, distance: int) -> Register:
        return self.t.b.named(self.t.language.exchanged(name, distance), f32)
