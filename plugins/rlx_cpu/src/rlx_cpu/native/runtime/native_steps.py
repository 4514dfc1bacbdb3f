"""The native calls of a program: one call of the runtime for each maximal sequence of native steps.

Every native step reads the addresses of its buffers from a table. Each frame has a table, filled when the frame is created
except for the addresses of inputs and results, which each run writes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from contextlib import nullcontext
from itertools import accumulate
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

import numpy as np

from rlx_core.ir.lir import Lir, Step
from rlx_core.ir.placed import At
from rlx_core.run.code import Calls, Code
from rlx_core.run.frames import PER_RUN, Frame
from rlx_core.run.memory import POISON, address_of, allocate
from rlx_core.run.parts import HostPart
from rlx_core.run.plan import ARENA, BufferId, Location, Locations
from rlx_core.system.records import define, frozen
from rlx_cpu.native import runtime
from rlx_cpu.native.contract import ALIGNMENT, Pack
from rlx_cpu.native.llvm.c_library import has_clock
from rlx_cpu.native.runtime.code import CALLERS, MEETS, RECORD_WORDS, STEP_WORDS
from rlx_cpu.native.runtime.compiled import CompiledSteps, NativeStep
from rlx_cpu.native.runtime.interrupts import clear, raise_caught, status_rows
from rlx_cpu.native.runtime.pool import pool_for, run_alone

if TYPE_CHECKING:
    from rlx_core.ir.types import TensorType
    from rlx_core.pipeline.profile import Profile
    from rlx_core.run.program import PlannedProgram
    from rlx_cpu.native.runtime.entry_words import Mode

TakesLonger = Callable[[Sequence[int], float], bool]
"""Whether some steps, by number, take one thread longer than so many microseconds."""

Arguments = Mapping[BufferId, Sequence[tuple[int, int]]]
"""Buffer → words of the table that hold addresses in it, and bytes from its start for each."""


@frozen(eq=False)
class PackedOperand:
    """An operand that is packed when it is bound.

    Attributes:
        word: The word of the table that holds the address of the packed bytes.
        key: Its identity among the packed operands of one version: the parameter's name, or the constant, comes first.
    """

    word: int
    pack: Pack
    location: Location
    type: TensorType
    key: tuple[Hashable, ...]

    @property
    def name(self) -> str | None:
        """The parameter's name; `None` for a constant."""
        return self.key[0] if isinstance(self.key[0], str) else None


@define(eq=False)
class Table:
    """A frame's addresses and scratch memory, and the packed operands that its addresses refer to."""

    words: np.ndarray
    scratch: np.ndarray
    status: np.ndarray
    packed: Sequence[np.ndarray]


@frozen(eq=False)
class Run:
    """A maximal sequence of native steps.

    Attributes:
        words: The runtime's input, a row for each call; a step with a prologue has two.
        steps: The number of the step of each call.
        uses_threads: Whether the program's threads share it.
        has_threaded: Whether threads could share a step of it, even if it is too small for that.
    """

    words: np.ndarray
    steps: tuple[int, ...]
    uses_threads: bool
    has_threaded: bool


@frozen(eq=False)
class TableContents:
    """The words of a table that are the same in all frames, and the positions of others.

    Attributes:
        words: The table, with 0 for each address.
        scratch: The words that are the address of scratch memory.
        statuses: The words that are addresses of status rows, in the order of the steps.
        polls: For each of these steps whether it polls for signals.
    """

    words: Sequence[int]
    scratch: Sequence[int]
    statuses: Sequence[int]
    polls: Sequence[bool]

    @classmethod
    def of(cls, compiled: CompiledSteps) -> TableContents:
        """The contents for some steps."""
        words = [0] * compiled.table_words  # a list, because numbers are stored in it in a third of the time
        for each in compiled.steps.values():
            words[each.first - len(each.words) : each.first] = reversed(each.words)
        scratch = [each.workspace for each in compiled.steps.values() if each.workspace is not None]
        statuses = [(each.status, each.emitted.polls) for each in _with_status(compiled) if each.status is not None]
        return cls(words, scratch, [word for word, _ in statuses], [polls for _, polls in statuses])


def _with_status(compiled: CompiledSteps) -> list[NativeStep]:
    return [each for each in compiled.steps.values() if each.status is not None]


_shared_packed: WeakValueDictionary[Hashable, np.ndarray] = WeakValueDictionary()
"""Packed operands of immutable arrays, which executables share. Whatever refers to packed bytes also refers to the array, whose
identity is part of the key and so belongs to no other array meanwhile."""


class NativeCode(Code):
    """The native calls of a program.

    Args:
        compiled: The functions of its steps, and their words in the table.
        arguments: For each buffer, the words that are addresses in it.
        packs: The operands that are packed when they are bound.
        takes_longer: Estimates the time of steps.
        reason_on_host: Returns why a step does not run as native code.
        margin: Bytes of poison behind scratch memory; 0 outside of poison mode.
    """

    def __init__(
        self,
        compiled: CompiledSteps,
        arguments: Arguments,
        packs: Sequence[PackedOperand],
        takes_longer: TakesLonger,
        reason_on_host: Callable[[Step], str] = lambda step: f"{step.kernel} runs with NumPy",
        margin: int = 0,
    ) -> None:
        self.native, self.arguments, self.packs = compiled, arguments, packs
        self.takes_longer, self._reason_on_host, self._margin = takes_longer, reason_on_host, margin
        self.steps = frozenset(compiled.steps)
        self.workspace_nbytes, self.origin, self.tuned = compiled.workspace, compiled.origin, compiled.tuned
        self.settings, self.codes, self.packed_constants = compiled.settings, compiled.codes, compiled.packed_constants
        self.contents = TableContents.of(compiled)
        self._runs: dict[tuple[int, ...], Run] = {}

    # ------------------------------------------------------------------------------------------- the table

    def prepare(self, frame: Frame) -> Table:
        contents = self.contents
        scratch = allocate(self.workspace_nbytes + self._margin, ALIGNMENT)
        status, packed = status_rows(contents.polls), self._packed(frame)
        words = list(contents.words)
        for buffer, address in frame.bound.items():
            arguments = self.arguments.get(buffer)
            if arguments is not None:
                _store(words, arguments, address)
        for row, word in zip(status, contents.statuses, strict=True):
            words[word] = address_of(row)
        scratch_address = address_of(scratch)
        for word in contents.scratch:
            words[word] = scratch_address
        for operand, array in zip(self.packs, packed, strict=True):
            words[operand.word] = address_of(array)
        return Table(np.array(words, np.int64), scratch, status, packed)

    def place(self, calls: Table, arguments: Sequence[tuple[int, int]], address: At) -> None:
        _store(calls.words, arguments, address)

    def _packed(self, frame: Frame) -> Sequence[np.ndarray]:
        """The packed operands of a frame's binding; each is made once for all programs that need it."""
        if not self.packs:
            return ()
        # Others may not free the memory of computed parameters meanwhile.
        with frame.params.prepared.memory_lock if frame.params.prepared.recomputed else nullcontext():
            return self._packed_alone(frame)

    def _packed_alone(self, frame: Frame) -> Sequence[np.ndarray]:
        from rlx_cpu.native.llvm.background import share_out  # here, because packages have their operands packed

        prepared = frame.params.prepared
        constants, params = self.packed_constants, prepared.packed
        caches = [constants if each.location.buffer.kind == "constant" else params for each in self.packs]
        missing: dict[Hashable, tuple[PackedOperand, dict[Hashable, Any]]] = {}
        for each, cache in zip(self.packs, caches, strict=True):
            if each.key not in cache:
                packed = _shared_packed.get(self._shared_key(frame, each))
                if packed is None:
                    missing.setdefault(each.key, (each, cache))
                else:
                    cache[each.key] = packed
        uses = Counter(each.name for each, _ in missing.values() if each.name is not None)
        for name in uses:
            if name in prepared.recomputed:
                prepared.restore(name)
        # One allocation for all: large ones get large pages, and touching small ones for the first time takes longer
        # than packing into them.
        *starts, end = accumulate((each.pack.capacity for each, _ in missing.values()), initial=0)
        memory = allocate(end, ALIGNMENT)

        def pack_one(start: int, each: PackedOperand, cache: dict[Hashable, Any]) -> None:
            # Not an array of the frame, which would keep the dense copy of a strided one.
            array = frame.memory.read(frame.at(each.location), each.type, each.location.strides)
            packed = cache[each.key] = each.pack.pack(array, memory[start:][: each.pack.capacity])
            shared = self._shared_key(frame, each)
            if shared is not None:
                _shared_packed[shared] = packed
                if each.pack.replaces:
                    from rlx_core.ir.mapped_pages import free_mapped_pages  # here, because few weights are mapped

                    free_mapped_pages(frame.params.arrays[each.location.buffer.number])
            elif each.pack.replaces and each.name is not None and uses[each.name] == 1:
                prepared.free(each.name)

        jobs = [(start, *operand) for start, operand in zip(starts, missing.values(), strict=True)]
        settings = self.settings
        threads = settings.threads if end >= settings.machine.serial_pack_nbytes else 1
        share_out(lambda job: pack_one(*job), jobs, threads)
        if end >= settings.machine.serial_pack_nbytes:
            from rlx_core.ir.mapped_pages import trim_heap  # here, because most programs have few weights

            trim_heap()
        return [cache[each.key] for each, cache in zip(self.packs, caches, strict=True)]

    def _shared_key(self, frame: Frame, operand: PackedOperand) -> Hashable:
        """The identity of a packed operand in this process; `None` if the array that it is packed from may change."""
        name, *arrangement = operand.key
        if name not in frame.params.prepared.immutable:  # of constants there is no name
            return None
        return id(frame.params.arrays[operand.location.buffer.number]), *arrangement

    # ---------------------------------------------------------------------------------------------- running

    def run(self, part: Calls, frame: Frame, profile: Profile | None) -> None:
        self._call(self.run_of(part), frame.calls, profile)
        self._check(frame.calls)

    def run_of(self, part: Calls) -> Run:
        """Return the runtime's input for a part; waits for the code if it is still being compiled."""
        run = self._runs.get(part.steps)
        if run is None:
            run = self._runs[part.steps] = self._new_run(part.steps)
        return run

    def _new_run(self, numbers: tuple[int, ...]) -> Run:
        rows, steps, has_threaded = self.rows_of(numbers)
        uses_threads = has_threaded and self.takes_longer(numbers, self.settings.machine.serial_us)
        return Run(np.array(rows, np.int64).reshape(-1, STEP_WORDS), steps, uses_threads, has_threaded)

    def rows_of(self, numbers: tuple[int, ...]) -> tuple[list[tuple[int, ...]], tuple[int, ...], bool]:
        """Return the rows of a run's words, the number of the step of each, and whether threads could share a step."""
        steps = [(number, self.native.steps[number]) for number in numbers]
        calls = [
            (n, (each, name)) for n, each in steps for name in (each.emitted.prologue, each.emitted.function) if name
        ]
        has_threaded = any(each.emitted.uses_threads or each.emitted.shares for _, each in steps)
        return call_rows([call for _, call in calls], self.settings.threads), tuple(n for n, _ in calls), has_threaded

    def _call(self, run: Run, table: Table, profile: Profile | None) -> None:
        settings, count = self.settings, len(run.steps)
        steps, base = run.words.ctypes.data, table.words.ctypes.data
        threads = settings.threads if run.uses_threads else 1
        stamps = None if profile is None or not has_clock() else np.zeros((threads, count, RECORD_WORDS), np.int64)
        record = 0 if stamps is None else stamps.ctypes.data
        if threads > 1:
            pool_for(threads, settings.spin_us).run(steps, count, base, record)
        else:
            run_alone(steps, count, base, record)
        if profile is not None and stamps is not None:
            timed = [step for number in run.steps if (step := self.native.steps[number].step) is not None]
            if timed:  # those of packages are not known
                from rlx_cpu.profile import add_native  # here, because few runs are profiled

                # A busy pool leaves all to the caller: the other threads' stamps are then still zero.
                add_native(profile, timed, stamps[stamps[:, -1, 2] > 0])

    def _check(self, table: Table) -> None:
        if table.status.size and table.status[:, 0].any():
            self._raise(table)

    def _raise(self, table: Table) -> None:
        """Raise why a loop was left, or the first fault that a step reported, in program order."""
        raise_caught(table.status)
        number = int(np.flatnonzero(table.status[:, 0])[0])
        kind, offender = map(int, table.status[number, :2])
        clear(table.status)
        each = _with_status(self.native)[number]
        assert each.emitted.fault is not None, "a step that reports faults can name them"
        raise each.emitted.fault.kinds[kind - 1](offender).with_fact(each.where)

    def end(self, frame: Frame, inputs: Sequence[Any], begun: Any, *, waits: bool) -> None:
        for code in self.codes:
            code.flush()  # waits until the code is in the cache, if that is where it goes

    def poison_scratch(self, frame: Frame) -> None:
        frame.calls.scratch.fill(POISON)

    def unused_scratch(self, frame: Frame, number: int) -> np.ndarray:
        scratch: np.ndarray = frame.calls.scratch[self.native.scratch_of(number) :]
        return scratch

    # ---------------------------------------------------------------------------------------- the fast path

    def reason_without_entry(self, program: PlannedProgram) -> str | None:
        reason = runtime.interpreter.reason_against()
        if reason is not None:
            return reason
        other = next((part.step for part in program.parts if isinstance(part, HostPart)), None)
        if other is not None:
            return self._reason_on_host(other)
        return runtime.entry_plan.reason_against(program.plan)

    def entry(self, program: PlannedProgram, name: str) -> Callable[..., Any]:
        frame = program.frames.take(program.shared.params)  # the entry's own from now on
        table: Table = frame.calls
        base, settings = table.words.ctypes.data, self.settings
        words = {
            buffer: [(base + 8 * position, offset) for position, offset in each]
            for buffer, each in self.arguments.items()
            if buffer.kind in PER_RUN
        }

        def address(buffer: BufferId) -> int:
            bound = frame.bound[buffer]
            return address_of(bound.buffer) + bound.offset

        ends = runtime.entry_plan.ends(program.plan, words, address, name)
        params = [array for array in frame.params.arrays.values() if array.size]
        runs = [self.run_of(part) for part in program.parts if isinstance(part, Calls)]
        calls = np.array([(code, base + first) for run in runs for code, first, *_ in run.words], np.int64)

        def work() -> None:
            for run in runs:
                self._call(run, table, None)

        def fault() -> None:
            self._raise(table)

        mode, modes, word = self.mode(runs), runtime.entry_words.Mode, runtime.entry_words.Word
        contents = {
            **runtime.entry.contents_of_ends(ends.inputs, ends.outputs, ends.copies, params),
            word.CALLS: len(calls),
            word.CALL_RECORDS: calls,
            word.STATUSES: table.status,
            word.STATUS_COUNT: len(table.status),
            word.MODE: mode,
            word.FAULT: fault,
            word.WORK: work,
        }
        if mode in (modes.AWAKE, modes.SHARED):
            contents |= runtime.entry.contents_of_pool(runs[0].words, table.words, settings.threads, settings.spin_us)
        return runtime.entry.build(contents, frame, table, self, ends, runs)

    def mode(self, runs: Sequence[Run]) -> Mode:
        """Return the threads that run a program, by its estimated time on one thread."""
        modes = runtime.entry_words.Mode
        threads, speed = self.settings.threads, self.settings.machine.speed
        if threads > 1 and any(run.uses_threads for run in runs):
            return modes.SHARED
        steps = [number for run in runs for number in dict.fromkeys(run.steps)]
        if any(each.emitted.polls for each in self.native.steps.values()) or self.takes_longer(steps, speed.locked_us):
            return modes.ALONE
        can_share = len(runs) == 1 and runs[0].has_threaded and threads > 1
        return modes.AWAKE if can_share and self.takes_longer(steps, speed.awake_us) else modes.TINY

    def shared(self, lir: Lir) -> CompiledSteps:
        return self.native.on(lir)


def _store(words: Any, arguments: Sequence[tuple[int, int]], address: At) -> None:
    base = address_of(address.buffer) + address.offset
    for word, offset in arguments:
        words[word] = base + offset


def arguments_of(compiled: CompiledSteps, locations: Locations) -> Arguments:
    """Return, for each buffer, the words of the table that are addresses in it; not of operands that packed ones replace."""
    arguments: dict[BufferId, list[tuple[int, int]]] = {}
    for number, each in compiled.steps.items():
        step = locations.lir.steps[number]
        replaced = {each.first + pack.operand for pack in each.emitted.packs if pack.replaces}
        for word, value in enumerate((*step.node.operands, *step.node.results), each.first):
            if value is not None and word not in replaced:
                buffer, offset = locations.start(value)
                arguments.setdefault(buffer, []).append((word, offset))
        if each.arena is not None:
            assert step.workspace is not None, "the graphs inside a step have their arenas there"
            arguments.setdefault(ARENA, []).append((each.arena, step.workspace.offset))
    return arguments


def packs_of(compiled: CompiledSteps, locations: Locations) -> list[PackedOperand]:
    """The operands that are packed when they are bound."""
    packs: list[PackedOperand] = []
    for number, each in compiled.steps.items():
        node = locations.lir.steps[number].node
        for word, pack in zip(each.packs, each.emitted.packs, strict=True):
            value = node.operands[pack.operand]
            assert value is not None, "a pack is of an operand that is present"
            location = locations.of(value)
            arrangement = (pack.form, pack.sizes, pack.nbytes, pack.view)
            # Programs that share a binding may have other, additional parameters, so names identify them and numbers do not.
            name: Hashable = location.buffer if location.buffer.kind == "constant" else locations.name(location.buffer)
            key = (name, location.offset, location.strides, value.type, *arrangement)
            packs.append(PackedOperand(word, pack, location, value.type, key))
    return packs


def call_rows(calls: Sequence[tuple[NativeStep, str]], threads: int) -> list[tuple[int, ...]]:
    """The words of a run, a row for each call of a step's function; see `STEP_WORDS`."""
    rows: list[list[int]] = []
    is_serial, head = False, 0
    for i, (step, function) in enumerate(calls):
        emitted = step.emitted
        # One thread's steps follow one another by themselves; everything else meets in between.
        before, is_serial = is_serial, not emitted.uses_threads
        following = calls[i + 1][0].emitted.uses_threads if i + 1 < len(calls) else True
        parts = (0 if before else 1) if is_serial else max(emitted.parts, threads)
        rows.append([step.address_of(function), 8 * step.first, parts, MEETS if following or not is_serial else 0])
        head = head if is_serial and before else i
        if emitted.polls:
            rows[head][-1] |= CALLERS  # one thread runs the first of serial steps and those that follow
    return [tuple(row) for row in rows]
