"""Enumeration of OpenCL devices in the order of preference: AMD GPUs, other GPUs, and CPUs if they are allowed."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import pyopencl as cl
from attrs import frozen

from rlx_core.device.device import Device
from rlx_core.device.driver import DeviceFacts
from rlx_core.errors import DeviceUnavailableError, Fact


@frozen(eq=False)
class Found:
    """An OpenCL device and its properties."""

    device: cl.Device
    facts: DeviceFacts
    rank: int

    @property
    def is_cpu(self) -> bool:
        return bool(self.device.type & cl.device_type.CPU)

    @property
    def compiles(self) -> bool:
        """True if the compiler supports the CPU: PoCL names a CPU newer than its LLVM `generic`, which clang rejects on x86."""
        version = self.device.version
        return not ("pthread-x86_64" in version and version.rstrip().endswith("-generic"))

    @property
    def words(self) -> str:
        """The text that `rocm.device` is matched against."""
        return f"{self.device.platform.name} {self.device.name}".lower()


def wanted(options: Mapping[str, Any]) -> Sequence[Device]:
    """Return the devices that the options allow, best first.

    Raises:
        DeviceUnavailableError: There is no driver or no device, or only devices that the options do not allow.
    """
    every = [each for each in found() if each.compiles]
    name = str(options.get("rocm.device", os.environ.get("RLX_ROCM_DEVICE", ""))).lower()
    allowed = options.get("rocm.allow-cpu", os.environ.get("RLX_ROCM_ALLOW_CPU", "") in ("1", "true"))
    chosen = tuple(each for each in every if (name in each.words if name else allowed or not each.is_cpu))
    if chosen:
        return tuple(_device(number, each) for number, each in enumerate(chosen))
    facts = [Fact(each.facts.name, each.facts.driver) for each in every]
    if found() and not every:
        facts = [Fact(each.facts.name, each.device.version.strip()) for each in found()]
        raise DeviceUnavailableError("rocm: PoCL's compiler does not know this processor", *facts, hint=NEWER)
    if name:
        raise DeviceUnavailableError(f"rocm: no OpenCL device is called {name!r}", *facts)
    raise DeviceUnavailableError(
        "rocm: there is no GPU; the OpenCL devices here are processors" if every else NOTHING,
        *facts,
        hint="to use one: RLX_ROCM_ALLOW_CPU=1, or the option rocm.allow-cpu = true" if every else INSTALL,
    )


NOTHING = "rocm: no OpenCL driver has a device here"
INSTALL = "install AMD's driver (ROCm), or for this machine's processor: python -m pip install \"pyopencl[pocl]\""
NEWER = "install a newer one: apt-get install pocl-opencl-icd"


@cache
def found() -> tuple[Found, ...]:
    """Return all devices of all drivers, best first.

    Raises:
        DeviceUnavailableError: No driver is installed.
    """
    try:
        platforms = cl.get_platforms()
    except cl.Error as error:
        raise DeviceUnavailableError(NOTHING, Fact("driver", error), hint=INSTALL) from None
    devices = [device for platform in platforms for device in platform.get_devices()]
    return tuple(sorted(map(_described, devices), key=lambda each: each.rank))


@cache
def _device(number: int, each: Found) -> Device:
    """Return the `Device` of an OpenCL device under a device number."""
    from rlx_rocm.opencl.driver import OpenClDriver  # a driver is loaded when its device is used

    return Device(f"rocm:{number}", each.facts, lambda: OpenClDriver(each.device, each.facts, number))


def _described(device: cl.Device) -> Found:
    is_amd = any(word in f"{device.platform.name} {device.vendor}".lower() for word in ("amd", "advanced micro"))
    is_cpu = bool(device.type & cl.device_type.CPU)
    unsupported = ["c64", "c128"] + ([] if "cl_khr_fp64" in device.extensions.split() else ["f64"])
    facts = DeviceFacts(
        name=device.name.strip(),
        driver=f"{device.platform.name.strip()} {device.driver_version.strip()}",
        memory_nbytes=device.global_mem_size,
        largest_buffer=device.max_mem_alloc_size,
        alignment=max(256, device.mem_base_addr_align // 8),
        group_size=device.max_work_group_size,
        shared_nbytes=device.local_mem_size,
        units=device.max_compute_units,
        is_processor=is_cpu,
        unsupported=frozenset(unsupported),
    )
    return Found(device, facts, 2 if is_cpu else 0 if is_amd else 1)
