"""Packed copies of weights: executables that are bound to the same read-only array share them."""

from __future__ import annotations

import gc
from typing import Any

import numpy as np
import pytest

import rlx_core as rlx
from rlx_cpu.native.runtime import native_steps

X = np.random.default_rng(0).standard_normal((40, 96)).astype("f4")


def weight(*, read_only: bool = True) -> np.ndarray:
    w = np.random.default_rng(1).standard_normal((96, 64)).astype("f4")
    w.flags.writeable = not read_only
    return w


def bound(function: Any, w: Any) -> Any:
    made = rlx.compile(function, w, rlx.spec("f32[40, 96]"), target="cpu")
    np.testing.assert_allclose(made(X), function(np.asarray(w), X), atol=1e-4)
    return made


def packed(function: Any) -> list[np.ndarray]:
    return [*function.executable._shared.checked.prepared.packed.values()]


@pytest.mark.parametrize("wrap", [lambda w: w, rlx.asarray, lambda w: w.view()], ids=["NumPy", "rlx", "view"])
def test_two_programs_with_one_read_only_weight_have_one_packed_copy(wrap: Any) -> None:
    w = wrap(weight())
    first, second = bound(lambda w, x: x @ w, w), bound(lambda v, x: (x @ v) * 2, w)
    (one,), (other,) = packed(first), packed(second)
    assert one is other


def test_arrays_that_can_be_written_to_have_copies_of_their_own() -> None:
    w = weight(read_only=False)
    first, second = bound(lambda w, x: x @ w, w), bound(lambda w, x: (x @ w) * 2, w)
    (one,), (other,) = packed(first), packed(second)
    assert not np.shares_memory(one, other)
    view = w.view()
    view.flags.writeable = False  # the array that it is a view of is not
    third = bound(lambda w, x: (x @ w) * 3, view)
    w *= 2
    fourth = bound(lambda w, x: (x @ w) * 4, view)
    assert not np.shares_memory(packed(third)[0], packed(fourth)[0])


@pytest.mark.slow
def test_packed_copies_are_freed_with_the_last_program() -> None:
    w = weight()

    def copies() -> int:
        gc.collect()
        return sum(key[0] == id(w) for key in native_steps._shared_packed)

    programs = [bound(lambda w, x, k=k: (x @ w) * k, w) for k in (5, 6)]
    assert copies() == 1
    programs.clear()
    assert copies() == 0


@pytest.mark.slow
def test_other_weights_of_the_same_place_are_packed_anew() -> None:
    """The identity of an array may come again once it is gone, and then belongs to other elements."""
    for seed in range(8):
        w = np.random.default_rng(seed).standard_normal((96, 64)).astype("f4")
        w.flags.writeable = False
        made = bound(lambda w, x: x @ w, w)
        del w, made
        gc.collect()
