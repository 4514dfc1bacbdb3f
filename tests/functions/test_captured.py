"""Captured values of staged transforms: every call sees the values of now, whatever holds them."""

from __future__ import annotations

import dataclasses
import functools
import logging
import time
from typing import Any

import numpy as np
import pytest

import rlx_core as rlx
from rlx_core.functions.captured import MAX_GUARDS, captured_values
from rlx_core.functions.staged import MAX_PROGRAMS, MAX_TRACES

from . import captured_holders, captured_settings
from .captured_holders import HOLDERS, Model, squares

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


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch):
    monkeypatch.setattr(captured_holders, "PLACE", tmp_path / "k.txt")


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


@pytest.mark.medium
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
