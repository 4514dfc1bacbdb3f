"""Enumeration of AMD GPUs through CuPy, under HIP's numbers; `HIP_VISIBLE_DEVICES` selects the devices visible to HIP."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, Final

from attrs import frozen

from rlx_core.device.device import Device
from rlx_core.device.driver import DeviceFacts
from rlx_core.device.libraries import imported
from rlx_core.errors import DeviceUnavailableError, Fact
from rlx_gpu.cupy.facts import facts_of
from rlx_rocm.hip import hiprtc
from rlx_rocm.plugin import INSTALL_CUPY

FEATURE: Final = "hip"
"""The feature that distinguishes devices of the HIP driver from those of the OpenCL driver."""

USUAL: Final = DeviceFacts(
    name="an AMD GPU",
    driver="none",
    memory_nbytes=16 << 30,
    largest_buffer=16 << 30,
    group_size=1024,
    shared_nbytes=64 << 10,
    subgroup=32,
    unsupported=frozenset(("c64", "c128")),
    features=frozenset((FEATURE,)),
)
"""The minimum properties of recent AMD GPUs; the two halves of a wavefront of 64 threads also run in lockstep."""


@frozen(eq=False)
class Found:
    """A GPU and its properties."""

    number: int
    architecture: str
    facts: DeviceFacts


def wanted(name: str) -> Sequence[Device]:
    """Return the devices whose name or architecture contains `name`, in HIP's order.

    Raises:
        DeviceUnavailableError: CuPy, a driver or a device is missing, or no device has that name.
    """
    every = found()
    chosen = [each for each in every if name in f"{each.facts.name} {each.architecture}".lower()]
    if not chosen:
        facts = (Fact(f"device {each.number}", each.facts.name) for each in every)
        raise DeviceUnavailableError(f"rocm: CuPy sees no device that is called {name!r}", *facts)
    return tuple(_device(number, each) for number, each in enumerate(chosen))


@cache
def stand_in() -> Device:
    """Return the host CPU as a device that runs HIP compiled as C++.

    Raises:
        DeviceUnavailableError: No C++ compiler is installed.
    """
    from rlx_gpu.testing.shim.dialects import HIP_DIALECT
    from rlx_gpu.testing.shim.driver import stand_in as made

    return made(HIP_DIALECT, "rocm:0", features=frozenset((FEATURE,)))


@cache
def found() -> tuple[Found, ...]:
    """Return all HIP devices.

    Raises:
        DeviceUnavailableError: CuPy is missing or built for CUDA, or HIP has no device.
    """
    cupy = imported("cupy", "rocm", install=INSTALL_CUPY, needs=("cuda",))
    runtime = cupy.cuda.runtime
    if not runtime.is_hip:
        raise DeviceUnavailableError("rocm: the installed CuPy is built on CUDA", hint=INSTALL_CUPY)
    try:
        every = [runtime.getDeviceProperties(number) for number in range(runtime.getDeviceCount())]
    except runtime.CUDARuntimeError as error:
        raise DeviceUnavailableError(
            "rocm: HIP has no device", Fact("driver", error), hint="look at rocminfo"
        ) from None
    return tuple(_described(cupy, number, each) for number, each in enumerate(every))


def _described(cupy: Any, number: int, properties: Mapping[str, Any]) -> Found:
    architecture = properties["gcnArchName"].decode()
    version = int(cupy.cuda.runtime.driverGetVersion())
    driver = f"{version // 10_000_000}.{version // 100_000 % 100}"
    name = properties["name"].decode() or architecture
    driver_text = f"HIP {driver}, CuPy {cupy.__version__}, HIPRTC {hiprtc.HIPRTC.version}, {architecture}"
    return Found(number, architecture, facts_of(properties, name=name, driver=driver_text, feature=FEATURE))


@cache
def _device(number: int, each: Found) -> Device:
    """Return the `Device` of a GPU under a device number."""
    import cupy

    from rlx_rocm.hip.driver import HipDriver

    place = f"rocm:{number}"
    return Device(place, each.facts, lambda: HipDriver(cupy, each.facts, place, each.number, each.architecture))
