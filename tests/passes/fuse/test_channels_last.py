"""Convolutions and what lies between them with their channels last: what is moved, what stays, and that numbers are the same."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import rlx_core as rlx
from rlx_core import nn
from rlx_core.ir.graph import Graph, as_results
from rlx_core.ops.convolution.conv import conv_backward_input, conv_backward_weight
from rlx_core.ops.structural import Transpose
from rlx_core.passes.fuse.channels_last import ChannelsLast

from ..programs import assert_equal_numbers, ops, program, run

TYPES = {"x": "f64[2, 3, 9, 8]", "w": "f64[8, 3, 3, 3]", "v": "f64[8, 8, 3, 3]", "c": "f64[8]", "d": "f64[8, 1, 3, 3]"}


def conv(x: Any, w: Any, **how: Any) -> Any:
    return nn.conv(x, w, padding=1, **how)


MOVED: dict[str, Callable[..., Any]] = {
    "two convolutions": lambda x, w, v, c, d: conv(nn.relu(conv(x, w)), v, stride=2),
    "a residual": lambda x, w, v, c, d: (lambda y: y + conv(nn.relu(y), v))(conv(x, w)),
    "a bias and a gate": lambda x, w, v, c, d: conv(
        (lambda y: y * rlx.sigmoid(rlx.mean(y, axis=(2, 3), keepdims=True)) + c.reshape((8, 1, 1)))(conv(x, w)), v
    ),
    "a norm": lambda x, w, v, c, d: conv(nn.batch_norm(conv(x, w), c, c * c, weight=c, bias=c)[0], v),
    "pools": lambda x, w, v, c, d: conv(nn.avg_pool(nn.max_pool(conv(x, w), 3, 2, 1), 2, 1), v),
    "a dilation": lambda x, w, v, c, d: nn.conv(x, w, dilation=(2, 1), stride=(1, 2)),
    "one cell among others": lambda x, w, v, c, d: nn.conv(conv(x, w), v[:, :, :1, :1], stride=2),
    "depthwise": lambda x, w, v, c, d: conv(conv(conv(x, w), d, groups=8, stride=2), v),
    "joined channels": lambda x, w, v, c, d: conv((lambda y: rlx.concat([y, nn.relu(y)], 1)[:, 4:12])(conv(x, w)), v),
    "channels last already": lambda x, w, v, c, d: nn.conv(x[:, :, :, :3].transpose(0, 2, 3, 1), w, layout="nhwc"),
    "the way back": lambda x, w, v, c, d: conv_backward_input(conv(x, w), v, sizes=(9, 8), lo=(1, 1), hi=(1, 1)),
    "the way back through a stride": lambda x, w, v, c, d: conv_backward_input(
        conv(x, w), v, sizes=(18, 16), stride=(2, 2), lo=(1, 1), hi=(1, 0)
    ),
    "the way back through a stride beyond the kernel": lambda x, w, v, c, d: conv_backward_input(
        conv(x, w), v[:, :, :1, :2], sizes=(26, 16), stride=(3, 2)
    ),
    "transposed through a stride": lambda x, w, v, c, d: nn.conv_transpose(conv(x, w), v, stride=2, padding=(1, 0)),
    "weights": lambda x, w, v, c, d: conv_backward_weight(
        x, conv(x, w, stride=2), kernel=(3, 3), stride=(2, 2), lo=(1, 1), hi=(1, 1)
    ),
}


@pytest.mark.parametrize("name", MOVED)
def test_convolutions_are_products_of_windows_where_they_lie(name: str) -> None:
    before = program(MOVED[name], **TYPES)
    after = run(ChannelsLast(), before).graph
    assert not {"conv", "conv_transpose", "conv_backward_input", "conv_backward_weight"} & set(ops(after))
    assert_equal_numbers(before, after, rtol=1e-9, atol=1e-9)  # two rounds of sums of 72 terms in another order


@pytest.mark.parametrize("name", MOVED)
def test_how_many_images_there_are_need_not_be_known(name: str) -> None:
    after = run(ChannelsLast(), program(MOVED[name], **{**TYPES, "x": "f64[N, 3, 9, 8]"})).graph
    assert not {"conv", "conv_transpose", "conv_backward_input", "conv_backward_weight"} & set(ops(after))
    assert {"folded_matmul", "sliding_windows"} & set(ops(after))


def moves(graph: Graph) -> int:
    """How many transpositions there are of images."""
    return sum(isinstance(n.op, Transpose) and n.op.perm in ((0, 2, 3, 1), (0, 3, 1, 2)) for n in graph.nodes)


def test_what_lies_between_is_not_moved() -> None:
    def network(x: Any, w: Any, v: Any, c: Any) -> Any:
        y = nn.max_pool(nn.relu(nn.batch_norm_inference(conv(x, w), c, c * c, weight=c, bias=c)), 2)
        return rlx.mean(nn.relu(conv(y, v) + y), axis=(2, 3))

    after = run(ChannelsLast(), program(network, **{n: TYPES[n] for n in "xwvc"})).graph
    windows = ops(after).count("sliding_windows")
    assert moves(after) == 1 + windows, "the image that comes in, and each view of windows of what lies there"


LEFT: dict[str, tuple[Callable[..., Any], dict[str, str]]] = {
    "halves": (lambda x, w: conv(x, w), {"x": "f16[2, 3, 9, 8]", "w": "f16[8, 3, 3, 3]"}),
    "few results": (lambda x, w: conv(x, w), {"x": "f32[2, 3, 9, 8]", "w": "f32[4, 3, 3, 3]"}),
    "groups": (lambda x, w: conv(x, w, groups=2), {"x": "f32[2, 4, 9, 8]", "w": "f32[16, 2, 3, 3]"}),
    "cells added at the end": (
        lambda x, w: nn.conv_transpose(x, w, stride=2, output_padding=1),
        {"x": "f32[2, 16, 9, 8]", "w": "f32[16, 8, 3, 3]"},
    ),
    "one cell alone": (lambda x, w: nn.conv(x, w), {"x": "f32[2, 3, 9, 8]", "w": "f32[16, 3, 1, 1]"}),
    "sizes of images that are not known": (lambda x, w: conv(x, w), {"x": "f32[2, 3, 9, N]", "w": "f32[8, 3, 3, 3]"}),
}


@pytest.mark.parametrize("name", LEFT)
def test_other_convolutions_stay(name: str) -> None:
    make, types = LEFT[name]
    before = program(make, **types)
    assert run(ChannelsLast(), before).graph is before


@pytest.mark.medium
def test_a_step_of_training_is_what_it_is_without_the_pass() -> None:
    rng = np.random.default_rng(3)
    x, w, v = (rng.normal(size=s).astype(np.float32) for s in ((2, 3, 9, 8), (8, 3, 3, 3), (8, 8, 3, 3)))

    def loss(weights: Any, x: Any) -> Any:
        y = nn.relu(conv(x, weights[0], stride=2))
        return rlx.sum(rlx.tanh(conv(nn.max_pool(y, 2, 1), weights[1])))

    found = rlx.jit(rlx.value_and_grad(loss))([w, v], x)
    wide = [a.astype(np.float64) for a in (w, v, x)]
    value, grads = rlx.value_and_grad(loss)(wide[:2], wide[2])
    np.testing.assert_allclose(found[0], value, rtol=1e-4)
    for one, other in zip(found[1], as_results(tuple(grads)), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-3, atol=1e-4)  # f32, sums of some 100 products
