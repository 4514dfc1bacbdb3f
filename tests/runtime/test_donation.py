"""Donated arrays: results lie in them where that can be, and nobody reads what was overwritten."""

from __future__ import annotations

import numpy as np
import pytest

import rlx_core as rlx
from rlx_core.errors import ConfigError, UnknownNameError

from .executables import executable_of, read_only


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
    a, b = DONATED["plain"]()
    first, second = program.run({"a": a, "b": b})

    assert np.shares_memory(first, a)
    assert np.shares_memory(second, b)


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
    x, state = np.ones((rows, 2), np.float32), {"sum": np.zeros((rows, 2), np.float32), "calls": np.array(0)}
    first = state["sum"]
    for number in range(1, 5):
        y, state = function(x, state)
        np.testing.assert_array_equal(y, np.full((rows, 1), 3))
        np.testing.assert_array_equal(state["sum"], x * number)
        assert state["calls"] == number
    assert np.shares_memory(state["sum"], first)


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
