"""Common parts of fusion and recognition passes: they run only for targets with a kernel for the resulting op.

A fusion is a rule set with a check. `claims` asks whether the target has kernels of the op at all, `Accepted` whether one of
them takes the very node that would be created; if not, the chain stays, and the miss names the kernel that refused and the
reason.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Collection, Iterable, Sequence
from typing import ClassVar

from attrs.validators import ge

from rlx_core.ir.graph import Graph, Node, Value, probe
from rlx_core.ir.op import Op
from rlx_core.ir.types import TensorType
from rlx_core.passes.engine.apply_rules import ROUNDS, apply_rules, manual_of
from rlx_core.passes.engine.base import LOWERED, Context, Pass, RefusalView, Result, define_pass, each_graph, field
from rlx_core.passes.engine.rules import Declined, RuleSet
from rlx_core.passes.engine.splice import Draft
from rlx_core.system.records import frozen


def claims(context: Context, ops: Collection[type[Op]]) -> bool:
    """Return whether the target has kernels for any of `ops`; without a target, or kernels, everything is claimed."""
    kernels = None if context.target is None else context.target.kernels
    return not kernels or any(kernels.claims(op) for op in ops)


class FusionPass(Pass):
    """A pass that groups nodes into ops of `makes`, for targets with kernels for those."""

    is_fusion: ClassVar[bool] = True
    requires: ClassVar = frozenset({LOWERED})
    makes: ClassVar[tuple[type[Op], ...]]

    @abstractmethod
    def fuse(self, graph: Graph, context: Context) -> Result:
        """Return one graph with its fusions; graphs nested in it are done."""

    def run(self, graph: Graph, context: Context) -> Result:
        if not claims(context, self.makes):
            return Result.unchanged(graph)
        return each_graph(graph, lambda g: self.fuse(g, context))


def both_orders(node: Node) -> tuple[tuple[Value, Value], tuple[Value, Value]]:
    """Return the operands of a sum or a product in both orders."""
    left, right = node.present()
    return (left, right), (right, left)


def refusal_of(context: Context, node: Node) -> Declined | None:
    """Return the reason why the target would not run `node` by a kernel; `None` if it would."""
    if context.target is None:
        return None
    refusals: Sequence[RefusalView]
    if context.dispatcher is not None:
        answer = context.dispatcher.answer(node)
        if answer.means == "native":
            return None
        refusals, reason = answer.refusals, answer.reason
    else:
        selection = context.target.kernels.choose(node)
        if selection.kernel is not None:
            return None
        refusals, reason = selection.refusals, ""
    reasons = "; ".join(f"{r.kernel} {r.reason}" for r in refusals) or reason or "no kernel takes it"
    return Declined(f"{context.target.name} does not run {node.op.name}: {reasons}", "NoKernel")


class Judge:
    """The target's answers about ops that a fusion would create; cached by op and its operands' types."""

    def __init__(self, context: Context) -> None:
        self.context = context
        self.known: dict[tuple[Op, tuple[TensorType, ...]], tuple[Op, Declined | None]] = {}

    def __call__(self, op: Op, types: Iterable[TensorType]) -> tuple[Op, Declined | None]:
        """Return the op (the first of equal ones), and the reason why the target would not run it on operands of such types."""
        key = op, tuple(types)
        if key not in self.known:
            self.known[key] = op, refusal_of(self.context, probe(*key))
        return self.known[key]


@frozen(eq=False)
class Accepted:
    """The condition that the target runs every node of the ops `makes` in a draft."""

    context: Context
    makes: tuple[type[Op], ...]

    def __call__(self, draft: Draft) -> Declined | None:
        for node in draft.builder.nodes:
            refusal = refusal_of(self.context, node) if isinstance(node.op, self.makes) else None
            if refusal is not None:
                return refusal
        return None


def fusion_of(rules: RuleSet, ops: tuple[type[Op], ...]) -> type[Pass]:
    """The pass that applies a rule set whose results are `ops`; it has the set's name and manual."""
    domain, _, short = rules.name.partition(".")

    @define_pass(short, domain=domain)
    class Fusion(FusionPass):
        rules_applied: ClassVar[RuleSet] = rules
        makes: ClassVar = ops

        disable: tuple[str, ...] = ()
        rounds: int = field(default=ROUNDS, validator=ge(1))

        def fuse(self, graph: Graph, context: Context) -> Result:
            active = self.rules_applied.without(self.disable)
            return apply_rules(graph, active, self.rounds, Accepted(context, self.makes))

    Fusion.__doc__ = manual_of(rules)
    Fusion.__name__ = Fusion.__qualname__ = "".join(word.title() for word in short.split("-"))
    return Fusion


# -------------------------------------------------------------------------- nodes that may disappear (R1)


def users_outside(graph: Graph, value: Value, inside: Collection[Node]) -> list[Node]:
    """The nodes that read `value` and are not `inside`, one entry an edge."""
    return [user for user in graph.uses[value] if user not in inside]


def declined_if_kept(graph: Graph, inner: Collection[Node], inside: Collection[Node]) -> Declined | None:
    """Return the reason why the nodes `inner` cannot disappear into a pattern that covers `inside`; `None` if they can.

    They can if nothing but the pattern reads them, however often it does, and none of them is an output.
    """
    for node in inner:
        for value in node.results:
            if value in graph.output_set:
                return Declined(f"{value!r} is an output", "IsOutput")
            if users_outside(graph, value, inside):
                return Declined(f"{value!r} has {len(graph.uses[value])} uses", "MultiConsumer")
    return None
