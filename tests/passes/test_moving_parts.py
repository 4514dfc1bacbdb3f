"""Passes that reshape a program's outside or its nesting: inlining, promotion, canonical form, written-out broadcasts."""

import numpy as np
import pytest

from rlx_core.errors import DtypeError, FormatError, MissingInputError, ShapeError, UnknownNameError
from rlx_core.ir.graph import Builder
from rlx_core.ir.interpret import interpret
from rlx_core.ir.types import spec
from rlx_core.ir.verify import IrStage, check
from rlx_core.ops.activation import exp
from rlx_core.ops.call import Call
from rlx_core.ops.indexing import ScatterAdd
from rlx_core.ops.movement import Narrow
from rlx_core.ops.selection import where
from rlx_core.ops.structural import Expand, Reshape, Transpose, expand, reshape, sum_axes, transpose
from rlx_core.passes.canonicalize import Canonicalize, canonicalize
from rlx_core.passes.engine.base import Context
from rlx_core.passes.inline_calls import InlineCalls
from rlx_core.passes.inline_into import inline_into
from rlx_core.passes.legalize_broadcast import LegalizeBroadcast
from rlx_core.passes.promote_params import PromoteParams, promote_params

X = spec("f32[2, 3]")


def program(make, types=("f32[2, 3]", "f32[3]"), params=()):
    b = Builder()
    leaves = [b.input(n, spec(t)) for n, t in zip("xyz", types, strict=False)]
    leaves += [b.param(n, spec(t)) for n, t in params]
    made = make(*leaves)
    return b.finish(made if isinstance(made, list) else [made])


def ops(graph):
    return [n.op.name.split(".")[1] for n in graph.nodes if not n.is_leaf]


def fed(graph):
    rng = np.random.default_rng(1)
    types = {**graph.input_types, **graph.param_types}
    return {n: rng.integers(0, 2, t.static_shape).astype(t.dtype.numpy) if t.dtype.name == "bool"
            else rng.normal(size=t.static_shape).astype(t.dtype.numpy) for n, t in types.items()}  # fmt: skip


def run(pass_, graph):
    result = pass_.run(graph, Context())
    check(result.graph, IrStage.MIR)
    for before, after in zip(interpret(graph, fed(graph)), interpret(result.graph, fed(graph)), strict=True):
        np.testing.assert_array_equal(before, after)
    assert pass_.run(result.graph, Context()).graph is result.graph, "a second run changes nothing"
    return result


class TestInlineCalls:
    def test_a_call_becomes_its_nodes(self):
        body = program(lambda x, y: [exp(x) + y, y])
        result = run(InlineCalls(), program(lambda x, y: Call(body)(x, y)[0] * 2))
        assert ops(result.graph) == ["exp", "add", "mul"]

    def test_calls_within_calls_are_inlined(self):
        inner = program(lambda x, y: exp(x) + y)
        outer = program(lambda x, y: Call(inner)(Call(inner)(x, y), y))
        assert ops(run(InlineCalls(), program(lambda x, y: Call(outer)(x, y))).graph) == ["exp", "add", "exp", "add"]

    def test_a_result_that_is_an_operand_stays_that_operand(self):
        swap = program(lambda x, y: [y, x])
        graph = program(lambda x, y: list(Call(swap)(x, y)))
        result = run(InlineCalls(), graph)
        assert [v is result.graph.find(n) for v, n in zip(result.graph.outputs, "yx", strict=True)] == [True, True]

    def test_origins_lead_to_the_body(self):
        body = program(lambda x, y: exp(x))
        node = run(InlineCalls(), program(lambda x, y: Call(body)(x, y))).graph.outputs[0].node
        assert node.origin.source.text == "body = program(lambda x, y: exp(x))"


class TestPromoteParams:
    def graph(self):
        return program(lambda x, y, w, v: x * w + v, params=[("w", "f32[3]"), ("v", "f32[2, 3]")])

    def test_only_the_listed_ones_are_promoted(self):
        after = run(PromoteParams(), self.graph()).graph
        assert list(after.param_types) == ["w", "v"]
        after = PromoteParams(names=("w",)).run(self.graph(), Context()).graph
        assert list(after.input_types) == ["x", "y", "w"]
        assert list(after.param_types) == ["v"]

    def test_an_unknown_name_lists_the_known_ones(self):
        with pytest.raises(UnknownNameError, match=r"no param 'ww' \(params: w, v\)") as caught:
            promote_params(self.graph(), ["v", "ww"])
        assert caught.value.hint == "did you mean `w`?"


class TestCanonicalize:
    def test_axes_are_counted_from_the_front_and_dims_are_written_out(self):
        def make(x, y):
            a = transpose(x, (-1, 0))
            b = expand(reshape(a, (-1, 1)), (-1, 4))
            return sum_axes(Narrow(-1, 0, 2)(b), axes=(-1,))

        after = run(Canonicalize(), program(make)).graph
        assert [n.op for n in after.nodes if not n.is_leaf][:4] == [
            Transpose((1, 0)), Reshape((6, 1)), Expand((6, 4)), Narrow(1, 0, 2),
        ]  # fmt: skip
        assert after.nodes[-1].op.axes == (1,)

    @pytest.mark.parametrize("axis", [1, -1])
    def test_the_axis_of_a_scatter_is_one_of_its_result(self, axis):
        """One update a row has an axis less than the table that it goes to."""
        scatter = ScatterAdd(size=4, axis=axis, batch_dims=1)
        graph = program(scatter, types=("f32[3]", "i64[3]"))
        after = canonicalize(graph).graph
        assert after.nodes[-1].op.axis == 1
        assert after.output_types == graph.output_types

    def test_constants_stand_on_the_right_of_commutative_ops(self):
        after = run(Canonicalize(), program(lambda x, y: (2 * x) - (1 - x))).graph
        mul, sub = (n for n in after.nodes if n.op.name in ("rlx.mul", "rlx.sub") and n is not after.nodes[-1])
        assert mul.operands[1].node.op.name == "core.constant"
        assert sub.operands[0].node.op.name == "core.constant"


class TestLegalizeBroadcast:
    @pytest.mark.parametrize(
        ("types", "suffix", "equal"),
        [
            (["f32[2, 3]", "f32[3]"], ["add"], ["reshape", "expand", "add"]),
            (["f32[2, 3]", "f32[2, 1]"], ["expand", "add"], ["expand", "add"]),
            (["f32[2, 1]", "f32[1, 3]"], ["expand", "expand", "add"], ["expand", "expand", "add"]),
            (["f32[4, 2, 3]", "f32[2, 1]"], ["reshape", "expand", "add"], ["reshape", "expand", "add"]),
            (["f32[2, 3]", "f32[2, 3]"], ["add"], ["add"]),
            (["f32[2, 3]", "f32[]"], ["add"], ["reshape", "expand", "add"]),
        ],
    )
    def test_operands_get_the_shapes_that_kernels_take(self, types, suffix, equal):
        graph = program(lambda x, y: x + y, types)
        assert ops(run(LegalizeBroadcast(), graph).graph) == suffix
        after = run(LegalizeBroadcast(form="equal"), graph).graph
        assert ops(after) == equal
        assert {v.shape for v in after.nodes[-1].operands} == {graph.outputs[0].shape}

    def test_a_condition_is_stretched_too(self):
        graph = program(lambda x, y: where(x, y, 0.0), ["bool[2, 1]", "f32[2, 3]"])
        after = run(LegalizeBroadcast(form="equal"), graph).graph
        assert {v.shape for v in after.nodes[-1].operands} == {graph.outputs[0].shape}


class TestInlineInto:
    def target(self):
        return program(lambda x, y, w: exp(x) * w, params=[("w", "f32[3]")])

    def source(self):
        b = Builder("source")
        a, w, v = b.input("a", X), b.param("scale", spec("f32[3]")), b.param("v", X)
        return b.finish([exp(a * w, name="inner") + v])

    def test_inputs_and_listed_params_are_bound_and_others_come_along_once(self):
        target, source = self.target(), self.source()
        result, (made,) = inline_into(target, source, {"a": target.outputs[0]}, {"scale": target.find("w")})
        assert list(result.graph.param_types) == ["w", "v"]
        assert result.graph.outputs[-1] is made
        assert result.graph.find("inner").node.origin.source is not None
        check(result.graph, IrStage.MIR)
        arrays = fed(result.graph)
        first, last = interpret(result.graph, arrays)
        np.testing.assert_array_equal(first, np.exp(arrays["x"]) * arrays["w"])
        np.testing.assert_array_equal(last, np.exp(first * arrays["w"]) + arrays["v"])

    def test_outputs_may_be_chosen(self):
        target, source = self.target(), self.source()
        result, made = inline_into(target, source, {"a": target.outputs[0]}, outputs=source.outputs)
        assert [v is made[0] for v in result.graph.outputs] == [True]

    def test_missing_bindings_are_all_listed(self):
        b = Builder("needy")
        source = b.finish([b.input("left", X) + b.input("right", X)])
        with pytest.raises(MissingInputError, match="needy needs left, right"):
            inline_into(self.target(), source, {})

    @pytest.mark.parametrize(
        ("bind", "error", "says"),
        [
            (lambda t: {"aa": t.outputs[0]}, UnknownNameError, "no input 'aa'"),
            (lambda t: {"a": t.find("y")}, ShapeError, "a of source is f32\\[2, 3\\], not f32\\[3\\]"),
        ],
    )
    def test_bindings_are_checked(self, bind, error, says):
        target = self.target()
        with pytest.raises(error, match=says):
            inline_into(target, self.source(), bind(target))

    def test_another_dtype_is_refused(self):
        target = program(lambda x, y: x, ["f64[2, 3]", "f32[3]"])
        with pytest.raises(DtypeError):
            inline_into(target, self.source(), {"a": target.find("x")})

    def test_two_params_never_get_one_name(self):
        target = program(lambda x, y, v: x + v, params=[("v", "f32[2, 3]")])
        with pytest.raises(FormatError, match="two inputs or params called 'v'"):
            inline_into(target, self.source(), {"a": target.find("x")})
