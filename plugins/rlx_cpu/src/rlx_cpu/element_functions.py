"""The functions of element-wise ops that eager calls and constant folding use on this target."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rlx_core.ir.dtypes import DType
from rlx_core.ir.element_functions import ElementFunction, ElementFunctions
from rlx_core.ir.op import Op
from rlx_cpu.tier import isa_of


def element_functions(options: Mapping[str, Any]) -> ElementFunctions | None:
    """The native functions of element-wise ops under these options; `None` on the NumPy tier."""
    isa = isa_of(options)
    if isa is None:
        return None

    known: dict[tuple[Op, tuple[DType, ...]], ElementFunction | None] = {}

    def found(op: Op, dtypes: tuple[DType, ...]) -> ElementFunction | None:
        key = op, dtypes
        if key not in known:
            from rlx_cpu.native.loops.element_functions import element_function

            known[key] = element_function(op, dtypes, isa)
        return known[key]

    return found
