"""Attention by matrix units: an online softmax whose scores, weights and sums stay in registers.

Each subgroup of a group has a unit's rows of queries, in registers throughout. The group loops over the keys that its queries
see: a tile of keys and one of values are copied to shared memory in their storage dtype, scores are computed from products in
registers, the threads that share a row exchange its maximum, and weights, rounded to the operands' dtype, are the other factor
of the values. Sums are f32; the sum of a query's weights is accumulated before they are rounded.
"""

from __future__ import annotations

from attrs import field

from rlx_core.codegen.attention_scores import KEY, QUERY, PlacedAttention
from rlx_core.codegen.scalars.table import ScalarTable
from rlx_core.emit.emitters import Emitted
from rlx_core.ir.dtypes import f32
from rlx_core.system.records import define
from rlx_gpu.codegen.assembler import Register
from rlx_gpu.codegen.attention.score_tiles import ScoreTiles
from rlx_gpu.codegen.languages import GpuDialect
from rlx_gpu.codegen.units.head_tiles import HeadTile, keys_at_once
from rlx_gpu.codegen.units.head_units import HeadUnits
from rlx_gpu.codegen.units.matrix_units import MatrixUnit
from rlx_gpu.codegen.units.online_softmax import OnlineSoftmax
from rlx_gpu.codegen.walks import Machine


def print_unit_attention(
    problem: PlacedAttention, unit: MatrixUnit, language: GpuDialect, machine: Machine, scalars: ScalarTable
) -> Emitted:
    """Return the function that computes attention on the unit that `unit_for_attention` selected."""
    t = ScoreTiles(problem, language, machine, scalars, problem.buffers, (), unit)
    count = keys_at_once(problem, unit, machine)
    assert count is not None, "there is room for its tiles"
    printing = _Printing(HeadUnits(t, unit), count)
    with t.each_tile(QUERY):
        printing.attention()
    return printing.h.done("attention", (printing.queries, printing.keys, printing.values))


@define(eq=False)
class _Printing:
    """The text of one function while it is written; `count` keys are a tile."""

    h: HeadUnits
    count: int
    queries: HeadTile = field(init=False)
    keys: HeadTile = field(init=False)
    values: HeadTile = field(init=False)

    def __attrs_post_init__(self) -> None:
        h, p = self.h, self.h.t.problem
        self.queries = h.tile("keys_tile", 0, QUERY, p.features)  # there before any keys are
        self.keys = h.tile("keys_tile", 1, KEY, p.features, self.count)
        self.values = h.tile("values_tile", 2, KEY, p.width, self.count)

    def attention(self) -> None:
        h, t, softmax = self.h, self.h.t, OnlineSoftmax(self.h, self.count)
        h.own_rows()
        h.bring(self.queries)
        h.await_copies(0)
        h.own("queries", self.queries)
        t.b.line(f"rlx_sums sums[{self.values.parts}] = {{}};")
        softmax.begin()
        with t.each_seen("key0", t.keys_seen(), self.count):
            t.b.barrier()  # the tiles before are read by all
            h.bring(self.keys)
            h.bring(self.values)
            h.await_copies(1)
            h.dots("scores", "queries", self.keys, softmax.parts)
            softmax.weigh()
            h.await_copies(0)
            with h.each_of(self.values.parts) as (place, row):
                shrunk = t.b.fmul(h.named(f"sums{place}"), h.named(f"shrinking[{row}]"))
                t.b.line(f"sums{place} = {shrunk.text};")
            with t.b.unrolled("k", softmax.parts):
                h.weigh("sums", "scores[k]", self.values, f"k * {h.unit.size}u")
        self._divide()

    def _divide(self) -> None:
        """Divide weighted sums to means; a query that sees no key gets the problem's `empty_row`."""
        h, t, b, p = self.h, self.h.t, self.h.t.b, self.h.t.problem
        with h.each_row():
            h.add_up("totals")
        if p.empty_row == "uniform":
            with h.each_of(self.values.parts) as (place, row):
                self._add_all_values(place, row)
        with h.each_row():
            if p.empty_row != "nan":
                is_empty = b.fcmp_ordered("==", h.named("totals[r]"), b.literal(f32, 0))
                with t.b.when(is_empty.text):
                    t.b.line(f"totals[r] = {b.literal(f32, 1 if p.empty_row == 'zero' else p.sizes[KEY]).text};")

        def mean(one: Register, row: str) -> Register:
            return b.fdiv(one, h.named(f"totals[{row}]"))

        h.store("sums", len(p.layout.operands), QUERY, p.width, mean)

    def _add_all_values(self, place: str, row: str) -> None:
        h, t, b = self.h, self.h.t, self.h.t.b
        t.b.let("feature", h.column)
        is_empty = b.fcmp_ordered("==", h.named(f"totals[{row}]"), b.literal(f32, 0))
        with (
            t.b.when(f"{is_empty.text} && feature < {t.problem.width}u"),
            b.loop("key", "0u", f"{t.problem.sizes[KEY]}u"),
        ):
            value = t.load(2, KEY, "key", "feature")
            t.b.line(f"sums{place} = {b.fadd(h.named(f'sums{place}'), value).text};")
