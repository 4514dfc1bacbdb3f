"""Entries: what goes straight, what is refused, and that nobody can tell the two roads apart."""

from __future__ import annotations

import gc
import os
import sys
import threading
import time
import weakref
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import rlx_core as rlx
import rlx_cpu.plugin
from rlx_core import nn
from rlx_core.errors import DtypeError, IndexRangeError, RlxError, ShapeError, WrongInputCountError
from rlx_core.plugins import PluginHost
from rlx_cpu.native import interpreter, pool
from rlx_cpu.native.entry_words import Mode
from rlx_cpu.native.pool_code import LINE, WORKERS
from rlx_cpu.native.program import NativeProgram
from rlx_cpu.native.work import takes_longer
from rlx_cpu.profile import profiled

HOST = PluginHost([rlx_cpu.plugin])
RNG = np.random.default_rng(0)
X = RNG.standard_normal((4, 16)).astype("f4")
W = RNG.standard_normal((16, 16)).astype("f4")


def jitted(function: Callable[..., Any], **more: Any) -> Any:
    return rlx.jit(function, host=HOST, target="cpu", **more)


def program(fast: Any) -> NativeProgram:
    """The program that served the only size so far."""
    (executable,) = fast.executables
    (bound,) = executable._shared.programs.values()
    found = bound.program
    assert isinstance(found, NativeProgram)
    return found


def entry_of(fast: Any) -> Callable[..., Any]:
    """The entry of a jitted function that was called before."""
    made = program(fast).entry()
    assert made is not None, program(fast).reason_without_entry
    return made


def is_open(fast: Any) -> bool:
    return fast.executables[-1].door.entry is not None


def opened(fast: Any, *args: Any) -> Any:
    """`fast`, called until plain calls go straight."""
    for _ in range(2):
        fast(*args)
    assert is_open(fast)
    return fast


# ------------------------------------------------------------------------------------------- equal results


PROGRAMS: dict[str, tuple[Callable[..., Any], tuple[np.ndarray, ...]]] = {
    "elementwise": (lambda x: rlx.tanh(x) * 2.0, (X,)),
    "two results": (lambda x: (rlx.exp(x), rlx.sum(x, axis=1)), (X,)),
    "product": (lambda x, w: nn.gelu(x @ w), (X, W)),
    "a result that is an input": (lambda x: (x, rlx.exp(x)), (X,)),
    "one result twice": (lambda x: (rlx.exp(x),) * 2, (X,)),
    "a view of an input": (lambda x: (rlx.reshape(x, (64,)), x * 2.0), (X,)),
    "a result inside another": (
        lambda x: [f(rlx.exp(x)) for f in (lambda y: y, lambda y: rlx.reshape(y, (64,)))],
        (X,),
    ),
    "a constant": (lambda x: (x + 1.0, rlx.full((3,), 2.0)), (X,)),
    "a scalar": (lambda x: rlx.sum(x), (X,)),
    "rank zero": (lambda x: rlx.exp(x), (np.array(0.5, "f4"),)),
    "no elements": (lambda x: rlx.exp(x), (np.zeros((0, 3), "f4"),)),
    "integers": (lambda x: x * 3 + 1, (np.arange(10),)),
    "booleans": (lambda x: x > 0.0, (X,)),
    "float64": (lambda x: rlx.exp(x) - x, (X.astype("f8"),)),
    "a tree": (lambda x: {"a": rlx.exp(x), "b": [x * 2.0]}, (X,)),
    "many steps": (lambda x, w: rlx.softmax(rlx.layer_norm(x @ w) @ w) @ w + x, (X, W)),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_straight_road_gives_the_bits_of_the_checked_one(name: str) -> None:
    function, arguments = PROGRAMS[name]
    fast = jitted(function)
    slow = [np.copy(r) for r in leaves(fast(*arguments))]
    outputs = entry_of(fast)(*arguments)

    assert type(outputs) is tuple
    assert len(outputs) == len(slow)
    for straight, checked in zip(outputs, slow, strict=True):
        assert type(straight) is np.ndarray
        assert (straight.dtype, straight.shape) == (checked.dtype, checked.shape)
        assert straight.flags.writeable
        np.testing.assert_array_equal(straight, checked)
    for again in (fast(*arguments), opened(fast, *arguments)(*arguments)):
        for straight, checked in zip(leaves(again), slow, strict=True):
            np.testing.assert_array_equal(straight, checked)


def leaves(results: Any) -> list[Any]:
    import optree

    return list(optree.tree_leaves(results))


def test_results_share_nothing_with_one_another_or_with_the_next_call() -> None:
    fast = opened(jitted(lambda x: (x, rlx.exp(x), rlx.reshape(rlx.exp(x), (64,)))), X)
    first = fast(X)
    second = fast(X)
    arrays = [*first, *second, X]
    assert not any(np.shares_memory(a, b) for i, a in enumerate(arrays) for b in arrays[:i])


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.sampled_from(["exp", "add", "product", "sum", "view"]), min_size=1, max_size=8), st.integers(1, 40))
def test_generated_programs_agree_on_both_roads(ops: list[str], size: int) -> None:
    x = RNG.standard_normal((size, size)).astype("f4")

    def function(x: Any) -> Any:
        kept = []
        for op in ops:
            x = {
                "exp": lambda v: rlx.tanh(v),
                "add": lambda v: v + 1.0,
                "product": lambda v: v @ v,
                "sum": lambda v: v - rlx.sum(v, axis=0),
                "view": lambda v: rlx.reshape(v, (size, size)),
            }[op](x)
            kept.append(x)
        return kept

    fast = jitted(function)
    for straight, checked in zip(entry_of_after(fast, x)(x), fast(x), strict=True):
        np.testing.assert_array_equal(straight, checked)


def entry_of_after(fast: Any, *arguments: np.ndarray) -> Callable[..., Any]:
    fast(*arguments)
    return entry_of(fast)


# ----------------------------------------------------------------------------------------------- refusals


def misaligned(array: np.ndarray) -> np.ndarray:
    raw = np.zeros(array.nbytes + 1, np.uint8)
    found = raw[1:].view(array.dtype).reshape(array.shape)
    found[...] = array
    return found


class Own(np.ndarray):
    """A subclass, which may give anything another meaning."""


NOT_PLAIN: dict[str, Callable[[np.ndarray], Any]] = {
    "another dtype": lambda x: x.astype("f8"),
    "big-endian": lambda x: x.astype(">f4"),
    "strided": lambda x: np.repeat(x, 2, axis=1)[:, ::2],
    "transposed": lambda x: np.asfortranarray(x),
    "misaligned": misaligned,
    "a subclass": lambda x: x.view(Own),
    "a list": lambda x: x.tolist(),
    "another shape": lambda x: x[:2],
    "another rank": lambda x: x[None],
    "one rank less": lambda x: x[0],
    "rank zero": lambda x: np.float32(1.0),
    "no elements": lambda x: x[:0],
    "a dtype with metadata": lambda x: x.view(np.dtype("f4", metadata={"unit": "m"})),
    "nothing": lambda x: None,
    "a number": lambda x: 1.5,
}


@pytest.mark.parametrize("name", NOT_PLAIN)
def test_what_is_not_plain_is_refused_and_served_by_the_checked_road(name: str) -> None:
    """Compiled ahead, another type is an error; converted or copied, it gives the same numbers."""
    fast = rlx.compile(lambda x: rlx.exp(x) * 2.0, rlx.spec("f32[4, 16]"), host=HOST, target="cpu")
    expected = np.copy(fast(X))
    fast(X)
    entry = fast.executable.door.entry
    assert entry is not None
    odd = NOT_PLAIN[name](X)

    assert entry(odd) is NotImplemented
    wrong = {
        "another dtype": DtypeError, "another shape": ShapeError, "another rank": ShapeError, "one rank less": ShapeError,
        "rank zero": ShapeError, "no elements": ShapeError, "a list": RlxError, "nothing": RlxError, "a number": RlxError,
    }.get(name)  # fmt: skip
    if wrong is not None:
        with pytest.raises(wrong):
            fast(odd)
    else:
        np.testing.assert_array_equal(fast(odd), expected)
    np.testing.assert_array_equal(fast(X), expected)


def test_read_only_and_repeated_arguments_are_plain_where_nothing_is_donated() -> None:
    fast = jitted(lambda x, y: x + y)
    kept = X.copy()
    kept.flags.writeable = False
    expected = np.copy(fast(kept, kept))
    np.testing.assert_array_equal(entry_of(fast)(kept, kept)[0], expected)


def test_another_number_of_arguments_is_refused() -> None:
    fast = rlx.compile(lambda x, y: x + y, rlx.spec("f32[4]"), rlx.spec("f32[4]"), host=HOST, target="cpu")
    x = np.ones(4, "f4")
    for _ in range(3):
        fast(x, x)
    for wrong in ((), (x,), (x, x, x)):
        with pytest.raises(WrongInputCountError):
            fast(*wrong)
    np.testing.assert_array_equal(fast(x, y=x), [2, 2, 2, 2])
    np.testing.assert_array_equal(fast(y=x, x=x), [2, 2, 2, 2])


def test_bfloat16_arrays_are_plain_if_their_program_is_native() -> None:
    fast = jitted(lambda x: x + x)
    x = np.ones(8, ml_dtypes.bfloat16)
    for _ in range(4):
        np.testing.assert_array_equal(fast(x).astype("f4"), np.full(8, 2, "f4"))


def test_a_profile_keeps_calls_on_the_checked_road() -> None:
    fast = opened(jitted(lambda x: rlx.exp(x)), X)
    entry = fast.executables[0].door.entry
    with profiled() as profile:
        assert entry(X) is NotImplemented
        fast(X)
    assert len(profile.times) == 1
    assert entry(X) is not NotImplemented


# ----------------------------------------------------------------------------------------------- donation


def step(p: Any, g: Any) -> Any:
    return p - 0.5 * g


def test_a_donated_argument_comes_back_with_its_next_value() -> None:
    fast = jitted(step, donate="p")
    p, g = np.ones(8, "f4"), np.ones(8, "f4")
    fast(p, g)
    (result,) = entry_of(fast)(p, g)
    assert result is p
    np.testing.assert_array_equal(p, np.zeros(8, "f4"))


def test_donated_arguments_that_cannot_be_overwritten_are_copied() -> None:
    fast = opened(jitted(step, donate="p"), np.ones(8, "f4"), np.ones(8, "f4"))
    entry = fast.executables[0].door.entry
    fixed, both = np.ones(8, "f4"), np.ones(12, "f4")
    fixed.flags.writeable = False
    for p, g in ((fixed, np.ones(8, "f4")), (both[:8], both[4:]), (both[:8], both[:8]), (both[4:], both[:8])):
        assert entry(p, g) is NotImplemented
        result = fast(p, g)
        np.testing.assert_array_equal(result, np.full(8, 0.5, "f4"))
        np.testing.assert_array_equal(p, np.ones(8, "f4"))
    neighbours = np.ones(16, "f4")
    assert entry(neighbours[:8], neighbours[8:])[0].base is neighbours


def test_donated_buffers_that_change_places_end_with_the_right_values() -> None:
    fast = jitted(lambda a, b: (b, a), donate=("a", "b"))
    for _ in range(4):
        a, b = np.full(4, 1, "f4"), np.full(4, 2, "f4")
        first, second = fast(a, b)
        np.testing.assert_array_equal(first, np.full(4, 2, "f4"))
        np.testing.assert_array_equal(second, np.full(4, 1, "f4"))


# ------------------------------------------------------------------------------------------------- memory


def test_reference_counts_are_what_they_were() -> None:
    fast = opened(jitted(step, donate="p"), np.ones(8, "f4"), np.ones(8, "f4"))
    exp = opened(jitted(lambda x: (rlx.exp(x), x)), X)
    p, g = np.ones(8, "f4"), np.zeros(8, "f4")
    objects = (p, g, X, np.dtype("f4"), np.ndarray, NotImplemented, fast, exp, exp.executables[0].door.entry)
    gc.collect()
    before = [sys.getrefcount(o) for o in objects]
    for _ in range(100_000):
        fast(p, g)
        exp(X)
        exp.executables[0].door.entry(1)
    gc.collect()
    after = [sys.getrefcount(o) for o in objects]
    # Other threads of the test process may hold a dtype for a moment; a leak would be 100,000.
    assert all(abs(a - b) < 10 for a, b in zip(after, before, strict=True)), (before, after)


def test_results_are_freed_when_dropped_and_live_when_kept() -> None:
    fast = opened(jitted(lambda x: (rlx.exp(x), x * 2.0)), X)
    first, second = fast(X)
    gone = weakref.ref(first)
    del first
    assert gone() is None
    np.testing.assert_array_equal(second, X * 2)


@pytest.mark.skipif(not os.path.exists("/proc/self/statm"), reason="this platform does not say")
def test_calls_leave_no_memory_behind() -> None:
    fast = opened(jitted(lambda x: rlx.exp(x)), np.ones(16384, "f4"))
    x = np.ones(16384, "f4")

    def resident() -> int:
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    for _ in range(1000):
        fast(x)
    before = resident()
    for _ in range(5000):  # 320 MB of results
        fast(x)
    assert resident() - before < 16 << 20


def test_an_entry_keeps_what_it_needs_and_no_more() -> None:
    fast = jitted(lambda x: rlx.exp(x) @ W)
    expected = np.copy(fast(X))
    entry = entry_of(fast)
    arena = weakref.ref(program(fast)._frames)
    del fast
    gc.collect()
    np.testing.assert_array_equal(entry(X)[0], expected)
    del entry
    gc.collect()
    assert arena() is None


# ----------------------------------------------------------------------------------- weights, sizes, scalars


def test_parameters_bound_anew_are_seen_by_the_next_call() -> None:
    fast = rlx.compile(lambda w, x: x @ w, W, rlx.spec("f32[4, 16]"), host=HOST, target="cpu")
    clone = fast.executable.clone()
    for number in range(6):
        np.testing.assert_allclose(fast(X), X @ (W + number), rtol=1e-4, atol=1e-4)  # 16 products in f32
        np.testing.assert_array_equal(clone.run({"x": X})[0], fast(X))
        assert fast.executable.door.entry is not None
        fast.rebind(w=W + np.float32(number + 1))
        assert clone.door.entry is None


def test_a_template_serves_every_size_with_one_frame_each() -> None:
    fast = rlx.compile(lambda x: rlx.exp(x) * 2.0, rlx.spec("f32[n, 16]"), host=HOST, target="cpu")
    for n in (1, 2, 1, 1, 1, 2, 2, 3, 0, 0, 0, 1):
        x = np.ones((n, 16), "f4")
        assert fast(x).shape == (n, 16)
        assert fast.report.lir.graph.input_types["x"].static_shape == (n, 16)


def test_python_scalars_are_compared_before_a_call_goes_straight() -> None:
    scale = jitted(lambda x, factor: x * factor)
    for factor in (2, 2, 2, 2.0, 2.0, 3, 2, True, 0.0, -0.0, 2):
        result = scale(np.float32([1, -1]), factor)
        np.testing.assert_array_equal(result, np.float32([1, -1]) * factor)
        assert np.signbit(result[0]) == np.signbit(np.float32(factor))


def test_trees_go_straight_and_other_structures_do_not() -> None:
    fast = jitted(lambda params, x: {"y": x @ params["w"] + params["b"]})
    params = {"w": W, "b": W[0].copy()}
    opened(fast, params, X)
    seen: list[int] = []
    fast._checked = lambda *_: seen.append(1)
    np.testing.assert_allclose(fast(params, X)["y"], X @ W + W[0], rtol=1e-4, atol=1e-4)  # 16 products in f32
    assert not seen
    fast({"w": W}, X)
    assert seen


def test_several_variants_go_straight_side_by_side() -> None:
    fast = jitted(lambda x: rlx.exp(x))
    inputs = [X, X[:2], X.astype("f8")]
    expected = [np.copy(fast(x)) for x in inputs]
    for x in inputs:
        fast(x)
    seen: list[int] = []
    fast._checked = lambda *_: seen.append(1)
    for x, wanted in zip(inputs * 3, expected * 3, strict=True):
        np.testing.assert_array_equal(fast(x), wanted)
    assert not seen


def test_parameters_of_a_signature_are_not_mixed_up() -> None:
    fast = jitted(lambda a, b=None, c=None: a - b if c is None else a * c)
    x, y = np.float32([3]), np.float32([2])
    for _ in range(4):
        assert fast(x, y) == 1
        assert fast(x, c=y) == 6
    keyword_only = jitted(lambda a, *, b: a - b)
    for _ in range(4):
        assert keyword_only(x, b=y) == 1
        with pytest.raises(TypeError):
            keyword_only(x, y)


def test_a_call_inside_a_trace_is_traced() -> None:
    inner = opened(jitted(lambda x: rlx.exp(x)), X)
    outer = rlx.trace(lambda x: inner(x) + inner(X), X)
    assert [node.op.name for node in outer.nodes].count("rlx.exp") == 2
    both = jitted(lambda x: inner(x) + inner(X))(X)  # one of them is folded, by NumPy's exponential
    np.testing.assert_allclose(both, 2 * inner(X), rtol=4e-7)  # 2 ulp of f32 on either side


# -------------------------------------------------------------------------------------------------- faults


def test_a_fault_is_raised_with_its_line_every_time_and_the_next_call_is_fine() -> None:
    fast = jitted(lambda x, i: rlx.take(x, i, axis=0) * 2.0)
    good, bad = np.array([0, 3]), np.array([0, 9])
    opened(fast, X, good)
    entry = fast.executables[0].door.entry
    for _ in range(3):
        with pytest.raises(IndexRangeError, match="index 9") as raised:
            entry(X, bad)
        assert any("test_entry" in str(fact) for fact in raised.value.facts)
        with pytest.raises(IndexRangeError):
            fast(X, bad)
        np.testing.assert_array_equal(entry(X, good)[0], X[good] * 2)


# ------------------------------------------------------------------------------------------ threads and forks


def long_program(x: Any) -> Any:
    for _ in range(6):
        x = rlx.tanh(x @ x)
    return x


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


# --------------------------------------------------------------------------------------------------- modes


def test_small_programs_run_alone_and_large_ones_with_all_threads() -> None:
    config = {"options": {"cpu.threads": 2}}
    modes = []
    for size in (4, 128, 512):
        fast = jitted(lambda x: rlx.tanh(x @ x), config=config)
        fast(np.ones((size, size), "f4"))
        modes.append(program(fast)._mode(program(fast)._parts))
    assert modes[0] is Mode.TINY
    assert modes[-1] is Mode.SHARED
    alone = jitted(lambda x: rlx.tanh(x @ x), config={"options": {"cpu.threads": 1}})
    alone(np.ones((512, 512), "f4"))
    assert program(alone)._mode(program(alone)._parts) is Mode.ALONE


SPIN = 2_000_000
"""Two seconds of waiting: a worker that is awake stays so during a test, and not much longer."""


def middling(x: Any) -> Any:
    """Some 15 µs for 16 K elements: worth the help of who is awake, and nobody's waking."""
    return rlx.tanh(x) * 2.0 + rlx.exp(x)


def runs_begun(threads: int, spin: int) -> int:
    return int(pool.control_for(threads, spin)[0])


def test_who_is_awake_helps_with_a_program_in_between() -> None:
    x = RNG.standard_normal(16384).astype("f4")
    fast = jitted(middling, config={"options": {"cpu.threads": 2, "cpu.spin": SPIN}})
    fast(x)
    assert program(fast)._mode(program(fast)._parts) is Mode.AWAKE
    entry = entry_of(fast)
    alone = jitted(middling, config={"options": {"cpu.threads": 1}})(x)
    threads = pool.pool_for(2, SPIN)
    threads._wake(1)
    begun = runs_begun(2, SPIN)
    for n in range(1, 1001):
        (found,) = entry(x)
        assert runs_begun(2, SPIN) == begun + n
        np.testing.assert_array_equal(found, alone)


def test_nobody_is_woken_for_a_program_in_between() -> None:
    spin = 1
    x = RNG.standard_normal(16384).astype("f4")
    fast = jitted(middling, config={"options": {"cpu.threads": 2, "cpu.spin": spin}})
    fast(x)
    entry = entry_of(fast)
    pool.pool_for(2, spin)
    parked = pool.control_for(2, spin)[(WORKERS + LINE) // 8 :]
    deadline = time.monotonic() + 30
    while not parked[0] and time.monotonic() < deadline:
        time.sleep(0.001)
    begun = runs_begun(2, spin)
    entry(x)
    assert runs_begun(2, spin) == begun
    assert parked[0] == 1


def test_a_pool_in_use_is_left_alone_by_a_program_in_between() -> None:
    x = RNG.standard_normal(16384).astype("f4")
    fast = jitted(middling, config={"options": {"cpu.threads": 2, "cpu.spin": SPIN}})
    fast(x)
    entry = entry_of(fast)
    threads = pool.pool_for(2, SPIN)
    threads._wake(1)
    control = threads._control.ctypes.data
    assert pool.runtime().take(control)
    begun = runs_begun(2, SPIN)
    entry(x)
    assert not pool.runtime().take(control), "whoever did not get the pool has not given it away"
    pool.runtime().leave(control)
    assert runs_begun(2, SPIN) == begun


def test_programs_of_all_lengths_share_one_pool_from_many_threads() -> None:
    config = {"options": {"cpu.threads": 2, "cpu.spin": 50}}
    long, short = jitted(long_program, config=config), jitted(middling, config=config)
    square, line = RNG.standard_normal((256, 256)).astype("f4"), RNG.standard_normal(16384).astype("f4")
    wanted = {False: np.copy(opened(long, square)(square)), True: np.copy(opened(short, line)(line))}
    wrong: list[bool] = []

    def calls(is_short: bool) -> None:
        run, x = (short, line) if is_short else (long, square)
        wrong.extend(is_short for _ in range(100) if not np.array_equal(run(x), wanted[is_short]))

    callers = [threading.Thread(target=calls, args=(n % 2 == 0,)) for n in range(6)]
    for each in callers:
        each.start()
    for each in callers:
        each.join()
    assert not wrong


def test_no_more_steps_are_looked_at_than_it_takes_to_know() -> None:
    fast = jitted(lambda x: rlx.tanh(x @ x) @ x)
    fast(np.ones((512, 512), "f4"))
    steps = iter(program(fast)._frames.lir.steps)
    assert takes_longer(steps, 1.0)
    assert next(steps, None) is not None


# ----------------------------------------------------------------------------------------------- elsewhere


def test_another_layout_of_objects_means_no_entry(monkeypatch: pytest.MonkeyPatch) -> None:
    fast = jitted(lambda x: rlx.exp(x))
    fast(X)
    monkeypatch.setattr(interpreter, "reason_against", lambda: "NumPy's arrays have another layout")
    assert program(fast).entry() is None
    assert program(fast).reason_without_entry == "NumPy's arrays have another layout"


def test_layouts_are_read_and_not_believed(monkeypatch: pytest.MonkeyPatch) -> None:
    assert list(interpreter._differences()) == []
    monkeypatch.setattr(interpreter.ARRAY, "dims", 40)  # where strides are
    assert list(interpreter._differences()) == ["NumPy's arrays have another layout"]


def test_a_program_with_a_numpy_step_has_no_entry_and_its_report_says_why() -> None:
    fast = jitted(lambda x: rlx.solve(x, rlx.exp(x)))
    x = np.eye(4, dtype="f4") * 2
    for _ in range(3):
        np.testing.assert_allclose(fast(x), np.exp(x) / 2, rtol=1e-5)
    (kernel,) = [k for _, k, _ in fast.report.kernels if not k.startswith("native_")]
    assert program(fast).entry() is None
    assert f"every call is checked in Python: {kernel} runs with NumPy" in str(fast.report)
