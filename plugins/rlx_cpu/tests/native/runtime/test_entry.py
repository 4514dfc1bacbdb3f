"""Entries: nobody can tell the straight road and the checked one apart, donated arguments and faults included."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import optree
import pytest
from entries import W, X, entry_of, jitted, opened, step
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import rlx_core as rlx
from rlx_core import nn
from rlx_core.errors import IndexRangeError
from rlx_core.ir.array import HostArray

pytestmark = pytest.mark.usefixtures("without_poison")

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
    slow = [np.copy(r) for r in optree.tree_leaves(fast(*arguments))]
    outputs = entry_of(fast)(*arguments)

    assert type(outputs) is tuple
    assert len(outputs) == len(slow)
    for straight, checked in zip(outputs, slow, strict=True):
        assert type(straight) is HostArray
        assert (straight.dtype, straight.shape) == (checked.dtype, checked.shape)
        assert straight._array.flags.writeable
        np.testing.assert_array_equal(straight, checked)
    for again in (fast(*arguments), opened(fast, *arguments)(*arguments)):
        for straight, checked in zip(optree.tree_leaves(again), slow, strict=True):
            np.testing.assert_array_equal(straight, checked)


def test_results_share_nothing_with_one_another_or_with_the_next_call() -> None:
    fast = opened(jitted(lambda x: (x, rlx.exp(x), rlx.reshape(rlx.exp(x), (64,)))), X)
    first = fast(X)
    second = fast(X)
    arrays = [*first, *second, X]
    assert not any(np.shares_memory(a, b) for i, a in enumerate(arrays) for b in arrays[:i])


@pytest.mark.medium
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.sampled_from(["exp", "add", "product", "sum", "view"]), min_size=1, max_size=8), st.integers(1, 40))
def test_generated_programs_agree_on_both_roads(ops: list[str], size: int) -> None:
    x = np.random.default_rng(size).standard_normal((size, size)).astype("f4")

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
    results = fast(x)
    for straight, checked in zip(entry_of(fast)(x), results, strict=True):
        np.testing.assert_array_equal(straight, checked)


def test_a_donated_argument_comes_back_with_its_next_value() -> None:
    fast = jitted(step, donate="p")
    p, g = np.ones(8, "f4"), np.ones(8, "f4")
    fast(p, g)
    (result,) = entry_of(fast)(p, g)
    assert result._array is p
    np.testing.assert_array_equal(p, np.full(8, 0.5, "f4"))


def test_donated_arguments_that_cannot_be_overwritten_are_copied() -> None:
    fast = opened(jitted(step, donate="p"), np.ones(8, "f4"), np.ones(8, "f4"))
    entry = fast.executables[0].entry_cell.entry
    fixed, both = np.ones(8, "f4"), np.ones(12, "f4")
    fixed.flags.writeable = False
    for p, g in ((fixed, np.ones(8, "f4")), (both[:8], both[4:]), (both[:8], both[:8]), (both[4:], both[:8])):
        assert entry(p, g) is NotImplemented
        result = fast(p, g)
        np.testing.assert_array_equal(result, np.full(8, 0.5, "f4"))
        np.testing.assert_array_equal(p, np.ones(8, "f4"))
    neighbours = np.ones(16, "f4")
    assert entry(neighbours[:8], neighbours[8:])[0]._array.base is neighbours


def test_donated_buffers_that_change_places_end_with_the_right_values() -> None:
    fast = jitted(lambda a, b: (b, a), donate=("a", "b"))
    for _ in range(4):
        a, b = np.full(4, 1, "f4"), np.full(4, 2, "f4")
        first, second = fast(a, b)
        np.testing.assert_array_equal(first, np.full(4, 2, "f4"))
        np.testing.assert_array_equal(second, np.full(4, 1, "f4"))


def test_a_fault_is_raised_with_its_line_every_time_and_the_next_call_is_fine() -> None:
    fast = jitted(lambda x, i: rlx.take(x, i, axis=0) * 2.0)
    good, bad = np.array([0, 3]), np.array([0, 9])
    opened(fast, X, good)
    entry = fast.executables[0].entry_cell.entry
    for _ in range(3):
        with pytest.raises(IndexRangeError, match="index 9") as raised:
            entry(X, bad)
        assert any("test_entry" in str(fact) for fact in raised.value.facts)
        with pytest.raises(IndexRangeError):
            fast(X, bad)
        np.testing.assert_array_equal(entry(X, good)[0], X[good] * 2)
