"""Device properties as CuPy reports them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rlx_core.device.driver import DeviceFacts


def facts_of(properties: Mapping[str, Any], *, name: str, driver: str, feature: str) -> DeviceFacts:
    """The facts of a device from `getDeviceProperties`, whose names are CUDA's and HIP's alike."""
    memory = int(properties["totalGlobalMem"])
    return DeviceFacts(
        name=name,
        driver=driver,
        memory_nbytes=memory,
        largest_buffer=memory,
        group_size=int(properties["maxThreadsPerBlock"]),
        shared_nbytes=int(properties["sharedMemPerBlock"]),
        units=int(properties["multiProcessorCount"]),
        subgroup=int(properties["warpSize"]),
        unsupported=frozenset(("c64", "c128")),
        features=frozenset((feature,)),
    )
