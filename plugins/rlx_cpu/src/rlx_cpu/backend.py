"""The CPU target and its compiler."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from functools import cached_property
from typing import Any

from rlx_core.ir.lir import Lir
from rlx_core.pipeline.backend import Backend, Program, Target
from rlx_cpu.kernels import kernels
from rlx_cpu.oracle import OracleProgram
from rlx_cpu.program import NumpyProgram

__all__ = ["CpuBackend"]


class CpuBackend(Backend):
    """This machine's processor."""

    @cached_property
    def target(self) -> Target:
        return Target(
            name="cpu",
            kernels=kernels,
            alignment=64,  # a cache line, and the widest vector of AVX-512
            accepts_views=True,
            properties={"tier": "numpy"},
        )

    def compile(self, lir: Lir, target: Target, options: Mapping[str, Any]) -> Program:
        chosen = options.get("options", {})
        return OracleProgram(lir) if chosen.get("cpu.oracle") else NumpyProgram(lir, target.kernels)

    def devices(self) -> list[str]:
        return [platform.processor() or platform.machine()]
