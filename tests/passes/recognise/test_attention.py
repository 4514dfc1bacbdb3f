"""Attention from primitives: every attribute is carried over, and what a query without visible keys gives above all."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from rlx_core.ir.dtypes import bool_
from rlx_core.ir.graph import Graph
from rlx_core.ops import arange, ones, tril
from rlx_core.ops.conversion import cast
from rlx_core.ops.linalg import mat_mul
from rlx_core.ops.selection import where
from rlx_core.ops.softmax import softmax
from rlx_core.ops.structural import reshape, transpose
from rlx_core.passes.fold_constants import FoldConstants
from rlx_core.passes.recognise.attention import RecogniseAttention

from ..programs import arrays, outputs, program, run

QKV = {"q": "f32[2, 2, 3, 4]", "k": "f32[2, 2, 3, 4]", "v": "f32[2, 2, 3, 4]"}


def scores(q: Any, k: Any) -> Any:
    return mat_mul(q, transpose(k, (0, 1, 3, 2)))


def recognised(graph: Graph) -> dict[str, Any]:
    (node,) = (n for n in run(RecogniseAttention(), graph).graph.nodes if n.op.name == "rlx.attention")
    return node.op.attributes()


@pytest.mark.parametrize(
    ("fill", "empty_row"),
    [(-math.inf, "nan"), (-1e30, "uniform"), (float(np.finfo(np.float32).min), "uniform"), (-1e9, "uniform")],
)
def test_an_empty_row_gives_what_it_gave(fill: float, empty_row: str) -> None:
    """NaN after -inf, the mean of all values after a finite fill; the second query here sees nothing."""

    def make(q: Any, k: Any, v: Any, m: Any) -> Any:
        return mat_mul(softmax(where(m, scores(q, k) * 0.5, fill)), v)

    graph = program(make, **QKV, m="bool[3, 3]")
    assert recognised(graph)["empty_row"] == empty_row
    fed = arrays(graph)
    fed["m"] = np.array([[True, False, True], [False] * 3, [True] * 3])
    (before,), (after,) = outputs(graph, fed), outputs(run(RecogniseAttention(), graph).graph, fed)
    np.testing.assert_allclose(after, before, rtol=1e-12)
    assert np.isnan(after[:, :, 1]).all() == (empty_row == "nan")


@pytest.mark.parametrize("scale", [0.25, 3.0])
@pytest.mark.parametrize("is_quotient", [False, True])
def test_the_scale_is_the_factor_that_was_written(scale: float, is_quotient: bool) -> None:
    graph = program(
        lambda q, k, v: mat_mul(softmax(scores(q, k) / scale if is_quotient else scores(q, k) * scale), v), **QKV
    )
    assert recognised(graph)["score_scale"] == pytest.approx(1 / scale if is_quotient else scale, rel=1e-7)


def test_scores_without_a_factor_have_scale_1_and_not_the_usual_one() -> None:
    assert recognised(program(lambda q, k, v: mat_mul(softmax(scores(q, k)), v), **QKV))["score_scale"] == 1.0


CAUSAL = {
    "a literal triangle": lambda s: where(np.tri(3, dtype=bool), s, -math.inf),
    "what is to be hidden": lambda s: where(~np.tri(3, dtype=bool), -1e30, s),
    "the lower triangle of ones": lambda s: where(cast(tril(ones((3, 3))), to=bool_), s, -math.inf),
    "positions compared": lambda s: where(reshape(arange(3), (1, 3)) <= reshape(arange(3), (3, 1)), s, -math.inf),
    "positions compared the other way": lambda s: where(
        reshape(arange(3), (1, 3)) > reshape(arange(3), (3, 1)), -1e30, s
    ),
}


@pytest.mark.parametrize("hide", CAUSAL.values(), ids=CAUSAL)
@pytest.mark.parametrize("is_folded", [False, True])
def test_a_causal_mask_becomes_an_attribute(hide: Any, is_folded: bool) -> None:
    """Every query sees itself, so no fill is left to be carried over."""
    graph = program(lambda q, k, v: mat_mul(softmax(hide(scores(q, k))), v), **QKV)
    graph = run(FoldConstants(), graph).graph if is_folded else graph
    found = recognised(graph)
    assert (found["mask_kind"], found["empty_row"]) == ("causal", "zero")


@pytest.mark.parametrize(
    "mask",
    [np.tri(3, k=1, dtype=bool), np.tri(3, k=-1, dtype=bool), np.tri(3, dtype=bool).T, np.ones((3, 3), bool)],
    ids=["one ahead", "one behind", "upper", "everything"],
)
def test_another_mask_stays_a_mask(mask: np.ndarray) -> None:
    graph = program(lambda q, k, v: mat_mul(softmax(where(mask, scores(q, k), -math.inf)), v), **QKV)
    assert recognised(graph)["mask_kind"] == "custom"


def test_an_added_bias_stays_a_bias_with_what_its_infinities_do() -> None:
    graph = program(lambda q, k, v, b: mat_mul(softmax(scores(q, k) + b), v), **QKV, b="f32[3, 3]")
    found = recognised(graph)
    assert (found["mask_kind"], found["empty_row"]) == ("bias", "nan")


def test_a_bias_that_cannot_be_infinite_leaves_no_empty_rows() -> None:
    def make(q: Any, k: Any, v: Any, m: Any) -> Any:
        return mat_mul(softmax(scores(q, k) + (1.0 - cast(m, to=q.dtype)) * -1e9), v)

    assert recognised(program(make, **QKV, m="bool[3]"))["empty_row"] == "zero"


def test_sizes_may_be_unknown() -> None:
    types = dict.fromkeys("qkv", "f32[batch, 2, seq, 4]")
    graph = program(lambda q, k, v: mat_mul(softmax(scores(q, k)), v), **types)
    assert recognised(graph)["layout"] == "bhsd"


def test_weights_that_are_read_elsewhere_stay() -> None:
    graph = program(lambda q, k, v: (lambda p: (mat_mul(p, v), p))(softmax(scores(q, k))), **QKV)
    result = run(RecogniseAttention(), graph)
    assert result.graph is graph
    assert [m.kind for m in result.misses] == ["IsOutput"]
