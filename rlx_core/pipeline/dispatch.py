"""The answer of a target for a node, for authors who add legalisations. (`select/dispatch.py`)"""

from __future__ import annotations

from rlx_core.pipeline.select.dispatch import (
    HOST,
    Answer,
    Dispatch,
    Dispatcher,
    DispatchReport,
    LegalizationTable,
    is_view,
    probe,
    supports,
)

__all__ = [
    "HOST",
    "Answer",
    "Dispatch",
    "DispatchReport",
    "Dispatcher",
    "LegalizationTable",
    "is_view",
    "probe",
    "supports",
]
