"""Resizing of spatial axes: the nearest cell, or cells around a place weighted by a line or a cubic."""

from __future__ import annotations

from rlx_core.ir.op import Op
from rlx_core.ops.resize import resample

OPS: tuple[type[Op], ...] = resample.OPS
