"""Records refuse what is wrong where it is written, and import nothing until they are asked."""

from __future__ import annotations

import sys

import pytest

from rlx_core.contributions import (
    BackendSpec,
    CommandSpec,
    EventSpec,
    ExporterSpec,
    KernelSpec,
    LazyRef,
    OpFamily,
    OpSpec,
    OptionSpec,
    PassSpec,
    PipelineSpec,
    RuleSpec,
)
from rlx_core.errors import PluginError


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: OpSpec("softly", "m:a"), "name is 'softly', not a lower-case `domain.name`"),
        (lambda: OpSpec("Acme.op", "m:a"), "name is 'Acme.op'"),
        (lambda: OpSpec(None, "m:a"), "name is None"),
        (lambda: OpSpec("acme.op", "m.a"), "text is 'm.a', not `package.module:attribute`"),
        (lambda: OpSpec("acme.op", "m:a", priority="high"), "priority is 'high', not an integer"),
        (lambda: OpSpec("acme.op", "m:a", priority=True), "priority is True"),
        (lambda: OpSpec("acme.op", "m:a", summary=None), "summary is None, not a string"),
        (lambda: PassSpec("acme.p", "m:a", before="acme.q"), "before is 'acme.q', not a tuple of names"),
        (lambda: PassSpec("acme.p", "m:a", stage="hirr"), "did you mean `hir`"),
        (lambda: BackendSpec("acme.gpu", "m:a"), "name is 'acme.gpu', not one lower-case word"),
        (lambda: KernelSpec("GPU", "m:a"), "target is 'GPU'"),
        (lambda: CommandSpec("two words", "m:a"), "name is 'two words'"),
        (lambda: RuleSpec("acme.op", "vpj", "m:a"), "did you mean `vjp`"),
        (lambda: EventSpec("pass-stop", "m:a"), "did you mean `pass-start`"),
        (lambda: ExporterSpec("acme.w", "m:a", suffixes=["acme"]), "suffixes"),
        (lambda: ExporterSpec("acme.w", "m:a", suffixes=[]), "suffixes"),
        (lambda: OptionSpec("level", int, "2", "How hard."), "default is '2', not of type int"),
        (lambda: OptionSpec("level", dict, {}, "How hard."), "type is"),
        (lambda: OptionSpec("level", int, 2, "How hard.", env="level"), "env is 'level'"),
        (lambda: PipelineSpec("acme.fast", {"mir": [object()]}), "config is"),
        (lambda: PipelineSpec("acme.fast", {1: 2}), "config is"),
    ],
)
def test_a_wrong_field_is_an_error_with_the_field_and_the_value(make, says):
    with pytest.raises(PluginError, match=says.replace("(", r"\(")) as caught:
        make()
    assert caught.value.page == "plugin"


def test_records_are_values():
    assert OpSpec("acme.op", "m:a") == OpSpec("acme.op", "m:a")
    assert len({OpSpec("acme.op", "m:a"), OpSpec("acme.op", "m:a"), OpSpec("acme.op", "m:b")}) == 2
    with pytest.raises(AttributeError):
        OpSpec("acme.op", "m:a").name = "acme.other"


def test_a_pipeline_keeps_its_own_copy():
    config = {"mir": ["acme.p"]}
    spec = PipelineSpec("acme.fast", config)
    config["mir"].append("acme.q")

    assert spec.config == {"mir": ["acme.p"]}


def test_a_reference_imports_when_it_is_resolved_and_not_before():
    sys.modules.pop("colorsys", None)
    reference = LazyRef("colorsys:rgb_to_hls")
    spec = OpSpec("acme.op", reference)

    assert "colorsys" not in sys.modules
    assert spec.load.resolve() is sys.modules["colorsys"].rgb_to_hls
    assert spec.load.resolve() is reference.resolve()


def test_a_reference_may_reach_into_a_class():
    assert LazyRef("collections:OrderedDict.fromkeys").resolve() == __import__("collections").OrderedDict.fromkeys


def test_a_reference_to_nothing_has_the_cause():
    with pytest.raises(PluginError, match="math:exq: loading it raised AttributeError") as caught:
        LazyRef("math:exq").resolve()

    assert isinstance(caught.value.__cause__, AttributeError)


class Cube:
    name = "acme.cube"


class Root:
    name = "acme.root"


@pytest.mark.parametrize("family", [{"acme.cube": Cube, "acme.root": Root}, [Cube, Root], (Root, Cube)])
def test_a_family_is_a_mapping_or_things_that_know_their_names(family):
    cube, root = OpFamily(family, ["acme.cube", "acme.root"])

    assert (cube.name, cube.load.resolve()) == ("acme.cube", Cube)
    assert (root.name, root.load.resolve()) == ("acme.root", Root)


def test_a_family_without_the_member_says_the_nearest():
    (spec,) = OpFamily({"acme.cube": Cube}, ["acme.cubes"])

    with pytest.raises(PluginError, match=r"acme\.cubes: its family does not have it") as caught:
        spec.load.resolve()
    assert caught.value.hint == "did you mean `acme.cube`?"


def test_a_class_without_a_name_is_no_op():
    with pytest.raises(PluginError, match="the class dict has no `name`"):
        OpSpec.of(dict)
