"""Selection between the two drivers for AMD GPUs, OpenCL and HIP.

If no option names a driver, OpenCL is used if it has a device that the options allow, because only this driver has been
executed; otherwise CuPy is used.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any, Final

from rlx_core.device.device import Device
from rlx_core.device.libraries import imported
from rlx_core.errors import ConfigError, DeviceUnavailableError, Fact
from rlx_rocm.plugin import INSTALL_OPENCL, OLDEST, STAND_IN

__all__ = ["ROADS", "by_cupy", "wanted"]

ROADS: Final = ("auto", "opencl", "cupy")
"""Values of the option `rocm.road`."""


def wanted(options: Mapping[str, Any]) -> Sequence[Device]:
    """Return the devices that the options allow, best first, all of one driver.

    Raises:
        ConfigError: `rocm.road` has an unknown value.
        DeviceUnavailableError: A library, driver or device is missing, or the options do not allow the available devices.
    """
    if by_cupy(options):
        from rlx_rocm.hip import discovery as hip

        return (hip.stand_in(),) if _is_stood_in(options) else hip.wanted(_name(options))
    if _road(options) == "opencl":
        return _by_opencl(options)
    try:
        return _by_opencl(options)
    except DeviceUnavailableError as error:
        return _by_cupy_instead(options, error)


def by_cupy(options: Mapping[str, Any]) -> bool:
    """Return whether the options select the CuPy driver or its stand-in for a GPU."""
    return _road(options) == "cupy" or _is_stood_in(options)


def _by_opencl(options: Mapping[str, Any]) -> Sequence[Device]:
    imported("pyopencl", "rocm", install=INSTALL_OPENCL, needs=("Error", "get_platforms"), oldest=OLDEST)
    from rlx_rocm.opencl import discovery as opencl

    return opencl.wanted(options)


def _by_cupy_instead(options: Mapping[str, Any], reason: DeviceUnavailableError) -> Sequence[Device]:
    """Return CuPy's devices; if it has no devices either, raise an error with the reasons of OpenCL and then of CuPy."""
    from rlx_rocm.hip import discovery as hip

    try:
        return hip.wanted(_name(options))
    except DeviceUnavailableError as error:
        raise DeviceUnavailableError(
            reason.message, *reason.facts, Fact("by CuPy", error.message.removeprefix("rocm: ")), hint=reason.hint
        ) from None


def _road(options: Mapping[str, Any]) -> str:
    road = str(options.get("rocm.road", os.environ.get("RLX_ROCM_ROAD", "auto")))
    if road not in ROADS:
        raise ConfigError(f"rocm.road: {road!r} is none of {', '.join(ROADS)}")
    return road


def _name(options: Mapping[str, Any]) -> str:
    return str(options.get("rocm.device", os.environ.get("RLX_ROCM_DEVICE", ""))).lower()


def _is_stood_in(options: Mapping[str, Any]) -> bool:
    return bool(options.get("rocm.stand-in", os.environ.get(STAND_IN, "") in ("1", "true")))
