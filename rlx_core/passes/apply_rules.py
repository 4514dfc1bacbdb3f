"""A rule set as a pass: what a pipeline runs when one of its lines names a rule set."""

from __future__ import annotations

from typing import ClassVar

from attrs.validators import ge

from rlx_core.ir.graph import Graph
from rlx_core.passes.base import Context, Pass, Result, define_pass, each_graph, field
from rlx_core.passes.rules import ROUNDS, RuleSet, apply_rules

__all__ = ["pass_of"]


def pass_of(rules: RuleSet) -> type[Pass]:
    """The pass that applies a rule set; it has the set's name and manual."""
    domain, _, short = rules.name.partition(".")

    @define_pass(short, domain=domain)
    class ApplyRules(Pass):
        rules_applied: ClassVar[RuleSet] = rules

        disable: tuple[str, ...] = ()
        rounds: int = field(default=ROUNDS, validator=ge(1))

        def run(self, graph: Graph, context: Context) -> Result:
            active = self.rules_applied.without(self.disable)
            return each_graph(graph, lambda g: apply_rules(g, active, self.rounds))

    ApplyRules.__doc__ = (
        f"{rules.doc}\n\nAttributes:\n    disable: Names of rules that do not run.\n"
        "    rounds: The most times the graph is walked; reported if rules still fire then."
    )
    return ApplyRules
