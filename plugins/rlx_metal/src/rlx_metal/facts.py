"""What rlx has to know of a Metal device, and what it takes for granted where there is none."""

from __future__ import annotations

from typing import Any

from rlx_core.device.driver import DeviceFacts

__all__ = ["USUAL", "facts_of"]

LACKS = frozenset(("f64", "c64", "c128"))

USUAL = DeviceFacts(
    name="an Apple GPU",
    driver="none",
    memory_nbytes=8 << 30,
    largest_buffer=4 << 30,
    group_size=1024,
    shared_nbytes=32 << 10,
    subgroup=32,
    lacks=LACKS,
)
"""What Apple's GPUs have at least, since the M1."""


def facts_of(device: Any) -> DeviceFacts:
    """What a device is. All of Apple's own GPUs have subgroups of 32; those in older Macs have others."""
    import Foundation
    import Metal

    largest = int(device.maxBufferLength())
    return DeviceFacts(
        name=str(device.name()),
        driver=f"Metal of macOS {Foundation.NSProcessInfo.processInfo().operatingSystemVersionString()}",
        memory_nbytes=int(device.recommendedMaxWorkingSetSize()) or largest,
        largest_buffer=largest,
        group_size=min(1024, int(device.maxThreadsPerThreadgroup().width)),
        shared_nbytes=int(device.maxThreadgroupMemoryLength()),
        subgroup=32 if device.supportsFamily_(Metal.MTLGPUFamilyApple7) else None,
        lacks=LACKS,
    )
