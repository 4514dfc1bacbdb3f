"""Loops and choices that the host drives."""

from __future__ import annotations

from rlx_core.run.control import control_rows
from rlx_cpu.kernels.table import kernels

control_rows(kernels)
