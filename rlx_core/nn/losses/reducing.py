"""Reductions of the losses of elements or rows: their mean, their sum, or none."""

from __future__ import annotations

from typing import Any

from rlx_core.ir.dtypes import DType
from rlx_core.nn.floats import at_least, narrowed
from rlx_core.ops.arguments import choice
from rlx_core.ops.array_statistics import mean, sum
from rlx_core.ops.loss import REDUCTIONS, Reduction

__all__ = ["Reduction", "at_least", "checked", "reduced"]


def checked(what: str, reduction: Any) -> str:
    """Return the name of a reduction.

    Raises:
        ConfigError: It is unknown.
    """
    return choice(f"{what}: reduction", reduction, REDUCTIONS)


def reduced(losses: Any, reduction: str, result_dtype: DType) -> Any:
    """Return the losses reduced, and rounded to a dtype once."""
    if reduction != "none":
        losses = sum(losses) if reduction == "sum" else mean(losses)
    return narrowed(losses, result_dtype)
