"""Pools against windows cut out with NumPy, what padding and ties mean, and pools with a given number of windows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import rlx_core as rlx
from rlx_core import nn
from rlx_core.errors import ConfigError, ShapeError

RNG = np.random.default_rng(8)


def each_window(x: np.ndarray, kernel: int, stride: int, pad: int, of: Callable[[np.ndarray], Any]) -> np.ndarray:
    """`of` the cells of x, without padding, in each window of `[n, c, l]`."""
    starts = range(-pad, x.shape[2] + pad - kernel + 1, stride)
    return np.stack([of(x[:, :, max(s, 0) : s + kernel]) for s in starts], axis=-1)


@pytest.mark.parametrize(
    ("pool", "of"),
    [
        (nn.max_pool, lambda cells: cells.max(-1)),
        (nn.min_pool, lambda cells: cells.min(-1)),
        (lambda x, *at: nn.avg_pool(x, *at, count_include_pad=False), lambda cells: cells.mean(-1)),
        (nn.avg_pool, lambda cells: cells.sum(-1) / 3),
        (lambda x, *at: nn.lp_pool(x, 3, *at), lambda cells: np.sum(np.abs(cells) ** 3, -1) ** (1 / 3)),
    ],
)
@pytest.mark.parametrize(("stride", "pad"), [(1, 0), (2, 1), (3, 2)])
def test_only_cells_of_the_operand_count(pool: Any, of: Any, stride: int, pad: int) -> None:
    x = RNG.normal(size=(2, 3, 10)) - 5  # negative, so that zeros of padding would be noticed
    np.testing.assert_allclose(pool(x, 3, stride, pad), each_window(x, 3, stride, pad, of), rtol=1e-12)


def test_a_last_window_may_reach_beyond_the_operand() -> None:
    x = np.array([[[1.0, 5.0, 3.0, 2.0, 8.0]]])
    assert nn.max_pool(x, 2, ceil_mode=True).tolist() == [[[5.0, 3.0, 8.0]]]
    assert nn.avg_pool(x, 2, ceil_mode=True).tolist() == [[[3.0, 2.5, 8.0]]]
    assert nn.avg_pool(x, 3, 2, 1, ceil_mode=True).tolist() == [[[2.0, 10 / 3, 10 / 3]]], "padding counts"
    assert nn.avg_pool(x, 2, 3, 1, ceil_mode=True).tolist() == [[[0.5, 2.5]]], "none begins in the padding behind"
    assert nn.avg_pool(x[..., :4], 3, 2, 1, ceil_mode=True).tolist() == [[[2.0, 10 / 3, 1.0]]], (
        "and what is beyond does not"
    )


@pytest.mark.parametrize("mode", [False, True])
def test_a_cell_of_a_window_that_reaches_beyond_has_its_derivative(mode: bool) -> None:
    x = np.array([[[1.0, 5.0, 3.0]]])
    dx = rlx.grad(lambda x: rlx.sum(nn.avg_pool(x, 2, ceil_mode=mode)))(x)
    assert np.asarray(dx).tolist() == [[[0.5, 0.5, 1.0 if mode else 0.0]]]


def test_the_stride_is_the_kernel_unless_it_is_given() -> None:
    assert nn.max_pool(np.ones((1, 1, 9, 8)), (3, 2)).shape == (1, 1, 3, 4)


@pytest.mark.parametrize("jitted", [False, True])
def test_of_equal_cells_the_first_has_the_derivative(jitted: bool) -> None:
    x = np.float32([[[[1, 2, 2], [2, 1, 2], [0, 0, 2]]]])
    grad = rlx.grad(lambda x: rlx.sum(nn.max_pool(x, 2, 1)))
    dx = np.asarray((rlx.jit(grad) if jitted else grad)(x))
    assert dx[0, 0].tolist() == [[0, 2, 0], [1, 0, 1], [0, 0, 0]]


def test_padding_never_has_the_derivative_even_beside_the_smallest_number() -> None:
    x = np.full((1, 1, 2), -np.inf, np.float32)
    dx = rlx.grad(lambda x: rlx.sum(nn.max_pool(x, 2, 1, 1)))(x)
    assert np.asarray(dx).tolist() == [[[2.0, 1.0]]]


def test_a_nan_wins_wherever_it_is() -> None:
    x = np.array([[[1.0, np.nan, 3.0, 4.0]]])
    for pool in (nn.max_pool, nn.min_pool):
        np.testing.assert_array_equal(np.isnan(pool(x, 2)), [[[True, False]]])


@pytest.mark.parametrize("sizes", [(7, 5), (4, 5), (3, 2), (1, 1), (9, 2)])
def test_adaptive_windows_cover_the_operand(sizes: tuple[int, int]) -> None:
    x = RNG.normal(size=(2, 3, 7, 5))
    edges = [[(i * n // m, -(-(i + 1) * n // m)) for i in range(m)] for n, m in zip(x.shape[2:], sizes, strict=True)]
    for pool, of in ((nn.adaptive_avg_pool, np.mean), (nn.adaptive_max_pool, np.max)):
        wanted = [[of(x[:, :, a:b, c:d], axis=(2, 3)) for c, d in edges[1]] for a, b in edges[0]]
        np.testing.assert_allclose(pool(x, sizes), np.transpose(wanted, (2, 3, 0, 1)), rtol=1e-12)


def test_global_pools_keep_the_axes() -> None:
    x = RNG.normal(size=(2, 6, 5, 3))
    np.testing.assert_allclose(nn.global_avg_pool(x, layout="nhwc"), x.mean((1, 2), keepdims=True), rtol=1e-12)
    np.testing.assert_array_equal(nn.global_max_pool(x), x.max((2, 3), keepdims=True))


def test_means_of_integers_are_floats_and_extremes_stay_integers() -> None:
    x = np.arange(4, dtype=np.int32).reshape(1, 1, 4)
    assert nn.avg_pool(x, 2).dtype == np.float32
    assert np.asarray(nn.max_pool(x, 2, 1, 1)).tolist() == [[[0, 1, 2, 3, 3]]]


@pytest.mark.parametrize(
    ("call", "error", "says"),
    [
        (lambda x: nn.max_pool(x, 9), ShapeError, "spans 9 cells of spatial axis 0, which has 6"),
        (lambda x: nn.max_pool(x, 2, 0), ShapeError, "stride must be at least 1"),
        (lambda x: nn.avg_pool(x, 2, padding=2), ShapeError, "padding 2 and 2 must be below 2"),
        (lambda x: nn.max_pool(x, (2, 2, 2)), ConfigError, "kernel_size has 3 numbers for 2 spatial axes"),
        (lambda x: nn.max_pool(x, 0), ShapeError, "at least 1, not 0"),
        (lambda x: nn.lp_pool(x, 0, 2), ConfigError, "p must be above 0"),
        (lambda x: nn.adaptive_avg_pool(x, 0), ShapeError, "from 6 to 0"),
        (lambda x: nn.global_avg_pool(x[0, 0]), ShapeError, "1 to 3 spatial axes"),
    ],
)
def test_what_does_not_fit_is_refused_with_the_numbers(call: Any, error: type[Exception], says: str) -> None:
    with pytest.raises(error) as caught:
        call(np.ones((1, 2, 6, 6)))
    assert says in str(caught.value)
