"""A simulated device: it runs loop kernels with NumPy on synchronisation, records the calls of its driver, and checks them.

Its language is the loop language itself: a module's source is the text of kernels, which it parses and interprets. So everything
around kernels (memory, launches, transfers, faults, caches, threads) is tested without a driver, and errors that a real one
answers with a crash or with wrong numbers are assertions here. `fake_host` is a host with it as the target `fake`.
"""

from __future__ import annotations

import itertools
import re
import weakref
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from attrs import evolve, field

from rlx_core.codegen import Kernel, formula_of, parse_kernel, print_kernel, run_kernel
from rlx_core.codegen.faults import SITE_WORDS, fault_of, put_report
from rlx_core.codegen.interpret import outside_of
from rlx_core.codegen.loops import Bound, Load, Store
from rlx_core.contributions import BackendSpec, OptionSpec
from rlx_core.device.device import Device
from rlx_core.device.driver import Adopted, Argument, At, DeviceFacts, Driver, Whole
from rlx_core.emit.backend import DeviceBackend
from rlx_core.emit.emitters import Call, Emitted, Function, Language
from rlx_core.errors import DeviceLostError, IndexRangeError, KernelBuildError, OutOfMemoryError, RlxError
from rlx_core.hooks import hookimpl
from rlx_core.ir.dtypes import DType
from rlx_core.ir.op import Op
from rlx_core.ir.types import TensorType
from rlx_core.ops import standard_ops
from rlx_core.pipeline.backend import Level
from rlx_core.plugins import PluginHost, default_host
from rlx_core.plugins.digest import sha256
from rlx_core.plugins.entry import given_entry
from rlx_core.system.locks import Lock
from rlx_core.system.records import define, frozen

FACTS = DeviceFacts(
    name="Recorder",
    driver="fake 1",
    memory_nbytes=64 << 20,
    largest_buffer=32 << 20,
    unsupported=frozenset(("c64", "c128")),
)

POISON = 0xFF

_hosts = itertools.count()
_addresses = itertools.count(1 << 32, 1 << 32)

OPS = {op.name: op for op in standard_ops()}


@define(eq=False)
class FakeBuffer:
    """Memory of the fake device; all ones until it is written, and released once it is freed and no queued operation uses it."""

    data: np.ndarray
    is_free: bool = False
    is_apart: bool = False
    address: int = field(factory=lambda: next(_addresses))


@frozen(eq=False)
class FakeModule:
    """Parsed kernels by the names of their functions."""

    kernels: Mapping[str, Kernel]
    source: str

    def __repr__(self) -> str:
        return f"<fake module of {len(self.kernels)} functions>"


@define(eq=False)
class FakeLaunch:
    """A kernel with its arguments."""

    kernel: Kernel
    name: str
    arguments: list[Argument]


@frozen(eq=False)
class FakeRecording:
    """Kernels with the arguments that they had when they were recorded."""

    launches: tuple[tuple[Kernel, tuple[Argument, ...]], ...]


@define(eq=False, slots=False)
class FakeDriver(Driver):
    """The recording driver.

    Attributes:
        place: The device's name, for errors.
        records: The calls, in order: a word and a number or a name.
        is_lost: Whether the device is lost.
        allocations: Bytes of buffers that were not freed.
        fails_at: The number of the submitted launch at which the device is lost.
        can_record: Whether it has something like graphs.
    """

    place: str = "fake:0"
    facts: DeviceFacts = FACTS
    records: list[tuple[str, Any]] = field(factory=list)
    is_lost: bool = False
    allocations: int = 0
    fails_at: int | None = None
    built: int = 0
    can_record: bool = False
    _queue: list[Callable[[], None]] = field(factory=list)
    _lock: Lock = field(factory=lambda: Lock("the fake device's queue"))

    # ------------------------------------------------------------------------------------ memory

    def allocate(self, nbytes: int) -> FakeBuffer:
        self._expect_there()
        assert 0 < nbytes <= self.facts.largest_buffer, f"{nbytes} bytes in a buffer"
        with self._lock:
            if self.allocations + nbytes > self.facts.memory_nbytes:
                raise OutOfMemoryError(f"{self.place}: {nbytes} bytes, {self.allocations} are in use")
            self.allocations += nbytes
        self.records.append(("allocate", nbytes))
        return FakeBuffer(np.full(nbytes, POISON, np.uint8))

    def allocate_apart(self, nbytes: int) -> FakeBuffer:
        buffer = self.allocate(nbytes)
        buffer.is_apart = True
        return buffer

    def free(self, buffer: FakeBuffer) -> None:
        assert not buffer.is_free, "a buffer is freed once"
        buffer.is_free = True
        with self._lock:
            self.allocations -= buffer.data.size
        self.records.append(("free", buffer.data.size))

    def write(self, buffer: FakeBuffer, offset: int, data: np.ndarray, *, waits: bool) -> None:
        assert data.flags.c_contiguous, "only dense arrays are written"
        self._expect_range(buffer, offset, data.nbytes)
        self.records.append(("write", data.nbytes))
        source = data.copy() if waits else data

        def run() -> None:
            buffer.data[offset : offset + source.nbytes] = source.reshape(-1).view(np.uint8)

        self._ask(run)

    def read(self, buffer: FakeBuffer, offset: int, into: np.ndarray) -> None:
        self._expect_range(buffer, offset, into.nbytes)
        self.records.append(("read", into.nbytes))
        self.synchronize()
        into.reshape(-1).view(np.uint8)[:] = buffer.data[offset : offset + into.nbytes]

    def copy(self, source: FakeBuffer, source_offset: int, target: FakeBuffer, target_offset: int, nbytes: int) -> None:
        self._expect_range(source, source_offset, nbytes)
        self._expect_range(target, target_offset, nbytes)
        are_disjoint = abs(source_offset - target_offset) >= nbytes
        assert source is not target or are_disjoint, "the ranges of a copy do not overlap"
        self.records.append(("copy", nbytes))

        def run() -> None:
            target.data[target_offset : target_offset + nbytes] = source.data[source_offset : source_offset + nbytes]

        self._ask(run)

    def fill(self, buffer: FakeBuffer, offset: int, nbytes: int, byte: int) -> None:
        self._expect_range(buffer, offset, nbytes)
        self.records.append(("fill", nbytes))

        def run() -> None:
            buffer.data[offset : offset + nbytes] = byte

        self._ask(run)

    def adopt(self, array: Any) -> Adopted | None:
        return Adopted(array.buffer, array.offset, array.strides) if isinstance(array, FakeArray) else None

    # ------------------------------------------------------------------------------------ kernels

    def build(self, source: str, binary: bytes | None = None) -> FakeModule:
        self._expect_there()
        if binary is not None and binary != source.encode():
            raise KernelBuildError(f"{self.place}: a binary of another source")
        if binary is None:
            self.built += 1
        self.records.append(("build" if binary is None else "load", len(source)))
        kernels: dict[str, Kernel] = {}
        try:
            for part in re.split(r"^function ", source, flags=re.M)[1:]:
                name, _, text = part.partition("\n")
                kernels[name] = parse_kernel(text, OPS)
            if source and not kernels:
                raise KernelBuildError("no function")
        except RlxError as error:
            raise KernelBuildError(f"{self.place}: its compiler refuses the source", *error.facts) from error
        return FakeModule(kernels, source)

    def binary_of(self, module: FakeModule) -> bytes:
        return module.source.encode()

    def launch(
        self, module: FakeModule, name: str, groups: int, group_size: int, arguments: Sequence[Argument]
    ) -> FakeLaunch:
        assert 0 < group_size <= self.facts.group_size, f"{group_size} threads in a group"
        assert groups > 0, "a launch of nothing"
        launch = FakeLaunch(module.kernels[name], name, list(arguments))
        for number, argument in enumerate(arguments):
            self.set_argument(launch, number, argument)
        return launch

    def set_argument(self, launch: FakeLaunch, number: int, argument: Argument) -> None:
        if isinstance(argument, At):
            self._expect_range(argument.buffer, argument.offset, 1)
            assert not argument.buffer.is_apart, "what was allocated apart is passed whole"
        if isinstance(argument, Whole):
            assert argument.buffer.is_apart, "what is passed whole was allocated apart"
        self.records.append(("argument", number))
        launch.arguments[number] = argument

    def submit(self, launches: Sequence[FakeLaunch]) -> None:
        for launch in launches:
            if isinstance(launch, FakeRecording):
                self.records.append(("recording", len(launch.launches)))
                self._replay(launch)
                continue
            self.records.append(("launch", launch.name))
            arguments = tuple(launch.arguments)  # a copy of the current values: they may be set again before it runs

            def run(launch: FakeLaunch = launch, arguments: tuple[Argument, ...] = arguments) -> None:
                execute(launch.kernel, arguments)

            self._ask(run)
            if self.fails_at is not None:
                self.is_lost = self.fails_at <= 0
                self.fails_at -= 1

    def address(self, location: At) -> int:
        return location.buffer.address + location.offset

    def record(self, launches: Sequence[FakeLaunch]) -> FakeRecording:
        self.records.append(("record", len(launches)))
        return FakeRecording(tuple((each.kernel, tuple(each.arguments)) for each in launches))

    def _replay(self, recording: FakeRecording) -> None:
        for kernel, arguments in recording.launches:
            for argument in arguments:
                if isinstance(argument, At | Whole):
                    self._expect_range(argument.buffer, 0, 1)
            self._ask(partial(execute, kernel, arguments))

    def timed(self, launch: FakeLaunch) -> float:
        self.submit([launch])
        self.synchronize()
        return 1e-6

    def synchronize(self) -> None:
        self._expect_there()
        with self._lock:
            waiting, self._queue = self._queue, []
            for run in waiting:
                run()

    # ----------------------------------------------------------------------------------- checks

    @property
    def waiting(self) -> int:
        """The number of operations that are queued and not synchronised."""
        return len(self._queue)

    def count(self, what: str) -> int:
        """Return the number of calls of a kind."""
        return sum(word == what for word, _ in self.records)

    def _ask(self, run: Callable[[], None]) -> None:
        self._expect_there()
        with self._lock:
            self._queue.append(run)

    def _expect_there(self) -> None:
        if self.is_lost:
            raise DeviceLostError(f"{self.place}: the device does not answer any more")

    def _expect_range(self, buffer: FakeBuffer, offset: int, nbytes: int) -> None:
        self._expect_there()
        assert not buffer.is_free, "a freed buffer is used"
        assert 0 <= offset <= offset + nbytes <= buffer.data.size, f"bytes {offset} and on of {buffer.data.size}"


@frozen(eq=False)
class FakeArray:
    """An array of the fake device's own library, whose memory the device shares."""

    buffer: FakeBuffer
    offset: int
    shape: tuple[int, ...]
    dtype: np.dtype
    strides: tuple[int, ...] | None = None


def execute(kernel: Kernel, arguments: Sequence[Argument]) -> None:
    """Run a kernel on the bytes of its arguments' buffers; a fault goes to the words that follow them."""
    used = used_buffers(kernel)
    addresses: dict[int, At] = {}
    for number, argument in zip(used, arguments, strict=False):
        assert isinstance(argument, At), "buffers come first"
        addresses[number] = argument
    buffers = [addresses[i].buffer.data if i in addresses else None for i in range(len(kernel.buffers))]
    moved = evolve(
        kernel,
        values=tuple(
            evolve(v, offset=v.offset + addresses[v.buffer].offset) if isinstance(v, Load) else v for v in kernel.values
        ),
        stores=tuple(evolve(s, offset=s.offset + addresses[s.buffer].offset) for s in kernel.stores),
    )
    try:
        run_kernel(moved, buffers)
    except IndexRangeError:
        words, first = arguments[len(used) :]
        assert isinstance(words, Whole), "a kernel that reports has the words for faults"
        sites = words.buffer.data[: words.buffer.data.size // 4 * 4].view(np.uint32)
        for site, number in enumerate(checked(kernel), int(first)):  # type: ignore[arg-type]
            fault = outside_of(moved, number, buffers)
            if fault is not None:
                put_report(sites[site * SITE_WORDS : (site + 1) * SITE_WORDS], *fault)


def checked(kernel: Kernel) -> list[int]:
    """The values that are checked indices, each a site."""
    return [i for i, v in enumerate(kernel.values) if isinstance(v, Bound) and v.is_checked]


def used_buffers(kernel: Kernel) -> tuple[int, ...]:
    """The buffers that a kernel touches."""
    return tuple(sorted({a.buffer for a in kernel.accesses if isinstance(a, Load | Store)}))


class LoopLanguage(Language):
    """The loop language as a device language."""

    level = Level("fake", "the loop language, as the recording device reads it")
    identity = "loops 1"

    def refusal(self, op: Op, types: tuple[TensorType | None, ...]) -> str | None:
        formula = formula_of(op, types)
        if formula is None:
            return "a meaning that is one loop kernel"
        lacking = {term.dtype.name for term in formula.terms} & FACTS.unsupported
        return f"dtypes that the device has, not {' '.join(sorted(lacking))}" if lacking else None

    def lacking(self, dtype: DType) -> str | None:
        return f"{dtype}, which the device has not" if dtype.name in FACTS.unsupported else None

    def loop(self, kernel: Kernel) -> Emitted:
        text = print_kernel(kernel)
        name = f"k_{sha256(text)[:16]}"
        groups = -(-max(kernel.grid_size, 1) // 64)
        faults = tuple(fault_of(kernel, number) for number in checked(kernel))
        call = Call(name, groups, 64, used_buffers(kernel), faults)
        return Emitted((Function(name, text),), (call,))

    def module(self, functions: Sequence[Function]) -> str:
        return "".join(f"function {f.name}\n{f.text}" for f in functions)


class FakeBackend(DeviceBackend):
    """The target `fake`, with the devices that `fake_host` made."""

    name = "fake"
    # Weakly: caches of the interpreter keep classes (`inspect.getattr_static` of Python 3.12), which must keep no memory.
    maker: Callable[[], Fake | None] = staticmethod(lambda: None)

    def found(self, options: Mapping[str, Any]) -> Sequence[Device]:
        maker = self.maker()
        assert maker is not None, "whoever asks for devices has the host that made them"
        return maker.devices

    def language(self, device: Device) -> Language:
        return LoopLanguage()

    def is_poisoned(self, options: Mapping[str, Any]) -> bool:
        return bool(options.get("fake.poison"))


def fake_host(
    count: int = 2, *, facts: DeviceFacts = FACTS, is_lost: bool = False, drivers: list[FakeDriver] | None = None
) -> PluginHost:
    """Return a host with the target `fake` in addition to everything installed.

    Args:
        count: Its number of devices.
        facts: The facts of each of them.
        is_lost: Whether the first one does not answer.
        drivers: The list to which opened drivers are appended, in the order of opening.
    """

    # Programs are cached by the facts of their device, and these facts must be unique to this host.
    device_facts = evolve(facts, driver=f"{facts.driver}, host {next(_hosts)}")

    def opening(number: int) -> Callable[[], Driver]:
        def open() -> Driver:
            driver = FakeDriver(f"fake:{number}", device_facts, is_lost=is_lost and number == 0)
            if drivers is not None:
                drivers.append(driver)
            return driver

        return open

    devices = [Device(f"fake:{i}", device_facts, opening(i)) for i in range(count)]
    return PluginHost([*default_host().entries, given_entry(Fake(devices))])


@frozen(eq=False)
class Fake:
    """The plug-in of a host that `fake_host` made."""

    devices: Sequence[Device]

    @hookimpl
    def rlx_backends(self) -> list[BackendSpec]:
        backend = type("FakeBackend", (FakeBackend,), {"maker": weakref.ref(self)})
        return [BackendSpec("fake", backend, summary="A device that records what it is asked for.")]

    @hookimpl
    def rlx_options(self) -> list[OptionSpec]:
        return [OptionSpec("fake.poison", bool, False, doc="Whether memory nobody may read is full of NaN.")]
