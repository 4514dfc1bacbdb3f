"""Images read at places: beside SciPy's interpolation, at the edges, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import ndimage

import rlx_core as rlx
from rlx_core import nn
from rlx_core.errors import ConfigError, ShapeError

RNG = np.random.default_rng(6)
MODES = {"zeros": "constant", "border": "nearest", "reflection": None}


def by_scipy(x, grid, order, padding, is_aligned):
    sizes = x.shape[2:]
    found = np.empty((*x.shape[:2], *grid.shape[1:-1]))
    for n, c in np.ndindex(*x.shape[:2]):
        at = [
            (g + 1) / 2 * (size - 1) if is_aligned else ((g + 1) * size - 1) / 2
            for g, size in zip(np.moveaxis(grid[n], -1, 0)[::-1], sizes, strict=True)
        ]
        mode = MODES[padding] or ("mirror" if is_aligned else "reflect")
        found[n, c] = ndimage.map_coordinates(np.pad(x[n, c], 2) if padding == "zeros" else x[n, c],
            [a + 2 * (padding == "zeros") for a in at], order=order, mode=mode)  # fmt: skip
    return found


@pytest.mark.parametrize("is_aligned", [False, True])
@pytest.mark.parametrize("padding", MODES)
@pytest.mark.parametrize("method", ["linear", "nearest"])
@pytest.mark.parametrize("sizes", [(4, 5), (3, 4, 2)])
def test_what_lies_at_a_place_is_what_scipy_finds_there(sizes, method, padding, is_aligned):
    x, grid = RNG.normal(size=(2, 3, *sizes)), RNG.uniform(-1.4, 1.4, (2, *(2,) * (len(sizes) - 1), 7, len(sizes)))
    wanted = by_scipy(x, grid, 1 if method == "linear" else 0, padding, is_aligned)
    options = {"mode": method, "padding_mode": padding, "align_corners": is_aligned}
    np.testing.assert_allclose(nn.grid_sample(x, grid, **options), wanted, atol=1e-12)
    last = nn.grid_sample(np.moveaxis(x, 1, -1), grid, layout="nhwc", **options)
    np.testing.assert_allclose(np.moveaxis(last, -1, 1), wanted, atol=1e-12)


@pytest.mark.parametrize("is_aligned", [False, True])
def test_the_identity_reads_every_cell_and_a_flip_the_other_way(is_aligned):
    x = RNG.normal(size=(1, 2, 3, 4))
    for theta, wanted in (
        ([[1, 0, 0], [0, 1, 0]], x),
        ([[-1, 0, 0], [0, 1, 0]], x[..., ::-1]),
        ([[0, 1, 0], [1, 0, 0]], None),
    ):
        grid = nn.affine_grid(np.float64([theta]), (3, 4) if wanted is not None else (4, 3), align_corners=is_aligned)
        found = nn.grid_sample(x, grid, align_corners=is_aligned)
        np.testing.assert_allclose(found, x.swapaxes(2, 3) if wanted is None else wanted, atol=1e-12)
    volume = RNG.normal(size=(1, 1, 2, 3, 4))
    grid = nn.affine_grid(np.eye(3, 4)[None], (2, 3, 4), align_corners=is_aligned)
    np.testing.assert_allclose(nn.grid_sample(volume, grid, align_corners=is_aligned), volume, atol=1e-12)


@pytest.mark.parametrize("padding", MODES)
def test_cubic_weights_are_those_of_keys(padding):
    x = RNG.normal(size=(1, 2, 5, 6))
    options = {"mode": "cubic", "padding_mode": padding, "align_corners": True}
    here = nn.affine_grid(np.eye(2, 3)[None], (5, 6), align_corners=True)
    np.testing.assert_allclose(nn.grid_sample(x, here, **options), x, atol=1e-12)
    halfway = np.array([-0.09375, 0.59375, 0.59375, -0.09375])  # a = -3/4 at distances 3/2 and 1/2
    np.testing.assert_allclose(
        nn.grid_sample(x, np.zeros((1, 1, 1, 2)), **options)[0, :, 0, 0], x[0, :, 2, 1:5] @ halfway, atol=1e-12
    )
    inside = RNG.uniform(-0.4, 0.4, (1, 3, 3, 2))  # whose 16 cells are in the image
    np.testing.assert_allclose(nn.grid_sample(np.ones_like(x), inside, **options), 1, atol=1e-12)


@pytest.mark.parametrize("padding", MODES)
@pytest.mark.parametrize("method", ["linear", "nearest", "cubic"])
def test_images_of_any_size_are_read_by_one_program(method, padding):
    program = rlx.compile(
        lambda x, g: nn.grid_sample(x, g, mode=method, padding_mode=padding),
        rlx.spec("f32[1, 2, h, w]"),
        rlx.spec("f32[1, 3, 4, 2]"),
    )
    grid = RNG.uniform(-1.5, 1.5, (1, 3, 4, 2)).astype(np.float32)
    for sizes in ((4, 5), (1, 3)):
        x = RNG.normal(size=(1, 2, *sizes)).astype(np.float32)
        np.testing.assert_allclose(
            program(x, grid), nn.grid_sample(x, grid, mode=method, padding_mode=padding), atol=1e-5
        )


@pytest.mark.medium
@pytest.mark.parametrize("method", ["linear", "cubic"])
def test_the_gradient_of_a_place_is_the_slope_there(method):
    x = np.arange(12.0).reshape(1, 1, 3, 4) ** 2 / 10
    grid = np.array([[[[0.1, -0.2]]]])
    slope = rlx.grad(lambda g: rlx.sum(nn.grid_sample(x, g, mode=method)))(grid)
    for k in range(2):
        step = np.zeros_like(grid)
        step[..., k] = 1e-5
        there, here = (nn.grid_sample(x, grid + by, mode=method).item() for by in (step, -step))
        numeric = (there - here) / 2e-5
        np.testing.assert_allclose(slope[0, 0, 0, k], numeric, rtol=1e-6)


def test_places_that_are_no_numbers_read_zeros():
    x = np.ones((1, 1, 2, 2), np.float32)
    grid = np.float32([[[[np.nan, 0], [np.inf, 0], [1e30, -1e30]]]])
    assert nn.grid_sample(x, grid, mode="nearest").tolist() == [[[[0, 0, 0]]]]


def test_shuffled_channels_take_turns():
    x = np.arange(6.0).reshape(1, 6, 1)
    assert nn.channel_shuffle(x, 2).ravel().tolist() == [0, 3, 1, 4, 2, 5]
    assert nn.channel_shuffle(x.reshape(1, 1, 6), 3, layout="nhwc").ravel().tolist() == [0, 2, 4, 1, 3, 5]


@pytest.mark.parametrize(
    ("ask", "error", "says"),
    [
        (lambda: nn.grid_sample(np.ones((1, 1, 2)), np.ones((1, 2, 1))), ShapeError, "2 or 3 spatial axes"),
        (lambda: nn.grid_sample(np.ones((1, 1, 2, 2)), np.ones((1, 2, 2, 3))), ShapeError, r"must be \[1, .., 2\]"),
        (
            lambda: nn.grid_sample(np.ones((1, 1, 2, 2)), np.ones((1, 2, 2, 2)), padding_mode="x"),
            ConfigError,
            "padding_mode must",
        ),
        (lambda: nn.affine_grid(np.ones((1, 2, 3)), (2, 3, 4)), ShapeError, "for d = 2 or 3 sizes"),
        (lambda: nn.channel_shuffle(np.ones((1, 6, 2)), 4), ShapeError, "6 channels do not split into 4 groups"),
    ],
)
def test_what_means_nothing_is_refused(ask, error, says):
    with pytest.raises(error, match=says):
        ask()
