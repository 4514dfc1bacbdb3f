"""The interface of a backend, for authors of one. (`select/backend.py`)"""

from __future__ import annotations

from rlx_core.pipeline.select.backend import (
    ABSENT,
    Backend,
    Blobs,
    Keep,
    Level,
    Listing,
    ObjectStore,
    Outputs,
    PackedCode,
    Params,
    Program,
    Target,
    Traffic,
    Unpack,
    at_step,
    expect_packable,
)

__all__ = [
    "ABSENT",
    "Backend",
    "Blobs",
    "Keep",
    "Level",
    "Listing",
    "ObjectStore",
    "Outputs",
    "PackedCode",
    "Params",
    "Program",
    "Target",
    "Traffic",
    "Unpack",
    "at_step",
    "expect_packable",
]
