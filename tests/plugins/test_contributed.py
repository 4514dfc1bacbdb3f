"""Rules, kernels and ops that a plugin contributes hold where they should, and are refused with a reason elsewhere."""

import numpy as np
import pytest

import rlx_core as rlx
from rlx_core.cli.checking.contributions import contribution_faults
from rlx_core.contributions import (
    KernelSpec,
    RuleSpec,
)
from rlx_core.errors import MissingRuleError
from rlx_core.ops import Op, define_op, op_function
from rlx_core.pipeline.kernels import KernelTable
from rlx_core.plugins import PluginEntry, PluginHost, PluginPolicy, default_host

from .guests import EVERYWHERE, X, host_with, plugin_of

# ---- rules


def seven(op, g, x, *, y):
    """A wrong derivative, to be recognised by."""
    return (g * 0 + 7,)


def test_contributed_rules_hold_under_the_host_that_was_passed():
    host = host_with(plugin_of(("rules", [RuleSpec("rlx.tanh", "vjp", seven)])))

    assert rlx.jit(rlx.grad(lambda x: rlx.sum(rlx.tanh(x))), host=host)(X).tolist() == [7, 7]
    assert rlx.compile(rlx.grad(lambda x: rlx.sum(rlx.tanh(x))), rlx.spec("f32[2]"), host=host)(X).tolist() == [7, 7]
    assert rlx.grad(lambda x: rlx.sum(rlx.tanh(x)))(X).tolist() != [7, 7]  # the default host has no such plugin


def test_contributed_rules_of_a_file_hold_for_who_names_it(tmp_path):
    file = tmp_path / "seven.py"
    file.write_text(
        "from rlx_core.contributions import RuleSpec\nfrom rlx_core.hooks import hookimpl\n"
        "def seven(op, g, x, *, y): return (g * 0 + 7,)\n"
        "@hookimpl\ndef rlx_rules(): return [RuleSpec('rlx.tanh', 'vjp', seven)]\n"
    )
    config = {"plugins": {"files": [str(file)]}}

    assert rlx.jit(rlx.grad(lambda x: rlx.sum(rlx.tanh(x))), config=config)(X).tolist() == [7, 7]


def test_a_rule_for_an_op_that_does_not_exist_is_reported_with_the_nearest():
    host = host_with(plugin_of(("rules", [RuleSpec("rlx.tahn", "vjp", seven)])))

    (fault,) = contribution_faults(host)
    assert fault.reason.startswith("no plugin provides the op rlx.tahn; did you mean")


# ---- kernels


def plus_one(op, x, *, out, workspace):
    np.add(x, 1, out=out)


def test_two_kernels_of_one_name_cost_their_own_table_and_no_more():
    first, second = KernelTable("cpu"), KernelTable("cpu")
    first.register(rlx.tanh.op, name="mine", priority=1)(plus_one)
    second.register(rlx.exp.op, name="mine")(plus_one)
    host = host_with(plugin_of(("kernels", [KernelSpec("cpu", tuple(first)), KernelSpec("cpu", [*first, *second])])))

    with pytest.warns(RuntimeWarning, match="two kernels are called 'mine'"):
        assert rlx.jit(lambda x: rlx.tanh(x), host=host)(X).tolist() == (X + 1).tolist()


def test_kernels_that_can_be_read_only_once_are_refused():
    table = KernelTable("cpu")
    table.register(rlx.tanh.op)(plus_one)
    host = host_with(plugin_of(("kernels", [KernelSpec("cpu", iter(table))])))

    (fault,) = contribution_faults(host)
    assert "which can be read once" in fault.reason


def test_a_native_row_of_a_guest_is_the_guests_and_runs_on_the_last_tier():
    table = KernelTable("cpu", plugin="cpu")
    table.register(rlx.tanh.op, name="native_mine", tier="native", priority=1)(plus_one)
    host = host_with(plugin_of(("kernels", [KernelSpec("cpu", tuple(table))])))

    function = rlx.jit(lambda x: rlx.tanh(x), host=host)
    assert function(X).tolist() == (X + 1).tolist()
    assert function.report.kernels == {("rlx.tanh", "native_mine", "acme"): 1}
    assert (
        function.report.tiers.counts == {"native": 0, "library": 0, "numpy": 1}
        or len(function.report.tiers.counts) == 1
    )


def test_the_plan_covers_the_versions_of_who_brings_kernels_only():
    table = KernelTable("cpu")
    table.register(rlx.tanh.op, name="mine")(plus_one)
    plugin = plugin_of(("kernels", [KernelSpec("cpu", table)]))

    def plan_of(version: str) -> str:
        entry = PluginEntry("acme", plugin=plugin, distribution="acme-rlx", version=version, when=EVERYWHERE)
        host = PluginHost([*default_host().entries, entry], policy=PluginPolicy())
        function = rlx.jit(lambda x: rlx.tanh(x), host=host)
        function(X)
        return function.report.plan_hash

    assert plan_of("1.0") == plan_of("1.0") != plan_of("2.0")


# ---- ops


@pytest.mark.parametrize(
    ("methods", "says"),
    [
        ({}, "it has neither `decompose` nor `infer`"),
        (
            {"decompose": lambda self, x: x, "vjp": lambda self, x: (x,)},
            r"its vjp rule takes \(self, x\), and is called as vjp\(self, g, x, \*, y\)",
        ),
        ({"infer": lambda self, x: x, "batch": lambda self, x: x}, r"is called as batch\(self, size, x, is_batched\)"),
    ],
)
def test_an_op_that_cannot_be_used_as_it_is_written_is_refused_when_it_is_met(methods, says):
    odd = op_function(define_op(domain="mine")(type("Strange", (Op,), {"__doc__": "An op.", **methods})))

    with pytest.raises(MissingRuleError, match=says):
        rlx.jit(lambda x: odd(x))(X)
