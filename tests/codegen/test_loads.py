"""Loads of operands: the product with one, its panels, and arrays that are packed for them, against the op and each other."""

from __future__ import annotations

import numpy as np
import pytest
from attrs import evolve

from rlx_core.codegen.interpret import run_kernel
from rlx_core.codegen.loads import OperandLoad, reason_against_load
from rlx_core.codegen.places import Place
from rlx_core.codegen.product import MatrixProduct
from rlx_core.codegen.scalars.standard import standard_table
from rlx_core.ir.graph import as_results
from rlx_core.ir.types import TensorType, spec
from rlx_core.ops.conversion import Cast
from rlx_core.ops.fused_loop import FusedLoop, LoopStep
from rlx_core.ops.fused_matmul_prologue import FusedMatMulPrologue
from rlx_core.ops.structural import Sum, Transpose
from rlx_core.testing.cases import OpProgram, programs

SAMPLES = [p for p in programs((FusedMatMulPrologue,)) if p.is_static]
WITHOUT_REGION = [p for p in SAMPLES if p.sample.attributes.get("region") is None]


def load_of(program: OpProgram, *, is_bound: bool = False) -> tuple[OperandLoad, list[np.ndarray]]:
    """The load of a sample, and its arrays as bytes."""
    op = program.node.op
    assert isinstance(op, FusedMatMulPrologue)
    _, *arrays = (x for x in program.draw() if x is not None)
    arrays = arrays[: op.load.inputs]
    places = [
        evolve(Place.dense(TensorType(t.dtype, t.shape)), is_bound=is_bound) for t in program.sample.types[1:] if t
    ]
    return OperandLoad.of(op.load, places[: op.load.inputs]), [memory(x) for x in arrays]


def memory(x: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(x).reshape(-1).view(np.uint8)


@pytest.mark.parametrize("program", WITHOUT_REGION, ids=str)
def test_a_product_with_a_load_computes_what_the_op_does(program: OpProgram) -> None:
    load, arrays = load_of(program)
    x, (result,) = program.draw()[0], program.node.types
    assert x is not None
    product = MatrixProduct.of_load(Place.dense(program.node.operand_types[0]), load, Place.dense(result))
    y = np.zeros(result.static_nbytes, np.uint8)
    product.run(memory(x), arrays, y)
    (exact,) = as_results(program.node.op(*program.draw()))
    tolerance = {"f16": 2e-3, "f32": 1e-5, "f64": 1e-13}[result.dtype.name]
    np.testing.assert_allclose(
        y.view(result.dtype.numpy).reshape(result.static_shape), exact, rtol=tolerance, atol=10 * tolerance
    )


def test_a_load_prints_on_a_line() -> None:
    (program,) = (p for p in WITHOUT_REGION if "u8[2, 4, 5]" in str(p.sample.types))
    load, _ = load_of(program)
    x, result = spec("f32[3, 16]"), spec("f32[3, 5]")
    assert str(MatrixProduct.of_load(Place.dense(x), load, Place.dense(result))) == (
        "product f32[3, 16] @ load(u8[2, 4, 5], i32[2, 1], i32[], f32[2, 5]; "
        "cast(bitwise_and(shift_right(cast(x, to=i32), read1), read2), to=f32) * read3)[16, 5]"
    )
    assert hash(load) == hash(evolve(load))


@pytest.mark.parametrize("is_bound", [False, True], ids=["in place", "packed"])
@pytest.mark.parametrize("program", WITHOUT_REGION, ids=str)
def test_panels_are_columns_of_the_matrix(program: OpProgram, is_bound: bool) -> None:
    load, arrays = load_of(program, is_bound=is_bound)
    whole, (rows, columns) = load.run(arrays), load.shape
    sources = {i: found for i in range(len(arrays)) if (found := load.source_rows(i)) is not None}
    assert bool(sources) == is_bound
    for depth in load.depths:
        assert rows % depth == 0
        for first, count, width, pitch in ((0, 2, 2, 2), (columns - 1, 1, 1, 2)):
            packed = [
                panels(load, i, arrays[i], first, count, pitch) if i in sources else array
                for i, array in enumerate(arrays)
            ]
            kernel = load.panels(first, count, width, depth, pitch=pitch, alignment=16, packed=sources)
            written = np.zeros((depth, pitch), load.dtype.numpy)
            run_kernel(kernel, [*packed, memory_of(written)])
            # Every part is written to the same memory: the last one stays.
            last = whole[rows - depth :, first + (count - 1) * width :][:, :width]
            np.testing.assert_array_equal(written[:, :width], last)


def memory_of(x: np.ndarray) -> np.ndarray:
    """The bytes of an array, which are written through."""
    return x.reshape(-1).view(np.uint8)


def panels(load: OperandLoad, number: int, array: np.ndarray, first: int, count: int, pitch: int) -> np.ndarray:
    """An array in panels of `pitch` columns, as if those in front of column `first` were panels too."""
    source, type = load.source_rows(number), load.places[number].type
    assert source is not None
    matrix = np.lib.stride_tricks.as_strided(array.view(type.dtype.numpy), (source.rows, load.shape[1]), source.strides)
    widths = [*([1] * first), *([pitch] * count)]
    out, column = [], 0
    for width in widths:
        part = np.zeros((source.rows, width), matrix.dtype)
        inside = matrix[:, column : column + width]
        part[:, : inside.shape[1]] = inside
        out.append(part.reshape(-1))
        column += width
    return memory(np.concatenate(out))


def test_an_array_is_packed_if_columns_are_one_of_its_axes() -> None:
    across = FusedLoop(1, (LoopStep(Transpose((1, 0)), (0,)), LoopStep(Cast("f32"), (1,))), (2,))
    bound = Place(spec("i8[5, 8]"), (8, 1), is_bound=True)
    found = OperandLoad.of(across, [bound]).source_rows(0)
    assert found is not None
    assert (found.rows, found.strides, found.axis) == (8, (1, 8), 0)
    for other in (evolve(bound, is_bound=False), evolve(bound, strides=(16, 1)), evolve(bound, literal=b"\1")):
        assert OperandLoad.of(across, [other]).source_rows(0) is None


def test_a_load_is_refused_with_the_reason() -> None:
    table, types = standard_table("NumPy"), (spec("i8[4, 5]"),)
    cast = FusedLoop(1, (LoopStep(Cast("f32"), (0,)),), (1,))
    assert reason_against_load(table, cast, types) is None
    summed = FusedLoop(1, (LoopStep(Sum((0,)), (0,)),), (1,))
    assert reason_against_load(table, summed, types) == "a load that is one loop without reductions"
    assert reason_against_load(table, cast, (spec("i8[n, 5]"),)) == "a load of known sizes"
