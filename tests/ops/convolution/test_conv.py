"""Convolutions against their definition and SciPy's correlation, their layers' arguments, and derivatives of derivatives."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest
from scipy.signal import correlate

import rlx_core as rlx
from rlx_core import nn
from rlx_core.errors import ConfigError, ShapeError
from rlx_core.ops.convolution.conv import conv, conv_backward_input, conv_backward_weight

RNG = np.random.default_rng(3)

GEOMETRIES: list[dict[str, Any]] = [
    {"sizes": (7,), "kernel": (3,), "stride": 2, "padding": 1},
    {"sizes": (6, 5), "kernel": (3, 2), "stride": (1, 2), "padding": [(1, 0), 1], "groups": 2},
    {"sizes": (7, 6), "kernel": (2, 3), "dilation": (3, 1), "padding": "same"},
    {"sizes": (5, 4), "kernel": (3, 3), "padding": 1, "groups": 4},
    {"sizes": (4, 3, 5), "kernel": (2, 1, 3), "stride": 2, "padding": "same"},
]


def convolved(
    x: np.ndarray, w: np.ndarray, stride: tuple[int, ...], dilation: tuple[int, ...], lo: Any, hi: Any, groups: int
) -> np.ndarray:
    """The definition, one window after the other."""
    x = np.pad(x, [(0, 0), (0, 0), *zip(lo, hi, strict=True)])
    each, per = w.shape[1], w.shape[0] // groups
    extents = [d * (k - 1) + 1 for d, k in zip(dilation, w.shape[2:], strict=True)]
    counts = [(n - e) // s + 1 for n, e, s in zip(x.shape[2:], extents, stride, strict=True)]
    y = np.zeros((x.shape[0], w.shape[0], *counts))
    for m, o in product(range(w.shape[0]), np.ndindex(*counts)):
        at = tuple(slice(i * s, i * s + e, d) for i, s, e, d in zip(o, stride, extents, dilation, strict=True))
        group = m // per
        channels = slice(group * each, (group + 1) * each)
        y[(slice(None), m, *o)] = np.sum(x[(slice(None), channels, *at)] * w[m], axis=tuple(range(1, x.ndim)))
    return y


def given(geometry: dict[str, Any]) -> tuple[np.ndarray, np.ndarray, dict[str, Any]]:
    settings = dict(geometry)
    sizes, kernel = settings.pop("sizes"), settings.pop("kernel")
    groups = settings.get("groups", 1)
    return RNG.normal(size=(2, 4, *sizes)), RNG.normal(size=(8, 4 // groups, *kernel)), settings


@pytest.mark.parametrize("geometry", GEOMETRIES)
def test_every_window_is_multiplied_by_the_kernel(geometry: dict[str, Any]) -> None:
    x, w, settings = given(geometry)
    op = rlx.trace(lambda x, w: nn.conv(x, w, **settings), x, w).outputs[0].node.op
    wanted = convolved(x, w, op.stride, op.dilation, op.lo, op.hi, op.groups)
    np.testing.assert_allclose(nn.conv(x, w, **settings), wanted, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("geometry", GEOMETRIES)
def test_native_code_agrees_with_the_definition(geometry: dict[str, Any]) -> None:
    x, w, settings = given(geometry)
    y = rlx.jit(lambda x, w: nn.conv(x, w, **settings))(x.astype(np.float32), w.astype(np.float32))
    np.testing.assert_allclose(y, nn.conv(x, w, **settings), rtol=1e-4, atol=1e-4)  # f32, sums of 36 products


def test_without_steps_it_is_scipys_correlation() -> None:
    x, w = RNG.normal(size=(1, 1, 9, 8)), RNG.normal(size=(1, 1, 4, 3))
    np.testing.assert_allclose(nn.conv(x, w, padding="valid")[0, 0], correlate(x[0, 0], w[0, 0], "valid"), rtol=1e-12)


def test_channels_may_come_last() -> None:
    x, w, b = RNG.normal(size=(2, 4, 6, 5)), RNG.normal(size=(3, 4, 3, 3)), RNG.normal(size=3)
    last = nn.conv(np.moveaxis(x, 1, -1), w, b, padding=1, layout="nhwc")
    np.testing.assert_allclose(np.moveaxis(np.asarray(last), -1, 1), nn.conv(x, w, b, padding=1), rtol=1e-12)


@pytest.mark.parametrize(("size", "stride", "windows"), [(7, 2, 4), (8, 3, 3), (5, 1, 5), (2, 4, 1)])
def test_same_padding_leaves_a_window_for_every_stride(size: int, stride: int, windows: int) -> None:
    assert nn.conv(np.ones((1, 1, size)), np.ones((1, 1, 3)), stride=stride, padding="same").shape == (1, 1, windows)


def test_a_transposed_convolution_is_the_transpose() -> None:
    """⟨conv(x), y⟩ = ⟨x, conv_transpose(y)⟩ with the same weights, which is what the name says."""
    x, w = RNG.normal(size=(2, 6, 8, 7)), RNG.normal(size=(4, 3, 3, 2))
    steps: dict[str, Any] = {"stride": (2, 1), "padding": [(1, 0), 1], "groups": 2}
    y = np.asarray(nn.conv(x, w, **steps))
    t = RNG.normal(size=y.shape)
    back = nn.conv_transpose(t, w, **steps, output_padding=(0, 0))
    assert back.shape == (2, 6, 8, 7)
    np.testing.assert_allclose(np.sum(y * t), np.sum(x * back), rtol=1e-12)


def test_output_padding_gives_back_what_rounding_has_lost() -> None:
    x = np.ones((1, 1, 3))
    for more in (0, 1):
        y = nn.conv_transpose(x, np.ones((1, 1, 3)), stride=2, padding=1, output_padding=more)
        assert np.asarray(y).tolist() == [[[1.0, 2.0, 1.0, 2.0, 1.0, *[1.0] * more]]]


def test_same_padding_of_a_transposed_convolution_is_stride_cells_for_every_one() -> None:
    assert nn.conv_transpose(np.ones((1, 2, 5, 4)), np.ones((2, 3, 3, 4)), stride=(2, 3), padding="same").shape == (
        1,
        3,
        10,
        12,
    )


def test_the_three_are_each_others_derivatives() -> None:
    x, w, t = RNG.normal(size=(2, 4, 7)), RNG.normal(size=(6, 2, 3)), RNG.normal(size=(2, 6, 4))
    steps = {"stride": (2,), "lo": (1,), "hi": (1,), "groups": 2}
    _, pull = rlx.vjp(lambda x, w: conv(x, w, **steps), x, w)
    dx, dw = pull(t)
    np.testing.assert_allclose(dx, conv_backward_input(t, w, sizes=(7,), **steps), rtol=1e-12)
    np.testing.assert_allclose(dw, conv_backward_weight(x, t, kernel=(3,), **steps), rtol=1e-12)


@pytest.mark.medium
def test_a_hessian_goes_through_it() -> None:
    x, w = RNG.normal(size=(1, 2, 5)), RNG.normal(size=(3, 2, 2))

    def loss(w: Any) -> Any:
        return rlx.sum(nn.conv(x, w, stride=2, padding=1) ** 3)

    step = 1e-5
    hessian = np.asarray(rlx.hessian(loss)(w)).reshape(w.size, w.size)
    for i in range(w.size):
        moved = np.zeros(w.size)
        moved[i] = step
        ahead, behind = (np.asarray(rlx.grad(loss)(w + sign * moved.reshape(w.shape))).ravel() for sign in (1, -1))
        np.testing.assert_allclose(hessian[i], (ahead - behind) / (2 * step), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("axes", [(0, None), (None, 0), (0, 0)])
def test_a_batch_of_either_operand_is_channels_or_groups(axes: tuple[int | None, int | None]) -> None:
    x, w = RNG.normal(size=(3, 2, 4, 6)), RNG.normal(size=(3, 4, 2, 3))
    operands = [v if axis == 0 else v[0] for v, axis in zip((x, w), axes, strict=True)]
    found = rlx.vmap(lambda x, w: nn.conv(x, w, groups=2, padding=1), in_axes=axes)(*operands)
    for i in range(3):
        each = [v[i] if axis == 0 else v for v, axis in zip(operands, axes, strict=True)]
        np.testing.assert_allclose(found[i], nn.conv(*each, groups=2, padding=1), rtol=1e-12)


def test_the_batch_and_the_sizes_may_be_symbols() -> None:
    f = rlx.jit(lambda x, w: nn.conv(x, w, stride=2, padding=1))
    x, w = RNG.normal(size=(5, 2, 9)).astype(np.float32), RNG.normal(size=(3, 2, 3)).astype(np.float32)
    compiled = rlx.compile(
        lambda x, w: nn.conv(x, w, stride=2, padding=1), rlx.spec("f32[N, 2, L]"), rlx.spec("f32[3, 2, 3]")
    )
    np.testing.assert_allclose(compiled(x, w), f(x, w), rtol=1e-5, atol=1e-6)


def test_unfold_and_fold_are_transposes_and_count_overlaps() -> None:
    x = RNG.normal(size=(2, 3, 5, 4))
    columns = np.asarray(nn.unfold(x, (3, 2), stride=(2, 1), padding=1))
    assert columns.shape == (2, 18, 15)
    assert columns[0, 3 * 2, 0] == 0.0  # the first window begins in the padding
    again = nn.fold(columns, (5, 4), (3, 2), stride=(2, 1), padding=1)
    overlaps = nn.fold(
        nn.unfold(np.ones_like(x), (3, 2), stride=(2, 1), padding=1), (5, 4), (3, 2), stride=(2, 1), padding=1
    )
    np.testing.assert_allclose(again, x * np.asarray(overlaps), rtol=1e-12)


X, W = np.ones((1, 4, 8, 8)), np.ones((6, 4, 3, 3))


@pytest.mark.parametrize(
    ("settings", "error", "says"),
    [
        ({"stride": 0}, ShapeError, "stride must be at least 1, not [0, 0]"),
        ({"dilation": 5}, ShapeError, "spans 11 cells (3 at steps of 5) of spatial axis 0, which has 8"),
        ({"dilation": 5, "padding": 1}, ShapeError, "which has 10 (1 + 8 + 1)"),
        ({"groups": 3}, ShapeError, "3 groups do not divide 4 channels of x"),
        ({"groups": 2}, ShapeError, "weight must be [6, 2, 3, 3]"),
        ({"groups": 0}, ShapeError, "groups must be at least 1, not 0"),
        ({"padding": "full"}, ConfigError, "padding must be same or valid, not 'full'"),
        ({"padding": (1, 2, 3)}, ConfigError, "padding has 3 entries for 2 spatial axes"),
        ({"padding": ((1, 2, 3), 1)}, ConfigError, "a number or a pair, not (1, 2, 3)"),
        ({"padding": -1}, ShapeError, "lo must be at least 0"),
        ({"padding": 0.5}, ConfigError, "padding must be an integer"),
        ({"stride": (1, 2, 3)}, ConfigError, "stride has 3 numbers for 2 spatial axes"),
        ({"layout": "chwn"}, ConfigError, "layout must be nchw or nhwc"),
        ({"bias": np.ones(4)}, ShapeError, "bias must be [6], not [4]"),
    ],
)
def test_what_does_not_fit_is_refused_with_the_numbers(
    settings: dict[str, Any], error: type[Exception], says: str
) -> None:
    with pytest.raises(error) as caught:
        nn.conv(X, W, **settings)
    assert says in str(caught.value)


def test_weights_of_another_rank_are_refused() -> None:
    with pytest.raises(ShapeError, match="weight must have 4 axes as x has, not 3"):
        nn.conv(X, W[0])
    with pytest.raises(ShapeError, match="1 to 3 spatial axes"):
        nn.conv(X[0, 0], W)
