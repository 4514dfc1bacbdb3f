"""Entries called by many threads at once, while others compile or bind weights, and by forked children."""

from __future__ import annotations

import threading
from functools import partial

import numpy as np
import pytest
from callers import finished, forked, forks, side_by_side
from entries import HOST, X, is_open, jitted, long_program, opened

import rlx_core as rlx

pytestmark = pytest.mark.usefixtures("without_poison")

RNG = np.random.default_rng(0)


@pytest.mark.medium
@pytest.mark.parametrize("size", [8, 96])
def test_eight_threads_on_one_function_while_others_compile(size: int) -> None:
    """A tiny program holds the interpreter's lock, a longer one gives it up; a frame serves one caller, others wait for none."""
    fast = jitted(long_program)
    inputs = [RNG.standard_normal((size, size)).astype("f4") for _ in range(8)]
    expected = [np.copy(fast(x)) for x in inputs]
    assert is_open(fast)

    def call(number: int) -> bool:
        return all(np.array_equal(fast(inputs[number]), expected[number]) for _ in range(60))

    def compile_others(number: int) -> bool:
        others = [jitted(lambda x, i=i: x * float(i + number)) for i in range(3)]
        return all(np.array_equal(other(X), X * np.float32(i + number)) for i, other in enumerate(others))

    callers = [partial(call, n) for n in range(8)]
    compilers = [partial(compile_others, n) for n in range(2)]
    assert all(side_by_side(*callers, *compilers))


@pytest.mark.medium
def test_weights_bound_while_others_run_are_seen_whole() -> None:
    """Every result is of one state of the weights, and a thread that bound one sees it or a later one."""
    fast = rlx.compile(
        lambda a, b, x: x * a + b, np.float32([0]), np.float32([0]), rlx.spec("f32[1]"), host=HOST, target="cpu"
    )
    x, is_over = np.float32([1000]), threading.Event()

    def bind(number: int) -> bool:
        fast.executable.set_params({"a": np.float32([number]), "b": np.float32([number])})
        return fast(x)[0] == 1001 * number

    def bind_all() -> bool:
        try:
            return all(bind(n) for n in range(1, 200))
        finally:
            is_over.set()

    def read() -> bool:
        return all(fast(x)[0] % 1001 == 0 for _ in iter(is_over.is_set, True))

    assert all(side_by_side(bind_all, read, read, read))


@pytest.mark.medium
@forks
@pytest.mark.parametrize("size", [8, 256])
def test_a_forked_child_calls_on(size: int) -> None:
    fast = jitted(long_program)
    x = RNG.standard_normal((size, size)).astype("f4")
    expected = np.copy(opened(fast, x)(x))
    assert finished(forked(lambda: all(np.array_equal(fast(x), expected) for _ in range(3)))) == 0
