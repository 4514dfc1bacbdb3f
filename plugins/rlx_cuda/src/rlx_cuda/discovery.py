"""Enumeration of NVIDIA GPUs under CUDA's numbers; `CUDA_VISIBLE_DEVICES` selects the devices that are visible to CUDA."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, Final

from attrs import evolve, frozen

from rlx_core.device.device import Device
from rlx_core.device.driver import DeviceFacts
from rlx_core.device.libraries import imported
from rlx_core.errors import DeviceUnavailableError, Fact
from rlx_cuda import nvrtc
from rlx_cuda.library import FEATURE
from rlx_cuda.plugin import INSTALL, STAND_IN
from rlx_gpu.cupy.facts import facts_of

OLDEST: Final = 75
"""The minimum supported compute capability, times 10; below 8.0 products use no matrix units."""


@frozen(eq=False)
class Found:
    """A GPU and its properties."""

    number: int
    architecture: str
    facts: DeviceFacts


def wanted(options: Mapping[str, Any]) -> Sequence[Device]:
    """Return the devices that the options allow, in CUDA's order.

    Raises:
        DeviceUnavailableError: CuPy, a driver or a device (of the requested name) is missing, or a C++ compiler for the stand-in.
    """
    if options.get("cuda.stand-in", os.environ.get(STAND_IN, "") in ("1", "true")):
        return (stand_in(),)
    every = found()
    name = str(options.get("cuda.device", os.environ.get("RLX_CUDA_DEVICE", ""))).lower()
    chosen = tuple(each for each in every if name in each.facts.name.lower())
    if not chosen:
        facts = (Fact(f"device {each.number}", each.facts.name) for each in every)
        raise DeviceUnavailableError(f"cuda: no device is called {name!r}", *facts)
    return tuple(_device(number, each) for number, each in enumerate(chosen))


@cache
def stand_in() -> Device:
    """Return the host CPU as a device that runs CUDA C compiled as C++.

    Raises:
        DeviceUnavailableError: No C++ compiler is installed.
    """
    from rlx_gpu.testing.shim.dialects import CUDA_DIALECT
    from rlx_gpu.testing.shim.driver import stand_in as made

    return made(CUDA_DIALECT, "cuda:0", features=frozenset((nvrtc.AMPERE, nvrtc.HOPPER)))


@cache
def found() -> tuple[Found, ...]:
    """Return all supported devices.

    Raises:
        DeviceUnavailableError: CuPy or a driver is missing, the driver is too old for CuPy, or no device is supported.
    """
    runtime = imported("cupy", "cuda", install=INSTALL, needs=("cuda",)).cuda.runtime
    if runtime.is_hip:
        raise DeviceUnavailableError("cuda: the installed CuPy is built on ROCm", hint=f"pip uninstall it; {INSTALL}")
    try:
        count = runtime.getDeviceCount()
        every = [runtime.getDeviceProperties(number) for number in range(count)]
    except runtime.CUDARuntimeError as error:
        raise _unavailable(runtime, error) from None
    known = [_described(number, each) for number, each in enumerate(every) if _capability(each) >= OLDEST]
    if not known:
        facts = (Fact(each["name"].decode(), f"sm_{_capability(each)}") for each in every)
        raise DeviceUnavailableError(f"cuda: there is no GPU of compute capability {OLDEST / 10} or newer", *facts)
    return tuple(known)


def _unavailable(runtime: Any, error: Exception) -> DeviceUnavailableError:
    """Return the error that explains why CUDA does not start; the driver's version is 0 if no driver is installed."""
    has, needs = runtime.driverGetVersion(), runtime.runtimeGetVersion()
    fact = Fact("driver", error)
    if has == 0:
        return DeviceUnavailableError("cuda: there is no driver of NVIDIA's", fact, hint="install it: 580 or newer")
    if has // 1000 < needs // 1000:
        return DeviceUnavailableError(
            f"cuda: the driver is for CUDA {_spelled(has)}, and the installed CuPy for {_spelled(needs)}",
            fact,
            hint='update the driver (580 or newer), or: pip uninstall cupy-cuda13x; pip install "cupy-cuda12x[ctk]"',
        )
    return DeviceUnavailableError("cuda: the driver has no device", fact, hint="look at nvidia-smi")


def _spelled(version: int) -> str:
    """Return the text of one of CUDA's version numbers: `13.2` for 13020."""
    return f"{version // 1000}.{version % 1000 // 10}"


def _capability(properties: Mapping[str, Any]) -> int:
    return 10 * int(properties["major"]) + int(properties["minor"])


def _described(number: int, properties: Mapping[str, Any]) -> Found:
    from cupy import __version__ as cupy_version
    from cupy.cuda import runtime

    capability = _capability(properties)
    architecture = nvrtc.architecture_for(capability)
    driver = _spelled(runtime.driverGetVersion())
    name = properties["name"].decode()
    driver_text = f"CUDA {driver}, CuPy {cupy_version}, NVRTC {nvrtc.version()}, {architecture}"
    facts = facts_of(properties, name=name, driver=driver_text, feature=FEATURE)
    native_architecture = (
        nvrtc.HOPPER if capability == 90 else f"sm_{capability}"
    )  # independent of what NVRTC compiles for
    return Found(number, architecture, evolve(facts, features=facts.features | nvrtc.units_of(native_architecture)))


@cache
def _device(number: int, each: Found) -> Device:
    """Return the `Device` of a GPU under a device number."""
    from rlx_cuda.driver import CudaDriver

    place = f"cuda:{number}"
    return Device(place, each.facts, lambda: CudaDriver(each.facts, place, each.number, each.architecture))
