"""The compositions against NumPy's functions of the same names: on arrays, compiled, and where they refuse."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import rlx_core as rlx
from rlx_core.errors import ConfigError, ShapeError

X = np.random.default_rng(0).standard_normal((4, 5, 6)).astype(np.float32)
HOLES = np.where(X > 1, np.float32(np.nan), X)
EMPTY = np.array([[np.nan, 1, 3, np.nan], [np.nan] * 4, [2, -1, 5, 0]])
LINE = np.array([3.0, 1.0, 2.0, 3.0, 0.0, -1.5, 7.0])
SHORT = np.array([1.0, -2.0, 0.5])
EDGE = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 2.5, -7.0, 3.0])
OTHER = np.array([1.0, np.inf, 2.0, 0.0, 1.0, -2.0, np.nan, 3.0 + 1e-6])
IDS = np.array([2, 0, 2, 5, -1, 0, 3])
GRID, HEIGHTS = np.array([0.0, 1.0, 2.5, 4.0]), np.array([1.0, -1.0, 3.0, 0.5])

# name: (what is asked of a namespace, with `rlx` or NumPy; the operands)
CASES: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    **{
        f"{name}": (lambda xp, x, name=name: getattr(xp, name)(x), (EDGE,))
        for name in ("deg2rad", "rad2deg", "isneginf")
    },
    "isposinf": (lambda xp, x: xp.isposinf(x), (EDGE,)),
    "sinc": (lambda xp, x: xp.sinc(x), (LINE / 3,)),
    "fmax": (lambda xp, x, y: xp.fmax(x, y), (EDGE, OTHER)),
    "fmin": (lambda xp, x, y: xp.fmin(x, y), (EDGE, OTHER)),
    "fmod": (lambda xp, x, y: xp.fmod(x, y), (np.array([5.0, -5.0, 5.5, -0.5]), np.array([3.0, 3.0, -2.0, 2.0]))),
    "heaviside": (lambda xp, x, y: xp.heaviside(x, y), (EDGE, OTHER)),
    "logaddexp2": (lambda xp, x, y: xp.logaddexp2(x, y), (LINE, LINE[::-1].copy())),
    "nan_to_num": (lambda xp, x: xp.nan_to_num(x), (EDGE.astype(np.float32),)),
    "nan_to_num with numbers": (lambda xp, x: xp.nan_to_num(x, nan=1.5, posinf=9.0, neginf=-9.0), (EDGE,)),
    "isclose": (lambda xp, x, y: xp.isclose(x, y), (EDGE, OTHER)),
    "isclose of NaN": (lambda xp, x: xp.isclose(x, x, equal_nan=True), (EDGE,)),
    "allclose": (lambda xp, x: xp.allclose(x, x + 1e-9), (LINE,)),
    "array_equal": (lambda xp, x, y: xp.array_equal(x, y), (LINE, LINE + 1)),
    "array_equal of other shapes": (lambda xp, x, y: xp.array_equal(x, y), (LINE, SHORT)),
    **{
        f"{name} over {axis}": (lambda xp, x, name=name, axis=axis: getattr(xp, name)(x, axis=axis), (HOLES,))
        for name in ("nansum", "nanprod", "nanmean", "nanvar", "nanstd", "nanmax", "nanmin", "nanmedian")
        for axis in (None, 1, (0, 2))
    },
    **{
        f"{name} of {x.dtype}": (lambda xp, x, name=name: getattr(xp, name)(x, axis=0), (x,))
        for name in ("nansum", "nanprod", "nanmean", "nanmax", "nanmin")
        for x in (np.array([[3, -1], [2, 0]]), np.array([[200, 3], [255, 0]], np.uint8))
    },
    **{
        f"{name} of complex numbers": (
            lambda xp, x, name=name: getattr(xp, name)(x),
            (np.array([1 + 2j, -3j, np.nan, 2]),),
        )
        for name in ("nansum", "nanmean", "nanvar", "nanstd")
    },
    "angle": (lambda xp, x: xp.angle(x), (np.array([1.0, -2.0, 0.0, np.nan, np.inf, -np.inf]),)),
    "angle of integers": (lambda xp, x: xp.angle(x), (np.array([3, -4, 0]),)),
    **{
        f"round to {places} places": (lambda xp, x, places=places: xp.round(x, places), (1000 * LINE + 0.125,))
        for places in (2, 1, -1, -2)
    },
    "round a complex number": (lambda xp, x: xp.round(x, 1), (LINE - 1.26j * LINE,)),
    "diff of the second order": (lambda xp, x: xp.diff(x, 2), (X,)),
    "diagonal of two axes": (lambda xp, x: xp.diagonal(x, 1, 0, 1), (X,)),
    "broadcast_to one size": (lambda xp, x: xp.broadcast_to(x, 3), (np.float32(2.5),)),
    "cov of one observation": (lambda xp, x: xp.cov(x), (np.ones((2, 1)),)),
    "nanargmax": (lambda xp, x: xp.nanargmax(x, axis=1), (EMPTY[::2],)),
    "nanargmin": (lambda xp, x: xp.nanargmin(x), (EMPTY,)),
    "nanmax of nothing": (lambda xp, x: xp.nanmax(x, axis=1), (EMPTY,)),
    "nanmean of nothing": (lambda xp, x: xp.nanmean(x, axis=1, keepdims=True), (EMPTY,)),
    "nanquantile": (lambda xp, x: xp.nanquantile(x, [0.1, 0.5, 0.95], axis=1), (EMPTY,)),
    "median": (lambda xp, x: xp.median(x, axis=1), (X,)),
    "median of all": (lambda xp, x: xp.median(x), (X,)),
    "median of NaN": (lambda xp, x: xp.median(x, axis=1, keepdims=True), (EMPTY,)),
    "quantiles": (lambda xp, x: xp.quantile(x, np.array([0.0, 0.3, 1.0]), axis=(0, 2), keepdims=True), (X,)),
    "percentile": (lambda xp, x: xp.percentile(x, 33, axis=-1), (X,)),
    **{
        f"quantile, {method}": (
            lambda xp, x, method=method: xp.quantile(x, np.array([0.2, 0.45, 0.9]), axis=1, method=method),
            (X,),
        )
        for method in ("linear", "lower", "higher", "nearest", "midpoint")
    },
    "average": (lambda xp, x: xp.average(x, axis=1, weights=np.arange(5.0)), (X,)),
    "average of all": (lambda xp, x: xp.average(x, weights=np.abs(X)), (X,)),
    "cov": (lambda xp, x: xp.cov(x), (X[0],)),
    "cov of columns": (lambda xp, x: xp.cov(x, rowvar=False), (X[0],)),
    "corrcoef": (lambda xp, x: xp.corrcoef(x), (X[0].astype(np.float64),)),
    "trapezoid": (lambda xp, x: xp.trapezoid(x, dx=0.5, axis=1), (X,)),
    "trapezoid at points": (lambda xp, y, x: xp.trapezoid(y, x), (HEIGHTS, GRID)),
    "histogram": (lambda xp, x: xp.histogram(x, 7), (X,)),
    "histogram within": (lambda xp, x: xp.histogram(x, bins=4, range=(-1.0, 1.0)), (X,)),
    "histogram with edges": (lambda xp, x: xp.histogram(x, np.array([-2.0, -0.5, 0.0, 2.0])), (X.astype(np.float64),)),
    "histogram of one number": (lambda xp, x: xp.histogram(x, 3), (np.ones(4),)),
    "histogram as density": (lambda xp, x: xp.histogram(x, 5, weights=np.abs(X), density=True), (X,)),
    "interp": (lambda xp, x: xp.interp(x, GRID, HEIGHTS), (np.linspace(-1, 5, 37),)),
    "interp with ends": (lambda xp, x: xp.interp(x, GRID, HEIGHTS, left=9.0, right=np.nan), (np.linspace(-1, 5, 37),)),
    "polyval": (lambda xp, x: xp.polyval(SHORT, x), (LINE,)),
    **{
        f"{name}, {mode}": (lambda xp, x, y, name=name, mode=mode: getattr(xp, name)(x, y, mode), operands)
        for name in ("convolve", "correlate")
        for mode in ("full", "same", "valid")
        for operands in ((LINE, SHORT),)
    },
    "convolve with a longer line": (lambda xp, x, y: xp.convolve(x, y, "same"), (SHORT, LINE)),
}


def _close(found: Any, wanted: Any) -> None:
    if isinstance(wanted, tuple):
        for f, w in zip(found, wanted, strict=True):
            _close(f, w)
        return
    wanted = np.asarray(wanted)
    assert np.shape(found) == wanted.shape
    single = np.asarray(found).dtype == np.float32
    np.testing.assert_allclose(found, wanted, rtol=2e-5 if single else 1e-12, atol=2e-6 if single else 1e-12)


@pytest.mark.parametrize("name", CASES)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_as_numpy_has_it(name: str) -> None:
    asked, operands = CASES[name]
    _close(asked(rlx, *operands), asked(np, *operands))


@pytest.mark.parametrize("name", ["nanvar over 1", "quantiles", "nanquantile", "histogram", "interp", "convolve, same"])
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_compiled(name: str) -> None:
    asked, operands = CASES[name]
    _close(rlx.jit(lambda *xs: asked(rlx, *xs))(*operands), asked(np, *operands))


@pytest.mark.medium
def test_sizes_that_are_not_known() -> None:
    """A median over an axis of unknown length."""
    middle = rlx.compile(lambda x: rlx.quantile(x, [0.25, 0.5], axis=1), rlx.spec("f32[3, n]"))
    for n in (1, 4, 7):
        x = X.reshape(3, -1)[:, :n].copy()
        _close(middle(x), np.quantile(x, [0.25, 0.5], axis=1))


@pytest.mark.medium
def test_positions_in_long_lines_of_narrow_floats() -> None:
    """f16 holds whole numbers up to 2048 only; the line's numbers repeat, so that any of the right ones will do."""
    x = (np.arange(8001) // 1000).astype(np.float16)
    assert rlx.nanquantile(x, 0.7) == rlx.jit(lambda x: rlx.quantile(x, 0.7))(x) == 5
    assert rlx.compile(lambda x: rlx.quantile(x, 0.7), rlx.spec("f16[n]"))(x) == 5


def test_a_quantile_between_infinities_is_infinite() -> None:
    """NumPy subtracts them, and says NaN."""
    assert rlx.quantile(np.array([1.0, np.inf, np.inf, np.inf]), 0.9) == np.inf


def test_bincount_and_segments() -> None:
    """Rows by their numbers; what is outside counts nowhere."""
    assert rlx.bincount(IDS, length=4).tolist() == [2, 0, 2, 1]
    _close(rlx.bincount(IDS, LINE, length=4), [-0.5, 0.0, 5.0, 7.0])
    rows = np.arange(14.0).reshape(7, 2)
    found = {name: getattr(rlx, f"segment_{name}")(rows, IDS, 4) for name in ("sum", "mean", "prod", "max", "min")}
    _close(found["sum"], [[12, 14], [0, 0], [4, 6], [12, 13]])
    _close(found["mean"], [[6, 7], [0, 0], [2, 3], [12, 13]])
    _close(found["prod"], [[20, 33], [1, 1], [0, 5], [12, 13]])
    _close(found["max"], [[10, 11], [-np.inf] * 2, [4, 5], [12, 13]])
    _close(found["min"], [[2, 3], [np.inf] * 2, [0, 1], [12, 13]])
    assert rlx.segment_max(np.array([3, 4], np.int8), np.array([0, 0]), 2).tolist() == [4, -128]


@pytest.mark.medium
@pytest.mark.parametrize(
    "function",
    [
        lambda x: rlx.sinc(x),
        lambda x: rlx.nanstd(rlx.where(x > 2.5, np.nan, x)),
        lambda x: rlx.quantile(x, [0.3, 0.8]).sum(),
        lambda x: rlx.interp(x, GRID, HEIGHTS),
        lambda x: rlx.segment_mean(x, np.array([0, 1, 1, 0, 2, 2, 1]), 3) ** 2,
        lambda x: rlx.convolve(x, SHORT) ** 2,
        lambda x: rlx.corrcoef(rlx.stack([x, x**2])),
    ],
    ids=["sinc", "nanstd", "quantile", "interp", "segment_mean", "convolve", "corrcoef"],
)
def test_gradients_by_finite_differences(function: Callable[[Any], Any]) -> None:
    x = np.array([0.31, 1.7, -0.62, 3.2, 2.1, 0.93, 1.16])
    value = rlx.jit(lambda x: rlx.sum(function(x)))
    gradient = rlx.jit(rlx.grad(lambda x: rlx.sum(function(x))))(x)
    steps = np.eye(7) * 1e-6
    expected = [(value(x + h) - value(x - h)) / 2e-6 for h in steps]
    np.testing.assert_allclose(gradient, expected, rtol=1e-6, atol=1e-7)


def test_sinc_at_0_has_a_derivative() -> None:
    """0, and not NaN: the branch that is not taken divides by 0."""
    assert rlx.grad(lambda x: rlx.sinc(x))(np.float64(0.0)) == 0


@pytest.mark.parametrize(
    ("call", "error", "says"),
    [
        (lambda: rlx.quantile(X, 1.5), ConfigError, "q must lie between 0 and 1, not 1.5"),
        (lambda: rlx.percentile(X, [5, 101]), ConfigError, "between 0 and 100"),
        (lambda: rlx.quantile(X, 0.5, method="near"), ConfigError, "method must be"),
        (lambda: rlx.quantile(X, [[0.5]]), ShapeError, "a line of them"),
        (lambda: rlx.median(np.zeros((2, 0)), axis=1), ShapeError, "no element"),
        (lambda: rlx.average(X, axis=1, weights=SHORT), ShapeError, "weights [3]"),
        (lambda: rlx.cov(X), ShapeError, "variables, observations"),
        (lambda: rlx.bincount(X, length=3), ShapeError, "a line of integers"),
        (lambda: rlx.histogram(X, 0), ConfigError, "at least 1"),
        (lambda: rlx.histogram(X, range=(1.0, 0.0)), ConfigError, "two numbers that go up"),
        (lambda: rlx.segment_sum(X, SHORT, 3), ShapeError, "rows numbered by"),
        (lambda: rlx.interp(X, GRID, SHORT), ShapeError, "lines of one length"),
        (lambda: rlx.polyval(X, SHORT), ShapeError, "a line of coefficients"),
        (lambda: rlx.convolve(X, SHORT), ShapeError, "lines of known length"),
        (lambda: rlx.convolve(LINE, SHORT, "most"), ConfigError, "mode must be full, same or valid"),
    ],
)
def test_what_is_refused(call: Callable[[], Any], error: type[Exception], says: str) -> None:
    with pytest.raises(error, match=says.replace("[", r"\[")):
        call()


FMOD = {
    "f32": (
        np.float32([0.0, -0.0, 4.0, -4.0, -5.5, 5.0, -np.inf]),
        np.float32([2.0, 2.0, -2.0, 2.0, 2.0, np.inf, 2.0]),
    ),
    "i8": tuple(
        np.int8(np.meshgrid([-128, -127, -5, -1, 0, 1, 5, 127], [-128, -127, -3, -1, 1, 3, 127])).reshape(2, -1)
    ),
    "u8": (np.uint8([0, 5, 255, 128]), np.uint8([3, 3, 7, 255])),
}


@pytest.mark.parametrize("dtype", FMOD)
def test_fmod_has_the_sign_of_its_dividend(dtype: str) -> None:
    x1, x2 = FMOD[dtype]
    with np.errstate(all="ignore"):
        expected = np.fmod(x1, x2)
    for found in (np.asarray(rlx.fmod(x1, x2)), np.asarray(rlx.jit(rlx.fmod)(x1, x2))):
        np.testing.assert_array_equal(found, expected)
        if dtype == "f32":
            np.testing.assert_array_equal(np.signbit(found)[:-1], np.signbit(expected)[:-1])


ZEROS: dict[str, tuple[Any, float]] = {
    "erfinv": (rlx.special.erfinv, -0.0),
    "silu": (rlx.nn.silu, -0.0),
    "mish": (rlx.nn.mish, -0.0),
    "relu": (rlx.nn.relu, 0.0),
    "relu6": (rlx.nn.relu6, 0.0),
    "fmod": (lambda x: rlx.fmod(x, 2.0), -0.0),
}


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("name", ZEROS)
def test_every_mode_has_the_same_bits_at_0_and_among_subnormals(name: str, dtype: type) -> None:
    function, expected = ZEROS[name]
    tiny = float(np.finfo(dtype).tiny)
    x = np.concatenate([[-0.0], np.linspace(-4 * tiny, 4 * tiny, 301), -np.geomspace(10, 1100, 300)]).astype(dtype)
    eager = np.asarray(function(x))
    assert eager[0] == 0
    assert np.signbit(eager[0]) == np.signbit(expected)
    for found in (rlx.jit(function)(x), rlx.compile(lambda: function(x))()):
        np.testing.assert_array_equal(np.asarray(found), eager)
        np.testing.assert_array_equal(np.signbit(found), np.signbit(eager))
