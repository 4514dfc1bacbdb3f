"""What a backend is, for authors of one. (`select/backend.py`)"""

from __future__ import annotations

from rlx_core.pipeline.select.backend import (
    ABSENT,
    Backend,
    Bindings,
    Level,
    Listing,
    ObjectStore,
    Outputs,
    Program,
    Target,
    Traffic,
    at_step,
)
from rlx_core.pipeline.select.packages import Blobs, Keep, PackedCode

__all__ = [
    "ABSENT",
    "Backend",
    "Bindings",
    "Blobs",
    "Keep",
    "Level",
    "Listing",
    "ObjectStore",
    "Outputs",
    "PackedCode",
    "Program",
    "Target",
    "Traffic",
    "at_step",
]
