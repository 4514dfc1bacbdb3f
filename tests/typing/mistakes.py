"""Programs with a mistake on every marked line; both type checkers find it, or only the one that is named.

`# type: ignore[…]` is what mypy says (an unused one is an error, so `make check` fails where mypy misses a mistake);
`# pyright only` is found by pyright alone. `test_pyright.py` compares the lines. Nothing here runs.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

import rlx_core as rlx
from rlx_core import nn
from rlx_core.ops import Op, Value, define_op, op_function

Params = dict[str, rlx.Array]
x: NDArray[np.float32] = np.ones((4, 3), np.float32)
labels = np.array([0, 1, 2, 0])
params: Params = {"w": np.ones((3, 3), np.float32)}


# ------------------------------------------------------------------------------------ functions of ops

rlx.softmax(x, axes=0)  # type: ignore[call-arg]
rlx.softmax(x, axis="last")  # type: ignore[arg-type]
rlx.softmax()  # type: ignore[call-arg]
rlx.softmax(x, empty_row="zeros")  # type: ignore[arg-type]
rlx.add(x)  # type: ignore[call-arg]
rlx.add(x, x, x)  # type: ignore[call-arg, arg-type]
rlx.exp("x")  # type: ignore[arg-type]
rlx.exp({"x": 1.0})  # type: ignore[arg-type]
rlx.layer_norm(x, epsilon=1e-6)  # type: ignore[call-arg]
rlx.layer_norm(x, eps=[1e-6])  # type: ignore[arg-type]
rlx.leaky_relu(x, negative_slope=x)  # type: ignore[arg-type]
rlx.group_norm(x)  # type: ignore[call-arg]
rlx.sum(x, axis=0.5)  # type: ignore[arg-type]
rlx.sum(x, keepdim=True)  # type: ignore[call-arg]
rlx.concat(x, x, x)  # type: ignore[call-arg, arg-type]
rlx.gather(x, labels, out_of_bounds="wrap")  # type: ignore[arg-type]
rlx.take(x, labels, axis=None, mode="clip")  # type: ignore[call-arg]
rlx.astype(x, 32)  # type: ignore[arg-type]
rlx.reshape(x, "3, 4")  # type: ignore[arg-type]
rlx.scatter_add(x, labels)  # type: ignore[call-arg]
rlx.where(x)  # type: ignore[call-arg]
nn.linear(x, params["w"], b=x)  # type: ignore[call-arg]
nn.cross_entropy(x, labels, reduction="avg")  # type: ignore[arg-type]
nn.attention(x, x, x, layout="sbd")  # type: ignore[arg-type]
rlx.concatenate([x, x])  # type: ignore[attr-defined]
rlx.float31  # type: ignore[attr-defined]


# ------------------------------------------------------------------------------------ what is returned

count: int = rlx.count_nonzero(x)  # type: ignore[assignment]
rlx.exp(x).tolist()  # type: ignore[union-attr]
rlx.top_k(x, 2).shape  # type: ignore[attr-defined]
best, places, more = rlx.top_k(x, 2)  # type: ignore[misc]
rlx.split(x, 2) + 1  # type: ignore[operator]
(rlx.exp(x) + 1).bogus  # type: ignore[union-attr]


# ------------------------------------------------------------------------------------ transformed functions


@rlx.jit
def predict(params: Params, x: rlx.Array, *, scale: float = 1.0) -> rlx.Array:
    return nn.softmax(nn.linear(x, params["w"])) * scale


def loss(params: Params, x: rlx.Array, labels: rlx.Array) -> rlx.Array:
    return nn.cross_entropy(nn.linear(x, params["w"]), labels)


def loss_and_scores(params: Params, x: rlx.Array) -> tuple[rlx.Array, dict[str, rlx.Array]]:
    scores = nn.linear(x, params["w"])
    return rlx.mean(scores), {"scores": scores}


@rlx.jit(donate="x")
def doubled(x: rlx.Array) -> rlx.Array:
    return x * 2


predict(params)  # type: ignore[call-arg]
predict(params, x, 2.0)  # type: ignore[call-arg]
predict(params, x, scal=2.0)  # type: ignore[call-arg]
predict(params, x, scale="2")  # type: ignore[arg-type]
predict(x, params)  # type: ignore[arg-type]
text: str = predict(params, x)  # type: ignore[assignment]
predict.reports  # type: ignore[attr-defined]
doubled(x, x)  # type: ignore[call-arg]
rlx.jit(loss, donate=1)  # type: ignore[call-overload]
rlx.jit(loss, devise="cpu")  # type: ignore[call-overload]
rlx.jit(3)  # type: ignore[call-overload]

rlx.grad(loss)(params, x)  # type: ignore[call-arg]
rlx.grad(loss)(params, x, labels)["w"].tolist()  # type: ignore[union-attr]
rlx.grad(loss)(params, x, labels) + 1  # type: ignore[operator]
rlx.grad(loss, argnum=1)  # type: ignore[call-overload]
value, grads = rlx.grad(loss, has_aux=True)(params, x, labels)  # type: ignore[call-overload]
value, grads, extra = rlx.value_and_grad(loss)(params, x, labels)  # type: ignore[misc]
rlx.value_and_grad(loss_and_scores, has_aux=True)(params, x)[1].shape  # type: ignore[attr-defined]
rlx.vmap(loss)(params)  # type: ignore[call-arg]
rlx.jvp(doubled, (x,), (x, x))  # type: ignore[arg-type]
rlx.hessian(doubled)(x, x)  # type: ignore[call-arg]

fast = rlx.compile(predict, params, rlx.spec("f32[batch, 3]"))
fast()  # type: ignore[call-arg]
fast(x, x)  # type: ignore[call-arg, arg-type]
fast(x, scal=2.0)  # type: ignore[call-arg]
fast.emitt("lir")  # type: ignore[attr-defined]
rlx.compile(predict, params, tarjet="cpu")  # type: ignore[call-overload]


class Model(NamedTuple):
    weight: rlx.Array

    @rlx.jit
    def step(self, x: rlx.Array) -> rlx.Array:
        return x * self.weight


Model(x).step()  # type: ignore[call-arg]
Model(x).step(x, x)  # type: ignore[call-arg]


# ------------------------------------------------------------------------------------ an op of one's own


@define_op(domain="acme")
class Shrink(Op):
    """Soft thresholding."""

    limit: float = 0.5

    def decompose(self, x: Value) -> Value:
        return x - rlx.clip(x, -self.limit, self.limit)


shrink = op_function(Shrink)
shrink(x, limit="0.5")  # type: ignore[call-overload]
shrink(x, limits=0.5)  # type: ignore[call-overload]
shrink()  # type: ignore[call-overload]
Shrink(limt=0.5)  # type: ignore[call-arg]
