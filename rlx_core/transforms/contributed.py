"""Rules that plugins contribute, as an engine reads them: one is imported when a transformation meets its op.

A contributed rule stands in for the op's own, so nothing but speed is lost where one cannot be used: it is left out with a
warning, and the op is transformed as if there were none. Only an op that has no other rule is refused, with the cause.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Final, get_args

from attrs import field

from rlx_core.contributions import RuleSpec
from rlx_core.errors import PluginError, RlxError
from rlx_core.errors.contained import contained
from rlx_core.ir.declared import rule_complaint
from rlx_core.ir.graph import Graph
from rlx_core.ir.op import Op
from rlx_core.ir.rules import Kind, Rules
from rlx_core.plugins import ContributionFault, PluginHost, Registry, default_host
from rlx_core.system.records import frozen
from rlx_core.transforms.engine import STANDARD, Engine

__all__ = ["ContributedRules", "engine_for", "rule_fault", "using"]

KINDS: Final = get_args(Kind)

_host: ContextVar[Callable[[], PluginHost] | None] = ContextVar("plugins with rules", default=None)


@contextmanager
def using(host: Callable[[], PluginHost]) -> Iterator[None]:
    """Take contributed rules from the plugins of `host`, which is called if any are needed, inside the block."""
    token = _host.set(host)
    try:
        yield
    finally:
        _host.reset(token)


def engine_for(graph: Graph) -> Engine:
    """Where rules for the ops of `graph` come from: the ops themselves, and the plugins that extend their domains."""
    host = (_host.get() or default_host)()
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
    """The contributed rules of a registry by kind and op, of those that can be used.

    Attributes:
        specs: Their records; what one leads to is imported when it is asked for.
    """

    registry: Registry
    specs: Mapping[tuple[str, str], RuleSpec]
    _known: dict[tuple[str, str], Callable[..., Any] | None] = field(factory=dict, init=False)

    def __getitem__(self, key: tuple[str, str]) -> Callable[..., Any]:
        if key not in self._known:
            self._known[key] = self._load(self.specs[key])
        found = self._known[key]
        if found is None:
            raise KeyError(key)
        return found

    def _load(self, spec: RuleSpec) -> Callable[..., Any] | None:
        found: Callable[..., Any] | None = self.registry.usable(
            "rules", spec.name, lambda rule: rule_fault(rule, spec, self.registry)
        )
        return None if found is None else self._guarded(found, spec)

    def _guarded(self, rule: Callable[..., Any], spec: RuleSpec) -> Callable[..., Any]:
        """The rule; when it raises, it is left out with a warning, and the op's own rule is used if there is one.

        An op without one has its rule derived from the next transformation on.
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
                own = getattr(op, kind)
                if own is None:
                    raise
            return own(*args, **kwargs)

        return guarded

    def lost(self, op: str) -> tuple[ContributionFault, ...]:
        """The rules for an op that cannot be used."""
        left_out = self.registry.left_out
        names = [spec.name for (_, name), spec in self.specs.items() if name == op]
        return tuple(left_out["rules", name] for name in names if ("rules", name) in left_out)

    def __iter__(self) -> Iterator[tuple[str, str]]:
        return iter(self.specs)

    def __len__(self) -> int:
        return len(self.specs)


def rule_fault(rule: object, spec: RuleSpec, registry: Registry) -> str | None:
    """What is wrong with a contributed rule, or `None`."""
    if not callable(rule):
        return f"it is a {type(rule).__name__}, not a function of the op and what the method of that name takes"
    try:
        op = registry.load("ops", spec.op)
    except RlxError:
        return None  # an op that no plugin offers, or not in a form that can be asked
    return rule_complaint(rule, spec.kind, op, "op") if isinstance(op, type) and issubclass(op, Op) else None
