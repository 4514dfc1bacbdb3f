"""The target `rocm`: OpenCL devices, and OpenCL C as their language."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rlx_core.codegen.gpu.opencl import OPENCL
from rlx_core.device.device import Device
from rlx_core.device.driver import DeviceFacts
from rlx_core.emit.gpu_backend import GpuBackend
from rlx_core.pipeline.select.backend import Level

__all__ = ["RocmBackend"]


class RocmBackend(GpuBackend):
    """GPUs by OpenCL, AMD's first."""

    name = "rocm"
    dialect = OPENCL
    level = Level("opencl", "OpenCL C", comment="//")
    usual = DeviceFacts(
        name="an AMD GPU",
        driver="none",
        memory_nbytes=16 << 30,
        largest_buffer=4 << 30,
        shared_nbytes=64 << 10,
        lacks=frozenset(("c64", "c128")),
    )
    """What AMD's GPUs of the last years have at least."""

    def found(self, options: Mapping[str, Any]) -> Sequence[Device]:
        from rlx_rocm import discovery  # code is printed without the driver's library

        return discovery.wanted(options)
