"""Rules that plugins contribute, as an engine reads them: each is imported when a transformation meets its op.

A contributed rule replaces the op's own, so only speed is lost if it cannot be used: it is skipped with a warning, and the op
is transformed as if the rule did not exist. An op without any other rule is refused, with the cause.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, get_args

from attrs import field

from rlx_core.contributions import RuleSpec
from rlx_core.errors import PluginError, RlxError
from rlx_core.errors.contained import contained
from rlx_core.ir.declared import rule_complaint
from rlx_core.ir.graph import Graph
from rlx_core.ir.op import Op
from rlx_core.ir.rules import Kind, Rules
from rlx_core.plugins import ContributionFault, Registry, default_host
from rlx_core.system.records import frozen
from rlx_core.transforms.engine import STANDARD, Engine
from rlx_core.transforms.forward import RULE_HOST

KINDS: Final = get_args(Kind)


def engine_for(graph: Graph) -> Engine:
    """Return the engine for the ops of `graph`: rules of the ops themselves and of the plugins that extend their domains."""
    host = (RULE_HOST.get() or default_host)()
    registry = host.activate_for(*(f"domain.{node.op.name.partition('.')[0]}" for node in graph.nodes))
    specs: dict[tuple[str, str], RuleSpec] = {
        (spec.kind, spec.op): spec for spec in registry.rules.values() if spec.kind in KINDS
    }
    if not specs:
        return STANDARD
    rules = ContributedRules(registry, specs)
    return Engine(rules=rules, lost=rules.lost)


@frozen(eq=False)
class ContributedRules(Rules):
    """The usable contributed rules of a registry, by kind and op.

    Attributes:
        specs: Their records; the object that a record refers to is imported on its first use.
    """

    registry: Registry
    specs: Mapping[tuple[str, str], RuleSpec]
    _known: dict[tuple[str, str], Callable[..., Any] | None] = field(factory=dict, init=False)

    def __getitem__(self, key: tuple[str, str]) -> Callable[..., Any]:
        if key not in self._known:
            self._known[key] = self._load(self.specs[key])
        rule = self._known[key]
        if rule is None:
            raise KeyError(key)
        return rule

    def _load(self, spec: RuleSpec) -> Callable[..., Any] | None:
        rule: Callable[..., Any] | None = self.registry.usable(
            "rules", spec.name, lambda rule: rule_fault(rule, spec, self.registry)
        )
        return None if rule is None else self._guarded(rule, spec)

    def _guarded(self, rule: Callable[..., Any], spec: RuleSpec) -> Callable[..., Any]:
        """Return the rule with a guard: if it raises, it is skipped with a warning, and the op's own rule is used if it exists.

        For an op without one, later transformations derive the rule.
        """
        kind, owner = spec.kind, self.registry.owner("rules", spec.name).plugin

        def guarded(op: Op, /, *args: Any, **kwargs: Any) -> Any:
            try:
                with contained("rules", spec.name, "the rule", owner):
                    return rule(op, *args, **kwargs)
            except PluginError as error:
                if not isinstance(error.fault, ContributionFault) or error.fault.kind != "rules":
                    raise
                self.registry.leave_out(error.fault)
                self._known[kind, op.name] = None
                own_rule = getattr(op, kind)
                if own_rule is None:
                    raise
            return own_rule(*args, **kwargs)

        return guarded

    def lost(self, op: str) -> tuple[ContributionFault, ...]:
        """Return the contributed rules of an op that cannot be used."""
        left_out = self.registry.left_out
        names = [spec.name for (_, name), spec in self.specs.items() if name == op]
        return tuple(left_out["rules", name] for name in names if ("rules", name) in left_out)

    def __iter__(self) -> Iterator[tuple[str, str]]:
        return iter(self.specs)

    def __len__(self) -> int:
        return len(self.specs)


def rule_fault(rule: object, spec: RuleSpec, registry: Registry) -> str | None:
    """Return the reason why a contributed rule cannot be used, or `None`."""
    if not callable(rule):
        return f"it is a {type(rule).__name__}, not a function of the op and what the method of that name takes"
    try:
        op = registry.load("ops", spec.op)
    except RlxError:
        return None  # an op that no plugin offers, or that cannot be queried in this form
    return rule_complaint(rule, spec.kind, op, "op") if isinstance(op, type) and issubclass(op, Op) else None
