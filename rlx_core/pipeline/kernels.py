"""Kernel tables, for authors of backends and of kernels. (`select/kernels.py`)"""

from __future__ import annotations

from rlx_core.pipeline.select.kernels import (
    Condition,
    Emitting,
    Kernel,
    KernelRefusal,
    KernelSelection,
    KernelTable,
    Traits,
    condition,
    emitter_of,
)

__all__ = [
    "Condition",
    "Emitting",
    "Kernel",
    "KernelRefusal",
    "KernelSelection",
    "KernelTable",
    "Traits",
    "condition",
    "emitter_of",
]
