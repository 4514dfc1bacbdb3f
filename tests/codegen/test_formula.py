"""Ops as loop kernels: what their own samples compute, how memory shapes a kernel, what a kernel prints, what is refused."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from rlx_core.codegen import formula_of, kernel_of, print_kernel, run_kernel
from rlx_core.codegen.loops import Kernel, Load, Reduce
from rlx_core.codegen.places import Place
from rlx_core.codegen.schedule import schedule
from rlx_core.errors import IndexRangeError
from rlx_core.ir.op import Op
from rlx_core.ir.types import spec
from rlx_core.ops.activation import exp
from rlx_core.ops.arithmetic import add, multiply
from rlx_core.ops.fused_loop import FusedLoop, LoopStep
from rlx_core.ops.indexing import Gather
from rlx_core.ops.linalg import MatMul
from rlx_core.ops.loss import SoftmaxCrossEntropyWithLogits
from rlx_core.ops.movement import Narrow
from rlx_core.ops.normalization import GroupNorm, LayerNorm
from rlx_core.ops.reduction import Max, Prod
from rlx_core.ops.softmax import Softmax
from rlx_core.ops.structural import Reshape, Sum, Transpose
from rlx_core.testing.cases import OpProgram, wide
from rlx_core.testing.judges import near_oracle

from .kernels import SAMPLES, SOFTMAX, kernel


def run(made: Kernel, operands: Sequence[np.ndarray | None], results: Sequence[np.ndarray]) -> None:
    data = [None if x is None else np.ascontiguousarray(x).reshape(-1).view(np.uint8) for x in (*operands, *results)]
    run_kernel(made, data)


# Programs whose node is the whole graph: no casts before it, so that its operands are the arrays that are drawn.
WHOLE = [p for p in SAMPLES if len(p.graph.nodes) == len(p.graph.inputs) + 1]


@pytest.mark.parametrize("program", WHOLE, ids=str)
def test_a_kernel_computes_what_its_op_means(program: OpProgram) -> None:
    node, arrays, made = program.node, program.draw(), SAMPLES[program]
    given = iter(arrays)
    results = [np.empty(t.static_shape, t.dtype.numpy) for t in node.types]

    run(made, [None if t is None else next(given) for t in node.operand_types], results)

    near_oracle(program.graph, results, wide(program.graph, arrays), arrays)


def test_a_complex_product_is_computed_in_parts() -> None:
    """Memory holds complex elements; loads and stores are of one part each, and values are real."""
    expected = """\
kernel mul grid [12] row []
  operand 0: x0 c64
  operand 1: x1 c64
  result 2: y0 c64
  %0 = load x0[g0*8] : f32
  %1 = load x1[g0*8] : f32
  %2 = mul(%0, %1) : f32
  %3 = load x0[g0*8 + 4] : f32
  %4 = load x1[g0*8 + 4] : f32
  %5 = mul(%3, %4) : f32
  %6 = sub(%2, %5) : f32
  %7 = mul(%0, %4) : f32
  %8 = mul(%3, %1) : f32
  %9 = add(%7, %8) : f32
  store %6 -> y0[g0*8]
  store %9 -> y0[g0*8 + 4]
  # then: store 0, 1
"""
    assert print_kernel(kernel(multiply.op(), "c64[3, 4]", "c64[3, 4]")) == expected


@pytest.mark.parametrize(("op", "operands"), [(Prod((1,)), 1), (MatMul(), 2)], ids=str)
def test_what_has_no_formula_for_its_parts_is_no_kernel(op: Op, operands: int) -> None:
    assert formula_of(op, (spec("c64[3, 3]"),) * operands) is None


def test_what_one_softmax_becomes() -> None:
    loops = """\
  # loop 0: reduce %1
  # loop 1: reduce %4; keep %3
  # loop 2: store 0
"""
    assert print_kernel(kernel(Softmax(), "f32[3, 5]")) == SOFTMAX + loops


def test_a_norm_reads_its_row_three_times_and_keeps_nothing() -> None:
    nests = schedule(kernel(LayerNorm(), "f32[4, 8]", "f32[8]", "f32[8]")).nests

    assert [len(n.reduces) for n in nests] == [1, 1, 0]
    assert all(not n.keeps for n in nests)


def test_dense_axes_are_one_axis() -> None:
    assert kernel(exp.op(), "f32[8, 128, 384]").extents == (393216,)
    assert kernel(add.op(), "f32[8, 128, 384]", "f32[384]").extents == (1024, 384)


def test_a_transpose_is_a_copy_with_other_strides() -> None:
    made = kernel(Transpose((1, 0)), "f32[3, 5]")
    (load,) = made.loads

    assert made.extents == (5, 3)
    assert (load.strides, made.stores[0].strides) == ((4, 20), (12, 4))


def test_rows_come_last_whichever_axes_they_are() -> None:
    made = kernel(Sum((0, 2)), "f32[3, 5, 7]")

    assert (made.extents, made.grid) == ((5, 3, 7), 1)


def test_a_row_of_one_element_is_still_a_row() -> None:
    made = kernel(Max((1,)), "f32[3, 1]")

    assert made.row_size == 1
    assert any(isinstance(v, Reduce) for v in made.values)


def test_a_known_number_is_no_load() -> None:
    types = (spec("f32[3]"), spec("f32[]"))
    formula = formula_of(add.op(), types)
    assert formula is not None
    two = np.float32(2).tobytes()
    made = kernel_of(formula, [Place.dense(types[0]), Place(types[1], (), literal=two)], [Place.dense(types[0])])

    assert len(list(made.loads)) == 1


def test_an_index_outside_is_reported() -> None:
    table, indices, out = np.zeros((3, 2), np.float32), np.array([0, 3]), np.empty((2, 2), np.float32)

    with pytest.raises(IndexRangeError, match="index 3 is outside an axis of 3 elements"):
        run(kernel(Gather(), "f32[3, 2]", "i64[2]"), [table, indices], [out])


def test_a_product_is_no_loop_kernel() -> None:
    assert formula_of(MatMul(), (spec("f32[3, 4]"), spec("f32[4, 5]"))) is None


def test_formulas_exist_before_sizes_are_known() -> None:
    assert formula_of(Softmax(), (spec("f32[batch, n]"),)) is not None


def test_the_element_of_a_row_that_data_choose_is_computed_alone() -> None:
    made = kernel(SoftmaxCrossEntropyWithLogits(), "f32[3, 40]", "i64[3]")

    assert [made.varies[i] for i, v in enumerate(made.values) if isinstance(v, Load) and v.dynamic] == [False]
    assert schedule(made).finish == (0,)


def test_groups_of_channels_are_rows_of_one_kernel() -> None:
    made = kernel(GroupNorm(2), "f32[3, 6, 4, 5]", "f32[6]", "f32[6]")

    # Channels of a group and places: gamma and beta vary with the first alone, so these two axes stay apart.
    assert made.extents == (3, 2, 3, 20)
    assert made.grid == 2
    assert sum(isinstance(v, Reduce) for v in made.values) == 2


@pytest.mark.parametrize("size", ["[4, 6, 5]", "[n, 6, 5]"])
def test_an_axis_splits_inside_a_kernel_and_two_of_its_axes_merge_only_where_it_knows_both(size: str) -> None:
    split = (LoopStep(Reshape((-1, 2, 3, 5)), (0,)), LoopStep(exp.op(), (1,)))
    merged = (*split, LoopStep(Reshape((-1, 6, 5)), (2,)))

    assert formula_of(FusedLoop(1, split, (2,)), (spec(f"f32{size}"),)) is not None
    # The result has one axis of 6 where the operand of `exp` has 2 and 3: a remainder is no affine place.
    assert formula_of(FusedLoop(1, merged, (3,)), (spec(f"f32{size}"),)) is None


def test_a_slice_that_crosses_rows_is_no_loop_kernel() -> None:
    # Every third element of rows of four: no step along rows and columns gives that.
    steps = (LoopStep(Reshape((24,)), (0,)), LoopStep(Narrow(0, 0, 8, 3), (1,)))

    assert formula_of(FusedLoop(1, steps, (2,)), (spec("f32[6, 4]"),)) is None


def test_a_slice_of_what_data_choose_is_no_loop_kernel() -> None:
    sliced = FusedLoop(2, (LoopStep(Narrow(0, 1, 3), (0,)), LoopStep(Gather(), (2, 1))), (3,))

    assert formula_of(sliced, (spec("f32[5]"), spec("i64[2]"))) is None
