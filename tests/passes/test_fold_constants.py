"""Constants are folded in their own dtype; what is random, large, or reads a param is left alone."""

import ml_dtypes
import numpy as np
import pytest

from rlx_core.ir.dtypes import dtype
from rlx_core.ir.graph import Builder, Constant
from rlx_core.ir.interpret import interpret
from rlx_core.ir.types import spec
from rlx_core.ops.activation import exp
from rlx_core.ops.arithmetic import add, multiply
from rlx_core.ops.conversion import cast
from rlx_core.ops.structural import expand
from rlx_core.passes.engine.base import Context
from rlx_core.passes.fold_constants import FoldConstants


def folded(make, **options):
    b = Builder()
    x, w = b.input("x", spec("f32[3]")), b.param("w", spec("f32[3]"))
    graph = b.finish(make(b, x, w))
    return graph, FoldConstants(**options).run(graph, Context())


@pytest.mark.parametrize("name", ["i64", "i8", "u8", "f16", "bf16", "f32", "f64", "c64"])
def test_folding_is_done_in_the_ops_own_dtype(name):
    """i64 beyond 2**53, f16 rounding and i8 wrapping all differ from the same sum in float64."""
    large = {"i64": 2**53 + 1, "i8": 127, "u8": 255}.get(name, 1000.25)
    data = np.array([large, 1, 3]).astype(dtype(name).numpy)
    graph, result = folded(lambda b, x, w: [add(b.constant(data), b.constant(data))])
    op = result.graph.outputs[0].node.op
    assert isinstance(op, Constant)
    assert op.value.dtype is dtype(name)
    assert op.value.content == (name, (3,), interpret(graph, {"x": [0] * 3, "w": [0] * 3})[0].tobytes())


def test_casts_and_expands_are_folded():
    _, result = folded(lambda b, x, w: [expand(cast(b.constant(np.array([1.5, -2.5])), to=dtype("i8")), (2, 2))])
    assert result.graph.outputs[0].node.op.value.array.tolist() == [[1, -2], [1, -2]]


def test_narrow_floats_are_rounded_once():
    one = np.ones(1, ml_dtypes.bfloat16)
    _, result = folded(lambda b, x, w: [add(b.constant(one), b.constant(np.full(1, 2.0**-9, ml_dtypes.bfloat16)))])
    assert result.graph.outputs[0].node.op.value.array.tolist() == [1.0]


@pytest.mark.parametrize(
    "make",
    [
        lambda b, x, w: [exp(x)],
        lambda b, x, w: [exp(w)],
        lambda b, x, w: [multiply(x, b.constant(np.float32(2)))],
    ],
    ids=["input", "param", "mixed"],
)
def test_what_is_not_constant_is_left_alone(make):
    graph, result = folded(make)
    assert result.graph == graph
    assert "folded" not in result.counts


@pytest.mark.parametrize("kind", ["noise", "fence"])
def test_impure_ops_and_barriers_are_left_alone(kind, request):
    op = request.getfixturevalue(kind)
    graph, result = folded(lambda b, x, w: [op(b.constant(np.ones(3)))])
    assert result.graph is graph


@pytest.mark.parametrize(("limit", "count"), [(24, 1), (23, 0)])
def test_the_limit_is_bytes_of_one_result(limit, count):
    _, result = folded(lambda b, x, w: [exp(b.constant(np.ones(3)))], limit=limit)
    assert result.counts.get("folded", 0) == count


def test_a_folded_node_keeps_its_name():
    _, result = folded(lambda b, x, w: [exp(b.constant(np.ones(3)), name="table")])
    assert isinstance(result.graph.find("table").node.op, Constant)
