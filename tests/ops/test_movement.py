"""Slices, joins and padding: symbolic sizes, what is refused, and constants of the right dtype."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import rlx_core as rlx
from rlx_core.errors import GuardError, ShapeError
from rlx_core.ir.bind import bind
from rlx_core.ir.dims import DimBinding, symbol
from rlx_core.ir.dtypes import ALL, dtype
from rlx_core.ir.graph import Builder, Constant, building
from rlx_core.ir.types import spec
from rlx_core.ops.movement import concat, flip, narrow, pad


def test_a_concatenation_along_unknown_axes_has_the_sum_of_their_sizes() -> None:
    builder = Builder("concat")
    parts = [builder.input(f"x{i}", spec(f"f32[2, {n}]")) for i, n in enumerate(("n", "m", "3"))]

    assert concat(parts, axis=1).type == spec("f32[2, n + m + 3]")


def test_other_dims_that_may_differ_become_a_guard() -> None:
    builder = Builder("concat")
    concat([builder.input("a", spec("f32[2, n]")), builder.input("b", spec("f32[2, m]"))], axis=0)

    (guard,) = builder.guards
    guard.check(DimBinding.of(n=4, m=4))
    with pytest.raises(GuardError, match="4 and 5"):
        guard.check(DimBinding.of(n=4, m=5))


def test_a_slice_of_an_unknown_axis_is_checked_when_it_is_bound() -> None:
    """A window that leaves its axis is an error, never a moved window."""
    builder = Builder("narrow")
    narrow(builder.input("x", spec("f32[n]")), axis=0, start=3, length=4)

    (guard,) = builder.guards
    guard.check(DimBinding.of(n=7))
    with pytest.raises(GuardError, match="6 and 7"):
        guard.check(DimBinding.of(n=6))


def test_a_slice_may_start_and_end_at_symbols() -> None:
    n = symbol("n")
    x = Builder("narrow").input("x", spec("f32[2*n]"))

    assert narrow(x, axis=0, start=n, length=n).type == spec("f32[n]")


@pytest.mark.parametrize("name", [d.name for d in ALL])
def test_what_padding_and_its_gradient_emit_has_the_dtype_of_the_operand(name: str) -> None:
    """A constant of another dtype would be read as other numbers."""
    builder = Builder("pad")
    x = builder.input("x", spec(f"{name}[3]"))
    with building(builder):
        y = narrow(pad(x, lo=(1,), hi=(2,)), axis=0, start=1, length=2)
        if x.dtype.is_differentiable:
            (back,) = y.node.op.vjp(y, y.node.operands[0], y=y)
            (back,) = pad(x, lo=(1,), hi=(2,)).node.op.vjp(back, x, y=back)
            assert back.type == x.type

    constants = [n for n in builder.nodes if isinstance(n.op, Constant)]
    assert all(n.type.dtype is x.dtype for n in constants)
    assert y.dtype is x.dtype


@pytest.mark.parametrize("mode", ["edge", "reflect", "wrap"])
def test_an_unknown_axis_that_gets_no_cells_may_be_empty(mode: Any) -> None:
    compiled = rlx.compile(lambda x: rlx.pad(x, ((1, 1), (0, 0)), mode=mode), rlx.spec("f32[3, n]"))
    for size in (0, 1, 3):
        x = np.arange(3 * size, dtype=np.float32).reshape(3, size)
        np.testing.assert_array_equal(compiled(x), np.pad(x, ((1, 1), (0, 0)), mode=mode))


@pytest.mark.parametrize("mode", ["edge", "reflect", "wrap"])
def test_a_padding_mode_sums_gradients_back_into_its_sources(mode: str, calculus: Any) -> None:
    """Each cell of the gradient counts how often its element is shown."""
    x = np.arange(12.0).reshape(3, 4)
    widths: Any = ((2, 3), (1, 6))

    found = calculus.evaluate(calculus.gradient(lambda x: pad(x, lo=(2, 1), hi=(3, 6), mode=mode)), x)

    shown = np.pad(x, widths, mode=mode).astype(int)
    np.testing.assert_array_equal(found, np.bincount(shown.reshape(-1), minlength=12).reshape(3, 4))


def test_the_gradient_of_the_padding_value_counts_the_cells_that_show_it(calculus: Any) -> None:
    function = calculus.gradient(lambda v, x: pad(x, v, lo=(1, -1), hi=(0, 1), between=(1, 0)), 0)

    assert calculus.evaluate(function, np.array(5.0), np.ones((2, 3))) == 1 * 3 + 1 * 3 + 2 * 1


@pytest.mark.parametrize("name", ["i64", "c64", "bool", "f16", "bf16", "u8"])
def test_movement_keeps_every_bit(name: str) -> None:
    kind = dtype(name).numpy
    x = np.array([[0, 1, 2**53 + 1 if name == "i64" else 3], [1, 0, 2]]).astype(kind)

    np.testing.assert_array_equal(flip(x, axes=(1,)), x[:, ::-1])
    np.testing.assert_array_equal(concat([x, x], axis=1), np.concatenate([x, x], 1))
    np.testing.assert_array_equal(narrow(x, axis=1, start=0, length=2, step=2), x[:, ::2])
    assert concat([x, x]).dtype == kind


def test_a_slice_that_leaves_its_axis_names_both_ends() -> None:
    with pytest.raises(ShapeError, match="ends at 5, axis 0 of f64"):
        narrow(np.ones(4), axis=0, start=2, length=3)


@pytest.mark.parametrize("size", [0, 1, 4])
def test_an_axis_of_unknown_size_is_spread_as_one_of_that_size(size: int) -> None:
    x = np.arange(size, dtype=np.float64)
    graph = rlx.trace(lambda x: pad(x, lo=(1,), hi=(2,), between=(2,)), rlx.spec("f64[n]"))
    bound, _ = bind(graph, DimBinding.of(n=size))

    np.testing.assert_array_equal(rlx.interpret(bound, {"x": x})[0], pad(x, lo=(1,), hi=(2,), between=(2,)))


@pytest.mark.parametrize("mode", ["edge", "wrap", "reflect", "symmetric", "constant"])
def test_an_axis_that_gets_no_cells_may_turn_out_to_be_empty(mode: str) -> None:
    graph = rlx.trace(lambda x: pad(x, lo=(1, 0), hi=(1, 0), mode=mode), rlx.spec("f64[2, n]"))
    bound, _ = bind(graph, DimBinding.of(n=0))

    assert rlx.interpret(bound, {"x": np.zeros((2, 0))})[0].shape == (4, 0)
