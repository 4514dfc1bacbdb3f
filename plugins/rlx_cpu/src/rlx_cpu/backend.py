"""The CPU target and its compiler."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from functools import cached_property
from typing import Any

from rlx_core.ir.lir import Lir
from rlx_core.pipeline.backend import Backend, Program, Target
from rlx_cpu import tier
from rlx_cpu.kernels import kernels
from rlx_cpu.program import NumpyProgram

__all__ = ["CpuBackend"]


class CpuBackend(Backend):
    """This machine's processor: native code where llvmlite is installed, NumPy for the rest."""

    @cached_property
    def target(self) -> Target:
        native = tier.native_table()
        return Target(
            name="cpu",
            kernels=kernels if native is None else native.install(kernels),
            alignment=64,  # a cache line, and the widest vector of AVX-512
            accepts_views=True,
            properties=tier.properties(),
        )

    def compile(self, lir: Lir, options: Mapping[str, Any]) -> Program:
        """A program for a planned LIR; `options` is the resolved plan, of which those of this backend count."""
        chosen = options.get("options", {})
        found = tier.native_program(lir, self.target.kernels, chosen)
        return NumpyProgram(lir, self.target.kernels) if found is None else found

    def devices(self) -> list[str]:
        return [platform.processor() or platform.machine()]
