"""Donated arrays: results lie in them where that can be, and nobody reads what was overwritten."""

from __future__ import annotations

import os
import tempfile
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import rlx_core as rlx
from rlx_core.errors import ConfigError, DonatedError, ShapeError, UnknownNameError

from .executables import address, executable_of, read_only


def swap(g):
    a, b = g.input("a", "f32[3]"), g.input("b", "f32[3]")
    return b + 1, a * 2


DONATED = {
    "plain": lambda: (np.float32([1, 2, 3]), np.float32([4, 5, 6])),
    "read-only": lambda: (read_only(np.float32([1, 2, 3])), read_only(np.float32([4, 5, 6]))),
    "strided": lambda: (np.float32([1, 0, 2, 0, 3])[::2], np.float32([6, 5, 4])[::-1]),
    "big-endian": lambda: (np.array([1, 2, 3], ">f4"), np.array([4, 5, 6], ">f4")),
    "one buffer": lambda: np.float32([[1, 2, 3], [4, 5, 6]]),
    "interleaved": lambda: np.float32([[1, 4], [2, 5], [3, 6]]).T,
    "broadcast": lambda: (np.float32([1, 2, 3]), np.broadcast_to(np.float32([4, 5, 6]), (3,))),
}


@pytest.mark.parametrize("make", DONATED.values(), ids=DONATED.keys())
def test_donated_arrays_of_any_kind_give_the_right_results(make):
    program = executable_of(swap, donations={"a": 0, "b": 1})
    for _ in range(2):
        a, b = make()
        first, second = program.run({"a": a, "b": b})
        np.testing.assert_array_equal(first, [5, 6, 7])
        np.testing.assert_array_equal(second, [2, 4, 6])


def test_an_array_that_can_be_given_away_comes_back_with_the_result():
    program = executable_of(swap, donations={"a": 0, "b": 1})
    a, b = map(rlx.asarray, map(np.array, DONATED["plain"]()))
    places = address(a), address(b)
    first, second = program.run({"a": a, "b": b})

    assert (address(first), address(second)) == places


USES = {
    "operator": lambda x: x + 1,
    "method": lambda x: x.sum(),
    "index": lambda x: x[0],
    "NumPy": np.asarray,
    "DLPack": np.from_dlpack,
    "dtype": lambda x: x.dtype,
    "compiled": lambda x: rlx.jit(lambda y: y + 1)(x),
    "eager": lambda x: rlx.exp(x),
    "gradient": lambda x: rlx.grad(rlx.sum)(x),
    "wait": lambda x: x.block_until_ready(),
    "save": lambda x: rlx.save(os.path.join(tempfile.gettempdir(), "unwritten.safetensors"), {"x": x}),
    "copy": lambda x: x.copy(),
}


@pytest.mark.parametrize("use", USES.values(), ids=USES.keys())
@pytest.mark.parametrize("calls", [1, 5], ids=["checked path", "fast path"])
def test_a_donated_array_refuses_every_use(use, calls):
    f = rlx.jit(lambda w, g: w - g, donate="w")
    g = np.ones(3, np.float32)
    new = rlx.asarray(np.zeros(3, np.float32))
    for _ in range(calls):
        old, new = new, f(new, g)
    with pytest.raises(DonatedError, match=r"donated \(argument w of lambda\)"):
        use(old)
    with pytest.raises(DonatedError):
        f(old, g)
    assert repr(old) == "<donated array f32[3]>"
    np.testing.assert_array_equal(new, np.full(3, -calls))


def test_what_is_still_looked_at_is_copied_and_not_overwritten():
    f = rlx.jit(lambda w: w + 1, donate="w")
    for show in (np.asarray, np.from_dlpack, lambda x: np.asarray(x[1:]), lambda x: np.asarray(x.T)):
        w = f(rlx.asarray(np.zeros(3, np.float32)))
        shown = show(w)
        before = shown.copy()
        for _ in range(4):
            w = f(w)
        np.testing.assert_array_equal(shown, before)
        np.testing.assert_array_equal(w, np.full(3, 5))


def test_numpy_arrays_are_not_overwritten():
    f = rlx.jit(lambda w: w + 1, donate="w")
    w = np.zeros(3, np.float32)
    results = [f(w) for _ in range(5)]
    assert not w.any()
    np.testing.assert_array_equal(results, np.ones((5, 3)))


def test_a_refused_call_leaves_donated_arrays_as_they_are():
    f = rlx.compile(lambda w, g: w - g, rlx.spec("f32[3]"), rlx.spec("f32[3]"), donate="w")
    w = rlx.asarray(np.zeros(3, np.float32))
    for _ in range(4):
        with pytest.raises(ShapeError):
            f(w, np.ones(4, np.float32))
        assert not w.is_donated
    assert not f(w, np.zeros(3, np.float32)).any()


def test_one_array_donated_twice_is_refused_and_keeps_its_elements():
    f = rlx.jit(lambda a, b: (a + 1, b * 2), donate=("a", "b"))
    for _ in range(4):  # the checked path, then the fast one
        f(rlx.asarray(np.float32([1, 2])), rlx.asarray(np.float32([3, 4])))
        x = rlx.asarray(np.float32([5, 6]))
        with pytest.raises(DonatedError, match=r"donated twice .*argument a.*argument b"):
            f(x, x)
        np.testing.assert_array_equal(x, [5, 6])


def test_of_many_threads_one_has_a_donated_array():
    f = rlx.jit(lambda w, g: w - g, donate="w")
    g = np.ones(1000, np.float32)
    w = f(f(f(rlx.asarray(np.zeros(1000, np.float32)), g), g), g)
    barrier = threading.Barrier(16)

    def call(_: int) -> bool:
        barrier.wait()
        try:
            f(w, g)
        except DonatedError:
            return False
        return True

    with ThreadPoolExecutor(16) as pool:
        assert sum(pool.map(call, range(16))) == 1


def test_what_cannot_be_given_away_keeps_its_contents():
    program = executable_of(swap, donations={"a": 0, "b": 1})
    a, b = DONATED["read-only"]()
    program.run({"a": a, "b": b})

    np.testing.assert_array_equal(a, [1, 2, 3])
    np.testing.assert_array_equal(b, [4, 5, 6])


@pytest.mark.parametrize("donations", [{"a": 0, "b": 1}, {"a": 0}, {"b": 0}, {"a": None, "b": None}], ids=str)
def test_one_array_passed_twice_is_read_before_it_is_overwritten(donations):
    program = executable_of(swap, donations=donations)
    x = np.float32([1, 2, 3])
    overlapping = np.float32([1, 2, 3, 4])

    for a, b in [(x, x), (x.copy(), x), (overlapping[:3], overlapping[1:])]:
        wanted = b + 1, a * 2
        for found, right in zip(program.run({"a": a, "b": b}), wanted, strict=True):
            np.testing.assert_array_equal(found, right)
        x[:] = [1, 2, 3]
        overlapping[:] = [1, 2, 3, 4]


def state(g):
    """Two parameters and an input: their sum, and what is left of each when it is turned round."""
    w, v, x = g.param("w", "f32[2, 2]"), g.param("v", "f32[2, 2]"), g.input("x", "f32[2, 2]")
    turned = g.transpose(v, (1, 0)) + g.transpose(x, (1, 0))
    return w + turned, v * 2, x + turned


SQUARE = np.float32([[1, 2], [3, 4]])


def after_state(w, v, x):
    return w + (v + x).T, v * 2, x + (v + x).T


@pytest.mark.parametrize("tier", ["native", "numpy"])
@pytest.mark.parametrize("donations", [{"w": 0}, {"v": 1}, {"w": 0, "v": 1}, {"x": 2}, {"w": 0, "x": 2}], ids=str)
@pytest.mark.parametrize("same", ["wv", "wx", "vx", "wvx", ""], ids=lambda names: names or "none")
def test_one_array_in_several_places_is_read_before_it_is_overwritten(same, donations, tier):
    """Donated parameters are the program's state: what else lies in their bytes, parameter or input, is another's value."""
    program = executable_of(state, donations=donations, options={"cpu.tier": tier})
    shared = SQUARE.copy()
    arrays = {name: shared if name in same else SQUARE * (number + 2) for number, name in enumerate("wvx")}
    program.set_params({"w": arrays["w"], "v": arrays["v"]})
    now = {name: array.copy() for name, array in arrays.items()}
    for _ in range(4):  # the later runs go by the entry, where there is one
        expected = after_state(*now.values())
        found = program.run({"x": arrays["x"]})
        for a, b in zip(found, expected, strict=True):
            np.testing.assert_array_equal(a, b)
        now |= {name: expected[index] for name, index in donations.items() if name != "x"}
        now["x"] = arrays["x"].copy()  # the caller's array, whatever became of it


def test_state_that_comes_back_may_be_fed():
    program = executable_of(state, donations={"w": 0})
    program.set_params({"w": SQUARE.copy(), "v": SQUARE})
    now, fed = SQUARE, np.zeros_like(SQUARE)
    for _ in range(4):
        expected = after_state(now, SQUARE, fed.copy())
        found = program.run({"x": fed})
        for a, b in zip(found, expected, strict=True):
            np.testing.assert_array_equal(a, b)
        now = expected[0]
        fed = found[0]  # the state itself, which the next run overwrites


# --------------------------------------------------------------------------------------- rlx.compile


def counted(weights, x, state):
    return x @ weights, {"sum": state["sum"] + x, "calls": state["calls"] + 1}


def counting(donate):
    state = {"sum": rlx.spec("f32[rows, 2]"), "calls": rlx.spec("i64[]")}
    return rlx.compile(counted, np.float32([[1], [2]]), rlx.spec("f32[rows, 2]"), state, donate=donate)


@pytest.mark.parametrize("rows", [1, 3])
@pytest.mark.parametrize("moved", [False, True], ids=["made", "on another target"])
def test_a_compiled_function_keeps_its_state_where_it_lies(rows, moved):
    function = counting("state").on("cpu") if moved else counting("state")
    x, state = np.ones((rows, 2), np.float32), {"sum": rlx.zeros((rows, 2)), "calls": np.array(0)}
    first = address(state["sum"])
    for number in range(1, 5):
        y, state = function(x, state)
        np.testing.assert_array_equal(y, np.full((rows, 1), 3))
        np.testing.assert_array_equal(state["sum"], x * number)
        assert state["calls"] == number
    assert address(state["sum"]) == first


def test_what_a_compiled_function_cannot_donate_is_named():
    with pytest.raises(UnknownNameError, match="counted has no argument 'sate' to donate") as caught:
        counting("sate")
    assert caught.value.hint == "did you mean `state`?"
    with pytest.raises(UnknownNameError, match="'weights' to donate"):
        counting("weights")
    with pytest.raises(ConfigError, match="donate takes names"):
        counting([1])
    with pytest.raises(ConfigError, match="a graph has no arguments to donate"):
        rlx.compile(rlx.trace(lambda x: x, rlx.spec("f32[2]")), donate="x")
