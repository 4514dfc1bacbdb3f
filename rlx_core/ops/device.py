"""Devices of the Array API. A program has one, the target that it is compiled for; arrays outside are in host memory.

A traced value has no device yet: `target` denotes the device that the program will run on. Results of functions outside of a
trace are in host memory, whose device is `cpu`, as in NumPy.
"""

from __future__ import annotations

from typing import Final

from rlx_core.errors import DeviceError
from rlx_core.ir.array import HostArray
from rlx_core.ir.graph import Value, ambient_builder

TARGET: Final = "target"
HOST: Final = "cpu"


def device_here() -> str:
    """Return the device of new arrays: in a trace the program's, outside of one the host's."""
    return HOST if ambient_builder() is None else TARGET


def expect_device(function: str, device: object) -> None:
    """Require no device, or the current one.

    Raises:
        DeviceError: It is another device.
    """
    if device is not None and not (isinstance(device, str) and device == device_here()):
        raise DeviceError(
            f"{function}: arrays made here are on {device_here()!r}, not on {device!r}",
            hint="leave the device out; rlx.jit and rlx.compile take the target of the whole program",
        )


def device_of(x: Value | HostArray) -> str:
    """Return the device of an array in memory, or of a value: `target`."""
    return TARGET if isinstance(x, Value) else HOST


def to_device(x: Value, device: object) -> Value:
    """`x` itself, which is on the current device already.

    Raises:
        DeviceError: It is another device.
    """
    expect_device("to_device", device)
    return x
