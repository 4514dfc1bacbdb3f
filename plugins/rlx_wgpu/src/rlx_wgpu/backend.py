"""The target `wgpu`: WebGPU adapters programmed in WGSL."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from rlx_core.device.device import Device
from rlx_core.device.diagnostics import Diagnostics
from rlx_core.device.driver import DeviceFacts
from rlx_core.device.libraries import imported
from rlx_core.pipeline.backend import Level
from rlx_gpu.backend import GpuBackend
from rlx_gpu.codegen.languages import GpuDialect
from rlx_gpu.codegen.wgsl import WGSL, WGSL_WIDE
from rlx_wgpu.limits import UNSUPPORTED
from rlx_wgpu.plugin import INSTALL_WGPU, OLDEST


class WgpuBackend(GpuBackend):
    """The backend for GPUs through WebGPU."""

    name = "wgpu"
    dialect = WGSL
    level = Level("wgsl", "WGSL", comment="//")
    usual = DeviceFacts(
        name="a WebGPU device",
        driver="none",
        memory_nbytes=1 << 27,
        largest_buffer=1 << 27,
        shared_nbytes=16 << 10,
        unsupported=UNSUPPORTED,
    )
    """The minimum properties of every WebGPU device."""

    diagnostics: ClassVar[Diagnostics] = Diagnostics(
        variables=("WGPU_", "VK_", "MESA_"), tools=(("vulkaninfo", "--summary"),)
    )

    def dialect_of(self, device: Device) -> GpuDialect:
        return WGSL_WIDE if "shader-int64" in device.facts.features else WGSL

    def found(self, options: Mapping[str, Any]) -> Sequence[Device]:
        imported("wgpu", "wgpu", install=INSTALL_WGPU, needs=("GPUError", "gpu"), oldest=OLDEST)
        from rlx_wgpu import discovery  # code is printed without the driver's library

        return discovery.wanted(options)
