"""The two roads to AMD's GPUs, by OpenCL and by HIP, and which of them a program takes.

Where no option names a road, OpenCL's is taken if it has a device that options allow, because it is the one which has been
executed, and else CuPy's.
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
"""What `rocm.road` may say."""


def wanted(options: Mapping[str, Any]) -> Sequence[Device]:
    """The devices that options allow, best first, all of one road.

    Raises:
        ConfigError: There is no such road.
        DeviceUnavailableError: There is no library, driver or device on it, or those that there are have to be allowed.
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
    """Whether options name CuPy's road, or what stands in for a GPU on it."""
    return _road(options) == "cupy" or _is_stood_in(options)


def _by_opencl(options: Mapping[str, Any]) -> Sequence[Device]:
    imported("pyopencl", "rocm", install=INSTALL_OPENCL, needs=("Error", "get_platforms"), oldest=OLDEST)
    from rlx_rocm.opencl import discovery as opencl

    return opencl.wanted(options)


def _by_cupy_instead(options: Mapping[str, Any], reason: DeviceUnavailableError) -> Sequence[Device]:
    """CuPy's devices; where it has none either, why OpenCL has none, and then why CuPy has none."""
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
