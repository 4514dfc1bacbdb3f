"""One of NVIDIA's GPUs by CuPy, with NVRTC for a compiler and CUDA's libraries for routines."""

from __future__ import annotations

from collections.abc import Sequence

import cupy

from rlx_core.codegen.gpu.cuda import CUDA
from rlx_core.codegen.places import Place
from rlx_core.device.cupy.driver import INTERFACE, CupyDriver
from rlx_core.device.driver import Argument, DeviceFacts
from rlx_cuda import nvrtc
from rlx_cuda.routines import Routine

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

    def routine(self, name: str, places: Sequence[Place], arguments: Sequence[Argument]) -> Routine:
        return Routine.of(name, places, arguments, self._number)
