"""`split_vjp`: a graph and its derivative as two graphs, by names and by handles."""

from __future__ import annotations

import numpy as np
import pytest

import rlx_core as rlx
from rlx_core.errors import UnknownNameError, WrongStageError
from rlx_core.ir.graph import Builder, Graph, building, leaf_name
from rlx_core.ir.interpret import interpret
from rlx_core.ir.module import Module
from rlx_core.ir.types import spec
from rlx_core.transforms.split import split_vjp
from rlx_core.transforms.vjp import vjp_graph


def product() -> Graph:
    builder = Builder("product")
    x = builder.input("x", spec("f32[2, 3]"))
    w = builder.param("w", spec("f32[3, 4]"))
    with building(builder):
        h = x @ w
        return builder.finish([rlx.sum(rlx.tanh(h))])


def test_the_two_graphs_are_the_one() -> None:
    graph = product()
    hidden = graph.nodes[2].result
    split = split_vjp(graph, ["w", hidden], ["w"])
    rng = np.random.default_rng(0)
    given = {"x": rng.standard_normal((2, 3), np.float32), "w": rng.standard_normal((3, 4), np.float32)}
    seed = np.float32(1)

    both = interpret(vjp_graph(graph, ["w", hidden]), {**given, "d_output": seed})
    value, *saved = interpret(split.forward, given)
    kept = dict(zip(split.saved, saved, strict=True))
    found = interpret(split.backward, {"w": given["w"], **kept, "d_output": seed})

    assert [leaf_name(v) for v in split.backward.inputs] == ["w", *split.saved, "d_output"]
    for mine, its in zip((value, *found), both, strict=True):
        np.testing.assert_array_equal(mine, its)


def test_a_view_is_not_kept_and_a_value_is_kept_once() -> None:
    """The derivative reads x transposed: x itself is kept, and of tanh what its slope is made of."""
    split = split_vjp(product(), ["w"], ["w"])
    named = {n.op.name for n in split.backward.nodes}
    assert "rlx.transpose" in named
    assert not named & {"rlx.tanh"}
    assert sorted(str(split.backward.input_types[name]) for name in split.saved) == ["f32[2, 3]", "f32[2, 4]"]


def test_a_module_is_refused_by_its_stage() -> None:
    with pytest.raises(WrongStageError, match="split_vjp: takes a graph, not a Module"):
        split_vjp(Module.of_mir(product()), ["w"], ["w"])  # type: ignore[arg-type]


def test_a_shared_name_is_that_of_a_leaf() -> None:
    with pytest.raises(UnknownNameError, match="no input or param 'v'"):
        split_vjp(product(), ["w"], ["v"])
