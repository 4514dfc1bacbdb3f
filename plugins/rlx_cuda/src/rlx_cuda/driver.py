"""One of NVIDIA's GPUs by CuPy: its memory pool, its current stream, and launches by the driver's own call.

A launch through CuPy packs its arguments every time; here they lie packed, and only those are changed that a run brings anew.
"""

from __future__ import annotations

import ctypes
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import cupy
import numpy as np
from attrs import define
from cupy.cuda import driver, function, memory, runtime

from rlx_core.codegen.gpu.cuda import CUDA
from rlx_core.codegen.places import Place
from rlx_core.device.driver import Adopted, Argument, At, DeviceFacts, Driver, View
from rlx_core.errors import Fact, KernelBuildError, PlaceError
from rlx_cuda import nvrtc
from rlx_cuda.launches import FEWEST, Launch, Recording, Submitted
from rlx_cuda.queue import Queue
from rlx_cuda.routines import Routine

__all__ = ["Buffer", "CudaDriver"]

STAGED: Final = 4 << 20
"""Bytes up to which an array that its owner may change at once is copied to page-locked memory, instead of waiting."""

INTERFACE: Final = "__cuda_array_interface__"


ON_CUDA: Final = (2, 13)
"""DLPack's numbers for memory of a CUDA device: its own, and what it shares with the host."""


@define(eq=False)
class Buffer:
    """Memory on the device.

    Attributes:
        address: Where it begins.
        owner: What keeps it: CuPy's pointer, or an array of somebody else's; `None` once it was given back.
        stream: The stream whose free blocks it becomes one of; `None` for somebody else's.
    """

    address: int
    owner: Any
    stream: Any = None


@define(eq=False)
class Module:
    """A loaded module with the binary that it was loaded from."""

    loaded: Any
    binary: bytes


class CudaDriver(Driver):
    """A CUDA device."""

    can_record = True
    attributes = frozenset((INTERFACE,))

    def __init__(self, facts: DeviceFacts, place: str, number: int, architecture: str) -> None:
        self._facts, self._number, self._architecture = facts, number, architecture
        self.place = place
        self._queue = Queue(place, number)
        self._recorder: Any = None
        self._held: deque[tuple[Any, Any]] = deque()  # events, and the host's memory that is read until then
        with self._queue:
            pass  # a device that does not answer says so now

    @property
    def facts(self) -> DeviceFacts:
        return self._facts

    # ---------------------------------------------------------------------------------------- memory

    def allocate(self, nbytes: int) -> Buffer:
        with self._queue as stream:
            pointer = cupy.cuda.alloc(nbytes)
        return Buffer(pointer.ptr, pointer, stream)

    def free(self, buffer: Buffer) -> None:
        with self._queue as stream:
            if buffer.stream.ptr != stream.ptr:
                # CuPy gives the block out again to work on that stream, which knows nothing of what is asked for on this one.
                buffer.stream.wait_event(stream.record())
            buffer.owner = None

    def write(self, buffer: Buffer, offset: int, data: np.ndarray, *, waits: bool) -> None:
        is_staged = waits and data.nbytes <= STAGED
        with self._queue as stream:
            source = held = data
            address = _address(source)
            if is_staged:
                held = cupy.cuda.alloc_pinned_memory(data.nbytes)
                ctypes.memmove(held.ptr, address, data.nbytes)
                address = held.ptr
            runtime.memcpyAsync(buffer.address + offset, address, data.nbytes, runtime.memcpyHostToDevice, stream.ptr)
            if is_staged or not waits:
                self._hold(stream, held)
            else:
                stream.synchronize()

    def read(self, buffer: Buffer, offset: int, into: np.ndarray) -> None:
        with self._queue as stream:
            target = _address(into)
            runtime.memcpyAsync(target, buffer.address + offset, into.nbytes, runtime.memcpyDeviceToHost, stream.ptr)
        self._wait(stream)

    def copy(self, source: Buffer, source_offset: int, target: Buffer, target_offset: int, nbytes: int) -> None:
        with self._queue as stream:
            start, end = source.address + source_offset, target.address + target_offset
            runtime.memcpyAsync(end, start, nbytes, runtime.memcpyDeviceToDevice, stream.ptr)

    def fill(self, buffer: Buffer, offset: int, nbytes: int, byte: int) -> None:
        with self._queue as stream:
            runtime.memsetAsync(buffer.address + offset, byte, nbytes, stream.ptr)

    def address(self, at: At) -> int:
        return at.buffer.address + at.offset

    # ---------------------------------------------------------------------------- arrays of other libraries

    def adopt(self, array: Any) -> Adopted | None:
        take = _taking(array)
        if take is None:
            return None
        with self._queue:
            try:
                found = take(array)
            except (BufferError, RuntimeError, TypeError, ValueError) as error:
                self._queue.expect(error)
                reason = Fact("its library", error)
                raise PlaceError(f"run: CuPy cannot take {type(array).__name__} on {self.place}", reason) from None
            if found.device.id != self._number:
                raise PlaceError(
                    f"run: an array lies on CUDA's device {found.device.id}, and the program runs on {self.place}",
                    hint=f"copy it: with cupy.cuda.Device({self._number}): cupy.asarray(x)",
                )
        address = found.data.ptr
        start = address - address % self._facts.alignment  # so that whoever takes it sees where it begins
        return Adopted(Buffer(start, found), address - start, found.strides)

    def export(self, view: View, options: Mapping[str, Any]) -> Any:
        with self._queue:
            try:
                return self._array(view).__dlpack__(**options)
            except (TypeError, ValueError) as error:  # a dtype that CuPy has not
                raise BufferError(f"{self.place}: CuPy exports no {view.dtype}: {error}") from None

    @property
    def dlpack_device(self) -> tuple[int, int]:
        return 2, self._number  # DLPack's number for CUDA

    def attribute(self, name: str, view: View) -> Any:
        if view.dtype.str[1] == "V":
            raise AttributeError(f"{name} has no word for {view.dtype}")
        return {
            "shape": view.shape,
            "typestr": view.dtype.str,
            "data": (view.buffer.address + view.offset if view.buffer else 0, False),
            "version": 3,
            "strides": None,
            "stream": self._queue.stream.ptr or 1,  # its word for the default stream, whose handle is 0
        }

    def _array(self, view: View) -> Any:
        """CuPy's array of memory, which keeps the owner of that memory."""
        nbytes = view.dtype.itemsize * int(np.prod(view.shape))
        owned = memory.UnownedMemory(view.buffer.address + view.offset, nbytes, view.owner, self._number)
        return cupy.ndarray(view.shape, view.dtype, memory.MemoryPointer(owned, 0))

    # --------------------------------------------------------------------------------------- kernels

    def build(self, source: str, binary: bytes | None = None) -> Module:
        code = binary
        if code is None:
            code = nvrtc.compiled(source, self._architecture, CUDA.options, place=self.place).code
        loaded = function.Module()
        with self._queue:
            try:
                loaded.load(code)
            except driver.CUDADriverError as error:
                what = "the driver refuses what its compiler made" if binary is None else "a stale binary"
                raise KernelBuildError(f"{self.place}: {what}", Fact("driver", error)) from None
        return Module(loaded, code)

    def binary_of(self, module: Module) -> bytes:
        return module.binary

    def launch(self, module: Module, name: str, groups: int, group_size: int, arguments: Sequence[Argument]) -> Launch:
        with self._queue:
            return Launch.of(module.loaded, name, groups, group_size, arguments)

    def routine(self, name: str, places: Sequence[Place], arguments: Sequence[Argument]) -> Routine:
        return Routine.of(name, places, arguments, self._number)

    def set_argument(self, launch: Launch | Routine, number: int, argument: Argument) -> None:
        launch.set(number, argument)

    def submit(self, launches: Sequence[Submitted]) -> None:
        with self._queue as stream:
            for each in launches:
                each.run(stream)

    def record(self, launches: Sequence[Submitted]) -> Recording | None:
        if len(launches) < FEWEST:
            return None
        with self._queue:
            if self._recorder is None:
                self._recorder = cupy.cuda.Stream(non_blocking=True)  # the default stream cannot be captured
            with self._recorder:
                self._recorder.begin_capture(runtime.streamCaptureModeThreadLocal)
                try:
                    for each in launches:
                        each.run(self._recorder)
                finally:
                    graph = self._recorder.end_capture()
        return Recording(graph, tuple(launches))

    def timed(self, launch: Submitted) -> float:
        with self._queue as stream:
            start, end = cupy.cuda.Event(), cupy.cuda.Event()
            start.record(stream)
            launch.run(stream)
            end.record(stream)
            end.synchronize()
            return 1e-3 * float(cupy.cuda.get_elapsed_time(start, end))

    def synchronize(self) -> None:
        with self._queue as stream:
            pass
        self._wait(stream)

    # --------------------------------------------------------------------------------------- details

    def _wait(self, stream: Any) -> None:
        """Wait for a stream, while others may go on asking."""
        try:
            stream.synchronize()
        except (driver.CUDADriverError, runtime.CUDARuntimeError) as error:
            self._queue.expect(error)
            raise

    def _hold(self, stream: Any, held: Any) -> None:
        """Keep memory of the host until what was asked for on a stream is done."""
        while self._held and self._held[0][0].done:
            self._held.popleft()
        self._held.append((stream.record(), held))


def _taking(array: Any) -> Callable[[Any], Any] | None:
    """What makes an array of CuPy's of another library's, as it lies; the current stream then waits for the array's own.

    By DLPack, if it has that: whoever exports is told our stream. The interface names a stream only if its library likes to.
    """
    where = getattr(type(array), "__dlpack_device__", None)
    if where is not None and not isinstance(array, cupy.ndarray):
        return cupy.from_dlpack if where(array)[0] in ON_CUDA else None
    return cupy.asarray if hasattr(type(array), INTERFACE) else None


def _address(array: np.ndarray) -> int:
    return int(array.__array_interface__["data"][0])
