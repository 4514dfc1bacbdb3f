"""The modules of a program: built once, by several threads, and read from the cache by the next process."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

import rlx_core as rlx
from rlx_core.device.device import Device
from rlx_core.emit.emitters import Function
from rlx_core.emit.modules import build_modules, dealt
from rlx_core.errors import KernelBuildError
from rlx_core.pipeline.compile import compile_graph
from rlx_core.runtime.executable import Executable
from rlx_core.testing.fake_device import FACTS, FakeDriver, LoopLanguage

KERNEL = """kernel {name} grid [{size}] row []
  operand 0: x0 f32
  result 1: y0 f32
  %0 = load x0[g0*4] : f32
  store %0 -> y0[g0*4]
"""


class Store(dict[str, bytes]):
    """An object store in memory."""

    def put(self, key: str, payload: bytes) -> bool:
        self[key] = payload
        return True

    def drop(self, key: str, reason: str) -> None:
        del self[key]


def functions(count: int) -> list[Function]:
    return [Function(f"copy{i}", KERNEL.format(name=f"copy{i}", size=i + 1)) for i in range(count)]


def device(driver: FakeDriver) -> Device:
    return Device("fake:0", FACTS, lambda: driver)


def test_the_next_process_builds_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: 4)
    store, first, second = Store(), FakeDriver(), FakeDriver()
    made = build_modules(device(first), LoopLanguage(), functions(10), store)
    assert (first.built, made.is_cached, len(store)) == (4, False, 4)
    again = build_modules(device(second), LoopLanguage(), functions(10), store)
    assert (second.built, again.is_cached) == (0, True)
    assert set(again.by_function) == {f"copy{i}" for i in range(10)}


def test_what_was_built_ahead_is_not_built_again_and_is_forgotten_at_the_end(
    bench: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Programs of several plans find their functions in the module that was built for all of them."""
    monkeypatch.setattr("os.cpu_count", lambda: 1)

    def plan(function: Any) -> Any:
        return compile_graph(rlx.trace(function, np.ones((3, 4), np.float32)), target="fake", host=bench.host)

    plans = [plan(lambda x: rlx.exp(x) * 2), plan(lambda x: rlx.sum(x, axis=1))]
    first = plans[0]
    with first.backend.built_ahead([p.lir for p in plans], first.target, first.lir.options):
        built = bench.driver.built
        for each in plans:
            Executable(each).run({"x": np.ones((3, 4), np.float32)})
        assert (built, bench.driver.built) == (1, 1)
    Executable(plan(lambda x: rlx.exp(x) * 2)).run({"x": np.ones((3, 4), np.float32)})
    assert bench.driver.built == 2


def test_a_stale_binary_is_dropped_and_the_source_built() -> None:
    store, driver = Store(), FakeDriver()
    build_modules(device(driver), LoopLanguage(), functions(1), store)
    (key,) = store
    store[key] = b"of another driver"
    assert not build_modules(device(driver), LoopLanguage(), functions(1), store).is_cached
    assert store[key] != b"of another driver"


def test_functions_are_dealt_out_alike_whatever_their_order() -> None:
    some = functions(7)
    parts = dealt(some, 3)
    assert dealt(some[::-1], 3) == parts
    assert sorted(len(part) for part in parts) == [2, 2, 3]
    assert dealt([], 3) == []


def test_a_source_that_the_compiler_refuses_is_an_error_of_ours() -> None:
    with pytest.raises(KernelBuildError, match="its compiler refuses the source"):
        build_modules(device(FakeDriver()), LoopLanguage(), [Function("f", "nonsense")], None)


def test_programs_are_cached_between_executables(bench: Any) -> None:
    x = np.ones(3, np.float32)
    bench.jit(lambda x: x * 3 + 7)(x)
    built = bench.driver.built
    again = bench.jit(lambda x: x * 3 + 7)
    again(x)
    assert bench.driver.built == built


def test_a_language_of_one_kernel_a_module_gets_as_many_modules(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    language, driver = LoopLanguage(), FakeDriver()
    monkeypatch.setattr(language, "has_one_entry", True)
    build_modules(device(driver), language, functions(5), None)
    assert driver.built == 5


def test_a_kernel_that_does_not_compile_is_named_with_its_node_and_line(
    bench: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    printed = LoopLanguage.module

    def broken(self: LoopLanguage, functions: Any) -> str:
        return printed(self, functions).replace("tanh(", "tanch(")

    x = np.ones(3, np.float32)
    monkeypatch.setattr(LoopLanguage, "module", broken)
    f = bench.jit(lambda x: (rlx.exp(x), rlx.tanh(x[:2]), rlx.sin(x[1:])))
    with pytest.raises(KernelBuildError, match="its compiler refuses the source") as caught:
        f(x)
    found = {fact.label: fact for fact in caught.value.facts}
    assert str(found["node"].value).endswith("rlx.tanh")
    assert "test_modules.py" in str(found["node"].where)
    monkeypatch.undo()
    np.testing.assert_allclose(f(x)[1], np.tanh(x[:2]), rtol=1e-6)


@pytest.mark.parametrize("available", [0, 1])
def test_modules_are_built_where_no_thread_is_to_be_had(available: int, monkeypatch: pytest.MonkeyPatch) -> None:
    start, left = threading.Thread.start, [None] * available

    def refused(thread: threading.Thread) -> None:
        if not left:
            raise RuntimeError("can't start new thread")
        left.pop()
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", refused)
    built = build_modules(device(FakeDriver()), LoopLanguage(), functions(5), None)
    assert sorted(built.by_function) == [f"copy{i}" for i in range(5)]
