"""Shared parts of the passes of attention's cotangents, independent of the multiplying unit: workspaces, statistics, and du.

With the statistics of a query, its maximum m, 1/Σ exp(z - m) and δ = Σ p·dp, a score z and dp = dy·vᵀ give p = exp(z - m)/Σ,
dw = p·(dp - δ) and du = dw·slope, of which the cotangents of queries and keys are sums, times the scale.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf, prod

from attrs import astuple

from rlx_core.codegen.attention import ScoresStrides
from rlx_core.codegen.attention_scores import BATCH, HEAD, KEY, QUERY, PlacedAttention
from rlx_core.codegen.loops import Apply, Buffer, Kernel, Load, Reduce, Scalar, Store
from rlx_core.ops.conversion import Cast
from rlx_core.system.records import frozen
from rlx_gpu.codegen.assembler import Register
from rlx_gpu.codegen.attention.forward import storing
from rlx_gpu.codegen.attention.score_tiles import ScoreTiles
from rlx_gpu.codegen.indexing import IndexType, as_index, index_type
from rlx_gpu.codegen.memory import Memory

STATISTICS = ("largest", "totals", "weighted")
"""The shared arrays of m, 1/Σ and δ."""


@frozen
class Cotangents:
    """The cotangents of one attention."""

    problem: PlacedAttention

    @property
    def buffers(self) -> tuple[Buffer, ...]:
        """The problem's buffers, then m, 1/Σ and δ of each query, and dw if the bias has a cotangent."""
        names = ("largest", "inverses", "weighted") + ("dw",) * self.problem.has_bias
        return (*self.problem.buffers, *(Buffer(name, self.problem.dtype) for name in names))

    @property
    def workspaces(self) -> tuple[int, ...]:
        """Bytes of the buffers that are not the problem's."""
        rows, size = prod(self.problem.sizes[:KEY]), self.problem.dtype.itemsize
        return (rows * size,) * 3 + (rows * self.problem.sizes[KEY] * size,) * self.problem.has_bias

    @property
    def _statistics(self) -> tuple[int, int, int]:
        """The numbers of the workspaces."""
        first = len(self.problem.buffers)
        return first, first + 1, first + 2

    @property
    def _dw(self) -> int:
        return self._statistics[-1] + 1

    def result(self, number: int) -> int:
        """The buffer that holds the cotangent of an operand of the forward op, by its place among the results."""
        return len(self.problem.layout.operands) + number

    # ------------------------------------------------------------------------------------ statistics

    def store_statistics(
        self, t: ScoreTiles, query: str, maximum: Register, total: Register, weighted: Register
    ) -> None:
        """Store m, 1/Σ and δ of a query, from Σ and Σ·δ. For a query without visible keys and a uniform result, m is -inf."""
        b, p = t.b, self.problem
        inverse = b.fdiv(b.constant(total, 1.0), total)
        if p.empty_row != "nan":
            is_empty = b.fcmp_ordered("==", total, b.constant(total, 0.0))
            inverse = b.select(is_empty, b.constant(total, 0.0 if p.empty_row == "zero" else 1 / p.sizes[KEY]), inverse)
        if p.empty_row != "uniform":
            maximum = t.finite(maximum)
        self._place(t, query)
        for number, value in zip(self._statistics, (maximum, inverse, b.fmul(weighted, inverse)), strict=True):
            name, dtype = t.buffer(number, is_written=True)
            t.memory(number).store(name, dtype, "place", value)

    def statistics(self, t: ScoreTiles, query: str) -> list[Register]:
        """m, 1/Σ and δ of a query, zeros where there is no such query: nothing weighs there."""
        b = t.b
        statistics = [b.variable(t.zero()) for _ in self._statistics]
        with t.b.when(f"{query} < {self.problem.sizes[QUERY]}u"):
            self._place(t, query)
            for one, number in zip(statistics, self._statistics, strict=True):
                name, dtype = t.buffer(number)
                b.assign(one, t.memory(number).load(name, dtype, "place"))
        return statistics

    def share_statistics(self, t: ScoreTiles) -> None:
        """Statistics of the tile's queries in shared memory."""
        with t.each_query():
            for one, array in zip(self.statistics(t, "query0 + t"), STATISTICS, strict=True):
                t.b.line(f"{array}[t] = {one.text};")
        t.b.barrier()

    def _place(self, t: ScoreTiles, query: str) -> None:
        """The name of a query's place among the statistics."""
        kind = t.index_type(self._statistics[0])
        t.b.let("place", self._row(query, kind), kind)

    def _row(self, query: str, kind: IndexType) -> str:
        _, heads, queries, _ = self.problem.sizes
        return f"({as_index('batch', kind)} * {heads}u + head) * {queries}u + {query}"

    # ------------------------------------------------------------------------------------- one score

    def weight(self, t: ScoreTiles, score: Register, statistics: Sequence[Register]) -> Register:
        """p of one score, of its query's statistics."""
        b = t.b
        maximum, inverse, _ = statistics
        if self.problem.empty_row != "uniform":
            return b.fmul(t.exp(b.fsub(score, maximum)), inverse)
        weight = t.exp(b.fsub(score, t.finite(maximum)))
        return b.fmul(b.select(self._is_empty(t, maximum), b.constant(maximum, 1.0), weight), inverse)

    def dw(self, t: ScoreTiles, weight: Register, product: Register, statistics: Sequence[Register]) -> Register:
        """dw of p, dp and the query's statistics."""
        b = t.b
        maximum, _, weighted = statistics
        dw = b.fmul(weight, b.fsub(product, weighted))
        if self.problem.empty_row != "uniform":
            return dw
        # The weights of an empty row are constants, whatever the scores.
        return b.select(self._is_empty(t, maximum), b.constant(maximum, 0.0), dw)

    def _is_empty(self, t: ScoreTiles, maximum: Register) -> Register:
        return t.b.fcmp_ordered("==", maximum, t.b.constant(maximum, -inf))

    def store_dw(self, t: ScoreTiles, query: str, key: str, dw: Register) -> None:
        name, dtype = t.buffer(self._dw, is_written=True)
        kind = index_type(prod(self.problem.sizes))
        index = f"({self._row(query, kind)}) * {self.problem.sizes[KEY]}u + {key}"
        Memory(t.b, kind).store(name, dtype, index, dw)

    # ------------------------------------------------------------------------------------------ bias

    def bias(self) -> Kernel:
        """The cotangent of the bias: dw summed over the axes along which the bias is one number."""
        p, number, dtype = self.problem, self.result(3), self.problem.dtype
        place = p.place(number)
        to = astuple(ScoresStrides.of(place, is_mask=False))
        sizes, step = p.sizes, dtype.itemsize
        dense = tuple(step * prod(sizes[a + 1 :]) for a in range(4))
        preserved = [a for a in (BATCH, HEAD, QUERY, KEY) if to[a]]
        summed = [a for a in (BATCH, HEAD, QUERY, KEY) if not to[a] and sizes[a] > 1]
        order = [*preserved, *summed]
        values: list[Scalar] = [Load(self._dw, dtype, tuple(dense[a] for a in order))]
        if summed:
            values.append(Reduce(dtype, "sum", 0))
        if place.type.dtype is not dtype:
            values.append(Apply(place.type.dtype, Cast(place.type.dtype), (len(values) - 1,)))
        strides = tuple(to[a] if a in preserved else 0 for a in order)
        stores = (Store(number, len(values) - 1, strides),)
        return Kernel(
            "bias", tuple(sizes[a] for a in order), len(preserved), storing(self.buffers, number), tuple(values), stores
        )
