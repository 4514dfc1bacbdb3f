"""The f32 functions against float64: at most 2 ulp everywhere, and exactly right where there is nothing to round."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import special

import rlx_core as rlx
import rlx_cpu.plugin
from rlx_core.ir.apply import OpFunction
from rlx_core.ops import activation
from rlx_core.plugins import PluginHost
from rlx_cpu.native.isa import available

HOST = PluginHost([rlx_cpu.plugin])

FUNCTIONS = {
    "exp": (activation.exp, np.exp),
    "exp2": (activation.exp2, np.exp2),
    "expm1": (activation.expm1, np.expm1),
    "log": (activation.log, np.log),
    "log2": (activation.log2, np.log2),
    "log1p": (activation.log1p, np.log1p),
    "tanh": (activation.tanh, np.tanh),
    "erf": (activation.erf, special.erf),
    "erfc": (activation.erfc, special.erfc),
}
COUNT = 1 << 18
EDGES = np.array(
    [0.0, -0.0, np.inf, -np.inf, np.nan, 1e-45, -1e-45, 1e-40, 1.1754944e-38, 3.4028235e38, -3.4028235e38, 1.0, -1.0],
    "f4",
)


def samples(seed: int) -> np.ndarray:
    """Every magnitude, and more of where something happens."""
    rng = np.random.default_rng(seed)
    drawn = [rng.uniform(low, high, COUNT).astype("f4") for low, high in ((-104, 89), (-10.2, 10.2), (-1, 1), (0.5, 2))]
    anything = rng.integers(0, 1 << 32, COUNT, dtype=np.uint32).view("f4")
    return np.concatenate([EDGES, *drawn, anything])


def run(function: OpFunction, x: np.ndarray, isa: str) -> np.ndarray:
    fast = rlx.compile(
        lambda v: function(v), rlx.spec("f32[n]"), host=HOST, target="cpu", config={"options": {"cpu.isa": isa}}
    )
    return np.asarray(fast(x))


@pytest.mark.parametrize("isa", [i.name for i in available()])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_function_is_within_two_ulp(name: str, isa: str) -> None:
    function, meaning = FUNCTIONS[name]
    x = samples(1) if isa == available()[0].name else samples(2)[:: 8 if isa == "sse2" else 1]
    with np.errstate(all="ignore"):
        exact = meaning(x.astype(np.float64))
        nearest = exact.astype(np.float32)
    found = run(function, x, isa)

    np.testing.assert_array_equal(np.isnan(found), np.isnan(nearest))
    # Beyond the largest float the nearest one or infinity is within an ulp.
    inside = np.isfinite(nearest) & np.isfinite(found)
    assert (np.abs(exact[np.isfinite(nearest) ^ np.isfinite(found)]) > 3.4028e38).all()
    ulp = np.maximum(np.spacing(np.abs(nearest[inside])).astype(np.float64), 2.0**-149)
    errors = np.abs(found[inside] - exact[inside]) / ulp
    assert errors.max() <= 2.0, f"{name}({x[inside][errors.argmax()]!r}) is off by {errors.max():.2f} ulp"


@pytest.mark.parametrize("name", ["expm1", "log1p", "tanh", "erf"])
def test_an_odd_function_keeps_the_sign_of_zero(name: str) -> None:
    found = run(FUNCTIONS[name][0], np.array([0.0, -0.0], "f4"), "auto")

    assert list(np.signbit(found)) == [False, True]
