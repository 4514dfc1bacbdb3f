"""Tables of rules keyed by op class."""

import pytest

from rlx_core.errors import MissingRuleError, PluginError
from rlx_core.ir.op import Op
from rlx_core.ir.rules import RuleTable
from rlx_core.ops.arithmetic import add, multiply
from rlx_core.ops.kinds import Elementwise


def test_the_rule_of_the_nearest_class_is_found():
    table = RuleTable("flops")
    table(Op)(lambda op: "any")
    table(Elementwise)(lambda op: "elementwise")
    table(add.op)(lambda op: "add")
    assert [table.apply(op) for op in (add.op(), multiply.op())] == ["add", "elementwise"]


def test_a_second_rule_for_an_op_names_the_first():
    table = RuleTable("flops")

    @table(add.op)
    def first(op):
        return 1

    with pytest.raises(PluginError) as caught:

        @table(add.op)
        def second(op):
            return 2

    assert "flops: there are two rules for rlx.add" in caught.value.message
    assert "first" in str(caught.value.facts[0].value)
    assert table.rule(add.op) is first


def test_an_op_without_a_rule_names_table_and_op():
    with pytest.raises(MissingRuleError, match=r"rlx.add: the table flops has no rule") as caught:
        RuleTable("flops").rule(add.op)
    assert "@flops(Add)" in caught.value.hint
