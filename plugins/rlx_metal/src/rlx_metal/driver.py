"""The driver of one Metal device: a queue, and buffers in memory shared with the CPU.

Results are read and inputs are written in place; only writes while GPU commands are pending are staged and copied by the GPU.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import Metal
import numpy as np
import objc
from attrs import define, field

from rlx_core.device.driver import Argument, At, DeviceFacts, Driver
from rlx_core.errors import Fact, KernelBuildError, OutOfMemoryError
from rlx_core.system.locks import Lock
from rlx_metal.archives import Archives, pipeline_of
from rlx_metal.commands import Commands

MOST_ARGUMENTS: Final = 31
"""The maximum number of kernel arguments, buffers and scalars."""

_WORD: Final = 4
"""Offsets and sizes of a blit copy are multiples of this number of bytes, on macOS."""

_GROUP: Final = 256

_BYTES: Final = """
#include <metal_stdlib>
using namespace metal;
#define RLX_PLACE uint own [[thread_index_in_threadgroup]], uint group [[threadgroup_position_in_grid]]
kernel void rlx_copy_bytes(device const uchar* from [[buffer(0)]], device uchar* to [[buffer(1)]],
                           constant uint& count [[buffer(2)]], RLX_PLACE) {
  const uint i = group * 256u + own;
  if (i < count) { to[i] = from[i]; }
}
kernel void rlx_fill_bytes(device uchar* to [[buffer(0)]], constant uint& byte [[buffer(1)]],
                           constant uint& count [[buffer(2)]], RLX_PLACE) {
  const uint i = group * 256u + own;
  if (i < count) { to[i] = uchar(byte); }
}
"""
"""Kernels for copies and fills that are not whole words, for which Metal has no command."""


@define(eq=False)
class Module:
    """A compiled source, the archive that contains its pipelines, and the pipelines created so far."""

    library: Any
    archive: Any | None = None
    pipelines: dict[str, Any] = field(factory=dict)


@define(eq=False)
class MetalLaunch:
    """A pipeline with its arguments: memory as a buffer and a byte offset, scalars as their bytes."""

    pipeline: Any
    groups: Any
    threads: Any
    arguments: list[tuple[Any, int] | bytes]

    def encode(self, encoder: Any) -> None:
        encoder.setComputePipelineState_(self.pipeline)
        for number, argument in enumerate(self.arguments):
            if isinstance(argument, bytes):
                encoder.setBytes_length_atIndex_(argument, len(argument), number)
            else:
                encoder.setBuffer_offset_atIndex_(*argument, number)
        encoder.dispatchThreadgroups_threadsPerThreadgroup_(self.groups, self.threads)


class MetalDriver(Driver):
    """The driver of a Metal device.

    Attributes:
        device: The `MTLDevice`.
    """

    def __init__(self, device: Any, facts: DeviceFacts, number: int) -> None:
        self.device, self.facts, self._number = device, facts, number
        self.place = f"metal:{number}"
        self._lock = Lock(f"the queue of {self.place}")
        self._commands = Commands(self.place, device.newCommandQueue())
        self._archives = Archives(device, self.place)
        self._bytes = self.build(_BYTES)

    # ---------------------------------------------------------------------------------------- memory

    def allocate(self, nbytes: int) -> Any:
        buffer = self.device.newBufferWithLength_options_(nbytes, Metal.MTLResourceStorageModeShared)
        if buffer is None:
            raise OutOfMemoryError(f"{self.place}: the device has no memory left", Fact("asked for", f"{nbytes} bytes"))
        return buffer

    def free(self, buffer: Any) -> None:
        """Do nothing: buffers are reference-counted, and command buffers retain the buffers that they use."""

    def write(self, buffer: Any, offset: int, data: np.ndarray, *, waits: bool) -> None:
        raw = data.reshape(-1).view(np.uint8)
        with self._lock:
            if self._commands.is_idle:
                _memory(buffer)[offset : offset + raw.size] = raw
                return
            staged = self.allocate(raw.size)
            _memory(staged)[: raw.size] = raw
            self._copy(staged, 0, buffer, offset, raw.size)

    def read(self, buffer: Any, offset: int, into: np.ndarray) -> None:
        with self._lock:
            self._commands.wait()
            into.reshape(-1).view(np.uint8)[:] = _memory(buffer)[offset : offset + into.nbytes]

    def copy(self, source: Any, source_offset: int, target: Any, target_offset: int, nbytes: int) -> None:
        with self._lock:
            self._copy(source, source_offset, target, target_offset, nbytes)

    def fill(self, buffer: Any, offset: int, nbytes: int, byte: int) -> None:
        with self._lock:
            if offset % _WORD == 0 and nbytes % _WORD == 0:
                self._commands.blit().fillBuffer_range_value_(buffer, (offset, nbytes), byte)
                return
            arguments = (At(buffer, offset), np.uint32(byte), np.uint32(nbytes))
            self._launched("rlx_fill_bytes", nbytes, arguments)

    @property
    def dlpack_device(self) -> tuple[int, int]:
        return 8, self._number  # DLPack's number for Metal, which has no exporter

    # --------------------------------------------------------------------------------------- kernels

    def build(self, source: str, binary: bytes | None = None) -> Module:
        archive = None if binary is None else self._archives.read(binary)
        with objc.autorelease_pool():
            options = Metal.MTLCompileOptions.alloc().init()
            if options.respondsToSelector_("setMathMode:"):  # since macOS 15
                options.setMathMode_(Metal.MTLMathModeSafe)
            else:
                options.setFastMathEnabled_(False)
            library, error = self.device.newLibraryWithSource_options_error_(source, options, None)
        if library is None:
            raise KernelBuildError(
                f"{self.place}: its compiler refuses the source",
                Fact("compiler", str(error.localizedDescription())[:2000]),
                hint="the source is what `rlx compile --emit msl` prints",
            )
        return Module(library, archive)

    def binary_of(self, module: Module) -> bytes | None:
        written = self._archives.written(module.library)
        if written is None:
            return None
        module.archive, binary = written  # avoids compiling pipelines again
        return binary

    def launch(
        self, module: Module, name: str, groups: int, group_size: int, arguments: Sequence[Argument]
    ) -> MetalLaunch:
        if len(arguments) > MOST_ARGUMENTS:
            raise KernelBuildError(f"{self.place}: {name} has {len(arguments)} arguments, and Metal {MOST_ARGUMENTS}")
        pipeline = self._pipeline(module, name)
        limit = pipeline.maxTotalThreadsPerThreadgroup()
        if group_size > limit:
            raise KernelBuildError(
                f"{self.place}: {name} has groups of {group_size} threads, and registers for {limit}"
            )
        sizes = Metal.MTLSizeMake(groups, 1, 1), Metal.MTLSizeMake(group_size, 1, 1)
        return MetalLaunch(pipeline, *sizes, [_encoded(each) for each in arguments])

    def set_argument(self, launch: MetalLaunch, number: int, argument: Argument) -> None:
        launch.arguments[number] = _encoded(argument)

    def submit(self, launches: Sequence[MetalLaunch]) -> None:
        with self._lock:
            encoder = self._commands.compute()
            for each in launches:
                each.encode(encoder)
            self._commands.commit()

    def timed(self, launch: MetalLaunch) -> float:
        with self._lock:
            self._commands.wait()
            launch.encode(self._commands.compute())
            commands = self._commands.commit()
            self._commands.wait()
            return float(commands.GPUEndTime() - commands.GPUStartTime())

    def synchronize(self) -> None:
        with self._lock:
            self._commands.wait()

    # --------------------------------------------------------------------------------------- details

    def _pipeline(self, module: Module, name: str) -> Any:
        with self._lock, objc.autorelease_pool():
            if name not in module.pipelines:
                function = module.library.newFunctionWithName_(name)
                assert function is not None, f"{name} is a function of the module"
                pipeline, error = pipeline_of(self.device, function, module.archive)
                if pipeline is None:
                    fact = Fact("compiler", str(error.localizedDescription())[:2000])
                    raise KernelBuildError(f"{self.place}: its compiler refuses {name}", fact)
                module.pipelines[name] = pipeline
            return module.pipelines[name]

    def _copy(self, source: Any, source_offset: int, target: Any, target_offset: int, nbytes: int) -> None:
        if all(n % _WORD == 0 for n in (source_offset, target_offset, nbytes)):
            self._commands.blit().copyFromBuffer_sourceOffset_toBuffer_destinationOffset_size_(
                source, source_offset, target, target_offset, nbytes
            )
            return
        arguments = (At(source, source_offset), At(target, target_offset), np.uint32(nbytes))
        self._launched("rlx_copy_bytes", nbytes, arguments)

    def _launched(self, name: str, nbytes: int, arguments: Sequence[Argument]) -> None:
        """Encode a launch of one of the kernels in `_BYTES`, one thread per byte, after all earlier commands."""
        assert nbytes < 1 << 32, "what has more bytes is whole words"
        self.launch(self._bytes, name, -(-nbytes // _GROUP), _GROUP, arguments).encode(self._commands.compute())


def _encoded(argument: Argument) -> tuple[Any, int] | bytes:
    if isinstance(argument, np.generic):
        return argument.tobytes()
    return argument.buffer, argument.offset if isinstance(argument, At) else 0


def _memory(buffer: Any) -> np.ndarray:
    """Return a view of a buffer's bytes, which the CPU shares with the GPU."""
    return np.frombuffer(buffer.contents().as_buffer(buffer.length()), np.uint8)
