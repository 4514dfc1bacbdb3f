"""Native element-wise functions for eager calls: every length, broadcasting, strides, and every instruction set."""

from __future__ import annotations

import numpy as np
import pytest

import rlx_core as rlx
from rlx_core.ir.dtypes import bf16, c64, dtype, f32, f64
from rlx_core.testing.special_points import points, same_bits
from rlx_cpu.native.llvm.isa import Isa, available
from rlx_cpu.native.loops.element_functions import BLOCK, element_function

EVERY_ISA = pytest.mark.parametrize("isa", available(), ids=lambda isa: isa.name)


@pytest.mark.parametrize("size", [0, 1, 3, BLOCK - 1, BLOCK, BLOCK + 1, 3 * BLOCK, 3 * BLOCK + 17])
def test_an_element_has_the_same_bits_at_every_position(size: int) -> None:
    """The body, the overlapping last block and the padded block compute alike."""
    function = element_function(rlx.exp.op(), (f32,), available()[0])
    assert function is not None
    x = np.full(size, 0.73, np.float32)

    found = function(x)

    assert found.shape == x.shape
    assert len(np.unique(found)) <= 1


def test_operands_broadcast_and_may_be_strided() -> None:
    function = element_function(rlx.atan2.op(), (f64, f64), available()[0])
    assert function is not None
    a, b = np.linspace(-3, 3, 60).reshape(4, 15)[:, ::3], np.linspace(1, 2, 4)[:, None]

    found = function(a, b)

    np.testing.assert_allclose(found, np.arctan2(a, b), rtol=1e-15)  # f64: a few units in the last place
    assert found.shape == (4, 5)


@EVERY_ISA
@pytest.mark.parametrize("of", [f32, f64, bf16, c64], ids=str)
def test_an_eager_function_has_the_bits_of_a_program(isa: Isa, of: object) -> None:
    """The same kernel, for the same instruction set."""
    d = dtype(of)
    (x,) = points([d], np.random.default_rng(3))
    function = element_function(rlx.tanh.op(), (d,), isa)
    assert function is not None

    compiled = rlx.compile(
        rlx.tanh, rlx.spec(f"{d}[{x.size}]"), target="cpu", config={"options": {"cpu.isa": isa.name}}
    )

    assert same_bits(function(x), np.asarray(compiled(x))).all()


def test_one_function_serves_all_shapes() -> None:
    isa = available()[0]
    assert element_function(rlx.log.op(), (f32,), isa) is element_function(rlx.log.op(), (f32,), isa)


def test_random_numbers_are_the_same_eager_and_compiled() -> None:
    key = rlx.random.key(5)
    draw = lambda k: rlx.random.normal(k, shape=(1000,))  # noqa: E731

    np.testing.assert_array_equal(draw(key), rlx.jit(draw)(key))
