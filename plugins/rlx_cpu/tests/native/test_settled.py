"""Kernels that are chosen once for all sizes of a template: the choice is that of every size."""

from __future__ import annotations

from collections import Counter

import pytest
from opened import opened

import rlx_core as rlx
from rlx_core.errors import RlxError
from rlx_core.ir.bind import bind
from rlx_core.ir.dims import DimBinding
from rlx_core.ir.graph import Builder, Graph, Node, building
from rlx_core.ir.op import Op
from rlx_core.ops import standard_ops
from rlx_core.pipeline.backend import Target
from rlx_core.testing.cases import programs

SIZES = (1, 2, 3, 5, 33)


def node_of(graph: Graph, op: type[Op]) -> Node:
    return [n for n in graph.nodes if type(n.op) is op][-1]


@pytest.fixture(scope="module")
def target() -> Target:
    return rlx.compile(rlx.tanh, rlx.spec("f32[3]"), target="cpu").executable.compiled.target


@pytest.mark.parametrize("every", [pytest.param(1, marks=pytest.mark.slow), 12])
def test_what_is_settled_is_the_choice_for_every_size(target: Target, every: int) -> None:
    tried: Counter[str] = Counter()
    for program in programs(tuple(standard_ops()))[::every]:
        graph = opened(program)
        if graph is None:
            continue
        candidates = target.kernels.candidates_for_sizes(node_of(graph, program.op))
        for n in SIZES:
            try:
                bound, _ = bind(graph, DimBinding.of(n=n))
            except RlxError:
                continue  # a size that the op refuses
            node = node_of(bound, program.op)
            kernel = next((row for row, conditions in candidates if target.kernels.holds(row, conditions, node)), None)
            assert target.kernels.choose(node).kernel is kernel, f"{program} for n={n}"
            if kernel is not None:
                tried[kernel.name] += 1
    assert len(tried) > 20, "of many kernels"


def test_a_condition_that_may_ask_sizes_is_asked_again(target: Target) -> None:
    builder = Builder("sorted")
    with building(builder):
        value = rlx.sort(builder.input("x", rlx.spec("f32[n]")))
    assert target.kernels.choose(value.node).kernel is not None
    _, conditions = target.kernels.candidates_for_sizes(value.node)[0]
    assert conditions
