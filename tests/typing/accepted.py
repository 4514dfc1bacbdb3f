"""Programs that strict type checkers accept: mypy in `make check`, pyright in `make types`. They run, too."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

import rlx_core as rlx
from rlx_core import nn
from rlx_core.ops import Op, Value, define_op, op_function

Params = dict[str, rlx.Array]


def loss(params: Params, x: rlx.Array, labels: rlx.Array) -> rlx.Array:
    hidden = nn.linear(x, params["w1"], params["b1"], activation="gelu")
    return nn.cross_entropy(nn.linear(hidden, params["w2"]), labels)


@rlx.jit(donate="params")
def step(params: Params, x: rlx.Array, labels: rlx.Array, *, rate: float = 0.1) -> tuple[Params, rlx.Array]:
    value, grads = rlx.value_and_grad(loss)(params, x, labels)
    return {name: params[name] - rate * grads[name] for name in params}, value


def train() -> float:
    rng = np.random.default_rng(0)
    x: NDArray[np.float32] = rng.standard_normal((6, 4)).astype(np.float32)
    labels = np.array([0, 1, 2, 0, 1, 2])
    params: Params = {
        "w1": rng.standard_normal((4, 5)).astype(np.float32),
        "b1": np.zeros(5, np.float32),
        "w2": rng.standard_normal((5, 3)).astype(np.float32),
    }
    value = loss(params, x, labels)
    for _ in range(3):
        params, value = step(params, x, labels, rate=0.2)
    fast = rlx.compile(loss, params, rlx.spec("f32[n, 4]"), rlx.spec("i64[n]"))
    return float(value) - float(fast(x, labels))


def normalized(x: rlx.Array) -> rlx.Array:
    """Operators, methods and indices of arrays, traced or not."""
    centred = x - x.mean(axis=0)
    spread = rlx.sqrt((centred**2).sum(axis=0) / x.shape[0])
    mask = ~(abs(centred) > 3 * spread) & (x == x)
    return rlx.where(mask, centred / spread, 0.0)[:, ::-1].T.astype("f32")


def derivatives() -> list[tuple[int, ...]]:
    x = np.linspace(0.1, 1.0, 6, dtype=np.float32).reshape(3, 2)
    value, pull = rlx.vjp(normalized, x)
    (cotangent,) = pull(value)
    _, tangent = rlx.jvp(normalized, (x,), (x,))
    each = rlx.vmap(energy)(x)
    curve = rlx.hessian(energy)(x[0])
    return [np.shape(a) for a in (cotangent, tangent, each, curve)]


def energy(x: rlx.Array) -> rlx.Array:
    kept = shrink(x, limit=0.25)
    return rlx.sum(kept * kept) + rlx.sum(mixed(x, x, 0.5))


@define_op(domain="acme")
class Shrink(Op):
    """Soft thresholding."""

    limit: float = 0.5

    def decompose(self, x: Value) -> Value:
        rest = rlx.clip(x, -self.limit, self.limit)
        return x - rest


@define_op(domain="acme")
class Mixed(Op):
    """A share of one operand, and the rest of another."""

    share: float

    def decompose(self, x: Value, y: Value) -> Value:
        return x * self.share + y * (1 - self.share)


shrink = op_function(Shrink)
mixed = op_function(Mixed)


class Model(NamedTuple):
    """A pytree, whose methods are functions of it."""

    weight: rlx.Array

    @rlx.jit
    def scaled(self, x: rlx.Array) -> rlx.Array:
        return x * self.weight


def method() -> rlx.Array:
    return Model(np.float64(2)).scaled(np.ones(2))


def spelled_out() -> list[rlx.Array]:
    """Operands as whatever is an array, attributes by position and by keyword, names of nodes."""
    return [
        rlx.exp([[1.0, 2.0]]),
        rlx.exp(3.0),
        rlx.add(np.float32(1), True),
        rlx.softmax(np.ones(3), 0, name="weights"),
        rlx.layer_norm(np.ones((2, 3)), axis=[0, 1]),
        rlx.concat([np.ones(2), np.zeros(1)]),
        rlx.sum(np.ones((2, 3)), axis=(0, 1), dtype=rlx.f64),
        rlx.dynamic_slice(np.arange(5), [3], [2]),
        rlx.scatter(np.zeros(3), np.array([1]), updates=np.ones(1), mode="add"),
        *rlx.top_k(np.ones(4), 2),
        shrink(np.ones(2), limit=0.1, name="shrunk"),
    ]
