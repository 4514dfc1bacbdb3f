"""Running a packaged program: one native run on a table of addresses, made from data alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from rlx_core.errors import Fact
from rlx_core.ir.provenance import Source
from rlx_core.ir.strides import is_dense
from rlx_core.pipeline.backend import Program
from rlx_core.system.records import define
from rlx_cpu.arena import allocate, empty
from rlx_cpu.frames import usable, view
from rlx_cpu.native.contract import ALIGNMENT
from rlx_cpu.native.machine import assumed
from rlx_cpu.native.runtime import interpreter
from rlx_cpu.native.runtime.calls import Call, call_words, team_for
from rlx_cpu.native.runtime.code import ProgramCode
from rlx_cpu.native.runtime.entry import EntryArgument, EntryResult, NativeEntry, build
from rlx_cpu.native.runtime.entry import ResultCopy as Copied
from rlx_cpu.native.runtime.entry_words import Mode
from rlx_cpu.native.runtime.interrupts import clear, raise_caught, status_rows
from rlx_cpu.native.runtime.pool import pool_for, run_alone
from rlx_cpu.packaged.form import PackedProgram, Word

__all__ = ["PackagedProgram"]


@define(eq=False)
class Frame:
    """The memory of one run: its arena, the table of addresses, scratch memory of threads, and what steps report."""

    places: list[np.ndarray]
    table: np.ndarray
    scratch: np.ndarray
    status: np.ndarray


class PackagedProgram(Program):
    """A program that was written to a file with its code and weights.

    Args:
        form: The program.
        code: Its functions; `None` for a program without steps.
        buffers: The places that it names, after the arena.
        threads, spin_us: How it runs, as for every native program.
    """

    def __init__(
        self, form: PackedProgram, code: ProgramCode | None, buffers: Sequence[np.ndarray], threads: int, spin_us: int
    ) -> None:
        self._form, self._packed_code, self._buffers = form, code, tuple(buffers)
        self._threads, self._spin_us = threads, spin_us
        phases = [(step, name) for step in form.steps for name in (step.prologue, step.function) if name is not None]
        assert code is not None or not phases, "steps have code"
        calls = [
            Call(code.address(name), 8 * step.first, step.parts, step.is_threaded, step.polls)
            for step, name in phases
            if code
        ]
        self._mode = mode_of(form, threads)
        self._words = call_words(calls, threads)
        self._statuses = [step for step in form.steps if step.status is not None]
        self._scratch = max((step.stride * threads + step.shared for step in form.steps), default=0)
        self._frames: list[Frame] = []

    def bind(self, params: Mapping[str, np.ndarray]) -> None:
        assert not params, "a packaged program has its parameters"

    def run(self, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
        form, frame = self._form, self._take()
        try:
            given = [usable(array) for array in inputs]
            made = [empty(each.type.static_shape, each.type.dtype.numpy, "an output") for each in form.made]
            for described, arrays in ((form.inputs, given), (form.made, made)):
                for each, array in zip(described, arrays, strict=True):
                    for word, offset in each.words:
                        frame.table[word] = address_of(array) + offset
            self._steps(frame)
            if frame.status[:, 0].any():
                self._raise(frame)
            return [self._delivered(number, frame, given, made) for number in range(len(form.outputs))]
        finally:
            self._frames.append(frame)

    def entry(self) -> Callable[..., Any] | None:
        return None if self.reason_without_entry is not None else build(self._entry_parts(self._take()))

    @property
    def reason_without_entry(self) -> str | None:
        return interpreter.reason_against() or self._form.reason_without_entry

    @property
    def code_origin(self) -> str:
        return "packaged"

    def clone(self) -> PackagedProgram:
        return PackagedProgram(self._form, self._packed_code, self._buffers, self._threads, self._spin_us)

    # -------------------------------------------------------------------------------------- memory

    def _take(self) -> Frame:
        """A frame for a run."""
        try:
            return self._frames.pop()  # no two threads get one
        except IndexError:
            return self._new()

    def _new(self) -> Frame:
        form = self._form
        places = [allocate(form.arena, form.alignment), *self._buffers]
        frame = Frame(
            places,
            np.zeros(form.words, np.int64),
            allocate(self._scratch, ALIGNMENT),
            status_rows([step.polls for step in self._statuses]),
        )
        if form.fixed:
            starts = np.array([address_of(place) for place in places], np.int64)
            words, at, offsets = np.array(form.fixed, np.int64).T
            frame.table[words] = starts[at] + offsets
        for step in form.steps:
            if step.workspace is not None:
                frame.table[step.workspace] = address_of(frame.scratch)
        for number, step in enumerate(self._statuses):
            frame.table[step.status] = frame.status[number].ctypes.data
        return frame

    def _delivered(
        self, number: int, frame: Frame, given: Sequence[np.ndarray], made: Sequence[np.ndarray]
    ) -> np.ndarray:
        output = self._form.outputs[number]
        root = {"place": frame.places, "input": given, "made": made}[output.source][output.number]
        shape, dtype = output.type.static_shape, output.type.dtype.numpy
        covers = (
            output.offset == 0 and root.shape == shape and root.dtype == dtype and is_dense(output.type, output.strides)
        )
        found = root if covers else view(root, shape, dtype, output.offset, output.strides)
        return found.copy() if output.is_copied else found

    # ------------------------------------------------------------------------------------- running

    def _steps(self, frame: Frame) -> None:
        if not len(self._words):
            return
        steps, count, table = self._words.ctypes.data, len(self._words), frame.table.ctypes.data
        if self._mode is Mode.SHARED:
            pool_for(self._threads, self._spin_us).run(steps, count, table)
        else:
            run_alone(steps, count, table)

    def _raise(self, frame: Frame) -> None:
        """Raise why a loop was left, or the first fault that a step reported, in program order."""
        raise_caught(frame.status)
        number = int(np.flatnonzero(frame.status[:, 0])[0])
        kind, offender = map(int, frame.status[number, :2])
        clear(frame.status)
        step = self._statuses[number]
        assert step.fault is not None, "a step that reports faults can name them"
        where = Fact("node", step.label, None if step.line is None else Source(*step.line))
        raise step.fault.kinds[kind - 1](offender).with_fact(where)

    def _entry_parts(self, frame: Frame) -> NativeEntry:
        """What an entry that owns this frame is made of."""
        base = frame.table.ctypes.data
        given, made, copies, kept = ends(self._form, base, frame.places)
        shares = self._mode in (Mode.AWAKE, Mode.SHARED)
        return NativeEntry(
            inputs=given,
            outputs=made,
            calls=[(int(code), base + int(first)) for code, first, *_ in self._words],
            mode=self._mode,
            work=partial(self._steps, frame),
            fault=partial(self._raise, frame),
            statuses=frame.status,
            copies=copies,
            held=[],
            keeps=(self, frame, kept),
            team=team_for(self._words, base, self._threads, self._spin_us) if shares else None,
        )


def ends(
    form: PackedProgram, table: int, places: Sequence[np.ndarray]
) -> tuple[list[EntryArgument], list[EntryResult], list[Copied], list[np.ndarray]]:
    """Both ends of an entry on the table at an address, the copies that end it, and the words that those are kept in."""

    def at(words: Sequence[Word]) -> list[tuple[int, int]]:
        return [(table + 8 * word, offset) for word, offset in words]

    given = [EntryArgument(each.type, False, at(each.words)) for each in form.inputs]
    results = [EntryResult(output.type) for output in form.outputs]
    fresh = {output.number: made for output, made in zip(form.outputs, results, strict=True) if not output.is_copied}
    for number, made in fresh.items():
        made.places.extend(at(form.made[number].words))
    copies, kept = [], []
    for output, into in zip(form.outputs, results, strict=True):
        if not output.is_copied or not output.type.size:
            continue
        words = np.zeros(2, np.int64)
        kept.append(words)
        first, second = words.ctypes.data, words.ctypes.data + 8
        into.places.append((first, 0))
        if output.source == "place":
            words[1] = address_of(places[output.number]) + output.offset
        else:
            source = given[output.number] if output.source == "input" else fresh[output.number]
            source.places.append((second, output.offset))
        copies.append(Copied(first, second, output.type.static_nbytes))
    return given, results, copies, kept


def mode_of(form: PackedProgram, threads: int) -> Mode:
    """Who runs a program, by how long it takes one thread."""
    total, machine = sum(step.us for step in form.steps), assumed()
    can_share = threads > 1 and any(step.is_threaded or step.shares for step in form.steps)
    if can_share and total > machine.serial_us:
        return Mode.SHARED
    if total > machine.speed.locked_us or any(step.polls for step in form.steps):
        return Mode.ALONE
    return Mode.AWAKE if can_share and total > machine.speed.awake_us else Mode.TINY


def address_of(array: np.ndarray) -> int:
    """Where an array's first element is."""
    found: int = array.__array_interface__["data"][0]
    return found
