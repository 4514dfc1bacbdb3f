"""Results in the bytes of operands: whatever a row of the table permits, taken, gives the bits of the run in which nothing is shared.

The planner lets a result take over an operand's bytes where the kernel's row says so (`in_place`), shapes and sizes of elements
are equal and nobody reads the operand later. Here every such choice is made, alone and together with others, with the parts
of a kernel run first to last and last to first: a part that reads what another has written differs in one of the two.
"""

from __future__ import annotations

import random
import zlib
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import product
from typing import Any

import numpy as np
import pytest
from grown import MOST_RESULTS, grown
from harness import Kernel, kernel, place_of

from rlx_core.ir.graph import Builder, Node
from rlx_core.ir.op import Op
from rlx_core.ops import standard_ops
from rlx_core.ops.fused_loop import FusedLoop
from rlx_core.ops.fused_matmul_add import FusedMatMulAdd
from rlx_core.pipeline import kernels as table
from rlx_core.testing.cases import Program, programs
from rlx_cpu.native.isa import Isa, available
from rlx_cpu.native.kernels import native
from rlx_cpu.native.printer_shape import Shape

Choice = dict[int, tuple[int, ...]]
"""Result → the operands in whose bytes it lies."""

MOST_CHOICES = 24
"""Choices tried of one kernel; with several operands and results there are hundreds, and a seed says which."""

ORDERS = ((1, True), (2, True), (2, False), (5, True), (5, False))
"""(Threads, last part first)."""


def row_of(node: Node) -> table.Kernel | None:
    """The native row that runs a node, as the planner would choose it."""
    return next((row for row in native.rows(type(node.op)) if row.refusal(node) is None), None)


def choices(row: table.Kernel, node: Node) -> list[Choice]:
    """What the planner may let results take over: each alone, then together, then operands that are one value."""
    results = node.types if row.is_generated else node.types[:1]
    types = [None if v is None else v.type for v in node.operands]

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
    emit = native.emitter(row.name)
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

GROWN, BATCH = 400, 20


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


@pytest.mark.parametrize("first", range(0, GROWN, BATCH))
def test_a_generated_loop_reads_everything_before_it_is_overwritten(first: int) -> None:
    sets = available()
    wrong = [
        f"seed {seed}, {isa.name}: {said}"
        for seed in range(first, first + BATCH)
        if seed in loops()
        for isa in (sets[0], sets[seed % len(sets)])
        for said in changed_bits(*loops()[seed], isa)
    ]
    assert not wrong, "\n".join(wrong[:20])
