"""The status words in which kernels report an index out of range: its position, and its value.

Every checked index of a launch is a *site* of 65 words, initialised to `NO_FAULT`. A thread that reads an index out of range
lowers the first word to the number of its point, by an atomic minimum, and those of the 64 others that correspond to bits set
in the index. So the first word is the first point in order, independent of the order of threads; and a bit of that point's
index was set exactly if its word contains the same point. It needs an atomic minimum of 32 bits, which all languages have, and
no lock.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from rlx_core.codegen.loops import Bound, Kernel
from rlx_core.codegen.places import Fault
from rlx_core.system.records import frozen

NO_FAULT = 0xFFFFFFFF
"""The value of all words as long as no index was out of range."""

LAST_PLACE = 0xFFFFFFFE
"""Represents this point and all after it; the index there is not known."""

_BITS = 64

SITE_WORDS = 1 + _BITS
"""Words of a site."""


@frozen
class Report:
    """An index out of range.

    Attributes:
        place: The number of the point of the grid, or of the element of a row where the index varies along that.
        index: Its value; `None` if that is not known.
    """

    place: int
    index: int | None


def report_of(words: np.ndarray) -> Report | None:
    """Return the report in the words of one site."""
    place = int(words[0])
    if place == NO_FAULT:
        return None
    if place == LAST_PLACE:
        return Report(place, None)
    bits = np.packbits(words[1:SITE_WORDS] == place, bitorder="little")
    return Report(place, int(bits.view("<i8")[0]))


def put_report(words: np.ndarray, place: int, index: int) -> None:
    """Write to the words of one site as a thread does that reads an index out of range."""
    bits = np.unpackbits(np.array([index], "<i8").view(np.uint8), bitorder="little").astype(bool)
    is_lowered = np.concatenate([[True], bits])
    words[is_lowered] = np.minimum(words[is_lowered], np.uint32(place))


def first_error(words: np.ndarray, faults: Sequence[Callable[[int | None, int], Exception]]) -> Exception | None:
    """The error of the first site that reported something; each has what makes one of the index and the place."""
    sites = words.reshape(len(faults), SITE_WORDS)
    for site in np.flatnonzero(sites[:, 0] != NO_FAULT).tolist():
        report = report_of(sites[site])
        assert report is not None, "its first word says so"
        return faults[site](report.index, report.place)
    return None


def fault_of(kernel: Kernel, number: int) -> Fault:
    """Return the fault of a checked index, a value of a kernel."""
    bound = kernel.values[number]
    assert isinstance(bound, Bound), "indices are checked where they are bound"
    return index_fault(kernel.name, bound.size)


def index_fault(name: str, size: int) -> Fault:
    """Return the fault of an index of an op or kernel that is outside an axis of `size` elements."""
    return Fault(f"{name}: index {{}} is outside an axis of {size} elements")
