"""Donation by an entry: which arrays it takes, what remains of them, and calls that are refused."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
from callers import side_by_side
from entries import X, entry_of, jitted, opened, step

import rlx_core as rlx
from rlx_core.errors import DonatedError, IndexRangeError, WrongInputCountError
from rlx_core.ir.array import HostArray
from rlx_cpu.native.runtime import interpreter

pytestmark = pytest.mark.usefixtures("without_poison")

G = np.ones(8, "f4")


def array(value: float = 1, size: int = 8) -> HostArray:
    """An array of rlx, to whose elements nothing else refers."""
    return HostArray(np.full(size, value, "f4"))


def test_an_entry_donates_and_the_result_is_in_the_same_memory() -> None:
    fast = opened(jitted(step, donate="p"), G, G)
    p = array()
    memory = p._array.ctypes.data
    (result,) = fast.executables[0].entry_cell.entry(p, G)
    assert type(result) is HostArray
    assert result._array.ctypes.data == memory
    np.testing.assert_array_equal(result, np.full(8, 0.5, "f4"))
    assert repr(p) == "<donated array f32[8]>"
    with pytest.raises(DonatedError, match=r"this array \(f32\[8\]\) was donated \(argument p of step\)"):
        np.asarray(p)


SHARED: dict[str, Callable[[HostArray], Any]] = {
    "a view": np.asarray,
    "the elements": lambda p: p._array,
    "DLPack": np.from_dlpack,
    "a slice": lambda p: p[2:],
    "another array": lambda p: HostArray(p._array),
}


@pytest.mark.parametrize("name", SHARED)
def test_elements_with_another_reference_are_refused_and_copied(name: str) -> None:
    fast = opened(jitted(step, donate="p"), G, G)
    p = array()
    other = SHARED[name](p)
    before = np.copy(other)
    assert fast.executables[0].entry_cell.entry(p, G) is NotImplemented
    assert not p.is_donated
    np.testing.assert_array_equal(fast(p, G), np.full(8, 0.5, "f4"))
    assert p.is_donated
    np.testing.assert_array_equal(other, before)


def test_an_array_that_is_a_view_is_refused_and_one_over_foreign_memory_is_not() -> None:
    entry = opened(jitted(step, donate="p"), G, G).executables[0].entry_cell.entry
    memory = bytearray(np.ones(8, "f4").tobytes())
    assert entry(HostArray(np.ones(16, "f4")[:8]), G) is NotImplemented
    np.testing.assert_array_equal(entry(HostArray(np.frombuffer(memory, "f4")), G)[0], np.full(8, 0.5, "f4"))


@pytest.mark.parametrize("size", [8, 0])
def test_an_array_that_is_given_twice_is_refused(size: int) -> None:
    fast = opened(jitted(lambda a, b: (a + 1, b * 2), donate=("a", "b")), G[:size], G[:size])
    x = array(3, size)
    assert fast.executables[0].entry_cell.entry(x, x) is NotImplemented
    with pytest.raises(DonatedError, match="donated twice"):
        fast(x, x)
    assert not x.is_donated


def test_a_refused_call_donates_nothing() -> None:
    fast = opened(jitted(lambda a, b: (a + 1, b * 2), donate=("a", "b")), G, G)
    entry = fast.executables[0].entry_cell.entry
    donated = array()
    fast(donated, array())
    empty = HostArray.__new__(HostArray)
    for wrong in (donated, empty, array(1, 4), HostArray(np.ones(8, "f8")), HostArray(np.ones(16, "f4")[::2])):
        for arguments in ((array(), wrong), (wrong, array())):
            assert entry(*arguments) is NotImplemented
            assert not any(each.is_donated for each in arguments if each is not donated and each is not empty)
    with pytest.raises(WrongInputCountError):
        fast(array())


@pytest.mark.medium
@pytest.mark.skipif(not os.path.exists("/proc/self/statm"), reason="used address space is read as on Linux")
def test_results_that_do_not_fit_into_memory_undo_the_donation() -> None:
    import resource  # Unix has it

    size = 1 << 26
    fast = jitted(lambda p: (p + 1, rlx.full((size,), 2.0) * p[0]), donate="p")
    kept = fast(array())  # its memory must not serve the next result
    entry, p = entry_of(fast), array()
    references = sys.getrefcount(p._data)
    limits = resource.getrlimit(resource.RLIMIT_AS)
    with open("/proc/self/statm") as file:
        used = int(file.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + 2 * size, limits[1]))
    try:
        assert entry(p) is NotImplemented
    finally:
        resource.setrlimit(resource.RLIMIT_AS, limits)
    left = sys.getrefcount(p._data)  # not in the assertion, which would refer to it
    assert left == references
    np.testing.assert_array_equal(p, G)
    del kept
    np.testing.assert_array_equal(entry(p)[0], np.full(8, 2, "f4"))


def test_a_call_that_raises_has_donated_its_arguments() -> None:
    fast = jitted(lambda p, i: rlx.take(p, i, axis=0) * 2.0, donate="p")
    opened(fast, G, np.array([0, 3]))
    for _ in range(3):
        p = array()
        with pytest.raises(IndexRangeError):
            fast(p, np.array([0, 9]))
        assert p.is_donated


@pytest.mark.slow
def test_donating_leaves_no_reference_behind() -> None:
    fast = opened(jitted(lambda p, q: (p + q, rlx.sum(q)), donate=("p", "q")), G, G)
    entry = fast.executables[0].entry_cell.entry
    shared = array()
    objects = [np.dtype("f4"), np.ndarray, HostArray, NotImplemented, shared._data, fast, entry]
    gc.collect()
    before = [sys.getrefcount(each) for each in objects]
    p = array()
    for _ in range(20_000):
        p, _total = fast(p, array())
        entry(shared, p)  # refused: `objects` refers to its elements
    gc.collect()
    after = [sys.getrefcount(each) for each in objects]
    # Other threads of the test process may hold a dtype for a moment; a leak would be 20,000.
    assert all(abs(a - b) < 10 for a, b in zip(after, before, strict=True)), (before, after)


@pytest.mark.medium
def test_elements_that_are_replaced_during_a_call_live_until_its_end() -> None:
    """Other threads give an argument new elements while a program that released the interpreter's lock reads the old ones."""
    size = 200
    fast = opened(jitted(lambda x: rlx.tanh(x @ x) @ x), X[:1, :1].repeat(size, 0).repeat(size, 1))
    x = HostArray(np.zeros((size, size), "f4"))

    def replace(number: int) -> bool:
        for _ in range(100):
            x[:] = np.full((size, size), number, "f4")
        return True

    def read() -> bool:
        results = [np.asarray(fast(x)) for _ in range(100)]
        return all((each == each[0, 0]).all() for each in results)

    assert all(side_by_side(read, read, partial(replace, 1), partial(replace, 2)))


@pytest.mark.medium
def test_of_many_threads_one_has_an_array_by_entries_of_two_programs() -> None:
    functions = [opened(jitted(f, donate="p"), G, G) for f in (step, lambda p, g: p + g)]
    for _ in range(50):
        p = array()

        def call(fast: Any, p: HostArray = p) -> bool:
            try:
                fast(p, G)
            except DonatedError:
                return False
            return True

        assert sum(side_by_side(*[partial(call, fast) for fast in functions * 3])) == 1


def test_an_unknown_layout_of_arrays_of_rlx_means_no_entry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interpreter, "elements_offset", lambda: None)
    assert list(interpreter._differences()) == ["arrays of rlx have another layout"]
