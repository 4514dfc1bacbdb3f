"""The interface between the executor and the memory of a program's values, and the host's memory.

Arrays of a memory are NumPy's on the host and `DeviceArray`s on a device. The host's memory is read and written where it lies;
a device's through copies.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple, TypeVar

import numpy as np

from rlx_core.errors import Fact, OutOfMemoryError
from rlx_core.ir.array import usable
from rlx_core.ir.placed import At
from rlx_core.ir.strides import Strides, dense_strides
from rlx_core.ir.types import TensorType
from rlx_core.run.plan import BufferId, ExecutionPlan, Location, PlanLeaf

if TYPE_CHECKING:
    from rlx_core.pipeline.backend import Params
    from rlx_core.run.frames import Frame, Frames

POISON: Final = 0xFF
"""The byte of memory that no step may read: all ones is NaN in f16, bf16, f32 and f64, and -1 in integers."""

CANARY: Final = 128
"""Bytes of poison between slots, at least, around results on the host, and behind scratch memory."""

T = TypeVar("T")
R = TypeVar("R")


class Allocation(NamedTuple):
    """Memory at an address, which `owner` keeps."""

    at: At
    owner: object = None


class ProgramMemory(ABC):
    """The memory of one device, as one program uses it.

    Attributes:
        name: For error messages.
        is_host: Whether it is the host's, whose arrays the host reads and writes in place.
        margin: Bytes of poison on either side of each result; 0 outside of poison mode.
    """

    name: str
    is_host: ClassVar[bool] = False
    margin: int = 0

    @abstractmethod
    def arena(self, nbytes: int, alignment: int) -> Allocation:
        """Uninitialised bytes of a frame.

        Raises:
            OutOfMemoryError: There is not that much memory.
        """

    @abstractmethod
    def place_constants(self, plan: ExecutionPlan, used: Collection[int]) -> dict[int, Allocation]:
        """A plan's constants by number; on a device only the `used` ones are copied there."""

    @abstractmethod
    def bind(
        self, leaf: PlanLeaf, params: Params, *, is_used: bool, is_read: bool
    ) -> tuple[Any | None, np.ndarray | None]:
        """Bind a parameter; the array in this memory, and the array on the host if no run writes to it.

        Copies are kept in `params`, which also counts their bytes.

        Args:
            is_used: Whether code reads it in this memory. On the host an array that is packed, and not read otherwise, may have
                strides; on a device it is not copied there.
            is_read: Whether steps on the host read it.

        Raises:
            OutOfMemoryError: There is not that much memory.
        """

    @abstractmethod
    def at(self, array: Any) -> At | None:
        """The address of an array that lies in this memory; `None` for an array of another memory."""

    @abstractmethod
    def result(self, type: TensorType) -> Any:
        """An uninitialised array for the caller.

        Raises:
            OutOfMemoryError: There is not that much memory.
        """

    @abstractmethod
    def margins(self, array: Any) -> tuple[np.ndarray, np.ndarray]:
        """The bytes before and after an array that `result` gave, in poison mode."""

    @abstractmethod
    def part(self, array: Any, offset: int, type: TensorType, strides: Strides, run: Any) -> Any:
        """An array of the caller's that shares the memory of one that `result` gave; `run` is the run that computes it."""

    @abstractmethod
    def copy_to(self, source: At, type: TensorType, strides: Strides, target: At) -> None:
        """Copy the elements of a value to where they lie densely."""

    @abstractmethod
    def fill(self, address: At, nbytes: int, byte: int) -> None:
        """Set bytes."""

    @abstractmethod
    def read(self, address: At, type: TensorType, strides: Strides) -> np.ndarray:
        """The elements of a value as an array on the host: in place in the host's memory, else a copy."""

    @abstractmethod
    def write(self, address: At, array: np.ndarray, *, waits: bool = True) -> None:
        """Copy a dense array of the host into this memory.

        Args:
            waits: Whether the array may change as soon as this returns; if not, it must stay as it is until `synchronize`.
        """

    def synchronize(self) -> None:
        """Wait for everything that was submitted."""
        return

    @abstractmethod
    def operand(self, frame: Frame, location: Location, type: TensorType) -> Any:
        """A value of a frame as an array of this memory, for a nested program: in place in the host's memory, else a copy."""

    def carried(self, arrays: Sequence[Any]) -> Sequence[Any]:
        """Operands as the first values that a loop carries, which its body may overwrite."""
        return arrays

    @abstractmethod
    def element(self, array: Any, index: int) -> Any:
        """An element of an array along the first axis."""

    @abstractmethod
    def store(self, array: Any, address: At) -> None:
        """Copy an array of this memory to an address."""

    def staged(self, frame: Frame, plan: ExecutionPlan, buffer: BufferId) -> At:
        """The address of a frame's memory for an input or a result whose array lies in another memory.

        Raises:
            OutOfMemoryError: There is not that much memory.
        """
        raise AssertionError(f"{self.name}: every array lies in this memory")

    def register(self, frames: Frames) -> None:
        """Free idle frames when memory is short."""
        return

    @abstractmethod
    def accept(self, inputs: Sequence[Any], donated: Sequence[int], params: Collection[Any]) -> Sequence[Any]:
        """The inputs of a run as code can use them.

        Args:
            inputs: The arrays that the caller gave.
            donated: The numbers of the inputs that the run may overwrite.
            params: The parameters in this memory; a donated input that shares memory with one, or with another input, is copied.
        """

    def in_turn(self, begin: Callable[[], T], finish: Callable[[T], R]) -> R:
        """`finish(begin())`. A memory that several programs share may call `begin` again once other runs are done.

        Raises:
            OutOfMemoryError: `begin` raised it the last time too. What `finish` raises is not caught.
        """
        return finish(begin())


class HostMemory(ProgramMemory):
    """The host's memory. Addresses are NumPy arrays, with bytes from their first element."""

    is_host = True

    def __init__(self, name: str, margin: int = 0) -> None:
        self.name, self.margin = name, margin

    def arena(self, nbytes: int, alignment: int) -> Allocation:
        return Allocation(At(allocate(nbytes, alignment, self.name), 0))

    def place_constants(self, plan: ExecutionPlan, used: Collection[int]) -> dict[int, Allocation]:
        return {number: Allocation(At(array, 0)) for number, array in enumerate(plan.constants)}

    def bind(self, leaf: PlanLeaf, params: Params, *, is_used: bool, is_read: bool) -> tuple[np.ndarray, None]:
        array = params[leaf.name]
        if not (is_used or is_read) or leaf.name in params.on_host:
            return params.on_host.get(leaf.name, array), None
        dense = usable(params.use(leaf.name))
        if dense is not array and not leaf.is_donated:
            params.on_host[leaf.name] = dense
            from rlx_core.ir.mapped_pages import free_mapped_pages  # here, because few parameters have strides

            free_mapped_pages(array)
        return dense, None

    def at(self, array: np.ndarray) -> At:
        return At(array, 0)

    def result(self, type: TensorType) -> np.ndarray:
        shape, dtype = type.static_shape, type.dtype.numpy
        if not self.margin:
            return empty(shape, dtype, "an output", self.name)
        nbytes = type.static_nbytes
        buffer = empty((nbytes + 2 * self.margin,), np.dtype(np.uint8), "an output", self.name)
        buffer.fill(POISON)
        return buffer[self.margin : self.margin + nbytes].view(dtype).reshape(shape)

    def margins(self, array: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        buffer = array.base
        assert buffer is not None, "results lie between margins"
        return buffer[: self.margin], buffer[-self.margin :]

    def accept(
        self, inputs: Sequence[np.ndarray], donated: Sequence[int], params: Collection[np.ndarray]
    ) -> Sequence[np.ndarray]:
        return [usable(array) for array in inputs]  # callers have copied donated arrays that share memory

    def part(self, array: np.ndarray, offset: int, type: TensorType, strides: Strides, run: None) -> np.ndarray:
        return self.read(At(array, offset), type, strides)

    def copy_to(self, source: At, type: TensorType, strides: Strides, target: At) -> None:
        np.copyto(self.read(target, type, dense_strides(type)), self.read(source, type, strides))

    def operand(self, frame: Frame, location: Location, type: TensorType) -> np.ndarray:
        return frame.array(location, type)

    def carried(self, arrays: Sequence[np.ndarray]) -> Sequence[np.ndarray]:
        return [np.array(array) for array in arrays]

    def element(self, array: np.ndarray, index: int) -> np.ndarray:
        element: np.ndarray = array[index, ...]
        return element

    def store(self, array: np.ndarray, address: At) -> None:
        self.write(address, usable(array))

    def fill(self, address: At, nbytes: int, byte: int) -> None:
        bytes_of(address.buffer)[address.offset : address.offset + nbytes] = byte

    def read(self, address: At, type: TensorType, strides: Strides) -> np.ndarray:
        array, shape, dtype = address.buffer, type.static_shape, type.dtype.numpy
        if array.shape == shape and array.dtype == dtype and address.offset == 0 and strides == dense_strides(type):
            return array
        return strided(bytes_of(usable(array)), address.offset, shape, dtype, strides)

    def write(self, address: At, array: np.ndarray, *, waits: bool = True) -> None:
        bytes_of(address.buffer)[address.offset : address.offset + array.nbytes] = bytes_of(array)


def allocate(nbytes: int, alignment: int, name: str = "cpu") -> np.ndarray:
    """`nbytes` uninitialised bytes whose address is a multiple of `alignment`.

    Raises:
        OutOfMemoryError: The machine does not have that much.
    """
    raw = empty((nbytes + alignment,), np.dtype(np.uint8), "an arena", name)
    start = -address_of(raw) % alignment
    return raw[start : start + nbytes]


def empty(shape: tuple[int, ...], dtype: np.dtype, purpose: str, name: str = "cpu") -> np.ndarray:
    """An uninitialised array.

    Raises:
        OutOfMemoryError: The machine does not have that much.
    """
    try:
        return np.empty(shape, dtype)
    except (MemoryError, ValueError) as error:
        raise OutOfMemoryError(
            f"{name}: {purpose} of {math.prod(shape) * dtype.itemsize} bytes cannot be allocated",
            Fact("cause", error),
            hint="bind smaller sizes, or free memory",
        ) from None


def bytes_of(array: np.ndarray) -> np.ndarray:
    """The bytes of a dense array."""
    return array.reshape(-1).view(np.uint8)


def address_of(array: np.ndarray) -> int:
    """The address of an array's first element."""
    address: int = array.__array_interface__["data"][0]
    return address


def strided(
    raw: np.ndarray, offset: int, shape: tuple[int, ...], dtype: np.dtype[Any], strides: tuple[int, ...]
) -> np.ndarray:
    """The array of these strides whose first element is at a byte of `raw`, a dense array of bytes."""
    if 0 in shape:
        return np.empty(shape, dtype)
    return np.ndarray(shape, dtype, raw, offset, strides)
