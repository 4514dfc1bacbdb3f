"""The runner refuses a wrong order first, and then times, verifies, prints and announces every pass."""

import pytest

from rlx_core.errors import PassOrderError, VerifyError
from rlx_core.ir.graph import Builder
from rlx_core.ir.types import spec
from rlx_core.ops.activation import exp
from rlx_core.passes.cse import CommonSubexpressions
from rlx_core.passes.dead_code import DeadCode
from rlx_core.passes.engine.base import Pass, Property, Result, define_pass
from rlx_core.passes.engine.order import check_order
from rlx_core.passes.engine.runner import Watch, run_passes

FLAT = Property("flat", "nothing is nested")


class Idle(Pass):
    def run(self, graph, context):
        return Result.unchanged(graph)


@define_pass("flatten", domain="test")
class Flatten(Idle):
    ensures = frozenset({FLAT})


@define_pass("needs-flat", domain="test")
class NeedsFlat(Idle):
    requires = frozenset({FLAT})


@define_pass("nest", domain="test")
class Nest(Idle):
    invalidates = frozenset({FLAT})


@define_pass("early", domain="test")
class Early(Idle):
    before = ("test.flatten",)


@pytest.fixture
def graph():
    b = Builder()
    x = b.input("x", spec("f32[4]"))
    b.input("unused", spec("f32[2]"))
    exp(exp(x))
    return b.finish([exp(x), exp(x)])


def test_what_is_required_must_be_ensured_before():
    with pytest.raises(PassOrderError, match=r"test\.needs-flat: it requires that the program is flat") as caught:
        check_order([NeedsFlat(), Flatten()])
    assert caught.value.hint == "move test.flatten before test.needs-flat"
    assert check_order([Flatten(), NeedsFlat()]) == {FLAT}


def test_what_was_undone_no_longer_holds():
    with pytest.raises(PassOrderError) as caught:
        check_order([Flatten(), Nest(), NeedsFlat()])
    assert any(f.label == "undone by" and f.value == "test.nest" for f in caught.value.facts)


def test_what_is_wanted_at_the_end_must_hold_there():
    check_order([Flatten()], required=[FLAT])
    with pytest.raises(PassOrderError, match="at its end the program must be flat") as caught:
        check_order([Flatten(), Nest()], required=[FLAT])
    assert caught.value.hint == "run test.flatten after test.nest"


def test_relations_between_passes_hold():
    check_order([Early(), Flatten()])
    with pytest.raises(PassOrderError, match=r"test\.early: it must come before test\.flatten"):
        check_order([Flatten(), Early()])


def test_nothing_runs_when_the_order_is_wrong(graph):
    seen = []
    with pytest.raises(PassOrderError):
        run_passes([Flatten(), Nest(), NeedsFlat()], graph, watch=Watch(listeners=(seen.append,)))
    assert seen == []


def test_each_pass_is_counted_timed_and_announced(graph):
    events = []
    run = run_passes([CommonSubexpressions(), DeadCode()], graph, watch=Watch(listeners=(events.append,)))
    assert [(e.event, e.name) for e in events] == [
        ("pass-start", "rlx.cse"),
        ("pass-end", "rlx.cse"),
        ("pass-start", "rlx.dead-code"),
        ("pass-end", "rlx.dead-code"),
    ]
    assert [(p.nodes_before, p.nodes_after) for p in run.passes] == [(6, 4), (4, 3)]
    assert all(p.seconds >= 0 for p in run.passes)
    assert [p.counts for p in run.passes] == [{"merged": 2}, {"removed": 1}]


def test_the_value_map_spans_all_passes(graph):
    run = run_passes([CommonSubexpressions(), DeadCode()], graph)
    assert [run.values[v] is new for v, new in zip(graph.outputs, run.graph.outputs, strict=True)] == [True, True]
    assert run.values[graph.find("unused")] is run.graph.find("unused")


def test_graphs_are_shown_around_the_passes_that_were_named(graph):
    shown = []
    watch = Watch(show=lambda heading, _: shown.append(heading), before=frozenset({"cse"}), after=frozenset({"*"}))
    run_passes([CommonSubexpressions(), DeadCode()], graph, watch=watch)
    assert shown == ["before rlx.cse", "after rlx.cse", "after rlx.dead-code"]


def test_a_pass_that_breaks_the_rules_is_named(graph):
    def check(graph, stage):
        if len(graph) < 4:
            raise VerifyError(f"{stage!r}: too small")

    with pytest.raises(VerifyError) as caught:
        run_passes([CommonSubexpressions(), DeadCode()], graph, watch=Watch(check=check))
    assert any(f.label == "after pass" and f.value == "rlx.dead-code" for f in caught.value.facts)


def test_options_are_validated_and_printed_as_configuration_spells_them():
    @define_pass("twice", domain="test")
    class Twice(Idle):
        """Do it twice."""

        how_often: int = 2

    assert Twice.name == "test.twice"
    assert Twice(how_often=3).options() == {"how-often": 3}
    assert Twice() == Twice(how_often=2)
    with pytest.raises(AttributeError):
        Twice().how_often = 4
