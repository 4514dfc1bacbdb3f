"""Tracing: what becomes an input, a parameter, a constant; what is captured; what cannot be traced."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import rlx_core as rlx
from rlx_core import nn
from rlx_core.errors import DtypeError, FormatError, TraceError
from rlx_core.ir.graph import Builder, building
from rlx_core.ir.hir import has_blocks
from rlx_core.ir.types import spec
from rlx_core.transforms.trace import leaf_type, trace

X = np.float32([1, 2, 3])


def test_arrays_become_inputs_scalars_constants_and_none_nothing():
    traced = trace(lambda t, n, flag: t["x"] * n if flag else t["x"], ({"x": X, "none": None}, 3, True))

    assert {n: str(t) for n, t in traced.graph.input_types.items()} == {"t.x": "f32[3]"}
    assert [(leaf.name, leaf.role, leaf.static) for leaf in traced.leaves] == [
        ("t.x", "input", None),
        ("n", "static", 3),
        ("flag", "static", True),
    ]
    assert not traced.graph.param_types


def test_a_predicate_says_which_leaves_are_parameters():
    traced = trace(lambda w, x: w["a"] * x, ({"a": X}, spec("f32[3]")), params=lambda name, leaf: name.startswith("w."))

    assert list(traced.graph.param_types) == ["w.a"]
    assert list(traced.graph.input_types) == ["x"]


@pytest.mark.parametrize(
    ("leaf", "type"),
    [
        (X, "f32[3]"),
        (np.float64(1), "f64[]"),
        (np.zeros((2, 0), ">i4"), "i32[2, 0]"),
        (np.zeros(2, ml_dtypes.bfloat16), "bf16[2]"),
        (memoryview(b"ab"), "u8[2]"),
        (spec("c64[n]"), "c64[n]"),
    ],
    ids=lambda value: value if isinstance(value, str) else type(value).__name__,
)
def test_a_leaf_has_the_type_of_its_array(leaf, type):
    assert str(leaf_type(leaf)) == type


@pytest.mark.parametrize(
    "leaf",
    [object(), {1, 2}, np.array(["a"]), np.array([object()]), np.array([1], "M8[s]")],
    ids=["object", "set", "text", "objects", "dates"],
)
def test_a_leaf_that_is_no_array_is_refused(leaf):
    with pytest.raises((TraceError, DtypeError)):
        trace(lambda x: x, (leaf,))


def test_layers_are_recorded_as_blocks_and_everything_else_as_ops():
    assert has_blocks(trace(lambda x: nn.linear(x, np.ones((3, 2), np.float32)), (X,)).graph)
    assert not has_blocks(trace(lambda x: rlx.exp(x) @ np.ones((3, 2), np.float32), (X,)).graph)


def test_every_node_has_the_users_line():
    graph = trace(lambda x: nn.gelu(nn.linear(x, np.ones((3, 2), np.float32)) + 1), (X,)).graph

    assert all("test_trace.py" in repr(node.origin.source) for node in graph.nodes)


def test_results_keep_their_structure_and_names():
    traced = trace(lambda x: {"b": [x, 1], "a": None, "c": (X,)}, (X,))

    assert traced.results.names == ("result.b.0", "result.b.1", "result.c.0")
    assert traced.results.unflatten([1, 2, 3]) == {"b": [1, 2], "a": None, "c": (3,)}


def test_values_of_an_enclosing_trace_are_captured_where_that_is_allowed():
    outer = Builder("outer")
    with building(outer):
        y = outer.input("y", spec("f32[3]"))
        traced = trace(lambda x: x + y + y, (X,), capturing=True)
        with pytest.raises(TraceError, match="a value of graph outer cannot be used here"):
            trace(lambda x: x + y, (X,))

    assert len(traced.captures) == 1
    (name,) = traced.captures
    assert traced.captures[name] is y
    assert traced.graph.input_types[name] == y.type


def test_a_name_that_two_leaves_would_have_is_refused():
    with pytest.raises(FormatError, match=r"two inputs or params called 'a\.b\.c'"):
        trace(lambda a: a, ({"b.c": X, "b": {"c": X}},))


def test_an_argument_may_be_called_like_a_capture():
    def f(y):
        return rlx.grad(lambda captured0: rlx.sum(captured0 * y))(X)

    np.testing.assert_array_equal(rlx.jit(f)(2 * X), 2 * X)


def test_the_trace_of_a_function_that_fails_leaves_no_trace_behind():
    def fails(x):
        raise RuntimeError("user's own")

    with pytest.raises(RuntimeError, match="user's own"):
        trace(fails, (X,))
    np.testing.assert_array_equal(rlx.exp(np.float32([0])), [1])


def test_python_control_flow_on_types_is_free_and_on_elements_refused():
    traced = trace(lambda x: x * 2 if x.shape[0] == 3 and x.dtype is rlx.f32 else x, (X,))
    assert len(traced.graph) == 3
    for act in (bool, int, float, np.asarray, lambda v: v.__index__()):
        with pytest.raises(TraceError, match="needs the elements of f32"):
            trace(lambda x, act=act: act(x[0]), (X,))
