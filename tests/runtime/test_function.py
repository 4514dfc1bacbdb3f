"""`rlx.jit` and `rlx.compile`: what is compiled when, what a call takes and returns, and what it refuses."""

from __future__ import annotations

import math
import warnings
from collections import OrderedDict
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np
import pytest

import rlx_core as rlx
from rlx_core.errors import (
    ConfigError,
    DeviceError,
    DtypeError,
    ShapeError,
    TraceError,
    UnknownNameError,
    WrongInputCountError,
)
from rlx_core.ir.array import HostArray

X = np.float32([1, 2, 3])
W = np.float32([[1, 0], [0, 1], [1, 1]])


class Pair(NamedTuple):
    first: Any
    second: Any


# ------------------------------------------------------------------------------------ what is compiled


@pytest.fixture
def traced():
    """A jitted doubling, and how often its body was traced."""
    calls = []

    @rlx.jit
    def double(x, scale=2):
        calls.append(x)
        return x * scale

    return double, calls


@pytest.mark.medium
def test_equal_types_are_compiled_once(traced):
    double, calls = traced
    for x in (X, X + 1, np.float64([3, 4])):
        np.testing.assert_array_equal(double(x), 2 * np.asarray(x))
    assert len(calls) == len(double.executables) == 2


@pytest.mark.parametrize(
    "other",
    [X[:2], X.astype(np.float64), X[None], X.astype(np.int32)],
    ids=["shape", "dtype", "rank", "kind"],
)
def test_another_type_is_another_variant(traced, other):
    double, calls = traced
    double(X)
    np.testing.assert_array_equal(double(other), 2 * other)
    assert len(calls) == 2


@pytest.mark.parametrize(
    ("one", "other"),
    [(2, 3), (2, 2.0), (1, True), (0.0, -0.0), (0, False), (1.0, 1 + 0j)],
    ids=str,
)
def test_python_scalars_are_constants_told_apart_by_type_and_bits(one, other):
    @rlx.jit
    def filled(x, value):
        return rlx.full(x.shape, value)

    for value in (one, other, one):
        found = filled(X, value)
        expected = np.full(3, value).astype(found.dtype)
        assert found.tobytes() == expected.tobytes(), value
    assert len(filled.executables) == 2


def test_a_nan_constant_is_compiled_once(traced):
    double, calls = traced
    for _ in range(3):
        assert np.isnan(double(X, float("nan"))).all()
    assert len(calls) == 1


def test_numpy_scalars_vary_without_another_variant(traced):
    double, calls = traced
    for value in (2, 3):
        np.testing.assert_array_equal(double(X, np.float32(value)), X * value)
    assert len(calls) == 1


@pytest.mark.medium
def test_many_variants_are_warned_of_with_the_reason():
    scaled = rlx.jit(lambda x, factor: x * factor)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for factor in range(33):
            scaled(X, factor)
    assert len(caught) == 1
    assert "32 compiled variants; factor is a Python scalar" in str(caught[0].message)
    assert caught[0].filename == __file__


def test_the_report_is_the_latest_variants(traced):
    double, _ = traced
    with pytest.raises(ConfigError, match="double was not called yet"):
        double.report
    double(X)
    double(X[:2])
    assert "f32[2]" in str(double.report.graph.input_types)


def test_the_options_of_jit_are_held_against_what_there_is():
    with pytest.raises(UnknownNameError, match="tagret"):
        rlx.jit(lambda x: x, tagret="cpu")
    with pytest.raises(DeviceError, match="cpuu"):
        rlx.jit(lambda x: x, target="cpuu")(X)
    with pytest.raises(ConfigError, match="polcy"):
        rlx.jit(lambda x: x, config={"fusion.polcy": "direct"})(X)
    np.testing.assert_array_equal(rlx.jit(target="cpu", config={"fusion.policy": "fusable"})(lambda x: x + 1)(X), X + 1)


# ------------------------------------------------------------------------------------------- arguments


def test_arguments_are_bound_as_python_binds_them():
    @rlx.jit
    def f(a, /, b, *more, c=1, **rest):
        return a - b + sum(more) + c * rest["d"]

    np.testing.assert_array_equal(f(X, X, X, X, c=X, d=X), X + X + X * X)
    np.testing.assert_array_equal(f(X, b=2 * X, d=3), 3 - X)
    with pytest.raises(TypeError, match="missing a required argument"):
        f(X)


@pytest.mark.parametrize(
    "tree",
    [
        {"b": X, "a": 2 * X},
        [X, 2 * X],
        (X, (2 * X, [X])),
        Pair(X, 2 * X),
        OrderedDict(b=X, a=2 * X),
        {"x": None, "y": X},
        {},
        None,
        X,
        (np.float32(1), np.int64(2), np.bool_(True)),
        {"deep": [{"er": (X, None, Pair(None, X))}]},
    ],
    ids=lambda t: type(t).__name__,
)
def test_pytrees_come_back_as_they_went_in(tree):
    import optree

    found = rlx.jit(lambda t: t)(tree)

    assert optree.tree_structure(found) == optree.tree_structure(tree)
    for a, b in zip(optree.tree_leaves(found), optree.tree_leaves(tree), strict=True):
        assert type(a) is HostArray
        assert a.dtype == b.dtype
        np.testing.assert_array_equal(a, b)


def test_the_structure_of_arguments_is_part_of_the_variant():
    total = rlx.jit(lambda t: t[0] + (t[1] if len(t) > 1 else 0))
    np.testing.assert_array_equal(total([X]), X)
    np.testing.assert_array_equal(total([X, X]), 2 * X)
    np.testing.assert_array_equal(total((X, X)), 2 * X)
    assert len(total.executables) == 3


def test_results_may_be_constants_numbers_and_arrays():
    found = rlx.jit(lambda x: {"a": 1.5, "b": np.arange(2), "c": x, "d": True})(X)
    assert float(found["a"]) == 1.5
    np.testing.assert_array_equal(found["b"], [0, 1])
    assert found["d"].dtype == bool


def test_a_function_without_array_arguments_is_a_program_too():
    np.testing.assert_array_equal(rlx.jit(lambda n: rlx.arange(n) * 2)(3), [0, 2, 4])


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: rlx.jit(lambda x: x)(object()), "argument x is object, not an array"),
        (lambda: rlx.jit(lambda model: model)({"w": {1, 2}}), "argument model.w is set, not an array"),
        (lambda: rlx.jit(lambda x: [x, "text"])(X), "result.1 = 'text'"),
        (lambda: rlx.jit(lambda x: object())(X), "returns result of type object"),
        (lambda: rlx.jit(lambda x: x if x[0] > 0 else -x)(X), "a truth value"),
        (lambda: rlx.jit(lambda x: float(x[0]))(X), "float\\(\\)"),
        (lambda: rlx.jit(lambda x: np.sum(x))(X), "numpy.sum needs the elements"),
        (lambda: rlx.jit(lambda x: x)(np.ma.masked_array(X, mask=[1, 0, 0])), "x is MaskedArray, not an array"),
    ],
    ids=["object", "leaf", "text", "result", "bool", "float", "numpy", "masked"],
)
def test_what_is_not_an_array_is_named(call, says):
    with pytest.raises(TraceError, match=says):
        call()


def test_an_error_in_the_body_is_at_the_users_line_and_leaves_nothing():
    @rlx.jit
    def f(x):
        return x + np.zeros(2, np.float32)

    with pytest.raises(ShapeError, match=r"add: .*3.*2") as caught:
        f(X)
    assert "test_function.py:" in str(caught.value)
    assert f.executables == []
    np.testing.assert_array_equal(f(X[:2]), X[:2])


def test_a_value_that_leaves_its_trace_is_refused():
    kept = []
    rlx.jit(lambda x: kept.append(x) or x)(X)
    with pytest.raises(TraceError):
        rlx.jit(lambda y: y + kept[0])(X)
    with pytest.raises(TraceError):
        rlx.jit(lambda y: y)(kept[0])


# --------------------------------------------------------------------------------------------- nesting


def test_jit_inside_jit_is_traced_in_place():
    inner = rlx.jit(lambda x: rlx.exp(x) * 2)
    outer = rlx.jit(lambda x: inner(x) + inner(x + 1))

    np.testing.assert_allclose(outer(X), 2 * np.exp(X) + 2 * np.exp(X + 1), rtol=1e-6)
    assert inner.executables == []


def test_a_jitted_function_in_a_class_is_a_method():
    class Model:
        scale = X

        @rlx.jit
        def plain(self, x):
            return x

        @staticmethod
        @rlx.jit
        def double(x):
            return x * 2

    np.testing.assert_array_equal(Model().double(X), 2 * X)
    with pytest.raises(TraceError, match="argument self is Model, not an array"):
        Model().plain(X)


def test_a_jitted_function_keeps_its_name_and_documentation(traced):
    double, _ = traced
    assert double.__name__ == "double"
    assert double.__wrapped__ is not None


# -------------------------------------------------------------------------------------------- donation


def step(params, x):
    return {k: v + x for k, v in params.items()}, x


@pytest.mark.parametrize("donate", ["params", ["params"], ("params.a", "params.b")], ids=str)
def test_donated_arguments_are_overwritten_by_their_next_values(donate):
    jitted = rlx.jit(step, donate=donate)
    params = {"a": rlx.asarray(X, copy=True), "b": rlx.asarray(2 * X)}
    place = np.asarray(params["a"]).ctypes.data
    for k in range(3):
        params, _ = jitted(params, X)
        np.testing.assert_array_equal(params["a"], X * (k + 2))
        np.testing.assert_array_equal(params["b"], X * (k + 3))
    assert np.asarray(params["a"]).ctypes.data == place


@pytest.mark.parametrize("shared", [True, False])
def test_donated_arrays_that_are_read_only_or_shared_are_copied(shared):
    frozen = X.copy()
    frozen.flags.writeable = False
    params = {"a": frozen, "b": frozen} if shared else {"a": X[::-1], "b": np.broadcast_to(np.float32(1), (3,))}
    before = {k: v.copy() for k, v in params.items()}
    found, _ = rlx.jit(step, donate="params")(params, X)

    for k, v in before.items():
        np.testing.assert_array_equal(found[k], v + X)
        np.testing.assert_array_equal(params[k], v)


def test_an_unknown_argument_to_donate_is_named():
    with pytest.raises(UnknownNameError, match="no argument 'parms' to donate") as caught:
        rlx.jit(step, donate="parms")({"a": X}, X)
    assert caught.value.hint == "did you mean `params`?"


# --------------------------------------------------------------------------------------- rlx.compile


def model(params, x, scale=1.0):
    return {"y": x @ params["w"] * scale + params["b"]}


PARAMS = {"w": W, "b": np.float32([1, -1])}


@pytest.fixture
def compiled():
    return rlx.compile(model, PARAMS, rlx.spec("f32[batch, 3]"))


@pytest.mark.medium
def test_a_compiled_function_takes_its_inputs_and_returns_its_structure(compiled):
    for n in (1, 4):
        x = np.ones((n, 3), np.float32)
        np.testing.assert_array_equal(compiled(x)["y"], x @ W + PARAMS["b"])
        np.testing.assert_array_equal(compiled(x=x)["y"], x @ W + PARAMS["b"])
        assert str(compiled.report.graph.input_types["x"]) == f"f32[{n}, 3]"
    assert list(compiled.executable.params) == ["params.b", "params.w"]
    assert repr(compiled).startswith("<compiled model(x): <executable")


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda f: f(), "takes \\(x\\), not 0 arguments"),
        (lambda f: f(PARAMS, X), "takes \\(x\\), not 2 arguments"),
        (lambda f: f(y=X), "unknown  y"),
        (lambda f: f(X, x=X), "given twice  x"),
    ],
    ids=["none", "with parameters", "unknown", "twice"],
)
def test_the_wrong_arguments_are_counted_and_named(compiled, call, says):
    with pytest.raises(WrongInputCountError, match=says) as caught:
        call(compiled)
    assert "params" in str(caught.value), "it says what is bound"


def test_another_structure_of_an_input_is_refused_with_the_leaves():
    f = rlx.compile(lambda t: t["a"] + t["b"], {"a": rlx.spec("f32[3]"), "b": rlx.spec("f32[3]")})
    with pytest.raises(ShapeError, match="1 leaves, not 2") as caught:
        f({"a": X})
    assert "missing  t.b" in str(caught.value)
    with pytest.raises(ShapeError, match="structure"):
        f([X, X])
    with pytest.raises(ShapeError, match="structure"):
        f({"a": [X], "b": X})
    np.testing.assert_array_equal(f({"b": X, "a": X}), 2 * X)


def test_scalars_among_the_inputs_are_constants_that_a_call_must_repeat():
    f = rlx.compile(lambda t: t["x"] * t["n"], {"x": rlx.spec("f32[3]"), "n": 3})
    np.testing.assert_array_equal(f({"x": X, "n": 3}), 3 * X)
    with pytest.raises(ConfigError, match=r"t\.n was compiled as 3, not 4"):
        f({"x": X, "n": 4})


def test_arrays_and_specs_in_one_argument_are_refused():
    with pytest.raises(ConfigError, match="argument t mixes arrays and specs"):
        rlx.compile(lambda t: t["a"] + t["b"], {"a": X, "b": rlx.spec("f32[3]")})


def test_parameters_are_bound_again_as_a_whole_or_not_at_all(compiled):
    x = np.ones((1, 3), np.float32)
    good = {"w": 2 * W, "b": PARAMS["b"]}
    bad = [
        ({"params": {"w": 3 * W}}, ShapeError, "missing  params.b"),
        ({"params": {**good, "c": X}}, ShapeError, "extra  params.c"),
        ({"params": {"w": 3 * W, "b": X}}, ShapeError, "params.b must be"),
        ({"params": {"w": 3 * W, "b": PARAMS["b"].astype(np.float64)}}, DtypeError, "params.b must be f32, not f64"),
        ({"parms": good}, UnknownNameError, "parms is unknown; its parameters are params"),
        ({"x": x}, UnknownNameError, "x is an input"),
    ]
    for arguments, error, says in bad:
        with pytest.raises(error, match=says):
            compiled.rebind(**arguments)
        np.testing.assert_array_equal(compiled(x)["y"], x @ W + PARAMS["b"])
    compiled.rebind(params=good)
    np.testing.assert_array_equal(compiled(x)["y"], x @ (2 * W) + PARAMS["b"])


def test_an_unused_parameter_is_bound_without_harm():
    f = rlx.compile(lambda p, x: x * p["a"], {"a": X, "unused": W}, rlx.spec("f32[3]"))
    np.testing.assert_array_equal(f(X), X * X)


def test_two_functions_with_one_program_keep_their_names():
    one, other = rlx.compile(lambda x: x + 1, rlx.spec("f32[3]")), rlx.compile(model, PARAMS, rlx.spec("f32[1, 3]"))

    def renamed(params, x, scale=1.0):
        return model(params, x, scale)

    again = rlx.compile(renamed, PARAMS, rlx.spec("f32[1, 3]"))
    assert [f.report.name for f in (one, other, again)] == ["lambda", "model", "renamed"]
    with pytest.raises(DtypeError, match="x must be f32, not f64") as caught:
        again(np.ones((1, 3)))
    assert "again = rlx.compile(renamed" in str(caught.value)


# ---------------------------------------------------------------------------------------------- threads


@pytest.mark.medium
def test_threads_that_call_one_function_at_once_compile_each_variant_once():
    traces = []

    @rlx.jit
    def f(x):
        traces.append(x.shape)
        return rlx.exp(x) + 1

    def work(i):
        for n in range(1, 5):
            np.testing.assert_allclose(f(np.full(n, i, np.float32)), np.exp(np.float32(i)) + 1, rtol=1e-6)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(8)))
    assert sorted(traces) == [(1,), (2,), (3,), (4,)]


def test_infinities_and_nan_pass_without_warnings():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = rlx.jit(lambda x: rlx.log(x) / 0)(np.float32([-1, 0, 1]))
    assert math.isnan(found[0])
    assert found[1] == -math.inf
