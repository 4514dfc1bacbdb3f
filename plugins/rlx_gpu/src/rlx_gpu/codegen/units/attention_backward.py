"""The cotangents of attention of narrow floats by matrix units, in the three passes of `attention.backward`.

    statistics  a group owns 64 queries: an online softmax, and Σ p·dp along with its totals
    queries     a group owns 64 queries and walks over tiles of keys:    dq = Σ du·k
    keys        a group owns 64 keys and walks over tiles of queries:    dk = Σ du·q and dv = Σ p·dy

The owned operand and its partner (queries with dy, keys with v) are in registers as left factors, a unit's rows for each
subgroup; the operands that are looped over are in shared memory, as the right factors of scores and dp, and then of the sums.
Only the scores of a few of their rows are computed at a time, in registers, and converted to p and du: these, rounded to the
operands' dtype, are the left factors of the sums, which are f32. The scale is applied to the sums, so that the rounded numbers
are as large as possible. If the registers of a thread are too few for the sums of both keys and values, a separate launch
computes those of values, from recomputed scores.
"""

from __future__ import annotations

from attrs import evolve, field

from rlx_core.codegen.attention_scores import KEY, QUERY
from rlx_core.codegen.scalars.table import ScalarTable
from rlx_core.emit.emitters import Emitted
from rlx_core.system.records import define
from rlx_gpu.codegen.assembler import Register
from rlx_gpu.codegen.attention.cotangents import STATISTICS, Cotangents
from rlx_gpu.codegen.attention.score_tiles import ScoreTiles
from rlx_gpu.codegen.languages import GpuDialect
from rlx_gpu.codegen.units.head_tiles import HeadTile
from rlx_gpu.codegen.units.head_units import HeadUnits
from rlx_gpu.codegen.units.matrix_units import MatrixUnit
from rlx_gpu.codegen.units.online_softmax import OnlineSoftmax
from rlx_gpu.codegen.walks import Machine

_Q, _K, _V, _DY = range(4)

_SUMMED = {_Q: ("products", 0), _K: ("products", 0), _V: ("scores", 1)}
"""The factors of a cotangent's sum: the weights (du in place of dp, p in place of scores), and the operand looped over."""

WIDEST_TOGETHER = 192
"""Maximum number of features of keys and values for which the sums and factors of both fit into a thread's registers."""


def print_unit_cotangents(
    cotangents: Cotangents, unit: MatrixUnit, language: GpuDialect, machine: Machine, scalars: ScalarTable
) -> tuple[Emitted, ...]:
    """Return the launches that compute the cotangents of attention on the unit that `unit_for_attention` selected."""
    language = evolve(language, head=unit.roomy_head or language.head)

    def begun(axis: int, *outputs: int) -> _Printing:
        t = ScoreTiles(cotangents.problem, language, machine, scalars, cotangents.buffers, (), unit)
        return _Printing(HeadUnits(t, unit), cotangents, axis, outputs)

    of_queries = begun(QUERY, _Q).statistics(), begun(QUERY, _Q).queries()
    if cotangents.problem.features + cotangents.problem.width <= WIDEST_TOGETHER:
        return *of_queries, begun(KEY, _K, _V).keys("attention_keys")
    return *of_queries, begun(KEY, _K).keys("attention_keys"), begun(KEY, _V).keys("attention_values")


@define(eq=False)
class _Printing:
    """The text of one function under construction.

    Attributes:
        axis: Axis of the scores with the rows that a group owns.
        requested: The operands whose cotangents it computes.
        owned: The operand that has features of queries, and the one that has features of values.
        walked: The same of the other axis.
    """

    h: HeadUnits
    cotangents: Cotangents
    axis: int
    requested: tuple[int, ...]
    owned: tuple[HeadTile, HeadTile] = field(init=False)
    walked: tuple[HeadTile, HeadTile] = field(init=False)

    def __attrs_post_init__(self) -> None:
        of_queries, of_keys = self._tiles(QUERY, _Q, _DY), self._tiles(KEY, _K, _V)
        self.owned, self.walked = (of_queries, of_keys) if self.axis == QUERY else (of_keys, of_queries)

    def _tiles(self, axis: int, features: int, width: int) -> tuple[HeadTile, HeadTile]:
        p = self.cotangents.problem
        return self.h.tile("left", features, axis, p.features), self.h.tile("right", width, axis, p.width)

    @property
    def has_products(self) -> bool:
        """Whether dp is needed: for all but the cotangent of values."""
        return self.requested != (_V,)

    @property
    def t(self) -> ScoreTiles:
        return self.h.t

    def _done(self, stem: str, *arrays: str) -> Emitted:
        return self.h.done(stem, self.walked, arrays)

    # ---------------------------------------------------------------------------------------- passes

    def statistics(self) -> Emitted:
        h, t, softmax = self.h, self.t, OnlineSoftmax(self.h, self.t.size)
        with t.each_tile(QUERY):
            self._own()
            softmax.begin()
            t.b.line(f"f32 weighted[{h.unit.rows}] = {{}};")
            with t.each_seen("key0", t.keys_seen()):
                self._walk()
                h.dots("scores", "own_left", self.walked[0], softmax.parts)
                h.dots("products", "own_right", self.walked[1], softmax.parts)
                softmax.weigh()
                with h.each_row():
                    t.b.line(f"weighted[r] = {t.b.fmul(h.named('weighted[r]'), h.named('shrinking[r]')).text};")
                with h.each_of(softmax.parts) as (place, row):
                    factors = h.named(f"scores{place}"), h.named(f"products{place}")
                    t.b.line(f"weighted[{row}] = {t.b.fma(*factors, h.named(f'weighted[{row}]')).text};")
            with h.each_row():
                h.add_up("totals")
                h.add_up("weighted")
                t.b.let("query", "query0 + first + rlx_sum_row(r)")
                is_first = f"({t.language.thread} & {sum(h.unit.distances)}u) == 0u"
                with t.b.when(f"{is_first} && query < {t.problem.sizes[QUERY]}u"):
                    maximum, total, weighted = (h.named(f"{name}[r]") for name in STATISTICS)
                    self.cotangents.store_statistics(t, "query", maximum, total, weighted)
        return self._done("attention_statistics")

    def queries(self) -> Emitted:
        h, t, p = self.h, self.t, self.t.problem
        with t.each_tile(QUERY):
            self._own()
            for name in STATISTICS:
                t.b.line(f"f32 {name}[{h.unit.rows}];")
            with h.each_row():
                t.b.let("query", "query0 + first + rlx_sum_row(r)")
                for one, name in zip(self.cotangents.statistics(t, "query"), STATISTICS, strict=True):
                    t.b.line(f"{name}[r] = {one.text};")
            self._no_sums()
            # Tiles that are skipped have a dw too.
            with t.each_seen("key0", ("0u", f"{p.sizes[KEY]}u") if p.has_bias else t.keys_seen()):
                self._walk()
                self._add()
            self._store()
        return self._done("attention_queries")

    def keys(self, stem: str) -> Emitted:
        t = self.t
        with t.each_tile(KEY):
            self._own()
            self._no_sums()
            with t.each_sharer(), t.each_seen("query0", t.queries_seeing()):
                self._walk()
                self.cotangents.share_statistics(t)
                self._add()
            self._store()
        return self._done(stem, *STATISTICS)

    # ------------------------------------------------------------------------------------- one tile

    def _own(self) -> None:
        """The rows that a group owns, of both operands, in registers."""
        h = self.h
        h.own_rows()
        for tile in self.owned:
            h.bring(tile)
        h.await_copies(0)
        for tile in self._factors(self.owned):
            h.own(f"own_{tile.name}", tile)

    def _walk(self) -> None:
        """The tiles of a turn, once all have read those before."""
        h = self.h
        self.t.b.barrier()
        for tile in self.walked:
            h.bring(tile)
        h.await_copies(0)

    def _factors(self, tiles: tuple[HeadTile, HeadTile]) -> tuple[HeadTile, ...]:
        """Return the tiles that are multiplied with tiles of the other axis."""
        return tiles if self.has_products else tiles[:1]

    # ------------------------------------------------------------------------------------------ sums

    def _no_sums(self) -> None:
        for number in self.requested:
            self.t.b.line(f"rlx_sums sums{number}[{self.walked[_SUMMED[number][1]].parts}] = {{}};")

    def _add(self) -> None:
        """Accumulate a tile's contribution to the sums, a unit of its rows at a time, from row `part` on."""
        h = self.h
        with self.t.b.loop("part", "0u", f"{self.t.size}u", f"{h.unit.size}u"):
            for name, tile in zip(("scores", "products"), self._factors(self.walked), strict=False):
                h.dots(name, f"own_{tile.name}", tile, 1, "part")
            self._weigh()
            for number in self.requested:
                weights, place = _SUMMED[number]
                h.weigh(f"sums{number}", f"{weights}[0]", self.walked[place], "part")

    def _weigh(self) -> None:
        """Compute p from `scores`, and du from `products`; 0 without such a query or key."""
        h, t, b = self.h, self.t, self.t.b
        with h.each_of(1) as (place, row):
            walked = f"part + {h.column}"
            query, key = (h.row, walked) if self.axis == QUERY else (walked, h.row)
            t.b.let("query", f"query0 + {query}")
            t.b.let("key", f"key0 + {key}")
            score, slope = t.score(h.named(f"scores{place}"), "query", "key")
            weight, cotangent = b.variable(t.zero(), "weight"), b.variable(t.zero(), "cotangent")
            with t.is_there("query", "key"):
                statistics = [h.named(f"{name}[{row if self.axis == QUERY else walked}]") for name in STATISTICS]
                b.assign(weight, self.cotangents.weight(t, score, statistics))
                if self.has_products:
                    dw = self.cotangents.dw(t, weight, h.named(f"products{place}"), statistics)
                    if self.axis == QUERY and t.problem.has_bias:
                        self.cotangents.store_dw(t, "query", "key", dw)
                    b.assign(cotangent, dw if slope is None else b.fmul(dw, slope))
            t.b.line(f"scores{place} = {weight.text};")
            if self.has_products:
                t.b.line(f"products{place} = {cotangent.text};")

    def _store(self) -> None:
        p = self.t.problem
        for number in self.requested:
            width, adjust = (p.width, None) if number == _V else (p.features, self._scaled)
            self.h.store(f"sums{number}", self.cotangents.result(number), self.axis, width, adjust)

    def _scaled(self, one: Register, _: str) -> Register:
        return self.t.b.fmul(one, self.t.b.constant(one, self.cotangents.problem.op.scale))
