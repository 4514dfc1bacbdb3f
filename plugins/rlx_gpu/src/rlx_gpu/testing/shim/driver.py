"""A device that runs a GPU language on this machine's processor: memory between guards, kernels as functions of a library.

Every call is synchronous. An access that rlx's own kernels must not make (beyond a buffer, a barrier that not all threads
reach) is an `AssertionError` that names the kernel; a fault that a user can cause is one of rlx's errors.
"""

from __future__ import annotations

import ctypes
import itertools
import mmap
import os
import tempfile
import time
import weakref
from collections.abc import Sequence
from functools import cache
from typing import Any, Final, NamedTuple

import numpy as np
from attrs import field

from rlx_core.device.device import Device
from rlx_core.device.driver import Argument, At, DeviceFacts, Driver
from rlx_core.errors import Fact, KernelBuildError, OutOfMemoryError
from rlx_core.ir.dtypes import f64
from rlx_core.system.locks import Lock
from rlx_core.system.records import frozen
from rlx_gpu.testing.shim.compiler import compiler
from rlx_gpu.testing.shim.dialects import Dialect
from rlx_gpu.testing.shim.memory import ShimBuffer, guarded

DYNAMIC: Final = -1
"""The number of a launch's dynamic shared memory among its buffers."""

DYNAMIC_ALIGNMENT: Final = 1024

MOST_THREADS: Final = 1024
STACK_NBYTES: Final = (80 << 10) + 320
"""Bytes of a thread's stack, a fifth of it unused. No power of two, so that stacks do not compete for the same cache lines."""

FAULTS: Final = (
    "",
    "a barrier that not all threads of the group reach",
    "an exchange that not all threads of the subgroup reach",
    "an exchange with a thread that the subgroup has not",
    "a stack of more than 64 KiB",
    "an access of several words that is not aligned to its size",
    "an address that is not in memory which the group shares",
    "a descriptor of a matrix that means nothing, or not the same to all threads of a subgroup",
    "a factor in shared memory that its writer has not shown the unit by fence.proxy.async",
    "a factor in shared memory that is written before its product was waited for",
    "sums that a thread changed without a wgmma.fence before the product",
    "products that nobody waits for",
    "products that not all threads of the warpgroup ask for",
)
"""The meanings of `Fault` of group.h, in its order."""


class LaunchRecord(ctypes.Structure):
    """`Launch` of group.h."""

    _fields_ = (
        ("cells", ctypes.c_void_p),
        ("stacks", ctypes.c_void_p),
        ("stack_nbytes", ctypes.c_uint64),
        ("given", ctypes.c_void_p),
        ("given_nbytes", ctypes.c_uint64),
        *((name, ctypes.c_uint32) for name in ("arguments", "groups", "group_size", "seed")),
        *((name, ctypes.c_uint32) for name in ("fault", "fault_group", "fault_thread", "shared_nbytes")),
    )


class Module(NamedTuple):
    """A loaded library, and the bytes that it is of."""

    library: ctypes.CDLL
    binary: bytes


@frozen(eq=False)
class ShimLaunch:
    """A kernel with its arguments: each in a cell of eight bytes, which the record's pointers lead to."""

    name: str
    run: Any
    record: LaunchRecord
    cells: np.ndarray
    pointers: np.ndarray
    buffers: dict[int, ShimBuffer]
    module: Module = field(repr=False)


class ShimDriver(Driver):
    """The processor as a GPU.

    Args:
        dialect: The language that it takes.
        place: The device's name, for errors.
        facts: Its device facts; by default `facts_of(dialect)`.
        seed: Seed of the orders of threads, a new order for each launch.
    """

    def __init__(self, dialect: Dialect, place: str, facts: DeviceFacts | None = None, seed: int = 1) -> None:
        self._dialect, self._place, self.facts = dialect, place, facts or facts_of(dialect)
        self._seeds = itertools.count(seed)
        self._allocated = 0
        self._lock = Lock(f"the queue of {place}")

    # ---------------------------------------------------------------------------------------- memory

    def allocate(self, nbytes: int) -> ShimBuffer:
        if nbytes > self.facts.largest_buffer or self._allocated + nbytes > self.facts.memory_nbytes:
            raise OutOfMemoryError(
                f"{self._place}: the device has no memory left",
                Fact("asked for", f"{nbytes} bytes"),
                Fact("in use", f"{self._allocated} of {self.facts.memory_nbytes} bytes"),
            )
        self._allocated += nbytes
        return guarded(nbytes, self.facts.alignment)

    def free(self, buffer: ShimBuffer) -> None:
        assert not buffer.is_free, "a buffer is freed once"
        assert buffer.is_intact, f"{self._place}: somebody wrote beyond a buffer of {buffer.nbytes} bytes"
        buffer.is_free = True
        buffer.memory = np.empty(0, np.uint8)
        self._allocated -= buffer.nbytes

    def write(self, buffer: ShimBuffer, offset: int, data: np.ndarray, *, waits: bool) -> None:
        self._range(buffer, offset, data.nbytes)[:] = data.reshape(-1).view(np.uint8)

    def read(self, buffer: ShimBuffer, offset: int, into: np.ndarray) -> None:
        into.reshape(-1).view(np.uint8)[:] = self._range(buffer, offset, into.nbytes)

    def copy(self, source: ShimBuffer, source_offset: int, target: ShimBuffer, target_offset: int, nbytes: int) -> None:
        assert source is not target or abs(source_offset - target_offset) >= nbytes, "the ranges of a copy overlap"
        self._range(target, target_offset, nbytes)[:] = self._range(source, source_offset, nbytes)

    def fill(self, buffer: ShimBuffer, offset: int, nbytes: int, byte: int) -> None:
        self._range(buffer, offset, nbytes)[:] = byte

    # --------------------------------------------------------------------------------------- kernels

    def build(self, source: str, binary: bytes | None = None) -> Module:
        if binary is None:
            try:
                binary = compiler().shared_object(self._dialect.as_cpp(source)[0])
            except KernelBuildError as error:
                raise KernelBuildError(f"{self._place}: {error.message}", *error.facts) from None
        return loaded(binary, self._place)

    def binary_of(self, module: Module) -> bytes:
        return module.binary

    def launch(
        self, module: Module, name: str, groups: int, group_size: int, arguments: Sequence[Argument]
    ) -> ShimLaunch:
        assert groups > 0, "a launch of nothing"
        assert 0 < group_size <= self.facts.group_size, f"{group_size} threads in a group"
        count = len(arguments)
        cells = np.zeros(count, np.uint64)
        pointers = np.zeros(count + 2, np.uint64)  # the runtime adds the thread and the group
        pointers[:count] = cells.ctypes.data + 8 * np.arange(count, dtype=np.uint64)
        record = LaunchRecord(
            cells=pointers.ctypes.data,
            stacks=stacks(),
            stack_nbytes=STACK_NBYTES,
            arguments=count,
            groups=groups,
            group_size=group_size,
        )
        result = ShimLaunch(name, module.library[f"rlx_run_{name}"], record, cells, pointers, {}, module)
        for number, argument in enumerate(arguments):
            self.set_argument(result, number, argument)
        return result

    @property
    def most_shared_nbytes(self) -> int:
        """Maximum memory that a group may share, dynamic memory of its launch included."""
        return self._dialect.most_shared_nbytes

    def share(self, launch: ShimLaunch, nbytes: int) -> None:
        limit = self.most_shared_nbytes
        assert nbytes <= limit, f"{launch.name} shares {nbytes} bytes of {limit}"
        launch.buffers[DYNAMIC] = dynamic = guarded(nbytes, DYNAMIC_ALIGNMENT)
        launch.record.given, launch.record.given_nbytes = dynamic.address, nbytes

    def set_argument(self, launch: ShimLaunch, number: int, argument: Argument) -> None:
        if isinstance(argument, np.generic):
            raw = argument.tobytes()
            launch.cells[number : number + 1].view(np.uint8)[: len(raw)] = np.frombuffer(raw, np.uint8)
            return
        offset = argument.offset if isinstance(argument, At) else 0
        self._range(argument.buffer, offset, 1)
        launch.buffers[number] = argument.buffer
        launch.cells[number] = argument.buffer.address + offset

    def submit(self, launches: Sequence[ShimLaunch]) -> None:
        for launch in launches:
            self._run(launch)

    def timed(self, launch: ShimLaunch) -> float:
        start = time.perf_counter()
        self._run(launch)
        return time.perf_counter() - start

    def synchronize(self) -> None:
        pass  # everything is done by then

    # --------------------------------------------------------------------------------------- details

    def _run(self, launch: ShimLaunch) -> None:
        assert not any(b.is_free for b in launch.buffers.values()), f"{launch.name} is given memory that was freed"
        record = launch.record
        with self._lock, _processor:
            record.seed, record.fault = next(self._seeds) & 0xFFFFFFFF, 0
            launch.run(ctypes.byref(record))
        where = f"{self._place}: {launch.name}, group {record.fault_group}, thread {record.fault_thread}"
        assert not record.fault, f"{where}: {FAULTS[record.fault]}"
        limit = self.most_shared_nbytes - record.given_nbytes if record.given_nbytes else self.facts.shared_nbytes
        assert record.shared_nbytes <= limit, f"{launch.name} shares {record.shared_nbytes} bytes of {limit}"
        for buffer in launch.buffers.values():
            assert buffer.is_intact, f"{self._place}: {launch.name} wrote beyond a buffer of {buffer.nbytes} bytes"

    def _range(self, buffer: ShimBuffer, offset: int, nbytes: int) -> np.ndarray:
        assert not buffer.is_free, "a freed buffer is used"
        assert 0 <= offset <= offset + nbytes <= buffer.nbytes, f"bytes {offset} and {nbytes} on of {buffer.nbytes}"
        return buffer.data[offset : offset + nbytes]


_processor = Lock("the stacks of the stand-ins' threads")


@cache
def stacks() -> int:
    """Return the address of the stacks of all threads of a group; the system allocates no pages for unused ones."""
    memory = mmap.mmap(-1, MOST_THREADS * STACK_NBYTES)
    _retained.append(memory)
    return ctypes.addressof(ctypes.c_char.from_buffer(memory))


_retained: list[mmap.mmap] = []


def loaded(binary: bytes, place: str) -> Module:
    """A library from its bytes, which is gone from memory when the module is.

    Raises:
        KernelBuildError: The system does not load it.
    """
    descriptor, path = tempfile.mkstemp(suffix=".so", prefix="rlx-shim-")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(binary)
        library = ctypes.CDLL(path)
    except OSError as error:
        raise KernelBuildError(f"{place}: a library that does not load", Fact("system", error)) from None
    finally:
        os.unlink(path)  # the mapping stays
    unload = ctypes.CDLL(None).dlclose
    unload.argtypes = (ctypes.c_void_p,)
    weakref.finalize(library, unload, library._handle).atexit = False
    return Module(library, binary)


def facts_of(dialect: Dialect, features: frozenset[str] = frozenset()) -> DeviceFacts:
    """Return the device facts of a stand-in.

    Args:
        features: The features that it has, among the ones that kernels of a target use.

    Raises:
        DeviceUnavailableError: There is no C++ compiler.
    """
    unsupported = {"c64", "c128"} | (set() if dialect.language.refusal(f64) is None else {"f64"})
    return DeviceFacts(
        name=f"{dialect.language.name} on this processor",
        driver=f"rlx stand-in, {compiler().identity}, {dialect.identity}",
        memory_nbytes=4 << 30,
        largest_buffer=2 << 30,
        group_size=MOST_THREADS,
        shared_nbytes=dialect.shared_nbytes,
        units=1,
        subgroup=32,
        unsupported=frozenset(unsupported),
        features=features,
    )


def stand_in(dialect: Dialect, name: str, seed: int = 1, features: frozenset[str] = frozenset()) -> Device:
    """A device by this name that runs a language here; see `facts_of`.

    Raises:
        DeviceUnavailableError: There is no C++ compiler.
    """
    facts = facts_of(dialect, features)
    return Device(name, facts, lambda: ShimDriver(dialect, name, facts, seed))
