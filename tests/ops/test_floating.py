"""The sign bit and the neighbours of floats."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import rlx_core as rlx
from rlx_core.errors import DtypeError
from rlx_core.ir.dtypes import FLOATS, DType
from rlx_core.ops import floating as ops

NAN = math.nan


def test_copysign_reads_the_sign_of_zero(calculus: Any) -> None:
    magnitude, sign = np.array([2.0, 2.0, -2.0]), np.array([-0.0, 0.0, -1.0])

    assert ops.copysign(magnitude, sign).tolist() == [-2, 2, -2]
    assert calculus.slopes(ops.copysign, magnitude, sign).tolist() == [-1, 1, 1]


@pytest.mark.parametrize("d", FLOATS, ids=str)
def test_nextafter_steps_in_its_own_dtype(d: DType) -> None:
    """A reference sees f16 and bf16 in f32, where the next number is another one."""
    one, two, zero = (np.array([v], d.numpy) for v in (1, 2, 0))
    bits = {"f16": 10, "bf16": 7, "f32": 23, "f64": 52}[d.name]

    assert ops.nextafter(one, two).astype(np.float64).tolist() == [1 + 2.0**-bits]
    assert ops.nextafter(one, zero).astype(np.float64).tolist() == [1 - 2.0 ** -(bits + 1)]
    assert ops.nextafter(zero, one).astype(np.float64)[0] > 0
    assert ops.nextafter(one, one).tolist() == one.tolist()
    assert np.isnan(ops.nextafter(one, np.array([NAN], d.numpy)).astype(np.float64)).all()


@pytest.mark.parametrize(
    ("of", "to"),
    [("float32", "uint32"), ("uint32", "float32"), ("int64", "float64"), ("float16", "int16"), ("uint8", "int8")],
)
def test_bits_are_read_as_numpy_reads_them(of, to) -> None:
    words = np.arange(-300, 300, dtype=np.int64) * 0x0101_0007_0101_0007
    x = words.view(of)
    found = rlx.jit(lambda x: rlx.bitcast(x, to), target="cpu")(x)
    expected = x.view(to)
    if np.dtype(to).kind == "f":  # a NaN stays one; which one is nobody's promise
        np.testing.assert_array_equal(found, expected)
    elif np.dtype(of).kind == "f":
        np.testing.assert_array_equal(found[~np.isnan(x)], expected[~np.isnan(x)])
    else:
        np.testing.assert_array_equal(found, expected)
    assert found.dtype == to


def test_bits_of_another_width_are_refused() -> None:
    with pytest.raises(DtypeError, match=r"f32 and u8 are not of one width \(32 bits and 8\)"):
        rlx.bitcast(np.float32(1), "u8")
