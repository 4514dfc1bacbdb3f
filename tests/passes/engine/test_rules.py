"""The rewrite engine: matching, the conditions it holds every rule to, and what it says when a rule does not fire."""

import numpy as np
import pytest

from rlx_core.errors import ConfigError, TraceError, UnknownNameError, VerifyError
from rlx_core.ir.dtypes import f32
from rlx_core.ir.graph import Builder
from rlx_core.ir.interpret import interpret
from rlx_core.ir.types import spec
from rlx_core.ops.activation import exp, log, tanh
from rlx_core.ops.arithmetic import multiply
from rlx_core.ops.conversion import Cast, cast
from rlx_core.ops.structural import Transpose, sum_axes, transpose
from rlx_core.passes.engine.apply_rules import apply_rules, explain, pass_of
from rlx_core.passes.engine.base import Context
from rlx_core.passes.engine.patterns import some
from rlx_core.passes.engine.predicates import is_integer, only_use
from rlx_core.passes.engine.rule_checks import check_rule
from rlx_core.passes.engine.rules import RuleSet, predicate, rewrite, ruleset

X = spec("f32[2, 3]")


@ruleset("toy", domain="test")
def toy(x, y, p, q):
    """Rules for trying the engine."""
    yield rewrite("neg-neg", -(-x)).to(x)
    yield rewrite("fuse", exp(log(x)) * y).to(tanh(x + y))
    yield rewrite("turn-turn", some(Transpose, perm=q)(some(Transpose, perm=p)(x))).to(
        lambda x, p, q: transpose(x, tuple(p[i] for i in q))
    )
    yield rewrite("same", x - x).to(lambda x: multiply(x, 0))


def program(make, *types):
    b = Builder()
    inputs = [b.input(n, spec(t)) for n, t in zip("xyz", types or (X, X), strict=False)]
    made = make(*inputs)
    return b.finish(made if isinstance(made, list) else [made])


def ops(graph):
    return [n.op.name.split(".")[1] for n in graph.nodes if not n.is_leaf]


def run(make, rules=toy, *types):
    return apply_rules(program(make, *types), rules)


def test_a_rule_replaces_what_its_left_side_covers():
    result = run(lambda x, y: exp(-(-x)))
    assert ops(result.graph) == ["exp"]
    assert result.counts == {"toy/neg-neg": 1}


def test_a_fixed_point_is_reached_through_several_rounds():
    result = run(lambda x, y: -(-(-(-(-x)))))
    assert ops(result.graph) == ["neg"]
    assert apply_rules(result.graph, toy).graph is result.graph


def test_a_graph_in_which_nothing_fires_is_the_very_same_and_its_near_misses_are_told():
    plain = program(lambda x: exp(-x), X)
    done = apply_rules(plain, toy)
    assert done.graph is plain
    assert done.values == {v: v for n in plain.nodes for v in n.results}
    assert not done.misses

    kept = program(lambda x, y: (shared := log(x), exp(shared) * y + shared)[1])
    done = apply_rules(kept, toy)
    assert done.graph is kept
    assert [(miss.rule, "uses" in miss.reason) for miss in done.misses] == [("toy/fuse", True)]


def test_commutative_operands_match_in_either_order():
    assert ops(run(lambda x, y: exp(log(x)) * y).graph) == ["add", "tanh"]
    assert ops(run(lambda x, y: y * exp(log(x))).graph) == ["add", "tanh"]


def test_a_variable_stands_for_one_value():
    assert ops(run(lambda x, y: x - x).graph) == ["mul"]
    assert ops(run(lambda x, y: x - y).graph) == ["sub"]


def test_attribute_variables_bind_and_reach_the_right_side():
    result = run(lambda x: transpose(transpose(x, (2, 0, 1)), (1, 0, 2)), toy, "f32[2, 3, 4]")
    assert [n.op for n in result.graph.nodes if not n.is_leaf] == [Transpose((0, 2, 1))]


def test_attributes_that_are_left_open_match_anything():
    @ruleset("open", domain="test")
    def rules(x):
        yield rewrite("drop", some(Cast)(x)).to(x)

    assert ops(run(lambda x, y: cast(x, to=f32), rules).graph) == []


def test_numbers_match_constants_of_any_dtype_and_shape_but_not_another_zero():
    @ruleset("numbers", domain="test")
    def rules(x):
        yield rewrite("minus-zero", x - 0).to(x)

    for zero in (0.0, np.zeros((2, 3), "f4"), np.zeros((1,), "f4")):
        assert ops(run(lambda x, y, zero=zero: x - zero, rules).graph) == []
    for other in (np.float32(-0.0), np.array([0, 1, 0], "f4")):
        assert ops(run(lambda x, y, other=other: x - other, rules).graph) == ["sub"]


class TestConditions:
    """What the engine holds every rule to (SPEC 6.2)."""

    def fuse(self, x, y):
        inner = exp(log(x))
        return inner, inner * y

    def test_an_inner_value_that_is_an_output_is_kept(self):
        result = run(lambda x, y: list(self.fuse(x, y)))
        assert ops(result.graph) == ["log", "exp", "mul"]
        assert [m.reason for m in result.misses] == ["%3 is an output"]

    def test_an_inner_value_with_another_user_is_kept(self):
        def make(x, y):
            inner, product = self.fuse(x, y)
            return [product, tanh(inner)]

        result = run(make)
        assert ops(result.graph) == ["log", "exp", "mul", "tanh"]
        assert [m.reason for m in result.misses] == ["%3 has 2 uses"]

    def test_uses_are_counted_as_edges(self):
        """mul(e, e) reads e twice; fusing one of the edges would compute it twice."""

        @ruleset("edges", domain="test")
        def rules(x, y):
            yield rewrite("fuse", exp(x) * y).to(tanh(x) * y)

        assert ops(run(lambda x, y: (lambda e: e * e)(exp(x)), rules).graph) == ["exp", "mul"]

    def test_a_shared_inner_value_may_stay_where_nothing_is_computed_twice(self):
        result = run(lambda x, y: (lambda n: [-n, tanh(n)])(-x))
        assert ops(result.graph) == ["neg", "tanh"]
        assert result.counts == {"toy/neg-neg": 1}

    def test_the_replacement_has_the_same_type(self):
        """The product is [2, 3], x alone is a scalar."""

        @ruleset("types", domain="test")
        def rules(x):
            yield rewrite("one", x * 1).to(x)

        result = run(lambda x, y: x * np.ones((2, 3), "f4"), rules, "f32[]", "f32[]")
        assert ops(result.graph) == ["mul"]
        assert [m.reason for m in result.misses] == ["the replacement would be f32[], not f32[2, 3]"]

    def test_a_refused_draft_leaves_no_trace(self):
        @ruleset("types", domain="test")
        def rules(x):
            yield rewrite("shrink", exp(x)).to(lambda x: sum_axes(tanh(x), axes=(0,)))

        result = run(lambda x, y: exp(x), rules)
        assert ops(result.graph) == ["exp"]

    def test_no_rule_adds_a_guard(self):
        @ruleset("guards", domain="test")
        def rules(x, y):
            yield rewrite("assume", exp(x)).to(lambda x, match: x + match.graph.find("y") * 0)

        def assume(x, match):
            return x + match.new(match.graph.find("y"))

        rule = rewrite("assume", rules["assume"].left).to(assume)
        result = run(lambda x, y: [exp(x), y], RuleSet("test.guards", lambda: [rule]), "f32[n]", "f32[m]")
        assert ops(result.graph) == ["exp"]
        assert "guard" in result.misses[0].reason

    def test_names_origins_and_the_value_map_survive(self):
        graph = program(lambda x, y: multiply(exp(log(x)), y, name="fused"))
        result = apply_rules(graph, toy)
        node = result.graph.find("fused").node
        assert node.op.name == "rlx.tanh"
        assert node.origin.created_by == "toy/fuse"
        assert node.origin.source is not None
        assert result.values[graph.outputs[0]] is result.graph.outputs[0]

    def test_predicates_are_asked(self):
        @ruleset("when", domain="test")
        def rules(x):
            yield rewrite("add-zero", x + 0).to(x).when(is_integer)

        assert ops(run(lambda x, y: x + 0, rules, "i32[3]", X).graph) == []
        result = run(lambda x, y: x + 0, rules)
        assert ops(result.graph) == ["add"]
        assert [m.reason for m in result.misses] == ["needs the result to be an integer"]


def test_a_right_side_may_decline():
    @ruleset("decline", domain="test")
    def rules(x):
        yield rewrite("never", exp(x)).to(lambda x: None)

    assert ops(run(lambda x, y: exp(x), rules).graph) == ["exp"]


def test_the_bound_of_rounds_is_reported():
    @ruleset("forever", domain="test")
    def rules(x):
        yield rewrite("flip", exp(x)).to(lambda x: exp(-x))

    result = apply_rules(program(lambda x, y: exp(x)), rules, rounds=3)
    assert result.notes["bound"] == "test.forever: stopped after 3 rounds, while rules still fired"


def test_explain_says_for_each_rule_why_it_does_not_fire():
    graph = program(lambda x, y: [multiply(exp(tanh(x)), y, name="product"), -exp(x)])
    assert [str(m) for m in explain(graph, toy, "product")] == ["toy/fuse at %product: %2 is rlx.tanh, not rlx.log"]
    negation = explain(graph, toy, graph.outputs[1])
    assert [m.reason for m in negation] == ["%5 is rlx.exp, not rlx.neg"]
    fires = program(lambda x, y: -(-x))
    assert [m.reason for m in explain(fires, toy, fires.outputs[0])] == ["it fires"]


def test_rule_sets_concatenate_and_drop_rules_by_name():
    @ruleset("more", domain="test")
    def more(x):
        yield rewrite("drop-tanh", tanh(x)).to(x)

    both = toy + more
    assert len(both) == len(toy) + 1
    assert ops(run(lambda x, y: tanh(-(-x)), both).graph) == []
    assert ops(run(lambda x, y: tanh(-(-x)), both.without(["neg-neg"])).graph) == ["neg", "neg"]
    with pytest.raises(UnknownNameError) as caught:
        toy.without(["neg-negg"])
    assert caught.value.hint == "did you mean `neg-neg`?"


def test_two_rules_of_one_name_are_an_error():
    @ruleset("twice", domain="test")
    def rules(x):
        yield rewrite("a", exp(x)).to(x)
        yield rewrite("a", tanh(x)).to(x)

    with pytest.raises(ConfigError, match="two rules are called 'twice/a'"):
        list(rules)


def test_a_left_side_without_an_op_is_refused():
    @ruleset("bare", domain="test")
    def rules(x):
        yield rewrite("all", x).to(x)

    with pytest.raises(ConfigError, match="match everything"):
        list(rules)


def test_asking_a_pattern_variable_for_its_type_says_what_to_write_instead():
    @ruleset("asks", domain="test")
    def rules(x):
        yield rewrite("shape", exp(x.reshape(x.shape))).to(x)

    with pytest.raises(TraceError, match="a pattern variable has no shape"):
        list(rules)


def test_a_misspelt_attribute_is_refused():
    with pytest.raises(ConfigError, match=r"rlx\.transpose has no attribute 'prem'"):
        some(Transpose, prem=1)


def test_a_rule_set_is_a_pass_with_options():
    made = pass_of(toy)
    assert made.name == "test.toy"
    assert made().options() == {"disable": (), "rounds": 16}
    graph = program(lambda x, y: -(-x))
    assert ops(made().run(graph, Context()).graph) == []
    assert ops(made(disable=("neg-neg",)).run(graph, Context()).graph) == ["neg", "neg"]


def test_named_predicates_can_be_tested_alone():
    @predicate("never")
    def never(match):
        return False

    rule = toy["fuse"].when(never)
    assert [c.name for c in rule.conditions] == ["never"]
    assert only_use.name.startswith("every inner value")


class TestCheckRule:
    def test_a_true_rule_is_evaluated_on_every_dtype_it_takes(self):
        assert len(check_rule(toy["neg-neg"]).fired) >= 12

    def test_a_false_rule_is_found(self):
        @ruleset("wrong", domain="test")
        def rules(x):
            yield rewrite("add-zero", x + 0).to(x)

        with pytest.raises(VerifyError, match="wrong/add-zero: its sides differ"):
            check_rule(rules["add-zero"])

    def test_a_rule_that_never_fires_is_found(self):
        @ruleset("dead", domain="test")
        def rules(x):
            yield rewrite("never", exp(x)).to(x).when(is_integer)

        with pytest.raises(VerifyError, match="fires on no sample"):
            check_rule(rules["never"])


def test_rules_run_in_nested_graphs():
    from rlx_core.ops.call import Call

    body = program(lambda x, y: -(-x) + y)
    graph = program(lambda x, y: Call(body)(x, y))
    after = pass_of(toy)().run(graph, Context()).graph
    assert ops(after.nodes[-1].op.body) == ["add"]
    fed = {"x": np.ones((2, 3)), "y": np.ones((2, 3))}
    np.testing.assert_array_equal(interpret(after, fed)[0], interpret(graph, fed)[0])
