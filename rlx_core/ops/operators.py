"""The functions of Python's operators and of the methods of arrays: the only link from the IR's syntax to the standard ops.

`ir/graph/` declares the operators without reference to ops; families that are defined after this one (reductions, movement,
linear algebra) pass their functions to `install`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rlx_core.ir.dtypes import dtype
from rlx_core.ir.graph import OPERATORS, Value
from rlx_core.ops import arithmetic, bitwise, comparison
from rlx_core.ops.conversion import cast
from rlx_core.ops.structural import reshape, transpose


def install(**functions: Callable[..., Any]) -> None:
    """Set the functions of operators and methods of arrays, by the operator's name in the Python Array API.

    Installing the same function again changes nothing; an operator has one meaning for the lifetime of the process.
    """
    for name, function in functions.items():
        known = OPERATORS.setdefault(name, function)
        assert known is function, f"operator {name} already means {known!r}"


def _astype(x: Any, to: Any) -> Any:
    target = dtype(to)
    if not isinstance(x, Value):
        return x if x.dtype == target else cast(x, to=target)
    if x.dtype is not target:
        return cast(x, to=target)
    # A copy even without a conversion: as in NumPy, assignments to the result do not affect `x`.
    reshaped = reshape(x, x.shape)
    return reshaped.node.owner.as_copy(reshaped)


def _matrix_transpose(x: Any) -> Any:
    axes = list(range(x.ndim))
    return transpose(x, perm=(*axes[:-2], *reversed(axes[-2:])))


# Installed on import: rules of the families after this one use operators, without importing functions by name.
install(
    add=arithmetic.add,
    subtract=arithmetic.subtract,
    multiply=arithmetic.multiply,
    divide=arithmetic.divide,
    floor_divide=arithmetic.floor_divide,
    remainder=arithmetic.remainder,
    pow=arithmetic.pow,
    negative=arithmetic.negative,
    abs=arithmetic.abs,
    bitwise_and=bitwise.bitwise_and,
    bitwise_or=bitwise.bitwise_or,
    bitwise_xor=bitwise.bitwise_xor,
    bitwise_invert=bitwise.bitwise_invert,
    bitwise_left_shift=bitwise.bitwise_left_shift,
    bitwise_right_shift=bitwise.bitwise_right_shift,
    equal=comparison.equal,
    not_equal=comparison.not_equal,
    less=comparison.less,
    less_equal=comparison.less_equal,
    greater=comparison.greater,
    greater_equal=comparison.greater_equal,
    astype=_astype,
    matrix_transpose=_matrix_transpose,
)
