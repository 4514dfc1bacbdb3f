"""Recognition of regions that multiply a product by the derivative of gelu_approx, by value numbering.

The traced derivative of the op and the steps of the region are value-numbered in one table: equal ops of equal operands have one
number, independent of the operand order of commutative ops. The region matches if both results have the same number.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from functools import cache

from rlx_core.ir.dtypes import DType
from rlx_core.ir.graph import Constant, Graph, Input, Node, Value
from rlx_core.ir.op import Op
from rlx_core.ir.types import TensorType
from rlx_core.ops.activation import gelu_approx, tanh
from rlx_core.ops.kinds import Elementwise
from rlx_core.ops.region import ElementwiseRegion, reads_as
from rlx_core.transforms.trace import trace

Table = dict[Hashable, int]
"""Value numbers by op and operands."""


def slope_of(node: Node, region: ElementwiseRegion) -> int | None:
    """Return the index of the operand at which a product's region evaluates the derivative of gelu_approx and multiplies the
    product by it; `None` if the region computes something else."""
    if region.results != (len(region.steps) - 1,) or all(step.op != tanh.op() for step in region.steps):
        return None
    table: Table = {}
    argument, numbers = None, [_number(table, "product")]
    for place, (value, access) in enumerate(zip(node.operands[2:], region.access[1:], strict=True), 2):
        if value is None:
            return None
        is_whole = value.shape == region.shape and reads_as(access, value.shape, region.shape)
        if (literal := _literal(value)) is not None:
            numbers.append(_number(table, literal))
        elif argument is None and value.dtype is node.types[0].dtype and is_whole:
            argument = place
            numbers.append(_number(table, "x"))
        else:
            return None
    for step in region.steps:
        numbers.append(_step(table, step.op, [numbers[r] for r in step.reads]))
    return argument if numbers[-1] == _expected(table, _slope(node.types[0].dtype)) else None


@cache
def _slope(dtype: DType) -> Graph:
    """Return the graph of a product times the derivative of gelu_approx, traced from the op's own derivative."""
    gelu = gelu_approx.op
    assert issubclass(gelu, Elementwise), "its partial derivatives are stated"
    (slope,) = gelu.partials

    def multiplied(product: Value, x: Value) -> Value:
        return product * slope(x, gelu_approx(x))  # type: ignore[operator]

    one = TensorType(dtype, (1,))
    return trace(multiplied, (one, one)).graph


def _expected(table: Table, graph: Graph) -> int:
    numbers: dict[Value, int] = {}
    for node in graph.nodes:
        (result,) = node.results
        if isinstance(node.op, Input):
            numbers[result] = _number(table, node.op.label)
        elif (literal := _literal(result)) is not None:
            numbers[result] = _number(table, literal)
        else:
            numbers[result] = _step(table, node.op, [numbers[v] for v in node.present()])
    (output,) = graph.outputs
    return numbers[output]


def _step(table: Table, op: Op, reads: Sequence[int]) -> int:
    is_commutative = isinstance(op, Elementwise) and op.is_commutative
    return _number(table, (op, *(sorted(reads) if is_commutative else reads)))


def _number(table: Table, what: Hashable) -> int:
    return table.setdefault(what, len(table))


def _literal(value: Value) -> Hashable | None:
    """Return the value of a constant with one element, else `None`."""
    op = value.node.op
    return ("literal", op.value.array.item()) if isinstance(op, Constant) and value.type.size == 1 else None
