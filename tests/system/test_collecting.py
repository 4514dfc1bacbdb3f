"""The collector of cycles rests while a program is compiled, and is as before afterwards."""

from __future__ import annotations

import gc

import pytest

import rlx_core as rlx
from rlx_core.system.collecting import YOUNG, collecting_seldom


def test_the_threshold_is_raised_inside_and_back_outside_whatever_happens() -> None:
    before = gc.get_threshold()
    seen: list[tuple[int, int, int]] = []

    def fail() -> None:
        with collecting_seldom(), collecting_seldom():
            seen.append(gc.get_threshold())
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert seen == [(YOUNG, *before[1:])]
    assert gc.get_threshold() == before


def test_a_collector_that_never_runs_by_itself_does_not_begin_to() -> None:
    before = gc.get_threshold()
    try:
        gc.set_threshold(0)
        with collecting_seldom():
            assert gc.get_threshold()[0] == 0
    finally:
        gc.set_threshold(*before)


def test_a_function_is_traced_and_compiled_with_it() -> None:
    before, seen = gc.get_threshold(), []

    def f(x: object) -> object:
        seen.append(gc.get_threshold()[0])
        return x

    rlx.jit(f)(1.0)
    assert seen == [YOUNG]
    assert gc.get_threshold() == before
