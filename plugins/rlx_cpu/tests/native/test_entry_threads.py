"""Entries called by many threads at once, while others compile or bind weights, and by forked children."""

from __future__ import annotations

import os
import threading
import time

import numpy as np
import pytest
from entries import HOST, X, is_open, jitted, long_program, opened

import rlx_core as rlx

RNG = np.random.default_rng(0)


@pytest.mark.parametrize("size", [8, 96])
def test_eight_threads_on_one_function_while_others_compile(size: int) -> None:
    """A tiny program holds the interpreter's lock, a longer one gives it up; a frame serves one caller, others wait for none."""
    fast = jitted(long_program)
    inputs = [RNG.standard_normal((size, size)).astype("f4") for _ in range(8)]
    expected = [np.copy(fast(x)) for x in inputs]
    assert is_open(fast)
    wrong: list[str] = []

    def call(number: int) -> None:
        wrong.extend(f"{number}" for _ in range(60) if not np.array_equal(fast(inputs[number]), expected[number]))

    def compile_others(number: int) -> None:
        for i in range(3):
            other = jitted(lambda x, i=i: x * float(i + number))
            if not np.array_equal(other(X), X * np.float32(i + number)):
                wrong.append("compiled")

    threads = [threading.Thread(target=call, args=(n,)) for n in range(8)]
    threads += [threading.Thread(target=compile_others, args=(n,)) for n in range(2)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert not wrong


def test_weights_bound_while_others_run_are_seen_whole() -> None:
    """Every result is of one state of the weights, and a thread that bound one sees it or a later one."""
    fast = rlx.compile(
        lambda a, b, x: x * a + b, np.float32([0]), np.float32([0]), rlx.spec("f32[1]"), host=HOST, target="cpu"
    )
    x, stop, torn = np.float32([1000]), threading.Event(), []

    def read() -> None:
        while not stop.is_set():
            found = float(fast(x)[0])
            if found % 1001:
                torn.append(found)

    readers = [threading.Thread(target=read) for _ in range(3)]
    for each in readers:
        each.start()
    for n in range(1, 200):
        fast.executable.set_params({"a": np.float32([n]), "b": np.float32([n])})
        assert fast(x)[0] == 1001 * n
    stop.set()
    for each in readers:
        each.join()
    assert not torn


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this platform has no fork")
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")  # newer Pythons warn of forks beside threads
@pytest.mark.parametrize("size", [8, 256])
def test_a_forked_child_calls_on(size: int) -> None:
    fast = jitted(long_program)
    x = RNG.standard_normal((size, size)).astype("f4")
    expected = np.copy(opened(fast, x)(x))
    child = os.fork()
    if child == 0:
        os._exit(0 if all(np.array_equal(fast(x), expected) for _ in range(3)) else 1)
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            assert status == 0
            return
        time.sleep(0.01)
    os.kill(child, 9)
    os.waitpid(child, 0)
    pytest.fail("the child hangs")
