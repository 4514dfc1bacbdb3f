"""A GPU through CuPy: its memory pool, its current stream, and launches by the driver's own call.

CuPy packs the arguments of a launch every time; here they stay packed, and only those that change between runs are updated.
"""

from __future__ import annotations

import ctypes
from abc import abstractmethod
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Final, TypeAlias

import numpy as np

from rlx_core.device.driver import Adopted, Argument, At, DeviceFacts, Driver, View
from rlx_core.errors import Fact, KernelBuildError, PlaceError
from rlx_core.system.records import define
from rlx_gpu.cupy.launches import MIN_LAUNCHES, CupyLaunch, Recording
from rlx_gpu.cupy.queue import Queue
from rlx_gpu.cupy.routines import Routine

Submitted: TypeAlias = CupyLaunch | Routine | Recording
"""Work that can be submitted to a stream."""

STAGED: Final = 4 << 20
"""Maximum bytes of a mutable array that is copied to page-locked memory instead of waiting for the transfer."""

INTERFACE: Final = "__cuda_array_interface__"
"""Name of the attribute that describes arrays on CUDA devices; CuPy's own arrays do not have it where it is built on HIP."""


@define(eq=False)
class CupyBuffer:
    """Memory on the device.

    Attributes:
        address: Where it begins.
        owner: The object that keeps it alive: CuPy's pointer, or another library's array; `None` once the buffer was freed.
        stream: The stream whose free blocks it joins when freed; `None` for another library's memory.
    """

    address: int
    owner: Any
    stream: Any = None


@define(eq=False)
class Module:
    """A loaded module with the binary that it was loaded from."""

    loaded: Any
    binary: bytes


class CupyDriver(Driver):
    """The driver of a device through CuPy; a plugin passes in the platform that CuPy is built on.

    Args:
        cupy: The module.
        number: The device's, as CuPy counts.

    Attributes:
        platform: The platform that CuPy is built on, for errors.
        kinds: DLPack's numbers for memory that its devices read, their own first.
    """

    platform: ClassVar[str]
    kinds: ClassVar[tuple[int, ...]]

    def __init__(self, cupy: Any, facts: DeviceFacts, place: str, number: int) -> None:
        self._cupy, self.facts, self._number = cupy, facts, number
        self._runtime = cupy.cuda.runtime
        self.place = place
        self._queue = Queue(cupy, place, number)
        self._recorder: Any = None
        self._held: deque[tuple[Any, Any]] = deque()  # events, and the host's memory that is read until then
        with self._queue:
            pass  # raises here if the device does not respond

    @abstractmethod
    def compiled(self, source: str) -> bytes:
        """A source as code that the device's driver loads.

        Raises:
            KernelBuildError: The compiler refuses it.
        """

    # ---------------------------------------------------------------------------------------- memory

    def allocate(self, nbytes: int) -> CupyBuffer:
        with self._queue as stream:
            pointer = self._cupy.cuda.alloc(nbytes)
        return CupyBuffer(pointer.ptr, pointer, stream)

    def free(self, buffer: CupyBuffer) -> None:
        with self._queue as stream:
            if buffer.stream.ptr != stream.ptr:
                # CuPy reuses the block for work on that stream, which is not ordered after work submitted to this one.
                buffer.stream.wait_event(stream.record())
            buffer.owner = None

    def write(self, buffer: CupyBuffer, offset: int, data: np.ndarray, *, waits: bool) -> None:
        is_staged = waits and data.nbytes <= STAGED
        with self._queue as stream:
            source = pinned = data
            address = _address(source)
            if is_staged:
                pinned = self._cupy.cuda.alloc_pinned_memory(data.nbytes)
                ctypes.memmove(pinned.ptr, address, data.nbytes)
                address = pinned.ptr
            kind = self._runtime.memcpyHostToDevice
            self._runtime.memcpyAsync(buffer.address + offset, address, data.nbytes, kind, stream.ptr)
            if is_staged or not waits:
                self._hold(stream, pinned)
            else:
                stream.synchronize()

    def read(self, buffer: CupyBuffer, offset: int, into: np.ndarray) -> None:
        with self._queue as stream:
            target, kind = _address(into), self._runtime.memcpyDeviceToHost
            self._runtime.memcpyAsync(target, buffer.address + offset, into.nbytes, kind, stream.ptr)
        self._wait(stream)

    def copy(self, source: CupyBuffer, source_offset: int, target: CupyBuffer, target_offset: int, nbytes: int) -> None:
        with self._queue as stream:
            start, end = source.address + source_offset, target.address + target_offset
            self._runtime.memcpyAsync(end, start, nbytes, self._runtime.memcpyDeviceToDevice, stream.ptr)

    def fill(self, buffer: CupyBuffer, offset: int, nbytes: int, byte: int) -> None:
        with self._queue as stream:
            self._runtime.memsetAsync(buffer.address + offset, byte, nbytes, stream.ptr)

    def address(self, location: At) -> int:
        return location.buffer.address + location.offset

    # ---------------------------------------------------------------------------- arrays of other libraries

    def adopt(self, array: Any) -> Adopted | None:
        take = self._taking(array)
        if take is None:
            return None
        with self._queue:
            try:
                adopted = take(array)
            except (BufferError, RuntimeError, TypeError, ValueError) as error:
                self._queue.expect(error)
                reason = Fact("its library", error)
                raise PlaceError(f"run: CuPy cannot take {type(array).__name__} on {self.place}", reason) from None
            if adopted.device.id != self._number:
                raise PlaceError(
                    f"run: an array lies on {self.platform}'s device {adopted.device.id}, and the program runs on {self.place}",
                    hint=f"copy it: with cupy.cuda.Device({self._number}): cupy.asarray(x)",
                )
        address = adopted.data.ptr
        start = address - address % self.facts.alignment  # aligned, so that other libraries can derive the offset
        return Adopted(CupyBuffer(start, adopted), address - start, adopted.strides)

    def export(self, view: View, options: Mapping[str, Any]) -> Any:
        with self._queue:
            try:
                return self._array(view).__dlpack__(**options)
            except (TypeError, ValueError) as error:  # a dtype that CuPy does not have
                raise BufferError(f"{self.place}: CuPy exports no {view.dtype}: {error}") from None

    @property
    def dlpack_device(self) -> tuple[int, int]:
        return self.kinds[0], self._number

    def attribute(self, name: str, view: View) -> Any:
        if view.dtype.str[1] == "V":
            raise AttributeError(f"{name} has no word for {view.dtype}")
        return {
            "shape": view.shape,
            "typestr": view.dtype.str,
            "data": (view.buffer.address + view.offset if view.buffer else 0, False),
            "version": 3,
            "strides": None,
            "stream": self._queue.stream.ptr or 1,  # its number for the default stream, whose handle is 0
        }

    def _array(self, view: View) -> Any:
        """CuPy's array of memory, which keeps the owner of that memory."""
        nbytes = view.dtype.itemsize * int(np.prod(view.shape))
        memory = self._cupy.cuda.memory
        owned = memory.UnownedMemory(view.buffer.address + view.offset, nbytes, view.owner, self._number)
        return self._cupy.ndarray(view.shape, view.dtype, memory.MemoryPointer(owned, 0))

    def _taking(self, array: Any) -> Callable[[Any], Any] | None:
        """Return a function that wraps another library's array as CuPy's without a copy, after which the current stream waits for
        the array's stream; `None` if the array is not on such a device.

        DLPack is preferred, because the exporter receives our stream; in the array interface, naming a stream is optional.
        """
        if isinstance(array, self._cupy.ndarray):
            return self._cupy.asarray
        where = getattr(type(array), "__dlpack_device__", None)
        if where is not None:
            return self._cupy.from_dlpack if where(array)[0] in self.kinds else None
        return self._cupy.asarray if INTERFACE in self.attributes and hasattr(type(array), INTERFACE) else None

    # --------------------------------------------------------------------------------------- kernels

    def build(self, source: str, binary: bytes | None = None) -> Module:
        code = self.compiled(source) if binary is None else binary
        loaded = self._cupy.cuda.function.Module()
        with self._queue:
            try:
                loaded.load(code)
            except self._cupy.cuda.driver.CUDADriverError as error:
                what = "the driver refuses what its compiler made" if binary is None else "a stale binary"
                raise KernelBuildError(f"{self.place}: {what}", Fact("driver", error)) from None
        return Module(loaded, code)

    def binary_of(self, module: Module) -> bytes:
        return module.binary

    def launch(
        self, module: Module, name: str, groups: int, group_size: int, arguments: Sequence[Argument]
    ) -> CupyLaunch:
        with self._queue:
            return CupyLaunch.of(
                self._cupy.cuda.driver.launchKernel, module.loaded, name, groups, group_size, arguments
            )

    def share(self, launch: CupyLaunch, nbytes: int) -> None:
        driver = self._cupy.cuda.driver
        with self._queue:  # above 48 KiB the driver requires this attribute
            driver.funcSetAttribute(launch.function, driver.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, nbytes)
        launch.dynamic_nbytes = nbytes

    def routine(self, function: Callable[..., None], places: Sequence[Any], arguments: Sequence[Argument]) -> Routine:
        return Routine.of(self._cupy, function, places, arguments, self._number)

    def set_argument(self, launch: CupyLaunch | Routine, number: int, argument: Argument) -> None:
        launch.set(number, argument)

    def submit(self, launches: Sequence[Submitted]) -> None:
        with self._queue as stream:
            for each in launches:
                each.run(stream)

    def record(self, launches: Sequence[Submitted]) -> Recording | None:
        if len(launches) < MIN_LAUNCHES:
            return None
        with self._queue:
            if self._recorder is None:
                self._recorder = self._cupy.cuda.Stream(non_blocking=True)  # the default stream cannot be captured
            with self._recorder:
                self._recorder.begin_capture(self._runtime.streamCaptureModeThreadLocal)
                try:
                    for each in launches:
                        each.run(self._recorder)
                except BaseException as error:
                    self._end_failed_capture(error)
                    raise
                graph = self._recorder.end_capture()
        return Recording(graph, tuple(launches))

    def _end_failed_capture(self, error: BaseException) -> None:
        """End a capture in which a launch failed, so that the stream can be captured again; its error becomes a note."""
        try:
            self._recorder.end_capture()
        except (self._cupy.cuda.driver.CUDADriverError, self._runtime.CUDARuntimeError) as second:
            error.add_note(f"the capture ended with: {second}")

    def timed(self, launch: Submitted) -> float:
        with self._queue as stream:
            cuda = self._cupy.cuda
            start, end = cuda.Event(), cuda.Event()
            start.record(stream)
            launch.run(stream)
            end.record(stream)
            end.synchronize()
            return 1e-3 * float(cuda.get_elapsed_time(start, end))

    def synchronize(self) -> None:
        with self._queue as stream:
            pass
        self._wait(stream)

    # --------------------------------------------------------------------------------------- details

    def _wait(self, stream: Any) -> None:
        """Wait for a stream without the lock, so that other threads may submit."""
        try:
            stream.synchronize()
        except (self._cupy.cuda.driver.CUDADriverError, self._runtime.CUDARuntimeError) as error:
            self._queue.expect(error)
            raise

    def _hold(self, stream: Any, memory: Any) -> None:
        """Keep host memory alive until the work submitted to a stream is done."""
        while self._held and self._held[0][0].done:
            self._held.popleft()
        self._held.append((stream.record(), memory))


def _address(array: np.ndarray) -> int:
    return int(array.__array_interface__["data"][0])
