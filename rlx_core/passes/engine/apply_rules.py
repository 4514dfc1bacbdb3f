"""Application of rules to a graph, in rounds until none fires; and a rule set as a pass, which a pipeline runs.

The conditions that every rule obeys are checked here (`rules.py` lists them), so that a rule states only its equation.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import ClassVar, Final

from attrs import evolve
from attrs.validators import ge

from rlx_core.errors import Fact, RlxError
from rlx_core.ir.graph import Graph, Node, Value
from rlx_core.ir.op import Op
from rlx_core.ir.provenance import Origin, originating
from rlx_core.ir.rewrite import rebuild
from rlx_core.ir.types import listed
from rlx_core.passes.engine.base import Context, Miss, Pass, Result, define_pass, each_graph, emit_like, field
from rlx_core.passes.engine.patterns import mismatch
from rlx_core.passes.engine.rules import Accepts, Declined, Match, RewriteRule, RuleSet
from rlx_core.passes.engine.splice import Draft
from rlx_core.passes.engine.sweep import sweep

__all__ = ["ROUNDS", "apply_rules", "explain", "pass_of"]

ROUNDS: Final = 16
"""Default of the maximum number of rounds."""


def apply_rules(graph: Graph, rules: RuleSet, rounds: int = ROUNDS, accepts: Accepts | None = None) -> Result:
    """Return `graph` rewritten until no rule fires, or `rounds` times; nested graphs are left alone.

    `accepts` checks every replacement, in addition to the engine's conditions.

    Counts are by rule. `misses` are the near misses in the final graph; `notes["bound"]` is set if the bound was hit.
    """
    index: dict[type[Op], list[RewriteRule]] = {}
    for rule in rules:
        index.setdefault(rule.root, []).append(rule)
    total = Result.unchanged(graph)
    misses: tuple[Miss, ...] = ()
    for _ in range(rounds):
        step = one_round(total.graph, index, accepts)
        misses = tuple(step.misses)
        if not step.counts:
            return evolve(total, misses=misses)
        swept = sweep(step.graph)
        total = total.then(evolve(step, misses=())).then(evolve(swept, counts={}))
    note = f"{rules.name}: stopped after {rounds} rounds, while rules still fired"
    return evolve(total, misses=misses, notes={**total.notes, "bound": note})


def one_round(graph: Graph, index: Mapping[type[Op], list[RewriteRule]], accepts: Accepts | None = None) -> Result:
    """Every node tried once, in order; the first rule that takes a node replaces it."""
    near = near_misses(graph, index, accepts)
    if near is not None:
        return evolve(Result.unchanged(graph), misses=near)
    placed: dict[Value, Value] = {}
    counts: dict[str, int] = {}
    misses: list[Miss] = []

    def replace(node: Node, operands: tuple[Value | None, ...]) -> tuple[Value, ...]:
        results = None
        for rule in index.get(type(node.op), ()):
            replacement, declined = attempt(rule, graph, node, placed, accepts)
            if replacement is not None:
                results = replacement.place(node)
                counts[rule.key] = counts.get(rule.key, 0) + 1
                break
            if declined is not None:
                misses.append(Miss(rule.key, node.label, declined.reason, declined.kind))
        results = results or emit_like(node, operands)
        placed.update(zip(node.results, results, strict=True))
        return results

    rebuilt, values = rebuild(graph, replace)
    return Result(rebuilt, values, counts, misses)


def near_misses(
    graph: Graph, index: Mapping[type[Op], list[RewriteRule]], accepts: Accepts | None
) -> list[Miss] | None:
    """Return the near misses of a round that changes nothing; `None` if a rule takes a node, so that a new graph is needed."""
    misses: list[Miss] = []
    for node in graph.nodes:
        for rule in index.get(type(node.op), ()):
            if not rule.may_begin(node):
                continue
            with originating(node.origin):
                replacement, declined = attempt(rule, graph, node, graph.identity, accepts)
            if replacement is not None:
                return None
            if declined is not None:
                misses.append(Miss(rule.key, node.label, declined.reason, declined.kind))
    return misses


def attempt(
    rule: RewriteRule, graph: Graph, node: Node, placed: Mapping[Value, Value], accepts: Accepts | None = None
) -> tuple[Draft | None, Declined | None]:
    """Return the drafted replacement of `node` by `rule`, or the reason for none (`None` twice if the pattern does not match)."""
    declined: Declined | None = None
    for instance in rule.instances(node):
        match = Match(graph, node, instance, placed)
        refusal = rule.refusal(match)
        if refusal is not None:
            declined = Declined(refusal)
            continue
        try:
            with originating(Origin(created_by=rule.key)):
                replacement = rule.build(match)
        except RlxError as error:
            raise error.with_fact(Fact("rule", rule.key), Fact("node", node.label, node.origin.source)) from None
        if isinstance(replacement, Declined):
            declined = replacement
            continue
        reason = unfit(replacement, node)
        declined = None if reason is None else Declined(reason)
        if replacement is not None and declined is None:
            declined = None if accepts is None else accepts(replacement)
            if declined is None:
                return replacement, None
    return None, declined


def unfit(replacement: Draft | None, node: Node) -> str | None:
    """Return the reason why a drafted right side cannot replace `node`; `None` if it can, or if the rule declined."""
    if replacement is None:
        return None
    if replacement.types != node.types:
        return f"the replacement would be {listed(replacement.types)}, not {listed(node.types)}"
    return f"it would need the guard {replacement.guards[0]}" if replacement.guards else None


def explain(graph: Graph, rules: Iterable[RewriteRule], at: Node | Value | str) -> list[Miss]:
    """For each rule that begins with the op of a node: why it does not fire there, or "it fires"."""
    place = graph.find(at) if isinstance(at, str) else at
    node = place.node if isinstance(place, Value) else place
    placed = {v: v for n in graph.nodes for v in n.results}
    misses: list[Miss] = []
    for rule in rules:
        if rule.root is not type(node.op):
            continue
        replacement, declined = attempt(rule, graph, node, placed)
        reason = None if declined is None else declined.reason
        if replacement is None and reason is None:
            has_instance = next(rule.instances(node), None) is not None
            reason = "its right side declines"
            if isinstance(rule.left, Value) and not has_instance:
                reason = mismatch(rule.left, node.results[0])
        misses.append(Miss(rule.key, node.label, reason or "it fires"))
    return misses


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

    ApplyRules.__doc__ = manual_of(rules)
    return ApplyRules


def manual_of(rules: RuleSet) -> str:
    """Return the documentation of a pass that applies a rule set."""
    return (
        f"{rules.doc}\n\nAttributes:\n    disable: Names of rules that do not run.\n"
        "    rounds: The most times the graph is walked; reported if rules still fire then."
    )
