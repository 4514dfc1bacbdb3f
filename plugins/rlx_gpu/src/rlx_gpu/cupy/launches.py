"""Work submitted to a device: a kernel with its arguments, or several of them recorded as one graph."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from rlx_core.device.driver import Argument, At, Whole
from rlx_core.system.records import define, frozen

MIN_LAUNCHES: Final = 3
"""Minimum number of launches for which a graph pays: its launch costs the host as much as two kernel launches."""


@define(eq=False)
class CupyLaunch:
    """A kernel with its arguments, laid out as the driver reads them, so that a submission packs nothing.

    Attributes:
        launch: The driver's own call, `driver.launchKernel` of CuPy.
        module: Keeps the function loaded.
        function: The driver's handle.
        slots: An argument each, in its first bytes.
        table: The address of each slot.
        dynamic_nbytes: Dynamic shared memory of a group, in addition to the memory that the function declares.
    """

    launch: Any
    module: Any
    function: int
    groups: int
    size: int
    slots: np.ndarray
    table: np.ndarray
    address: int
    dynamic_nbytes: int = 0

    @classmethod
    def of(
        cls, launch: Any, module: Any, name: str, groups: int, size: int, arguments: Sequence[Argument]
    ) -> CupyLaunch:
        slots = np.zeros(max(len(arguments), 1), np.uint64)
        table = slots.__array_interface__["data"][0] + 8 * np.arange(slots.size, dtype=np.uint64)
        function = module.get_function(name).ptr
        result = cls(launch, module, function, groups, size, slots, table, table.__array_interface__["data"][0])
        for number, argument in enumerate(arguments):
            result.set(number, argument)
        return result

    def set(self, number: int, argument: Argument) -> None:
        if isinstance(argument, At):
            self.slots[number] = argument.buffer.address + argument.offset
        elif isinstance(argument, Whole):
            self.slots[number] = argument.buffer.address
        else:
            self.slots[number : number + 1].view(np.uint8)[: argument.nbytes] = np.frombuffer(
                argument.tobytes(), np.uint8
            )

    def run(self, stream: Any) -> None:
        nbytes = self.dynamic_nbytes
        self.launch(self.function, self.groups, 1, 1, self.size, 1, 1, nbytes, stream.ptr, self.address, 0)


@frozen(eq=False)
class Recording:
    """A graph of launches with their arguments at the time of recording; afterwards it needs only the modules of those launches.

    Attributes:
        graph: CuPy's.
        launches: Keeps functions loaded.
    """

    graph: Any
    launches: tuple[object, ...]

    def run(self, stream: Any) -> None:
        self.graph.launch(stream)
