"""Attention forward with an online softmax: the scores of a tile at a time, of which nothing is stored.

A group has a few queries of one head. It walks over the keys that they see in tiles: scores by a product of tiles, the running
maximum and sum of each query in shared memory, and in registers the weighted sum of values, scaled down when the maximum grows.
"""

from __future__ import annotations

from collections.abc import Sequence

from attrs import evolve

from rlx_core.codegen.attention_scores import KEY, QUERY, PlacedAttention
from rlx_core.codegen.loops import Buffer, Const, Kernel, Store
from rlx_core.codegen.scalars.table import ScalarTable
from rlx_core.emit.emitters import Emitted
from rlx_gpu.codegen.assembler import Register
from rlx_gpu.codegen.attention.score_tiles import ScoreTiles, Sums, refusal
from rlx_gpu.codegen.kernels import print_loops
from rlx_gpu.codegen.languages import GpuDialect
from rlx_gpu.codegen.units.attention import print_unit_attention
from rlx_gpu.codegen.units.head_tiles import unit_for_attention
from rlx_gpu.codegen.walks import Machine

__all__ = ["print_attention", "print_zeros", "refusal", "storing"]


def print_attention(problem: PlacedAttention, language: GpuDialect, machine: Machine, scalars: ScalarTable) -> Emitted:
    """Return the launches that compute attention; the buffers are those of the problem."""
    assert (reason := refusal(problem, language, scalars)) is None, f"{problem} needs {reason}"
    if not (all(problem.sizes) and problem.width):
        return print_zeros(problem, language, machine, scalars)
    unit = unit_for_attention(problem, language, machine)
    if unit is not None:
        return print_unit_attention(problem, unit, language, machine, scalars)
    return _function(problem, language, machine, scalars)


def print_zeros(problem: PlacedAttention, language: GpuDialect, machine: Machine, scalars: ScalarTable) -> Emitted:
    """Zeros for every result that has elements: what sums over no query or key are."""
    launches: list[Emitted] = []
    for i, place in enumerate(problem.layout.results):
        shape, dtype = place.type.static_shape, place.type.dtype
        number = len(problem.layout.operands) + i
        stores = (Store(number, 0, place.strides),)
        buffers = storing(problem.buffers, number)
        kernel = Kernel("zeros", shape, len(shape), buffers, (Const(dtype, 0.0),), stores)
        launches.append(print_loops(kernel, language, machine, scalars))
    return Emitted.joined(launches)


def storing(buffers: Sequence[Buffer], number: int) -> tuple[Buffer, ...]:
    """The buffers of a kernel that stores one of them."""
    return tuple(evolve(buffer, is_result=i == number) for i, buffer in enumerate(buffers))


def _function(problem: PlacedAttention, language: GpuDialect, machine: Machine, scalars: ScalarTable) -> Emitted:
    arrays = ("weights", "largest", "shrinking", "totals")
    t = ScoreTiles(problem, language, machine, scalars, problem.buffers, arrays)
    result = len(problem.layout.operands)
    with t.each_tile(QUERY):
        t.own_place()
        t.begin_weights()
        sums = t.no_sums(problem.width)
        with t.each_seen("key0", t.keys_seen()):
            scores, _slopes = t.scores()
            t.weights(scores)
            t.add_weights("totals")
            for r, row in enumerate(sums):
                shrinking = t.read("shrinking", t.row(r))
                for one in row:
                    t.b.assign(one, t.b.fmul(one, shrinking))
            t.weigh(sums, "weights", 2, KEY, problem.width)
            t.b.barrier()
        _divide(t, sums)
        t.store_sums(sums, result, QUERY, problem.width)
    return t.done("attention")


def _divide(t: ScoreTiles, sums: Sums) -> None:
    """Divide weighted sums to means; a query that sees no key gets the problem's `empty_row`."""
    b, p = t.b, t.problem
    for r, row in enumerate(sums):
        total = b.variable(t.read("totals", t.row(r)))
        if p.empty_row != "nan":
            is_empty = b.fcmp_ordered("==", total, b.constant(total, 0.0))
            with t.b.when(is_empty.text):
                b.assign(total, b.constant(total, 1.0 if p.empty_row == "zero" else float(p.sizes[KEY])))
                if p.empty_row == "uniform":
                    _add_all_values(t, row)
        for one in row:
            b.assign(one, b.fdiv(one, total))


def _add_all_values(t: ScoreTiles, row: list[Register]) -> None:
    b, p = t.b, t.problem
    with t.b.loop("key", "0u", f"{p.sizes[KEY]}u"):
        for c, one in enumerate(row):
            with t.b.when(f"{t.column(c)} < {p.width}u"):
                b.assign(one, b.fadd(one, t.load(2, KEY, "key", t.column(c))))
