"""Functions of the platform's libraries as CuPy has them, called like launches: on memory of rlx's, on the current stream."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from rlx_core.device.driver import Argument, At
from rlx_core.system.records import define


@define(eq=False)
class Routine:
    """A call with its arguments.

    Attributes:
        cupy: The module, which the function is given before arrays.
        places: How the elements of each argument lie.
        arguments: Where the first element of each is.
        number: The device's, as CuPy counts.
    """

    cupy: Any
    function: Callable[..., None]
    places: Sequence[Any]
    arguments: list[At]
    number: int

    @classmethod
    def of(
        cls, cupy: Any, function: Callable[..., None], places: Sequence[Any], arguments: Sequence[Argument], number: int
    ) -> Routine:
        result = cls(cupy, function, places, [], number)
        for argument in arguments:
            assert isinstance(argument, At), "a library is given memory"
            result.arguments.append(argument)
        return result

    def set(self, number: int, argument: Argument) -> None:
        assert isinstance(argument, At), "a library is given memory"
        self.arguments[number] = argument

    def run(self, stream: Any) -> None:
        self.function(
            self.cupy, *(self._array(p, locations) for p, locations in zip(self.places, self.arguments, strict=True))
        )

    def _array(self, place: Any, location: At) -> Any:
        """CuPy's array of memory whose elements lie at strides, from the lowest byte that it touches.

        Elements of a dtype that NumPy does not have are passed as unsigned integers of their bits, because not every CuPy has
        them.
        """
        type, memory = place.type, self.cupy.cuda.memory
        spans = [s * (d - 1) for d, s in zip(type.static_shape, place.strides, strict=True)] if type.size else []
        low, high = sum(s for s in spans if s < 0), sum(s for s in spans if s > 0)
        begin = location.buffer.address + location.offset + low
        owned = memory.UnownedMemory(begin, high - low + type.dtype.itemsize, location.buffer, self.number)
        dtype = type.dtype.numpy
        if dtype.kind == "V":
            dtype = np.dtype(f"u{dtype.itemsize}")
        return self.cupy.ndarray(type.static_shape, dtype, memory.MemoryPointer(owned, -low), place.strides)
