"""The driver of one OpenCL device: a context and one in-order queue.

In PyOpenCL, setting a scalar argument takes 15 µs and submitting a launch 3 µs. Each launch therefore has a separate kernel
object whose arguments are set once, and changed only if a run uses different memory.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import pyopencl as cl
from attrs import frozen

from rlx_core.device.driver import Adopted, Argument, At, DeviceFacts, Driver, Whole
from rlx_core.errors import DeviceLostError, Fact, KernelBuildError, OutOfMemoryError, RlxError
from rlx_gpu.codegen.opencl import OPENCL
from rlx_rocm.opencl.exiting import ExitGuard, guarded

_NO_MEMORY: Final = frozenset(
    (
        cl.status_code.MEM_OBJECT_ALLOCATION_FAILURE,
        cl.status_code.OUT_OF_HOST_MEMORY,
        cl.status_code.INVALID_BUFFER_SIZE,
    )
)

_ROUNDED: Final = "-cl-fp32-correctly-rounded-divide-sqrt"
"""A compiler option that not all devices support; on the others, f32 division is accurate to 2.5 ulp."""


@frozen(eq=False)
class OpenclLaunch:
    """A kernel object with its arguments.

    Attributes:
        starts: Argument → the index of its first kernel argument; memory has two: the buffer and the byte offset in it.
        offsets: Argument → the byte offset that was set last; mostly, a run with a different buffer has the same offset.
    """

    kernel: cl.Kernel
    threads: tuple[int]
    group: tuple[int]
    starts: tuple[int, ...]
    offsets: dict[int, int]


class OpenClDriver(Driver):
    """The driver of an OpenCL device.

    Attributes:
        context, queue: PyOpenCL's objects; PyOpenCL arrays of this context are used without a copy.
        guard: Waits for pending calls before the interpreter exits.
    """

    def __init__(self, device: cl.Device, facts: DeviceFacts, number: int) -> None:
        self.facts, self._number = facts, number
        self.place = f"rocm:{number}"
        try:
            self.context = cl.Context([device])
            self.queue = cl.CommandQueue(self.context, device)
        except cl.Error as error:
            raise self.translated(error) from None
        self._device = device
        self.guard = ExitGuard(self.synchronize)
        is_rounded = device.single_fp_config & cl.device_fp_config.CORRECTLY_ROUNDED_DIVIDE_SQRT
        self._options = [each for each in OPENCL.options if each != _ROUNDED or is_rounded]
        self._clock: cl.CommandQueue | None = None
        self._held: list[Any] = []  # events that keep the source arrays of pending copies alive

    # ---------------------------------------------------------------------------------------- memory

    @guarded
    def allocate(self, nbytes: int) -> cl.Buffer:
        return cl.Buffer(self.context, cl.mem_flags.READ_WRITE, nbytes)

    @guarded
    def free(self, buffer: cl.Buffer) -> None:
        buffer.release()  # the driver frees the buffer when all submitted commands are done

    @guarded
    def write(self, buffer: cl.Buffer, offset: int, data: np.ndarray, *, waits: bool) -> None:
        event = cl.enqueue_copy(self.queue, buffer, _bytes(data), dst_offset=offset, is_blocking=waits)
        if not waits:
            self._held.append(event)

    @guarded
    def read(self, buffer: cl.Buffer, offset: int, into: np.ndarray) -> None:
        cl.enqueue_copy(self.queue, _bytes(into), buffer, src_offset=offset, is_blocking=True)
        self._held.clear()

    @guarded
    def copy(self, source: cl.Buffer, source_offset: int, target: cl.Buffer, target_offset: int, nbytes: int) -> None:
        cl.enqueue_copy(
            self.queue, target, source, src_offset=source_offset, dst_offset=target_offset, byte_count=nbytes
        )

    @guarded
    def fill(self, buffer: cl.Buffer, offset: int, nbytes: int, byte: int) -> None:
        cl.enqueue_fill_buffer(self.queue, buffer, np.uint8(byte), offset, nbytes)

    @guarded
    def adopt(self, array: Any) -> Adopted | None:
        arrays = sys.modules.get("pyopencl.array")
        if arrays is None or not isinstance(array, arrays.Array) or array.base_data is None:
            return None
        if array.base_data.context != self.context:
            return None
        if array.queue is not None and array.queue != self.queue:
            array.queue.finish()
        return Adopted(array.base_data, array.offset, array.strides)

    @property
    def dlpack_device(self) -> tuple[int, int]:
        return 4, self._number  # DLPack's number for OpenCL, which has no exporter

    # --------------------------------------------------------------------------------------- kernels

    @guarded
    def build(self, source: str, binary: bytes | None = None) -> cl.Program:
        program = (
            cl.Program(self.context, source) if binary is None else cl.Program(self.context, [self._device], [binary])
        )
        try:
            return program.build(options=self._options, cache_dir=False)
        except cl.Error as error:
            log = str(error).strip()
            raise KernelBuildError(
                f"{self.place}: its compiler refuses the source" if binary is None else f"{self.place}: a stale binary",
                Fact("compiler", log[-2000:]),
                hint="the source is what `rlx compile --emit opencl` prints",
            ) from None

    @guarded
    def binary_of(self, module: cl.Program) -> bytes | None:
        binaries = module.get_info(cl.program_info.BINARIES)
        return bytes(binaries[0]) if binaries and binaries[0] else None

    @guarded
    def launch(
        self, module: cl.Program, name: str, groups: int, group_size: int, arguments: Sequence[Argument]
    ) -> OpenclLaunch:
        flat: list[Any] = []
        starts: list[int] = []
        for argument in arguments:
            starts.append(len(flat))
            flat += _flat(argument)
        kernel = cl.Kernel(module, name)
        kernel.set_scalar_arg_dtypes([each.dtype if isinstance(each, np.generic) else None for each in flat])
        kernel.set_args(*flat)
        offsets = {number: argument.offset for number, argument in enumerate(arguments) if isinstance(argument, At)}
        return OpenclLaunch(kernel, (groups * group_size,), (group_size,), tuple(starts), offsets)

    @guarded
    def set_argument(self, launch: OpenclLaunch, number: int, argument: Argument) -> None:
        place, kernel = launch.starts[number], launch.kernel
        if isinstance(argument, At) and launch.offsets[number] == argument.offset:
            kernel.set_arg(place, argument.buffer)
            return
        for i, each in enumerate(_flat(argument)):
            kernel.set_arg(place + i, each)
        if isinstance(argument, At):
            launch.offsets[number] = argument.offset

    @guarded
    def submit(self, launches: Sequence[OpenclLaunch]) -> None:
        queue, enqueue = self.queue, cl.enqueue_nd_range_kernel
        for each in launches:
            enqueue(queue, each.kernel, each.threads, each.group)
        queue.flush()

    @guarded
    def timed(self, launch: OpenclLaunch) -> float:
        self.synchronize()
        if self._clock is None:
            properties = cl.command_queue_properties.PROFILING_ENABLE
            self._clock = cl.CommandQueue(self.context, self._device, properties=properties)
        event = cl.enqueue_nd_range_kernel(self._clock, launch.kernel, launch.threads, launch.group)
        event.wait()
        return float(1e-9 * (event.profile.end - event.profile.start))

    @guarded
    def synchronize(self) -> None:
        self.queue.finish()
        self._held.clear()

    # --------------------------------------------------------------------------------------- details

    def translated(self, error: cl.Error) -> RlxError:
        """Return the error of rlx for one of OpenCL."""
        fact = Fact("driver", error)
        if error.code in _NO_MEMORY:
            return OutOfMemoryError(f"{self.place}: the device has no memory left", fact)
        return DeviceLostError(f"{self.place}: the device does not answer any more", fact)


def _flat(argument: Argument) -> tuple[Any, ...]:
    """Return the kernel arguments for an argument: for memory, the buffer and the byte offset in it."""
    if isinstance(argument, At):
        return argument.buffer, np.uint64(argument.offset)
    return (argument.buffer if isinstance(argument, Whole) else argument,)


def _bytes(array: np.ndarray) -> np.ndarray:
    """Return the bytes of a dense array; NumPy arrays of bfloat16 do not support the buffer protocol."""
    return array.reshape(-1).view(np.uint8)
