"""The vector functions against float64 and long doubles: at most 2 ulp everywhere, exact where there is nothing to round."""

from __future__ import annotations

import math

import numpy as np
import pytest
from harness import WIDTHS
from scipy import special
from ulp import (
    CANCELLING,
    FUNCTIONS,
    GELU,
    HOST,
    bound,
    compiled,
    errors,
    largest_error,
    long_erf,
    long_erfc,
    needs_long_doubles,
)

import rlx_core as rlx
from rlx_core.ir.dtypes import dtype as rlx_dtype
from rlx_core.ops import activation, arithmetic

COUNT = 10_000_000
EDGES = [
    0.0,
    -0.0,
    np.inf,
    -np.inf,
    np.nan,
    1e-45,
    -1e-45,
    1e-40,
    1.1754944e-38,
    3.4028235e38,
    -3.4028235e38,
    1.0,
    -1.0,
]
ISAS = [i.name for i in WIDTHS]


def singles(count: int) -> np.ndarray:
    """f32 of every magnitude, and more of where something happens."""
    rng = np.random.default_rng(count)
    share = count // 5
    drawn = [rng.uniform(low, high, share).astype("f4") for low, high in ((-104, 89), (-10.2, 10.2), (-1, 1), (0.5, 2))]
    anything = rng.integers(0, 1 << 32, count - 4 * share, dtype=np.uint32).view("f4")
    return np.concatenate([np.array(EDGES, "f4"), *drawn, anything])


def within(name: str, x: np.ndarray, found: np.ndarray, exact: np.ndarray, limit: float) -> None:
    off = errors(found, exact)
    worst = int(off.argmax())
    assert off[worst] <= limit, f"{name}({x[worst]!r}) is {found[worst]!r}, off by {off[worst]:.2f} ulp"


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_function_of_f32_is_within_two_ulp(name: str, isa: str) -> None:
    x = singles(COUNT if isa == ISAS[0] else 40_000 if isa == "sse2" else 400_000)
    worst, where = largest_error(name, compiled(FUNCTIONS[name][0], "f32", isa)(x), x)
    assert worst <= bound(name, isa), f"{name}({x[where or 0]!r}) is off by {worst:.2f} ulp"


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_function_of_every_narrow_float_is_rounded_once(name: str, dtype: str) -> None:
    function, meaning = FUNCTIONS[name]
    x = np.arange(1 << 16, dtype=np.uint16).view(rlx_dtype(dtype).numpy)
    with np.errstate(all="ignore"):
        exact = meaning(x.astype(np.float64))
        found = compiled(function, dtype, "auto")(x)
        # In f32 both are exact; the nearest narrow float of a number 2 ulp of f32 away is the nearest one or, rarely, its
        # neighbour: half an ulp, and 2 ulp of f32.
        narrow, wide = exact.astype(x.dtype).astype("f4"), found.astype("f4")
    np.testing.assert_array_equal(np.isnan(wide), np.isnan(narrow))
    differs = (wide != narrow) & ~np.isnan(narrow)
    a, b = (v.astype(x.dtype).view(np.int16).astype(int) for v in (wide[differs], narrow[differs]))
    assert (np.abs(a - b) <= 1).all(), "as integers, the bits of neighbours differ by one"
    assert np.mean(differs) < 2e-3


LONG = {
    **{n: m for n, (_, m) in FUNCTIONS.items() if n not in ("erf", "erfc", "erfinv", *CANCELLING)},
}


def doubles(count: int) -> np.ndarray:
    rng = np.random.default_rng(count)
    drawn = [rng.uniform(low, high, count) for low, high in ((-750, 715), (-10, 28), (-1, 1), (0.5, 2))]
    anything = rng.standard_normal(count) * 10.0 ** rng.integers(-300, 300, count)
    return np.concatenate(
        [np.array([*EDGES, 5e-324, -5e-324, 1e-310, 1.797e308, -1.797e308, 1e6, 1e22]), *drawn, anything]
    )


@needs_long_doubles
@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("name", LONG)
def test_a_function_of_f64_is_within_two_ulp(name: str, isa: str) -> None:
    x = doubles(50_000 if isa == ISAS[0] else 5_000)
    with np.errstate(all="ignore"):
        within(name, x, compiled(FUNCTIONS[name][0], "f64", isa)(x), LONG[name](x.astype(np.longdouble)), 2.0)


@pytest.mark.medium
@needs_long_doubles
def test_the_f64_error_functions_are_within_two_ulp() -> None:
    rng = np.random.default_rng(5)
    near, far = rng.uniform(-2.2, 2.2, 50_000), rng.uniform(2, 26.5, 50_000)
    run = {name: compiled(FUNCTIONS[name][0], "f64", "auto") for name in ("erf", "erfc")}
    within("erf", near, run["erf"](near), long_erf(near), 2.0)
    within("erf", far, run["erf"](far), 1 - long_erfc(far), 2.0)
    within("erf", -far, run["erf"](-far), long_erfc(far) - 1, 2.0)
    within("erfc", near, run["erfc"](near), 1 - long_erf(near), 2.0)
    within("erfc", far, run["erfc"](far), long_erfc(far), 2.0)
    within("erfc", -far, run["erfc"](-far), 2 - long_erfc(far), 2.0)
    edges = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 5e-324])
    for name, function in (("erf", special.erf), ("erfc", special.erfc)):
        np.testing.assert_array_equal(run[name](edges), function(edges))


PAIRS = {
    "pow": (arithmetic.pow, np.power),
    "atan2": (arithmetic.atan2, np.arctan2),
    "hypot": (arithmetic.hypot, np.hypot),
}


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("dtype", ["f4", pytest.param("f8", marks=needs_long_doubles)])
@pytest.mark.parametrize("name", PAIRS)
def test_a_function_of_two_variables_is_within_two_ulp(name: str, dtype: str, isa: str) -> None:
    function, meaning = PAIRS[name]
    rng = np.random.default_rng(3)
    special_numbers = np.array([0.0, -0.0, 1, -1, 0.5, 2, -2, 3, -3, 1.5, -1.5, np.inf, -np.inf, np.nan, 1e-30, 1e30])
    count = 50_000
    x = np.concatenate(
        [np.repeat(special_numbers, 16), rng.standard_normal(count), np.exp(rng.uniform(-20, 20, count))]
    )
    y = np.concatenate([np.tile(special_numbers, 16), rng.standard_normal(count), rng.uniform(-4, 4, count)])
    x, y = x.astype(dtype), y.astype(dtype)
    config = {"options": {"cpu.isa": isa}}
    found = np.asarray(rlx.jit(lambda a, b: function(a, b), host=HOST, target="cpu", config=config)(x, y))
    wide = np.float64 if dtype == "f4" else np.longdouble
    with np.errstate(all="ignore"):
        within(name, x, found, meaning(x.astype(wide), y.astype(wide)), 2.0)


@pytest.mark.parametrize("isa", ISAS)
def test_what_erfc_lost_is_carried_through_its_exponential(isa: str) -> None:
    # Where e^r is furthest from 1; a sample of all floats has none of the few that were off by more than 2 ulp.
    x = np.arange(*np.array([1.5, 1.65], "f4").view(np.uint32), dtype=np.uint32).view("f4")
    worst, where = largest_error("erfc", compiled(activation.erfc, "f32", isa)(x), x)
    assert worst <= 1.3, f"erfc({x[where or 0]!r}) is off by {worst:.2f} ulp"


@pytest.mark.parametrize("isa", ISAS)
def test_gelu_as_one_function_is_right_to_the_last_digits_far_into_its_left_tail(isa: str) -> None:
    # The formula in f32 loses x² ulp there.
    x = np.concatenate([np.array(EDGES, "f4"), np.linspace(-15, 15, 1_000_001).astype("f4"), singles(400_000)])
    worst, where = largest_error("gelu", compiled(GELU[0], "f32", isa)(x), x)
    assert worst <= bound("gelu", isa), f"gelu({x[where or 0]!r}) is off by {worst:.2f} ulp"


def gelu_slope_formula(x: object) -> object:
    """The derivative of GELU as differentiation writes it, the bell's factors in another order."""
    bell = activation.exp((x * x) * -0.5) * (1 / math.sqrt(2 * math.pi))
    return bell * x + activation.erfc(x * -math.sqrt(0.5)) * 0.5


@pytest.mark.medium
def test_the_slope_of_gelu_as_one_function_is_as_good_as_its_formula() -> None:
    x = np.concatenate([[0.0, -0.0, 20.0, -20.0, 1e25, -1e25], np.linspace(-14, 14, 1_000_001)]).astype("f4")
    slope = rlx.grad(lambda x: rlx.sum(activation.gelu(x)))
    wide = x.astype(np.float64)
    tail = 0.5 * special.erfc(np.abs(wide) * np.sqrt(0.5))
    decay = wide * wide * 0.5
    left = tail - np.abs(wide) * np.exp(-np.minimum(decay, 700)) / np.sqrt(2 * np.pi)
    exact = np.where(wide < 0, left, 1 - left)
    for found in (rlx.jit(slope, target="cpu")(x), rlx.jit(gelu_slope_formula, host=HOST, target="cpu")(x)):
        # Both terms are below ½ where they cancel, near -0.75: roundings of that size stay, 4 of them; elsewhere they are ulp
        # of the slope, as many as in GELU itself.
        error = np.abs(np.asarray(found, np.float64) - exact)
        assert (error <= 4 * 2.0**-24 + 8 * np.abs(exact) * 2.0**-24).all()
        in_tail = wide < -2
        assert (error[in_tail] <= np.maximum(16 * 2.0**-24 * np.abs(exact[in_tail]), 2.0**-149)).all()


def test_the_slope_of_gelu_is_recognised_and_keeps_the_formulas_edges() -> None:
    edges = np.array([np.inf, -np.inf, np.nan, 0.0], "f4")
    slope = rlx.compile(rlx.grad(lambda x: rlx.sum(activation.gelu(x))), rlx.spec("f32[4]"), target="cpu")
    np.testing.assert_array_equal(slope(edges), np.array([np.nan, np.nan, np.nan, 0.5], "f4"))
    assert "@rlx.gelu_slope" in slope.emit("llvm").replace('"', "")
