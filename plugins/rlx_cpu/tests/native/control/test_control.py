"""Loops and choices as one native function: layouts, constants, faults, what keeps them from being one, and what reports say."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import rlx_core as rlx
from rlx_core.errors import IndexRangeError
from rlx_cpu.native.sharing import everything_is_shared

f32 = np.float32
RNG = np.random.default_rng(3)
W = RNG.normal(size=(5, 5)).astype(f32) * f32(0.3)
XS = RNG.normal(size=(7, 5)).astype(f32)
C = RNG.normal(size=5).astype(f32)
POISON = {"options": {"cpu.poison": True}}
NUMPY = {"options": {"cpu.tier": "numpy"}}


def cell(w: Any, c: Any, xs: Any) -> Any:
    return rlx.scan(lambda c, x: (rlx.tanh(c @ w + x), c * x), c, xs)


def swapped(w: Any, c: Any, xs: Any) -> Any:
    """Carries that are others' as they were, one of them turned."""

    def step(carry: Any, x: Any) -> Any:
        a, b, m = carry
        return (b, a, rlx.matrix_transpose(m) + x), (b, m)

    return rlx.scan(step, (c, c * 2.0, w), xs)


def with_data(w: Any, c: Any, xs: Any) -> Any:
    """Constants of more than an element inside the body."""
    table = np.arange(25, dtype=f32).reshape(5, 5) / f32(9)
    return rlx.scan(lambda c, x: (c * 0.5 + x @ table, rlx.flip(c)), c, xs, reverse=True)


def inside(w: Any, c: Any, xs: Any) -> Any:
    """A choice in a loop in a loop."""

    def step(c: Any, x: Any) -> Any:
        c = rlx.while_loop(lambda c: rlx.sum(c * c) < 9.0, lambda c: c * 1.7 + 0.1, c)
        return rlx.cond(x[0] > 0.0, lambda c: c @ w, lambda c: rlx.tanh(c) - x, c), rlx.sum(c)

    return rlx.scan(step, c, xs)


def typed(w: Any, c: Any, xs: Any) -> Any:
    """Carries of several dtypes, a bool among them, and one that nothing changes."""

    def step(carry: Any, x: Any) -> Any:
        n, seen, kept, half = carry
        return (n + 1, seen | (x[0] > 1.0), kept, half * 0.5 + x.astype(rlx.f16)), (n, seen)

    return rlx.scan(step, (np.int8(0), False, c, c.astype(rlx.f16)), xs)


PROGRAMS = pytest.mark.parametrize("function", [cell, swapped, with_data, inside, typed], ids=lambda f: f.__name__)


def flat(result: Any) -> list[np.ndarray]:
    return [np.asarray(each) for each in rlx_leaves(result)]


def rlx_leaves(tree: Any) -> list[Any]:
    import optree

    leaves: list[Any] = optree.tree_leaves(tree)
    return leaves


@PROGRAMS
@pytest.mark.parametrize("config", [{}, POISON, NUMPY], ids=["native", "poison", "numpy"])
def test_programs_compute_what_the_interpreter_does(function: Any, config: Any) -> None:
    jitted = rlx.jit(function, config=config)
    graph = rlx.trace(function, W, C, XS)
    expected = rlx.interpret(graph, dict(zip(graph.input_types, (W, C, XS), strict=True)))
    for found in (jitted(W, C, XS), jitted(W, C, XS)):
        for a, b in zip(flat(found), expected, strict=True):
            assert a.dtype == b.dtype
            np.testing.assert_allclose(a.astype(np.float64), b.astype(np.float64), rtol=2e-5, atol=2e-5)
    (executable,) = jitted.executables
    assert (executable.report.tiers.counts.get("native", 0) > 0) == (config is not NUMPY)


def kept(w: Any, c: Any, xs: Any) -> Any:
    """A carry that is a y too, one that is another's, one that is overwritten in place, and what they were before."""

    def step(carry: Any, x: Any) -> Any:
        a, b, d, n = carry
        new = rlx.tanh(a @ w + x)
        return (new, a * 0.5 + b, d + x * x, n + 1), (new, b, rlx.flip(new), new * d, new)

    return rlx.scan(step, (c, c * 2.0, c * 0.0, 0), xs)


def doubled(w: Any, c: Any, xs: Any) -> Any:
    """Two carries that are one value, and a y that nothing else is."""

    def step(carry: Any, x: Any) -> Any:
        a, b = carry
        new = rlx.tanh(a + b * 0.5 - x)
        return (new, new), a - b

    return rlx.scan(step, (c, c + 1.0), xs, reverse=True)


@pytest.mark.parametrize("function", [cell, swapped, kept, doubled], ids=lambda f: f.__name__)
@pytest.mark.parametrize("steps", [0, 1, 6, 7])
def test_states_go_from_step_to_step(function: Any, steps: int) -> None:
    w, c = RNG.normal(size=(200, 200)).astype(f32) * f32(0.05), RNG.normal(size=200).astype(f32)
    xs = RNG.normal(size=(steps, 200)).astype(f32)
    graph = rlx.trace(function, w, c, xs)
    expected = rlx.interpret(graph, dict(zip(graph.input_types, (w, c, xs), strict=True)))
    for config in ({}, POISON):
        jitted = rlx.jit(function, config=config)
        for found in (jitted(w, c, xs), jitted(w, c, xs)):
            for a, b in zip(flat(found), expected, strict=True):
                np.testing.assert_allclose(a, np.asarray(b), rtol=2e-4, atol=2e-4)


def test_a_loop_is_one_step_of_a_native_run() -> None:
    jitted = rlx.jit(cell)
    jitted(W, C, XS)
    (executable,) = jitted.executables
    assert "every call is checked in Python" not in str(executable.report)
    assert "native_control[rlx.scan]" in str(executable.report)


@pytest.mark.parametrize("loop", ["scan", "while"])
def test_an_index_outside_inside_a_loop_is_told(loop: str) -> None:
    def counted(n: Any, x: Any) -> Any:
        return rlx.scan(lambda s, i: (s + rlx.take(x, i), None), f32(0), rlx.arange(4) + n)[0]

    def open_ended(n: Any, x: Any) -> Any:  # what was read decides when it ends, which is never
        return rlx.while_loop(lambda s: s[0] >= 0.0, lambda s: (s[0] + rlx.take(x, s[1]) * 0.0, s[1] + 1), (f32(0), n))[
            0
        ]

    function = rlx.jit(counted if loop == "scan" else open_ended)
    with pytest.raises(IndexRangeError, match="index 5 is outside an axis of 5"):
        function(np.int64(3), np.ones(5, f32))
    if loop == "scan":
        assert float(function(np.int64(1), np.ones(5, f32))) == 4.0


def test_a_body_that_numpy_runs_in_part_is_driven_from_python_and_says_so() -> None:
    def solved(a: Any, c: Any) -> Any:
        return rlx.fori_loop(0, 3, lambda i, c: rlx.solve(a, c), c)

    jitted = rlx.jit(solved)
    a = np.eye(40, dtype=f32) * 2
    np.testing.assert_allclose(jitted(a, np.ones(40, f32)), np.full(40, 0.125))
    said = str(jitted.executables[0].report)
    assert "fori" not in said
    assert "scan is driven: lapack_solve" in said


SQUARE = RNG.normal(size=(96, 96)).astype(f32) * f32(0.1)
ROWS = RNG.normal(size=(40, 96)).astype(f32)


def deep(w: Any, c: Any) -> Any:
    return rlx.fori_loop(0, 5, lambda i, c: rlx.tanh(c @ w), c)


def turned(w: Any, c: Any) -> Any:
    """Weights as they lie and transposed, in a choice in a loop in a loop, with a sort in between."""

    def step(c: Any, x: Any) -> Any:
        c = rlx.cond(x > 0.0, lambda c: c @ w, lambda c: rlx.sort(c @ rlx.matrix_transpose(w)), c)
        return rlx.fori_loop(0, 4, lambda i, c: rlx.tanh(c @ w + c), c), rlx.sum(c, axis=0)

    return rlx.scan(step, c, np.array([1.0, -1.0, 2.0, -2.0], f32))


def layers(w: Any, c: Any) -> Any:
    """Each round has weights of its own."""
    stacked = rlx.stack([w, w * 0.5, rlx.matrix_transpose(w)])
    return rlx.scan(lambda c, w: (rlx.tanh(c @ w), None), c, stacked)[0]


def decided(w: Any, c: Any) -> Any:
    return rlx.while_loop(lambda s: rlx.sum(s[0] * s[0]) > 1.0, lambda s: (s[0] @ w * 0.3, s[1] + 1), (c, 0))


DEEP = pytest.mark.parametrize("function", [deep, turned, layers, decided], ids=lambda f: f.__name__)


@pytest.mark.medium
@DEEP
@pytest.mark.parametrize("is_bound", [False, True], ids=["fed", "bound"])
def test_threads_share_the_steps_of_a_loop_and_change_no_bit(function: Any, is_bound: bool) -> None:
    def made(threads: int, **more: Any) -> Any:
        config = {"options": {"cpu.threads": threads, "cpu.spin": 190, **more}}  # threads that no other test has met
        if is_bound:
            program = rlx.compile(function, SQUARE, rlx.spec("f32[40, 96]"), config=config)
            assert "is driven" not in str(program.report)
            return lambda: program(ROWS)
        jitted = rlx.jit(function, config=config)
        return lambda: jitted(SQUARE, ROWS)

    graph = rlx.trace(function, SQUARE, ROWS)
    meaning = rlx.interpret(graph, dict(zip(graph.input_types, (SQUARE, ROWS), strict=True)))
    with everything_is_shared():
        alone = flat(made(1)())
        for a, b in zip(alone, meaning, strict=True):
            np.testing.assert_allclose(a, np.asarray(b), rtol=2e-4, atol=2e-4)
        for run in (made(2), made(3), made(2, **{"cpu.poison": True})):
            for _ in range(20):
                for a, b in zip(flat(run()), alone, strict=True):
                    np.testing.assert_array_equal(a, b)


def test_a_fault_of_a_step_that_threads_share_is_told() -> None:
    def taken(i: Any, x: Any) -> Any:
        return rlx.fori_loop(0, 3, lambda n, s: s + rlx.take(x, i + n), rlx.zeros(i.shape))

    with everything_is_shared():
        function = rlx.jit(taken, config={"options": {"cpu.threads": 2}})
        places = np.zeros(3000, np.int64)
        assert float(function(places, np.ones(5, f32))[0]) == 3.0
        places[2222] = 3
        with pytest.raises(IndexRangeError, match="index 5 is outside an axis of 5"):
            function(places, np.ones(5, f32))


@pytest.mark.parametrize(
    ("first", "second", "inner", "says"),
    [(0, 0, 0, None), (9, 0, 0, "of 3"), (0, 9, 0, "of 4"), (0, 0, 9, "of 5"), (9, 9, 9, "of 3"), (0, 9, 9, "of 4")],
)
def test_the_error_of_a_loop_is_that_of_the_step_that_met_it(
    first: int, second: int, inner: int, says: str | None
) -> None:
    """Steps of one loop, and of loops inside, each have a kind of fault of their own."""

    def steps(x: Any, i: Any, j: Any, k: Any) -> Any:
        def step(c: Any, _: Any) -> Any:
            c = c + rlx.take(x[:3], i)
            c = rlx.fori_loop(0, 2, lambda n, c: c + rlx.take(x[:5], k), c + rlx.take(x[:4], j))
            return c, None

        return rlx.scan(step, rlx.zeros(i.shape), None, length=3)[0]

    function = rlx.jit(steps, target="cpu")
    indices = [np.array([0, number]) for number in (first, second, inner)]
    for _ in range(2):
        if says is None:
            assert np.isfinite(function(np.ones(6, f32), *indices)).all()
        else:
            with pytest.raises(IndexRangeError, match=rf"index 9 is outside an axis {says} elements\n"):
                function(np.ones(6, f32), *indices)
    assert "is driven" not in str(function.report)


def packs_of(program: Any) -> list[Any]:
    compiled = program.executable._shared.latest.program.compiled.native
    return [pack for step in compiled.steps.values() for pack in step.emitted.packs]


def test_bound_weights_of_a_body_are_packed_when_they_are_bound() -> None:
    """Those of all rounds, those that are transposed, and those of an inner loop; anew when they are bound anew."""

    def stacked(w: Any, each: Any, c: Any) -> Any:
        def step(c: Any, u: Any) -> Any:
            c = rlx.tanh(c @ u) + c @ rlx.matrix_transpose(w)
            return rlx.fori_loop(0, 2, lambda i, c: rlx.tanh(c @ w), c), None

        return rlx.scan(step, c, each)[0]

    def expected(w: np.ndarray, each: np.ndarray, c: np.ndarray) -> np.ndarray:
        for u in each:
            c = np.tanh(c @ u) + c @ w.T
            for _ in range(2):
                c = np.tanh(c @ w)
        return c

    each = RNG.normal(size=(3, 96, 96)).astype(f32) * f32(0.1)
    program = rlx.compile(stacked, SQUARE, each, rlx.spec("f32[40, 96]"))
    for factor in (1.0, 0.5):
        w = SQUARE * f32(factor)
        program.rebind(w=w)
        np.testing.assert_allclose(program(ROWS), expected(w, each, ROWS), rtol=2e-4, atol=2e-4)
    packs = packs_of(program)
    assert sorted(pack.view.count for pack in packs) == [1, 1, 3]
    assert {pack.view.strides for pack in packs} == {(384, 4), (4, 384), (36864, 384, 4)}


@pytest.mark.parametrize(("rounds", "is_packed"), [(5, True), (2, False)])
def test_fed_weights_of_a_body_are_packed_before_the_first_of_many_rounds(rounds: int, is_packed: bool) -> None:
    def looped(w: Any, c: Any) -> Any:
        return rlx.fori_loop(0, rounds, lambda i, c: c @ rlx.matrix_transpose(w), c)

    jitted = rlx.jit(looped)
    np.testing.assert_allclose(
        jitted(SQUARE, ROWS), ROWS @ np.linalg.matrix_power(SQUARE.T, rounds), rtol=1e-3, atol=1e-3
    )
    assert (".hold" in jitted.executables[0].emit("llvm")) == is_packed


def test_runs_at_the_same_time_do_not_meet() -> None:
    from concurrent.futures import ThreadPoolExecutor

    jitted = rlx.jit(inside)
    expected = [flat(jitted(W, C * f32(k), XS)) for k in range(4)]
    with ThreadPoolExecutor(4) as pool:
        for k, found in enumerate(pool.map(lambda k: flat(jitted(W, C * f32(k % 4), XS)), range(16))):
            for a, b in zip(found, expected[k % 4], strict=True):
                np.testing.assert_array_equal(a, b)


def test_a_loop_is_guessed_to_take_as_long_as_its_rounds() -> None:
    """So that the interpreter's lock is given up for long ones, those among them whose end nobody knows."""
    from rlx_cpu.native.machine import MACHINE
    from rlx_cpu.native.work import UNKNOWN_ROUNDS, estimated_us

    def guess(function: Any) -> float:
        jitted = rlx.jit(function)
        jitted(C)
        (step,) = (s for s in jitted.executables[0].lir.steps if s.nested)
        return estimated_us(step, MACHINE.speed)

    once = guess(lambda c: rlx.scan(lambda c, _: (rlx.tanh(c), None), c, length=2)[0]) / 2
    assert guess(lambda c: rlx.scan(lambda c, _: (rlx.tanh(c), None), c, length=500)[0]) == pytest.approx(500 * once)
    assert guess(lambda c: rlx.while_loop(lambda c: rlx.sum(c) < -9.0, rlx.tanh, c)) > UNKNOWN_ROUNDS * once
