"""The driver of one AMD GPU through CuPy, with HIPRTC as compiler."""

from __future__ import annotations

from typing import Any

from rlx_core.device.driver import DeviceFacts
from rlx_gpu.cupy.driver import CupyDriver
from rlx_rocm.hip import hiprtc


class HipDriver(CupyDriver):
    """The driver of a HIP device. It records no graphs: CuPy does not support stream capture on ROCm (CuPy documentation)."""

    platform = "HIP"
    kinds = (10,)

    def __init__(self, cupy: Any, facts: DeviceFacts, place: str, number: int, architecture: str) -> None:
        super().__init__(cupy, facts, place, number)
        self._architecture = architecture

    def compiled(self, source: str) -> bytes:
        return hiprtc.compiled(source, self._architecture, self.place)
