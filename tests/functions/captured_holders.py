"""What may hold a captured value, as a table: each entry makes a loss of the value, and a function that changes it."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import types
from pathlib import Path
from typing import Any

import numpy as np

import rlx_core as rlx

from . import captured_settings


def squares(x):
    return rlx.sum(x * x)


# ------------------------------------------------------------------ changes that several holders share


def set_elements(array):
    def change(to):
        array[:] = to

    return change


def set_attribute(holder, name="k"):
    def change(to):
        setattr(holder, name, float(to))

    return change


def set_item(container, key):
    def change(to):
        container[key] = float(to)

    return change


# ---------------------------------------------------------------------------------------- holders


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
    return lambda x: rlx.sum(x * x * k), set_elements(k)


def an_array_with_gaps_that_is_changed_in_place():
    column = np.full((3, 2), 1.0)[:, 1]
    return lambda x: rlx.sum(x * x * column), set_elements(column)


def an_array_that_python_reads():
    k = np.full(3, 1.0)
    return lambda x: squares(x) * float(k.mean()), set_elements(k)


def an_array_that_decides_a_branch():
    k = np.full(3, 1.0)
    return lambda x: squares(x) * k[0] if k[0] > 1 else squares(x), set_elements(k)


def an_array_of_rlx():
    k = rlx.full((3,), 1.0, "f64")
    return lambda x: rlx.sum(x * x * k), set_elements(k)


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


def a_scale():
    """The module whose `SCALE` is 1, and what changes it."""
    captured_settings.SCALE = 1.0
    return set_attribute(captured_settings, "SCALE")


def a_global_of_a_called_function():
    return lambda x: captured_settings.scaled(x * x), a_scale()


def an_attribute_of_a_module():
    return lambda x: squares(x) * captured_settings.SCALE, a_scale()


def a_module_under_another_name():
    def loss(x):
        settings = captured_settings
        return squares(x) * settings.SCALE

    return loss, a_scale()


def a_module_imported_inside():
    def loss(x):
        from .captured_settings import SCALE

        return squares(x) * SCALE

    return loss, a_scale()


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
    return model.loss, set_attribute(model)


def an_attribute_by_a_computed_name():
    model = Model()
    return model.by_name, set_attribute(model)


def an_attribute_of_a_class():
    return Model().loss, set_attribute(Model, "weight")


def an_array_deep_inside_self():
    model = Model()

    def change(to):
        model.layers[0]["w"] = np.full(3, float(to))

    return model.layered, change


def a_callable_object():
    model = Model()
    return model, set_attribute(model)


class Slotted:
    __slots__ = ("k",)

    def __call__(self, x):
        return squares(x) * self.k


def a_slot():
    model = Slotted()
    model.k = 1.0
    return model, set_attribute(model)


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
    return loss, set_attribute(loss)


def a_dict():
    settings = {"k": 1.0}
    return lambda x: squares(x) * settings["k"], set_item(settings, "k")


def a_list():
    settings = [1.0]
    return lambda x: squares(x) * settings[0], set_item(settings, 0)


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
    return functools.partial(lambda settings, x: squares(x) * settings["k"], settings), set_item(settings, "k")


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
    return lambda x: squares(x) * local.factor, set_attribute(local)


def a_dataclass():
    @dataclasses.dataclass
    class Settings:
        k: float

    settings = Settings(1.0)
    return lambda x: squares(x) * settings.k, set_attribute(settings)


def a_namespace():
    settings = types.SimpleNamespace(k=1.0)
    return lambda x: squares(x) * settings.k, set_attribute(settings)


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


PLACE = Path()  # the fixture `place` sets it to a file in a temporary folder

HOLDERS = [
    a_float,
    a_flag,
    an_array_that_is_replaced,
    an_array_that_is_changed_in_place,
    an_array_with_gaps_that_is_changed_in_place,
    an_array_that_python_reads,
    an_array_that_decides_a_branch,
    an_array_of_rlx,
    a_numpy_scalar,
    a_global,
    a_global_of_a_called_function,
    an_attribute_of_a_module,
    a_module_under_another_name,
    a_module_imported_inside,
    an_attribute_of_self,
    an_attribute_by_a_computed_name,
    an_attribute_of_a_class,
    an_array_deep_inside_self,
    a_callable_object,
    a_slot,
    a_method_that_is_replaced,
    a_nested_function,
    a_function_that_is_called,
    a_function_that_is_replaced,
    a_function_under_jit,
    a_default_argument,
    a_default_by_keyword,
    an_attribute_of_a_function,
    a_dict,
    a_list,
    a_list_that_grows,
    a_set,
    a_partial,
    a_decorated_function,
    a_property,
    a_dataclass,
    a_namespace,
    an_iterator,
    a_generator,
    a_name_in_text,
    a_file,
]
