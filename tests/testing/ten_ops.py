"""A package of ten ops as an author would write them: two samples each, some own derivatives, one kernel.

It is the measure of what `rlx check` costs (`test_ten_ops.py`).
"""

from __future__ import annotations

import numpy as np

import rlx_core as rlx
from rlx_core import nn
from rlx_core.contributions import KernelSpec, OpFamily
from rlx_core.hooks import hookimpl
from rlx_core.kit import KernelTable, Op, Sample, define_op


@define_op(domain="ten")
class Shrink(Op):
    """The part of x beyond ±limit, and the rest of it."""

    limit: float = 0.5

    def decompose(self, x):
        rest = rlx.clip(x, -self.limit, self.limit)
        return x - rest, rest

    def vjp(self, g, x, *, y):
        g_kept, g_rest = g
        return (rlx.where(rlx.abs(x) > self.limit, g_kept, g_rest),)

    @classmethod
    def samples(cls):
        yield Sample("f32[4, 8]", limit=0.25)
        yield Sample("f32[3]")


@define_op(domain="ten")
class GatedCell(Op):
    """One step of a gated recurrent unit."""

    def decompose(self, x, h, w, u, b):
        gates = x @ w + h @ u + b
        update, reset, new = rlx.split(gates, 3, axis=-1)
        update, reset = nn.sigmoid(update), nn.sigmoid(reset)
        return update * h + (1 - update) * rlx.tanh(reset * new)

    @classmethod
    def samples(cls):
        yield Sample("f32[2, 3]", "f32[2, 4]", "f32[3, 12]", "f32[4, 12]", "f32[12]")
        yield Sample("f32[3]", "f32[2]", "f32[3, 6]", "f32[2, 6]", "f32[6]")


@define_op(domain="ten")
class SquaredRelu(Op):
    """max(x, 0)²."""

    def decompose(self, x):
        return rlx.square(nn.relu(x))

    def vjp(self, g, x, *, y):
        return (g * 2.0 * nn.relu(x),)

    @classmethod
    def samples(cls):
        yield Sample("f32[4, 8]")
        yield Sample("f32[2, 3, 5]")


@define_op(domain="ten")
class Gated(Op):
    """a * sigmoid(b)."""

    def decompose(self, a, b):
        return a * nn.sigmoid(b)

    @classmethod
    def samples(cls):
        yield Sample("f32[4, 8]", "f32[4, 8]")
        yield Sample("f32[4, 8]", "f32[8]")


@define_op(domain="ten")
class RmsScale(Op):
    """x / sqrt(mean(x²) + eps) * weight, over the last axis."""

    eps: float = 1e-6

    def decompose(self, x, weight):
        return x * rlx.rsqrt(rlx.mean(x * x, axis=-1, keepdims=True) + self.eps) * weight

    @classmethod
    def samples(cls):
        yield Sample("f32[4, 8]", "f32[8]")
        yield Sample("f32[2, 3, 5]", "f32[5]", eps=1e-3)


@define_op(domain="ten")
class CentredNorm(Op):
    """Zero mean and unit variance over the last axis, scaled and shifted."""

    eps: float = 1e-5

    def decompose(self, x, weight, bias):
        centred = x - rlx.mean(x, axis=-1, keepdims=True)
        variance = rlx.mean(centred * centred, axis=-1, keepdims=True)
        return centred * rlx.rsqrt(variance + self.eps) * weight + bias

    @classmethod
    def samples(cls):
        yield Sample("f32[4, 8]", "f32[8]", "f32[8]")
        yield Sample("f32[2, 3, 5]", "f32[5]", "f32[5]", eps=1e-3)


@define_op(domain="ten")
class Huber(Op):
    """The mean of Huber's loss."""

    delta: float = 1.0

    def decompose(self, x, target):
        d = rlx.abs(x - target)
        inside = d <= self.delta
        return rlx.mean(rlx.where(inside, 0.5 * d * d, self.delta * (d - 0.5 * self.delta)))

    @classmethod
    def samples(cls):
        yield Sample("f32[4, 8]", "f32[4, 8]")
        yield Sample("f32[6]", "f32[6]", delta=0.5)


@define_op(domain="ten")
class Layer(Op):
    """A layer of a transformer with one head."""

    def decompose(self, x, norm, q, k, v, o, up, down):
        def normed(x):
            return x * rlx.rsqrt(rlx.mean(x * x, axis=-1, keepdims=True) + 1e-6) * norm

        y = normed(x)
        scores = nn.softmax((y @ q) @ (y @ k).mT * q.shape[-1] ** -0.5)
        x = x + scores @ (y @ v) @ o
        return x + nn.silu(normed(x) @ up) @ down

    @classmethod
    def samples(cls):
        square = ["f32[4, 4]"] * 4
        yield Sample("f32[3, 4]", "f32[4]", *square, "f32[4, 6]", "f32[6, 4]")
        yield Sample("f32[2, 3, 4]", "f32[4]", *square, "f32[4, 6]", "f32[6, 4]")


@define_op(domain="ten")
class Attend(Op):
    """Attention with one head."""

    def decompose(self, q, k, v):
        return nn.softmax(q @ k.mT * q.shape[-1] ** -0.5) @ v

    @classmethod
    def samples(cls):
        yield Sample("f32[3, 4]", "f32[5, 4]", "f32[5, 2]")
        yield Sample("f32[2, 3, 4]", "f32[2, 5, 4]", "f32[2, 5, 2]")


@define_op(domain="ten")
class Pick(Op):
    """Rows of a table, scaled."""

    scale: float = 1.0

    def decompose(self, table, rows):
        return rlx.take(table, rows, axis=0) * self.scale

    @classmethod
    def samples(cls):
        yield Sample("f32[5, 4]", "i32[3]", ranges={"rows": (0, 3)})
        yield Sample("f32[5, 4]", "i32[2, 3]", ranges={"rows": (0, 3)}, scale=0.5)


OPS = [Shrink, GatedCell, SquaredRelu, Gated, RmsScale, CentredNorm, Huber, Layer, Attend, Pick]

kernels = KernelTable("cpu")


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def softmax(x):
    e = np.exp(x - np.max(x, axis=-1, keepdims=True, initial=-np.inf))
    return e / np.sum(e, axis=-1, keepdims=True)


def rms(x, eps):
    with np.errstate(all="ignore"):
        return x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + eps)


@kernels.register(Shrink, dtypes="f32 f64", accepts_strides=True)
def shrink(op, x, *, out, workspace):
    kept, rest = out
    np.clip(x, -op.limit, op.limit, out=rest)
    np.subtract(x, rest, out=kept)


@kernels.register(GatedCell, dtypes="f32 f64", accepts_strides=True)
def gated_cell(op, x, h, w, u, b, *, out, workspace):
    update, reset, new = np.split(x @ w + h @ u + b, 3, axis=-1)
    update = sigmoid(update)
    out[...] = update * h + (1 - update) * np.tanh(sigmoid(reset) * new)


@kernels.register(SquaredRelu, dtypes="f32 f64", accepts_strides=True)
def squared_relu(op, x, *, out, workspace):
    np.maximum(x, 0, out=out)
    np.multiply(out, out, out=out)


@kernels.register(Gated, dtypes="f32 f64", accepts_strides=True)
def gated(op, a, b, *, out, workspace):
    out[...] = a * sigmoid(b)


@kernels.register(RmsScale, dtypes="f32 f64", accepts_strides=True)
def rms_scale(op, x, weight, *, out, workspace):
    out[...] = rms(x, op.eps) * weight


@kernels.register(CentredNorm, dtypes="f32 f64", accepts_strides=True)
def centred_norm(op, x, weight, bias, *, out, workspace):
    centred = x - np.mean(x, axis=-1, keepdims=True)
    out[...] = rms(centred, op.eps) * weight + bias


@kernels.register(Huber, dtypes="f32 f64", accepts_strides=True)
def huber(op, x, target, *, out, workspace):
    d = np.abs(x - target)
    out[...] = np.mean(np.where(d <= op.delta, 0.5 * d * d, op.delta * (d - 0.5 * op.delta)))


@kernels.register(Layer, dtypes="f32 f64", accepts_strides=True)
def layer(op, x, norm, q, k, v, o, up, down, *, out, workspace):
    y = rms(x, 1e-6) * norm
    scores = softmax((y @ q) @ np.swapaxes(y @ k, -1, -2) * q.shape[-1] ** -0.5)
    x = x + scores @ (y @ v) @ o
    hidden = (rms(x, 1e-6) * norm) @ up
    out[...] = x + (hidden * sigmoid(hidden)) @ down


@kernels.register(Attend, dtypes="f32 f64", accepts_strides=True)
def attend(op, q, k, v, *, out, workspace):
    out[...] = softmax(q @ np.swapaxes(k, -1, -2) * q.shape[-1] ** -0.5) @ v


@kernels.register(Pick, dtypes="f32 f64 i32 i64", accepts_strides=True)
def pick(op, table, rows, *, out, workspace):
    out[...] = np.take(table, rows, axis=0) * op.scale


@hookimpl
def rlx_ops():
    return [OpFamily(f"{__name__}:OPS", names=[op.name for op in OPS])]


@hookimpl
def rlx_kernels():
    return [KernelSpec("cpu", kernels)]
