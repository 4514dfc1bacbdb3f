"""Dead code goes; the signature, effects and everything an output needs stay."""

import numpy as np

from rlx_core.ir.graph import Builder
from rlx_core.ir.interpret import interpret
from rlx_core.ir.types import spec
from rlx_core.ops.activation import exp
from rlx_core.ops.arithmetic import negative
from rlx_core.passes.base import Context
from rlx_core.passes.dead_code import DeadCode

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
