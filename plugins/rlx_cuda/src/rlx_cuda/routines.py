"""Functions of CUDA's libraries as CuPy has them, called like launches: on memory of rlx's, on the stream that is current."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import cupy
from attrs import define
from cupy.cuda import memory

from rlx_core.codegen.places import Place
from rlx_core.device.driver import Argument, At

__all__ = ["Routine"]


@define(eq=False)
class Routine:
    """A call with its arguments.

    Attributes:
        places: How the elements of each argument lie.
        arguments: Where the first element of each is; the last one is written.
        number: CUDA's, of the device.
    """

    name: str
    places: Sequence[Place]
    arguments: list[At]
    number: int

    @classmethod
    def of(cls, name: str, places: Sequence[Place], arguments: Sequence[Argument], number: int) -> Routine:
        made = cls(name, places, [], number)
        for argument in arguments:
            assert isinstance(argument, At), "a library is given memory"
            made.arguments.append(argument)
        return made

    def set(self, number: int, argument: Argument) -> None:
        assert isinstance(argument, At), "a library is given memory"
        self.arguments[number] = argument

    def run(self, stream: Any) -> None:
        *operands, result = (self._array(p, at) for p, at in zip(self.places, self.arguments, strict=True))
        ROUTINES[self.name](*operands, result)

    def _array(self, place: Place, at: At) -> Any:
        """CuPy's array of memory whose elements lie at strides, from the lowest byte that it touches."""
        type = place.type
        spans = [s * (d - 1) for d, s in zip(type.static_shape, place.strides, strict=True)] if type.size else []
        low, high = sum(s for s in spans if s < 0), sum(s for s in spans if s > 0)
        begin = at.buffer.address + at.offset + low
        owned = memory.UnownedMemory(begin, high - low + type.dtype.itemsize, at.buffer, self.number)
        return cupy.ndarray(type.static_shape, type.dtype.numpy, memory.MemoryPointer(owned, -low), place.strides)


def product(a: Any, b: Any, into: Any) -> None:
    """The product of two matrices, or of stacks that broadcast."""
    cupy.matmul(a, b, out=into)


def solution(a: Any, b: Any, into: Any) -> None:
    """The solutions of systems. Where a pivot is 0 the library divides by it, and nobody waits to be told: what is not finite is
    a singular system, all of whose unknowns are NaN."""
    columns = b if b.ndim == a.ndim else b[..., None]
    x = cupy.linalg.solve(a, columns)
    is_regular = cupy.isfinite(x).all(axis=(-2, -1), keepdims=True)
    cupy.copyto(into, cupy.where(is_regular, x, cupy.nan).reshape(into.shape).astype(into.dtype, copy=False))


ROUTINES: Final[Mapping[str, Callable[..., None]]] = {"matmul": product, "solve": solution}
"""By the name that rows of the kernel table use."""
