"""The parameters of a program on a device: what crosses when they are bound, and what was bound before and stays."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from attrs import field

from rlx_core.device.array import DeviceArray
from rlx_core.device.device import Device, usable
from rlx_core.emit.places import Places, Space
from rlx_core.ir.graph import Value
from rlx_core.ir.lir import Lir
from rlx_core.pipeline.select.backend import Bindings
from rlx_core.system.records import frozen

__all__ = ["Binder", "Params"]


@frozen(eq=False)
class Params:
    """One binding of the parameters.

    Attributes:
        version: Tells bindings apart.
        on_device: By space.
        on_host: Those that no run writes to, if they were given on the host or steps there read them; by the graph's values.
        given: What was bound, by name.
    """

    version: int = 0
    on_device: Mapping[Space, DeviceArray] = field(factory=dict)
    on_host: Mapping[Value, np.ndarray] = field(factory=dict)
    given: Mapping[str, Any] = field(factory=dict)


@frozen(eq=False)
class Binder:
    """How the parameters of one program are bound.

    Attributes:
        places: Where its values lie.
        needed: The spaces that have to be on the device.
        read_by_host: The roots of what steps on the host read.
    """

    lir: Lir
    device: Device
    places: Places
    needed: frozenset[Space]
    read_by_host: frozenset[Value]

    def bound(self, bindings: Bindings, before: Params) -> tuple[Params, int]:
        """The parameters with those of an earlier binding that are not given anew, and the bytes that crossed.

        Raises:
            OutOfMemoryError: The device lacks the room.
        """
        given = {**before.given, **bindings}
        made, crossed, bindings.crossed = bindings.made, bindings.crossed, 0
        on_device: dict[Space, DeviceArray] = {}
        on_host: dict[Value, np.ndarray] = {}
        for number, (name, value) in enumerate(zip(self.places.params, self.lir.graph.params, strict=True)):
            if name not in given:
                continue
            space, array, is_state = Space("param", number), given[name], value in self.lir.donated
            if is_state and array is before.given.get(name) and space in before.on_device:
                on_device[space] = before.on_device[space]  # runs have written to it; what was given is an older state
            elif isinstance(array, DeviceArray):
                on_device[space] = array
                if value in self.read_by_host and not is_state:
                    read = ("on host", name)
                    if read not in made:
                        made[read] = array.to_host()
                        crossed += array.nbytes
                    on_host[value] = made[read]
            else:
                if not is_state:
                    on_host[value] = usable(array)
                if space in self.needed:
                    put = ("on device", self.device.name, name)
                    if put not in made:
                        made[put] = self.device.put(array, f"parameter {name}")
                        crossed += array.nbytes
                    on_device[space] = made[put]
        return Params(before.version + 1, on_device, on_host, given), crossed
