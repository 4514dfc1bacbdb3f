"""Writing programs: the functions of their native steps as one image, and each program as a form that names what is in it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from attrs import field

from rlx_core.codegen.places import Layout
from rlx_core.ir.forms import Json
from rlx_core.ir.graph import Value
from rlx_core.ir.lir import Lir, Step
from rlx_core.pipeline.backend import Bindings, Keep, PackedCode, expect_packable
from rlx_core.pipeline.kernels import KernelTable
from rlx_core.pipeline.planning.alias import placement
from rlx_core.system.records import define
from rlx_cpu.frames import Frame, Frames, SharedParams
from rlx_cpu.native.contract import Emitted, Emitters
from rlx_cpu.native.llvm.background import yielding
from rlx_cpu.native.llvm.isa import Isa, host_isa, portable
from rlx_cpu.native.llvm.objects import Making
from rlx_cpu.native.llvm.optimise import generate, new_module
from rlx_cpu.native.machine import Speed
from rlx_cpu.native.runtime import entry_plan
from rlx_cpu.native.runtime.code import ENTRY, RESULT_MEMORY, STEPS, VERSION
from rlx_cpu.native.runtime.operands import read_addresses
from rlx_cpu.native.runtime.own_code import module_of
from rlx_cpu.native.runtime.steps import CompiledSteps, Settings, emit_function, functions_of, laid_out, reason_to_drive
from rlx_cpu.native.table import WithGuests, is_native, native
from rlx_cpu.native.work import estimated_us
from rlx_cpu.packaged.features import NEEDS
from rlx_cpu.packaged.form import ARENA, Brought, Output, PackedProgram, PackedStep, Source
from rlx_cpu.packaged.image import image_form
from rlx_cpu.packaged.linking import linked

__all__ = ["Writer", "packed"]


def packed(programs: Sequence[tuple[Lir, Bindings]], table: KernelTable, variant: str | None, keep: Keep) -> PackedCode:
    """Programs with what they are bound to, as portable code for an instruction set; by default the best one of this machine.

    Raises:
        ConfigError: There is no such set, or something is donated.
        NoKernelError: A step of a program is not native.
    """
    host = host_isa()
    assert host is not None, "where there is native code there is an instruction set"
    isa = portable(variant or host.name)
    writer = Writer(isa, WithGuests(native, table), keep)
    found = [writer.add(lir, bindings).to_json() for lir, bindings in programs]
    arch, needs = NEEDS[isa.name]
    runtime = {name: writer.module(name) for name in (STEPS, ENTRY, RESULT_MEMORY)}
    form = {
        "isa": isa.name,
        "arch": arch,
        "needs": list(needs),
        "runtime": VERSION,
        "modules": runtime,
        "code": writer.code(),
        "programs": found,
    }
    return PackedCode(isa.name, f"Linux on {arch} with {isa.name}", form)


@define(eq=False)
class Writer:
    """What programs for one instruction set have in common: their functions, each emitted once.

    Attributes:
        isa: What they are for, as portable code.
        table: Who knows the emitters.
        keep: Where bytes go.
    """

    isa: Isa
    table: Emitters
    keep: Keep
    _known: dict[tuple[str, object, Layout], Emitted | None] = field(factory=dict)
    _making: Making = field(init=False)

    @_making.default
    def _new_making(self) -> Making:
        return Making(self.isa)

    def add(self, lir: Lir, bindings: Bindings) -> PackedProgram:
        """A program with what it is bound to; errors are those of `expect_packable`."""
        expect_packable(lir, reason_against)
        settings = Settings(self.isa)
        compiled = laid_out(lir, {number: (each, None, ()) for number, each in self._emitted(lir).items()}, settings)
        frames = Frames(lir, SharedParams())
        frames.bind(bindings)
        return _program(lir, compiled, frames, self.keep, self.isa.machine.speed)

    def code(self) -> Json:
        """The code of all programs that were added."""
        objects = [each.result() for each in self._making.objects]
        return image_form(linked(objects), self.keep) if objects else None

    def module(self, name: str) -> Json:
        """The code of a module of the run-time."""
        return image_form(linked([generate(str(module_of(name, self.isa)), self.isa)]), self.keep)

    def _emitted(self, lir: Lir) -> dict[int, Emitted]:
        """What each step calls, by its number."""
        functions, calls = functions_of(lir)
        found: list[Emitted] = []
        with yielding():
            for each in functions:
                key = (each.kernel, each.node.op, each.layout)
                if key not in self._known:
                    module = new_module("program", self.isa)
                    self._known[key] = emit_function(module, len(self._known), each, self.table, self.isa)
                    self._making.add(module)
                emitted = self._known[key]
                assert emitted is not None, "what is native has an emitter"
                found.append(emitted)
        return {number: found[place] for number, place in calls.items()}


def reason_against(number: int, step: Step) -> str | None:
    """Why a step is not one native function; `None` if it is."""
    if is_native(step.kernel):
        return reason_to_drive(step)
    return reason_to_drive(step) or f"{step.kernel} is a function of a library or of NumPy"


def _program(lir: Lir, compiled: CompiledSteps, frames: Frames, keep: Keep, speed: Speed) -> PackedProgram:
    frame = frames.take()
    values = {frames.places[value]: value for value in frames.places}
    starts = {at: step.workspace.offset for step in lir.steps if step.workspace for at in [frames.workspaces[id(step)]]}
    buffers = _Buffers(lir, frame, values, starts, keep)
    static, per_run = read_addresses(frames, compiled)
    unread = {
        each.first + pack.operand for each in compiled.steps.values() for pack in each.emitted.packs if pack.replaces
    }
    fixed = [(word, *buffers.place(at, offset)) for word, at, offset in static if word not in unread]
    for each in compiled.steps.values():
        for word, pack in zip(each.packs, each.emitted.packs, strict=True):
            operand = each.step.node.operands[pack.operand]
            assert operand is not None, "a pack is of an operand that is there"
            fixed.append((word, *buffers.added(pack.pack(frame.arrays[frames.places[operand]]))))

    def words(place: int) -> tuple[tuple[int, int], ...]:
        return tuple((int(w), int(o)) for w, o in zip(*per_run.get(place, ((), ())), strict=True))

    made = list(dict.fromkeys(lir.own_roots))
    outputs = tuple(_output(lir, number, frames, made, buffers) for number in range(len(lir.graph.outputs)))
    return PackedProgram(
        arena=lir.arena_nbytes,
        alignment=lir.alignment,
        words=compiled.table_words,
        buffers=tuple(buffers.blobs),
        fixed=tuple(fixed),
        inputs=tuple(Brought(e.type, words(frames.places[e.value])) for e in lir.manifest.inputs),
        made=tuple(Brought(value.type, words(frames.places[value])) for value in made),
        outputs=outputs,
        steps=tuple(_step(compiled, number, speed) for number in compiled.steps),
        reason_without_entry=entry_plan.reason_against(lir),
    )


@define(eq=False)
class _Buffers:
    """The places of a program as they are found: its arena, and the arrays that lie in the file."""

    lir: Lir
    frame: Frame
    values: Mapping[int, Value]
    workspaces: Mapping[int, int]
    keep: Keep
    blobs: list[int] = field(factory=list)

    def place(self, at: int, offset: int) -> tuple[int, int]:
        """The place of a frame's place, and the bytes from its start."""
        if at in self.workspaces:
            return ARENA, self.workspaces[at] + offset
        value = self.values[at]
        if not value.type.size:
            return ARENA, 0
        slot = self.lir.slots.get(value)
        if slot is not None:
            return ARENA, slot.offset + offset
        number, _ = self.added(self.frame.arrays[at])
        return number, offset

    def added(self, array: np.ndarray) -> tuple[int, int]:
        """The place of an array that never changes."""
        blob = self.keep(array)
        if blob not in self.blobs:
            self.blobs.append(blob)
        return 1 + self.blobs.index(blob), 0


def _output(lir: Lir, number: int, frames: Frames, made: Sequence[Value], buffers: _Buffers) -> Output:
    value, delivery = lir.graph.outputs[number], lir.deliveries[number]
    assert delivery.kind != "donor", "what was traced by rlx.compile donates nothing"
    at = placement(value, lir.aliases)
    given = [entry.value for entry in lir.manifest.inputs]
    among: dict[Value, tuple[Source, int]] = {
        **{root: ("input", i) for i, root in enumerate(given)},
        **{root: ("made", i) for i, root in enumerate(made)},
    }
    if at.root in among:
        source, place, offset = *among[at.root], at.byte_offset
    else:
        source, (place, offset) = "place", buffers.place(frames.places[at.root], at.byte_offset)
    return Output(value.type, delivery.kind == "copy", source, place, offset, tuple(at.strides))


def _step(compiled: CompiledSteps, number: int, speed: Speed) -> PackedStep:
    each = compiled.steps[number]
    emitted, source = each.emitted, each.step.node.origin.source
    return PackedStep(
        function=emitted.function,
        prologue=emitted.prologue,
        first=each.first,
        parts=emitted.parts,
        is_threaded=emitted.uses_threads,
        shares=emitted.shares,
        polls=emitted.polls,
        us=estimated_us(each.step, speed),
        workspace=each.workspace,
        stride=emitted.workspace_stride,
        shared=emitted.shared_stride,
        status=each.status,
        fault=emitted.fault,
        label=each.step.node.label,
        line=None if source is None else (source.file, source.line),
    )
