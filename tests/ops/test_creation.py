"""Tensors from nothing: dtypes, fits, symbolic sizes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rlx_core.errors import DtypeError, ShapeError
from rlx_core.ir.dims import symbol
from rlx_core.ir.dtypes import ALL
from rlx_core.ir.graph import Builder, Constant, building
from rlx_core.ir.types import spec
from rlx_core.ops.array_creation import arange, linspace
from rlx_core.ops.creation import dim_value, full, one_hot, ones, zeros, zeros_like

N = symbol("n")


@pytest.mark.parametrize("d", ALL, ids=str)
def test_zeros_and_ones_have_the_dtype_that_was_asked_for(d: Any) -> None:
    np.testing.assert_array_equal(zeros((2, 1), d), np.zeros((2, 1), d.numpy))
    np.testing.assert_array_equal(ones(3, d), np.ones(3, d.numpy))
    assert ones(3, d).dtype == d.numpy


def test_a_large_fill_is_one_scalar_in_the_program() -> None:
    builder = Builder("full")
    with building(builder):
        y = full((1000, N), 2.5, "f64")

    assert y.type == spec("f64[1000, n]")
    assert [n.type for n in builder.nodes if isinstance(n.op, Constant)] == [spec("f64[]")]


def test_zeros_like_an_unknown_size_stay_in_its_graph() -> None:
    x = Builder("like").input("x", spec("c64[n]"))

    assert zeros_like(x).type == x.type
    assert zeros_like(x).node.owner is x.node.owner


def test_the_gradient_of_a_fill_is_the_sum(calculus: Any) -> None:
    assert calculus.evaluate(calculus.gradient(lambda v: full((3, 4), v)), np.array(2.0)) == 12


@pytest.mark.parametrize(("value", "dtype"), [(300, "u8"), (-1, "u8"), (1.5, "i32"), (1j, "f32")])
def test_a_number_that_does_not_fit_is_refused(value: complex, dtype: str) -> None:
    with pytest.raises(DtypeError, match="does not fit"):
        full(2, value, dtype)


def test_a_size_is_a_number_of_64_bits() -> None:
    found = dim_value(size=2**40 + 1)

    assert (found, found.dtype) == (2**40 + 1, np.int64)


def test_ranges_of_unknown_length() -> None:
    with building(Builder("range")):
        assert arange(2, N).type == spec("i64[n - 2]")
        with pytest.raises(ShapeError, match="no known length"):
            arange(0, N, 2)


@pytest.mark.medium
def test_both_ends_of_a_range_of_floats_are_exact() -> None:
    """0.1 + 2·0.1 is not 0.3, and ten steps of 0.1 are not 1."""
    assert linspace(0.1, 0.3, 3, dtype="f64")[-1] == 0.3
    assert linspace(0, 1, 11, dtype="f64")[-1] == 1.0
    np.testing.assert_array_equal(linspace(5, 9, 1), [5])
    assert linspace(0, 2**24 + 2, 2**24 + 3)[2**24 + 1] == np.float32(2**24 + 1)


def test_an_index_outside_the_depth_is_off_everywhere() -> None:
    found = one_hot(np.array([-1, 0, 3]), depth=3)

    np.testing.assert_array_equal(found, [[0, 0, 0], [1, 0, 0], [0, 0, 0]])


def test_one_hot_takes_indices_that_eight_bits_hold_and_depths_that_they_do_not() -> None:
    assert one_hot(np.array([255], np.uint8), depth=300)[0].argmax() == 255
