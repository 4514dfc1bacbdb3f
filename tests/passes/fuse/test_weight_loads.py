"""A product and the computation of its weight from narrower data: where they become one op, and where not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import rlx_core as rlx
from rlx_core.ir.graph import Graph, Value, ambient_builder
from rlx_core.ops.fused_matmul_prologue import FusedMatMulPrologue
from rlx_core.ops.indexing import gather
from rlx_core.ops.linalg import mat_mul
from rlx_core.ops.products import grouped_mat_mul
from rlx_core.ops.structural import sum_axes, transpose
from rlx_core.passes.dead_code import DeadCode
from rlx_core.passes.fold_constants import FoldConstants
from rlx_core.passes.fuse.mark_elementwise_regions import MarkElementwiseRegions
from rlx_core.passes.fuse.matmul_epilogue import FuseMatMulEpilogue
from rlx_core.passes.fuse.weight_loads import FuseWeightLoads

from ..programs import arrays, assert_equal_numbers, ops, outputs, program, run

PASSES = [FuseWeightLoads(), DeadCode()]
X, W = {"x": "f32[6, 32]"}, {"w": "i8[32, 5]"}
SHIFTS = np.array([0, 4], np.uint8)


def fused(make: Callable[..., Any], **types: str) -> Graph:
    return run(PASSES, program(make, **types)).graph


def constant(data: np.ndarray) -> Value:
    builder = ambient_builder()
    assert builder is not None
    return builder.constant(data)


def nibbles(codes: Any) -> Any:
    """Codes `[k / 2, n]`, two to a byte, as `[k, n]` in blocks of 8 rows."""
    pairs = rlx.bitwise_and(rlx.bitwise_right_shift(codes[:, None, :], SHIFTS[None, :, None]), np.uint8(15))
    return rlx.reshape(rlx.reshape(pairs, (4, 8, 5)), (32, 5))


def column_blocks(codes: Any, scales: Any) -> Any:
    """Codes `[n, k / 2]`, two to a byte, times a scale for each 4 columns, as `[n, k]`."""
    rows, half = codes.shape
    pairs = rlx.bitwise_and(rlx.bitwise_right_shift(codes[:, :, None], SHIFTS), np.uint8(15))
    return rlx.reshape(rlx.reshape(pairs, (rows, half // 2, 4)).astype("f32") * scales[:, :, None], (rows, 2 * half))


FUSED: dict[str, tuple[Callable[..., Any], dict[str, str]]] = {
    "a cast": (lambda x, w: mat_mul(x, w.astype("f32")), W),
    "a cast of a transposed weight": (lambda x, w: mat_mul(x, transpose(w, (1, 0)).astype("f32")), {"w": "i8[5, 32]"}),
    "a transposed cast": (lambda x, w: mat_mul(x, transpose(w.astype("f32"), (1, 0))), {"w": "f16[5, 32]"}),
    "a scale": (lambda x, w, s: mat_mul(x, w.astype("f32") * s), {**W, "s": "f32[5]"}),
    "a scale of rows": (lambda x, w, s: mat_mul(x, w.astype("f32") * s[:, None]), {**W, "s": "f32[32]"}),
    "part of a weight": (lambda x, w: mat_mul(x, w.astype("f32")[:32]), {"w": "i8[40, 5]"}),
    "two codes to a byte": (lambda x, w: mat_mul(x, nibbles(w).astype("f32") - 8.0), {"w": "u8[16, 5]"}),
    "a batch": (lambda x, w: mat_mul(rlx.reshape(x, (2, 3, 32)), w.astype("f32")), W),
}

TABLE = {"ids": "u8[4]"}

GATHERED: dict[str, tuple[Callable[..., Any], dict[str, str]]] = {
    "a cast": (lambda w, ids: gather(w.astype("f32"), ids), {"w": "i8[32, 6]"}),
    "a scale of rows": (lambda w, s, ids: gather(w.astype("f32") * s, ids), {"w": "i8[32, 6]", "s": "f32[32, 1]"}),
    "two codes to a byte": (
        lambda w, ids: gather(transpose(nibbles(w), (1, 0)).astype("f32") - 8.0, ids),
        {"w": "u8[16, 5]"},
    ),
    "blocks along columns": (lambda w, s, ids: gather(column_blocks(w, s), ids), {"w": "u8[9, 8]", "s": "f32[9, 4]"}),
    "a table of three axes": (lambda w, ids: gather(w.astype("f32"), ids), {"w": "f16[9, 2, 3]"}),
}

APART: dict[str, tuple[Callable[..., Any], dict[str, str]]] = {
    "a weight as it is": (lambda x, w: mat_mul(x, w), {"w": "f32[32, 5]"}),
    "a weight made narrower": (lambda x, w: mat_mul(x.astype("f16"), w.astype("f16")), {"w": "f32[32, 5]"}),
    "integers": (lambda x, w: mat_mul(x.astype("i32"), w.astype("i32")), W),
    "a sum": (lambda x, w: mat_mul(x, sum_axes(w.astype("f32"), axes=(0,))), {"w": "i8[2, 32, 5]"}),
    "a weight that is a result": (lambda x, w: (lambda d: (mat_mul(x, d), d))(w.astype("f32")), W),
    "a weight that something else reads": (
        lambda x, w: (lambda d: mat_mul(x, d) + sum_axes(d, axes=(0,)))(w.astype("f32")),
        W,
    ),
    "two products of an input": (lambda x, w: (lambda d: mat_mul(x, d) + mat_mul(x + 1.0, d))(w.astype("f32")), W),
    "no rows": (lambda x, w: mat_mul(x[:, :0], w.astype("f32")), {"w": "i8[0, 5]"}),
    "no columns": (lambda x, w: mat_mul(x, w.astype("f32")), {"w": "i8[32, 0]"}),
    "a gather of as many elements": (lambda w, ids: gather(w.astype("f32"), ids), {"w": "i8[3, 6]", **TABLE}),
    "a gather along columns": (lambda w, ids: gather(w.astype("f32"), ids, axis=1), {"w": "i8[32, 6]", **TABLE}),
    "a gather of a wide table": (lambda w, ids: gather(w * 2.0, ids), {"w": "f32[32, 6]", **TABLE}),
    "a gathered table that is a result": (
        lambda w, ids: (lambda d: (gather(d, ids), d))(w.astype("f32")),
        {"w": "i8[32, 6]", **TABLE},
    ),
    "a batch of weights": (lambda x, w: mat_mul(x, w.astype("f32")), {"w": "i8[2, 32, 5]"}),
}


@pytest.mark.parametrize("name", FUSED)
def test_a_product_takes_in_the_computation_of_its_weight(name: str) -> None:
    make, types = FUSED[name]
    before = program(make, **X, **types)
    after = run(PASSES, before).graph
    assert [n for n in ops(after) if n not in ("reshape", "constant")] == ["fused_matmul_prologue"]
    assert_equal_numbers(before, after)


@pytest.mark.parametrize("name", APART)
def test_a_wide_or_shared_weight_stays_outside(name: str) -> None:
    make, types = APART[name]
    inputs = types if "ids" in types else {**X, **types}
    assert not {"fused_matmul_prologue", "fused_loop"} & set(ops(fused(make, **inputs)))


@pytest.mark.parametrize("name", GATHERED)
def test_a_gather_takes_in_the_computation_of_its_table(name: str) -> None:
    make, types = GATHERED[name]
    before = program(make, **{**TABLE, **types})
    after = run(PASSES, before).graph
    assert {n for n in ops(after) if n not in ("reshape", "constant")} <= {"fused_loop", "fused_matmul_prologue"}
    assert "fused_loop" in ops(after)
    assert_equal_numbers(before, after)


def test_a_gather_of_an_unknown_number_of_indices_takes_in_its_table() -> None:
    after = fused(lambda w, ids: gather(w.astype("f32"), ids), w="i8[99, 6]", ids="u8[n]")
    assert [n for n in ops(after) if n != "reshape"] == ["fused_loop"]


def test_a_gather_and_a_product_of_a_parameter_read_it_both() -> None:
    def tied(w: Any, ids: Any) -> Any:
        wide = w.astype("f32")
        return mat_mul(gather(wide, ids), transpose(wide, (1, 0)))

    before = program(tied, **TABLE, params={"w": "i8[32, 6]"})
    after = run(PASSES, before).graph
    assert ops(after) == ["fused_loop", "fused_matmul_prologue"]
    assert_equal_numbers(before, after)


def test_two_products_of_a_parameter_read_it_both() -> None:
    def both(x: Any, w: Any) -> Any:
        wide = w.astype("f32")
        return mat_mul(x, wide) + mat_mul(x + 1.0, wide)

    after = run(PASSES, program(both, **X, params=W)).graph
    assert ops(after).count("fused_matmul_prologue") == 2


def test_a_product_and_one_of_the_transposed_weight_read_a_parameter_both() -> None:
    def both(x: Any, w: Any) -> Any:
        wide = w.astype("f32")
        return mat_mul(mat_mul(x, wide), transpose(wide, (1, 0)))

    before = program(both, **X, params=W)
    after = run(PASSES, before).graph
    assert ops(after) == ["fused_matmul_prologue"] * 2
    assert_equal_numbers(before, after)


def test_rows_are_divided_where_codes_and_blocks_end() -> None:
    after = fused(*FUSED["two codes to a byte"][:1], **X, **FUSED["two codes to a byte"][1])
    (op,) = (n.op for n in after.nodes if isinstance(n.op, FusedMatMulPrologue))
    assert op.load.steps[-1].op.attributes()["new_shape"] == (4, 4, 2, 5)


def test_a_region_after_the_product_joins_it() -> None:
    before = program(lambda x, w, b: rlx.tanh(mat_mul(x, w.astype("f32")) + b), **X, **W, b="f32[5]")
    after = run([*PASSES, MarkElementwiseRegions(), FuseMatMulEpilogue()], before).graph
    assert ops(after) == ["fused_matmul_prologue"]
    (op,) = (n.op for n in after.nodes if isinstance(n.op, FusedMatMulPrologue))
    assert op.region is not None
    assert_equal_numbers(before, after)


def test_expanded_weights_are_computed_outside() -> None:
    before = program(FUSED["a cast"][0], **X, **W)
    assert run([FuseWeightLoads(weights="expanded")], before).graph is before


def test_a_narrow_constant_stays_narrow() -> None:
    w = np.ones((512, 256), np.int8)
    before = program(lambda x: mat_mul(x, constant(w).astype("f32")), x="f32[3, 512]")
    after = run([FoldConstants(), *PASSES], before).graph
    assert [n for n in ops(after) if n != "constant"] == ["fused_matmul_prologue"]
    small = program(lambda x: mat_mul(x, constant(w[:8, :8]).astype("f32")), x="f32[3, 8]")
    assert "cast" not in ops(run([FoldConstants()], small).graph)


EXPERTS = {"idx": "i64[6]"}
GROUPED: dict[str, tuple[Callable[..., Any], dict[str, str]]] = {
    "an array": (grouped_mat_mul, {"w": "f32[3, 32, 5]"}),
    "a transposed array": (lambda x, w, idx: grouped_mat_mul(x, transpose(w, (0, 2, 1)), idx), {"w": "f32[3, 5, 32]"}),
    "a cast": (lambda x, w, idx: grouped_mat_mul(x, w.astype("f32"), idx), {"w": "i8[3, 32, 5]"}),
    "blocks along the last axis": (
        lambda x, w, s, idx: grouped_mat_mul(
            x, transpose(rlx.reshape(column_blocks(rlx.reshape(w, (15, 16)), s), (3, 5, 32)), (0, 2, 1)), idx
        ),
        {"w": "u8[3, 5, 16]", "s": "f32[15, 8]"},
    ),
}


@pytest.mark.parametrize("name", GROUPED)
def test_a_grouped_product_reads_its_weights_where_they_lie(name: str) -> None:
    make, types = GROUPED[name]
    before = program(make, **X, **types, **EXPERTS)
    after = run(PASSES, before).graph
    assert [n for n in ops(after) if n not in ("reshape", "constant")] == ["fused_grouped_matmul"]
    (node,) = (n for n in after.nodes if n.op.name == "rlx.fused_grouped_matmul")
    assert list(node.present())[1].type == before.input_types["w"]
    feeds = {**arrays(before), "idx": np.int64([0, 0, 2, 1, 1, 2])}
    (expected,), (result,) = outputs(before, feeds), outputs(after, feeds)
    np.testing.assert_allclose(result, expected, rtol=1e-11, atol=1e-12)


def test_a_grouped_product_reads_expanded_weights_where_they_lie() -> None:
    make, types = GROUPED["a cast"]
    before = program(make, **X, **types, **EXPERTS)
    after = run([FuseWeightLoads(weights="expanded")], before).graph
    assert ops(after) == ["cast", "fused_grouped_matmul"]


def test_a_grouped_product_of_integers_stays() -> None:
    before = program(grouped_mat_mul, x="i32[6, 32]", w="i32[3, 32, 5]", **EXPERTS)
    assert run(PASSES, before).graph is before
