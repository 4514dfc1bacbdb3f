"""The interface of a pass, for authors: `Pass`, its `Context` and its `Result`. (`engine/base.py`)"""

from __future__ import annotations

from rlx_core.passes.engine.base import (
    INLINED,
    LEGAL,
    LOWERED,
    Context,
    LirPass,
    Miss,
    Pass,
    PassRecord,
    Property,
    Result,
    Stage,
    TargetView,
    define_pass,
    each_graph,
    emit_like,
    field,
)

__all__ = [
    "INLINED",
    "LEGAL",
    "LOWERED",
    "Context",
    "LirPass",
    "Miss",
    "Pass",
    "PassRecord",
    "Property",
    "Result",
    "Stage",
    "TargetView",
    "define_pass",
    "each_graph",
    "emit_like",
    "field",
]
