"""Where the largest cells are, operands with these alone, and windows that lie at random."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

import rlx_core as rlx
from rlx_core import nn, random
from rlx_core.errors import DtypeError, IndexRangeError, ShapeError

X = np.random.default_rng(0).standard_normal((2, 3, 7, 6)).astype(np.float32)


@pytest.mark.parametrize(
    "settings",
    [
        {"kernel_size": 2},
        {"kernel_size": 3, "stride": 2, "padding": 1},
        {"kernel_size": (3, 2), "stride": (2, 1), "padding": 1, "dilation": (1, 2)},
        {"kernel_size": 3, "stride": 2, "ceil_mode": True},
    ],
    ids=str,
)
def test_the_indices_are_where_the_values_lie(settings: dict[str, Any]) -> None:
    values, indices = rlx.jit(lambda x: nn.max_pool(x, return_indices=True, **settings))(X)
    np.testing.assert_array_equal(values, nn.max_pool(X, **settings))
    flat = X.reshape(2, 3, -1)
    np.testing.assert_array_equal(np.take_along_axis(flat, indices.reshape(2, 3, -1), 2).reshape(values.shape), values)
    for given, wanted in zip(nn.max_pool(X, return_indices=True, **settings), (values, indices), strict=True):
        np.testing.assert_array_equal(given, wanted)
    last = nn.max_pool(np.moveaxis(X, 1, -1), return_indices=True, layout="nhwc", **settings)[1]
    np.testing.assert_array_equal(np.moveaxis(np.asarray(last), -1, 1), indices)


def test_of_equal_cells_the_first_is_told_and_sizes_may_be_unknown() -> None:
    cells = rlx.compile(lambda x: nn.max_pool(x, 2, return_indices=True)[1], rlx.spec("f32[n, 1, h, 4]"))
    assert cells(np.ones((1, 1, 2, 4), np.float32)).tolist() == [[[[0, 2]]]]
    assert cells(np.ones((1, 1, 4, 4), np.float32)).tolist() == [[[[0, 2], [8, 10]]]]


def test_what_is_unpooled_is_there_again_and_its_gradient_is_read_there() -> None:
    values, indices = nn.max_pool(X, 2, return_indices=True)
    back = np.asarray(rlx.jit(lambda v, i: nn.max_unpool(v, i, 2, output_size=(7, 6)))(values, indices))
    chosen = back != 0
    np.testing.assert_array_equal(back[chosen], X[chosen])
    assert chosen.sum() == values.size
    assert nn.max_unpool(values, indices, 2).shape == (2, 3, 6, 6)
    slope = np.random.default_rng(1).standard_normal(back.shape).astype(np.float32)
    gradient = rlx.grad(lambda v: rlx.sum(slope * nn.max_unpool(v, indices, 2, output_size=(7, 6))))(values)
    np.testing.assert_array_equal(gradient, slope[chosen].reshape(-1)[_order(chosen, indices)].reshape(values.shape))


def _order(chosen: np.ndarray, indices: Any) -> np.ndarray:
    """Which of the chosen cells, in row-major order, each index is."""
    number = np.cumsum(chosen.reshape(6, -1).ravel()) - 1
    rows = np.arange(6)[:, None] * chosen[0, 0].size
    found: np.ndarray = number[(rows + np.asarray(indices).reshape(6, -1)).ravel()]
    return found


def test_what_cannot_be_unpooled_says_why() -> None:
    values, indices = nn.max_pool(X, 2, return_indices=True)
    with pytest.raises(DtypeError, match="indices must be integers, not f32"):
        nn.max_unpool(values, values, 2)
    with pytest.raises(ShapeError, match=r"indices are \[1, 3, 3, 3\], and x is \[2, 3, 3, 3\]"):
        nn.max_unpool(values, indices[:1], 2)
    with pytest.raises(IndexRangeError):
        nn.max_unpool(values, np.asarray(indices) + 36, 2)
    with pytest.raises(ShapeError, match="output_size has 1 numbers for 2 spatial axes"):
        nn.max_unpool(values, indices, 2, output_size=(7,))


def test_fractional_windows_lie_as_the_paper_says() -> None:
    key, kernel, sizes = random.key(4), (2, 3), (4, 3)
    found = np.asarray(rlx.jit(lambda x: nn.fractional_max_pool(key, x, kernel, sizes))(X))
    drawn = np.asarray(random.uniform(key, (2, 3, 2)))

    def first(example: int, channel: int, axis: int, number: int) -> int:
        size, cell, count = X.shape[2 + axis], kernel[axis], sizes[axis]
        step, u = np.float32((size - cell) / (count - 1)), drawn[example, channel, axis]
        return size - cell if number == count - 1 else int((number + u) * step) - int(u * step)

    for n, c, i, j in itertools.product(*map(range, found.shape)):
        at = first(n, c, 0, i), first(n, c, 1, j)
        assert found[n, c, i, j] == X[n, c, at[0] : at[0] + 2, at[1] : at[1] + 3].max()
    np.testing.assert_array_equal(nn.fractional_max_pool(key, X, kernel, sizes), found)
    with pytest.raises(ShapeError, match="6 windows of 3 cells do not fit into axis 2"):
        nn.fractional_max_pool(key, X, 3, 6)


def test_sums_and_products_of_windows() -> None:
    windows = X[:, :, :6].reshape(2, 3, 3, 2, 3, 2)
    np.testing.assert_allclose(nn.sum_pool(X, 2), windows.sum((3, 5)), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(nn.prod_pool(X, 2), windows.prod((3, 5)), rtol=1e-5)
