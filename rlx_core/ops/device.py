"""What the Array API calls a device. A program has one, the target that it is compiled for; arrays outside lie in memory.

A traced value belongs to no device yet: `target` stands for wherever the program will run. What functions return outside of
a trace lies in the host's memory, whose device is `cpu`, as NumPy calls it.
"""

from __future__ import annotations

from typing import Final

from rlx_core.errors import DeviceError
from rlx_core.ir.array import HostArray
from rlx_core.ir.graph import Value, ambient_builder

__all__ = ["HOST", "TARGET", "device_here", "device_of", "expect_device", "to_device"]

TARGET: Final = "target"
HOST: Final = "cpu"


def device_here() -> str:
    """The device of arrays that are made here: in a trace the program's, outside of one the host's."""
    return HOST if ambient_builder() is None else TARGET


def expect_device(function: str, device: object) -> None:
    """Require no device, or the only one there is.

    Raises:
        DeviceError: It is another one.
    """
    if device is not None and not (isinstance(device, str) and device == device_here()):
        raise DeviceError(
            f"{function}: arrays made here are on {device_here()!r}, not on {device!r}",
            hint="leave the device out; rlx.jit and rlx.compile take the target of the whole program",
        )


def device_of(x: Value | HostArray) -> str:
    """The device of an array in memory, or of a value: wherever its program will run."""
    return TARGET if isinstance(x, Value) else HOST


def to_device(x: Value, device: object) -> Value:
    """`x` itself, which is on the only device there is.

    Raises:
        DeviceError: It is another one.
    """
    expect_device("to_device", device)
    return x
