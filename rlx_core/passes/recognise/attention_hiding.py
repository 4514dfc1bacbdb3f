"""Masking in traced attention: the selections and additions between the scores and their softmax, as attention's attributes.

The result of a query without visible keys depends on how its keys were masked, and is preserved: a fill of -inf makes the
softmax NaN, a large finite fill makes all keys equal. Where every query provably sees a key, the question does not arise.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

import numpy as np

from rlx_core.ir.dtypes import bool_, f16
from rlx_core.ir.graph import Constant, Node, Value
from rlx_core.ir.op import Op
from rlx_core.ops.arithmetic import add, multiply, negative, subtract
from rlx_core.ops.attention_scores import EmptyRow
from rlx_core.ops.comparison import greater, greater_equal, less, less_equal, logical_not
from rlx_core.ops.conversion import Cast
from rlx_core.ops.creation import Full, Iota
from rlx_core.ops.rearrange import Tril
from rlx_core.ops.selection import Where
from rlx_core.ops.structural import Expand, Reshape
from rlx_core.passes.engine.rules import Declined
from rlx_core.passes.recognise.chains import constant_of
from rlx_core.system.records import frozen


@frozen(eq=False)
class Hiding:
    """A selection that hides keys: `where(mask, scores, fill)`, or the other way round.

    Attributes:
        scores: The selected scores.
        mask: bool, broadcast against the scores; true (or false, if `is_inverted`) where a key is visible.
        empty_row: The result of a query whose keys are all hidden.
        declined: The reason why this selection is not a mask after all.
    """

    node: Node
    scores: Value
    mask: Value
    is_inverted: bool
    empty_row: EmptyRow
    declined: Declined | None = None


def hiding_of(value: Value) -> Hiding | None:
    """`value` as hidden scores; `None` if it is no selection with a constant."""
    node = value.node
    if not isinstance(node.op, Where):
        return None
    mask, a, b = node.present()
    for scores, filler, is_inverted in ((a, b, False), (b, a, True)):
        fill = constant_of(filler)
        if fill is None:
            continue
        least = float(np.finfo(np.float16).min) if value.dtype is f16 else -1e9
        empty_row: EmptyRow = "nan" if fill == -math.inf else "uniform"
        declined = None
        if mask.dtype is not bool_ or scores.type != value.type:
            declined = Declined(f"the mask {mask.type} does not broadcast to the scores {scores.type}", "DtypeMismatch")
        elif fill > least:
            declined = Declined(f"a fill of {fill:g} leaves hidden keys a weight; {least:g} or less hides them")
        return Hiding(node, scores, mask, is_inverted, empty_row, declined)
    return None


# ----------------------------------------------------------------------------------------- masks


def is_causal(mask: Value, is_inverted: bool) -> bool:
    """Return whether a mask shows exactly the keys up to the query's own position, aligned to the end, and that for every query.

    Recognised are literal triangles, comparisons of positions, and the lower triangle of ones. Fewer keys than queries
    would leave queries without keys, whose value depends on the fill, so that is no causal mask here.
    """
    while True:
        if mask.ndim < 2:
            return False
        queries, keys = mask.shape[-2:]
        if not (queries == keys or (isinstance(queries, int) and isinstance(keys, int) and 1 < queries <= keys)):
            return False
        if any(d != 1 for d in mask.shape[:-2]):
            return False
        node = stripped(mask)
        if isinstance(node.op, Constant) and isinstance(queries, int) and isinstance(keys, int):
            shown = node.op.value.array.reshape(queries, keys) if node.op.value.array.size == queries * keys else None
            causal = np.tri(queries, keys, keys - queries, dtype=bool)
            return shown is not None and np.array_equal(shown != is_inverted, causal)
        if queries != keys:
            return False
        if type(node.op) is not logical_not.op or node.operands[0] is None:
            break
        mask, is_inverted = node.operands[0], not is_inverted
    if isinstance(node.op, Tril):
        ones = node.operands[0]
        return not is_inverted and node.op.k == 0 and ones is not None and repeats_true(ones)
    return shows_up_to_own_position(node, is_inverted)


def shows_up_to_own_position(node: Node, is_inverted: bool) -> bool:
    """Return whether a comparison of two counters is `key <= query`, or its negation where the mask is inverted."""
    if len(node.operands) != 2:
        return False
    left, right = (None if v is None else counted_axis(v) for v in node.operands)
    query, key = -2, -1
    shown: dict[type[Op], tuple[int, int]] = {less_equal.op: (key, query), greater_equal.op: (query, key)}
    hidden: dict[type[Op], tuple[int, int]] = {greater.op: (key, query), less.op: (query, key)}
    return (hidden if is_inverted else shown).get(type(node.op)) == (left, right) != (None, None)


def counted_axis(value: Value) -> int | None:
    """The axis, counted from the end, along which a value is the position; `None` if it is anything else."""
    node, rank, axis = value.node, value.ndim, None
    sizes = [i - rank for i, d in enumerate(value.shape) if d != 1]
    while isinstance(node.op, Reshape | Expand | Cast) and node.operands[0] is not None:
        if isinstance(node.op, Cast) and not node.op.to.is_integer:
            return None
        node = node.operands[0].node
    if not isinstance(node.op, Iota) or not node.op.dtype.is_integer:
        return None
    iota_axis = node.op.axis % node.type.rank
    if any(d != 1 for i, d in enumerate(node.type.shape) if i != iota_axis):
        return None
    if len(sizes) == 1 and value.shape[sizes[0]] == node.type.shape[iota_axis]:
        axis = sizes[0]
    return axis


def stripped(mask: Value) -> Node:
    """The node of a mask below casts to bool and added axes of size 1."""
    node = mask.node
    while True:
        first = node.operands[0] if node.operands else None
        if first is None:
            return node
        is_plain = isinstance(node.op, Cast) and node.op.to is bool_ and first.dtype.is_numeric
        is_moved = isinstance(node.op, Reshape | Expand) and first.shape[-2:] == mask.shape[-2:]
        if not (is_plain or is_moved):
            return node
        node = first.node


def repeats_true(ones: Value) -> bool:
    node = ones.node
    while isinstance(node.op, Expand | Reshape | Full | Cast) and node.operands[0] is not None:
        node = node.operands[0].node
    return isinstance(node.op, Constant) and bool(np.all(node.op.value.array == 1))


# ---------------------------------------------------------------------------------------- biases


def is_finite(value: Value) -> bool:
    """Return whether no element can be infinite or NaN, whatever the inputs: read off constants and conversions from bool."""
    bound = magnitude(value)
    return bound is not None and bound < float(np.finfo(np.float32).max)


def magnitude(value: Value, depth: int = 16) -> float | None:
    """Return a bound on the absolute value of every element, or `None` if no input-independent bound is known."""
    node = value.node
    if isinstance(node.op, Constant):
        array = node.op.value.array.astype(np.float64, copy=False)
        return float(np.max(np.abs(array), initial=0.0)) if np.isfinite(array).all() else None
    if isinstance(node.op, Cast) and node.operands[0] is not None and node.operands[0].dtype is bool_:
        return 1.0
    combine: dict[type[Op], Callable[[Iterable[float]], float]] = {
        multiply.op: math.prod, add.op: sum, subtract.op: sum, negative.op: sum, Where: max,
    }  # fmt: skip
    moves = isinstance(node.op, Reshape | Expand | Full | Cast)
    if depth == 0 or not (moves or type(node.op) in combine):
        return None
    read = [v for v in node.present() if v.dtype is not bool_]
    bounds = [magnitude(v, depth - 1) for v in read]
    known = [b for b in bounds if b is not None]
    if len(known) < len(bounds) or not known:
        return None
    return known[0] if moves else float(combine[type(node.op)](known))
