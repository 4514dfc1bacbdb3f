"""The driver of one NVIDIA GPU through CuPy, with NVRTC as compiler."""

from __future__ import annotations

import cupy

from rlx_core.device.driver import DeviceFacts
from rlx_cuda import nvrtc
from rlx_gpu.codegen.cuda import CUDA
from rlx_gpu.cupy.driver import INTERFACE, CupyDriver


class CudaDriver(CupyDriver):
    """The driver of a CUDA device."""

    platform = "CUDA"
    kinds = (2, 13)  # DLPack's kDLCUDA and kDLCUDAManaged
    can_record = True
    attributes = frozenset((INTERFACE,))

    def __init__(self, facts: DeviceFacts, place: str, number: int, architecture: str) -> None:
        super().__init__(cupy, facts, place, number)
        self._architecture = architecture

    def compiled(self, source: str) -> bytes:
        return nvrtc.compiled(source, self._architecture, CUDA.options, place=self.place).code
