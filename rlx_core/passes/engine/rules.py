"""Rewrite rules: a left side, a right side, and the licence to exchange them.

    @ruleset("algebra")
    def algebra(x):
        yield rewrite("neg-neg", -(-x)).to(x)

The engine (`apply_rules.py`) holds every rule to the same conditions, so that a rule states only its equation: a value that
disappears has one use and is no output, the replacement has the same types and needs no new guard, it stands where the root
stood (so it can make no cycle), names and origins are kept, and rules run to a fixed point or to a bound that is reported.
"""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cached_property
from typing import Any

from attrs import evolve, field

from rlx_core.errors import ConfigError, UnknownNameError, nearest
from rlx_core.ir.graph import Constant, Graph, Input, Node, Value
from rlx_core.ir.op import Op
from rlx_core.passes.engine.patterns import PatternMatch, matches, ops_wanted, orders, pattern_variables
from rlx_core.passes.engine.splice import Draft, draft
from rlx_core.system.records import frozen

__all__ = [
    "Accepts",
    "Declined",
    "Left",
    "Match",
    "Predicate",
    "RewriteRule",
    "RuleSet",
    "predicate",
    "rewrite",
    "ruleset",
]


@frozen(eq=False)
class Match:
    """An instance of a rule's left side in a graph.

    Attributes:
        graph: The graph as it was before this round.
        root: The node that would be replaced.
        bindings: The bindings of the variables, in that graph.
        placed: Old value → value in the graph being built.
    """

    graph: Graph
    root: Node
    bindings: PatternMatch
    placed: Mapping[Value, Value]

    def __getitem__(self, name: str) -> Any:
        """Return the value or the attribute that a variable is bound to, in the graph before this round."""
        return self.bindings.values[name] if name in self.bindings.values else self.bindings.attributes[name]

    def new(self, value: Value) -> Value:
        """Return the value in the graph being built for a value of the old graph; right sides are built from these."""
        return self.placed[value]

    @property
    def operands(self) -> tuple[Value | None, ...]:
        """The root's operands in the graph being built."""
        return tuple(None if v is None else self.placed[v] for v in self.root.operands)

    @property
    def inner(self) -> tuple[Node, ...]:
        """The nodes that the pattern covers except the root, constants left out."""
        return tuple(n for n in self.bindings.nodes if n is not self.root)

    def arguments(self) -> dict[str, Any]:
        """Variables by name, values as they are in the graph being built."""
        return {
            **{n: self.placed[v] for n, v in self.bindings.values.items()},
            **self.bindings.attributes,
            "match": self,
        }


@frozen
class Declined:
    """The reason why a rule does not take a place whose core it matched; a right side returns it instead of a replacement.

    Attributes:
        reason: In words, with the values in question.
        kind: The same in one word, for reports that count ("MultiConsumer", "DtypeMismatch").
    """

    reason: str
    kind: str = "NotFused"


Accepts = Callable[[Draft], "Declined | None"]
"""A last condition on a drafted replacement: whether the target has a kernel for it, say."""


@frozen
class Predicate:
    """A named condition on a match; the name is what "why did this not fire?" prints."""

    name: str
    holds: Callable[[Match], bool] = field(eq=False)


def predicate(name: str) -> Callable[[Callable[[Match], bool]], Predicate]:
    """Name a condition for use with `when`."""
    return lambda holds: Predicate(name, holds)


@frozen(eq=False)
class Left:
    """A rule under construction: it has a name and a left side."""

    name: str
    pattern: Value | type[Op]

    def to(self, right: Any) -> RewriteRule:
        """The rule with this right side: a pattern, or a function of the match.

        A function takes the variables by name (values of the new graph, attributes as they are), and `match` if it wants all
        of it. It returns the replacement, or `None` to decline.
        """
        return RewriteRule(self.name, self.pattern, right)


@frozen(eq=False)
class RewriteRule:
    """One equation, read from left to right.

    Attributes:
        name: Unique in its set.
        left: A pattern, or an op class for "every node of this op".
        right: A pattern, or a function of the match.
        conditions: Further conditions on a match.
        gives_up: The law of arithmetic that the exchange breaks; `None` for an exact rule.
        is_sharing: Inner values may have other users and stay for them. Rules whose right side is a bare variable always
            may: nothing is computed twice.
        samples: Types (and attributes) to try it on, by variable; see `rule_checks.py`.
        group: The name of its set.
    """

    name: str
    left: Value | type[Op]
    right: Any
    conditions: tuple[Predicate, ...] = ()
    gives_up: str | None = None
    is_sharing: bool = False
    samples: tuple[Mapping[str, Any], ...] = ()
    group: str = ""

    def when(self, *conditions: Predicate) -> RewriteRule:
        """The rule under further conditions."""
        return evolve(self, conditions=(*self.conditions, *conditions))

    def giving_up(self, law: str) -> RewriteRule:
        """Return the rule with the law of arithmetic that it violates in floating point."""
        return evolve(self, gives_up=law)

    def sharing(self) -> RewriteRule:
        """The rule, also where inner values have other users."""
        return evolve(self, is_sharing=True)

    def sampled(self, **sample: Any) -> RewriteRule:
        """The rule with one more sample to be checked on."""
        return evolve(self, samples=(*self.samples, sample))

    @property
    def key(self) -> str:
        return f"{self.group}/{self.name}" if self.group else self.name

    @property
    def root(self) -> type[Op]:
        """The op at the root of the left side."""
        return type(self.left.node.op) if isinstance(self.left, Value) else self.left

    @cached_property
    def wanted(self) -> tuple[str, ...]:
        """The parameters of a right side that is a function."""
        return tuple(inspect.signature(self.right).parameters)

    @property
    def keeps_inner(self) -> bool:
        return self.is_sharing or not isinstance(self.left, Value) or is_variable(self.right)

    @cached_property
    def outline(self) -> tuple[tuple[tuple[type[Op], ...] | None, ...], ...]:
        """The ops of the root's operands, in each order that is tried; `None` where a variable matches anything."""
        if not isinstance(self.left, Value):
            return ()
        return tuple(tuple(map(ops_wanted, operands)) for operands in orders(self.left.node))

    def may_begin(self, node: Node) -> bool:
        """Return whether `node` and its operands have the pattern's ops: this excludes most nodes without matching."""
        if not isinstance(self.left, Value):
            return True
        if len(node.results) != 1:
            return False
        operand_ops = [None if v is None else type(v.node.op) for v in node.operands]
        return any(
            len(expected) == len(operand_ops)
            and all(w is None or f in w for w, f in zip(expected, operand_ops, strict=True))
            for expected in self.outline
        )

    def instances(self, node: Node) -> Iterator[PatternMatch]:
        """Yield the matches of the left side at `node`."""
        if isinstance(self.left, Value):
            if self.may_begin(node):
                yield from matches(self.left, node.result)
        elif type(node.op) is self.left:
            yield PatternMatch(nodes=(node,))

    def refusal(self, match: Match) -> str | None:
        """Return the reason why the rule does not take this match, or `None` (its types are tested once it is built)."""
        if not self.keeps_inner:
            for node in match.inner:
                declined = kept_for(match.graph, node)
                if declined:
                    return declined
        return next((f"needs {c.name}" for c in self.conditions if not c.holds(match)), None)

    def build(self, match: Match) -> Draft | Declined | None:
        """The right side for a match, drafted; `None` or the reason if it declines."""
        if isinstance(self.right, Value):
            return draft(lambda: instantiate(self.right, match.arguments()), self.name)
        arguments = match.arguments()
        declined: list[Declined] = []

        def make() -> Any:
            replacement = self.right(**{name: arguments[name] for name in self.wanted})
            if not isinstance(replacement, Declined):
                return replacement
            declined.append(replacement)
            return None

        return draft(make, self.name) or (declined[0] if declined else None)

    def __repr__(self) -> str:
        suffix = f", giving up {self.gives_up}" if self.gives_up else ""
        return f"<rule {self.key}{suffix}>"


def rewrite(name: str, left: Value | type[Op]) -> Left:
    """Begin a rule.

    Raises:
        ConfigError: The left side is a bare variable or a constant, which would match everything.
    """
    if isinstance(left, Value) and isinstance(left.node.op, Input | Constant):
        raise ConfigError(f"rule {name}: its left side has no op, so it would match everything")
    return Left(name, left)


def is_variable(right: Any) -> bool:
    return isinstance(right, Value) and isinstance(right.node.op, Input)


def kept_for(graph: Graph, node: Node) -> str | None:
    """Return the reason why an inner node cannot disappear: it has another use, or is an output."""
    for value in node.results:
        if value in graph.output_set:
            return f"{value!r} is an output"
        uses = len(graph.uses[value])
        if uses > 1:
            return f"{value!r} has {uses} uses"
    return None


def instantiate(pattern: Value, arguments: Mapping[str, Any]) -> Any:
    """Return a right side that is a pattern, with its variables bound; numbers stay weakly typed."""
    node = pattern.node
    if isinstance(node.op, Input):
        return arguments[node.op.label]
    if isinstance(node.op, Constant):
        return node.op.value.array.item() if node.op.value.array.ndim == 0 else node.op.value.array
    attributes = {
        name: arguments[a.node.op.label]
        for name, a in node.op.attributes().items()
        if isinstance(a, Value) and isinstance(a.node.op, Input)
    }
    op = evolve(node.op, **attributes) if attributes else node.op
    return op(*(None if v is None else instantiate(v, arguments) for v in node.operands))


# ------------------------------------------------------------------------------------------------ sets


@frozen(eq=False, repr=False)
class RuleSet:
    """Rules in the order in which they are tried; sets concatenate with `+`.

    Attributes:
        name: `domain.name`.
        make: Returns the rules; called once, when they are first needed, so that right sides may be defined below the set.
        doc: Common description of the rules.
    """

    name: str
    make: Callable[[], Iterable[RewriteRule]]
    doc: str = ""

    @cached_property
    def rules(self) -> tuple[RewriteRule, ...]:
        rules = tuple(self.make())
        keys = Counter(r.key for r in rules)
        twice = [key for key, count in keys.items() if count > 1]
        if twice:
            raise ConfigError(f"{self.name}: two rules are called {twice[0]!r}")
        return rules

    def __iter__(self) -> Iterator[RewriteRule]:
        return iter(self.rules)

    def __len__(self) -> int:
        return len(self.rules)

    def __add__(self, other: RuleSet) -> RuleSet:
        name, doc = f"{self.name}+{other.name}", f"{self.doc}\n\n{other.doc}".strip()
        return RuleSet(name, lambda: (*self.rules, *other.rules), doc)

    def __getitem__(self, name: str) -> RewriteRule:
        rule = next((r for r in self.rules if name in (r.name, r.key)), None)
        if rule is None:
            raise UnknownNameError(
                f"{self.name}: it has no rule {name!r}", hint=nearest(name, [r.name for r in self.rules])
            )
        return rule

    def without(self, names: Iterable[str]) -> RuleSet:
        """The set less some rules, each named by its name or its key.

        Raises:
            UnknownNameError: It has no rule of that name.
        """
        dropped = {self[name].key for name in names}
        if not dropped:
            return self
        return RuleSet(self.name, lambda: [r for r in self.rules if r.key not in dropped], self.doc)

    def __repr__(self) -> str:
        return f"<rule set {self.name}: {len(self.rules)} rules>"


def ruleset(name: str, *, domain: str = "rlx") -> Callable[[Callable[..., Iterable[RewriteRule]]], RuleSet]:
    """Make a generator of rules a rule set called `domain.name`; its parameters are the pattern variables."""

    def define(rules: Callable[..., Iterable[RewriteRule]]) -> RuleSet:
        def make() -> Iterator[RewriteRule]:
            variables = pattern_variables(list(inspect.signature(rules).parameters))
            return (evolve(r, group=name) for r in rules(**variables))

        return RuleSet(f"{domain}.{name}", make, inspect.getdoc(rules) or "")

    return define
