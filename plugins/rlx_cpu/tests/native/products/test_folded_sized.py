"""Convolutions of an unknown number of images: windows are read where they lie, with the bits of code for the size."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sized import Case, agree, check, weights

import rlx_core as rlx
from rlx_core import nn
from rlx_core.ops.convolution.conv import conv_backward_input, conv_backward_weight

W, V, B = weights(24, 5, 3, 3), weights(20, 24, 1, 1), weights(24)
DEEP, ONE = weights(9, 600, 2, 2), weights(40, 24, 1, 1)


def block(x: Any, w: Any) -> Any:
    y = nn.relu(nn.conv(x, w, B, padding=1))
    return nn.conv(y, V) + y[:, :20]


def squeezed(x: Any, w: Any) -> Any:
    y = nn.conv(x, w, padding=1)
    gate = rlx.sigmoid(nn.conv(rlx.mean(y, axis=(2, 3), keepdims=True), ONE[:24]))
    return nn.conv(y * gate, V)


def channels_second(x: Any) -> Any:
    return rlx.permute_dims(x, (0, 3, 1, 2))


def loss(w: Any, x: Any) -> Any:
    return rlx.sum(block(x, w) ** 2)


CASES = {
    "windows": Case(lambda x: nn.conv(x, W), ["f32[n, 5, 12, 17]"], may_be_none=False),
    "windows at steps": Case(
        lambda x: nn.conv(x, W, stride=2, dilation=(1, 2)), ["f32[n, 5, 13, 18]"], may_be_none=False
    ),
    "bias, residual and activation": Case(block, ["f32[n, 5, 9, 10]", "f32[24, 5, 3, 3]"], may_be_none=False, ways=2),
    "a gate of each image": Case(squeezed, ["f32[n, 5, 9, 10]", "f32[24, 5, 3, 3]"], may_be_none=False, ways=2),
    "one cell, many places": Case(
        lambda x: nn.relu(nn.conv(nn.conv(x, W), V)), ["f32[n, 5, 13, 11]"], may_be_none=False
    ),
    "one cell, few places": Case(lambda x: nn.relu(nn.conv(nn.conv(x, W), V)), ["f32[n, 5, 6, 7]"], may_be_none=False),
    "one place": Case(lambda x: nn.conv(nn.conv(x, W), V), ["f32[n, 5, 3, 3]"], may_be_none=False),
    "many terms": Case(lambda x: nn.conv(x, DEEP), ["f32[n, 600, 3, 5]"], may_be_none=False),
    "doubles": Case(lambda x: nn.conv(x, W.astype("f8"), stride=(2, 1)), ["f64[n, 5, 7, 9]"], may_be_none=False),
    "one axis": Case(lambda x: nn.conv(x, W[:, :, 0]), ["f32[n, 5, 40]"], may_be_none=False),
    "three axes": Case(lambda x: nn.conv(x, W[..., None]), ["f32[n, 5, 6, 5, 4]"], may_be_none=False),
    "depthwise": Case(
        lambda x: nn.conv(nn.conv(x, W), W[:, :1], groups=24, padding=1),
        ["f32[n, 5, 12, 9]"],
        may_be_none=False,
        adds_up=True,
    ),
    "twice as many images": Case(
        lambda x: nn.conv(rlx.concat([x, x * 2]), W, padding=1), ["f32[n, 5, 8, 9]"], may_be_none=False, ways=2
    ),
    "the way back": Case(
        lambda g, w: conv_backward_input(g, w, sizes=(9, 10), lo=(1, 1), hi=(1, 1)),
        ["f32[n, 24, 9, 10]", "f32[24, 9, 3, 3]"],
        may_be_none=False,
        ways=2,
    ),
    "the way back through a stride": Case(
        lambda g, w: conv_backward_input(g, w, sizes=(12, 10), stride=(2, 2), lo=(1, 1), hi=(1, 1)),
        ["f32[n, 24, 6, 5]", "f32[24, 9, 3, 3]"],
        may_be_none=False,
        ways=2,
    ),
    "weights": Case(
        lambda x, g: conv_backward_weight(x, channels_second(g), kernel=(3, 3), stride=(2, 2), lo=(1, 1), hi=(1, 1)),
        ["f32[n, 16, 13, 11]", "f32[n, 7, 6, 24]"],
        may_be_none=False,
        ways=3,
    ),
    "weights of one cell": Case(
        lambda x, g: conv_backward_weight(nn.relu(nn.conv(x, W)), channels_second(g), kernel=(1, 1)),
        ["f32[n, 5, 9, 10]", "f32[n, 7, 8, 32]"],
        may_be_none=False,
        ways=3,
    ),
}

QUICK = ("windows", "bias, residual and activation", "weights")
"""What stands for its kind where there is little time."""

NAMES = [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in CASES]


@pytest.mark.medium
@pytest.mark.parametrize("name", NAMES)
def test_a_new_number_of_images_compiles_nothing_and_gives_the_bits_of_code_for_it(
    name: str, compiled: list[int]
) -> None:
    check(CASES[name], (5, 1, 9, 2), compiled)


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_it_is_so_for_many_numbers(name: str, compiled: list[int]) -> None:
    check(CASES[name], (1, 3, 2, 8, 16, 33, 70), compiled)


@pytest.mark.parametrize("name", QUICK)
def test_nothing_is_written_outside(name: str) -> None:
    case = CASES[name]
    plain, guarded = case.for_all(), case.for_all(config={"options": {"cpu.poison": True}})
    for n in (5, 1, 3):
        inputs = case.arrays(n)
        np.testing.assert_array_equal(guarded(*inputs), plain(*inputs))


@pytest.mark.slow
def test_no_image_is_served_by_code_for_none() -> None:
    for case in (CASES["windows"], CASES["weights"]):
        function = case.for_all()
        for n in (2, 0, 3):
            inputs = case.arrays(n)
            agree(case, function(*inputs), case.for_size(n)(*inputs), n)


@pytest.mark.medium
def test_a_gradient_of_a_block_is_for_all_sizes() -> None:
    gradient = Case(rlx.grad(loss), ["f32[24, 5, 3, 3]", "f32[n, 5, 9, 10]"])
    function = gradient.for_all()
    for n in (3, 1, 6):
        w, x = gradient.arrays(n)
        found, wanted = function(w, x), gradient.for_size(n)(w, x)
        scale = np.abs(wanted).max()
        np.testing.assert_allclose(
            found / scale, wanted / scale, atol=2e-6
        )  # sums of n·90 terms, in another order of images
