"""Rates and decays, as numbers or as arrays: validation, and computations without loss of precision."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import rlx_core as rlx
from rlx_core.errors import ConfigError
from rlx_core.ir.dtypes import DType, dtype

Schedule = Callable[[Any], Any]
"""A function from the number of steps before this one to a number."""

Rate = Any
"""A Python number, which is a constant of the program; an array, which is not; or a `Schedule`."""


def expect_fraction(what: str, value: Any) -> None:
    """Require a decay in [0, 1); the values of an array are not checked.

    Raises:
        ConfigError: It is a number outside of this interval.
    """
    if isinstance(value, int | float) and not 0 <= value < 1:
        raise ConfigError(f"{what} must be in [0, 1), not {value!r}")


def expect_positive(what: str, value: Any) -> None:
    """Require a number above 0; the values of an array are not checked.

    Raises:
        ConfigError: It is a number of 0 or less, or not a number.
    """
    if isinstance(value, int | float) and not value > 0:
        raise ConfigError(f"{what} must be above 0, not {value!r}")


def expect_rate(value: Any) -> Any:
    """Return a learning rate that is a number or an array.

    Raises:
        ConfigError: It is a string or None.
    """
    if value is None or isinstance(value, str | bytes):
        raise ConfigError(
            f"learning_rate is {value!r} ({type(value).__name__}), not a number, an array or a schedule",
            hint="write a number: 1e-3",
        )
    return value


def debiasing(decay: Any, count: Any) -> Callable[[Any], Any]:
    """Return the function that divides an average that started at 0 by `1 - decay**count`, in each leaf's dtype.

    The difference is `-expm1(count·log(decay))`: in f32, `1 - 0.999**count` loses four of its seven digits in the first steps.
    """
    known: dict[Any, Any] = {}

    def debiased(average: Any) -> Any:
        average_dtype = dtype(average.dtype)
        if average_dtype not in known:
            known[average_dtype] = -rlx.expm1(rlx.astype(count, average_dtype) * _log(decay, average_dtype))
        return average / known[average_dtype]

    return debiased


def _log(decay: Any, target: DType) -> Any:
    if not isinstance(decay, int | float):
        return rlx.log(rlx.astype(decay, target))
    return math.log(decay) if decay > 0 else -math.inf
