"""Sums of matrix products over the steps of a loop, as one product after it: the cotangent of a weight that every step reads.

`Σ aₜᵀ·bₜ` with `aₜ` `[k, m]` and `bₜ` `[k, n]` is `aᵀ·b` of the stacked a's and b's, `[steps·k, m]` and `[steps·k, n]`. In the
loop every step would read and write `[m, n]`; after it the a's and b's are read once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce
from typing import Final

from rlx_core.ir.graph import Value
from rlx_core.ops.arithmetic import add
from rlx_core.ops.linalg import MatMul
from rlx_core.ops.structural import Transpose, reshape, transpose
from rlx_core.system.records import frozen


@frozen(eq=False)
class ScanProduct:
    """A product `aᵀ·b` in the body of a loop, with its operands.

    Attributes:
        op: The product op, with its precision.
        left: `a`, or its transpose.
        is_turned: Whether `left` is the transpose.
        right: `b`.
    """

    op: MatMul
    left: Value
    is_turned: bool
    right: Value


MOST_PRODUCTS: Final = 8
"""Maximum number of products in one sum: weights are rarely read more often in a step."""


def products_of(value: Value) -> list[ScanProduct]:
    """Return the products that a value is the sum of, if summing them after the loop moves fewer bytes than in it; else []."""
    waiting, products = [value], []
    while waiting:
        term = waiting.pop()
        if isinstance(term.node.op, add.op) and len(waiting) < MOST_PRODUCTS:
            waiting += term.node.present()
            continue
        product = product_of(term)
        if product is None or term.type != value.type:
            return []
        products.append(product)
    return products


def product_of(value: Value) -> ScanProduct | None:
    """Return the product that a value is, if its sum is better computed after the loop."""
    op = value.node.op
    if not isinstance(op, MatMul):
        return None
    left, right = value.node.present()
    if left.ndim != 2 or right.ndim != 2:
        return None
    (m, k), n = left.shape, right.shape[1]
    if not all(isinstance(size, int) for size in (m, k, n)) or k >= min(m, n):
        return None
    source = left.node.operands[0]
    if isinstance(left.node.op, Transpose) and source is not None:
        return ScanProduct(op, source, False, right)
    return ScanProduct(op, left, True, right)


def summed(products: Sequence[ScanProduct], stacks: Mapping[Value, Value]) -> Value:
    """Return the sum of some products over all steps.

    Args:
        stacks: The values of all steps, by the value in the body.
    """
    return reduce(add, (_summed(each, stacks[each.left], stacks[each.right]) for each in products))


def _summed(product: ScanProduct, a: Value, b: Value) -> Value:
    a = transpose(a, (0, 2, 1)) if product.is_turned else a
    result = product.op(transpose(_joined(a), (1, 0)), _joined(b))
    assert isinstance(result, Value), "a product has one result"
    return result


def _joined(stacked: Value) -> Value:
    steps, rows, columns = stacked.shape
    return reshape(stacked, (steps * rows, columns))
