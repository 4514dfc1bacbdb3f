"""The cotangents of attention in three passes over tiles of scores, which are computed again in each and never stored.

    statistics  one group per tile of queries: each query's maximum m, 1/Σ exp(z - m), and δ = Σ p·dp
    queries     one group per tile of queries: dq = Σ du·k over the keys
    keys        one group per tile of keys: dk = Σ du·q and dv = Σ p·dy over the queries of all heads that share them

`attention.cotangents` defines p, dp and du; here threads multiply, in `codegen.gpu.units` matrix units do. One thread adds up
an element in order, so that every run gives the same bits. Only if a bias has a cotangent is dw stored, and then summed by a
loop kernel.
"""

from __future__ import annotations

from rlx_core.codegen.attention_scores import KEY, QUERY, PlacedAttention
from rlx_core.codegen.scalars.table import ScalarTable
from rlx_core.emit.emitters import Emitted
from rlx_core.system.records import frozen
from rlx_gpu.codegen.attention.cotangents import STATISTICS, Cotangents
from rlx_gpu.codegen.attention.forward import print_zeros
from rlx_gpu.codegen.attention.score_tiles import ScoreTiles, Sums, refusal
from rlx_gpu.codegen.kernels import print_loops
from rlx_gpu.codegen.languages import GpuDialect
from rlx_gpu.codegen.units.attention_backward import print_unit_cotangents
from rlx_gpu.codegen.units.head_tiles import unit_for_attention
from rlx_gpu.codegen.walks import Machine

_Q, _K, _V, _DY = range(4)


def print_attention_backward(
    problem: PlacedAttention, language: GpuDialect, machine: Machine, scalars: ScalarTable
) -> Emitted:
    """Return the launches that compute the cotangents; the buffers are those of the problem."""
    assert (reason := refusal(problem, language, scalars)) is None, f"{problem} needs {reason}"
    if not (all(problem.sizes) and problem.width):
        return print_zeros(problem, language, machine, scalars)
    cotangents, unit = Cotangents(problem), unit_for_attention(problem, language, machine)
    if unit is not None:
        passes = print_unit_cotangents(cotangents, unit, language, machine, scalars)
    else:
        passes = _Passes(cotangents, language, machine, scalars).launches()
    workspaces = cotangents.workspaces
    if problem.has_bias:
        summed = print_loops(cotangents.bias(), language, machine, scalars)
        passes, workspaces = (*passes, summed), (*workspaces, *summed.workspaces)
    return Emitted.joined(passes, workspaces)


@frozen
class _Passes:
    """The launches of one problem."""

    cotangents: Cotangents
    language: GpuDialect
    machine: Machine
    scalars: ScalarTable

    @property
    def problem(self) -> PlacedAttention:
        return self.cotangents.problem

    def launches(self) -> tuple[Emitted, ...]:
        return self._statistics(), self._queries(), self._keys()

    # ---------------------------------------------------------------------------------------- passes

    def _tiles(self, *arrays: str) -> ScoreTiles:
        return ScoreTiles(self.problem, self.language, self.machine, self.scalars, self.cotangents.buffers, arrays)

    def _statistics(self) -> Emitted:
        p = self.problem
        t = self._tiles("weights", "cotangents", "largest", "shrinking", "totals", "weighted")
        with t.each_tile(QUERY):
            t.own_place()
            t.begin_weights()
            with t.each_seen("key0", t.keys_seen()):
                scores, _ = t.scores()
                t.share("cotangents", t.dots(_DY, _V, p.width))
                t.weights(scores)
                t.add_weights("totals")
                t.add_weights("weighted", "cotangents")
                t.b.barrier()
            with t.each_query(), t.b.when(f"query0 + t < {p.sizes[QUERY]}u"):
                self.cotangents.store_statistics(t, "query0 + t", *(t.read(name, "t") for name in STATISTICS))
        return t.done("attention_statistics")

    def _queries(self) -> Emitted:
        p = self.problem
        t = self._tiles("cotangents", *STATISTICS)
        with t.each_tile(QUERY):
            t.own_place()
            self.cotangents.share_statistics(t)
            sums = t.no_sums(p.features)
            # Tiles that are skipped have a dw too.
            with t.each_seen("key0", ("0u", f"{p.sizes[KEY]}u") if p.has_bias else t.keys_seen()):
                _, cotangents = self._products(t, stores_dw=p.has_bias)
                t.share("cotangents", cotangents)
                t.b.barrier()
                t.weigh(sums, "cotangents", _K, KEY, p.features)
                t.b.barrier()
            t.store_sums(sums, self.cotangents.result(_Q), QUERY, p.features)
        return t.done("attention_queries")

    def _keys(self) -> Emitted:
        p = self.problem
        t = self._tiles("weights", "cotangents", *STATISTICS)
        with t.each_tile(KEY):
            t.own_place()
            sums, values = t.no_sums(p.features), t.no_sums(p.width)
            with t.each_sharer(), t.each_seen("query0", t.queries_seeing()):
                self.cotangents.share_statistics(t)
                weights, cotangents = self._products(t, stores_dw=False)
                t.share("weights", weights)
                t.share("cotangents", cotangents)
                t.b.barrier()
                t.weigh(sums, "cotangents", _Q, QUERY, p.features)
                t.weigh(values, "weights", _DY, QUERY, p.width)
                t.b.barrier()
            t.store_sums(sums, self.cotangents.result(_K), KEY, p.features)
            t.store_sums(values, self.cotangents.result(_V), KEY, p.width)
        return t.done("attention_keys")

    # ------------------------------------------------------------------------------------- one tile

    def _products(self, t: ScoreTiles, *, stores_dw: bool) -> tuple[Sums, Sums]:
        """p and du at a thread's rows and columns, 0 where there is no such query or key."""
        scores, slopes = t.scores()
        products = t.dots(_DY, _V, self.problem.width)
        weights, cotangents = t.cells("weight"), t.cells("cotangent")
        for r in range(t.each):
            for c in range(t.each):
                with t.is_there(f"query0 + {t.row(r)}", f"key0 + {t.column(c)}"):
                    statistics = [t.read(name, t.row(r)) for name in STATISTICS]
                    p = self.cotangents.weight(t, scores[r][c], statistics)
                    dw = self.cotangents.dw(t, p, products[r][c], statistics)
                    t.b.assign(weights[r][c], p)
                    if stores_dw:
                        self.cotangents.store_dw(t, f"query0 + {t.row(r)}", f"key0 + {t.column(c)}", dw)
                    slope = slopes[r][c]
                    du = dw if slope is None else t.b.fmul(dw, slope)
                    t.b.assign(cotangents[r][c], t.b.fmul(du, t.b.constant(du, self.problem.op.scale)))
        return weights, cotangents
