"""Problems without a loop kernel: each prints on a line, and its interpreter computes what its op means."""

from __future__ import annotations

import numpy as np
import pytest
from attrs import evolve

from rlx_core.codegen.attention import AttentionProblem
from rlx_core.codegen.epilogue import pointwise, reason_against, region_function
from rlx_core.codegen.indexing import Indexing
from rlx_core.codegen.movement.problem import MovementProblem
from rlx_core.codegen.movement.tilings import TILINGS
from rlx_core.codegen.places import Layout, Place
from rlx_core.codegen.product import MatrixProduct
from rlx_core.codegen.scalars.numpy_assembler import NumpyAssembler
from rlx_core.codegen.scalars.standard import standard_table
from rlx_core.errors import IndexRangeError
from rlx_core.ir.dtypes import f32
from rlx_core.ir.graph import Node, as_results
from rlx_core.ir.types import TensorType, spec
from rlx_core.ops.activation import gelu, tanh
from rlx_core.ops.arithmetic import add, multiply
from rlx_core.ops.attention import Attention
from rlx_core.ops.fused_matmul_epilogue import FusedMatMulEpilogue
from rlx_core.ops.indexing import Gather
from rlx_core.ops.linalg import MatMul
from rlx_core.ops.movement import Pad
from rlx_core.ops.region import ElementwiseRegion, RegionStep
from rlx_core.ops.scatter import Scatter
from rlx_core.ops.structural import Transpose
from rlx_core.testing.cases import OpProgram, programs

TABLE = standard_table("NumPy")


def samples(*ops: type) -> list[OpProgram]:
    """Of these ops, those on operands as they are given, none of them promoted before."""
    found = (p for p in programs(tuple(ops)) if p.is_static)
    return [p for p in found if [v.type for v in p.node.present()] == [t for t in p.sample.types if t is not None]]


def dense(node: Node) -> Layout:
    operands = tuple(None if v is None else Place.dense(v.type) for v in node.operands)
    return Layout(operands, tuple(Place.dense(t) for t in node.types))


def memory(x: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(x).reshape(-1).view(np.uint8)


def room(type: TensorType) -> np.ndarray:
    return np.empty(type.static_nbytes, np.uint8)


# ------------------------------------------------------------------------------------------ movement


@pytest.mark.parametrize("program", samples(*TILINGS), ids=str)
def test_boxes_are_moved_as_the_op_means(program: OpProgram) -> None:
    node, drawn = program.node, iter(program.draw())
    arrays = [None if v is None else next(drawn) for v in node.operands]
    results = [room(t) for t in node.types]
    MovementProblem.of(node.op, dense(node)).run([None if x is None else memory(x) for x in arrays], results)
    for found, meant, type in zip(results, as_results(node.op(*arrays)), node.types, strict=True):
        np.testing.assert_array_equal(found.view(type.dtype.numpy).reshape(type.static_shape), meant)


def test_a_movement_prints_on_a_line() -> None:
    types = spec("f32[2, 3]"), spec("f32[3, 2]")
    layout = Layout((Place.dense(types[0]),), (Place.dense(types[1]),))
    assert str(MovementProblem.of(Transpose((1, 0)), layout)) == "move 4 bytes each: [3, 2] of x0"
    padded = Layout((Place.dense(spec("u8[2]")),), (Place.dense(spec("u8[4]")),))
    assert (
        str(MovementProblem.of(Pad((1,), (1,)), padded)) == "move 1 bytes each: [1] of zeros; [1] of zeros; [2] of x0"
    )
    inside = evolve(padded, operands=(evolve(padded.operands[0], is_inside=True),))
    assert str(MovementProblem.of(Pad((1,), (1,)), inside)) == "move 1 bytes each: [1] of zeros; [1] of zeros"


# ------------------------------------------------------------------------------------------ products


def is_matrices(program: OpProgram) -> bool:
    """Whether a product is of matrices of floats, with sums in the accumulator of the result's dtype."""
    ranks = [v.type.rank for v in program.node.present()]
    return min(ranks) >= 2 and program.node.op == MatMul() and program.node.types[0].dtype.is_float


@pytest.mark.parametrize("program", [p for p in samples(MatMul) if is_matrices(p)], ids=str)
def test_a_product_of_folded_batches_is_what_the_op_means(program: OpProgram) -> None:
    node, (a, b) = program.node, program.draw()
    layout, found = dense(node), room(node.types[0])
    left, right = layout.operands
    assert left is not None
    assert right is not None
    MatrixProduct.of(left, right, layout.results[0]).run(memory(a), memory(b), found)
    type = node.types[0]
    exact = np.asarray(node.op(a.astype("f8"), b.astype("f8")))
    unit = {"f16": 2.0**-10, "bf16": 2.0**-7, "f32": 2.0**-22, "f64": 2.0**-50}[type.dtype.name]
    np.testing.assert_allclose(
        found.view(type.dtype.numpy).reshape(exact.shape).astype("f8"), exact, rtol=unit, atol=8 * unit
    )


def test_a_product_prints_on_a_line() -> None:
    a, b, c = (Place.dense(spec(t)) for t in ("f32[8, 128, 384]", "f32[384, 512]", "f32[8, 128, 512]"))
    assert (
        str(MatrixProduct.of(a, Place(b.type, b.strides, is_bound=True), c))
        == "product f32[1024, 384] @ f32[384, 512] bound"
    )


def test_a_product_over_axes_reads_windows_where_they_lie() -> None:
    x, w = np.random.default_rng(8).standard_normal((2, 2, 6, 5, 3)).astype("f4")[0], np.ones((18, 4), "f4")
    windows = np.lib.stride_tricks.sliding_window_view(x, (3, 2), (1, 2)).transpose(0, 1, 2, 4, 5, 3)
    place = Place(TensorType(f32, windows.shape), windows.strides)
    found = MatrixProduct.of_axes(place, Place.dense(spec("f32[18, 4]")), Place.dense(spec("f32[2, 4, 4, 4]")), 3)
    assert str(found) == "product f32[32, 18] (rows by 4, terms by 6) @ f32[18, 4]"
    assert (found.lines, found.runs) == (((2, 360), (4, 60)), ((3, 60),))
    result = np.empty((2, 4, 4, 4), "f4")
    found.run(x.reshape(-1).view(np.uint8), memory(w), result.reshape(-1).view(np.uint8))
    np.testing.assert_allclose(result, np.repeat(windows.sum((3, 4, 5))[..., None], 4, -1), rtol=1e-5, atol=1e-5)


def region(*steps: RegionStep, inputs: int, results: tuple[int, ...] = (0,)) -> ElementwiseRegion:
    return ElementwiseRegion((3, 5), steps, ((5, 1),) * inputs, results)


def test_an_epilogue_prints_as_an_expression_and_computes_it() -> None:
    op = region(RegionStep(add.op(), (0, 1)), RegionStep(gelu.op(), (2,)), inputs=2, results=(1,))
    function = pointwise(TABLE, op, (TensorType(f32, (3, 5)),) * 2)
    assert function is not None
    assert str(function) == "gelu(x + read1)"
    assert function.is_long
    x, y = np.random.default_rng(1).standard_normal((2, 15)).astype("f4")
    (found,) = function.apply(NumpyAssembler(), TABLE, x, y)
    np.testing.assert_allclose(found, np.asarray(gelu.op()(x.astype("f8") + y)), rtol=1e-6, atol=1e-6)


def test_what_an_epilogue_uses_twice_has_a_name() -> None:
    op = region(RegionStep(tanh.op(), (0,)), RegionStep(multiply.op(), (1, 1)), inputs=1, results=(1, 0))
    function = pointwise(TABLE, op, (TensorType(f32, (3, 5)),))
    assert str(function) == "t1 = tanh(x); t1 * t1, t1"


def test_a_known_operand_of_a_region_becomes_a_number() -> None:
    op = FusedMatMulEpilogue(region(RegionStep(multiply.op(), (0, 1)), inputs=2))
    types = [TensorType(f32, s) for s in ((3, 4), (4, 5), (3, 5))]
    half = Place(types[2], (0, 0), literal=np.float32(0.5).tobytes())
    assert str(region_function(TABLE, op.region, types, [half])) == "x * 0.5"
    assert reason_against(TABLE, op.region, types) is None
    assert reason_against(standard_table("none", ()), op.region, types) == "a region whose steps have vector code"


# ------------------------------------------------------------------------------------------ indexing


@pytest.mark.parametrize("program", samples(Gather, Scatter), ids=str)
def test_reading_and_writing_at_indices_is_what_the_ops_mean(program: OpProgram) -> None:
    node, (table, *cells, indices) = program.node, program.draw()
    op = node.op
    assert isinstance(op, Gather | Scatter)
    first, *_, last = node.present()
    problem = Indexing.of(first.type, last.type, op.axis, op.batch_dims, op.oob)
    if isinstance(op, Gather):
        found = problem.gather(table, indices, op.fill)
    else:
        combine = {"set": None, "add": np.add, "mul": np.multiply, "max": np.maximum, "min": np.minimum}[op.mode]
        found = problem.scatter(combine, table, cells[0], indices)
    exact = np.asarray(op(table, *cells, indices))
    # NumPy's products of many complex numbers round otherwise than those of one at a time.
    rtol = 1e-6 if exact.dtype.kind == "c" else 0
    np.testing.assert_allclose(found.reshape(exact.shape), exact, rtol=rtol)


def test_an_index_outside_is_a_fault_that_says_which() -> None:
    problem = Indexing.of(spec("f32[4, 3]"), spec("i32[2]"), 0, 0, "error")
    assert str(problem) == "index [1, 1, 4, 3] along 2 at i32[1, 2], outside error"
    with pytest.raises(IndexRangeError, match="index 7 is outside an axis of 4 elements"):
        problem.gather(np.zeros((4, 3), "f4"), np.array([1, 7], "i4"))


# ----------------------------------------------------------------------------------------- attention


def test_attention_prints_on_a_line() -> None:
    q, k = spec("bf16[2, 128, 256]"), spec("bf16[2, 128, 128]")
    layout = Layout((Place.dense(q), Place.dense(k), Place.dense(k)), (Place.dense(q),))
    op = Attention(num_heads=4, num_kv_heads=2, head_dim=64, mask_kind="causal", attn_logit_softcap=30.0)
    said = "attention bf16[2, 4 over 2, 128, 64] on 128 keys causal cap 30"
    assert str(AttentionProblem.of(op, layout)) == said
