"""Captured values of staged transforms: every call sees the values of now, whatever holds them."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import logging
import sys
import time
import types
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rlx_core as rlx
from rlx_core.functions.captured import MAX_GUARDS, captured_values
from rlx_core.functions.staged import MAX_PROGRAMS, MAX_TRACES

from . import captured_settings

X = np.array([0.5, -1.0, 2.0])

TRANSFORMS = {
    "grad": rlx.grad,
    "value_and_grad": rlx.value_and_grad,
    "vmap": functools.partial(rlx.vmap, in_axes=None, axis_size=2),
    "hessian": rlx.hessian,
    "jacfwd": rlx.jacfwd,
    "jacrev": rlx.jacrev,
}


def expected(transform, k):
    """The result for a loss of k times the sum of squares."""
    value, gradient, second = k * (X * X).sum(), 2 * k * X, 2 * k * np.eye(3)
    results = {"value_and_grad": (value, gradient), "vmap": np.full(2, value), "hessian": second}
    return results.get(transform, gradient)


def squares(x):
    return rlx.sum(x * x)


# ------------------------------------------------------------------------ what holds a value
#
# Each makes a loss of some captured value, and a function that changes it.


def a_float():
    k = 1.0

    def change(to):
        nonlocal k
        k = float(to)

    return lambda x: squares(x) * k, change


def a_flag():
    factor: float | None = None
    is_scaled = False

    def loss(x):
        return squares(x) * factor if is_scaled else squares(x)

    def change(to):
        nonlocal is_scaled, factor
        is_scaled, factor = to != 1, float(to)

    return loss, change


def an_array_that_is_replaced():
    k = np.full(3, 1.0)

    def change(to):
        nonlocal k
        k = np.full(3, float(to))

    return lambda x: rlx.sum(x * x * k), change


def an_array_that_is_changed_in_place():
    k = np.full(3, 1.0)

    def change(to):
        k[:] = to

    return lambda x: rlx.sum(x * x * k), change


def an_array_with_gaps_that_is_changed_in_place():
    k = np.full((3, 2), 1.0)
    column = k[:, 1]

    def change(to):
        k[:, 1] = to

    return lambda x: rlx.sum(x * x * column), change


def an_array_that_python_reads():
    k = np.full(3, 1.0)

    def change(to):
        k[:] = to

    return lambda x: squares(x) * float(k.mean()), change


def an_array_that_decides_a_branch():
    k = np.full(3, 1.0)

    def change(to):
        k[:] = to

    return lambda x: squares(x) * k[0] if k[0] > 1 else squares(x), change


def an_array_of_rlx():
    k = rlx.full((3,), 1.0, "f64")

    def change(to):
        k[:] = to

    return lambda x: rlx.sum(x * x * k), change


def a_numpy_scalar():
    k = np.float64(1)

    def change(to):
        nonlocal k
        k = np.float64(to)

    return lambda x: squares(x) * k, change


GLOBAL = 1.0


def a_global():
    def change(to):
        global GLOBAL
        GLOBAL = float(to)

    change(1)
    return lambda x: squares(x) * GLOBAL, change


def a_global_of_a_called_function():
    captured_settings.SCALE = 1.0

    def change(to):
        captured_settings.SCALE = float(to)

    return lambda x: captured_settings.scaled(x * x), change


def an_attribute_of_a_module():
    captured_settings.SCALE = 1.0

    def change(to):
        captured_settings.SCALE = float(to)

    return lambda x: squares(x) * captured_settings.SCALE, change


def a_module_under_another_name():
    captured_settings.SCALE = 1.0

    def loss(x):
        settings = captured_settings
        return squares(x) * settings.SCALE

    def change(to):
        captured_settings.SCALE = float(to)

    return loss, change


def a_module_imported_inside():
    captured_settings.SCALE = 1.0

    def loss(x):
        from .captured_settings import SCALE

        return squares(x) * SCALE

    def change(to):
        captured_settings.SCALE = float(to)

    return loss, change


class Model:
    weight = 1.0

    def __init__(self):
        type(self).weight = 1.0
        self.k: Any = 1.0
        self.layers = [{"w": np.full(3, 1.0)}]

    def loss(self, x):
        return self.scaled(squares(x))

    def scaled(self, value):
        return value * self.k * self.weight

    def layered(self, x):
        return rlx.sum(x * x * self.layers[0]["w"])

    def by_name(self, x):
        return squares(x) * getattr(self, "".join(["k"]))

    def __call__(self, x):
        return self.loss(x)


def an_attribute_of_self():
    model = Model()

    def change(to):
        model.k = float(to)

    return model.loss, change


def an_attribute_by_a_computed_name():
    model = Model()

    def change(to):
        model.k = float(to)

    return model.by_name, change


def an_attribute_of_a_class():
    Model.weight = 1.0

    def change(to):
        Model.weight = float(to)

    return Model().loss, change


def an_array_deep_inside_self():
    model = Model()

    def change(to):
        model.layers[0]["w"] = np.full(3, float(to))

    return model.layered, change


def a_callable_object():
    model = Model()

    def change(to):
        model.k = float(to)

    return model, change


class Slotted:
    __slots__ = ("k",)

    def __call__(self, x):
        return squares(x) * self.k


def a_slot():
    model = Slotted()
    model.k = 1.0

    def change(to):
        model.k = float(to)

    return model, change


def a_method_that_is_replaced():
    class Local:
        def factor(self):
            return 1.0

    local = Local()

    def change(to):
        Local.factor = lambda self: float(to)

    return lambda x: squares(x) * local.factor(), change


def a_nested_function():
    k = 1.0

    def loss(x):
        def inner(y):
            return squares(y) * k

        return inner(x)

    def change(to):
        nonlocal k
        k = float(to)

    return loss, change


def a_function_that_is_called():
    k = 1.0

    def inner(x):
        return squares(x) * k

    def change(to):
        nonlocal k
        k = float(to)

    return lambda x: inner(x), change


def a_function_that_is_replaced():
    def inner(x):
        return squares(x)

    def change(to):
        nonlocal inner

        def inner(x):
            return squares(x) * to

    return lambda x: inner(x), change


def a_function_under_jit():
    k = 1.0

    @rlx.jit
    def inner(x):
        return squares(x) * k

    def change(to):
        nonlocal k
        k = float(to)

    return lambda x: inner(x), change


def a_default_argument():
    def loss(x, k=1.0):
        return squares(x) * k

    def change(to):
        loss.__defaults__ = (float(to),)

    return loss, change


def a_default_by_keyword():
    def inner(x, *, k=1.0):
        return squares(x) * k

    def change(to):
        inner.__kwdefaults__ = {"k": float(to)}

    return lambda x: inner(x), change


def an_attribute_of_a_function():
    def loss(x):
        return squares(x) * loss.k

    loss.k = 1.0

    def change(to):
        loss.k = float(to)

    return loss, change


def a_dict():
    settings = {"k": 1.0}

    def change(to):
        settings["k"] = float(to)

    return lambda x: squares(x) * settings["k"], change


def a_list():
    settings = [1.0]

    def change(to):
        settings[0] = float(to)

    return lambda x: squares(x) * settings[0], change


def a_list_that_grows():
    settings: list[float] = [1.0]

    def change(to):
        settings[:] = [to - 1.0, 1.0]

    return lambda x: squares(x) * sum(settings), change


def a_set():
    settings = {1.0}

    def change(to):
        settings.clear()
        settings.add(float(to))

    return lambda x: squares(x) * sum(settings), change


def a_partial():
    settings = {"k": 1.0}
    loss = functools.partial(lambda settings, x: squares(x) * settings["k"], settings)

    def change(to):
        settings["k"] = float(to)

    return loss, change


def a_decorated_function():
    k = 1.0

    def decorated(function):
        @functools.wraps(function)
        def call(x):
            return function(x) * k

        return call

    def change(to):
        nonlocal k
        k = float(to)

    return decorated(squares), change


def a_property():
    class Local:
        @property
        def factor(self):
            return self.k * 1.0

    local = Local()
    local.k = 1.0

    def change(to):
        local.k = to

    return lambda x: squares(x) * local.factor, change


def a_dataclass():
    @dataclasses.dataclass
    class Settings:
        k: float

    settings = Settings(1.0)

    def change(to):
        settings.k = float(to)

    return lambda x: squares(x) * settings.k, change


def a_namespace():
    settings = types.SimpleNamespace(k=1.0)

    def change(to):
        settings.k = float(to)

    return lambda x: squares(x) * settings.k, change


def an_iterator():
    values = itertools.chain([1.0], itertools.repeat(5.0))
    return lambda x: squares(x) * next(values), lambda to: None


def a_generator():
    values = (k for k in (1.0, *[5.0] * 20))
    return lambda x: squares(x) * next(values), lambda to: None


def a_name_in_text():
    state = {"k": 1.0}
    return lambda x: squares(x) * eval("state['k']", {"state": state}), lambda to: state.update(k=float(to))


def a_file():
    def loss(x):
        return squares(x) * float(PLACE.read_text())

    PLACE.write_text("1.0")
    return loss, lambda to: PLACE.write_text(str(to))


PLACE = Path()

HOLDERS = [
    *(a_float, a_flag, a_numpy_scalar, a_global, a_global_of_a_called_function, an_attribute_of_a_module),
    *(a_module_under_another_name, a_module_imported_inside, an_attribute_of_self, an_attribute_of_a_class),
    *(an_attribute_by_a_computed_name, an_array_deep_inside_self, a_callable_object, a_slot),
    *(a_method_that_is_replaced, a_nested_function, a_function_that_is_called, a_function_that_is_replaced),
    *(a_function_under_jit, a_default_argument, a_default_by_keyword, an_attribute_of_a_function, a_dict, a_list),
    *(a_list_that_grows, a_set, a_partial, a_decorated_function, a_property, a_dataclass, a_namespace),
    *(an_array_that_is_replaced, an_array_that_is_changed_in_place, an_array_with_gaps_that_is_changed_in_place),
    an_array_of_rlx,
    *(
        an_array_that_python_reads,
        an_array_that_decides_a_branch,
        an_array_of_rlx,
        an_iterator,
        a_generator,
        a_name_in_text,
        a_file,
    ),
]


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch):
    monkeypatch.setattr(sys.modules[__name__], "PLACE", tmp_path / "k.txt")


@pytest.mark.parametrize("holder", HOLDERS, ids=lambda each: each.__name__)
@pytest.mark.parametrize("transform", TRANSFORMS)
def test_a_transform_has_the_captured_value_of_now(transform, holder):
    loss, change = holder()
    transformed = TRANSFORMS[transform](loss)
    for k in (1, 5, 5):
        change(k)
        found = transformed(X)
        for a, b in zip(*map(leaves, (found, expected(transform, k))), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-12)


def leaves(results):
    return results if type(results) is tuple else (results,)


# --------------------------------------------------------------------------- what a call costs


def test_a_target_network_is_the_one_of_now():
    """Deep Q-learning: the target's parameters are replaced from time to time, and the loss reads them."""

    class Agent:
        def __init__(self):
            self.target = {"w": np.full((3, 2), 1.0), "b": np.zeros(2)}

        def loss(self, params, x, reward):
            q = rlx.max(x @ params["w"] + params["b"])
            return (reward + 0.9 * rlx.max(x @ self.target["w"] + self.target["b"]) - q) ** 2

    agent, params = Agent(), {"w": np.full((3, 2), 1.0), "b": np.zeros(2)}
    step = rlx.value_and_grad(agent.loss)
    for scale in (1.0, 20.0, 3.0, 3.0):
        agent.target = {"w": np.full((3, 2), scale), "b": np.zeros(2)}
        value, _ = step(params, X, 1.0)
        np.testing.assert_allclose(value, (1 + 0.9 * 1.5 * scale - 1.5) ** 2, rtol=1e-12)
    assert len(step.executables) == 1, "arrays are inputs, so that other elements are no other program"


def test_unchanged_captured_values_are_traced_once():
    k, weights = 2.0, [np.ones(3), {"b": np.ones(3)}]
    gradient = rlx.grad(lambda x: rlx.sum(x * weights[0] * weights[1]["b"]) * k)
    for _ in range(3):
        gradient(X)
    assert [len(variants) for variants in gradient._guarded.values()] == [1]


def test_a_flag_that_changes_back_finds_its_trace():
    is_scaled = False
    gradient = rlx.grad(lambda x: rlx.sum(x * 2 if is_scaled else x))
    for _ in range(2):
        for is_scaled in (False, True):
            np.testing.assert_allclose(gradient(X), np.full(3, 1.0 + is_scaled))
    assert [len(v) for v in gradient._guarded.values()] == [2]
    assert len(gradient.executables) == 2


def test_traces_and_programs_that_are_kept_have_a_limit():
    k = 0.0
    gradient = rlx.grad(lambda x: rlx.sum(x) * k)

    def changed(to):
        nonlocal k
        k = float(to)
        return float(gradient(X)[0])

    found = [changed(i) for i in range(31)]
    with pytest.warns(RuntimeWarning, match="32 compiled variants.*besides its arguments"):
        found.append(changed(31))
    found += [changed(i) for i in range(32, MAX_PROGRAMS + 2)]
    assert found == list(range(MAX_PROGRAMS + 2))
    assert [len(v) for v in gradient._guarded.values()] == [MAX_TRACES]
    assert len(gradient.executables) == MAX_PROGRAMS


ITERATOR, GENERATOR, MANY = iter([1.0]), np.random.default_rng(0), [[] for _ in range(MAX_GUARDS)]


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (lambda x: rlx.sum(x) * np.random.rand(), "numpy.random"),  # noqa: NPY002  it is what users write
        (lambda x: rlx.sum(x) * time.time(), "time.time"),
        (lambda x: rlx.sum(x) * next(ITERATOR, 1.0), "list_iterator, whose state Python does not show"),
        (lambda x: rlx.sum(x) * GENERATOR.normal(), "outside of the program"),
        (lambda x: rlx.sum(x) * len(MANY), "more than 1,000 values"),
    ],
    ids=["random", "clock", "iterator", "generator", "many"],
)
def test_what_cannot_be_compared_is_traced_for_every_call_and_the_log_says_why(function, reason, caplog):
    assert reason in captured_values(function).reason
    gradient = rlx.grad(function)
    with caplog.at_level(logging.INFO, logger="rlx.compile"):
        gradient(X)
    said = [r.getMessage() for r in caplog.records if "traced again" in r.getMessage()]
    assert len(said) == 1
    assert reason in said[0]


@pytest.mark.parametrize(
    "function",
    [
        lambda x: rlx.sum(x) * np.float64(np.pi),
        lambda x: rlx.sum(rlx.random.normal(rlx.random.key(0), (3,)) * x),
        lambda x: rlx.sum(rlx.scan(lambda c, y: (c + y, y), x[0], x)[1]) * np.mean([1.0, 2.0]),
        rlx.custom_vjp(squares),
        rlx.checkpoint(squares),
        rlx.jit(squares),
        Model(),
        functools.lru_cache(squares),
    ],
    ids=["numpy", "rlx.random", "scan", "custom_vjp", "checkpoint", "jit", "object", "cached"],
)
def test_what_can_be_compared_is(function):
    captured = captured_values(function)
    assert captured.reason is None
    assert captured.guards.hold()


def test_jit_keeps_the_values_of_its_first_trace():
    """JAX's rule: a compiled function reads what it captures while it is traced, and at no other time."""
    k = 1.0
    function = rlx.jit(lambda x: rlx.sum(x) * k)
    first = float(function(X))
    k = 5.0
    assert float(function(X)) == first
    assert float(rlx.grad(function)(X)[0]) == 5.0


def test_methods_of_arguments_read_the_globals_of_now():
    @rlx.register_dataclass
    @dataclasses.dataclass
    class Scaled:
        w: Any

        def __call__(self, x):
            return rlx.sum(self.w * x) * captured_settings.SCALE

    gradient = rlx.grad(lambda model, x: model(x))
    for captured_settings.SCALE in (1.0, 5.0):
        np.testing.assert_allclose(gradient(Scaled(np.ones(3)), X).w, X * captured_settings.SCALE)


def test_an_exception_of_a_comparison_is_a_change():
    class Strange:
        def __eq__(self, other):
            raise RuntimeError("no")

        __hash__ = object.__hash__

    table: dict[Any, float] = {Strange(): 1.0}
    gradient = rlx.grad(lambda x: rlx.sum(x) * sum(table.values()))
    assert gradient(X)[0] == 1.0
    table = {Strange(): 5.0}
    assert gradient(X)[0] == 5.0


def test_a_transform_is_shown_with_its_function():
    gradient = rlx.grad(squares)
    assert repr(gradient) == "<grad of squares: 0 compiled variants>"
    gradient(X)
    assert repr(gradient) == "<grad of squares: 1 compiled variant>"
