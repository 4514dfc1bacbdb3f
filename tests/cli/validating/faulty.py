"""A plugin that makes the stand-in of `cuda` a device with recordings and DLPack, and then breaks it in one way.

`FAULT_OF_THE_STAND_IN` is the fault's name.
"""

from __future__ import annotations

import ctypes
import os
import random
import re
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np

from rlx_core.device.array import DeviceArray
from rlx_core.device.device import Device
from rlx_core.emit.emitters import Call, Emitted
from rlx_core.emit.table import LIBRARY
from rlx_core.errors import DeviceLostError, KernelBuildError, OutOfMemoryError
from rlx_core.ops.linalg import MatMul
from rlx_core.pipeline.kernels import Condition
from rlx_gpu.testing.shim import driver as shim
from rlx_gpu.testing.shim.driver import DYNAMIC, ShimDriver
from rlx_gpu.testing.shim.memory import guarded

MEMORY = 256 << 20
FAULTS: dict[str, Any] = {}


def fault(function: Any) -> Any:
    FAULTS[function.__name__.replace("_", "-")] = function
    return function


# ------------------------------------------------------------------------------- what the stand-in lacks


class Recording:
    def __init__(self, launches: Any) -> None:
        self.items = [(each, each.cells.copy()) for each in launches]


def submit(self: Any, launches: Any) -> None:
    for each in launches:
        if isinstance(each, Routine):
            each.run()
            continue
        if not isinstance(each, Recording):
            self._run(each)
            continue
        for launch, cells in each.items:
            now, buffers = launch.cells.copy(), dict(launch.buffers)
            launch.cells[:] = cells
            for number in buffers.keys() - {DYNAMIC}:
                del launch.buffers[number]
            self._run(launch)
            launch.cells[:] = now
            launch.buffers.update(buffers)


KEPT: list[Any] = []
"""Owners of exported memory, which a capsule of a real driver keeps."""


def export(self: Any, view: Any, options: Any) -> Any:
    KEPT.append(view.owner)
    nbytes = int(np.prod(view.shape)) * view.dtype.itemsize
    return self._range(view.buffer, view.offset, nbytes).view(view.dtype).reshape(view.shape).__dlpack__()


facts_of = shim.facts_of


def small_facts(*args: Any, **kwargs: Any) -> Any:
    from attrs import evolve

    found = facts_of(*args, **kwargs)
    from rlx_cuda.library import FEATURE

    features = found.features | {FEATURE}
    return evolve(found, memory_nbytes=MEMORY, largest_buffer=MEMORY // 2, features=features)


def product(numpy_: Any, a: np.ndarray, b: np.ndarray, out: np.ndarray) -> None:
    """The library's product, in f32 like its own."""
    out[...] = np.matmul(a.astype(np.float32), b.astype(np.float32)).astype(out.dtype)


def library_product_rows(table: Any, dtypes: Any, *, tf32: bool = False) -> None:
    """Products of two matrices by NumPy in place of the library."""

    def library_product(node: Any, layout: Any) -> Emitted:
        places = (*layout.operands, *layout.results)
        run: Any = lambda *arrays: product(*arrays)  # noqa: E731  looked up when it is called: a fault may replace it
        return Emitted((), (Call("library_product", 1, 1, tuple(range(3)), places=places, run=run, may_wait=True),), ())

    are_matrices = Condition("two matrices", lambda node: all(v.ndim == 2 for v in node.operands))
    table.emitter(MatMul, dtypes=dtypes, when=are_matrices, priority=1, name="library_product", tier=LIBRARY)(
        library_product
    )


class Routine:
    """A call of the library, run like a launch.

    Attributes:
        arguments: Places in memory, which may be set anew.
    """

    def __init__(self, function: Any, places: Any, arguments: Any) -> None:
        self.function, self.places, self.arguments = function, places, list(arguments)

    def run(self) -> None:
        pairs = zip(self.places, self.arguments, strict=True)
        self.function(np, *(array_at(place, at) for place, at in pairs))


def array_at(place: Any, at: Any) -> np.ndarray:
    """The array of memory on the device."""
    return np.ndarray(
        place.type.static_shape, place.type.dtype.numpy, at.buffer.data, offset=at.offset, strides=place.strides
    )


def set_argument(self: Any, launch: Any, number: int, argument: Any) -> None:
    if isinstance(launch, Routine):
        launch.arguments[number] = argument
    else:
        SET_ARGUMENT(self, launch, number, argument)


def complete_stand_in() -> None:
    from rlx_core.cli.validating.probes import speed
    from rlx_cuda import backend, library

    speed.LARGEST = 1 << 20  # bytes; a processor copies 64 MiB within the time that its kernels take for these
    backend.library_product_rows = library_product_rows
    library.library_rows = lambda table: None  # solves and transforms stay where they were
    ShimDriver.routine = lambda self, function, places, arguments: Routine(function, places, arguments)
    ShimDriver.set_argument = set_argument
    shim.facts_of = small_facts
    ShimDriver.can_record = True
    ShimDriver.record = lambda self, launches: Recording(launches)
    ShimDriver.address = lambda self, at: at.buffer.address + at.offset
    ShimDriver.submit = submit
    ShimDriver.export = export
    ShimDriver.dlpack_device = property(lambda self: (1, 0))


READ, WRITE, COPY, BUILD, RUN = (
    ShimDriver.read, ShimDriver.write, ShimDriver.copy, ShimDriver.build, ShimDriver._run,
)  # fmt: skip
ALLOCATE, SET_ARGUMENT = ShimDriver.allocate, ShimDriver.set_argument


# -------------------------------------------------------------------------------------------- the faults


@fault
def none() -> None:
    """The device is in order."""


@fault
def wrong_constant() -> None:
    def build(self: Any, source: str, binary: Any = None) -> Any:
        return BUILD(self, re.sub(r"0x3f800000|\b1\.0f|\b1\.0\b", "1.0000001f", source))

    ShimDriver.build = build


@fault
def short_read() -> None:
    def read(self: Any, buffer: Any, offset: int, into: np.ndarray) -> None:
        READ(self, buffer, offset, into)
        into.reshape(-1).view(np.uint8)[-1] = 0xA5

    ShimDriver.read = read


@fault
def short_write() -> None:
    def write(self: Any, buffer: Any, offset: int, data: np.ndarray, *, waits: bool) -> None:
        WRITE(self, buffer, offset, data.reshape(-1).view(np.uint8)[: data.nbytes // 4096 * 4096 or None], waits=waits)

    ShimDriver.write = write


@fault
def short_copy() -> None:
    def copy(self: Any, a: Any, at: int, b: Any, to: int, nbytes: int) -> None:
        COPY(self, a, at, b, to, nbytes - nbytes % 4)

    ShimDriver.copy = copy


@fault
def hangs() -> None:
    ShimDriver._run = lambda self, launch: time.sleep(1000)


@fault
def aborts() -> None:
    ShimDriver._run = lambda self, launch: os.abort()


@fault
def segmentation_fault() -> None:
    ShimDriver._run = lambda self, launch: ctypes.string_at(0)


@fault
def exits_with_code_0() -> None:
    ShimDriver._run = lambda self, launch: os._exit(0)


@fault
def compiler_refuses() -> None:
    def build(self: Any, source: str, binary: Any = None) -> Any:
        raise KernelBuildError("the compiler refuses the source")

    ShimDriver.build = build


@fault
def stale_pointers() -> None:
    first: dict[str, Any] = {}
    ShimDriver.record = lambda self, launches: first.setdefault(
        " ".join(each.name for each in launches), Recording(launches)
    )


@fault
def recording_without_the_last_launch() -> None:
    ShimDriver.record = lambda self, launches: Recording(launches[:-1])


@fault
def records_nothing() -> None:
    ShimDriver.record = lambda self, launches: None

    def frames(self: Any, places: Any, launches: Any) -> Any:
        return launches

    from rlx_core.emit.recordings import Recordings

    Recordings.of = frames


@fault
def shared_memory_of_results() -> None:
    given: dict[int, Any] = {}

    def allocate(self: Any, nbytes: int) -> Any:
        made = given.get(nbytes)
        if made is None or made.is_free:
            made = given[nbytes] = ALLOCATE(self, nbytes)
        return made

    ShimDriver.allocate = allocate


@fault
def never_recovers() -> None:
    lost = []

    def allocate(self: Any, nbytes: int) -> Any:
        try:
            return ALLOCATE(self, nbytes)
        except OutOfMemoryError:
            lost.append(nbytes)
            raise

    def run(self: Any, launch: Any) -> None:
        if lost:
            raise DeviceLostError("the device does not answer any more")
        RUN(self, launch)

    ShimDriver.allocate, ShimDriver._run = allocate, run


@fault
def memory_without_end() -> None:
    def allocate(self: Any, nbytes: int) -> Any:
        return guarded(min(nbytes, 1 << 20), 256) if nbytes > 1 << 20 else ALLOCATE(self, nbytes)

    ShimDriver.allocate = allocate
    ShimDriver.free = lambda self, buffer: None


@fault
def leaks() -> None:
    def free(self: Any, buffer: Any) -> None:
        buffer.is_free = True

    ShimDriver.free = free


@fault
def wrong_strides_of_dlpack() -> None:
    def exported(self: Any, view: Any, options: Any) -> Any:
        nbytes = int(np.prod(view.shape)) * view.dtype.itemsize
        flat = self._range(view.buffer, view.offset, nbytes).view(view.dtype)
        return flat.reshape(view.shape, order="F").__dlpack__()

    ShimDriver.export = exported


@fault
def wrong_offset_of_dlpack() -> None:
    def exported(self: Any, view: Any, options: Any) -> Any:
        nbytes = int(np.prod(view.shape)) * view.dtype.itemsize
        flat = np.roll(self._range(view.buffer, view.offset, nbytes).view(view.dtype), 1)
        return flat.reshape(view.shape).__dlpack__()

    ShimDriver.export = exported


@fault
def memory_of_dlpack_is_reused() -> None:
    class Nowhere(list[Any]):
        def append(self, each: Any) -> None:
            """Keep nothing."""

    globals()["KEPT"] = Nowhere()


def changed_floats(change: Any, dtype: Any = np.float32) -> None:
    """Change the results of programs as they are read: the bytes of several outputs at once."""

    def read(self: Any, buffer: Any, offset: int, into: np.ndarray) -> None:
        READ(self, buffer, offset, into)
        flat = into.reshape(-1).view(np.uint8)
        change(flat[: flat.size // 4 * 4].view(dtype))

    ShimDriver.read = read


@fault
def other_bits_in_each_run() -> None:
    def change(into: np.ndarray) -> None:
        into.view(np.uint32)[:2] ^= np.uint32(random.randint(0, 1))

    changed_floats(change)


@fault
def lost_nan() -> None:
    def change(into: np.ndarray) -> None:
        into[np.isnan(into)] = 0.0

    changed_floats(change)


@fault
def inaccurate_f16() -> None:
    def change(into: np.ndarray) -> None:
        into *= np.float16(1.05)

    changed_floats(change, np.float16)


@fault
def wrong_results_in_threads() -> None:
    def change(into: np.ndarray) -> None:
        if threading.current_thread() is not threading.main_thread():
            into[...] = 0.0

    changed_floats(change)


@fault
def forked_child_is_served() -> None:
    def driver(self: Any) -> Any:
        return self._driver or self._opened()

    Device.driver = property(driver)


@fault
def donation_is_ignored() -> None:
    DeviceArray.donate = lambda self, to: None


@fault
def wrong_product_of_the_library() -> None:
    def wrong(numpy: Any, a: np.ndarray, b: np.ndarray, out: np.ndarray) -> None:
        right(numpy, a, b, out)
        out[-1] = 0

    right = product
    globals()["product"] = wrong


@fault
def library_raises() -> None:
    def raises(*arrays: Any) -> None:
        raise RuntimeError("the library has no such product")

    globals()["product"] = raises


@fault
def offsets_wrap_in_large_arrays() -> None:
    def read(self: Any, buffer: Any, offset: int, into: np.ndarray) -> None:
        READ(self, buffer, offset % 10_000 if into.nbytes < 30_000 else offset, into)

    from rlx_core.cli.validating.probes import large

    large.COUNTS = (60_000,)
    ShimDriver.read = read


@fault
def plugin_raises_late() -> None:
    def allocate(self: Any, nbytes: int) -> Any:
        raise TypeError("an untyped error")

    ShimDriver.allocate = allocate


if Path(sys.argv[0]).name == "child.py":  # a step's process: the one that starts them, a test's, stays as it is
    complete_stand_in()
    FAULTS[os.environ.get("FAULT_OF_THE_STAND_IN", "none")]()
