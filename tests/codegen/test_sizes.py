"""Kernels for all sizes: which numbers they leave open, what they take for a size, and what they refuse."""

from __future__ import annotations

from attrs import evolve

from rlx_core.codegen.formula import formula_of
from rlx_core.codegen.places import Layout, Place
from rlx_core.codegen.sizes import SizedKernel, sized_kernel
from rlx_core.ir.dims import DimBinding, free_symbols
from rlx_core.ir.op import Op
from rlx_core.ir.types import TensorType, spec
from rlx_core.ops.activation import exp
from rlx_core.ops.arithmetic import add
from rlx_core.ops.softmax import Softmax
from rlx_core.ops.structural import Reshape, Sum

X = spec("f32[n, m, 8]")


def layout(operands: list[TensorType], result: TensorType, **sizes: int) -> Layout:
    """Everything dense, for some sizes."""
    bound = [Place.dense(t.bind(DimBinding.of(**sizes))) for t in (*operands, result)]
    return Layout(tuple(bound[:-1]), (bound[-1],))


def opened(op: Op, types: list[TensorType], result: TensorType, **sizes: int) -> SizedKernel:
    formula = formula_of(op, tuple(types), is_for_all=True)
    assert formula is not None, "the op is one kernel for all sizes"
    return sized_kernel(formula, layout(types, result, **sizes), DimBinding.of(**sizes))


def test_dense_axes_are_one_whose_extent_is_an_expression() -> None:
    made = opened(exp.op(), [X], X, n=3, m=5)
    assert [repr(n) for n in made.kernel.extents] == ["8*m*n"]
    assert [a.strides for a in made.kernel.accesses] == [(4,), (4,)]


def test_what_lies_outside_an_unknown_axis_has_an_unknown_stride() -> None:
    made = opened(Sum(axes=(1,)), [X], spec("f32[n, 8]"), n=3, m=5)
    load, store = made.kernel.accesses
    assert made.kernel.grid == 2
    assert free_symbols(load.strides[0])
    assert load.strides[1:] == (4, 32)
    assert store.strides == (32, 4, 0)


def test_a_binding_says_what_is_open() -> None:
    made = opened(Sum(axes=(1,)), [X], spec("f32[n, 8]"), n=3, m=5)
    for n, m in ((2, 9), (1, 1), (1, 7), (4, 1), (0, 3), (2, 0)):
        sizes = made.sizes(layout([X], spec("f32[n, 8]"), n=n, m=m), DimBinding.of(n=n, m=m))
        assert sizes is not None
        assert [sizes.bind(e) for e in made.kernel.extents] == [n, 8, m]
        if n > 1:
            assert sizes.bind(made.kernel.accesses[0].strides[0]) == 32 * m


def test_operands_that_lie_otherwise_are_refused() -> None:
    made = opened(exp.op(), [X], X, n=3, m=5)
    dense = layout([X], X, n=3, m=5)
    (place,) = dense.operands
    assert place is not None
    for strides in ((320, 64, 4), (4, 12, 60), (160, 32, 8), (320, 32, 4)):
        apart = Layout((evolve(place, strides=strides),), dense.results)
        assert made.sizes(apart, DimBinding.of(n=3, m=5)) is None


def test_a_broadcast_operand_keeps_axes_apart() -> None:
    row = spec("f32[m, 8]")
    made = opened(add.op(), [X, row], X, n=3, m=5)
    assert [repr(n) for n in made.kernel.extents] == ["n", "8*m"]
    assert made.kernel.accesses[1].strides == (0, 4)
    assert made.sizes(layout([X, row], X, n=1, m=1), DimBinding.of(n=1, m=1)) is not None


def test_a_kernel_that_was_opened_for_sizes_of_one_serves_others() -> None:
    made = opened(Softmax(), [X], X, n=1, m=1)
    assert made.sizes(layout([X], X, n=6, m=4), DimBinding.of(n=6, m=4)) is not None


def test_a_reshape_of_unknown_axes_is_one_kernel_for_a_size_and_not_for_all() -> None:
    halves = Reshape(new_shape=spec("f32[a, b]").shape)
    types = (spec("f32[b, a]"),)
    assert formula_of(halves, types, is_for_all=True) is None
