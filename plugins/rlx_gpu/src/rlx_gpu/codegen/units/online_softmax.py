"""The online softmax of a subgroup's queries: scores, weights, maxima and totals in registers, a tile of keys at a time.

Weights are computed relative to the largest score so far; `shrinking` is the factor that corrects earlier weights. The threads
that share a row exchange its maximum at every tile, and their totals at the end.
"""

from __future__ import annotations

from math import inf

from attrs import field

from rlx_core.ir.dtypes import f32
from rlx_core.system.records import define
from rlx_gpu.codegen.assembler import Register
from rlx_gpu.codegen.reductions import Reductions
from rlx_gpu.codegen.units.head_units import HeadUnits


@define(eq=False)
class OnlineSoftmax:
    """The text about `scores`, `largest`, `shrinking` and `totals` for tiles of so many keys, while a function is written."""

    h: HeadUnits
    keys: int
    reductions: Reductions = field(init=False)

    def __attrs_post_init__(self) -> None:
        self.reductions = Reductions(self.h.t.b, self.h.t.scalars, self.h.t.group, None)

    @property
    def parts(self) -> int:
        """Units along the keys of a tile."""
        return self.keys // self.h.unit.size

    def begin(self) -> None:
        """No key is seen yet."""
        t = self.h.t
        for name in ("largest", "most", "totals", "shrinking"):
            t.b.line(f"f32 {name}[{self.h.unit.rows}];")
        with self.h.each_row():
            t.b.line(f"largest[r] = {t.b.literal(f32, -inf).text};")
            t.b.line(f"totals[r] = {t.zero().text};")

    def weigh(self) -> None:
        """Products, in `scores`, become scores and these become weights."""
        self._scores()
        self._weights()

    def _scores(self) -> None:
        t = self.h.t
        with self.h.each_of(self.parts) as (place, _):
            t.b.let("query", f"query0 + {self.h.row}")
            t.b.let("key", f"key0 + {self.h.column}")
            score, _slope = t.score(self.h.named(f"scores{place}"), "query", "key")
            t.b.line(f"scores{place} = {score.text};")

    def _weights(self) -> None:
        h, t, b = self.h, self.h.t, self.h.t.b
        with h.each_row():
            t.b.line("most[r] = largest[r];")
        with h.each_of(self.parts) as (place, row):
            t.b.line(f"most[{row}] = {self._larger(f'most[{row}]', h.named(f'scores{place}')).text};")
        with h.each_row():
            for distance in h.unit.distances:
                t.b.line(f"most[r] = {self._larger('most[r]', h.exchanged('most[r]', distance)).text};")
            maximum = t.finite(Register("most[r]", f32))
            t.b.line(f"shrinking[r] = {t.exp(b.fsub(h.named('largest[r]'), maximum)).text};")
            t.b.line("largest[r] = most[r];")
            t.b.line(f"most[r] = {maximum.text};")
            t.b.line(f"totals[r] = {b.fmul(h.named('totals[r]'), h.named('shrinking[r]')).text};")
        with h.each_of(self.parts) as (place, row):
            weight = t.exp(b.fsub(h.named(f"scores{place}"), h.named(f"most[{row}]")))
            t.b.line(f"scores{place} = {weight.text};")
            t.b.line(f"totals[{row}] = {b.fadd(h.named(f'totals[{row}]'), weight).text};")

    def _larger(self, name: str, other: Register) -> Register:
        return self.reductions.combined("max", f32, self.h.named(name), other)
