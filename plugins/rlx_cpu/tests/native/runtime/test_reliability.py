"""Native programs under stress: bits that never change, callers beside compilers, forks after the pool has started."""

from __future__ import annotations

import multiprocessing
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from callers import finished, forked, forks

import rlx_core as rlx
import rlx_cpu.plugin
from rlx_core import nn
from rlx_core.plugins import PluginHost
from rlx_cpu.native.sharing import everything_is_shared

HOST = PluginHost([rlx_cpu.plugin])


def array(seed: int, *shape: int) -> np.ndarray:
    return (np.random.default_rng(seed).standard_normal(shape) / 4).astype("f4")


def attention(x: Any, w: Any) -> Any:
    q, k, v = (rlx.permute_dims(rlx.reshape(x @ w[i], (2, 24, 4, 16)), (0, 2, 1, 3)) for i in range(3))
    p = rlx.softmax(q @ rlx.permute_dims(k, (0, 1, 3, 2)) / 4.0)
    return rlx.reshape(rlx.permute_dims(p @ v, (0, 2, 1, 3)), (2, 24, 64))


def encoder(x: Any, w: Any) -> Any:
    """A transformer layer, as MiniLM has six of."""
    h = rlx.layer_norm(x + attention(x, w))
    return rlx.layer_norm(h + nn.gelu(h @ w[3]) @ w[4])


def training(x: Any, w: Any) -> Any:
    """A step of gradient descent through the layer: attention's backward, products of both orders, reductions."""
    value, gradient = rlx.value_and_grad(lambda w: rlx.mean(encoder(x, w) ** 2 + x))(w)
    return value, w - 0.1 * gradient


def perceptron(x: Any, w: Any) -> Any:
    def loss(w: Any) -> Any:
        h = rlx.reshape(x, (48, 64))
        for i in range(3):
            h = nn.gelu(h @ w[i])
        return -rlx.mean(rlx.log_softmax(h)[:, 3])

    value, gradient = rlx.value_and_grad(loss)(w)
    return value, w - 0.1 * gradient


PROGRAMS: dict[str, Callable[[Any, Any], Any]] = {"encoder": encoder, "gpt": training, "mlp": perceptron}
X, W = array(0, 2, 24, 64), array(1, 5, 64, 64)


def compiled(program: str, **options: Any) -> Callable[[], tuple[bytes, ...]]:
    """A call that gives the bytes of all results."""
    made = rlx.jit(PROGRAMS[program], host=HOST, target="cpu", config={"options": options})

    def call() -> tuple[bytes, ...]:
        found = made(X, W)
        return tuple(np.asarray(a).tobytes() for a in (found if isinstance(found, tuple) else (found,)))

    return call


@pytest.mark.medium
@pytest.mark.parametrize("program", PROGRAMS)
def test_a_thousand_runs_give_the_same_bits(program: str) -> None:
    """The last half of them beside a thread that keeps both CPUs and the interpreter busy."""
    with everything_is_shared():
        call = compiled(program, **{"cpu.threads": 2, "cpu.spin": 200})
        first = call()
        assert all(call() == first for _ in range(500))
        is_over = threading.Event()

        def load() -> None:
            while not is_over.is_set():
                np.sort(array(2, 2000))

        busy = threading.Thread(target=load)
        busy.start()
        try:
            assert all(call() == first for _ in range(500))
        finally:
            is_over.set()
            busy.join()


@pytest.mark.medium
@pytest.mark.parametrize("program", PROGRAMS)
def test_no_bit_depends_on_the_number_of_threads(program: str) -> None:
    with everything_is_shared():
        alone = compiled(program, **{"cpu.threads": 1})()
        for threads in (2, 3, 5):
            assert compiled(program, **{"cpu.threads": threads})() == alone


def test_eight_threads_call_one_executable_while_others_compile() -> None:
    with everything_is_shared():
        call = compiled("encoder", **{"cpu.threads": 2})
        first = call()
        is_over = threading.Event()
        made: list[int] = []

        def compile_more() -> None:
            size = 3
            while not is_over.is_set():
                size += 1
                fresh = rlx.jit(lambda x: rlx.softmax(x @ x.T), host=HOST, target="cpu")
                x = array(size, size, size)
                np.testing.assert_allclose(np.sum(np.asarray(fresh(x)), axis=1), 1, rtol=1e-5)  # rows of f32 weights
                made.append(size)

        with ThreadPoolExecutor(10) as pool:
            compilers = [pool.submit(compile_more) for _ in range(2)]
            callers = [pool.submit(lambda: all(call() == first for _ in range(40))) for _ in range(8)]
            try:
                assert all(caller.result(timeout=120) for caller in callers)
            finally:
                is_over.set()
            for each in compilers:
                each.result(timeout=120)
    assert made


# ------------------------------------------------------------------------------------------------ forks


@pytest.mark.medium
@forks
def test_a_child_runs_and_compiles_and_its_parent_goes_on() -> None:
    with everything_is_shared():
        call = compiled("mlp", **{"cpu.threads": 2})
        first = call()

        def holds() -> bool:
            fresh = compiled("mlp", **{"cpu.threads": 2})
            return call() == call() == fresh() == first

        for _ in range(3):
            child = forked(holds)
            assert call() == first  # at the same time
            assert finished(child) == 0
        assert call() == first


def _in_child(queue: Any, call: Callable[[], tuple[bytes, ...]]) -> None:
    queue.put(call())


@pytest.mark.medium
@forks
def test_children_of_multiprocessing_run_and_exit() -> None:
    with everything_is_shared():
        call = compiled("encoder", **{"cpu.threads": 2})
        first = call()
        context = multiprocessing.get_context("fork")
        queue = context.Queue()
        children = [context.Process(target=_in_child, args=(queue, call)) for _ in range(2)]
        for child in children:
            child.start()
        found = [queue.get(timeout=60) for _ in children]
        for child in children:
            child.join(60)

        assert found == [first, first]
        assert [child.exitcode for child in children] == [0, 0]
        assert call() == first
