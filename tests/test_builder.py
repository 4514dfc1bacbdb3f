"""The explicit builder: every op by name, types inferred, and what a finished or foreign graph refuses."""

from __future__ import annotations

import numpy as np
import pytest

import rlx_core as rlx
from rlx_core.builder import GraphBuilder
from rlx_core.errors import DtypeError, FormatError, ShapeError, TraceError, UnknownNameError
from rlx_core.ops.comparison import isnan

X = np.float32([[1, -2, 3], [4, 5, -6]])


@pytest.fixture
def g():
    return GraphBuilder("model")


def run(g, *outputs, **inputs):
    g.set_outputs(*outputs)
    return rlx.Session().compile(g.build()).run(inputs)


def test_a_graph_is_built_by_hand_and_says_its_types(g):
    x, w = g.input("x", "f32[batch, 3]"), g.param("w", "f32[3, 2]")
    y = g.softmax(g.matmul(x, w), axis=-1)

    assert str(y.type) == "f32[batch, 2]"
    assert [str(d) for d in g.shape_of(y)] == ["batch", "2"]
    assert g.dtype_of(y) is rlx.f32
    assert len(g) == 4
    assert repr(g) == "GraphBuilder('model', 4 nodes, open)"
    g.set_outputs(y)
    assert list(g.build().input_types) == ["x"]
    assert repr(g).endswith("finished)")


BY_NAME = {
    "binary": (lambda g, x: g.binary("maximum", x, 0.0), lambda x: np.maximum(x, 0)),
    "binary by op name": (lambda g, x: g.binary("max", x, 0.0), lambda x: np.maximum(x, 0)),
    "sub": (lambda g, x: g.sub(x, 1), lambda x: x - 1),
    "activation": (lambda g, x: g.activation("relu", x), lambda x: np.maximum(x, 0)),
    "compare": (lambda g, x: g.compare("lt", x, 0.0), lambda x: x < 0),
    "eq_": (lambda g, x: g.eq_(x, 1.0), lambda x: x == 1),
    "where_": (lambda g, x: g.where_(x > 0, x, 0.0), lambda x: np.where(x > 0, x, 0)),
    "reduce": (lambda g, x: g.reduce("sum", x, (1,)), lambda x: x.sum(1)),
    "reduce keeping": (lambda g, x: g.reduce("mean", x, (0,), keep_dim=True), lambda x: x.mean(0, keepdims=True)),
    "reduce max": (lambda g, x: g.reduce("max", x, (-1,)), lambda x: x.max(-1)),
    "Array API": (lambda g, x: g.expand_dims(x, axis=0), lambda x: x[None]),
    "operators": (lambda g, x: -x * 2 + x.T.T / 4, lambda x: -x * 2 + x / 4),
    "constant": (lambda g, x: x + g.constant(np.float32([1, 2, 3])), lambda x: x + np.float32([1, 2, 3])),
    "number": (lambda g, x: x * g.constant(0.5), lambda x: x * 0.5),
    "array as operand": (lambda g, x: g.add(x, np.float32([1, 2, 3])), lambda x: x + np.float32([1, 2, 3])),
    "block": (lambda g, x: g.linear(x, np.ones((3, 1), np.float32)), lambda x: x @ np.ones((3, 1), np.float32)),
}


@pytest.mark.parametrize(("build", "reference"), BY_NAME.values(), ids=BY_NAME.keys())
def test_ops_are_found_by_name(g, build, reference):
    (found,) = run(g, build(g, g.input("x", "f32[2, 3]")), x=X)
    expected = reference(X)

    assert found.dtype == expected.dtype
    np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_every_op_of_the_host_is_a_method(g):
    from rlx_core.plugins import default_host

    for name in default_host().registry().ops:
        assert callable(getattr(g, name.partition(".")[2])), name


@pytest.mark.parametrize(
    ("value", "kind"), [(True, "bool"), (2, "i64"), (0.5, "f32"), (1j, "c64"), (np.int8([1]), "i8")], ids=str
)
def test_a_constant_has_the_dtype_of_its_kind(g, value, kind):
    assert g.constant(value).dtype.name == kind
    assert g.constant(value, rlx.c128).dtype is rlx.c128


def test_an_op_object_is_applied_with_a_stated_type_or_a_name(g):
    x = g.input("x", "f32[2]")
    y = g.apply(isnan.op(), x, type="bool[2]", name="bad")

    assert repr(y) == "%bad"
    with pytest.raises(ShapeError, match=r"stated type is f32\[2\], the inferred one bool\[2\]"):
        g.apply(isnan.op(), x, type="f32[2]")


def test_an_unknown_op_names_the_nearest(g):
    with pytest.raises(UnknownNameError, match="no op is called 'sotfmax'") as caught:
        g.sotfmax(g.input("x", "f32[2]"))
    assert caught.value.hint == "did you mean `softmax`?"


@pytest.mark.parametrize(
    ("act", "error", "says"),
    [
        (lambda g: g.input("x", "f32[3]"), FormatError, "two inputs or params called 'x'"),
        (lambda g: g.param("x", "f32[3]"), FormatError, "two inputs or params called 'x'"),
        (lambda g: g.input("y", "f33[3]"), DtypeError, "'f33'"),
        (lambda g: g.input("y", "f32[-3]"), ShapeError, "-3"),
        (lambda g: g.matmul(g.constant(np.zeros((2, 4))), np.ones((3, 4))), ShapeError, "4 != 3"),
        (lambda g: g.softmax(np.ones(3, np.float32), axes=1), UnknownNameError, "not axes="),
        (lambda g: g.build(), FormatError, "it has no outputs"),
        (lambda g: g.set_outputs(np.ones(3)), TraceError, "output 0 is ndarray, not a value"),
        (lambda g: g.set_outputs(GraphBuilder("other").input("z", "f32[1]")), TraceError, "graph other cannot be used"),
    ],
    ids=lambda p: p if isinstance(p, str) else "",
)
def test_what_is_wrong_is_named_and_changes_nothing(g, act, error, says):
    x = g.input("x", "f32[2]")
    with pytest.raises(error, match=says):
        act(g)
    np.testing.assert_array_equal(run(g, x + 1, x=np.float32([1, 2]))[0], [2, 3])


def test_a_finished_builder_takes_no_more(g):
    x = g.input("x", "f32[2]")
    g.set_outputs(x)
    g.build()
    with pytest.raises(TraceError, match="it is finished"):
        g.exp(x)
    with pytest.raises(TraceError, match="it is finished"):
        g.input("y", "f32[2]")


def test_values_of_two_builders_do_not_mix(g):
    other = GraphBuilder("other").input("x", "f32[2]")
    with pytest.raises(TraceError, match="a value of graph other cannot be used here"):
        g.exp(other)


def test_private_names_are_no_ops(g):
    with pytest.raises(AttributeError):
        g._softmax
    assert not hasattr(g, "__dlpack__")
