"""Running a LIR natively: maximal runs of native steps are one call each, whatever else there is runs with NumPy in between.

Every native step reads its buffers' addresses from one table; a frame has its own table, filled when the frame is made but for
the addresses of inputs and outputs, which each run writes.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from itertools import accumulate, groupby
from typing import Any

import numpy as np

from rlx_core.ir.graph import Graph, Param, Value
from rlx_core.ir.lir import Lir, Step
from rlx_core.pipeline.backend import Program, at_step
from rlx_core.pipeline.kernels import KernelTable
from rlx_core.pipeline.planning.alias import placement
from rlx_core.pipeline.profile import Profile, active
from rlx_core.system.locks import lazy
from rlx_core.system.records import define, frozen
from rlx_cpu.arena import allocate, empty
from rlx_cpu.frames import Frame, Frames, SharedParams
from rlx_cpu.native.contract import ALIGNMENT, Emitters, Pack
from rlx_cpu.native.llvm.background import share_out
from rlx_cpu.native.llvm.c_library import has_clock
from rlx_cpu.native.runtime import entry_plan, interpreter
from rlx_cpu.native.runtime.calls import Call, call_words, team_for
from rlx_cpu.native.runtime.entry import NativeEntry, build
from rlx_cpu.native.runtime.entry_words import Mode
from rlx_cpu.native.runtime.interrupts import clear, raise_caught, status_rows
from rlx_cpu.native.runtime.operands import read_addresses
from rlx_cpu.native.runtime.pool import pool_for, run_alone
from rlx_cpu.native.runtime.pool_words import RECORD_WORDS
from rlx_cpu.native.runtime.steps import CompiledSteps, NativeStep, Settings, compile_steps, reason_to_drive
from rlx_cpu.native.work import takes_longer
from rlx_cpu.poison import CANARY, POISON, Guard
from rlx_cpu.profile import add_native
from rlx_cpu.program import Instruction, instruction

__all__ = ["NativeProgram"]


@frozen(eq=False)
class Run:
    """A maximal run of native steps, as words for the driver; a step with a prologue is there twice."""

    words: np.ndarray
    steps: tuple[Step, ...]
    uses_threads: bool
    has_threaded: bool
    """Whether threads can share a step, be it worth it or not."""

    @property
    def count(self) -> int:
        """How many calls it is for one thread."""
        return len(self.steps)


@define(eq=False)
class Table:
    """A frame's addresses and scratch memory, and the packed parameters that its addresses are of."""

    words: np.ndarray
    scratch: np.ndarray
    status: np.ndarray
    packed: Mapping[tuple[int, int], np.ndarray]


class NativeProgram(Program):
    """A LIR as native code, with NumPy for the steps that have none."""

    def __init__(
        self,
        lir: Lir,
        kernels: KernelTable,
        table: Emitters,
        settings: Settings,
        shared: SharedParams | None = None,
        compiled: CompiledSteps | None = None,
        guard: Guard | None = None,
    ) -> None:
        self._kernels, self._table, self._guard = kernels, table, guard
        self.compiled = compiled or compile_steps(lir, table, settings)
        read = {v for n, s in enumerate(lir.steps) if n not in self.compiled.steps for v in s.node.present()}
        read |= {v for n, s in enumerate(lir.steps) if n not in self.compiled.steps for v in s.node.results}
        read.update(lir.graph.outputs)
        order = [v for node in lir.graph.nodes for v in node.results]
        output = empty if guard is None else guard.output
        self._frames = Frames(lir, shared or SharedParams(), {i for i, v in enumerate(order) if v in read}, output)
        self._static, self._per_run = read_addresses(self._frames, self.compiled)

    # ------------------------------------------------------------------------------------ public

    def bind(self, params: Mapping[str, np.ndarray]) -> None:
        self._frames.bind(params)

    def run(self, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
        if self._guard is not None:
            return self._guarded_run(inputs, self._guard)
        frames, profile = self._frames, active()
        frame = frames.take()
        try:
            frames.fill(frame, inputs)
            table = self._ready(frame)
            with self._quiet():
                for part in self._parts:
                    self._do(part, frame, table, profile)
            self.compiled.flush()
            return frames.deliver(frame)
        finally:
            frames.give_back(frame)

    def entry(self) -> Callable[..., Any] | None:
        if self.reason_without_entry is not None:
            return None
        frame = self._frames.take()  # the entry's own from now on
        return build(self._entry_parts(frame))

    @property
    def reason_without_entry(self) -> str | None:
        """Why this program is always run on the checked path; `None` if plain calls are not."""
        if self._guard is not None:
            return "poison mode looks at memory after every step"
        if interpreter.reason_against() is not None:
            return interpreter.reason_against()
        other = next((part.step for part in self._parts if not isinstance(part, Run)), None)
        if other is not None:
            reason = reason_to_drive(other)
            return f"{other.kernel} runs with NumPy" if reason is None else f"{other.node.op.title} is driven: {reason}"
        return entry_plan.reason_against(self._frames.lir)

    def clone(self) -> NativeProgram:
        frames = self._frames
        return NativeProgram(
            frames.lir, self._kernels, self._table, self.compiled.settings, frames.shared, self.compiled, self._guard
        )

    @property
    def code(self) -> CompiledSteps | None:
        return self.compiled.on(self._frames.lir) if self._guard is None else None

    @property
    def code_origin(self) -> str | None:
        if not self.compiled.codes:
            return None
        origin = "cached" if self.compiled.is_cached else "compiled"
        count = len(self.compiled.for_all)
        return f"{origin}, {count} of {len(self.compiled.steps)} steps for all sizes" if count else origin

    @property
    def parts(self) -> tuple[str, ...]:
        """What runs in order: native runs with their number of steps, NumPy steps by their kernel."""
        return tuple(f"native[{part.count}]" if isinstance(part, Run) else part.step.kernel for part in self._parts)

    # ---------------------------------------------------------------------------------- building

    @lazy
    def _parts(self) -> list[Run | Instruction]:
        """What runs in order. Made when it is needed first, because that is when the code must be there."""
        steps = list(enumerate(self._frames.lir.steps))
        parts: list[Run | Instruction] = []
        # In poison mode memory is looked at after every step, so each is a run of its own.
        for (is_native, _), group in groupby(
            steps, key=lambda pair: (pair[0] in self.compiled.steps, self._guard and pair[0])
        ):
            if is_native:
                parts.append(self._run_of([self.compiled.steps[n] for n, _ in group]))
            else:
                parts += [instruction(step, self._frames, self._kernels, self._nested) for _, step in group]
        return parts

    def _nested(self, plan: Lir) -> NativeProgram:
        """A program of a plan inside a step."""
        return NativeProgram(plan, self._kernels, self._table, self.compiled.settings)

    @property
    def _template(self) -> Graph | None:
        """The graph with unknown sizes that this program's was bound from, if it was."""
        origin = self._frames.lir.origin
        return None if origin is None else origin.template.graph

    def _run_of(self, steps: Sequence[NativeStep]) -> Run:
        threads = self.compiled.settings.threads
        phases = [(each, name) for each in steps for name in (each.emitted.prologue, each.emitted.function) if name]
        calls = [
            Call(
                each.address_of(name), 8 * each.first, each.emitted.parts, each.emitted.uses_threads, each.emitted.polls
            )
            for each, name in phases
        ]
        words = call_words(calls, threads)
        has_threaded = any(s.emitted.uses_threads or s.emitted.shares for s in steps)
        machine = self.compiled.settings.isa.machine
        uses_threads = has_threaded and takes_longer(
            (s.step for s in steps), machine.serial_us, machine.speed, self._template
        )
        return Run(words, tuple(each.step for each, _ in phases), uses_threads, has_threaded)

    def _entry_parts(self, frame: Frame) -> NativeEntry:
        """What an entry that owns this frame is made of."""
        frames, lir = self._frames, self._frames.lir
        table: Table = frame.own if frame.own is not None else self._new_table(frame)
        base, places = table.words.ctypes.data, frames.places
        per_run = {
            value: [(base + 8 * int(w), int(o)) for w, o in zip(*self._per_run[places[value]], strict=True)]
            for value in (*lir.graph.inputs, *lir.own_roots)
            if places[value] in self._per_run
        }
        roots = {lir.root_of(value) for value in lir.graph.outputs}
        fixed = {r: address_of(frame.arrays[places[r]]) for r in roots if frame.arrays[places[r]] is not None}
        ends = entry_plan.ends(lir, per_run, fixed)
        params = [frame.arrays[places[v]] for v in lir.graph.params]
        held = [(address_of(a), address_of(a) + a.nbytes) for a in params if a.size]
        runs = [part for part in self._parts if isinstance(part, Run)]
        calls = [(int(code), base + int(first)) for run in runs for code, first, *_ in run.words]

        def work() -> None:
            for run in runs:
                self._steps(run, table, None)

        mode, settings = self._mode(runs), self.compiled.settings
        return NativeEntry(
            ends.inputs, ends.outputs, calls, mode, work, lambda: self._raise(table), table.status, ends.copies, held,
            keeps=(frame, table, self.compiled, ends, runs),
            team=team_for(runs[0].words, base, settings.threads, settings.spin_us) if mode in (Mode.AWAKE, Mode.SHARED) else None,
        )  # fmt: skip

    def _mode(self, runs: Sequence[Run]) -> Mode:
        if any(run.uses_threads for run in runs) and self.compiled.settings.threads > 1:
            return Mode.SHARED
        steps = [step for run in runs for step in dict.fromkeys(run.steps)]
        speed = self.compiled.settings.isa.machine.speed
        may_take_long = any(each.emitted.polls for each in self.compiled.steps.values())
        if may_take_long or takes_longer(steps, speed.locked_us, speed, self._template):
            return Mode.ALONE
        can_share = len(runs) == 1 and runs[0].has_threaded and self.compiled.settings.threads > 1
        return Mode.AWAKE if can_share and takes_longer(steps, speed.awake_us, speed, self._template) else Mode.TINY

    # ----------------------------------------------------------------------------------- running

    def _guarded_run(self, inputs: Sequence[np.ndarray], guard: Guard) -> list[np.ndarray]:
        """A run in poison mode; see `rlx_cpu.poison`."""
        frames, profile = self._frames, active()
        frame = frames.take()
        try:
            guard.begin(frame.arena)
            frames.fill(frame, inputs)
            table = self._ready(frame)
            with np.errstate(all="ignore"):
                for number, part in enumerate(self._parts):
                    table.scratch.fill(POISON)
                    self._do(part, frame, table, profile)
                    own = self.compiled.scratch_of(number)
                    guard.after(number, frame.arena, frames.outputs_of(frame), table.scratch[own:])
            return frames.deliver(frame)
        finally:
            frames.give_back(frame)

    def _quiet(self) -> AbstractContextManager[object]:
        """What NumPy would warn about is what the program says: NaN, infinities. Native code has no warnings."""
        is_native = all(isinstance(part, Run) for part in self._parts)
        return nullcontext() if is_native else np.errstate(all="ignore")

    def _ready(self, frame: Frame) -> Table:
        """The frame's table with this run's inputs and outputs in it."""
        table: Table = frame.own if frame.own is not None else self._new_table(frame)
        for place, (words, offsets) in self._per_run.items():
            table.words[words] = address_of(frame.arrays[place]) + offsets
        return table

    def _new_table(self, frame: Frame) -> Table:
        compiled = self.compiled
        statuses = [s for s in compiled.steps.values() if s.status is not None]
        table = Table(
            np.zeros(compiled.table_words, np.int64),
            allocate(compiled.workspace + (CANARY if self._guard is not None else 0), ALIGNMENT),
            status_rows([s.emitted.polls for s in statuses]),
            self._packed(frame),
        )
        for word, place, offset in self._static:
            table.words[word] = address_of(frame.arrays[place]) + offset
        for number, each in enumerate(statuses):
            table.words[each.status] = table.status[number].ctypes.data
        for number, each in compiled.steps.items():
            for i, size in enumerate(each.words):
                table.words[each.first - 1 - i] = size
            if each.workspace is not None:
                table.words[each.workspace] = table.scratch.ctypes.data
            for i, word in enumerate(each.packs):
                table.words[word] = table.packed[number, i].ctypes.data
        frame.own = table
        return table

    def _packed(self, frame: Frame) -> Mapping[tuple[int, int], np.ndarray]:
        """The packed parameters of a frame's binding by step and pack: each is made once for all programs that need it."""
        packs = {
            (number, i): (pack, each.step.node.operands[pack.operand])
            for number, each in self.compiled.steps.items()
            for i, pack in enumerate(each.emitted.packs)
        }
        kept = {key: self._kept(frame, pack, value) for key, (pack, value) in packs.items() if value is not None}
        missing: dict[tuple[int, Hashable], tuple[int, int]] = {}
        for key, (made, name) in kept.items():
            if name not in made:
                missing.setdefault((id(made), name), key)
        # One allocation for all: large ones get large pages, and touching small ones for the first time takes longer
        # than packing into them.
        capacities = [packs[key][0].capacity for key in missing.values()]
        memory = allocate(sum(capacities), ALIGNMENT)
        starts = dict(zip(missing.values(), accumulate(capacities, initial=0), strict=False))

        def pack_one(key: tuple[int, int]) -> None:
            (pack, value), (made, name) = packs[key], kept[key]
            assert value is not None, "a pack is of an operand that is there"
            made[name] = pack.pack(frame.arrays[self._frames.places[value]], memory[starts[key] :][: pack.capacity])

        settings = self.compiled.settings
        share_out(pack_one, starts, settings.threads if memory.nbytes >= settings.isa.machine.serial_pack_nbytes else 1)
        return {key: made[name] for key, (made, name) in kept.items()}

    def _kept(self, frame: Frame, pack: Pack, value: Value) -> tuple[dict[Hashable, Any], Hashable]:
        """Where a packed operand is kept, and under which name: with the binding, or for a constant with the program."""
        at = placement(value, self._frames.lir.aliases)
        arrangement = (pack.form, pack.sizes, pack.nbytes, pack.view)
        if isinstance(at.root.node.op, Param):
            return frame.params.made, (at.root.node.op.label, at.byte_offset, at.strides, value.type, *arrangement)
        return self.compiled.packed_constants, (self._frames.places[value], *arrangement)

    def _do(self, part: Run | Instruction, frame: Frame, table: Table, profile: Profile | None) -> None:
        """Run a part, natively or with NumPy."""
        if isinstance(part, Run):
            self._native(part, table, profile)
            return
        with nullcontext() if profile is None else profile.timing(part.step):
            part.run(frame.arrays)

    def _native(self, run: Run, table: Table, profile: Profile | None) -> None:
        self._steps(run, table, profile)
        if table.status.size and table.status[:, 0].any():
            self._raise(table)

    def _steps(self, run: Run, table: Table, profile: Profile | None) -> None:
        settings = self.compiled.settings
        steps, base = run.words.ctypes.data, table.words.ctypes.data
        threads = settings.threads if run.uses_threads else 1
        stamps = None if profile is None or not has_clock() else np.zeros((threads, run.count, RECORD_WORDS), np.int64)
        record = 0 if stamps is None else stamps.ctypes.data
        if threads > 1:
            pool_for(threads, settings.spin_us).run(steps, run.count, base, record)
        else:
            run_alone(steps, run.count, base, record)
        if profile is not None and stamps is not None:
            # A busy pool leaves all to the caller: the other threads' stamps are then still zero.
            add_native(profile, run.steps, stamps[stamps[:, -1, 2] > 0])

    def _raise(self, table: Table) -> None:
        """Raise why a loop was left, or the first fault that a step reported, in program order."""
        raise_caught(table.status)
        statuses = [s for s in self.compiled.steps.values() if s.status is not None]
        number = int(np.flatnonzero(table.status[:, 0])[0])
        kind, offender = map(int, table.status[number, :2])
        clear(table.status)
        each = statuses[number]
        assert each.emitted.fault is not None, "a step that reports faults can name them"
        raise at_step(each.emitted.fault.kinds[kind - 1](offender), each.step)


def address_of(array: np.ndarray) -> int:
    """Where an array's first element is."""
    found: int = array.__array_interface__["data"][0]
    return found
