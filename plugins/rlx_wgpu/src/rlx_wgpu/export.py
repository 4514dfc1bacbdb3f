"""Export of a compiled program for browsers: one JSON with bindings and launches, and one binary with the memory's contents.

The program runs once on a device that only records the driver's calls. The files therefore contain all device commands of the
program, and neither this module nor the loader (`examples/browser/rlx.js`) depends on the format of plans.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
from attrs import define, field, frozen

from rlx_core.codegen.faults import SITE_WORDS
from rlx_core.device.device import Device
from rlx_core.device.driver import Argument, At, DeviceFacts, Driver, Whole
from rlx_core.emit.code import compile_plan
from rlx_core.emit.program import device_program
from rlx_core.emit.steps import emissions
from rlx_core.errors import ConfigError, Fact, FormatError
from rlx_core.ir.dtypes import dtype
from rlx_core.run.device_memory import aligned
from rlx_core.run.parts import is_empty
from rlx_core.runtime.bound import prepared_on_host
from rlx_core.runtime.compiled_function import CompiledFunction
from rlx_core.runtime.executable import Executable
from rlx_wgpu.backend import WgpuBackend

FORMAT: Final = "rlx-webgpu-1"
"""The version of the format, changed with every incompatible change."""


def export(program: CompiledFunction[..., Any] | Executable, folder: Path | str) -> tuple[Path, Path]:
    """Write `program.json` and `program.bin`.

    The JSON has `format`, `name`; `heap` and `status`, the sizes of the two buffers in bytes; `contents`, the initial contents of
    the heap as ranges of the binary with their heap offsets; `inputs` and `outputs` with name, dtype, shape and heap offset;
    `sources` in WGSL; and `steps`, each with its source, its function, the number of groups, and the words of its uniform. In
    `status`, each of the `faults` has `faultWords` words, in the format of `rlx_core.codegen.faults`.

    Args:
        program: A program compiled for `wgpu`, or for `wgpu:absent` without a device, with static sizes and bound parameters.
        folder: The output folder, created if it does not exist.

    Raises:
        ConfigError: The program is compiled for another target, or has dynamic sizes.
        FormatError: A step runs on the host, an output is only a view of something, or an array has no elements.

    >>> export(rlx.compile(predict, params, rlx.spec("f32[1, 64]"), target="wgpu:absent"), "site")   # doctest: +SKIP
    """
    executable = program.executable if isinstance(program, CompiledFunction) else program
    lir, target = executable.lir, executable.report.device
    if target is None or target.name != "wgpu":
        raise ConfigError(
            f"export: the program is for {lir.target}, and browsers run WGSL", hint='target="wgpu:absent"'
        )
    if lir.graph.symbols:
        sizes = ", ".join(sorted(map(str, lir.graph.symbols)))
        raise ConfigError(f"export: {sizes} are not known", hint="compile it for specs with numbers")
    emitted = emissions(lir, target.kernels)
    on_host = [s for n, s in enumerate(lir.steps) if n not in emitted.steps and not is_empty(s)]
    if on_host:
        raise FormatError(f"export: {on_host[0].kernel} runs on the host", Fact("node", on_host[0].node.label))
    backend = WgpuBackend()
    inputs = [np.zeros(e.type.static_shape, e.type.dtype.numpy) for e in lir.manifest.inputs]
    recorder = _Recorder(backend.usual, {id(x): None for x in inputs})
    device = Device("wgpu:export", backend.usual, lambda: recorder)
    code = compile_plan(lir, device, target.kernels, backend.language(device))
    built = device_program(lir, device, target.kernels, code)
    built.bind(prepared_on_host(lir, executable.weights))
    results = built.run(inputs)

    if any(x.size == 0 for x in (*inputs, *results)):
        raise FormatError("export: an input or an output has no elements", Fact("program", lir.graph.name))
    written = [(e.name, x, recorder.places[id(x)]) for e, x in zip(lir.manifest.inputs, inputs, strict=True)]
    outputs = zip((e.name for e in lir.manifest.outputs), results, recorder.outputs, strict=True)
    form = {
        "format": FORMAT,
        "name": executable.report.name,
        "heap": recorder.heap,
        "status": recorder.status,
        "contents": recorder.contents,
        "inputs": [_array(name, x, place) for name, x, place in written if place is not None],
        "outputs": [_output(name, x, place, nbytes) for name, x, (place, nbytes) in outputs],
        "faultWords": SITE_WORDS,
        "faults": [
            {"message": fault.message, "where": repr(lir.steps[number].node.origin.source)}
            for number, each in emitted.steps.items()
            for call in each.calls
            for fault in call.faults
        ],
        "sources": recorder.sources,
        "steps": [each.form for each in recorder.steps],
    }
    base = Path(folder)
    base.mkdir(parents=True, exist_ok=True)
    files = base / "program.json", base / "program.bin"
    files[0].write_text(json.dumps(form), encoding="utf-8")
    files[1].write_bytes(b"".join(recorder.binary))
    return files


def _array(name: str, array: np.ndarray, place: int) -> dict[str, Any]:
    return {"name": name, "dtype": dtype(array.dtype).name, "shape": list(array.shape), "offset": place}


def _output(name: str, array: np.ndarray, place: int, nbytes: int) -> dict[str, Any]:
    if nbytes != array.nbytes or not array.flags.c_contiguous:
        raise FormatError(
            f"export: {name} is a view of {nbytes} bytes in steps", hint="return a copy: rlx.asarray(x, copy=True)"
        )
    return _array(name, array, place)


@frozen(eq=False)
class _Memory:
    """Bytes of the heap, or the whole status buffer."""

    start: int
    is_apart: bool = False


@define(eq=False)
class _Launch:
    """A launch of one kernel function."""

    source: int
    entry: str
    groups: int
    places: dict[int, int] = field(factory=dict)

    @property
    def form(self) -> dict[str, Any]:
        words = [self.places.get(n, 0) for n in range(-(-(max(self.places, default=0) + 1) // 4) * 4)]
        return {"source": self.source, "entry": self.entry, "groups": self.groups, "places": words}


@define(eq=False)
class _Recorder(Driver):
    """A driver that records its calls.

    Attributes:
        places: Heap offset of each input, by the identity of its array; all other written data is recorded in `contents`.
        outputs: Heap offset and number of bytes of each read, in order.
    """

    facts: DeviceFacts
    places: dict[int, int | None]
    heap: int = 0
    status: int = 0
    sources: list[str] = field(factory=list)
    steps: list[_Launch] = field(factory=list)
    contents: list[dict[str, int]] = field(factory=list)
    binary: list[bytes] = field(factory=list)
    outputs: list[tuple[int, int]] = field(factory=list)

    def allocate(self, nbytes: int) -> _Memory:
        start = self.heap
        self.heap += aligned(nbytes, self.facts.alignment)
        return _Memory(start)

    def allocate_apart(self, nbytes: int) -> _Memory:
        assert self.status == 0, "a program has one frame, which has one buffer for faults"
        self.status = nbytes
        return _Memory(0, is_apart=True)

    def free(self, buffer: _Memory) -> None:
        """Do nothing: memory is not reused, because its contents are part of the files."""

    def write(self, buffer: _Memory, offset: int, data: np.ndarray, *, waits: bool) -> None:
        place = buffer.start + offset
        if id(data) in self.places:
            self.places[id(data)] = place
            return
        raw = data.tobytes()
        self.contents.append({"from": sum(map(len, self.binary)), "nbytes": len(raw), "offset": place})
        self.binary.append(raw + bytes(-len(raw) % 4))

    def read(self, buffer: _Memory, offset: int, into: np.ndarray) -> None:
        into.view(np.uint8)[:] = 0xFF if buffer.is_apart else 0  # no faults
        if not buffer.is_apart:
            self.outputs.append((buffer.start + offset, into.nbytes))

    def copy(self, source: _Memory, source_offset: int, target: _Memory, target_offset: int, nbytes: int) -> None:
        raise AssertionError("a run from the host to the host copies nothing on the device")

    def fill(self, buffer: _Memory, offset: int, nbytes: int, byte: int) -> None:
        assert buffer.is_apart, "only words for faults are filled"

    def build(self, source: str, binary: bytes | None = None) -> int:
        self.sources.append(source)
        return len(self.sources) - 1

    def launch(self, module: int, name: str, groups: int, group_size: int, arguments: Sequence[Argument]) -> _Launch:
        recorded = _Launch(module, name, groups)
        for number, argument in enumerate(arguments):
            self.set_argument(recorded, number, argument)
        return recorded

    def set_argument(self, launch: _Launch, number: int, argument: Argument) -> None:
        if isinstance(argument, At):
            launch.places[number + 1] = argument.buffer.start + argument.offset
        elif not isinstance(argument, Whole):
            launch.places[number] = int(argument)  # its index is 1 lower: the status buffer before it has no word

    def submit(self, launches: Sequence[_Launch]) -> None:
        self.steps += launches

    def timed(self, launch: _Launch) -> float:
        raise AssertionError("nothing runs, so nothing is timed")

    def synchronize(self) -> None:
        """Do nothing: no commands run."""
