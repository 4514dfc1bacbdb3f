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

DRIVERS: Final = ("auto", "opencl", "cupy")
"""Values of the option `rocm.driver`."""


def wanted(options: Mapping[str, Any]) -> Sequence[Device]:
    """Return the devices that the options allow, best first, all of one driver.

    Raises:
        ConfigError: `rocm.driver` has an unknown value, or `RLX_ROCM_ROAD`, its earlier name, is set.
        DeviceUnavailableError: A library, driver or device is missing, or the options do not allow the available devices.
    """
    if by_cupy(options):
        from rlx_rocm.hip import discovery as hip

        return (hip.stand_in(),) if _is_stood_in(options) else hip.wanted(_name(options))
    if _driver(options) == "opencl":
        return _by_opencl(options)
    try:
        return _by_opencl(options)
    except DeviceUnavailableError as error:
        return _by_cupy_instead(options, error)


def by_cupy(options: Mapping[str, Any]) -> bool:
    """Return whether the options select the CuPy driver or its stand-in for a GPU."""
    return _driver(options) == "cupy" or _is_stood_in(options)


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


def _driver(options: Mapping[str, Any]) -> str:
    if "RLX_ROCM_ROAD" in os.environ:
        raise ConfigError("RLX_ROCM_ROAD was renamed", hint=f"RLX_ROCM_DRIVER={os.environ['RLX_ROCM_ROAD']}")
    driver = str(options.get("rocm.driver", os.environ.get("RLX_ROCM_DRIVER", "auto")))
    if driver not in DRIVERS:
        raise ConfigError(f"rocm.driver: {driver!r} is none of {', '.join(DRIVERS)}")
    return driver


def _name(options: Mapping[str, Any]) -> str:
    return str(options.get("rocm.device", os.environ.get("RLX_ROCM_DEVICE", ""))).lower()


def _is_stood_in(options: Mapping[str, Any]) -> bool:
    return bool(options.get("rocm.stand-in", os.environ.get(STAND_IN, "") in ("1", "true")))
