"""The host's side: replayed recordings, pointers, donation, threads, fork, faults, memory, DLPack, several devices."""

from __future__ import annotations

import importlib
import importlib.util
import os
import threading
from collections.abc import Iterator
from typing import Any, Final

import numpy as np

import rlx_core as rlx
from rlx_core.cli.validating.bench import Bench, Skip, expect_same_bits
from rlx_core.cli.validating.results import CheckRow
from rlx_core.device.driver import Driver
from rlx_core.errors import DeviceLostError, IndexRangeError, OutOfMemoryError, RlxError
from rlx_core.ir.dtypes import u8
from rlx_core.ir.types import TensorType
from rlx_core.pipeline.profile import profiled
from rlx_core.testing.judges import near

SHAPE: Final = (37, 53)
CALLS: Final = 6
"""Calls of one function: the first few may run without a recording."""

THREADS: Final = 4
MAX_BLOCKS: Final = 64
"""Blocks that are allocated until the device has no memory left."""

CPU: Final = 1
"""DLPack's number of the host's memory."""


def several(x: Any) -> Any:
    """A program of several launches."""
    return rlx.cumulative_sum(rlx.exp(-x * x), axis=1) - rlx.max(x, axis=0) + rlx.sum(x)


def values(seed: int) -> np.ndarray:
    return np.random.default_rng(seed).uniform(-2, 2, SHAPE).astype(np.float32)


def stepwise(f: Any, x: Any) -> np.ndarray:
    """The result with every launch submitted alone: a profile records nothing."""
    with profiled():
        return np.asarray(f(x))


def replay(bench: Bench, _: str) -> Iterator[CheckRow]:
    """A recording's results have the bits of separate launches."""

    def run() -> str:
        if not bench.device.driver.can_record:
            raise Skip("the driver records nothing")
        recorded = count_recordings(bench)
        f = bench.jit(several, outputs="device")
        x = bench.put(values(1))
        expected = stepwise(f, x)
        for _ in range(CALLS):
            expect_same_bits([np.asarray(f(x))], [expected], "replayed")
        if not recorded:
            raise AssertionError(f"{CALLS} calls on the same memory recorded nothing")
        return f"{len(recorded)} recordings"

    yield from bench.check("replay", run)


def count_recordings(bench: Bench) -> list[int]:
    """A list that grows with every recording that is made."""
    driver: Any = bench.device.driver
    record, counts = driver.record, []

    def recorded(launches: Any) -> Any:
        counts.append(len(launches))
        return record(launches)

    driver.record = recorded
    return counts


def pointers(bench: Bench, _: str) -> Iterator[CheckRow]:
    """Inputs at changing addresses, and memory that is freed and given out again."""

    def alternate() -> None:
        f = bench.jit(several, outputs="device")
        arrays = [bench.put(values(seed)) for seed in range(3)]
        expected = [stepwise(f, x) for x in arrays]
        for number in range(4 * len(arrays)):
            index = number % len(arrays) if number % 5 else 0
            expect_same_bits([np.asarray(f(arrays[index]))], [expected[index]], f"call {number}, array {index}")

    def changed() -> None:
        f = bench.jit(several, outputs="device")
        for seed in range(CALLS):
            x = bench.put(values(seed))
            expected = stepwise(f, x)
            for _ in range(3):
                expect_same_bits([np.asarray(f(x))], [expected], f"array {seed}")
            near(np.asarray(f(x)), np.asarray(several(values(seed))), 1e-4, 1e-3, f"array {seed}, against NumPy")
            del x  # the next one may lie here

    def kept() -> None:
        f = bench.jit(several, outputs="device")
        x, y = bench.put(values(1)), bench.put(values(2))
        results = [f(each) for each in (x, y, x, y, x, y)]
        expected = [stepwise(f, x), stepwise(f, y)]
        for number, result in enumerate(results):
            expect_same_bits([np.asarray(result)], [expected[number % 2]], f"result {number}, read at the end")

    yield from bench.check("alternating inputs", alternate)
    yield from bench.check("memory given out again", changed)
    yield from bench.check("results read at the end", kept)


def donation(bench: Bench, _: str) -> Iterator[CheckRow]:
    """A donated input gives its memory, and cannot be used again."""

    def run() -> None:
        f = bench.jit(lambda state, x: state * 0.5 + x, donate=("state",), outputs="device")
        x, state = values(3), values(4)
        on_device = bench.put(state)
        for _ in range(CALLS):
            old, on_device, state = on_device, f(on_device, x), state * np.float32(0.5) + x
        near(np.asarray(on_device), state, 1e-6, 1e-6, "after donated steps")
        try:
            old.to_host()
        except RlxError:
            return
        raise AssertionError("a donated array can still be read")

    yield from bench.check("donated state", run)


def threads(bench: Bench, _: str) -> Iterator[CheckRow]:
    """Several threads call two functions."""

    def run() -> None:
        functions = [bench.jit(several), bench.jit(lambda x: rlx.tanh(x) @ x.T)]
        expected = {(n, seed): np.asarray(f(values(seed))) for n, f in enumerate(functions) for seed in range(THREADS)}
        errors: list[BaseException] = []

        def work(seed: int) -> None:
            try:
                for number in range(10):
                    n = (number + seed) % len(functions)
                    result = np.asarray(functions[n](values(seed)))
                    expect_same_bits([result], [expected[n, seed]], f"thread {seed}, call {number}")
            except BaseException as error:  # noqa: BLE001  raised below, in the step's own thread
                errors.append(error)

        workers = [threading.Thread(target=work, args=(seed,)) for seed in range(THREADS)]
        for each in workers:
            each.start()
        for each in workers:
            each.join()
        if errors:
            raise errors[0]

    yield from bench.check(f"{THREADS} threads", run)


def fork(bench: Bench, _: str) -> Iterator[CheckRow]:
    """A fork's child is refused the device with an error, and the parent goes on."""

    def run() -> None:
        if not hasattr(os, "fork"):
            raise Skip("the system has no fork")
        f, x = bench.jit(several), values(5)
        expected = np.asarray(f(x))
        child = os.fork()
        if child == 0:
            code = 1
            try:
                f(x)
            except DeviceLostError:
                code = 0
            except BaseException:  # noqa: BLE001  reported by the exit code
                code = 2
            os._exit(code)
        _, status = os.waitpid(child, 0)
        expect_same_bits([np.asarray(f(x))], [expected], "in the parent, after the fork")
        if status:
            raise AssertionError(f"the child of a fork got no DeviceLostError (status {status})")

    yield from bench.check("fork", run)


def faults(bench: Bench, _: str) -> Iterator[CheckRow]:
    """An index outside is reported, and the next call is right."""

    def run() -> None:
        f, x = bench.jit(lambda x, i: rlx.take(x, i, axis=0)), values(6)
        try:
            np.asarray(f(x, np.array([1, SHAPE[0]])))
        except IndexRangeError:
            expect_same_bits([np.asarray(f(x, np.array([1, 5])))], [x[[1, 5]]], "the call after it")
            return
        raise AssertionError("an index outside of an axis is not reported")

    yield from bench.check("an index outside", run)


def memory(bench: Bench, _: str) -> Iterator[CheckRow]:
    """Out of memory is an error of rlx, after which the device works."""
    f, x = bench.jit(several), values(7)
    total, limit = bench.device.facts.memory_nbytes, bench.device.facts.largest_buffer

    def works(expected: np.ndarray) -> None:
        expect_same_bits([np.asarray(f(x))], [expected], "after the device was out of memory")

    def too_large() -> None:
        expected = np.asarray(f(x))
        try:
            bench.device.empty(TensorType(u8, (total + 1,)))
        except OutOfMemoryError:
            works(expected)
            return
        raise AssertionError(f"{total + 1} bytes of {total} are given out")

    def exhausted() -> str:
        expected = np.asarray(f(x))
        nbytes = min(limit, max(total // 8, 1))
        blocks: list[Any] = []
        is_refused = False
        try:
            while len(blocks) < MAX_BLOCKS:
                blocks.append(bench.device.empty(TensorType(u8, (nbytes,))))
        except OutOfMemoryError:
            is_refused = True
        count = len(blocks)
        blocks.clear()
        if not is_refused and bench.device.facts.is_processor:
            raise Skip("a processor's memory is allocated when it is first used")
        if not is_refused:
            raise AssertionError(f"{count} blocks of {nbytes} bytes are given out, of {total} in all")
        works(expected)
        other = min(limit, total // 2)  # of another size, so that memory is freed and not only used again
        bench.device.empty(TensorType(u8, (other,)))
        return f"{count} blocks of {nbytes} bytes"

    yield from bench.check("more than all memory", too_large)
    yield from bench.check("exhausted and freed", exhausted)


def dlpack(bench: Bench, _: str) -> Iterator[CheckRow]:
    """DLPack in both directions with the libraries that are installed."""
    driver = bench.device.driver
    if type(driver).export is Driver.export:
        yield CheckRow("dlpack", "skipped", "the driver exports no memory")
        return
    kind = driver.dlpack_device[0]
    libraries = ("numpy",) if kind == CPU else bench.diagnostics.dlpack_libraries
    for library in libraries:
        if importlib.util.find_spec(library.partition(".")[0]) is None:
            yield CheckRow(library, "skipped", "not installed")
            continue
        yield from bench.check(f"to {library}", exported, bench, library)
        yield from bench.check(f"from {library}", imported, bench, library)


def exported(bench: Bench, library: str) -> None:
    x = values(9)
    other: Any = importlib.import_module(library)
    received = other.from_dlpack(bench.put(x))
    expect_same_bits([on_host(received)], [x], f"seen by {library}")
    result = bench.jit(several, outputs="device")(bench.put(x))
    expected = result.to_host()
    seen = other.from_dlpack(result)
    expect_same_bits([on_host(seen)], [expected], f"a result, seen by {library}")


def on_host(array: Any) -> np.ndarray:
    """Return a copy of another library's array: its own copy to the host where NumPy cannot read the device's memory."""
    for method in ("cpu", "get"):
        if hasattr(array, method):
            return np.array(getattr(array, method)())
    return np.array(array)


def imported(bench: Bench, library: str) -> None:
    x = values(10)
    f = bench.jit(lambda x: x * 2)
    other: Any = importlib.import_module(library)
    tensor = other.from_dlpack(bench.put(x))
    bench.put(values(0))  # it must not lie in memory that the other library still uses
    for what, part, expected in (
        ("dense", tensor, x),
        ("at strides", tensor[1:, 1::3], x[1:, 1::3]),
        ("transposed", tensor.T, x.T),
    ):
        expect_same_bits([np.asarray(f(part))], [expected * 2], f"of {library}, {what}")


def devices(bench: Bench, _: str) -> Iterator[CheckRow]:
    """The same bits on a second device, and a copy between both."""

    def run() -> None:
        places = [str(each.target) for each in rlx.devices(bench.target.partition(":")[0], host=bench.host)]
        if len(places) < 2:
            raise Skip("there is one device")
        x = values(11)
        results = []
        for place in places[:2]:
            on_device = rlx.device_put(x, place, host=bench.host)
            results.append(np.asarray(rlx.jit(several, target=place, host=bench.host)(on_device)))
        expect_same_bits([results[1]], [results[0]], f"on {places[1]} and {places[0]}")
        first = rlx.device_put(x, places[0], host=bench.host)
        expect_same_bits([np.asarray(rlx.device_put(first, places[1], host=bench.host))], [x], "copied between devices")

    yield from bench.check("two devices", run)
