"""Tapes: what an op comes to on arrays, worked out once for each combination of types."""

import numpy as np
import pytest

import rlx_core as rlx
from rlx_core.errors import RlxError
from rlx_core.ir import immediate
from rlx_core.ir.graph import Builder, building, decomposition
from rlx_core.ir.interpret import interpret
from rlx_core.ir.tape import tape_of_graph, tape_of_op
from rlx_core.ir.types import spec
from rlx_core.ops.normalization import LayerNorm

X = np.random.default_rng(0).standard_normal((4, 8)).astype(np.float32)
ONE, ZERO = np.ones(8, np.float32), np.zeros(8, np.float32)


def test_a_tape_is_the_decomposition_of_its_op_down_to_references():
    """A body node by node and the tape of its op are the same numbers, in both modes."""
    op, types = LayerNorm(), (spec("f32[4, 8]"), spec("f32[8]"), spec("f32[8]"))
    body = decomposition(op, types)
    for mode in ("typed", "wide"):
        (wanted,) = interpret(body, dict(zip(body.input_types, (X, ONE, ZERO), strict=True)), mode=mode)
        (found,) = tape_of_op(op, types).play([X, ONE, ZERO], is_wide=mode == "wide")
        assert found.dtype == wanted.dtype
        np.testing.assert_array_equal(found, wanted)


def test_a_slot_is_freed_by_the_step_that_reads_it_last():
    builder = Builder("chain")
    with building(builder):
        y = x = builder.input("x", spec("f32[4]"))
        for _ in range(10):
            y = rlx.sin(y)
    tape = tape_of_graph(builder.finish((x + y,)))
    alive = peak = 1
    for step in tape.steps:
        alive += len(step.writes)
        peak = max(peak, alive)
        alive -= len(step.frees)
    assert peak == 3  # x, a link of the chain and the next
    assert alive == len(tape.results)


def test_a_result_that_nothing_reads_is_freed_too():
    builder = Builder("half")
    with building(builder):
        x = builder.input("x", spec("f32[6]"))
        values, _ = rlx.top_k(x, 2)
    tape = tape_of_graph(builder.finish((values,)))
    assert sum(len(step.frees) for step in tape.steps) == 2  # x, and the indices


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.int8, np.bool_])
def test_an_op_on_arrays_is_worked_out_once_for_each_type(dtype, monkeypatch):
    """The second call with a type plays what the first one found; another shape or dtype is worked out anew."""
    immediate.tape_for.cache_clear()
    x = np.ones((3, 2), dtype)
    first = rlx.equal(x, x)
    misses = immediate.tape_for.cache_info().misses
    np.testing.assert_array_equal(rlx.equal(x, x), first)
    assert immediate.tape_for.cache_info().misses == misses
    rlx.equal(x[:2], x[:2])
    assert immediate.tape_for.cache_info().misses == misses + 1


def test_scalars_are_told_apart_by_their_bits():
    """0.0 and -0.0, True and 1 are equal to Python, and different operands."""
    x = np.float32([1.0])
    assert np.signbit(rlx.copysign(x, -0.0)).all()
    assert not np.signbit(rlx.copysign(x, 0.0)).any()
    assert rlx.add(np.bool_([True]), 1).dtype == np.int64
    assert rlx.add(np.int8([1]), True).dtype == np.int8
    assert rlx.add(np.int8([1]), 1.0).dtype == np.float32


def test_results_are_the_callers_own():
    """What a call returned may be written to without a later call seeing it."""
    found = rlx.sin(X)
    expected = found.copy()
    found[:] = 7
    np.testing.assert_array_equal(rlx.sin(X), expected)


def test_a_refusal_of_the_elements_names_the_op():
    with pytest.raises(RlxError, match="outside") as caught:
        rlx.take(X, np.int64([9]), axis=0)
    assert any(fact.label == "op" for fact in caught.value.facts)
