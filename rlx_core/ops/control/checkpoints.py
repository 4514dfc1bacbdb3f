"""A loop in segments: the backward pass saves the carry at the start of each segment, and recomputes the carries inside it.

This needs only a Scan over segments whose body is a Scan: a derivative recomputes each step, and a segment is a step. No ops
here.
"""

from __future__ import annotations

from collections.abc import Sequence

from attrs import evolve

from rlx_core.errors import ShapeError
from rlx_core.ir.graph import Value, as_results, graph_of
from rlx_core.ops.control.scan import Scan
from rlx_core.ops.movement import Narrow, concat
from rlx_core.ops.structural import reshape


def in_segments(op: Scan, count: int, operands: Sequence[Value]) -> tuple[Value, ...]:
    """Return the results of a Scan, run in `count` segments of one length, or two lengths that differ by one.

    Raises:
        ShapeError: There are more segments than steps, or none; or the number of steps is unknown.
    """
    if not isinstance(op.length, int) or type(count) is not int or not 0 < count <= max(op.length, 1):
        raise ShapeError(f"{op.title}: checkpoints must be between 1 and the number of steps, {op.length}, not {count}")
    carries, consts, xs = op.split(operands)
    size, longer = divmod(op.length, count)
    # Each row: the first step, the number of segments, and their length.
    rows = [(0, longer, size + 1), (longer * (size + 1), count - longer, size)]
    pieces: dict[int, tuple[Value, ...]] = {}
    for start, segments, length in reversed(rows) if op.reverse else rows:
        if segments and length:
            parts = [_cut(x, start, segments, length) for x in xs]
            outputs = _segments(op, segments, length, (*carries, *consts, *parts))
            carries = outputs[: op.carries]
            pieces[start] = tuple(reshape(y, (segments * length, *y.shape[2:])) for y in outputs[op.carries :])
    if not pieces:
        return as_results(op(*operands))
    columns = zip(*(pieces[start] for start in sorted(pieces)), strict=True)
    return (*carries, *(concat(column, axis=0) if len(column) > 1 else column[0] for column in columns))


def _cut(x: Value, start: int, segments: int, length: int) -> Value:
    part = x if segments * length == x.shape[0] else Narrow(0, start, segments * length)(x)
    cut: Value = reshape(part, (segments, length, *x.shape[1:]))
    return cut


def _segments(op: Scan, count: int, length: int, operands: Sequence[Value]) -> tuple[Value, ...]:
    inner = evolve(op, length=length)
    first = op.carries + op.consts
    types = [v.type if i < first else v.type.with_shape(v.shape[1:]) for i, v in enumerate(operands)]
    body = graph_of(f"{op.body.name}_segment", types, lambda *x: as_results(inner(*x)))
    return as_results(evolve(op, body=body, length=count)(*operands))
