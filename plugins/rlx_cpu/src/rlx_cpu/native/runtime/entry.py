"""A program's entry: a built-in function from its inputs to its outputs, for calls that only run the program.

The lookups of a call through Python (types, places, addresses) are precomputed as the words that `entry_code.enter` interprets.
The entry owns a frame, so its buffers never move.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from itertools import chain
from typing import Any, Final

import numpy as np
from attrs import field

from rlx_core.ir.apply import byte_bounds
from rlx_core.ir.array import Donated, HostArray
from rlx_core.ir.dtypes import DType
from rlx_core.ir.types import TensorType
from rlx_core.system.context import watchers
from rlx_core.system.records import frozen
from rlx_cpu.native.runtime import interpreter
from rlx_cpu.native.runtime.code import ENTRY, ProgramCode
from rlx_cpu.native.runtime.entry_words import FRESH, Word
from rlx_cpu.native.runtime.linked import code_of
from rlx_cpu.native.runtime.pool import control_for, pool_for, runtime, state_words
from rlx_cpu.native.runtime.result_memory import allocator_for

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


Content = int | np.ndarray | Callable[[], None]
"""The content of a word of an entry: a number, the address of an array, or that of an object that is called."""


def build(contents: Mapping[Word, Content], *keeps: object) -> Callable[..., Any]:
    """The built-in function of an entry.

    Its arguments are the program's inputs, by position, and its result the tuple of the outputs; `NotImplemented` if the call
    is not plain, and then nothing has happened.

    Args:
        contents: The words that differ between entries; missing ones are 0.
        keeps: What must live as long as the entry, in addition to the arrays and objects of `contents`.
    """
    words = np.zeros(len(Word), np.int64)
    words[Word.WATCHED] = watchers.buffer_info()[0]
    words[Word.ARRAY_TYPE], words[Word.HOST_ARRAY_TYPE] = id(np.ndarray), id(HostArray)
    words[Word.ELEMENTS_OFFSET] = interpreter.elements_offset() or 0
    words[Word.NOT_IMPLEMENTED] = id(NotImplemented)
    for which, content in contents.items():
        if isinstance(content, np.ndarray):
            words[which] = content.ctypes.data
        else:
            words[which] = content if isinstance(content, int) else id(content)
    enter = entering()
    return enter.bound((words, enter, dict(contents), keeps))


def contents_of_ends(
    inputs: Sequence[EntryArgument],
    outputs: Sequence[EntryResult],
    copies: Sequence[ResultCopy],
    params: Sequence[np.ndarray],
) -> dict[Word, Content]:
    """The words about arguments, results and what lies between them.

    Args:
        inputs, outputs: In the program's order.
        copies: Results that are copied at the end.
        params: The bound parameters; a donated argument must not overlap them.
    """
    donated = [(i, id(argument.donated)) for i, argument in enumerate(inputs) if argument.donated is not None]
    spans = list(map(byte_bounds, params))
    return {
        Word.INPUTS: len(inputs),
        Word.INPUT_RECORDS: _words(w for argument in inputs for w in _input_record(argument)),
        Word.TAKEN: np.zeros(len(inputs), np.int64),
        Word.SPANS: _words((*(0,) * 2 * len(inputs), *(word for span in spans for word in span))),
        Word.PARAMETERS: len(params),
        Word.DONATED: len(donated),
        Word.DONATED_RECORDS: _words(w for record in donated for w in record),
        Word.OUTPUTS: len(outputs),
        Word.OUTPUT_RECORDS: _words(w for result in outputs for w in _output_record(result)),
        Word.COPIES: len(copies),
        Word.COPY_RECORDS: _words(w for c in copies for w in (c.into, c.source, c.nbytes)),
    }


def _words(numbers: Iterable[int]) -> np.ndarray:
    return np.array([int(n) for n in numbers], np.int64)


def _input_record(argument: EntryArgument) -> list[int]:
    type, flags = argument.type, _DENSE if argument.donated is None else _DENSE | interpreter.WRITEABLE
    head = [_descriptor(type.dtype), type.rank, flags, type.static_nbytes, len(argument.places)]
    return [*head, *type.static_shape, *chain(*argument.places)]


def _output_record(result: EntryResult) -> list[int]:
    if result.argument != FRESH:
        return [result.argument, 0, 0, 0, 0]
    type, allocator = result.type, allocator_for(int(result.type.nbytes))
    head = [FRESH, _descriptor(type.dtype), type.rank, len(result.places), allocator]
    return [*head, *type.static_shape, *chain(*result.places)]


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


def contents_of_pool(words: np.ndarray, table: np.ndarray, threads: int, spin_us: int) -> dict[Word, Content]:
    """The words by which an entry uses the threads of a pool for the run of some words, on a table of addresses."""

    def wake() -> None:
        pool_for(threads, spin_us).wake()

    functions = {Word.START: "start", Word.FINISH: "finish", Word.LEAVE: "leave"}
    return {
        Word.POOL: control_for(threads, spin_us),
        Word.THREADS: threads,
        **{word: runtime().address(name) for word, name in functions.items()},
        Word.STEPS: words,
        Word.TABLE: table,
        Word.STATE: state_words(len(words)),
        Word.WAKE: wake,
    }
