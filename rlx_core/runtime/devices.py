"""The available devices, and arrays on them, by the names that users write."""

from __future__ import annotations

from typing import Any

from rlx_core.errors import DeviceError, Fact, RlxError, nearest
from rlx_core.hints.keywords import checked_call
from rlx_core.ir.apply import as_array
from rlx_core.ir.dtypes import dtype
from rlx_core.ir.placed import Placed
from rlx_core.ir.types import TensorType
from rlx_core.pipeline.compile import set_up
from rlx_core.pipeline.targets import find_target, numbered, opened
from rlx_core.plugins import PluginHost, default_host
from rlx_core.system.records import frozen


@frozen(repr=False)
class DeviceName:
    """A device that programs can be compiled for.

    Attributes:
        target: The value for `target=`: `gpu:1`.
        name: The vendor's name.
    """

    target: str
    name: str

    def __str__(self) -> str:
        return self.target

    def __repr__(self) -> str:
        return f"<{self.target}: {self.name}>"


@checked_call
def devices(target: str | None = None, *, host: PluginHost | None = None) -> list[DeviceName]:
    """The devices of a target, or of all targets that can be used here, in the order of their names.

    Raises:
        DeviceError, DeviceUnavailableError: No plugin has the requested target, or it cannot be used here.

    >>> [device.target for device in devices("cpu")]
    ['cpu:0']
    """
    plugins = host or default_host()
    if target is not None:
        name, number = numbered(target)
        listed = _of(name, plugins)
        return listed if number is None else [listed[_expected(number, listed, name)]]
    listed = []
    for name in sorted(plugins.activate_all().backends):
        try:
            listed += _of(name, plugins)
        except RlxError:  # `rlx doctor` and an explicit request by name report the missing dependency
            continue
    return listed


@checked_call
def device_put(x: Any, target: str, *, host: PluginHost | None = None) -> Any:
    """A copy of an array on a device: `rlx.device_put(x, "gpu:1")`.

    On a target in the host's memory it is a NumPy array, the same one if `x` is one already; an array that lies on the device
    is returned unchanged, and one on another device is copied through the host.

    Raises:
        DeviceError, DeviceUnavailableError: There is no such device, or it cannot be used here.
        DtypeError, OutOfMemoryError: The device does not support the dtype, or has not enough memory.
    """
    plugins, configuration = set_up(None, host)
    _, backend, _ = find_target(plugins, target)
    device = backend.target_for(configuration.options).device
    if device is None:
        return as_array(x)
    if isinstance(x, Placed) and x.place == device.name:
        return x
    placed = device.adopt(x)
    if placed is not None:
        return placed
    array = as_array(x)
    device.expect_dtype(TensorType(dtype(array.dtype), array.shape), "an array")
    return device.put(array)


def _of(name: str, host: PluginHost) -> list[DeviceName]:
    return [DeviceName(f"{name}:{i}", each) for i, each in enumerate(opened(host, name).devices())]


def _expected(number: int, listed: list[DeviceName], name: str) -> int:
    if number < len(listed):
        return number
    raise DeviceError(
        f"{name}:{number}: there {'is' if len(listed) == 1 else 'are'} {len(listed)}, counted from 0",
        *(Fact(each.target, each.name) for each in listed),
        hint=nearest(f"{name}:{number}", [each.target for each in listed]),
    )
