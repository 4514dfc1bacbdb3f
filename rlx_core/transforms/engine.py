"""Lookup and execution of the transformation rule of an op.

A rule is, in this order: a rule contributed for the op by name, the op's own method, or none, in which case the sweep derives
it. An `Engine` is immutable: it has the contributed rules and is passed on to nested graphs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, Final

from attrs import evolve, field

from rlx_core.errors import Fact, MissingRuleError
from rlx_core.errors.contained import contained
from rlx_core.ir.dims import Dim
from rlx_core.ir.graph import (
    Builder,
    Graph,
    Node,
    building,
    decomposition,
    graph_of,
)
from rlx_core.ir.mesh import NO_AXES, Mesh
from rlx_core.ir.op import Op, operand_names
from rlx_core.ir.provenance import originating
from rlx_core.ir.rules import CustomDerivative, Kind, Rules, transforming
from rlx_core.ir.types import TensorType
from rlx_core.ops.host.effects import without_effects
from rlx_core.plugins.faults import ContributionFault, as_fact
from rlx_core.public import Registered
from rlx_core.system.records import frozen

_METHODS: Final[Mapping[Kind, str]] = {
    "vjp": "vjp(self, g, {operands}, *, y)",
    "jvp": "jvp(self, t, {operands}, *, y)",
    "batch": "batch(self, size, x, is_batched)",
    "decompose": "decompose(self, {operands})",
}


SWEEPS: Final[Registered[Kind, Callable[..., Any]]] = Registered(
    "rlx_core.transforms.vjp", "rlx_core.transforms.jvp", "rlx_core.transforms.batch"
)
"""Transformation → its sweep over the body of an op. Sweeps go through an engine, which sends them into nested graphs."""


@frozen(eq=False)
class Engine:
    """The source of rules during the transformation of a graph.

    Attributes:
        rules: Contributed rules by (kind, op name); they replace the op's own.
        ignoring: (kind, op name) of rules to derive although they are written; the law checks compare the two.
        deriving: Ops whose rule is being derived from the other mode's, to detect cycles.
        lost: The contributed rules that cannot be used, by the op's name.
        mesh: The named axis that the current batching adds; ops over that name are replaced.
    """

    rules: Rules = field(factory=dict)
    ignoring: frozenset[tuple[str, str]] = frozenset()
    deriving: tuple[tuple[Kind, Op], ...] = ()
    lost: Callable[[str], Sequence[ContributionFault]] = field(default=lambda name: ())
    mesh: Mesh = NO_AXES

    def rule(self, op: Op, kind: Kind) -> Callable[..., Any] | None:
        """Return the rule as a function of everything but the op; `None` means that it must be derived."""
        key = (kind, op.name)
        if key in self.ignoring:
            return None
        if key in self.rules:
            return partial(self.rules[key], op)
        result: Callable[..., Any] | None = getattr(op, kind)
        return result

    def decomposition(self, op: Op, types: Sequence[TensorType | None]) -> Graph:
        """Return the op's decomposition, by the rule that this engine selects."""
        rule = self.rule(op, "decompose")
        if ("decompose", op.name) not in self.rules or rule is None:
            return decomposition(op, types)
        return graph_of(op.name, types, rule, operand_names(op, len(types)))

    def deriving_from_other_mode(self, kind: Kind, op: Op, operand: str | None = None) -> Engine:
        """Return the engine for a derivation from the other mode.

        Raises:
            MissingRuleError: The derivation has returned to the op that it started from.
        """
        if any(k == kind and o == op for k, o in self.deriving):
            raise missing_rule(op, kind, operand, lost=self.lost(op.name))
        return evolve(self, deriving=(*self.deriving, (kind, op)))

    def vjp_of(self, body: Graph, wrt: Sequence[str]) -> Graph:
        result: Graph = SWEEPS["vjp"](without_effects(body), wrt, engine=self)
        return result

    def jvp_of(self, body: Graph, wrt: Sequence[str]) -> Graph:
        result: Graph = SWEEPS["jvp"](without_effects(body), wrt, engine=self)
        return result

    def batch_of(self, body: Graph, size: Dim, is_batched: Sequence[bool]) -> tuple[Graph, tuple[bool, ...]]:
        result: tuple[Graph, tuple[bool, ...]] = SWEEPS["batch"](body, size, is_batched, engine=self)
        return result


STANDARD: Final[Engine] = Engine()
"""The engine with the ops' own rules only."""


def missing_rule(
    op: Op, kind: Kind, operand: str | None, *facts: Fact, lost: Sequence[ContributionFault] = ()
) -> MissingRuleError:
    """Return the error for an op without a rule: op, transformation, operand, and the method to write.

    Args:
        lost: Contributed rules for the op that cannot be used; if there are any, the error advises to repair them.
    """
    unstated = op.why_unstated() if isinstance(op, CustomDerivative) else None
    if unstated is not None:
        return MissingRuleError(unstated[0], *facts, hint=unstated[1])
    names = ", ".join(("*" if o.is_variadic else "") + o.name for o in op.operands) or "*x"
    about = f" for operand {operand}" if operand else ""
    error = MissingRuleError(
        f"{op.name}: it has no {kind} rule{about}, and nothing to derive one from",
        *facts,
        *map(as_fact, lost),
        hint=next((fault.mend for fault in lost if fault.mend), None)
        or f"write `def {_METHODS[kind].format(operands=names)}` or `def decompose(self, {names})`"
        f" in class {type(op).__name__}",
    )
    error.__cause__ = next((fault.error for fault in lost), None)
    return error


@contextmanager
def rule_for(engine: Engine, builder: Builder, node: Node, by: str) -> Iterator[None]:
    """Run a rule of `node` inside the block: its nodes go to `builder` and inherit the origin of `node`.

    Raises:
        MissingRuleError: Raised by the rule; the line of the node is added.
    """
    origin = node.origin.by(by)
    with building(builder), originating(origin), transforming(engine):
        try:
            with contained("ops", node.op.name, f"its {by} rule"):
                yield
        except MissingRuleError as error:
            if not any(fact.label == "node" for fact in error.facts):
                error.with_fact(Fact("node", node.label, node.origin.source))
            raise
