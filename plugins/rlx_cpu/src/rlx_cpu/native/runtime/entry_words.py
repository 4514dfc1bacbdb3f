"""The words that lead an entry: what each position holds, and how a program runs."""

from __future__ import annotations

from enum import IntEnum, auto
from typing import Final


class Word(IntEnum):
    """The words of an entry, in order. Addresses are of arrays that the entry's `self` keeps."""

    BUSY = 0
    """1 while a call is inside: its frame serves one at a time."""
    WATCHED = auto()
    """Address of a word that is not 0 while steps are measured, which is done on the checked path."""
    ARRAY_TYPE = auto()
    HOST_ARRAY_TYPE = auto()
    ELEMENTS_OFFSET = auto()
    """Bytes from the start of a `HostArray` to the reference to its NumPy array."""
    NOT_IMPLEMENTED = auto()
    INPUTS = auto()
    """Required number of arguments."""
    INPUT_RECORDS = auto()
    """For each: descriptor, rank, flags, bytes, number of places; the dims; the places (address of a word, bytes to add)."""
    TAKEN = auto()
    """Space for a reference to the NumPy array of each argument, during a call."""
    SPANS = auto()
    """Space for the start and end address of each argument's elements, then the same for each parameter."""
    PARAMETERS = auto()
    """Number of parameters that a donated argument must not overlap."""
    DONATED = auto()
    """Number of donated arguments."""
    DONATED_RECORDS = auto()
    """For each: the argument's number, and the object to which its `HostArray` refers afterwards."""
    OUTPUTS = auto()
    OUTPUT_RECORDS = auto()
    """For each: the argument that is returned or `FRESH`, descriptor, rank, number of places, the allocator of its memory
    (0 for NumPy's own); the dims; the places."""
    MODE = auto()
    CALLS = auto()
    """Number of steps."""
    CALL_RECORDS = auto()
    """For each: the address of its function, and of its buffers' addresses."""
    COPIES = auto()
    """Number of results that are copied at the end."""
    COPY_RECORDS = auto()
    """For each: address of the word with the destination, of the word with the source, bytes."""
    STATUSES = auto()
    STATUS_COUNT = auto()
    FAULT = auto()
    """The object whose call raises the fault that the status words tell of."""
    WORK = auto()
    """The object whose call runs the steps if the pool is not available here."""
    POOL = auto()
    """Address of the control block of the pool; this and all that follow for `Mode.AWAKE` and `Mode.SHARED`."""
    THREADS = auto()
    START = auto()
    """Address of the runtime's function of this name, as the next two."""
    FINISH = auto()
    LEAVE = auto()
    STEPS = auto()
    """Address of the steps as the runtime reads them."""
    TABLE = auto()
    STATE = auto()
    WAKE = auto()
    """The object whose call wakes threads that are parked."""


class Mode(IntEnum):
    """The threads that run a program."""

    TINY = 0
    """The caller; the interpreter's lock is held."""
    AWAKE = auto()
    """The caller with the threads that are awake, if there are any and the pool is free; the lock is held."""
    ALONE = auto()
    """The caller; the lock is released."""
    SHARED = auto()
    """All threads, the parked ones woken; the lock is released."""


FRESH: Final = -1
"""In place of an argument's number: the result is a new array."""
