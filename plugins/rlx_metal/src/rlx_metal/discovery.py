"""Enumeration of Metal devices, the system's default first; or the host CPU, if it replaces a GPU (`metal.stand-in`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from rlx_core.device.device import Device
from rlx_core.device.libraries import imported
from rlx_core.errors import DeviceUnavailableError
from rlx_metal.facts import facts_of
from rlx_metal.plugin import INSTALL, INSTEAD, stands_in


def wanted(options: Mapping[str, Any]) -> Sequence[Device]:
    """Return the devices that the options allow, best first.

    Raises:
        DeviceUnavailableError: No device is available.
    """
    return (_processor(),) if options.get("metal.stand-in", stands_in()) else found()


@cache
def found() -> tuple[Device, ...]:
    """Return all devices of this machine.

    Raises:
        DeviceUnavailableError: Metal is not installed, or has no device.
    """
    needs = ("MTLCreateSystemDefaultDevice", "MTLCopyAllDevices")
    Metal = imported("Metal", "metal", install=f"on macOS: {INSTALL}; elsewhere {INSTEAD}", needs=needs)
    default = Metal.MTLCreateSystemDefaultDevice()
    if default is None:
        raise DeviceUnavailableError("metal: macOS has no Metal device here", hint=f"on Linux, {INSTEAD}")
    others = [d for d in Metal.MTLCopyAllDevices() if d.registryID() != default.registryID()]
    return tuple(_device(number, each) for number, each in enumerate((default, *others)))


@cache
def _processor() -> Device:
    from rlx_gpu.testing.shim.dialects import METAL_DIALECT
    from rlx_gpu.testing.shim.driver import stand_in

    return stand_in(METAL_DIALECT, "metal:0")


def _device(number: int, device: Any) -> Device:
    from rlx_metal.driver import MetalDriver

    facts = facts_of(device)
    return Device(f"metal:{number}", facts, lambda: MetalDriver(device, facts, number))
