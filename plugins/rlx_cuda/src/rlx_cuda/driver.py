"""One of NVIDIA's GPUs by CuPy, with NVRTC for a compiler."""

from __future__ import annotations

import cupy

from rlx_core.codegen.gpu.cuda import CUDA
from rlx_core.device.cupy.driver import INTERFACE, CupyDriver
from rlx_core.device.driver import DeviceFacts
from rlx_cuda import nvrtc

__all__ = ["CudaDriver"]


class CudaDriver(CupyDriver):
    """A CUDA device."""

    platform = "CUDA"
    kinds = (2, 13)  # of CUDA's devices, and what they share with the host
    can_record = True
    attributes = frozenset((INTERFACE,))

    def __init__(self, facts: DeviceFacts, place: str, number: int, architecture: str) -> None:
        super().__init__(cupy, facts, place, number)
        self._architecture = architecture

    def compiled(self, source: str) -> bytes:
        return nvrtc.compiled(source, self._architecture, CUDA.options, place=self.place).code
