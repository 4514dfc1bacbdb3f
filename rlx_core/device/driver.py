"""The interface that a plugin implements for one device: memory, transfers, kernels, and one in-order queue.

All operations of a driver take effect in the order of the calls, as on one in-order queue, so freed memory may be reused before
the device is done with it. Buffers, modules and launches are the driver's own objects, which are opaque to other code.

A driver raises rlx's errors and no others: `OutOfMemoryError` where the device has no memory left, `KernelBuildError` where its
compiler refuses a source, `DeviceLostError` where it does not answer any more.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from rlx_core.errors import DeviceError
from rlx_core.ir.placed import At
from rlx_core.system.records import frozen

__all__ = ["Adopted", "Argument", "At", "DeviceFacts", "Driver", "View", "Whole"]


class Whole(NamedTuple):
    """A driver's whole buffer, for memory that no two values share."""

    buffer: Any


Argument: TypeAlias = At | Whole | np.generic


class Adopted(NamedTuple):
    """Location of another library's array: the offset of its first element in a buffer, which keeps that memory alive.

    Attributes:
        strides: Axis → bytes from an element to the next; `None` where it is dense.
    """

    buffer: Any
    offset: int
    strides: tuple[int, ...] | None = None


class View(NamedTuple):
    """A dense array in a driver's buffer, for export to other libraries; an importer keeps `owner` alive."""

    buffer: Any
    offset: int
    shape: tuple[int, ...]
    dtype: np.dtype
    owner: object


@frozen
class DeviceFacts:
    """Properties and limits of a device.

    Attributes:
        name: Its vendor's name for it.
        driver: Name and version of its driver; together with `name` it determines which binaries can be loaded.
        memory_nbytes: Its memory in all.
        largest_buffer: Bytes that one buffer may have.
        alignment: Bytes to which an offset into a buffer must be a multiple.
        group_size: Threads that a group may have.
        shared_nbytes: Memory that the threads of a group share.
        units: Groups that run at the same time, roughly.
        subgroup: Threads that run in step, where kernels can count on it.
        is_processor: Whether it is a processor, which runs the threads of a group after one another.
        unsupported: Names of dtypes without arithmetic on the device.
        features: Optional features that kernels use, by the names of the device's interface.
    """

    name: str
    driver: str
    memory_nbytes: int
    largest_buffer: int
    alignment: int = 256
    group_size: int = 256
    shared_nbytes: int = 32 << 10
    units: int = 1
    subgroup: int | None = None
    is_processor: bool = False
    unsupported: frozenset[str] = frozenset()
    features: frozenset[str] = frozenset()


class Driver(ABC):
    """One device. Calls may come from several threads at once, but never two at once about the same launch.

    Attributes:
        facts: The properties of the device.
    """

    facts: DeviceFacts

    # ------------------------------------------------------------------------------------ memory

    @abstractmethod
    def allocate(self, nbytes: int) -> Any:
        """Return a buffer of at least one byte, uninitialised."""

    def allocate_apart(self, nbytes: int) -> Any:
        """A buffer that kernels get as `Whole`, next to others that they get as `At`.

        It need not be other memory, but where kernels see all memory as one thing, this is another.
        """
        return self.allocate(nbytes)

    @abstractmethod
    def free(self, buffer: Any) -> None:
        """Free a buffer; work that was submitted before can still use it."""

    @abstractmethod
    def write(self, buffer: Any, offset: int, data: np.ndarray, *, waits: bool) -> None:
        """Copy a dense array to the device.

        Args:
            waits: Whether the array may be changed as soon as this returns; if not, it stays as it is until the next
                `synchronize` or `read`.
        """

    @abstractmethod
    def read(self, buffer: Any, offset: int, into: np.ndarray) -> None:
        """Copy from the device into a dense array, and wait for it."""

    @abstractmethod
    def copy(self, source: Any, source_offset: int, target: Any, target_offset: int, nbytes: int) -> None:
        """Copy bytes on the device; the ranges do not overlap."""

    @abstractmethod
    def fill(self, buffer: Any, offset: int, nbytes: int, byte: int) -> None:
        """Set bytes on the device."""

    def adopt(self, array: Any) -> Adopted | None:
        """Return the location of a device library's array if it is in this device's memory, else `None`."""
        return None

    def export(self, view: View, options: Mapping[str, Any]) -> Any:
        """A DLPack capsule of memory on the device.

        Args:
            options: The arguments that the importer passed to `__dlpack__`: the stream on which it will be read, for example.

        Raises:
            BufferError: The device's library has no such thing.
        """
        raise BufferError(f"{self.facts.driver} exports no memory by DLPack")

    attributes: frozenset[str] = frozenset()
    """Names of attributes by which other libraries recognise arrays of this kind of device; see `attribute`."""

    def attribute(self, name: str, view: View) -> Any:
        """One of the `attributes` of an array.

        Raises:
            AttributeError: This array has no such attribute.
        """
        raise AttributeError(name)

    @property
    def dlpack_device(self) -> tuple[int, int]:
        """DLPack's kind and number of the device."""
        return 12, 0  # "extension device": of no particular vendor

    # ------------------------------------------------------------------------------------ kernels

    @abstractmethod
    def build(self, source: str, binary: bytes | None = None) -> Any:
        """A module.

        Args:
            source: In the device's language.
            binary: The result of `binary_of` for this source on such a device, with such a driver; nothing is compiled then.
        """

    def binary_of(self, module: Any) -> bytes | None:
        """Return the binary from which another process can load the module; `None` if the driver has no such binaries."""
        return None

    @abstractmethod
    def launch(self, module: Any, name: str, groups: int, group_size: int, arguments: Sequence[Argument]) -> Any:
        """A launch of a function of a module, with its arguments, that can be submitted any number of times."""

    def share(self, launch: Any, nbytes: int) -> None:
        """Reserve dynamic shared memory for each group, in addition to the memory that the launched function declares.

        Raises:
            DeviceError: The device does not support it, but a package states that its kernels use it.
        """
        raise DeviceError(f"{self.facts.name}: a launch gives groups no memory, and is asked for {nbytes} bytes")

    def routine(self, function: Callable[..., None], places: Sequence[Any], arguments: Sequence[Argument]) -> Any:
        """A call of a function of the device's library, submitted and changed like a launch.

        Args:
            function: Called with the library's module and one of the library's arrays for each argument.
            places: The type and the strides of each argument, a `rlx_core.codegen.places.Place` each.
        """
        raise AssertionError(f"{self.facts.driver} has no library, and is asked for {function}")

    @abstractmethod
    def set_argument(self, launch: Any, number: int, argument: Argument) -> None:
        """Change one argument of all later submissions."""

    @abstractmethod
    def submit(self, launches: Sequence[Any]) -> None:
        """Run launches and recordings, one after the other, asynchronously."""

    can_record: bool = False
    """Whether `record` is supported; such a driver has an `address`."""

    def address(self, location: At) -> int:
        """Return a number that is unique among addresses in use at the same time; memory that was freed may get the same one
        again.
        """
        raise AssertionError(f"{self.facts.driver} records nothing")

    def record(self, launches: Sequence[Any]) -> Any | None:
        """Launches, with the arguments that they have now, as one thing to submit any number of times: a graph, a command
        buffer. `None` where submitting them one by one is as good."""
        return None

    @abstractmethod
    def timed(self, launch: Any) -> float:
        """Run one launch, wait for it, and give the seconds that it took on the device."""

    @abstractmethod
    def synchronize(self) -> None:
        """Wait for all submitted work."""
