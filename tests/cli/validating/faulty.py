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
from rlx_core.errors import DeviceLostError, KernelBuildError, OutOfMemoryError
from rlx_core.testing.shim import driver as shim
from rlx_core.testing.shim.driver import GIVEN, ShimDriver
from rlx_core.testing.shim.memory import guarded

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
        if not isinstance(each, Recording):
            self._run(each)
            continue
        for launch, cells in each.items:
            now, buffers = launch.cells.copy(), dict(launch.buffers)
            launch.cells[:] = cells
            for number in buffers.keys() - {GIVEN}:
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

    return evolve(facts_of(*args, **kwargs), memory_nbytes=MEMORY, largest_buffer=MEMORY // 2)


def complete_stand_in() -> None:
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
ALLOCATE = ShimDriver.allocate


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
def plugin_raises_late() -> None:
    def allocate(self: Any, nbytes: int) -> Any:
        raise TypeError("an untyped error")

    ShimDriver.allocate = allocate


if Path(sys.argv[0]).name == "child.py":  # a step's process: the one that starts them, a test's, stays as it is
    complete_stand_in()
    FAULTS[os.environ.get("FAULT_OF_THE_STAND_IN", "none")]()
