"""The target `metal`: Metal devices programmed in the Metal Shading Language."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from rlx_core.device.device import Device
from rlx_core.device.diagnostics import Diagnostics
from rlx_core.pipeline.backend import Level
from rlx_gpu.backend import GpuBackend
from rlx_gpu.codegen.metal import METAL
from rlx_metal.facts import USUAL


class MetalBackend(GpuBackend):
    """The backend for GPUs through Metal."""

    name = "metal"
    dialect = METAL
    level = Level("msl", "the Metal Shading Language", comment="//")
    usual = USUAL
    diagnostics: ClassVar[Diagnostics] = Diagnostics(
        variables=("MTL_", "METAL_"), tools=(("system_profiler", "SPDisplaysDataType"),)
    )

    def found(self, options: Mapping[str, Any]) -> Sequence[Device]:
        from rlx_metal import discovery  # code is printed without PyObjC

        return discovery.wanted(options)
