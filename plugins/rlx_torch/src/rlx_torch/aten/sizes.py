"""Sizes and the arithmetic on them, which never becomes nodes: a size is a number or a dim of rlx.

Torch writes it with Python's operators as well as with ATen's; both are here under the names that a graph shows.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

import rlx_core as rlx
from rlx_core.ir.dims import product, smaller
from rlx_torch.aten.context import expect, here, refuse
from rlx_torch.aten.table import rows


class SizeClaim:
    """A comparison of sizes that is not decided before they are known; who asserts it makes it a guard."""

    def __init__(self, relation: Any, left: Any, right: Any) -> None:
        self.relation, self.left, self.right = relation, left, right


def _compared(relation: str, flipped: bool = False) -> Callable[[Any, Any], Any]:
    plain = {"==": operator.eq, ">=": operator.ge, ">": operator.gt}[relation]

    def compare(a: Any, b: Any) -> Any:
        a, b = (b, a) if flipped else (a, b)
        if isinstance(a, int | float) and isinstance(b, int | float):
            return plain(a, b)
        return SizeClaim(relation, a, b)

    return compare


def _asserted(condition: Any, *message: Any) -> None:
    if isinstance(condition, SizeClaim):
        expect(condition.relation, condition.left, condition.right)
    elif not isinstance(condition, rlx.Value) and not condition:
        refuse("operands for which the assertion holds")


def _smaller(a: Any, b: Any) -> Any:
    """The smaller of two sizes; where the bounds that torch has of its symbols decide, under a guard that it is."""
    result = smaller(a, b)
    if result in (a, b):
        return result
    node = here.get().node
    val = node.meta.get("val")
    if val is None or not hasattr(val, "node"):
        return result
    left, right = (_expression(each) for each in node.args)
    separate = val.node.shape_env.bound_sympy(left - right)
    for first, second, holds in ((a, b, separate.upper <= 0), (b, a, separate.lower >= 0)):
        if holds:
            expect(">=", second, first)
            return first
    return result


def _expression(values: Any) -> Any:
    """An operand of a node as torch's expression of its symbols."""
    size = values.meta["val"] if hasattr(values, "meta") else values
    return size.node.expr if hasattr(size, "node") else size


def _truncated(x: Any) -> Any:
    return int(x) if isinstance(x, float) else x


# Callables in graphs other than ops: Python's operators on sizes, and torch's names for them.
rows(
    {
        "operator.add": operator.add,
        "operator.sub": operator.sub,
        "operator.mul": operator.mul,
        "operator.neg": operator.neg,
        "operator.floordiv": operator.floordiv,
        "operator.mod": operator.mod,
        "operator.pow": operator.pow,
        "operator.truediv": lambda a, b: a / b if isinstance(a, int | float) else refuse("a whole quotient of sizes"),
        "operator.getitem": operator.getitem,
        "operator.eq": _compared("=="),
        "operator.ge": _compared(">="),
        "operator.gt": _compared(">"),
        "operator.le": _compared(">=", flipped=True),
        "operator.lt": _compared(">", flipped=True),
        "math.trunc": _truncated,
        "math.floor": lambda x: math.floor(x) if isinstance(x, float) else x,
        "math.ceil": lambda x: math.ceil(x) if isinstance(x, float) else x,
        "torch.sym_int": _truncated,
        "torch.sym_max": lambda a, b: a + b - _smaller(a, b),
        "torch.sym_min": lambda a, b: _smaller(a, b),
        "torch.sym_float": lambda x: float(x) if isinstance(x, int | float) else x,
        "torch.sym_sum": lambda sizes: sum(sizes[1:], sizes[0]),
    }
)


def _stride(x: Any, dim: int) -> Any:
    """Return the stride of a dense tensor, the only layout here."""
    return product(x.shape[dim % x.ndim + 1 :])


def _is_contiguous(x: Any) -> bool:
    values = here.get().node.args[0].meta.get("val")
    return True if values is None else bool(values.is_contiguous())


rows(
    {
        "sym_size.int": lambda x, dim: x.shape[dim],
        "sym_size": lambda x: list(x.shape),
        "sym_numel": lambda x: product(x.shape),
        "sym_stride.int": _stride,
        "sym_storage_offset": lambda x: 0,
        "sym_is_contiguous": _is_contiguous,
        "_assert_scalar": _asserted,
        "_assert_async.msg _assert_async _assert_tensor_metadata sym_constrain_range_for_size sym_constrain_range": (
            lambda *args, **bounds: None
        ),
    }
)
