"""Enumeration of WebGPU adapters in the order of preference: discrete GPUs, other GPUs, and CPUs if they are allowed.

OpenGL adapters are ignored: they are the same devices again, with fewer features.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, Final

import wgpu
from attrs import frozen

from rlx_core.device.device import Device
from rlx_core.device.driver import DeviceFacts
from rlx_core.errors import DeviceUnavailableError, Fact
from rlx_wgpu.limits import FEATURES, UNSUPPORTED, limits_of

_RANKS: Final = {"DiscreteGPU": 0, "IntegratedGPU": 1, "CPU": 3}
"""The rank of each adapter type; all other types rank just before CPUs."""


@frozen(eq=False)
class Found:
    """A WebGPU adapter and its properties."""

    adapter: wgpu.GPUAdapter
    facts: DeviceFacts
    rank: int

    @property
    def is_cpu(self) -> bool:
        return self.rank == _RANKS["CPU"]

    @property
    def words(self) -> str:
        """The text that `wgpu.device` is matched against."""
        return f"{self.facts.name} {self.facts.driver}".lower()


def wanted(options: Mapping[str, Any]) -> Sequence[Device]:
    """Return the devices that the options allow, best first.

    Raises:
        DeviceUnavailableError: There is no driver or no adapter, or only adapters that the options do not allow.
    """
    every = found()
    name = str(options.get("wgpu.device", os.environ.get("RLX_WGPU_DEVICE", ""))).lower()
    allowed = options.get("wgpu.allow-cpu", os.environ.get("RLX_WGPU_ALLOW_CPU", "") in ("1", "true"))
    chosen = tuple(each for each in every if (name in each.words if name else allowed or not each.is_cpu))
    if chosen:
        return tuple(_device(number, each) for number, each in enumerate(chosen))
    facts = [Fact(each.facts.name, each.facts.driver) for each in every]
    if name:
        raise DeviceUnavailableError(f"wgpu: no adapter is called {name!r}", *facts)
    raise DeviceUnavailableError(
        "wgpu: there is no GPU, and the adapters that there are are processors" if every else NOTHING,
        *facts,
        hint="to use one: RLX_WGPU_ALLOW_CPU=1, or the option wgpu.allow-cpu = true" if every else INSTALL,
    )


NOTHING = "wgpu: no driver has an adapter here"
INSTALL = "install the GPU's Vulkan driver, or for this machine's processor: apt-get install mesa-vulkan-drivers"


@cache
def found() -> tuple[Found, ...]:
    """Return all adapters of all drivers, best first.

    Raises:
        DeviceUnavailableError: wgpu's library cannot enumerate adapters.
    """
    try:
        adapters = wgpu.gpu.enumerate_adapters_sync()
    except (wgpu.GPUError, RuntimeError, OSError) as error:
        raise DeviceUnavailableError(NOTHING, Fact("wgpu", error), hint=INSTALL) from None
    known = [each for each in adapters if each.info["backend_type"] != "OpenGL"]
    return tuple(sorted(map(_described, known), key=lambda each: each.rank))


@cache
def _device(number: int, each: Found) -> Device:
    """Return the `Device` of an adapter under a device number."""
    from rlx_wgpu.driver import WgpuDriver

    return Device(f"wgpu:{number}", each.facts, lambda: WgpuDriver(each.adapter, each.facts, number))


def _described(adapter: wgpu.GPUAdapter) -> Found:
    info, limits = adapter.info, limits_of(adapter)
    facts = DeviceFacts(
        name=str(info["device"]).strip(),
        driver=f"{info['backend_type']} {str(info['description']).strip()}, wgpu {wgpu.__version__}",
        memory_nbytes=limits.memory_nbytes,
        largest_buffer=limits.memory_nbytes,
        group_size=limits.group_size,
        shared_nbytes=limits.shared_nbytes,
        unsupported=UNSUPPORTED,
        features=frozenset(FEATURES) & adapter.features,
    )
    return Found(adapter, facts, _RANKS.get(info["adapter_type"], 2))
