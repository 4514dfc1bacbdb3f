"""Results in the bytes of operands: whatever a row of the table permits gives the bits of the run in which nothing is shared.

The planner lets a result take over an operand's bytes where the kernel's row says so (`in_place`), shapes and sizes of elements
are equal and nobody reads the operand later. Here every such choice is made, alone and together with others, with the parts
of a kernel run first to last and last to first: a part that reads what another has written differs in one of the two.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import product
from typing import Any

import numpy as np
import pytest
from attrs import evolve
from exact import drawn
from grown import MOST_RESULTS, grown
from harness import Kernel, kernel, place_of

from rlx_core.codegen.meaning import loop_kernel
from rlx_core.codegen.places import Layout, Place
from rlx_core.errors import RlxError
from rlx_core.ir.dtypes import dtype
from rlx_core.ir.graph import Builder, Node
from rlx_core.ir.op import Op
from rlx_core.ir.types import TensorType
from rlx_core.ops import standard_ops
from rlx_core.ops.activation import gelu, tanh
from rlx_core.ops.arithmetic import add, multiply
from rlx_core.ops.conversion import Cast
from rlx_core.ops.cumulative import Cumsum, LinearRecurrence
from rlx_core.ops.fused_loop import FusedLoop
from rlx_core.ops.fused_matmul_epilogue import FusedMatMulEpilogue
from rlx_core.ops.region import ElementwiseRegion, RegionStep, access_of
from rlx_core.ops.samples import draw
from rlx_core.ops.scatter import Scatter
from rlx_core.pipeline import kernels as table
from rlx_core.pipeline.kernels import emitter_of
from rlx_core.testing.cases import OpProgram, programs
from rlx_cpu.native.llvm.isa import Isa, available
from rlx_cpu.native.loops.walk import Shape
from rlx_cpu.native.table import native

Choice = dict[int, tuple[int, ...]]
"""Result → the operands in whose bytes it lies."""

MOST_CHOICES = 24
"""Choices tried of one kernel; with several operands and results there are hundreds, and a seed says which."""

SETS = available()

ORDERS = ((1, True), (2, True), (2, False), (5, True), (5, False))
"""(Threads, last part first)."""


def row_of(node: Node) -> table.Kernel | None:
    """The native row that runs a node, as the planner would choose it."""
    return next((row for row in native.candidates(type(node.op)) if row.refusal(node) is None), None)


def choices(row: table.Kernel, node: Node) -> list[Choice]:
    """What the planner may let results take over: each alone, then together, then operands that are one value."""
    results = node.types if row.is_each_in_place else node.types[:1]
    types = node.operand_types

    def fits(position: int, result: int) -> bool:
        type = types[position] if position < len(types) else None
        wanted = results[result]
        return type is not None and (type.shape, type.dtype.itemsize) == (wanted.shape, wanted.dtype.itemsize)

    own = [[None, *(p for p in row.in_place if t.nbytes and fits(p, r))] for r, t in enumerate(results)]
    alone: list[Choice] = [{r: (p,)} for r, positions in enumerate(own) for p in positions if p is not None]
    together: list[Choice] = []
    for taken in product(*own):
        chosen = [p for p in taken if p is not None]
        if len(chosen) > 1 and len(set(chosen)) == len(chosen):
            together.append({r: (p,) for r, p in enumerate(taken) if p is not None})
    alike: list[Choice] = [
        {r: (p, q)}
        for choice in alone
        for r, (p,) in choice.items()
        for q in row.in_place
        if p < q < len(types) and types[p] == types[q]
    ]
    draw = random.Random(len(together))
    found = [*alone, *alike, *draw.sample(together, min(len(together), MOST_CHOICES))]
    return found if len(found) <= 2 * MOST_CHOICES else draw.sample(found, 2 * MOST_CHOICES)


def changed_bits(op: Op, operands: Sequence[np.ndarray | None], isa: Isa, bound: Sequence[int] = ()) -> Iterator[str]:
    """Every choice and order in which a result is another than that of the run in which nothing is shared."""
    node = node_of(op, operands)
    row = row_of(node)
    assert row is not None, f"{op} has a native kernel"
    possible = choices(row, node)
    if not possible:
        return
    emit = emitter_of(row.run)
    assert emit is not None, "native rows have emitters"
    made = kernel(emit, op, operands, isa, bound=bound)
    for choice in possible:
        given = list(operands)
        for first, *others in choice.values():
            for other in others:
                given[other] = given[first]
        apart = bits(made, given, {}, 1, is_last_first=True)
        for threads, is_last_first in ORDERS:
            if bits(made, given, choice, threads, is_last_first=is_last_first) != apart:
                yield f"{row.name}: {choice} on {threads} threads, last first {is_last_first}"


def bits(made: Kernel, operands: Any, choice: Choice, threads: int, *, is_last_first: bool) -> list[bytes]:
    found = made(*operands, threads=threads, in_place=choice, is_last_first=is_last_first)
    return [x.tobytes() for x in found]


def node_of(op: Op, operands: Sequence[np.ndarray | None]) -> Node:
    builder = Builder()
    values = [None if x is None else builder.input(f"x{i}", place_of(x).type) for i, x in enumerate(operands)]
    return builder.emit(op, values)[0].node


# ------------------------------------------------------------------------------------- generated loops

GROWN, BATCH = 300, 20


@cache
def loops() -> dict[int, tuple[Op, tuple[np.ndarray, ...]]]:
    """The grown loops that have a native kernel with something to take over, by seed."""
    found = {}
    for seed in range(GROWN):
        made = grown(seed)
        node = node_of(made.op, made.operands)
        row = row_of(node)
        if row is not None and choices(row, node):
            found[seed] = made.op, made.operands
    return found


@pytest.mark.medium
@pytest.mark.parametrize("first", range(0, GROWN, BATCH))
def test_a_generated_loop_reads_everything_before_it_is_overwritten(first: int) -> None:
    wrong = [
        f"seed {seed}, {isa.name}: {said}"
        for seed in range(first, first + BATCH)
        if seed in loops()
        for isa in (SETS[seed % len(SETS)],)
        for said in changed_bits(*loops()[seed], isa)
    ]
    assert not wrong, "\n".join(wrong[:20])


@pytest.mark.medium
def test_the_generated_loops_are_of_every_kind() -> None:
    """What the printer does in ways of its own is among them, and so is every number of results."""
    found: Counter[str] = Counter()
    for op, operands in loops().values():
        node = node_of(op, operands)
        layout = Layout(tuple(map(place_of, operands)), tuple(map(Place.dense, node.types)))
        shape = Shape.of(loop_kernel(node, layout), SETS[0])
        ranks = {t.shape for t in node.types}
        kinds = {
            f"{len(node.types)} results": True,
            "results of several shapes": len(ranks) > 1,
            "no reduction": shape.block is not None,
            "several blocks": shape.block is not None and shape.pieces > 1,
            "tiles": shape.crossing is not None,
            "two nests": len(shape.plan.nests) == 2,
            "more nests": len(shape.plan.nests) > 2,
            "kept values": bool(shape.plan.kept),
            "lanes in the row": shape.is_in_row and shape.block is None,
            "lanes in the grid": not shape.is_in_row,
            "strips": shape.strip > 1,
            "chunks": shape.chunks > 1,
            "a row of one element": shape.block is None and shape.kernel.row_size == 1,
            "threads": shape.uses_threads,
        }
        found.update(kind for kind, is_there in kinds.items() if is_there)
    wanted = {f"{n + 1} results" for n in range(MOST_RESULTS)} | set(kinds)
    assert {kind for kind in wanted if found[kind] < 3} == set()


# ------------------------------------------------------------------------------------------ single ops

SIZES = {2: 5, 3: 33, 4: 67, 5: 130, 7: 19, 8: 129}
"""Dims of samples, which are small, as others: around vectors and strips of them."""

LARGE = {2: 3, 3: 5, 4: 4101, 5: 40, 7: 9, 8: 513}
"""The same around blocks, and large enough to be shared among threads."""

MOST_CASES = 3
"""Cases of an op: kernels are printed alike for all of a kind."""


WITHOUT_SAMPLES = (Cast,)
"""Ops with a row but nothing to try it on: no sample has results as wide as operands (see below)."""


def ops_in_place() -> list[type[Op]]:
    """Ops with a row of their own; fused loops are grown above."""
    rows = {op: native.candidates(op) for op in standard_ops() if op is not FusedLoop}
    return [op for op, own in rows.items() if any(row.in_place and row.op is op for row in own)]


def cases(op: type[Op]) -> list[tuple[Op, list[np.ndarray | None]]]:
    """Samples with something to take over, as they are and with other dims where the op's type rule takes them."""
    found = []
    for program in programs((op,)):
        for other in (resized(program, sizes) for sizes in ({}, SIZES, LARGE) if program.is_static):
            row = None if other is None else row_of(other.node)
            if other is not None and row is not None and choices(row, other.node):
                found.append(other)
    chosen = random.Random(op.name).sample(found, min(len(found), MOST_CASES))
    return [(each.node.op, drawn(each)) for each in chosen]


def resized(program: OpProgram, sizes: dict[int, int]) -> OpProgram | None:
    """The call on operands of other dims; `None` where that is another call, or none."""
    sample = program.sample
    if not sizes:
        return program
    if sample.make is not None:
        return None
    types = [None if t is None else t.with_shape(tuple(sizes.get(d, d) for d in t.static_shape)) for t in sample.types]
    other = OpProgram(evolve(program.case, sample=sample.with_types(types)))
    try:
        return other if other.graph else None
    except RlxError:
        return None


@pytest.mark.parametrize("op", ops_in_place(), ids=lambda op: op.name)
def test_an_op_reads_everything_before_it_is_overwritten(op: type[Op]) -> None:
    found = cases(op)
    wrong = [
        f"{each} on {[None if x is None else (x.dtype.name, x.shape) for x in operands]}, {isa.name}: {said}"
        for number, (each, operands) in enumerate(found)
        for isa in (SETS[number % len(SETS)],)
        for said in changed_bits(each, operands, isa)
    ]
    assert bool(found) != (op in WITHOUT_SAMPLES)
    assert not wrong, "\n".join(wrong[:20])


CASTS = [
    ("f32", "i32"),
    ("i32", "f32"),
    ("u32", "f32"),
    ("f64", "i64"),
    ("f16", "bf16"),
    ("i16", "f16"),
    ("bool", "i8"),
]


@pytest.mark.parametrize(("source", "to"), CASTS)
def test_elements_become_others_of_their_size(source: str, to: str) -> None:
    x = draw(np.random.default_rng(4), TensorType(dtype(source), (3, 4101)), 0, 100)
    for isa in SETS:
        assert not list(changed_bits(Cast(dtype(to)), [x], isa))


# ---------------------------------------------------------------------------------------- structured kernels

PRODUCTS = [
    ((5, 7), (7, 3)),
    ((33, 130), (130, 65)),
    ((17, 2500), (2500, 40)),
    ((130, 1030), (1030, 200)),
    ((2, 3, 9, 31), (31, 17)),
    ((3, 40, 33), (3, 33, 50)),
]
"""Products around tiles, with K in one block and in several, and with batches."""


Steps = tuple[RegionStep, ...]

# Value 0 is the product, 1 and 2 are of its dims: what it is added to, and a gate.
REGIONS: dict[str, tuple[Steps, tuple[int, ...]]] = {
    "added": ((RegionStep(add.op(), (1, 0)), RegionStep(multiply.op(), (3, 2))), (1,)),
    "long": ((RegionStep(gelu.op(), (0,)), RegionStep(multiply.op(), (3, 1)), RegionStep(add.op(), (4, 2))), (2,)),
    "two results": ((RegionStep(add.op(), (0, 1)), RegionStep(multiply.op(), (3, 2))), (1, 0)),
    "three results": (
        (RegionStep(multiply.op(), (0, 1)), RegionStep(tanh.op(), (3,)), RegionStep(add.op(), (4, 2))),
        (2, 0, 1),
    ),
}


@pytest.mark.parametrize("name", ["f32", "bf16"])
@pytest.mark.parametrize("is_bound", [False, True], ids=["fed", "bound"])
@pytest.mark.parametrize("shapes", PRODUCTS, ids=str)
@pytest.mark.parametrize("kind", REGIONS)
def test_a_product_reads_what_its_region_reads_before_it_is_overwritten(
    kind: str, shapes: Any, is_bound: bool, name: str
) -> None:
    rng = np.random.default_rng(1)
    a, b = (rng.standard_normal(shape).astype(dtype(name).numpy) for shape in shapes)
    turned = a.swapaxes(-1, -2).copy().swapaxes(-1, -2)
    shape = (*a.shape[:-1], b.shape[-1])
    others = [rng.standard_normal(shape).astype(a.dtype) for _ in range(2)]
    whole = access_of(shape, shape)
    steps, results = REGIONS[kind]
    op = FusedMatMulEpilogue(ElementwiseRegion(shape, steps, (whole,) * 3, results))
    number = list(REGIONS).index(kind) + is_bound
    left = turned if number % 2 else a
    assert not list(changed_bits(op, [left, b, *others], SETS[number % len(SETS)], (1,) if is_bound else ()))


@pytest.mark.parametrize("mode", ["set", "add", "max", "min"])
@pytest.mark.parametrize("name", ["f32", "bf16", "i64"])
@pytest.mark.parametrize("size", [(1, 7, 50, 1), (1, 1000, 300, 3), (1, 64, 40, 130), (1, 9, 33, 700), (12, 5, 20, 17)])
def test_a_table_is_written_to_where_it_lies(size: tuple[int, int, int, int], name: str, mode: Any) -> None:
    outer, n, count, inner = size
    rng = np.random.default_rng(2)
    x, updates = ((rng.standard_normal((outer, k, inner)) * 20).astype(dtype(name).numpy) for k in (n, count))
    indices = rng.integers(0, n, count).astype("i4")
    for isa in SETS[::2]:
        assert not list(changed_bits(Scatter(mode, 1), [x, updates, indices], isa))


@pytest.mark.parametrize("shape", [(300,), (7, 67), (67, 7), (3, 130, 5), (2, 33, 17)], ids=str)
@pytest.mark.parametrize("way", [{}, {"reverse": True}, {"exclusive": True}], ids=str)
def test_a_running_reduction_reads_a_place_before_it_is_overwritten(shape: tuple[int, ...], way: Any) -> None:
    rng = np.random.default_rng(3)
    x, y = (rng.uniform(-1, 1, shape).astype("f4") for _ in range(2))
    for axis in range(len(shape)):
        for isa in SETS[::2]:
            assert not list(changed_bits(Cumsum(axis, **way), [x], isa))
            if "exclusive" not in way:
                assert not list(changed_bits(LinearRecurrence(axis, **way), [x, y], isa))
