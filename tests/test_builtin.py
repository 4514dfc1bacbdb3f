"""rlx's own plugin says truly what there is, and imports none of it."""

import importlib
import subprocess
import sys

import pytest

from rlx_core import builtin
from rlx_core.ir.block import Block
from rlx_core.ir.op import Op
from rlx_core.ops import family_names
from rlx_core.ops.families import FAMILIES, Family
from rlx_core.passes.engine.base import PassRecord
from rlx_core.passes.engine.rules import RuleSet
from rlx_core.plugins import PluginHost


@pytest.fixture(scope="module")
def registry():
    return PluginHost([]).registry()


def defined_ops(parent: type[Op] = Op) -> set[tuple[str, str]]:
    """Module and name of every op class of the standard ops."""
    below = {each for op in parent.__subclasses__() for each in defined_ops(op)}
    is_standard = parent.__module__.startswith("rlx_core.ops.") and parent.name.startswith("rlx.")
    return below | {(parent.__module__.removeprefix("rlx_core.ops."), parent.name)} if is_standard else below


def test_the_table_has_all_ops_that_the_modules_define():
    for module in family_names():
        importlib.import_module(f"rlx_core.ops.{module}")

    assert defined_ops() == {(m, f"rlx.{name}") for m, names in FAMILIES.items() for name in names.split()}


@pytest.mark.parametrize("module", FAMILIES)
def test_a_family_has_the_ops_of_its_row_in_order(module):
    assert [op.name for op in Family(module)] == [f"rlx.{name}" for name in FAMILIES[module].split()]


def test_every_op_is_found_by_its_name(registry):
    for name in registry.ops:
        assert registry.load("ops", name).name == name


def test_every_block_is_found_by_its_name_and_is_an_op_too(registry):
    assert registry.blocks
    for name in registry.blocks:
        assert issubclass(registry.load("blocks", name), Block)
        assert registry.load("ops", name) is registry.load("blocks", name)


@pytest.mark.parametrize("spec", builtin.rlx_passes(), ids=lambda s: s.name)
def test_every_pass_is_where_it_is_said_to_be(spec, registry):
    found = registry.load("passes", spec.name)
    assert issubclass(found, PassRecord)
    assert found.name == spec.name
    assert found.__doc__, "its manual"
    assert spec.summary


@pytest.mark.parametrize("spec", builtin.rlx_rulesets(), ids=lambda s: s.name)
def test_every_rule_set_is_where_it_is_said_to_be(spec, registry):
    found = registry.load("rulesets", spec.name)
    assert isinstance(found, RuleSet)
    assert found.name == spec.name
    assert found.doc


def test_offering_everything_imports_no_op_and_no_pass():
    program = (
        "import sys; from rlx_core.plugins import PluginHost; r = PluginHost([]).registry(); assert len(r.ops) > 50;"
        "print([m for m in sys.modules if m.startswith(('rlx_core.ops.', 'rlx_core.passes.'))])"
    )
    environment = {"PYTHONPATH": ":".join(p for p in sys.path if p)}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, check=True, text=True)
    assert done.stdout.strip() == "['rlx_core.ops.families']"
