"""Kernel tables, for authors of backends and of kernels. (`select/kernels.py`)"""

from __future__ import annotations

from rlx_core.pipeline.select.kernels import (
    Condition,
    Kernel,
    KernelRefusal,
    KernelSelection,
    KernelTable,
    Traits,
    condition,
)

__all__ = ["Condition", "Kernel", "KernelRefusal", "KernelSelection", "KernelTable", "Traits", "condition"]
