"""What bad input to loops, choices, random numbers, layers and transforms gets: a typed error with the user's own line."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import rlx_core as rlx
from rlx_core import nn
from rlx_core.errors import RlxError

X = np.float32([1, 2, 3])
IMAGE = np.ones((1, 3, 4, 4), np.float32)
KERNEL = np.ones((2, 3, 3, 3), np.float32)
LARGE = np.ones((2, 3, 5, 5), np.float32)


def key() -> Any:
    return rlx.random.key(0)


def endless(x: Any) -> Any:
    return rlx.sum(rlx.while_loop(lambda c: c[0] < 30, lambda c: c * 2, x))


def python_loop(x: Any) -> Any:
    while x[0] < 3:
        x = x + 1
    return x


MISTAKES: dict[str, tuple[Callable[[Any], Any], type[Exception], str]] = {
    "another shape": (
        lambda x: rlx.scan(lambda c, _: (c[:2], None), x, None, length=3),
        ValueError,
        "the carry is f32[3] before a step and f32[2] after",
    ),
    "another dtype": (
        lambda x: rlx.while_loop(lambda c: c[0] < 3, lambda c: rlx.astype(c, rlx.f64), x),
        TypeError,
        "the carry is f32[3] before a step and f64[3]",
    ),
    "one of several": (
        lambda x: rlx.fori_loop(0, 3, lambda i, c: {"a": c["a"][:2]}, {"a": x}),
        ValueError,
        "the carry carry.a is f32[3]",
    ),
    "branches": (
        lambda x: rlx.cond(x[0] > 0, lambda x: x, lambda x: x[:2], x),
        ValueError,
        "result is f32[3] in lambda and f32[2] in lambda",
    ),
    "structures": (lambda x: rlx.cond(x[0] > 0, lambda x: (x, x), lambda x: x, x), ValueError, "different structures"),
    "cases": (
        lambda x: rlx.switch(1, [lambda x: x, lambda x: x[:2]], x),
        ValueError,
        "result is f32[3] in lambda and f32[2]",
    ),
    "length": (
        lambda x: rlx.scan(lambda c, _: (c, None), x, None, length=-3),
        ValueError,
        "length must be at least 0, not -3",
    ),
    "lengths": (
        lambda x: rlx.scan(lambda c, _: (c, None), x, x, length=5),
        ValueError,
        "x has 3 elements along its first axis, and length=5",
    ),
    "predicates": (
        lambda x: rlx.cond(x > 0, lambda x: x, lambda x: x, x),
        ValueError,
        "the predicate must be a scalar, not bool[3]",
    ),
    "number": (
        lambda x: rlx.cond(x[0], lambda x: x, lambda x: x, x),
        TypeError,
        "the predicate must be one bool, not f32[]",
    ),
    "conditions": (
        lambda x: rlx.while_loop(lambda c: c < 3, lambda c: c + 1, x),
        ValueError,
        "the condition must be one bool, not bool[3]",
    ),
    "unbounded": (rlx.grad(endless), NotImplementedError, "max_steps=K"),
    "if": (lambda x: x if x[0] > 0 else -x, TypeError, "a truth value needs the elements of bool[]"),
    "while": (python_loop, TypeError, "rlx.while_loop"),
    "key": (lambda x: key() + x, TypeError, "a key is no number"),
    "no key": (lambda x: x + rlx.random.normal(3, (3,)), TypeError, "key must be a random key, not int 3"),
    "rate": (lambda x: nn.dropout(x, key(), 1.5), ValueError, "rate must be from 0 to 1, not 1.5"),
    "negative rate": (lambda x: nn.dropout(x, key(), -1.0), ValueError, "rate must be from 0 to 1, not -1.0"),
    "kernel": (
        lambda x: x[0] * nn.conv(IMAGE, LARGE),
        ValueError,
        "the kernel spans 5 cells of spatial axis 0, which has 4",
    ),
    "window": (
        lambda x: x[0] * nn.max_pool(IMAGE, 7),
        ValueError,
        "the kernel spans 7 cells of spatial axis 0, which has 4",
    ),
    "stride": (lambda x: x[0] * nn.conv(IMAGE, KERNEL, stride=0), ValueError, "stride must be at least 1"),
    "window's stride": (lambda x: x[0] * nn.avg_pool(IMAGE, 2, stride=0), ValueError, "stride must be at least 1"),
    "dilation": (lambda x: x[0] * nn.conv(IMAGE, KERNEL, dilation=0), ValueError, "dilation must be at least 1"),
    "axes": (lambda x: rlx.fft.fft2(x.reshape(3, 1), axes=(1, -1)), ValueError, "axes [1, 1] name one axis twice"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_inside_of_a_program_is_said_with_its_line(mistake: str) -> None:
    function, kind, says = MISTAKES[mistake]
    with pytest.raises(RlxError) as caught:
        rlx.jit(function)(X)
    said = str(caught.value)
    assert isinstance(caught.value, kind), type(caught.value).__mro__
    assert says in said, said
    assert "test_bad_input.py" in said, said
