"""The driver of one WebGPU device: memory in one heap, pipelines created with the module, and one submission for many launches.

wgpu-native raises an error for almost every invalid call, but aborts the process for an invalid submission: of a command buffer
that was submitted before, with a destroyed buffer, or to a lost device. Command buffers are therefore recorded and submitted in
one function that first checks whether the device is lost, and no resource is destroyed explicitly.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from time import perf_counter
from typing import Final

import numpy as np
import wgpu
from attrs import define, field, frozen

from rlx_core.device.driver import Argument, At, DeviceFacts, Driver, Whole
from rlx_core.errors import DeviceError, DeviceLostError, Fact, KernelBuildError, OutOfMemoryError
from rlx_core.system.locks import Lock
from rlx_gpu.codegen.wgsl import segmented
from rlx_wgpu.copies import COPY, COPY_GROUP, COPY_GROUPS
from rlx_wgpu.heap import USAGE, Heap, Piece, Room
from rlx_wgpu.limits import limits_of

_ENTRY: Final = re.compile(r"@compute\b[^{]*?\bfn\s+(\w+)")

_WORD: Final = 4
"""The alignment of WebGPU's buffer copies, in bytes."""


MOST_STAGED: Final = 64 << 20
"""The maximum number of bytes written between synchronisations: wgpu keeps a copy of each write until the next one."""


@frozen(eq=False)
class Module:
    """A source with its shader modules by segment count, and its pipelines by function and segment count.

    Variants for several segments are built on demand.
    """

    source: str
    shaders: dict[int, wgpu.GPUShaderModule] = field(factory=dict)
    pipelines: dict[tuple[str, int], wgpu.GPUComputePipeline] = field(factory=dict)


@define(eq=False)
class WgpuLaunch:
    """A kernel function with its arguments.

    Attributes:
        rooms: The arguments in the heap by argument number, each with its byte offset.
        places: The uniform's words: a 0, the address of each argument in the heap, and the index of the first word in the status
            buffer.
        uniform: The device buffer of `places`.
        status: The status buffer for fault records; an unused buffer if the kernel reports none.
        is_written: Whether `uniform` is up to date with `places`.
        segments: The segments that contain the arguments.
        pipeline: The pipeline for this number of segments.
        group: The heap's bound buffers, and the bind group; recreated when one of the buffers has grown.
    """

    module: Module
    name: str
    groups: int
    places: np.ndarray
    uniform: wgpu.GPUBuffer
    status: wgpu.GPUBuffer
    rooms: dict[int, At] = field(factory=dict)
    is_written: bool = False
    segments: tuple[int, ...] = ()
    pipeline: wgpu.GPUComputePipeline | None = None
    group: tuple[list[wgpu.GPUBuffer], wgpu.GPUBindGroup] | None = None


class WgpuDriver(Driver):
    """The driver of a WebGPU device.

    Attributes:
        device: The `wgpu.GPUDevice`.
    """

    def __init__(self, adapter: wgpu.GPUAdapter, facts: DeviceFacts, number: int) -> None:
        self.facts = facts
        self.place = f"wgpu:{number}"
        self._limits = limits_of(adapter)
        self._lock = Lock(f"the queue of {self.place}")
        self._staged = 0  # bytes written since the last synchronisation, of which wgpu still has copies
        with self._translated():
            self.device = adapter.request_device_sync(
                required_limits=self._limits.requested, required_features=sorted(facts.features)
            )
            self._heap = Heap(self.device, self._limits.segment_nbytes, self._limits.segments, self.place)
            self._nothing = self.device.create_buffer(size=256, usage=USAGE)
            self._layouts: dict[int, tuple[wgpu.GPUBindGroupLayout, wgpu.GPUPipelineLayout]] = {}
            in_heap, dedicated = At(Room(0, 256), 0), Whole(Room(0, 256, self._nothing))
            self._copy = self.launch(
                self.build(COPY), "rlx_copy", COPY_GROUPS, COPY_GROUP, (in_heap, in_heap, dedicated, np.uint32(0))
            )

    # ---------------------------------------------------------------------------------------- memory

    def allocate(self, nbytes: int) -> Room:
        with self._lock, self._translated():
            return self._heap.take(_up(nbytes, self.facts.alignment))

    def allocate_apart(self, nbytes: int) -> Room:
        size = _up(nbytes, self.facts.alignment)
        with self._translated():
            return Room(0, size, self.device.create_buffer(size=size, usage=USAGE))

    def free(self, buffer: Room) -> None:
        if buffer.dedicated is None:
            with self._lock:
                self._heap.give_back(buffer)

    def write(self, buffer: Room, offset: int, data: np.ndarray, *, waits: bool) -> None:
        self._expect_range(buffer, offset, data.nbytes)
        raw = data.reshape(-1).view(np.uint8)
        with self._lock, self._translated():
            if offset % _WORD == 0 and raw.size % _WORD == 0:
                self._write_words(buffer, offset, raw)
                return
            padded = np.zeros(_up(raw.size, _WORD), np.uint8)
            padded[: raw.size] = raw
            staged = self._heap.take(_up(padded.size, self.facts.alignment))
            self._write_words(staged, 0, padded)
            self._copy_in_heap(At(staged, 0), At(buffer, offset), raw.size)
            self._heap.give_back(staged)  # safe before the copy has run: later writes are ordered after it

    def read(self, buffer: Room, offset: int, into: np.ndarray) -> None:
        self._expect_range(buffer, offset, into.nbytes)
        first, end = offset // _WORD * _WORD, _up(offset + into.nbytes, _WORD)
        with self._lock, self._translated():
            parts = [self.device.queue.read_buffer(*piece[:3]) for piece in self._pieces(buffer, first, end - first)]
            self._staged = 0
        staged = (
            np.concatenate([np.frombuffer(part, np.uint8) for part in parts])
            if len(parts) > 1
            else np.frombuffer(parts[0], np.uint8)
        )
        into.reshape(-1).view(np.uint8)[:] = staged[offset - first :][: into.nbytes]

    def copy(self, source: Room, source_offset: int, target: Room, target_offset: int, nbytes: int) -> None:
        self._expect_range(source, source_offset, nbytes)
        self._expect_range(target, target_offset, nbytes)
        with self._lock, self._translated():
            if source.dedicated is None and target.dedicated is None:
                self._copy_in_heap(At(source, source_offset), At(target, target_offset), nbytes)
                return
            (read,) = self._pieces(source, source_offset, nbytes)
            (written,) = self._pieces(target, target_offset, nbytes)

            def copied(encoder: wgpu.GPUCommandEncoder) -> None:
                encoder.copy_buffer_to_buffer(read.buffer, read.start, written.buffer, written.start, nbytes)

            self._submit(copied)

    def fill(self, buffer: Room, offset: int, nbytes: int, byte: int) -> None:
        self.write(buffer, offset, np.full(nbytes, byte, np.uint8), waits=False)

    # --------------------------------------------------------------------------------------- kernels

    def build(self, source: str, binary: bytes | None = None) -> Module:
        module = Module(source)
        with self._compiling():
            module.shaders[1] = self.device.create_shader_module(code=source)
        for name in _ENTRY.findall(source):
            self._pipeline(module, name, 1)
        return module

    def _pipeline(self, module: Module, name: str, segments: int) -> wgpu.GPUComputePipeline:
        """Return the pipeline of a function for memory in `segments` segments."""
        pipeline = module.pipelines.get((name, segments))
        if pipeline is not None:
            return pipeline
        with self._compiling():
            if segments not in module.shaders:
                source = segmented(module.source, segments, self._limits.segment_nbytes)
                module.shaders[segments] = self.device.create_shader_module(code=source)
            pipeline = self.device.create_compute_pipeline(
                layout=self._layout(segments)[1],
                compute={"module": module.shaders[segments], "entry_point": name},
            )
        return module.pipelines.setdefault((name, segments), pipeline)

    @contextmanager
    def _compiling(self) -> Iterator[None]:
        """Translate compiler errors to rlx errors."""
        try:
            yield
        except (wgpu.GPUValidationError, wgpu.GPUPipelineError, wgpu.GPUInternalError) as error:
            if _is_of_lost_device(error):
                raise self._lost(error) from None
            raise KernelBuildError(
                f"{self.place}: its compiler refuses the source",
                Fact("compiler", str(error).strip()[-2000:]),
                hint="the source is what `rlx compile --emit wgsl` prints",
            ) from None

    def launch(
        self, module: Module, name: str, groups: int, group_size: int, arguments: Sequence[Argument]
    ) -> WgpuLaunch:
        assert 0 < groups <= self._limits.groups, f"{groups} groups in one launch"
        assert 0 < group_size <= self._limits.group_size, f"{group_size} threads in a group"
        count = _up(len(arguments) + 2, 4)
        with self._translated():
            uniform = self.device.create_buffer(
                size=4 * count, usage=wgpu.BufferUsage.UNIFORM | wgpu.BufferUsage.COPY_DST
            )
        result = WgpuLaunch(module, name, groups, np.zeros(count, np.uint32), uniform, self._nothing)
        for number, argument in enumerate(arguments):
            self.set_argument(result, number, argument)
        return result

    def set_argument(self, launch: WgpuLaunch, number: int, argument: Argument) -> None:
        if isinstance(argument, Whole):
            assert argument.buffer.dedicated is not None, "the words for faults lie apart"
            launch.status, launch.group = argument.buffer.dedicated, None
            return
        if isinstance(argument, At):
            self._expect_range(argument.buffer, argument.offset, 1)
            assert argument.buffer.dedicated is None, "a kernel has one binding for what is in the heap"
            launch.rooms[number] = argument
            launch.pipeline = None
        else:
            launch.places[number] = argument  # its index is 1 lower: the status buffer before it has no word
        launch.is_written = False

    def submit(self, launches: Sequence[WgpuLaunch]) -> None:
        with self._lock, self._translated():
            for each in launches:
                self._ready(each)

            def launched(encoder: wgpu.GPUCommandEncoder) -> None:
                commands = encoder.begin_compute_pass()
                for each in launches:
                    assert each.pipeline is not None, "it was made ready"
                    assert each.group is not None, "with its pipeline"
                    commands.set_pipeline(each.pipeline)
                    commands.set_bind_group(0, each.group[1])
                    commands.dispatch_workgroups(each.groups)
                commands.end()

            self._submit(launched)

    def timed(self, launch: WgpuLaunch) -> float:
        """Return the seconds by the host's clock on an idle device: WebGPU's timestamps are optional and have no unit."""
        self.synchronize()
        start = perf_counter()
        self.submit([launch])
        self.synchronize()
        return perf_counter() - start

    def synchronize(self) -> None:
        with self._lock, self._translated():
            self._wait()

    # --------------------------------------------------------------------------------------- details

    def _layout(self, segments: int) -> tuple[wgpu.GPUBindGroupLayout, wgpu.GPUPipelineLayout]:
        """Return the binding layout of all kernels: a heap segment, the uniform, the status buffer, and the other segments."""
        if segments not in self._layouts:
            kind = wgpu.BufferBindingType
            kinds = (kind.storage, kind.uniform, *[kind.storage] * segments)
            entries = [
                {"binding": number, "visibility": wgpu.ShaderStage.COMPUTE, "buffer": {"type": each}}
                for number, each in enumerate(kinds)
            ]
            layout = self.device.create_bind_group_layout(entries=entries)
            self._layouts[segments] = layout, self.device.create_pipeline_layout(bind_group_layouts=[layout])
        return self._layouts[segments]

    def _pieces(self, allocation: Room, offset: int, nbytes: int) -> Iterator[Piece]:
        if allocation.dedicated is None:
            return self._heap.pieces(allocation.start + offset, nbytes)
        return iter([Piece(allocation.dedicated, offset, nbytes, 0)])

    def _write_words(self, allocation: Room, offset: int, raw: np.ndarray) -> None:
        for buffer, start, nbytes, before in self._pieces(allocation, offset, raw.size):
            self.device.queue.write_buffer(buffer, start, raw[before : before + nbytes])
        self._staged += raw.size
        if self._staged > MOST_STAGED:
            self._wait()

    def _wait(self) -> None:
        """Wait for all submissions, after which wgpu frees its copies of written data."""
        self.device.queue.read_buffer(self._nothing, 0, _WORD)
        self._staged = 0

    def _copy_in_heap(self, source: At, target: At, nbytes: int) -> None:
        self.set_argument(self._copy, 0, source)
        self.set_argument(self._copy, 1, target)
        self.set_argument(self._copy, 3, np.uint32(nbytes))  # follows the status buffer
        self.submit([self._copy])

    def _ready(self, launch: WgpuLaunch) -> None:
        """Prepare a launch for submission: select its pipeline, write its uniform, and create its bind group."""
        heap = self._heap
        if launch.pipeline is None:
            touched = {segment for each in launch.rooms.values() for segment in heap.segments_of(each.buffer)}
            segments = launch.segments = tuple(sorted(touched)) or (0,)
            for number, (allocation, offset) in launch.rooms.items():
                segment, start = divmod(allocation.start + offset, heap.segment)
                launch.places[number + 1] = segments.index(segment) * heap.segment + start
            launch.pipeline = self._pipeline(launch.module, launch.name, len(segments))
            launch.group, launch.is_written = None, False
        if not launch.is_written:
            self.device.queue.write_buffer(launch.uniform, 0, launch.places)
            launch.is_written = True
        memory = [heap.buffers[segment] for segment in launch.segments]
        if launch.group is None or launch.group[0] != memory:
            bound = (memory[0], launch.uniform, launch.status, *memory[1:])
            entries = [
                {"binding": number, "resource": {"buffer": each, "offset": 0, "size": each.size}}
                for number, each in enumerate(bound)
            ]
            layout, _ = self._layout(len(memory))
            launch.group = memory, self.device.create_bind_group(layout=layout, entries=entries)

    def _submit(self, recorded: Callable[[wgpu.GPUCommandEncoder], None]) -> None:
        """Record commands and submit them, once."""
        encoder = self.device.create_command_encoder()
        recorded(encoder)
        commands = encoder.finish()
        # This write raises an error if the device is lost; the submission would abort the process.
        self.device.queue.write_buffer(self._nothing, 0, bytes(_WORD))
        self.device.queue.submit([commands])

    def _expect_range(self, allocation: Room, offset: int, nbytes: int) -> None:
        assert 0 <= offset <= offset + nbytes <= allocation.nbytes, (
            f"bytes {offset} and {nbytes} on, of {allocation.nbytes}"
        )

    @contextmanager
    def _translated(self) -> Iterator[None]:
        """Translate wgpu errors to rlx errors."""
        try:
            yield
        except wgpu.GPUOutOfMemoryError as error:
            raise OutOfMemoryError(f"{self.place}: the device has no memory left", Fact("driver", error)) from None
        except (wgpu.GPUError, RuntimeError) as error:
            if isinstance(error, wgpu.GPUValidationError) and not _is_of_lost_device(error):
                raise DeviceError(f"{self.place}: wgpu refuses a call of rlx's", Fact("wgpu", error)) from None
            raise self._lost(error) from None

    def _lost(self, error: Exception) -> DeviceLostError:
        return DeviceLostError(f"{self.place}: the device does not answer any more", Fact("driver", error))


def _is_of_lost_device(error: Exception) -> bool:
    return "device is lost" in str(error)


def _up(nbytes: int, multiple: int) -> int:
    return -(-nbytes // multiple) * multiple
