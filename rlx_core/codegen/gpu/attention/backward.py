"""The cotangents of attention in three passes over tiles of scores, which are computed again in each and never stored.

    statistics  a group a tile of queries: each query's maximum m, 1/Σ exp(z - m), and δ = Σ p·dp
    queries     a group a tile of queries: dq = Σ du·k over the keys
    keys        a group a tile of keys: dk = Σ du·q and dv = Σ p·dy over the queries of all heads that share them

with p = exp(z - m)/Σ, dp = dy·vᵀ, dw = p·(dp - δ) and du = dw·slope·scale. Whoever owns an element adds it up alone and in order,
so that every run gives the same bits. Only where a bias has a cotangent is dw stored, and then summed by a loop kernel.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf, prod

from attrs import astuple, frozen

from rlx_core.codegen.attention import ScoresStrides
from rlx_core.codegen.attention_scores import BATCH, HEAD, KEY, QUERY, PlacedAttention
from rlx_core.codegen.gpu.assembler import Register
from rlx_core.codegen.gpu.attention.forward import print_zeros, storing
from rlx_core.codegen.gpu.attention.score_tiles import ScoreTiles, Sums, refusal
from rlx_core.codegen.gpu.functions import Function, Printed, each_group
from rlx_core.codegen.gpu.kernels import print_loops
from rlx_core.codegen.gpu.languages import Language
from rlx_core.codegen.gpu.memory import Memory
from rlx_core.codegen.gpu.walks import Machine
from rlx_core.codegen.loops import Apply, Buffer, Kernel, Load, Reduce, Scalar, Store
from rlx_core.codegen.scalars.table import ScalarTable
from rlx_core.ir.dtypes import DType
from rlx_core.ops.conversion import Cast

__all__ = ["print_attention_backward"]

_Q, _K, _V, _DY = range(4)


def print_attention_backward(
    problem: PlacedAttention, language: Language, machine: Machine, scalars: ScalarTable
) -> Printed:
    """What is launched to compute the cotangents: buffers are those of the problem."""
    assert (reason := refusal(problem, language, scalars)) is None, f"{problem} needs {reason}"
    if not (all(problem.sizes) and problem.width):
        return print_zeros(problem, language, machine, scalars)
    return _Passes(problem, language, machine, scalars).printed()


@frozen
class _Passes:
    """The launches of one problem."""

    problem: PlacedAttention
    language: Language
    machine: Machine
    scalars: ScalarTable

    @property
    def dtype(self) -> DType:
        return self.problem.dtype

    @property
    def buffers(self) -> tuple[Buffer, ...]:
        """Those of the problem, then m, 1/Σ and δ of each query, and dw where the bias has a cotangent."""
        names = ("largest", "inverses", "weighted") + ("dw",) * self.problem.has_bias
        return (*self.problem.buffers, *(Buffer(name, self.dtype) for name in names))

    @property
    def statistics(self) -> tuple[int, int, int]:
        """The numbers of the workspaces."""
        first = len(self.problem.buffers)
        return first, first + 1, first + 2

    @property
    def dw(self) -> int:
        return self.statistics[-1] + 1

    def result(self, number: int) -> int:
        """The buffer that holds the cotangent of an operand of the forward op, by its place among the results."""
        return len(self.problem.layout.operands) + number

    def printed(self) -> Printed:
        p = self.problem
        functions = [self._statistics(), self._queries(), self._keys()]
        rows, size = prod(p.sizes[:KEY]), self.dtype.itemsize
        workspaces = [rows * size] * 3
        if p.has_bias:
            summed = print_loops(self._bias(), self.language, self.machine, self.scalars)
            functions += summed.functions
            workspaces += [rows * p.sizes[KEY] * size, *summed.workspaces]
        return Printed(tuple(functions), tuple(workspaces))

    # ---------------------------------------------------------------------------------------- passes

    def _tiles(self, *arrays: str) -> ScoreTiles:
        return ScoreTiles(self.problem, self.language, self.machine, self.scalars, self.buffers, arrays)

    def _begin_queries(self, t: ScoreTiles) -> None:
        """The names of a share that is a tile of queries."""
        _, heads, queries, _ = self.problem.sizes
        tiles = -(-queries // t.size)
        t.let("query0", f"i % {tiles}u * {t.size}u")
        t.let("head", f"i / {tiles}u % {heads}u")
        t.let("batch", f"i / {tiles * heads}u")
        t.let("group_head", f"head / {self.problem.sharing}u")
        t.own_place()

    def _shares_of_queries(self, t: ScoreTiles) -> int:
        batch, heads, queries, _ = self.problem.sizes
        return batch * heads * -(-queries // t.size)

    def _statistics(self) -> Function:
        p = self.problem
        t = self._tiles("weights", "cotangents", "largest", "shrinking", "totals", "weighted")
        total = self._shares_of_queries(t)
        groups = min(total, self.machine.most_groups)
        with each_group(t.b, "i", total, groups):
            self._begin_queries(t)
            t.begin_weights()
            start, end = t.keys_seen()
            t.let("start", start)
            t.let("end", end)
            with t.loop("key0", "start", "end", t.size):
                scores, _ = t.scores()
                for r, row in enumerate(t.dots(_DY, _V, p.width)):
                    for c, one in enumerate(row):
                        t.line(f"cotangents[{t.at(t.row(r), t.column(c))}] = {one.text};")
                t.weights(scores)
                t.add_weights("totals")
                t.add_weights("weighted", "cotangents")
                t.barrier()
            with t.each_query(), t.when(f"query0 + t < {p.sizes[QUERY]}u"):
                self._store_statistics(t)
        return t.done("attention_statistics", groups)

    def _store_statistics(self, t: ScoreTiles) -> None:
        """m, 1/Σ and δ of the query `t`. Of one that sees no key m is -inf where the mean over all keys stands for it."""
        b, p = t.b, self.problem
        most, total, weighted = (t.read(name, "t") for name in ("largest", "totals", "weighted"))
        inverse = b.fdiv(b.constant(total, 1.0), total)
        if p.empty_row != "nan":
            is_empty = b.fcmp_ordered("==", total, b.constant(total, 0.0))
            inverse = b.select(is_empty, b.constant(total, 0.0 if p.empty_row == "zero" else 1 / p.sizes[KEY]), inverse)
        if p.empty_row != "uniform":
            most = t.finite(most)
        _, heads, queries, _ = p.sizes
        t.let("place", f"(batch * {heads}u + head) * {queries}u + query0 + t")
        for number, value in zip(self.statistics, (most, inverse, b.fmul(weighted, inverse)), strict=True):
            name, dtype = t.buffer(number, is_written=True)
            Memory(b, "u32").store(name, dtype, "place", value)

    def _load_statistics(self, t: ScoreTiles) -> None:
        """Statistics of the tile's queries in shared memory; nothing weighs where there is no such query."""
        b, (_, heads, queries, _) = t.b, self.problem.sizes
        with t.each_query():
            found = [b.variable(t.zero()) for _ in range(3)]
            with t.when(f"query0 + t < {queries}u"):
                t.let("place", f"(batch * {heads}u + head) * {queries}u + query0 + t")
                for one, number in zip(found, self.statistics, strict=True):
                    name, dtype = t.buffer(number)
                    b.assign(one, Memory(b, "u32").load(name, dtype, "place"))
            for one, array in zip(found, ("largest", "totals", "weighted"), strict=True):
                t.line(f"{array}[t] = {one.text};")
        t.barrier()

    def _queries(self) -> Function:
        p = self.problem
        t = self._tiles("cotangents", "largest", "totals", "weighted")
        total = self._shares_of_queries(t)
        groups = min(total, self.machine.most_groups)
        with each_group(t.b, "i", total, groups):
            self._begin_queries(t)
            self._load_statistics(t)
            sums = t.no_sums(p.features)
            # What is not visited has a dw too.
            start, end = ("0u", f"{p.sizes[KEY]}u") if p.has_bias else t.keys_seen()
            t.let("start", start)
            t.let("end", end)
            with t.loop("key0", "start", "end", t.size):
                _, cotangents = self._products(t, stores_dw=p.has_bias)
                self._share(t, "cotangents", cotangents)
                t.barrier()
                t.weigh(sums, "cotangents", _K, KEY, "group_head", by_key=False, width=p.features)
                t.barrier()
            t.store_sums(sums, self.result(_Q), QUERY, "head", p.features)
        return t.done("attention_queries", groups)

    def _keys(self) -> Function:
        p = self.problem
        t = self._tiles("weights", "cotangents", "largest", "totals", "weighted")
        batch, _, _, keys = p.sizes
        tiles, kv_heads = -(-keys // t.size), p.kv_heads
        total = batch * kv_heads * tiles
        groups = min(total, self.machine.most_groups)
        with each_group(t.b, "i", total, groups):
            t.let("key0", f"i % {tiles}u * {t.size}u")
            t.let("group_head", f"i / {tiles}u % {kv_heads}u")
            t.let("batch", f"i / {tiles * kv_heads}u")
            t.own_place()
            sums, values = t.no_sums(p.features), t.no_sums(p.width)
            start, end = t.queries_seeing()
            t.let("start", start)
            t.let("end", end)
            with t.loop("sharer", "0u", f"{p.sharing}u"):
                t.let("head", f"group_head * {p.sharing}u + sharer")
                with t.loop("query0", "start", "end", t.size):
                    self._load_statistics(t)
                    weights, cotangents = self._products(t, stores_dw=False)
                    self._share(t, "weights", weights)
                    self._share(t, "cotangents", cotangents)
                    t.barrier()
                    t.weigh(sums, "cotangents", _Q, QUERY, "head", by_key=True, width=p.features)
                    t.weigh(values, "weights", _DY, QUERY, "head", by_key=True, width=p.width)
                    t.barrier()
            t.store_sums(sums, self.result(_K), KEY, "group_head", p.features)
            t.store_sums(values, self.result(_V), KEY, "group_head", p.width)
        return t.done("attention_keys", groups)

    # ------------------------------------------------------------------------------------- one tile

    def _share(self, t: ScoreTiles, array: str, values: Sequence[Sequence[Register]]) -> None:
        for r, row in enumerate(values):
            for c, one in enumerate(row):
                t.line(f"{array}[{t.at(t.row(r), t.column(c))}] = {one.text};")

    def _products(self, t: ScoreTiles, *, stores_dw: bool) -> tuple[Sums, Sums]:
        """p and du at a thread's rows and columns, 0 where there is no such query or key."""
        scores, slopes = t.scores()
        products = t.dots(_DY, _V, self.problem.width)
        weights, cotangents = t.cells("weight"), t.cells("cotangent")
        _, _, queries, keys = self.problem.sizes
        for r in range(t.each):
            for c in range(t.each):
                with t.when(f"query0 + {t.row(r)} < {queries}u && key0 + {t.column(c)} < {keys}u"):
                    p, dw = self._weight(t, r, scores[r][c], products[r][c])
                    t.b.assign(weights[r][c], p)
                    if stores_dw:
                        self._store_dw(t, r, c, dw)
                    slope = slopes[r][c]
                    du = dw if slope is None else t.b.fmul(dw, slope)
                    t.b.assign(cotangents[r][c], t.b.fmul(du, t.b.constant(du, self.problem.op.scale)))
        return weights, cotangents

    def _weight(self, t: ScoreTiles, r: int, score: Register, product: Register) -> tuple[Register, Register]:
        """p and dw of one score."""
        b = t.b
        most, inverse, weighted = (t.read(name, t.row(r)) for name in ("largest", "totals", "weighted"))
        if self.problem.empty_row == "uniform":
            base = t.finite(most)
            is_empty = b.fcmp_ordered("==", most, b.constant(most, -inf))
            p = b.fmul(b.select(is_empty, b.constant(most, 1.0), t.exp(b.fsub(score, base))), inverse)
            # The weights of an empty row are constants, whatever the scores.
            return p, b.select(is_empty, b.constant(most, 0.0), b.fmul(p, b.fsub(product, weighted)))
        p = b.fmul(t.exp(b.fsub(score, most)), inverse)
        return p, b.fmul(p, b.fsub(product, weighted))

    def _store_dw(self, t: ScoreTiles, r: int, c: int, dw: Register) -> None:
        _, heads, queries, keys = self.problem.sizes
        row = f"(batch * {heads}u + head) * {queries}u + query0 + {t.row(r)}"
        name, dtype = t.buffer(self.dw, is_written=True)
        Memory(t.b, "u32").store(name, dtype, f"({row}) * {keys}u + key0 + {t.column(c)}", dw)

    # ------------------------------------------------------------------------------------------ bias

    def _bias(self) -> Kernel:
        """The cotangent of the bias: dw summed over the axes along which the bias is one number."""
        p, number = self.problem, self.result(3)
        place = p.place(number)
        to = astuple(ScoresStrides.of(place, is_mask=False))
        sizes, step = p.sizes, self.dtype.itemsize
        dense = tuple(step * prod(sizes[a + 1 :]) for a in range(4))
        kept = [a for a in (BATCH, HEAD, QUERY, KEY) if to[a]]
        summed = [a for a in (BATCH, HEAD, QUERY, KEY) if not to[a] and sizes[a] > 1]
        order = [*kept, *summed]
        values: list[Scalar] = [Load(self.dw, self.dtype, tuple(dense[a] for a in order))]
        if summed:
            values.append(Reduce(self.dtype, "sum", 0))
        if place.type.dtype is not self.dtype:
            values.append(Apply(place.type.dtype, Cast(place.type.dtype), (len(values) - 1,)))
        strides = tuple(to[a] if a in kept else 0 for a in order)
        stores = (Store(number, len(values) - 1, strides),)
        return Kernel(
            "bias", tuple(sizes[a] for a in order), len(kept), storing(self.buffers, number), tuple(values), stores
        )
