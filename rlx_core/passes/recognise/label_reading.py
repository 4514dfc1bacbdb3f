"""Forms of reading one element of each row at a label: by an index, or by a sum over rows multiplied by one-hot rows.

The two differ where a label is outside of the row: an index is an error, a one-hot row of zeros counts for nothing.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from attrs import evolve

from rlx_core.ir.graph import Constant, Node, Value
from rlx_core.ir.types import Shape, normalize_axes, normalize_axis
from rlx_core.ops.along_axis import TakeAlongAxis
from rlx_core.ops.arithmetic import negative
from rlx_core.ops.comparison import equal
from rlx_core.ops.conversion import Cast
from rlx_core.ops.creation import Eye, Iota, OneHot
from rlx_core.ops.getitem import holds_places
from rlx_core.ops.indexing import Gather
from rlx_core.ops.selection import Where
from rlx_core.ops.structural import Expand, Reshape, Sum
from rlx_core.passes.recognise.chains import Factors, behind, factors_of, is_constant
from rlx_core.system.records import frozen


@frozen(eq=False)
class LabelReading:
    """`factor · rows[.., label]`, a label a row.

    Attributes:
        rows: The rows that are read, `[.., c]`.
        labels: Integers, one a row and in their order; in dims that may have an axis of size 1 more.
        nodes: All nodes from the rows to the element that is read; nodes that only compute one-hot rows are not among them.
        factor: The factor of the element.
        is_checked: Whether a label outside of the row is an error; if not, it reads 0.
    """

    rows: Value
    labels: Value
    nodes: tuple[Node, ...]
    factor: float = 1.0
    is_checked: bool = True


def reading_of(value: Value) -> LabelReading | None:
    """Return the reading by an index that `value` is, in any dims."""
    node, passed = behind(value, (Reshape,))
    reading = indexed(node)
    return None if reading is None else evolve(reading, nodes=(*passed, *reading.nodes))


def indexed(node: Node) -> LabelReading | None:
    """The reading that a gather, or a reading along an axis, is."""
    op = node.op
    if not isinstance(op, Gather | TakeAlongAxis):
        return None
    rows, labels = node.operands
    if rows is None or labels is None or not rows.ndim or op.oob != "error":
        return None
    leading, last = rows.shape[:-1], rows.ndim - 1
    is_along = normalize_axis(op.axis, rows.ndim) == last and (isinstance(op, TakeAlongAxis) or op.batch_dims == last)
    is_single = labels.shape == (*leading, 1) or (isinstance(op, Gather) and labels.shape == leading)
    return LabelReading(rows, labels, (node,)) if is_along and is_single else None


def summed(node: Node) -> LabelReading | None:
    """The reading that a sum over classes is: of rows times one-hot rows, or of rows where a one-hot row is true.

    Other axes may be summed as well; the reading is the operand of that sum.
    """
    if not isinstance(node.op, Sum):
        return None
    (product,) = node.present()
    if not product.ndim or product.ndim - 1 not in summed_axes(node):
        return None
    for rows, mask, factors in selections(product):
        encoding = one_hot(mask) if mask.shape == product.shape and rows.type == product.type else None
        if encoding is not None:
            labels, is_checked = encoding
            return LabelReading(rows, labels, (node, *factors.nodes), factors.constant, is_checked)
    return None


def summed_axes(node: Node) -> tuple[int, ...]:
    """The axes that a sum adds up, counted from the front."""
    (summed,) = node.present()
    return normalize_axes(node.op.attributes()["axes"], summed.ndim)


def selections(product: Value) -> Iterator[tuple[Value, Value, Factors]]:
    """Yield the ways to read `product` as rows that are masked: (rows, mask, the nodes passed through)."""
    if isinstance(product.node.op, Where):
        mask, selected, other = product.node.operands
        factors = None if selected is None else signed_factors(selected)
        if mask is not None and factors is not None and len(factors.values) == 1 and is_constant(other, 0):
            yield factors.values[0], mask, evolve(factors, nodes=(product.node, *factors.nodes))
        return
    factors = signed_factors(product)
    if len(factors.values) == 2:
        for rows, mask in (factors.values, factors.values[::-1]):
            yield rows, mask, factors


def signed_factors(value: Value) -> Factors:
    """Return the factors of `value`, with the sign changes of the product and of its factors."""
    outer = without_sign(value)
    product = factors_of(outer.values[0])
    signs = evolve(outer, values=()) + evolve(product, values=())
    return sum((without_sign(v) for v in product.values), signs)


def without_sign(value: Value) -> Factors:
    """Return `value` without its outer negations, as the one value of a product with their signs."""
    factors = Factors()
    while type(value.node.op) is negative.op and value.node.operands[0] is not None:
        factors += Factors((-1.0,), (), (value.node,))
        value = value.node.operands[0]
    return evolve(factors, values=(value,))


# ------------------------------------------------------------------------------------------- one-hot rows


def one_hot(value: Value) -> tuple[Value, bool] | None:
    """The labels of one-hot rows `[.., c]` of any dtype, and whether a label outside is an error."""
    while (below := _same_places(value)) is not None:
        value = below
    op, operands = value.node.op, value.node.operands
    first = operands[0] if operands else None
    if first is None:
        return None
    if isinstance(op, OneHot):
        is_plain = (op.on, op.off) == (1, 0) and normalize_axis(op.axis, value.ndim) == value.ndim - 1
        return (first, False) if is_plain else None
    if isinstance(op, Gather):
        labels = operands[1]
        is_row = is_identity(first) and normalize_axis(op.axis, 2) == 0 and op.oob == "error"
        return (labels, True) if is_row and labels is not None else None
    if type(op) is equal.op:
        for labels, places in (operands, operands[::-1]):
            if labels is not None and places is not None and counts(places, value.shape):
                column = expanded_from(labels)
                if column.dtype.is_integer and column.shape == (*value.shape[:-1], 1):
                    return column, False
    return None


def _same_places(value: Value) -> Value | None:
    """Return the value that a mask is converted from: a 1 wherever that is true or 1."""
    node = value.node
    if isinstance(node.op, Cast):
        return node.operands[0]
    if isinstance(node.op, Where):
        mask, selected, other = node.operands
        is_plain = mask is not None and mask.shape == value.shape and is_constant(selected, 1) and is_constant(other, 0)
        return mask if is_plain else None
    return None


def expanded_from(value: Value) -> Value:
    """Return the operand that was broadcast to give `value`."""
    while isinstance(value.node.op, Expand) and value.node.operands[0] is not None:
        value = value.node.operands[0]
    return value


def counts(value: Value, shape: Shape) -> bool:
    """Return whether a value is 0, 1, 2, … along the last axis of `shape`, and the same along all others."""
    size = shape[-1]
    if not isinstance(size, int) or size < 2:
        return False
    node = value.node
    # Dims may be added or repeated, but none regrouped: the last axis stays whole.
    while node.type.shape[-1:] == (size,) and holds_places(node.type.dtype, size):
        if isinstance(node.op, Constant):
            array = node.op.value.array
            return array.size == size and np.array_equal(array.reshape(-1), np.arange(size))
        if isinstance(node.op, Iota):
            return normalize_axis(node.op.axis, node.type.rank) == node.type.rank - 1
        if not isinstance(node.op, Cast | Expand | Reshape) or node.operands[0] is None:
            return False
        node = node.operands[0].node
    return False


def is_identity(value: Value) -> bool:
    """Return whether a matrix is known to be square, 1 on its diagonal and 0 elsewhere."""
    op = value.node.op
    if isinstance(op, Constant):
        array = op.value.array
        return array.ndim == 2 and np.array_equal(array, np.eye(len(array)))
    return isinstance(op, Eye) and op.n == op.m and op.k == 0
