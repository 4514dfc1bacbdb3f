"""Dead code goes; the signature, effects and everything an output needs stay."""

import numpy as np

from rlx_core.ir.graph import Builder
from rlx_core.ir.interpret import interpret
from rlx_core.ir.op import Op, define_op
from rlx_core.ir.types import spec
from rlx_core.ops.activation import exp
from rlx_core.ops.arithmetic import negative
from rlx_core.passes.dead_code import DeadCode
from rlx_core.passes.engine.base import Context
from rlx_core.passes.engine.sweep import prune

X = spec("f32[4]")


def test_nodes_that_nothing_needs_are_dropped():
    b = Builder()
    x = b.input("x", X)
    exp(negative(x))
    graph = b.finish([negative(x, name="kept")])
    result = DeadCode().run(graph, Context())
    assert [n.op.name for n in result.graph.nodes] == ["core.input", "rlx.neg"]
    assert result.counts == {"removed": 2}
    assert result.values[graph.outputs[0]] is result.graph.find("kept")


def test_unused_inputs_and_params_stay_in_the_signature():
    b = Builder()
    x = b.input("x", X)
    b.input("ids", spec("i64[2]"))
    b.param("w", X)
    exp(x)
    after = DeadCode().run(b.finish([x]), Context()).graph
    assert list(after.input_types) == ["x", "ids"]
    assert list(after.param_types) == ["w"]
    (out,) = interpret(after, {"x": np.ones(4), "ids": np.zeros(2)}, {"w": np.ones(4)})
    np.testing.assert_array_equal(out, np.ones(4))


def test_effects_are_kept(noise):
    b = Builder()
    x = b.input("x", X)
    noise(exp(x))
    graph = b.finish([x])
    assert DeadCode().run(graph, Context()).graph is graph


def test_unused_constants_go():
    b = Builder()
    b.constant(np.ones(100))
    assert len(DeadCode().run(b.finish([b.input("x", X)]), Context()).graph) == 1


@define_op(domain="test")
class Pick(Op):
    """Operand i as result i."""

    def infer(self, *x):
        return tuple(x)

    def reference(self, *x):
        return tuple(x)


@prune(Pick)
def fewer(op, used, *operands):
    kept = [i for i, is_used in enumerate(used) if is_used]
    return None if len(kept) == len(used) else (op, [operands[i] for i in kept], kept)


def test_single_results_go_where_the_op_says_how_and_what_fed_them_goes_too():
    b = Builder()
    x = b.input("x", X)
    first, _, third = Pick()(negative(x), exp(x), x)
    graph = b.finish([third + 0, first])
    result = DeadCode().run(graph, Context())
    assert [n.op.name for n in result.graph.nodes if not n.is_leaf] == ["rlx.neg", "test.pick", "rlx.add"]
    assert [len(n.results) for n in result.graph.nodes if n.op.name == "test.pick"] == [2]
    assert result.values[first] is result.graph.outputs[1]
    data = np.arange(4.0)
    for before, after in zip(interpret(graph, {"x": data}), interpret(result.graph, {"x": data}), strict=True):
        np.testing.assert_array_equal(before, after)


def test_results_of_other_ops_are_kept_whole():
    b = Builder()
    x = b.input("x", X)
    graph = b.finish([Pick()(x, negative(x))[1]])
    after = DeadCode().run(graph, Context()).graph
    assert DeadCode().run(after, Context()).graph is after
