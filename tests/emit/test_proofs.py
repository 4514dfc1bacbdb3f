"""What holds of programs on devices whatever happens: memory and queues, alignment, errors in the middle, several devices."""

from __future__ import annotations

import gc
import threading
import weakref
from typing import Any

import numpy as np
import pytest
from attrs import evolve

import rlx_core as rlx
from rlx_core.device.driver import At
from rlx_core.errors import IndexRangeError, LegalizeError, OutOfMemoryError, TraceError
from rlx_core.pipeline.compile import compile_graph
from rlx_core.runtime.executable import Executable
from rlx_core.testing.fake_device import FACTS, FakeArray, FakeDriver, fake_host

X = np.arange(12, dtype=np.float32).reshape(3, 4)


def uncached(function: Any, host: Any) -> Executable:
    """A program that nobody else knows."""
    return Executable(compile_graph(rlx.trace(function, X), target="fake", host=host))


@pytest.mark.medium
def test_an_array_keeps_its_queue_and_goes_with_it() -> None:
    """Nobody has the host, the program or the device any more; the result can still be read, and then nothing is left."""
    drivers: list[FakeDriver] = []

    found = uncached(lambda x: x + 1, fake_host(1, drivers=drivers)).run({"x": X}, outputs="device")[0]
    driver = weakref.ref(drivers.pop())
    buffer = weakref.ref(found.block)
    gc.collect()
    assert driver() is not None
    np.testing.assert_array_equal(found.to_host(), X + 1)
    del found
    gc.collect()
    assert (driver(), buffer()) == (None, None)


@pytest.mark.parametrize("alignment", [256, 1024])
def test_what_kernels_are_given_begins_where_the_device_wants_it(
    bench: Any, alignment: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[At] = []
    set_argument = FakeDriver.set_argument

    def watched(self: FakeDriver, launch: Any, number: int, argument: Any) -> None:
        given.extend([argument] if isinstance(argument, At) else [])
        set_argument(self, launch, number, argument)

    monkeypatch.setattr(FakeDriver, "set_argument", watched)
    strict = type(bench)(facts=evolve(FACTS, alignment=alignment))
    f = strict.jit(lambda x, y: (rlx.sum(rlx.exp(x) * y, axis=1), rlx.max(y), x - rlx.sum(y)))
    f(X, X + 1)
    f(strict.put(X), X + 1)
    assert len(given) > 10
    assert {at.offset % alignment for at in given} == {0}
    assert all(at.buffer.data.size % alignment == 0 for at in given)


def failing(bench: Any) -> dict[str, Any]:
    """Programs that fail in the middle, with a call that fails and one that does not."""
    bad, good = np.array([0, 9]), np.array([0, 1])
    on_host = {"config": {"dispatch.allow-host": ["rlx.sort"]}}
    return {
        "on the device": (bench.jit(lambda x, at: rlx.exp(rlx.take(x, at)) + 1), (X[0], bad), (X[0], good)),
        "before a step on the host": (
            bench.jit(lambda x, at: rlx.sort(rlx.take(x, at)) + 1, **on_host), (X[0], bad), (X[0], good),
        ),
    }  # fmt: skip


@pytest.mark.parametrize("place", ["on the device", "before a step on the host"])
def test_an_error_in_the_middle_leaves_memory_and_frames_as_they_were(bench: Any, place: str) -> None:
    f, bad, good = failing(bench)[place]
    right = f(*good)
    held = bench.driver.allocations
    for _ in range(3):
        with pytest.raises(IndexRangeError, match="index 9 is outside an axis of 4"):
            f(*bad)
        np.testing.assert_array_equal(f(*good), right)
    assert bench.driver.allocations == held
    assert bench.driver.waiting == 0


def test_a_step_on_the_host_that_raises_leaves_the_next_run_right(bench: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    f = bench.jit(lambda x: rlx.sort(x + 1) * 2, config={"dispatch.allow-host": ["rlx.sort"]})
    right, held = f(X), bench.driver.allocations

    def fails(*_: Any, **__: Any) -> Any:
        raise MemoryError("no memory on the host")

    with monkeypatch.context() as patch:
        patch.setattr("rlx_core.run.parts.HostCall.run", fails)
        with pytest.raises(OutOfMemoryError):
            f(X)
    np.testing.assert_array_equal(f(X), right)
    assert bench.driver.allocations == held


def test_eight_threads_on_one_executable_with_faults_among_them(bench: Any) -> None:
    take = bench.jit(lambda x, at: rlx.take(x, at, axis=0) * 2)
    there, wrong = bench.put(X), []

    def work(seed: int) -> None:
        for turn in range(20):
            at = np.array([turn % 3, 7 if (turn + seed) % 4 == 0 else 1])
            try:
                found = take(there if turn % 2 else X, at)
                if at[1] == 7:
                    np.asarray(found)
                    wrong.append("no error")
                elif not np.array_equal(found, 2 * X[at]):
                    wrong.append(f"{seed} {turn}")
            except IndexRangeError as error:
                if at[1] != 7 or "index 7 is" not in error.message:
                    wrong.append(error.message)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_two_devices_have_memory_and_queues_of_their_own() -> None:
    drivers: list[FakeDriver] = []
    host = fake_host(2, drivers=drivers)
    fs = [rlx.jit(lambda x: rlx.exp(x), target=f"fake:{i}", host=host) for i in range(2)]
    found = [f(rlx.device_put(X + i, f"fake:{i}", host=host)) for i, f in enumerate(fs)]
    assert [array.place for array in found] == ["fake:0", "fake:1"]
    assert [driver.waiting > 0 for driver in drivers] == [True, True]
    np.testing.assert_array_equal(found[1].to_host(), np.exp(X + 1))
    assert [driver.waiting > 0 for driver in drivers] == [True, False]
    drivers[0].is_lost = True
    np.testing.assert_array_equal(fs[1](X), np.exp(X))


@pytest.mark.medium
def test_programs_share_what_others_gave_back(bench: Any) -> None:
    first = uncached(lambda x: rlx.exp(x), bench.host)
    for _ in range(3):
        first.run({"x": X})
    held = bench.driver.allocations
    del first
    gc.collect()
    np.testing.assert_allclose(uncached(lambda x: rlx.sin(x), bench.host).run({"x": X})[0], np.sin(X), rtol=1e-6)
    assert bench.driver.allocations == held


class Foreign:
    """An array of a library that no device here knows."""

    shape, dtype = (3, 4), np.dtype(np.float32)

    def __dlpack_device__(self) -> tuple[int, int]:
        return 2, 0


def test_bad_input_is_named(bench: Any) -> None:
    f = bench.jit(lambda x: x + 1)
    with pytest.raises(TraceError, match="Foreign"):
        f(Foreign())
    with pytest.raises(LegalizeError, match=r"c64"):
        f(np.ones(3, np.complex64))
    large = type(bench)(facts=evolve(FACTS, largest_buffer=1024))
    with pytest.raises(OutOfMemoryError, match=r"of 4\d\d\d bytes, and a buffer there has at most 1024"):
        large.jit(lambda x: x + 1)(np.ones(1000, np.float32))
    other = fake_host(1)
    theirs = rlx.device_put(X, "fake:0", host=other)
    assert bench.jit(lambda x: x + 1)(FakeArray(theirs.block.buffer, 0, (3, 4), np.dtype(np.float32))) is not None
