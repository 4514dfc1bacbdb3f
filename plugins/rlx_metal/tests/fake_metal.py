"""A module like PyObjC's `Metal`, whose one device runs kernels on the processor when somebody waits for them, and asserts what a
real one would crash on, or leave undefined: what is committed or encoded twice, touched too early, not aligned, or gone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
from attrs import define, field, frozen

from rlx_core.device.driver import At
from rlx_core.errors import KernelBuildError, OutOfMemoryError
from rlx_gpu.testing.shim.dialects import METAL_DIALECT
from rlx_gpu.testing.shim.driver import ShimBuffer, ShimDriver

__all__ = ["FakeDevice", "modules"]

NOT_ENQUEUED, COMMITTED, COMPLETED, ERROR = 0, 2, 4, 5
OUT_OF_MEMORY, INVALID = 8, 9
APPLE7 = 1007
MOST_ARGUMENTS = 31
ARCHIVE = "fake archive"


@frozen
class Size:
    width: int
    height: int
    depth: int


@frozen
class FakeError:
    text: str
    number: int = INVALID

    def localizedDescription(self) -> str:
        return self.text

    def code(self) -> int:
        return self.number


class FakeOptions:
    """How sources are compiled."""

    def __init__(self) -> None:
        self.is_safe = False
        self.knows_modes = True

    @classmethod
    def alloc(cls) -> type[FakeOptions]:
        return cls

    @classmethod
    def init(cls) -> FakeOptions:
        return cls()

    def respondsToSelector_(self, name: str) -> bool:
        assert name == "setMathMode:"
        return self.knows_modes

    def setMathMode_(self, mode: int) -> None:
        self.is_safe = mode == 0

    def setFastMathEnabled_(self, is_fast: bool) -> None:
        self.is_safe = not is_fast


@define(eq=False)
class FakeBuffer:
    """Memory that the processor shares; it lives as long as somebody has it."""

    device: FakeDevice
    memory: ShimBuffer
    nbytes: int

    def length(self) -> int:
        return self.nbytes

    def contents(self) -> FakeBuffer:
        waiting = [c for c in self.device.committed if self in c.used and c.state == COMMITTED]
        assert not waiting, "memory is touched that the GPU is still to work on"
        assert all(self not in c.used for c in self.device.begun), "memory is touched that commands are encoded for"
        return self

    def as_buffer(self, nbytes: int) -> memoryview:
        assert nbytes == self.nbytes
        return memoryview(self.memory.data)

    def __del__(self) -> None:
        self.device.driver.free(self.memory)


@define(eq=False)
class FakeEncoder:
    """An encoder of either kind; what it encodes is kept by its command buffer."""

    commands: FakeCommands
    is_ended: bool = False
    pipeline: FakePipeline | None = None
    arguments: dict[int, tuple[FakeBuffer, int] | bytes] = field(factory=dict)

    def endEncoding(self) -> None:
        self._expect_open()
        self.is_ended, self.commands.encoder = True, None

    def setComputePipelineState_(self, pipeline: FakePipeline) -> None:
        self._expect_open()
        self.pipeline = pipeline

    def setBuffer_offset_atIndex_(self, buffer: FakeBuffer, offset: int, index: int) -> None:
        self._expect_open()
        assert 0 <= index < MOST_ARGUMENTS
        assert 0 <= offset < buffer.nbytes, f"byte {offset} of {buffer.nbytes}"
        self.arguments[index] = buffer, offset

    def setBytes_length_atIndex_(self, raw: bytes, nbytes: int, index: int) -> None:
        self._expect_open()
        assert 0 <= index < MOST_ARGUMENTS
        assert len(raw) == nbytes <= 4096
        self.arguments[index] = raw

    def dispatchThreadgroups_threadsPerThreadgroup_(self, groups: Size, threads: Size) -> None:
        self._expect_open()
        assert self.pipeline is not None, "a pipeline is set before a dispatch"
        assert groups.width > 0
        assert threads.width <= self.pipeline.maxTotalThreadsPerThreadgroup()
        module, name, driver = self.pipeline.module, self.pipeline.name, self.commands.device.driver
        given = [self.arguments[i] for i in range(len(self.arguments))]
        used = [g[0] for g in given if not isinstance(g, bytes)]
        passed = [np.frombuffer(g, np.uint32)[0] if isinstance(g, bytes) else At(g[0].memory, g[1]) for g in given]
        launch = driver.launch(module, name, groups.width, threads.width, passed)
        self.commands.add(lambda: driver.submit([launch]), *used)
        self.arguments = {}

    def copyFromBuffer_sourceOffset_toBuffer_destinationOffset_size_(
        self, source: FakeBuffer, start: int, target: FakeBuffer, to: int, nbytes: int
    ) -> None:
        self._expect_open()
        assert start % 4 == to % 4 == nbytes % 4 == 0, "macOS copies whole words"
        assert nbytes > 0
        driver = self.commands.device.driver
        self.commands.add(lambda: driver.copy(source.memory, start, target.memory, to, nbytes), source, target)

    def fillBuffer_range_value_(self, buffer: FakeBuffer, where: tuple[int, int], byte: int) -> None:
        self._expect_open()
        start, nbytes = where
        assert start % 4 == nbytes % 4 == 0, "macOS fills whole words"
        driver = self.commands.device.driver
        self.commands.add(lambda: driver.fill(buffer.memory, start, nbytes, byte), buffer)

    def _expect_open(self) -> None:
        assert not self.is_ended, "an encoder is used after its end"
        assert self.commands.encoder is self, "a command buffer has one encoder at a time"


@define(eq=False)
class FakeCommands:
    """A command buffer."""

    device: FakeDevice
    state: int = NOT_ENQUEUED
    encoder: FakeEncoder | None = None
    work: list[Callable[[], None]] = field(factory=list)
    used: list[FakeBuffer] = field(factory=list)
    failure: FakeError | None = None

    def computeCommandEncoder(self) -> FakeEncoder:
        return self._begin()

    blitCommandEncoder = computeCommandEncoder

    def commit(self) -> None:
        assert self.state == NOT_ENQUEUED, "a command buffer is committed once"
        assert self.encoder is None, "a command buffer is committed after the end of its encoder"
        assert self.work, "an empty command buffer"
        self.state, self.failure = COMMITTED, self.device.next_failure
        self.device.next_failure = None
        self.device.begun.remove(self)
        self.device.committed.append(self)

    def waitUntilCompleted(self) -> None:
        assert self.state != NOT_ENQUEUED, "nobody waits for what was not committed"
        while self.state == COMMITTED:
            self.device.committed[0].finish()

    def finish(self) -> None:
        self.device.committed.remove(self)
        if self.failure is None:
            for run in self.work:
                run()
        self.state = COMPLETED if self.failure is None else ERROR
        self.work, self.used = [], []

    def status(self) -> int:
        return self.state

    def error(self) -> FakeError | None:
        return self.failure

    def GPUStartTime(self) -> float:
        assert self.state >= COMPLETED
        return 1.0

    def GPUEndTime(self) -> float:
        assert self.state >= COMPLETED
        return 1.25

    def add(self, run: Callable[[], None], *used: FakeBuffer) -> None:
        self.work.append(run)
        self.used += used

    def _begin(self) -> FakeEncoder:
        assert self.state == NOT_ENQUEUED, "a command buffer is written before it is committed"
        assert self.encoder is None, "a command buffer has one encoder at a time"
        self.encoder = FakeEncoder(self)
        return self.encoder


@frozen(eq=False)
class FakeQueue:
    device: FakeDevice

    def commandBuffer(self) -> FakeCommands:
        made = FakeCommands(self.device)
        self.device.begun.append(made)
        self.device.command_buffers += 1
        return made


class FakeDescriptor:
    """How an archive is opened, or a pipeline is made."""

    def __init__(self) -> None:
        self.path: str | None = None
        self.function: tuple[Any, str] | None = None
        self.archives: list[FakeArchive] = []

    @classmethod
    def alloc(cls) -> type[FakeDescriptor]:
        return cls

    @classmethod
    def init(cls) -> FakeDescriptor:
        return cls()

    def setUrl_(self, path: str) -> None:
        self.path = path

    def setComputeFunction_(self, function: tuple[Any, str]) -> None:
        self.function = function

    def setBinaryArchives_(self, archives: list[FakeArchive]) -> None:
        self.archives = archives


@define(eq=False)
class FakeArchive:
    """An archive: the names of functions, which its file has a line each."""

    device: FakeDevice
    names: list[str]

    def addComputePipelineFunctionsWithDescriptor_error_(self, made: FakeDescriptor, error: None) -> tuple[bool, Any]:
        assert made.function is not None
        if not self.device.keeps_pipelines:
            return False, FakeError("archives are not supported")
        self.names.append(made.function[1])
        self.device.compiled.append(made.function[1])
        return True, None

    def serializeToURL_error_(self, path: str, error: None) -> tuple[bool, Any]:
        assert self.names, "an archive of nothing"
        assert not Path(path).exists()
        assert Path(path).parent.stat().st_mode & 0o077 == 0, "others could put something else there"
        Path(path).write_text("\n".join([ARCHIVE, *self.names]))
        return True, None


@frozen(eq=False)
class FakePipeline:
    module: Any
    name: str
    most: int

    def maxTotalThreadsPerThreadgroup(self) -> int:
        return self.most


@frozen(eq=False)
class FakeLibrary:
    module: Any

    names: list[str]

    def functionNames(self) -> list[str]:
        return self.names

    def newFunctionWithName_(self, name: str) -> tuple[Any, str]:
        assert name in self.names
        return self.module, name


@define(eq=False)
class FakeDevice:
    """The device.

    Attributes:
        committed: Command buffers that nobody waited for.
        begun: Those that are being written.
        command_buffers: How many there were.
        next_failure: What becomes of the next one that is committed.
        most_threads: What pipelines say of their registers.
        has_memory: Whether buffers can be made.
        keeps_pipelines: Whether archives can be made.
        compiled: The functions of which pipelines were made, and not found in an archive.
    """

    driver: ShimDriver = field(factory=lambda: ShimDriver(METAL_DIALECT, "fake"))
    committed: list[FakeCommands] = field(factory=list)
    begun: list[FakeCommands] = field(factory=list)
    command_buffers: int = 0
    next_failure: FakeError | None = None
    most_threads: int = 1024
    has_memory: bool = True
    keeps_pipelines: bool = True
    compiled: list[str] = field(factory=list)

    def name(self) -> str:
        return "Apple Fake"

    def registryID(self) -> int:
        return id(self)

    def maxBufferLength(self) -> int:
        return 1 << 30

    def recommendedMaxWorkingSetSize(self) -> int:
        return 1 << 31

    def maxThreadsPerThreadgroup(self) -> Size:
        return Size(1024, 1024, 1024)

    def maxThreadgroupMemoryLength(self) -> int:
        return 32 << 10

    def supportsFamily_(self, family: int) -> bool:
        return family == APPLE7

    def newCommandQueue(self) -> FakeQueue:
        return FakeQueue(self)

    def newBufferWithLength_options_(self, nbytes: int, options: int) -> FakeBuffer | None:
        assert options == 0, "the processor shares it"
        try:
            return FakeBuffer(self, self.driver.allocate(nbytes), nbytes) if self.has_memory else None
        except OutOfMemoryError:
            return None

    def newLibraryWithSource_options_error_(self, source: str, options: FakeOptions, error: None) -> tuple[Any, Any]:
        assert options.is_safe, "floats are what they are"
        try:
            return FakeLibrary(built(self.driver, source), list(METAL_DIALECT.as_cpp(source)[1])), None
        except KernelBuildError as refused:
            return None, FakeError(str(refused))

    def newBinaryArchiveWithDescriptor_error_(self, made: FakeDescriptor, error: None) -> tuple[Any, Any]:
        if made.path is None:
            return FakeArchive(self, []), None
        first, *names = Path(made.path).read_bytes().decode("utf-8", "replace").split("\n")
        return (FakeArchive(self, names), None) if first == ARCHIVE else (None, FakeError("invalid file"))

    def newComputePipelineStateWithDescriptor_options_reflection_error_(
        self, made: FakeDescriptor, options: int, reflection: None, error: None
    ) -> tuple[Any, Any]:
        assert made.function is not None
        assert options == 0
        if not any(made.function[1] in archive.names for archive in made.archives):
            self.compiled.append(made.function[1])
        return FakePipeline(*made.function, self.most_threads), None


def built(driver: ShimDriver, source: str) -> Any:
    """A module, which is compiled once for all devices."""
    if source not in _BUILT:
        _BUILT[source] = driver.build(source)
    return _BUILT[source]


_BUILT: dict[str, Any] = {}


@contextmanager
def autorelease_pool() -> Iterator[None]:
    yield


def modules(device: FakeDevice | None) -> dict[str, ModuleType]:
    """The modules `Metal`, `objc` and `Foundation` of a system with this device, or with none."""
    metal, objc, foundation = ModuleType("Metal"), ModuleType("objc"), ModuleType("Foundation")
    metal.__dict__.update(
        MTLCreateSystemDefaultDevice=lambda: device,
        MTLCopyAllDevices=lambda: [] if device is None else [device],
        MTLCompileOptions=FakeOptions,
        MTLBinaryArchiveDescriptor=FakeDescriptor,
        MTLComputePipelineDescriptor=FakeDescriptor,
        MTLMathModeSafe=0,
        MTLResourceStorageModeShared=0,
        MTLCommandBufferStatusCompleted=COMPLETED,
        MTLCommandBufferStatusError=ERROR,
        MTLCommandBufferErrorOutOfMemory=OUT_OF_MEMORY,
        MTLGPUFamilyApple7=APPLE7,
        MTLSizeMake=Size,
    )
    objc.__dict__.update(autorelease_pool=autorelease_pool)
    foundation.__dict__.update(
        NSURL=SimpleNamespace(fileURLWithPath_=lambda path: path),
        NSProcessInfo=SimpleNamespace(
            processInfo=lambda: SimpleNamespace(operatingSystemVersionString=lambda: "Version 15.1 (Build 24B83)")
        ),
    )
    return {"Metal": metal, "objc": objc, "Foundation": foundation}
