"""Every pass keeps the numbers of programs made at random, with every intermediate as an output and with a second user too."""

import numpy as np
import pytest

from rlx_core.ir.dtypes import dtype
from rlx_core.ir.graph import Builder, Graph
from rlx_core.ir.interpret import interpret
from rlx_core.ir.rewrite import inline
from rlx_core.ir.types import spec
from rlx_core.ir.verify import IrStage, check
from rlx_core.ops.activation import exp, tanh
from rlx_core.ops.arithmetic import maximum
from rlx_core.ops.call import Call
from rlx_core.ops.conversion import cast
from rlx_core.ops.movement import Narrow, concat
from rlx_core.ops.selection import where
from rlx_core.ops.structural import expand, reshape, sum_axes, transpose
from rlx_core.passes.algebra import algebra
from rlx_core.passes.canonicalize import Canonicalize
from rlx_core.passes.cse import CommonSubexpressions
from rlx_core.passes.dead_code import DeadCode
from rlx_core.passes.engine.apply_rules import pass_of
from rlx_core.passes.engine.base import Context
from rlx_core.passes.engine.runner import run_passes
from rlx_core.passes.fold_constants import FoldConstants
from rlx_core.passes.inline_calls import InlineCalls
from rlx_core.passes.legalize_broadcast import LegalizeBroadcast

CLEAN = [Canonicalize(), InlineCalls(), FoldConstants(), CommonSubexpressions(), pass_of(algebra)(), DeadCode()]
PASSES = [*CLEAN, LegalizeBroadcast(), LegalizeBroadcast(form="equal")]


def body() -> Graph:
    b = Builder("body")
    x = b.input("a", spec("f32[4, 6]"))
    return b.finish([tanh(x) * 1 + 0.5])


# Each makes a value of the same type from two of them, so that any sequence is a program.
STEPS = [
    lambda x, y: x + y,
    lambda x, y: 2 * x - y,
    lambda x, y: x * 1 - 0,
    lambda x, y: -(-x),
    lambda x, y: maximum(x, x),
    lambda x, y: tanh(x) + tanh(x),
    lambda x, y: transpose(tanh(transpose(x, (1, 0))), (-1, 0)),
    lambda x, y: transpose(transpose(y, (1, 0)), (1, 0)),
    lambda x, y: reshape(reshape(x, (24,)), (4, -1)),
    lambda x, y: Narrow(0, 4, 4)(concat([x, y], axis=0)),
    lambda x, y: Narrow(-1, 1, 6)(concat([x, y], axis=1)),
    lambda x, y: where(x > 0, y, 0.0),
    lambda x, y: where(np.True_, x, y),
    lambda x, y: cast(cast(x, to=dtype("f64")), to=dtype("f32")),
    lambda x, y: expand(sum_axes(y, axes=(-1,), keep_dim=True), (-1, 6)) * 0.125 + x,
    lambda x, y: x + exp(np.arange(6, dtype="f4") / 8),
    lambda x, y: x * (np.float32(3) - np.ones((4, 1), "f4")),
    lambda x, y: Call(body())(y),
]


def generated(seed: int) -> Graph:
    """A program of twelve steps, of which the last two values are its outputs."""
    rng = np.random.default_rng(seed)
    b = Builder(f"generated{seed}")
    values = [b.input("x", spec("f32[4, 6]")), b.param("w", spec("f32[4, 6]"))]
    for step in rng.integers(0, len(STEPS), 12):
        i, j = rng.integers(max(0, len(values) - 4), len(values), 2)
        values.append(STEPS[step](values[i], values[j]))
    return b.finish(values[-2:])


def with_all_values_out(graph: Graph, through_a_user: bool) -> Graph:
    """The program with every inner value as an output as well, itself or through a second user of it."""
    b = Builder(graph.name)
    inner = [n.results[0] for n in graph.nodes if not n.is_leaf and n.types[0].dtype.is_float]
    everything = inline(b, Graph(graph.name, graph.nodes, (*graph.outputs, *inner)), {})
    kept, extra = everything[: len(graph.outputs)], everything[len(graph.outputs) :]
    return b.finish([*kept, *((v + v for v in extra) if through_a_user else extra)])


def outputs(graph: Graph) -> tuple[np.ndarray, ...]:
    rng = np.random.default_rng(0)
    x, w = (rng.normal(size=(4, 6)).astype("f4") for _ in range(2))
    return interpret(graph, {"x": x}, {"w": w})


def variants(seed: int) -> dict[str, Graph]:
    graph = generated(seed)
    return {
        "as it is": graph,
        "every value out": with_all_values_out(graph, through_a_user=False),
        "every value used twice": with_all_values_out(graph, through_a_user=True),
    }


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("each", PASSES, ids=lambda p: "-".join(map(str, (p.name, *p.options().values()))))
def test_a_pass_changes_no_number_and_is_idempotent(each, seed):
    """Exact passes: equal to the last bit."""
    for graph in variants(seed).values():
        result = each.run(graph, Context())
        check(result.graph, IrStage.MIR)
        for before, after in zip(outputs(graph), outputs(result.graph), strict=True):
            np.testing.assert_array_equal(before, after)
        assert all(result.values[v] is o for v, o in zip(graph.outputs, result.graph.outputs, strict=True))
        assert all(n.origin.source is not None for n in result.graph.nodes)
        assert each.run(result.graph, Context()).graph is result.graph


@pytest.mark.parametrize("seed", range(12))
def test_all_passes_together_change_no_number(seed):
    for graph in variants(seed).values():
        run = run_passes([*CLEAN, *CLEAN], graph)
        for before, after in zip(outputs(graph), outputs(run.graph), strict=True):
            np.testing.assert_array_equal(before, after)
        assert not any(isinstance(n.op, Call) for n in run.graph.nodes)
