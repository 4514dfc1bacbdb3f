"""Resizing against interpolation by NumPy, each convention of coordinates, and channels for cells."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import rlx_core as rlx
from rlx_core import nn
from rlx_core.errors import ConfigError, DtypeError, ShapeError

RNG = np.random.default_rng(6)

PLACES = {
    "half-pixel": lambda n, m: (np.arange(m) + 0.5) * n / m - 0.5,
    "align-corners": lambda n, m: np.arange(m) * (n - 1) / max(m - 1, 1),
    "asymmetric": lambda n, m: np.arange(m) * n / m,
}


@pytest.mark.parametrize("coordinates", PLACES)
@pytest.mark.parametrize(("n", "m"), [(5, 9), (7, 3), (4, 8), (1, 3), (6, 1)])
def test_linear_is_numpys_interpolation_at_the_places_of_the_convention(coordinates: Any, n: int, m: int) -> None:
    line = RNG.normal(size=n)
    found = nn.resize(line[None, None], m, method="linear", coordinates=coordinates)
    wanted = np.interp(PLACES[coordinates](n, m), np.arange(n), line)
    np.testing.assert_allclose(found[0, 0], wanted, rtol=1e-12)


@pytest.mark.parametrize("coordinates", PLACES)
def test_a_cubic_goes_through_the_cells_and_keeps_straight_lines(coordinates: Any) -> None:
    """Keys' kernel with slope -1/2 is exact for quadratics where all four cells are there."""
    square = np.arange(12.0) ** 2
    at = PLACES[coordinates](12, 17)
    inside = (at >= 1) & (at <= 10)
    found = nn.resize(square[None, None], 17, method="cubic", coordinates=coordinates, sharpness=-0.5)
    np.testing.assert_allclose(np.asarray(found)[0, 0][inside], at[inside] ** 2, rtol=1e-12)


@pytest.mark.parametrize(("coordinates", "wanted"), [
    ("half-pixel", [0, 1, 3, 4]), ("asymmetric", [0, 1, 2, 3]), ("align-corners", [0, 1, 3, 4]),
])  # fmt: skip
def test_the_nearest_cell_follows_the_convention(coordinates: Any, wanted: list[int]) -> None:
    assert np.asarray(nn.resize(np.arange(5)[None, None], 4, coordinates=coordinates)).ravel().tolist() == wanted


def test_antialiased_weights_reach_over_the_cells_that_one_covers() -> None:
    x = np.array([[[7.0, 0.0, 0.0, 14.0]]])
    found = nn.resize(x, 2, method="linear", antialias=True)
    np.testing.assert_allclose(
        found, [[[3.0, 6.0]]], rtol=1e-12
    )  # 3/7, 3/7 and 1/7: a line of two cells, cut off at the end


@pytest.mark.parametrize("coordinates", PLACES)
@pytest.mark.parametrize("method", ["linear", "cubic"])
def test_antialiased_constants_stay_and_fast_waves_vanish(method: Any, coordinates: Any) -> None:
    wave = np.stack([np.ones(64), (-1.0) ** np.arange(64)])[None]
    still, gone = np.asarray(nn.resize(wave, 8, method=method, coordinates=coordinates, antialias=True))[0]
    np.testing.assert_allclose(still, 1, rtol=1e-12)
    assert np.abs(gone[1:-1]).max() < 0.02
    assert np.abs(np.asarray(nn.resize(wave, 8, method=method, coordinates="asymmetric"))[0, 1]).min() == 1


def test_more_cells_than_before_are_the_same_with_antialiasing_away_from_the_ends() -> None:
    x = RNG.normal(size=(1, 1, 9))
    plain, smooth = (np.asarray(nn.resize(x, 27, method="cubic", antialias=a)) for a in (False, True))
    np.testing.assert_allclose(plain[..., 6:-6], smooth[..., 6:-6], rtol=1e-12)


def test_twice_as_many_cells_are_each_cell_twice_in_a_row() -> None:
    assert np.asarray(nn.resize(np.arange(2)[None, None], 4)).ravel().tolist() == [0, 0, 1, 1]


def test_axes_are_resized_on_their_own_and_channels_may_come_last() -> None:
    x = RNG.normal(size=(2, 3, 4, 5)).astype(np.float32)
    first = rlx.jit(lambda x: nn.resize(x, (6, 9), method="linear"))(x)
    last = nn.resize(np.moveaxis(x, 1, -1), (6, 9), method="linear", layout="nhwc")
    np.testing.assert_allclose(np.moveaxis(np.asarray(last), -1, 1), first, rtol=1e-5, atol=1e-6)


def test_channels_become_cells_and_cells_channels() -> None:
    x = np.arange(16).reshape(1, 4, 2, 2)
    y = np.asarray(nn.pixel_shuffle(x, 2))
    assert y[0, 0].tolist() == [[0, 4, 1, 5], [8, 12, 9, 13], [2, 6, 3, 7], [10, 14, 11, 15]]
    np.testing.assert_array_equal(nn.pixel_unshuffle(y, 2), x)


@pytest.mark.parametrize(
    ("call", "error", "says"),
    [
        (lambda x: nn.resize(x, 0), ShapeError, "from 3 to 0"),
        (lambda x: nn.resize(x, 4, method="area"), ConfigError, "'area'"),
        (lambda x: nn.resize(x, 4, antialias=True), ConfigError, "shows one cell"),
        (lambda x: nn.resize(x, 4, coordinates="corner"), ConfigError, "'corner'"),
        (lambda x: nn.resize(x.astype(np.int32), 4, method="linear"), DtypeError, "x must be a float"),
        (lambda x: nn.pixel_shuffle(x, 2), ShapeError, "2 channels are no multiple of 4"),
        (lambda x: nn.pixel_unshuffle(x, 2), ShapeError, "3 cells are no multiple of 2"),
    ],
)
def test_what_does_not_fit_is_refused(call: Any, error: type[Exception], says: str) -> None:
    with pytest.raises(error) as caught:
        call(np.ones((1, 2, 3, 3)))
    assert says in str(caught.value)
