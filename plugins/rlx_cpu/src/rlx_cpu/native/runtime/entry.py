"""A program's entry: a built-in function from its inputs to its outputs, for calls that only run the program.

The lookups of a call through Python (types, places, addresses) are precomputed as the words that `entry_code.enter` interprets.
The entry owns a frame, so its buffers never move.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from typing import Any, Final

import numpy as np
from attrs import field

from rlx_core.ir.array import Donated, HostArray
from rlx_core.ir.dtypes import DType
from rlx_core.ir.types import TensorType
from rlx_core.pipeline.profile import watchers
from rlx_core.system.records import frozen
from rlx_cpu.native.runtime import interpreter
from rlx_cpu.native.runtime.code import ENTRY, ProgramCode
from rlx_cpu.native.runtime.entry_words import FRESH, Mode, Word
from rlx_cpu.native.runtime.linked import code_of
from rlx_cpu.native.runtime.result_memory import allocator_for

__all__ = ["EntryArgument", "EntryResult", "NativeEntry", "ResultCopy", "Team", "build"]

_DENSE: Final = interpreter.C_CONTIGUOUS | interpreter.ALIGNED
_FASTCALL: Final = 0x80

Places = list[tuple[int, int]]
"""Addresses of words to which an array's address is written, each with bytes to add."""


@frozen(eq=False)
class EntryArgument:
    """An argument: its required type, its marker after donation, and the places to which its address is written."""

    type: TensorType
    donated: Donated | None = None
    places: Places = field(factory=list)


@frozen(eq=False)
class EntryResult:
    """A result: a new array whose address goes to `places`, or the argument of that number."""

    type: TensorType
    argument: int = FRESH
    places: Places = field(factory=list)


@frozen
class ResultCopy:
    """A copy when all steps have run: from the address in one word to the address in another."""

    into: int
    source: int
    nbytes: int


@frozen(eq=False)
class Team:
    """Access of a program to the threads of a pool.

    Attributes:
        control: The pool's control block.
        threads: Maximum number of threads, including the caller.
        start, finish, leave: Addresses of the runtime's functions.
        steps, table: Addresses of the steps and of their table.
        state: Their state during a run; owned by the entry.
        wake: Wakes parked threads.
    """

    control: np.ndarray
    threads: int
    start: int
    finish: int
    leave: int
    steps: int
    table: int
    state: np.ndarray
    wake: Callable[[], None]


@frozen(eq=False)
class NativeEntry:
    """The parts of an entry.

    Attributes:
        inputs, outputs: In the program's order.
        calls: (function, buffers) of each step, as addresses.
        mode: Selects the threads that run the steps.
        work: Runs them if the pool belongs to another thread or does not exist yet, for `Mode.SHARED`.
        fault: Raises the error recorded in the status words.
        statuses: Four words for each step that reports faults.
        copies: Results that are copied at the end.
        parameter_spans: Start and end addresses of parameters; a donated argument must not overlap them.
        keeps: Objects that must live as long as the entry.
        team: The pool's threads, for `Mode.AWAKE` and `Mode.SHARED`.
    """

    inputs: Sequence[EntryArgument]
    outputs: Sequence[EntryResult]
    calls: Sequence[tuple[int, int]]
    mode: Mode
    work: Callable[[], None]
    fault: Callable[[], None]
    statuses: np.ndarray
    copies: Sequence[ResultCopy]
    parameter_spans: Sequence[tuple[int, int]]
    keeps: tuple[Any, ...]
    team: Team | None = None


def build(entry: NativeEntry) -> Callable[..., Any]:
    """The built-in function of an entry.

    Its arguments are the program's inputs, by position, and its result the tuple of the outputs; `NotImplemented` if the call
    is not plain, and then nothing has happened.
    """
    donated = [(i, id(argument.donated)) for i, argument in enumerate(entry.inputs) if argument.donated is not None]
    arrays = {
        Word.INPUT_RECORDS: _words(w for argument in entry.inputs for w in _input_record(argument)),
        Word.TAKEN: np.zeros(len(entry.inputs), np.int64),
        Word.SPANS: _words((*(0,) * 2 * len(entry.inputs), *(word for span in entry.parameter_spans for word in span))),
        Word.DONATED_RECORDS: _words(w for record in donated for w in record),
        Word.OUTPUT_RECORDS: _words(w for result in entry.outputs for w in _output_record(result)),
        Word.CALL_RECORDS: _words(w for call in entry.calls for w in call),
        Word.COPY_RECORDS: _words(w for c in entry.copies for w in (c.into, c.source, c.nbytes)),
        Word.STATUSES: entry.statuses,
        Word.WATCHED: watchers,
    }
    numbers: dict[Word, int] = {
        Word.ARRAY_TYPE: id(np.ndarray),
        Word.HOST_ARRAY_TYPE: id(HostArray),
        Word.ELEMENTS_OFFSET: interpreter.elements_offset() or 0,
        Word.NOT_IMPLEMENTED: id(NotImplemented),
        Word.INPUTS: len(entry.inputs),
        Word.PARAMETERS: len(entry.parameter_spans),
        Word.DONATED: len(donated),
        Word.OUTPUTS: len(entry.outputs),
        Word.MODE: entry.mode,
        Word.CALLS: len(entry.calls),
        Word.COPIES: len(entry.copies),
        Word.STATUS_COUNT: len(entry.statuses),
        Word.FAULT: id(entry.fault),
        Word.WORK: id(entry.work),
    }
    if entry.team is not None:
        team = entry.team
        arrays |= {Word.POOL: team.control, Word.STATE: team.state}
        numbers |= {Word.START: team.start, Word.FINISH: team.finish, Word.LEAVE: team.leave}
        numbers |= {Word.THREADS: team.threads, Word.STEPS: team.steps, Word.TABLE: team.table}
        numbers[Word.WAKE] = id(team.wake)
    words = np.zeros(len(Word), np.int64)
    for which, array in arrays.items():
        words[which] = array.ctypes.data
    for which, number in numbers.items():
        words[which] = number
    enter = entering()
    return enter.bound((words, enter, entry, tuple(arrays.values())))


def _words(numbers: Iterable[int]) -> np.ndarray:
    return np.array([int(n) for n in numbers], np.int64)


def _input_record(argument: EntryArgument) -> list[int]:
    flags = _DENSE if argument.donated is None else _DENSE | interpreter.WRITEABLE
    head = [
        _descriptor(argument.type.dtype),
        argument.type.rank,
        flags,
        argument.type.static_nbytes,
        len(argument.places),
    ]
    return [*head, *argument.type.static_shape, *(word for place in argument.places for word in place)]


def _output_record(result: EntryResult) -> list[int]:
    if result.argument != FRESH:
        return [result.argument, 0, 0, 0, 0]
    head = [
        FRESH,
        _descriptor(result.type.dtype),
        result.type.rank,
        len(result.places),
        allocator_for(int(result.type.nbytes)),
    ]
    return [*head, *result.type.static_shape, *(word for place in result.places for word in place)]


def _descriptor(dtype: DType) -> int:
    """The descriptor object of a dtype; it lives as long as the dtype, which is forever."""
    return id(dtype.numpy)


# -------------------------------------------------------------------------------------- the function


class MethodDef(ctypes.Structure):
    """CPython's `PyMethodDef`."""

    _fields_ = (
        ("name", ctypes.c_char_p),
        ("function", ctypes.c_void_p),
        ("flags", ctypes.c_int),
        ("doc", ctypes.c_char_p),
    )


class Entering:
    """The native function, ready to be bound to any entry's words. A bound function keeps it alive, as CPython requires."""

    def __init__(self, code: ProgramCode) -> None:
        self._code = code
        doc = b"Run the program on its inputs; NotImplemented if they are not plain."
        self._definition = MethodDef(b"entry", code.address("enter"), _FASTCALL, doc)
        self._new = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.py_object, ctypes.c_void_p)(
            ("PyCFunction_NewEx", ctypes.pythonapi)
        )

    def bound(self, state: tuple[Any, ...]) -> Callable[..., Any]:
        """The built-in function whose `self` is `state`; its first item is the array of words."""
        function: Callable[..., Any] = self._new(ctypes.addressof(self._definition), state, None)
        return function


@cache
def entering() -> Entering:
    """The native function of this process."""
    return Entering(code_of(ENTRY))
