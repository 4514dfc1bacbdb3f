"""Conversion of operands to the floating dtype that functions of `rlx_core.nn` compute in; results are rounded once."""

from __future__ import annotations

from typing import Any

from rlx_core.errors import ConfigError, DtypeError
from rlx_core.ir.dtypes import DType, bool_
from rlx_core.ops.arguments import number
from rlx_core.ops.array_elementwise import dtype_of
from rlx_core.ops.array_info import result_type
from rlx_core.ops.conversion import cast
from rlx_core.ops.linalg import operand


def floats(what: str, **arguments: Any) -> tuple[DType, list[Any]]:
    """Return the dtype of a result, and the operands in the dtype of the computation.

    Integers and bools combined with a float become floats; a Python number has the lowest precedence, as everywhere.

    Raises:
        DtypeError: None of them is a float, or one is not a float, integer or bool.
    """
    values = {name: operand(x) for name, x in arguments.items()}
    kinds = {name: dtype_of(x) for name, x in values.items()}
    float_kinds = [
        arguments[name] if isinstance(arguments[name], float) else kind for name, kind in kinds.items() if kind.is_float
    ]
    for name, kind in kinds.items():
        if not float_kinds or not (kind.is_float or kind.is_integer or kind is bool_):
            raise DtypeError(f"{what}: {name} must be a float, not {kind}")
    result_dtype = result_type(*float_kinds)
    return result_dtype, [narrowed(x, result_dtype.accumulator) for x in values.values()]


def narrowed(x: Any, to: DType) -> Any:
    """Return `x` in a dtype, unchanged if it has that dtype."""
    return x if dtype_of(x) is to else cast(x, to=to)


def at_least(what: str, value: Any, least: float = 0.0) -> float:
    """Return a number that is at least `least`.

    Raises:
        ConfigError: It is less, or is not a number.
    """
    result = number(what, value)
    if not result >= least:
        raise ConfigError(f"{what} must be at least {least:g}, not {result}")
    return result
