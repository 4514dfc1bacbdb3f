"""A program on the CPU: frames and who owns which memory, several callers at once, sizes of zero, and what goes wrong."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import rlx_core as rlx
import rlx_core.run.memory
import rlx_cpu.plugin
from rlx_core import nn
from rlx_core.errors import IndexRangeError, OutOfMemoryError
from rlx_core.plugins import PluginHost
from rlx_core.run.memory import allocate
from rlx_core.run.program import PlannedProgram

HOST = PluginHost([rlx_cpu.plugin])

RNG = np.random.default_rng(0)
WEIGHTS = {"w": RNG.standard_normal((16, 16)).astype(np.float32), "b": RNG.standard_normal(16).astype(np.float32)}


def layers(weights: Any, x: Any) -> Any:
    """Enough steps for values to share bytes: products, a softmax, a view and two results."""
    h = nn.linear(x, weights["w"], weights["b"], activation="gelu")
    p = rlx.softmax(h @ weights["w"].T)
    return p + x, rlx.sum(h * p, axis=0)


def model(**options: Any) -> Any:
    return rlx.compile(layers, WEIGHTS, rlx.spec("f32[n, 16]"), host=HOST, target="cpu", **options)


def rows(count: int, seed: int = 1) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((count, 16)).astype(np.float32)


def equal(found: Any, expected: Any) -> None:
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_array_equal(a, b)


# ------------------------------------------------------------------------------------------------ memory


@pytest.fixture
def allocations(monkeypatch: pytest.MonkeyPatch) -> list[np.ndarray]:
    """Every arena that a program asks for, in order."""
    made: list[np.ndarray] = []

    def recorded(nbytes: int, alignment: int, name: str = "cpu") -> np.ndarray:
        made.append(allocate(nbytes, alignment, name))
        return made[-1]

    monkeypatch.setattr(rlx_core.run.memory, "allocate", recorded)
    return made


@pytest.mark.medium
def test_the_arena_is_allocated_once_for_each_size(allocations: list[np.ndarray]) -> None:
    fast = model()
    for count in (4, 4, 8, 4, 8):
        fast(rows(count))

    assert len(allocations) == 2
    assert allocations[0].ctypes.data % 64 == 0


def test_nothing_depends_on_what_the_arena_held_before(allocations: list[np.ndarray]) -> None:
    """Frames are reused without being cleared, so a step that read what it had not written would see the poison."""
    fast, x = model(), rows(5)
    expected = [result.copy() for result in fast(x)]
    for poison in (0x00, 0x7F, 0xFF):  # as f32: 0, 3.4e38 and NaN
        for arena in allocations:
            arena.fill(poison)
        equal(fast(x), expected)


def test_results_are_the_callers_own() -> None:
    fast, x = model(), rows(3)
    first = fast(x)
    kept = [result.copy() for result in first]
    for result in first:
        result += 1  # what a caller does to them reaches no later run
    second = fast(rows(3, seed=2))

    equal(fast(x), kept)
    assert not any(np.shares_memory(a, b) for a in first for b in (*second, x, *WEIGHTS.values()))


@pytest.mark.parametrize(
    "function",
    [lambda x: x, lambda x: (x, x), lambda x: rlx.reshape(x, (-1,)), lambda x: x.T, lambda x: (x[1:], x[:-1], x + 0)],
    ids=["itself", "twice", "reshaped", "transposed", "overlapping"],
)
def test_results_that_are_views_of_an_input_or_of_one_another_are_copied(function: Any) -> None:
    x = rows(3)
    before = x.copy()
    found = rlx.jit(function, host=HOST, target="cpu")(x)
    results = found if isinstance(found, tuple) else (found,)
    for result in results:
        result[...] = -1

    np.testing.assert_array_equal(x, before)
    assert not any(np.shares_memory(a, b) for i, a in enumerate(results) for b in results[i + 1 :])


def test_two_programs_share_the_weights_they_are_bound_to(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[PlannedProgram] = []
    bind = PlannedProgram.bind

    def recorded(program: PlannedProgram, params: Any) -> None:
        bind(program, params)
        made.append(program)

    monkeypatch.setattr(PlannedProgram, "bind", recorded)
    for fast in (model(), model()):
        fast(rows(2))
        fast(rows(3))  # another size is another program of the same executable

    held = [array for program in made for array in program.shared.params.arrays.values()]
    assert len(held) == 4 * len(WEIGHTS)
    assert all(any(np.shares_memory(array, weight) for weight in WEIGHTS.values()) for array in held)


@pytest.mark.medium
def test_an_arena_that_does_not_fit_is_an_error_with_its_size() -> None:
    # Sorting needs all of its operand at once; a sum of an element-wise chain is one loop without an arena, which would run on.
    pairs = rlx.compile(
        lambda x: rlx.sum(rlx.sort(x[:, None] * x[None, :])), rlx.spec("f32[n]"), host=HOST, target="cpu"
    )
    with pytest.raises(OutOfMemoryError, match=r"cpu: an arena of \d{14,} bytes cannot be allocated"):
        pairs(np.zeros(1 << 23, np.float32))  # 2**46 products of 4 bytes

    assert pairs(np.ones(3, np.float32)) == 9  # and it still works


# ------------------------------------------------------------------------------------------------ callers


def test_eight_threads_on_one_executable_get_their_own_results() -> None:
    fast = model()
    inputs = [rows(4, seed=s) for s in range(8)]
    expected = [[r.copy() for r in fast(x)] for x in inputs]
    gate = threading.Barrier(8)

    def work(index: int) -> list[Any]:
        gate.wait()
        return [fast(inputs[index]) for _ in range(50)]

    with ThreadPoolExecutor(8) as pool:
        for index, found in enumerate(pool.map(work, range(8))):
            for each in found:
                equal(each, expected[index])


@pytest.mark.parametrize("kind", ["writeable", "read-only", "every other row", "transposed", "reversed"])
def test_a_donated_array_gives_the_right_result_whatever_it_is(kind: str) -> None:
    state = rows(16)
    state = {
        "writeable": lambda: state,
        "read-only": lambda: np.broadcast_to(state[0], (16, 16)),
        "every other row": lambda: rows(32)[::2],
        "transposed": lambda: state.T,
        "reversed": lambda: state[::-1],
    }[kind]()
    before = state.copy()
    step = rlx.jit(lambda state, x: state * 0.5 + x, donate=["state"], host=HOST, target="cpu")
    x = rows(16, seed=3)

    np.testing.assert_array_equal(step(state, x), before * np.float32(0.5) + x)
    if not state.flags.writeable:
        np.testing.assert_array_equal(state, before)


# ------------------------------------------------------------------------------------------------ edges


@pytest.mark.parametrize("count", [0, 1])
def test_sizes_of_zero_and_one_run(count: int) -> None:
    summed, total = model()(rows(count))

    assert summed.shape == (count, 16)
    assert total.shape == (16,)
    if count == 0:
        np.testing.assert_array_equal(total, np.zeros(16, np.float32))


@pytest.mark.parametrize(("kind", "bits"), [(np.float16, 10), (ml_dtypes.bfloat16, 7)], ids=["f16", "bf16"])
def test_two_byte_floats_are_stored_as_such_and_rounded_once_a_step(kind: Any, bits: int) -> None:
    x = rows(4).astype(kind)
    found = rlx.jit(lambda x: rlx.softmax(rlx.exp(x) * x, axis=-1), host=HOST, target="cpu")(x)
    exact = x.astype(np.float64)
    exact = np.exp(exact) * exact
    exact = np.exp(exact - exact.max(-1, keepdims=True))
    exact /= exact.sum(-1, keepdims=True)

    assert found.dtype == np.dtype(kind)
    # exp and the product round before softmax turns their absolute error, on values up to 30, into a relative one.
    np.testing.assert_allclose(found.astype(np.float64), exact, rtol=64 * 2.0**-bits, atol=2.0**-bits)


def test_an_index_out_of_range_names_the_node_and_the_line_and_does_no_harm() -> None:
    table = rows(10)
    look_up = rlx.compile(
        lambda table, index: rlx.exp(rlx.take(table, index, axis=0)), table, rlx.spec("i64[n]"), host=HOST, target="cpu"
    )
    good = np.array([0, 9, 3])
    expected = look_up(good).copy()

    for index, said in ((np.array([0, 10, 3]), "10"), (np.array([-11, 0, 0]), "-11")):
        with pytest.raises(IndexRangeError, match=rf"index {said} is outside an axis of 10 elements") as caught:
            look_up(index)
        (node,) = [fact for fact in caught.value.facts if fact.label == "node"]
        assert "test_program.py" in str(node)
        np.testing.assert_array_equal(look_up(good), expected)


def test_a_program_for_all_sizes_is_run_for_none() -> None:
    """A gather from nothing is no loop, and the sum that it was fused with is taken apart."""
    total = rlx.compile(
        lambda x, i: rlx.sum(rlx.take(x * 2.0, i, axis=0) + 1.0),
        rlx.spec("f32[n, 3]"),
        rlx.spec("i64[k]"),
        target="cpu",
    )

    assert total(np.ones((4, 3), np.float32), np.int64([1, 2])) == 18
    assert total(np.ones((0, 3), np.float32), np.int64([])) == 0
