"""Printed kernels against the NumPy tier in float64: sizes around a vector's and its multiples, threads, faults, odd arrays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import rlx_core as rlx
import rlx_cpu.plugin
from rlx_core import nn
from rlx_core.errors import IndexRangeError
from rlx_core.plugins import PluginHost

HOST = PluginHost([rlx_cpu.plugin])


def tier(function: Callable[..., Any], *x: np.ndarray, **options: Any) -> np.ndarray:
    made = rlx.jit(function, host=HOST, target="cpu", config={"options": options})
    return np.asarray(made(*x))


SIZES = [1, 2, 3, 7, 15, 16, 17, 31, 33, 64, 127, 128, 129, 200]
FORMS: dict[str, Callable[[Any], Any]] = {
    "chain": lambda x: rlx.exp(x) * 0.5 + x,
    "softmax": lambda x: rlx.softmax(x, axis=-1),
    "softmax of columns": lambda x: rlx.softmax(x, axis=0),
    "norm": lambda x: rlx.layer_norm(x),
    "sum of rows": lambda x: rlx.sum(x, axis=1),
    "sum of columns": lambda x: rlx.sum(x, axis=0),
    "sum of all": lambda x: rlx.sum(x),
    "largest": lambda x: rlx.max(x, axis=1),
    "transpose": lambda x: rlx.permute_dims(x, (1, 0)) + 0.0,
    "slice": lambda x: x[:, ::2] + 1.0,
    "comparison": lambda x: x > 0.5,
    "outer sum": lambda x: x[:, :, None] + x[:, None, :],
}


@pytest.mark.medium
@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize("form", FORMS)
def test_sizes_around_a_vector_and_its_multiples(form: str, dtype: str) -> None:
    for n in SIZES:
        x = np.random.default_rng(n).standard_normal((5, n)).astype(dtype)
        found = tier(FORMS[form], x)
        exact = tier(FORMS[form], x.astype("f8"), **{"cpu.tier": "numpy"})
        if found.dtype == bool:
            np.testing.assert_array_equal(found, exact)
        else:
            # Two ulp a function, a rounding an addition of at most 1000 elements: well below 64 roundings of the size.
            np.testing.assert_allclose(
                found, exact, rtol=0, atol=64 * np.finfo(dtype).eps * max(np.abs(exact).max(), 1)
            )


@pytest.mark.parametrize("form", FORMS)
def test_no_bit_depends_on_the_number_of_threads(form: str) -> None:
    x = np.random.default_rng(0).standard_normal((70, 701)).astype("f4")
    alone = tier(FORMS[form], x, **{"cpu.threads": 1})

    for threads in (2, 3):
        np.testing.assert_array_equal(tier(FORMS[form], x, **{"cpu.threads": threads}), alone)


def test_nan_wins_in_extremes_and_infinity_stays() -> None:
    x = np.zeros((3, 40), "f4")
    x[0, 37], x[1, 5] = np.nan, np.inf

    assert np.isnan(tier(lambda v: rlx.max(v, axis=1), x)[0])
    assert np.isnan(tier(lambda v: rlx.min(v, axis=1), x)[0])
    assert tier(lambda v: rlx.max(v, axis=1), x)[1] == np.inf


def test_an_index_outside_names_itself_and_the_next_run_is_well() -> None:
    gathered = rlx.compile(
        lambda table, i: rlx.take(table, i, axis=0),
        rlx.spec("f32[5, 3]"), rlx.spec("i64[n]"), host=HOST, target="cpu",
    )  # fmt: skip
    table = np.arange(15, dtype="f4").reshape(5, 3)
    with pytest.raises(IndexRangeError, match="index 7 is outside an axis of 5 elements"):
        gathered(table, np.array([1, 7]))

    np.testing.assert_array_equal(gathered(table, np.array([1, 4])), table[[1, 4]])


def test_an_index_outside_one_of_several_axes_names_them_all() -> None:
    taken = rlx.jit(lambda t, i, j: rlx.take(t[:, 0], i) * rlx.take(t[0], j), host=HOST, target="cpu")
    with pytest.raises(IndexRangeError, match="index -9 is outside an axis of 5 or 3 elements"):
        taken(np.ones((5, 3), "f4"), np.array([0]), np.array([-9]))


def test_arrays_that_are_misaligned_strided_or_of_another_byte_order_work() -> None:
    plain = np.arange(60, dtype="f4").reshape(6, 10)
    raw = np.zeros(plain.nbytes + 1, np.uint8)
    misaligned = raw[1:].view("f4").reshape(plain.shape)
    misaligned[...] = plain
    expected = tier(FORMS["chain"], plain)

    for x in (misaligned, np.asfortranarray(plain), plain.astype(">f4"), np.repeat(plain, 2, axis=1)[:, ::2]):
        np.testing.assert_array_equal(tier(FORMS["chain"], x), expected)


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("channels", [520, 640])
def test_weights_beyond_the_first_cache_are_read_in_strips(channels: int, threads: int) -> None:
    """Of a convolution a channel: strips of channels go over all places; the last strip may be shorter."""
    draw = np.random.default_rng(channels)
    x, w = draw.standard_normal((2, 5, 6, channels)), draw.standard_normal((3, 3, channels))

    def apart(x: Any, w: Any) -> Any:
        first_last = rlx.permute_dims(x, (0, 3, 1, 2)), rlx.permute_dims(w, (2, 0, 1))[:, None]
        return rlx.permute_dims(nn.conv(*first_last, groups=channels), (0, 2, 3, 1))

    found = tier(apart, x.astype("f4"), w.astype("f4"), **{"cpu.threads": threads})
    exact = sum(x[:, i : i + 3, j : j + 4] * w[i, j] for i in range(3) for j in range(3))
    np.testing.assert_allclose(found, exact, rtol=0, atol=1e-5)  # nine products of f32, each some units large
