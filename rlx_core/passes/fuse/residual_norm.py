"""A residual sum and the norm of it as one op, for layer norms and RMS norms alike.

A sum that others read as well (the next residual of a pre-norm block) becomes the second result of the op, so nothing is added
twice. A bias that was added on the way joins, where it is the first thing that was added.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from rlx_core.ir.graph import Graph, Node, Value
from rlx_core.ir.op import Op
from rlx_core.ir.types import normalize_axes
from rlx_core.ops.arithmetic import add
from rlx_core.ops.fused import FusedResidualLN, FusedResidualRmsNorm
from rlx_core.ops.normalization import LayerNorm, RmsNorm
from rlx_core.passes.engine.base import Context, Miss, Result, define_pass
from rlx_core.passes.engine.fusion import FusionPass, both_orders, claims, refusal_of
from rlx_core.passes.engine.regroup import Group, Grouping, regroup
from rlx_core.passes.engine.rules import Declined
from rlx_core.passes.engine.splice import draft
from rlx_core.system.records import frozen

Fused = type[FusedResidualLN] | type[FusedResidualRmsNorm]

FUSED: dict[type[Op], Fused] = {LayerNorm: FusedResidualLN, RmsNorm: FusedResidualRmsNorm}


@define_pass("fuse-residual-norm")
class FuseResidualNorm(FusionPass):
    """Fuse `norm(x + residual [+ bias])` over the last axis; a sum with other users becomes a second result.

    Attributes:
        with_sum: Whether the form that also returns the sum may be used; without it a sum with other users stays alone.
    """

    makes: ClassVar = tuple(FUSED.values())

    with_sum: bool = True

    def fuse(self, graph: Graph, context: Context) -> Result:
        kinds = {norm: fused for norm, fused in FUSED.items() if claims(context, (fused,))}
        grouping, misses = Grouping(graph), []
        for node in graph.nodes:
            if type(node.op) not in kinds:
                continue
            outcome = self.find(graph, node, kinds[type(node.op)], context)
            if isinstance(outcome, Group) and not grouping.add(outcome):
                outcome = Declined("an operand of the norm depends on the sum", "NotFused")
            if isinstance(outcome, Declined):
                misses.append(Miss("fuse-residual-norm/residual-norm", node.label, outcome.reason, outcome.kind))
        return regroup(grouping, self.name, misses)

    def find(self, graph: Graph, norm: Node, fused: Fused, context: Context) -> Group | Declined | None:
        """Return the group that ends in `norm`; the first reading of its operand as a residual sum that the target runs."""
        declined: Declined | None = None
        for form in residual_sums(graph, norm):
            if normalize_axes(norm.op.attributes()["axes"], norm.type.rank) != (norm.type.rank - 1,):
                return Declined(
                    f"the norm is over axes {norm.op.attributes()['axes']}, not the last alone", "AxisNotLast"
                )
            result = self.group(graph, norm, form, fused, context)
            if isinstance(result, Group):
                return result
            declined = declined or result
        return declined

    def group(self, graph: Graph, norm: Node, form: ResidualSum, fused: Fused, context: Context) -> Group | Declined:
        total = form.nodes[-1].result
        is_kept = total in graph.output_set or len(graph.uses[total]) > 1
        if is_kept and not self.with_sum:
            return Declined(f"{total!r} is read elsewhere, and the form with the sum is off", "MultiConsumer")
        gamma, beta = (norm.operands[i] if len(norm.operands) > i else None for i in (1, 2))
        operands = (form.x, form.residual, gamma, beta, form.bias)
        inputs = tuple(v for v in operands if v is not None)
        op = fused(eps=norm.op.attributes()["eps"], with_sum=is_kept)

        def make(*values: Value) -> Value | tuple[Value, ...]:
            placed = iter(values)
            return op(*(None if v is None else next(placed) for v in operands))

        probe = draft(lambda: make(*inputs))
        assert probe is not None, "an op gives results"
        refusal = refusal_of(context, probe.results[0].node)
        outputs = (norm.result, total) if is_kept else (norm.result,)
        rule = fused.name.removeprefix("rlx.fused_").replace("_", "-")
        return refusal or Group((*form.nodes, norm), inputs, outputs, make, rule + ("-and-sum" if is_kept else ""))


@frozen(eq=False)
class ResidualSum:
    """One way to read a value as `x + residual [+ bias]`; `nodes` are its additions, in program order."""

    nodes: tuple[Node, ...]
    x: Value
    residual: Value
    bias: Value | None = None


def residual_sums(graph: Graph, norm: Node) -> Iterator[ResidualSum]:
    """Yield the ways to read the operand of `norm` as a residual sum, the ones with a bias first."""
    outer = operand_sum(norm.operands[0], norm)
    if outer is None:
        return
    for inner_value, residual in both_orders(outer):
        inner = operand_sum(inner_value, norm)
        if inner is None or residual.type != norm.type or graph.uses[inner_value] != (outer,):
            continue
        for x, bias in both_orders(inner):
            # (x + bias) + residual is not x + residual + bias to the last bit, so the sum must not be seen by others.
            is_seen = outer.result in graph.output_set or len(graph.uses[outer.result]) > 1
            is_match = x.type == norm.type and bias.shape == norm.type.shape[-1:]
            if is_match and not is_seen and inner_value not in graph.output_set:
                yield ResidualSum((inner, outer), x, residual, bias)
    x, residual = outer.present()
    if x.type == residual.type == norm.type:
        yield ResidualSum((outer,), x, residual)


def operand_sum(value: Value | None, norm: Node) -> Node | None:
    """Return the addition that produces `value`, if it has the type of the norm."""
    if value is None or type(value.node.op) is not add.op or value.type != norm.type:
        return None
    return value.node
