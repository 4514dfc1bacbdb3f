"""What becomes of a score, in the loop language, is what the op makes of it: its softmax weighs the values to the op's result."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from attrs import evolve

from rlx_core.codegen import check_kernel
from rlx_core.codegen.attention_scores import PlacedAttention
from rlx_core.codegen.interpret import value_of
from rlx_core.codegen.loops import Buffer, Load
from rlx_core.codegen.places import Layout, Place
from rlx_core.ops.attention import Attention
from rlx_core.ops.samples import Sample

SAMPLES = [s for s in Attention.samples() if isinstance(s, Sample)]


def placed(sample: Sample) -> PlacedAttention:
    op, types = Attention(**sample.attributes), sample.types
    operands = tuple(None if t is None else Place.dense(t) for t in types)
    return PlacedAttention.of(op, Layout(operands, (Place.dense(op.infer(*types)),)))  # type: ignore[arg-type]


def heads(problem: PlacedAttention, number: int, x: np.ndarray) -> np.ndarray:
    """An operand as f64 `[batch, query heads, position, feature]`, by the problem's own strides."""
    strides, size = problem.head_strides(number), x.itemsize
    batch, count, queries, keys = problem.sizes
    positions, features = (
        (queries, problem.features) if number == 0 else (keys, (0, problem.features, problem.width)[number])
    )
    step = 1 if number == 0 else problem.sharing
    flat = np.ascontiguousarray(x).reshape(-1)
    axes = [(strides.batch, batch), (strides.head, count), (strides.position, positions), (strides.feature, features)]
    at: Any = 0
    for a, (stride, extent) in enumerate(axes):
        line = np.arange(extent) // (step if a == 1 else 1) * (stride // size)
        at = at + line.reshape([-1 if b == a else 1 for b in range(4)])
    return flat[at].astype(np.float64) if flat.size else np.zeros((batch, count, positions, features))


@pytest.mark.parametrize("sample", [s for s in SAMPLES if s.types[1].static_shape[-2]], ids=lambda s: str(s.attributes))
def test_the_softmax_of_scores_weighs_values_to_the_result(sample: Sample) -> None:
    problem, x = placed(sample), sample.arrays(Attention)
    q, k, v = (heads(problem, i, x[i]) for i in range(3))  # type: ignore[arg-type]
    scores, products = problem.scores, (q @ k.swapaxes(-1, -2)).astype(problem.dtype.numpy)
    # The product comes from memory, where the kernel has a place for it.
    kernel, strides = scores.kernel, products.strides
    values = list(kernel.values)
    values[scores.element] = Load(len(kernel.buffers), problem.dtype, strides)
    filled = evolve(kernel, buffers=(*kernel.buffers, Buffer("products", problem.dtype)), values=tuple(values))
    check_kernel(kernel)
    given = [None if a is None else np.ascontiguousarray(a).reshape(-1).view(np.uint8) for a in x]
    results = [None] * len(problem.layout.results)
    z = value_of(filled, scores.score, [*given, *results, products.reshape(-1).view(np.uint8)]).astype(np.float64)
    z = np.broadcast_to(z, products.shape)
    most = z.max(-1, keepdims=True)
    weights = np.exp(z - np.where(np.isneginf(most), 0, most))
    total = weights.sum(-1, keepdims=True)
    found = weights / np.where(total == 0, 1, total) @ v
    if problem.empty_row == "uniform":
        found = np.where(total == 0, v.mean(-2, keepdims=True), found)
    (expected,) = problem.run(*x)
    shape = {"bsd": (0, 2, 1, 3), "bshd": (0, 2, 1, 3), "bhsd": (0, 1, 2, 3)}[problem.op.layout]
    tolerance = {"f16": 2e-3, "bf16": 2e-2, "f32": 2e-6, "f64": 1e-13}[problem.problem.stored.name]
    np.testing.assert_allclose(
        found.transpose(shape).reshape(expected.shape), expected.astype(np.float64), rtol=tolerance, atol=tolerance
    )


def test_a_placed_attention_prints_on_a_line() -> None:
    sample = Sample(*["f32[2, 3, 4]"] * 3, "bool[2, 3]", num_heads=2, head_dim=2, mask_kind="custom")
    assert str(placed(sample)) == "attention f32[2, 2, 3, 2] on 3 keys custom with mask"
