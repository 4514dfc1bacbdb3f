"""Compiled functions of element-wise ops, which make eager calls and constant folding agree with compiled programs.

NumPy and a target's code round elementary functions differently, so that one expression would have several results. A target
therefore provides the function of its code for an op and the dtypes of its operands. An op whose NumPy reference is exact
(`Op.exact_dtypes`), and one on integers and booleans, needs none: every target computes the same bits. Where a target provides
none, the NumPy reference is used.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np

from rlx_core.ir.dtypes import DType
from rlx_core.ir.op import Op
from rlx_core.public import Registered

ElementFunction: TypeAlias = "Callable[..., np.ndarray]"
"""An element-wise function of arrays, which broadcast as in NumPy."""

ElementFunctions: TypeAlias = "Callable[[Op, tuple[DType, ...]], ElementFunction | None]"
"""The function of an op on operands of these dtypes, or `None` where the NumPy reference is used."""

PROVIDERS: Registered[str, Callable[[], ElementFunctions | None]] = Registered("rlx_core.pipeline.element_functions")
"""Under "preferred", the function that returns the functions of the default target."""


def preferred_functions() -> ElementFunctions | None:
    """Return the functions of the default target; `None` where it has none."""
    return PROVIDERS["preferred"]()


def is_inexact(op: Op, dtypes: Sequence[DType | None]) -> bool:
    """Return whether the NumPy reference of an element-wise op may differ from the code of targets on these operands."""
    if op.category != "elementwise" or not dtypes or None in dtypes:
        return False
    return any(d is not None and (d.is_float or d.is_complex) and d not in op.exact_dtypes for d in dtypes)
