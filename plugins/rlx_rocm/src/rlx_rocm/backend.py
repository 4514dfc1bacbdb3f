"""The target `rocm`: AMD GPUs and other OpenCL devices; the driver determines the language, OpenCL C or HIP."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Final

from rlx_core.device.device import Device
from rlx_core.device.diagnostics import Diagnostics
from rlx_core.device.driver import DeviceFacts
from rlx_core.pipeline.backend import Level
from rlx_gpu.backend import GpuBackend
from rlx_gpu.codegen.cuda import HIP
from rlx_gpu.codegen.languages import GpuDialect
from rlx_gpu.codegen.opencl import OPENCL
from rlx_rocm import drivers
from rlx_rocm.hip import discovery as hip

HIP_LEVEL: Final = Level("hip", "HIP C++", comment="//")


class RocmBackend(GpuBackend):
    """The backend for GPUs through OpenCL or CuPy, AMD GPUs first."""

    name = "rocm"
    dialect = OPENCL
    level = Level("opencl", "OpenCL C", comment="//")
    usual = DeviceFacts(
        name="an AMD GPU",
        driver="none",
        memory_nbytes=16 << 30,
        largest_buffer=4 << 30,
        shared_nbytes=64 << 10,
        unsupported=frozenset(("c64", "c128")),
    )
    """The minimum properties of recent AMD GPUs."""

    diagnostics: ClassVar[Diagnostics] = Diagnostics(
        variables=("HIP_", "ROCR_", "HSA_", "GPU_", "POCL_"),
        tools=(("rocm-smi", "-a"), ("clinfo", "-l")),
        dlpack_libraries=("torch", "jax.numpy", "cupy"),
    )

    def found(self, options: Mapping[str, Any]) -> Sequence[Device]:
        return drivers.wanted(options)

    def usual_for(self, options: Mapping[str, Any]) -> DeviceFacts | None:
        return hip.USUAL if drivers.by_cupy(options) else self.usual

    def dialect_of(self, device: Device) -> GpuDialect:
        return HIP if hip.FEATURE in device.facts.features else self.dialect

    def level_of(self, device: Device) -> Level:
        return HIP_LEVEL if hip.FEATURE in device.facts.features else self.level
