"""A configuration resolves to one plan: the same passes, options and hash wherever and in whatever order it is made."""

import json
import random
import subprocess
import sys

import numpy as np
import pytest

from rlx_core.contributions import LegalizationSpec, PassSpec, PipelineSpec, RuleSetSpec
from rlx_core.errors import ConfigError, PassOrderError, PluginError, UnknownNameError
from rlx_core.hooks import hookimpl
from rlx_core.ir.graph import Builder
from rlx_core.ir.interpret import interpret
from rlx_core.ir.types import spec
from rlx_core.ops.activation import exp, gelu
from rlx_core.ops.families import Family
from rlx_core.passes.engine.base import LirPass, Pass, Result, define_pass
from rlx_core.passes.engine.rules import rewrite, ruleset
from rlx_core.pipeline.config.reading import read_table
from rlx_core.pipeline.dispatch import LegalizationTable
from rlx_core.pipeline.plan import resolve_plan
from rlx_core.plugins import PluginHost, given_entry


@define_pass("count", domain="acme")
class Count(Pass):
    """Nothing is changed; the options are for the tests."""

    is_fusion = True

    rounds: int = 1
    words: tuple[str, ...] = ()

    def run(self, graph, context):
        return Result(graph, Result.unchanged(graph).values, {"rounds": self.rounds})


@define_pass("late", domain="acme")
class Late(LirPass):
    def run(self, program, context):
        return program


@ruleset("tidy", domain="acme")
def tidy(x):
    """Two exponentials are none."""
    yield rewrite("exp-exp", exp(exp(x))).to(x)


table = LegalizationTable("acme.rewrites")


class Acme:
    """A plugin, as a module would be one."""

    @hookimpl
    def rlx_passes(self):
        return [
            PassSpec("acme.count", Count),
            PassSpec("acme.late", Late),
            PassSpec("acme.lost", "no_such_module:Lost"),
        ]

    @hookimpl
    def rlx_rulesets(self):
        return [RuleSetSpec("acme.tidy", tidy)]

    @hookimpl
    def rlx_pipelines(self):
        return [
            PipelineSpec("acme.quick", {"mir": ["acme.count", "lower-hir", "legalize"]}),
            PipelineSpec("acme.wrong", {"mri": []}),
        ]

    @hookimpl
    def rlx_legalizations(self):
        return [LegalizationSpec("toy", "acme.rewrites", table)]


@pytest.fixture
def registry():
    return PluginHost([given_entry(Acme())]).activate_all()


@pytest.fixture
def target(target_with):
    return target_with(*((op, None) for op in Family("arithmetic")), (exp.op, None))


def plan(registry, table, target=None):
    return resolve_plan(read_table(table), registry, target)


def mine(*mir, hir=(), lir=()):
    return {"use": "mine", "pipeline": {"mine": {"hir": list(hir), "mir": list(mir), "lir": list(lir)}}}


def test_the_default_pipelines_of_the_core_resolve(registry, target):
    for name in ("inference", "training", "none"):
        names = [p.name for p in plan(registry, {"use": name}, target).passes]
        assert "rlx.dead-code" in names[names.index("rlx.legalize") :]  # what legalising leaves behind is swept up


def test_a_program_runs_through_the_plan(registry, target):
    b = Builder()
    x = b.input("x", spec("f32[4]"))
    graph = b.finish([exp(x) * 1 + exp(x), x - 0])
    run = plan(registry, {}, target).run(graph)
    assert [n.op.name for n in run.graph.nodes] == ["core.input", "rlx.exp", "rlx.add"]
    assert run.notes["dispatch"].compile_ready
    data = np.array([0.0, -0.0, np.inf, 1.5], "f4")
    for before, after in zip(interpret(graph, {"x": data}), interpret(run.graph, {"x": data}), strict=True):
        np.testing.assert_array_equal(before, after)


def test_bare_names_are_the_cores_and_others_are_said_in_full(registry):
    names = [p.name for p in plan(registry, mine("cse", "rlx.cse", "acme.count", "acme.tidy", "algebra")).passes]
    assert names == ["rlx.cse", "rlx.cse", "acme.count", "acme.tidy", "rlx.algebra"]


def test_options_come_from_the_line_before_the_table_before_the_default(registry):
    config = mine("acme.count", {"acme.count": {"rounds": 3}}) | {
        "passes": {"acme.count": {"rounds": 2, "words": ["a"]}}
    }
    first, second = plan(registry, config).passes
    assert (first.record.rounds, first.record.words) == (2, ("a",))
    assert second.record.rounds == 3


def test_rule_sets_are_passes_with_options(registry):
    made = plan(registry, mine({"algebra": {"disable": ["neg-neg"], "rounds": 2}})).passes[0].record
    assert made.options() == {"disable": ("neg-neg",), "rounds": 2}


@pytest.mark.parametrize(
    ("lines", "error", "says", "hint"),
    [
        (["csee"], UnknownNameError, "pipeline.mine.mir[0]: no plugin provides a pass or a rule set called 'rlx.csee'",
         "did you mean `rlx.cse`?"),
        ([{"fold-constants": {"limt": 3}}], ConfigError, "fold-constants: limt: unknown key", "did you mean `limit`?"),
        ([{"fold-constants": {"limit": "3"}}], ConfigError, "limit: found '3' (string), wanted an integer", None),
        ([{"fold-constants": {"limit": -1}}], ConfigError, "limit: must be >= 0", None),
        ([{"cse": {}, "dead-code": {}}], ConfigError, "an entry is a name or { name = { options } }", None),
        (["acme.late"], ConfigError, "acme.late is a pass of lir, not of mir", None),
        (["acme.lost"], PluginError, "no_such_module", None),
    ],
)  # fmt: skip
def test_a_wrong_line_is_answered_with_its_place_and_the_nearest_name(registry, lines, error, says, hint):
    with pytest.raises(error) as caught:
        plan(registry, mine(*lines))
    assert says in str(caught.value)
    assert hint is None or caught.value.hint == hint


def test_an_unknown_pipeline_lists_those_there_are(registry):
    with pytest.raises(UnknownNameError, match="inference") as caught:
        plan(registry, {"use": "inferense"})
    assert caught.value.hint == "did you mean `inference`?"


def test_a_contributed_pipeline_with_a_fault_names_its_plugin(registry):
    with pytest.raises(ConfigError, match=r"pipeline acme\.wrong: mri: unknown key"):
        plan(registry, {"use": "acme.wrong"})


def test_options_for_a_pass_that_does_not_exist_are_refused(registry):
    with pytest.raises(ConfigError, match=r"passes\.csee") as caught:
        plan(registry, {"passes": {"csee": {}}})
    assert caught.value.hint == "did you mean `cse`?"


def test_a_wrong_order_is_refused_before_anything_runs(registry, target):
    with pytest.raises(PassOrderError, match="requires that the program is lowered") as caught:
        plan(registry, mine("legalize", "lower-hir"), target)
    assert caught.value.hint == "move rlx.lower-hir before rlx.legalize"


def test_a_plan_for_a_target_must_end_legal(registry, target):
    with pytest.raises(PassOrderError, match="at its end the program must be legal"):
        plan(registry, mine("cse"), target)
    assert plan(registry, mine("cse")).target is None


def test_fusion_passes_are_left_out_where_fusion_is_off(registry):
    config = mine("acme.count", "cse")
    assert [p.name for p in plan(registry, config | {"fusion": {"enabled": False}}).passes] == ["rlx.cse"]
    assert "left out: acme.count" in str(plan(registry, config | {"fusion": {"enabled": False}}))


def test_target_rewrites_of_plugins_take_part(registry, target):
    assert plan(registry, {}, target).dispatcher.tables == (table,)
    assert plan(registry, {}, target).summary["legalizations"] == ["acme.rewrites"]


def test_the_plan_prints_and_is_json(registry, target):
    made = plan(registry, {"use": "acme.quick"}, target)
    text = str(made)
    assert text.startswith(f"plan {made.hash[:12]}: pipeline acme.quick for toy")
    assert "acme.count" in text
    content = json.loads(made.to_json())
    assert content["hash"] == made.hash
    assert [p["name"] for p in content["passes"]] == ["acme.count", "rlx.lower-hir", "rlx.legalize"]


class TestHash:
    def test_what_cannot_change_a_program_is_not_in_it(self, registry, target):
        base = plan(registry, {}, target).hash
        for table in ({"printing": {"verbose": True}}, {"cache": {"disk": False}}, {"verify": False}):
            assert plan(registry, table, target).hash == base

    @pytest.mark.parametrize(
        "table",
        [
            {"use": "none"},
            {"passes": {"fold-constants": {"limit": 7}}},
            {"dispatch": {"policy": "force-common"}},
            {"fusion": {"policy": "fusable"}},
            {"memory": {"alignment": 256}},
            {"memory": {"alignment": 128}},
        ],
    )
    def test_what_can_is(self, registry, target, table):
        assert plan(registry, table, target).hash != plan(registry, {}, target).hash

    def test_kernels_are(self, registry, target, target_with):
        fewer = target_with(*((op, None) for op in Family("arithmetic")))
        assert plan(registry, {}, fewer).hash != plan(registry, {}, target).hash

    @pytest.mark.medium
    def test_it_is_the_same_in_every_order_of_installation(self, target):
        class Other:
            @hookimpl
            def rlx_passes(self):
                return [PassSpec("other.count", Count)]

        entries = [given_entry(Acme()), given_entry(Other())]
        hashes = set()
        for seed in range(20):
            random.Random(seed).shuffle(entries)
            hashes.add(plan(PluginHost(entries).activate_all(), {}, target).hash)
        assert len(hashes) == 1

    @pytest.mark.medium
    def test_it_is_the_same_for_every_hash_seed(self):
        program = (
            "from rlx_core.plugins import PluginHost; from rlx_core.pipeline.plan import resolve_plan;"
            "from rlx_core.pipeline.config.reading import read_table;"
            "print(resolve_plan(read_table({}), PluginHost([]).registry()).hash)"
        )
        environment = {"PYTHONPATH": ":".join(p for p in sys.path if p)}
        found = {
            subprocess.run(
                [sys.executable, "-c", program],
                env=environment | {"PYTHONHASHSEED": seed},
                capture_output=True, check=True, text=True,
            ).stdout
            for seed in ("0", "1", "12345")
        }  # fmt: skip
        assert len(found) == 1


def test_verification_can_be_switched_off(registry):
    @define_pass("breaker", domain="acme")
    class Breaker(Pass):
        def run(self, graph, context):
            b = Builder(graph.name)
            x = b.input("x", spec("f32[4]"))
            b.emit(gelu.op(), [x], types=(spec("i32[7]"),))
            return Result(b.finish([x]), {})

    b = Builder()
    graph = b.finish([b.input("x", spec("f32[4]"))])
    from attrs import evolve

    made = plan(registry, mine("cse"))
    broken = evolve(made, passes=(evolve(made.passes[0], record=Breaker()),))
    with pytest.raises(Exception, match="i32") as caught:
        broken.run(graph)
    assert "acme.breaker" in str(caught.value)
    evolve(broken, configuration=read_table({"verify": False})).run(graph)


class Placed:
    """A plugin whose passes say where they belong."""

    @hookimpl
    def rlx_passes(self):
        return [
            PassSpec("placed.early", Count, before=["rlx.cse"]),
            PassSpec("placed.late", Count, after=["placed.early", "rlx.dead-code"]),
            PassSpec("placed.torn", Count, after=["rlx.legalize"], before=["rlx.canonicalize"]),
            PassSpec("placed.lost", Count),
        ]


def names_with(table):
    host = PluginHost([Placed()])
    return [p.origin.partition(" of ")[0] for p in resolve_plan(read_table(table), host.registry()).passes]


def test_included_passes_stand_where_their_records_say():
    """After the first pass that they must follow, else before the first that must follow them."""
    mir = ["canonicalize", "cse", "dead-code", "cse", "legalize"]
    pipeline = {"hir": ["lower-hir"], "mir": mir}
    found = names_with({"use": "mine", "pipeline.mine": pipeline, "include": ["placed.late", "placed.early"]})

    assert found == [
        "pipeline.mine.hir[0]", "pipeline.mine.mir[0]", "include[1]", "pipeline.mine.mir[1]", "pipeline.mine.mir[2]",
        "include[0]", "pipeline.mine.mir[3]", "pipeline.mine.mir[4]",
    ]  # fmt: skip
    assert "include[0]" in names_with({"include": ["placed.late"]})  # into a pipeline that nobody spelt out


@pytest.mark.parametrize(
    ("table", "error", "says"),
    [
        ({"include": ["placed.lost"]}, ConfigError, r"placed\.lost does not say where it belongs"),
        ({"include": ["placed.torn"]}, PassOrderError, r"placed\.torn: it must come after rlx\.legalize and before"),
        ({"include": ["placed.gone"]}, UnknownNameError, r"include\[0\]: no plugin provides"),
        (
            {"use": "mine", "pipeline.mine": {"mir": ["cse", "placed.early"]}},
            PassOrderError,
            r"placed\.early: its record says that it comes before rlx\.cse",
        ),
    ],
)
def test_a_place_that_there_is_none_of_is_refused(table, error, says):
    with pytest.raises(error, match=says):
        names_with(table)
