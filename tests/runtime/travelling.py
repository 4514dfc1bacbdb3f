"""Functions that tests of travelling send to other processes, so they are found by name in a module."""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import numpy as np

import rlx_core as rlx
from rlx_core import nn


class Pair(NamedTuple):
    first: object
    second: object


WEIGHTS = {"w": np.arange(12, dtype=np.float32).reshape(3, 4) / 8, "b": np.float32([1, -1, 0, 2])}
X = np.float32([[1, -2, 3], [0, 0.5, 1]])


def model(params, x):
    y = nn.gelu(nn.linear(x["x"], params["w"], params["b"])) * x["scale"]
    return {"y": y, "all": [Pair(x["x"], (y, None))]}


def compiled(**options):
    """`model` with its weights; any number of rows, and the scale 2.5."""
    return rlx.compile(model, WEIGHTS, {"x": rlx.spec("f32[rows, 3]"), "scale": 2.5}, **options)


def squares(x):
    return rlx.sum(x * x)


def rows(x, axis):
    return rlx.sum(x, axis=axis)


@rlx.jit
def decorated(x):
    return x * 2


class Model:
    def __init__(self, by):
        self.by = by

    def times(self, x):
        return x * self.by

    @rlx.jit
    def times_two(x):
        return x * 2


gradient = rlx.grad(squares)

STAGED = {
    "decorated": decorated,
    "jit": rlx.jit(squares, donate=(), config={"fusion.enabled": False}),
    "grad": gradient,
    "jit of grad": rlx.jit(rlx.value_and_grad(squares, argnums=(0,))),
    "vmap of grad": rlx.vmap(rlx.grad(squares), in_axes=0),
    "hessian": rlx.hessian(squares),
    "jacobians": rlx.jacfwd(rlx.jacrev(squares)),
    "partial": rlx.jit(partial(rows, axis=0)),
    "method": rlx.jit(Model(3).times),
    "module's own": rlx.jit(rlx.exp),
}
