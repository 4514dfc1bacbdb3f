"""Properties of Metal devices, and default properties for machines without a device."""

from __future__ import annotations

from typing import Any

from rlx_core.device.driver import DeviceFacts

UNSUPPORTED = frozenset(("f64", "c64", "c128"))

USUAL = DeviceFacts(
    name="an Apple GPU",
    driver="none",
    memory_nbytes=8 << 30,
    largest_buffer=4 << 30,
    group_size=1024,
    shared_nbytes=32 << 10,
    subgroup=32,
    unsupported=UNSUPPORTED,
)
"""The minimum properties of Apple's GPUs since the M1."""


def facts_of(device: Any) -> DeviceFacts:
    """Return the properties of a device. All of Apple's own GPUs have subgroups of 32; other GPUs in older Macs may not."""
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
        unsupported=UNSUPPORTED,
    )
