"""Removal of unused results or operands from ops: loops without unused carries, and choices likewise.

A step of a loop reads carries that another step wrote, so the needed carries are computed by iteration to a fixed point.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from attrs import evolve

from rlx_core.ir.graph import Graph, Value
from rlx_core.ops.control.bodies import part, read_inputs
from rlx_core.ops.control.conditional import If
from rlx_core.ops.control.loop import While
from rlx_core.ops.control.scan import Scan
from rlx_core.passes.engine.sweep import Pruned, prune


@prune(If)
def choice(op: If, used: Sequence[bool], pred: Value, *x: Value) -> Pruned | None:
    results = [i for i, flag in enumerate(used) if flag]
    read = sorted(read_inputs(op.then, results) | read_inputs(op.otherwise, results))
    if len(results) == len(used) and len(read) == len(x):
        return None
    smaller = If(part(op.then, read, results), part(op.otherwise, read, results))
    return smaller, (pred, *(x[i] for i in read)), results


@prune(While)
def loop(op: While, used: Sequence[bool], *x: Value) -> Pruned | None:
    required = {i for i, flag in enumerate(used) if flag} | _carries(read_inputs(op.cond, [0]), op.carries)
    carries = needed(op.body, op.carries, required, ())
    read = sorted(read_inputs(op.body, carries) | read_inputs(op.cond, [0]) | {*carries})
    if len(read) == len(x):
        return None
    body, cond = part(op.body, read, carries), part(op.cond, read, [0])
    return evolve(op, cond=cond, body=body, carries=len(carries)), [x[i] for i in read], carries


@prune(Scan)
def scan(op: Scan, used: Sequence[bool], *x: Value) -> Pruned | None:
    ys = [i for i in range(op.carries, len(used)) if used[i]]
    carries = needed(op.body, op.carries, {i for i in range(op.carries) if used[i]}, ys)
    results = [*carries, *ys]
    read = sorted(read_inputs(op.body, results) | {*carries})
    if len(results) == len(used) and len(read) == len(x):
        return None
    consts = sum(op.carries <= i < op.carries + op.consts for i in read)
    smaller = evolve(op, body=part(op.body, read, results), carries=len(carries), consts=consts)
    return smaller, [x[i] for i in read], results


def needed(body: Graph, count: int, required: set[int], ys: Iterable[int]) -> list[int]:
    """Return the carries that are used outside, or that a step reads to compute a needed carry or y."""
    result, ys = set(required), [*ys]
    while True:
        more = result | _carries(read_inputs(body, [*result, *ys]), count)
        if more == result:
            return sorted(result)
        result = more


def _carries(places: Iterable[int], count: int) -> set[int]:
    return {i for i in places if i < count}
