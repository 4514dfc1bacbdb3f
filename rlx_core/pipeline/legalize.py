"""Legalisation: rounds of rewriting nodes that the target cannot run, then one error for the remaining illegal nodes.

Each round walks the graph once and replaces every node that has no kernel by a target rewrite or by its decomposition, one
level. Legal graphs pass unchanged, so it is idempotent. The nodes that are still illegal at the fixed point are listed in one
error.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, ClassVar

from attrs import evolve

from rlx_core.errors import Fact, LegalizeError, MissingRuleError, VerifyError
from rlx_core.errors.contained import contained
from rlx_core.ir.graph import Graph, Node, Value, nested_graphs
from rlx_core.ir.op import Op
from rlx_core.ir.rewrite import rebuild
from rlx_core.ir.types import listed
from rlx_core.passes.engine.base import LEGAL, LOWERED, Context, Pass, Result, define_pass, emit_like, with_bodies
from rlx_core.passes.engine.splice import Draft, draft
from rlx_core.passes.engine.sweep import sweep
from rlx_core.pipeline.backend import Target
from rlx_core.pipeline.dispatch import Answer, Dispatch, Dispatcher, DispatchReport, LegalizationTable, row_of
from rlx_core.plugins.faults import as_fact
from rlx_core.plugins.use import leave_row_out
from rlx_core.system.records import frozen


@frozen(eq=False)
class Offender:
    """A node that the target cannot run, and why."""

    node: Node
    answer: Answer

    @property
    def tried(self) -> str:
        reasons = [f"{r.kernel} {r.reason}" for r in self.answer.refusals] or ["no kernel is registered for it"]
        return "; ".join([*reasons, self.answer.reason] if self.answer.reason else reasons)


@define_pass("legalize")
class Legalize(Pass):
    """Replace nodes without a kernel on the target: by a target rewrite, else by the decomposition, one level a round.

    The answers for all nodes are in the dispatch report (`rlx why`). The target runs a node on the host if the configuration
    allows its op under `dispatch.allow-host`. Without a target nothing is done.
    """

    requires: ClassVar = frozenset({LOWERED})
    ensures: ClassVar = frozenset({LEGAL})

    def run(self, graph: Graph, context: Context) -> Result:
        if not isinstance(context.dispatcher, Dispatcher):
            return Result.unchanged(graph)
        return legalize(graph, context.dispatcher)


def legalize(graph: Graph, dispatcher: Dispatcher) -> Result:
    """`graph` in nodes that the target runs; the report is in `notes["dispatch"]`.

    Raises:
        LegalizeError: Nodes are left that it cannot run; all of them are listed.
    """
    result, report, illegal = rewrite(graph, dispatcher)
    require_legal(illegal, dispatcher.target)
    return evolve(result, notes={**result.notes, "dispatch": report})


def rewrite(graph: Graph, dispatcher: Dispatcher) -> tuple[Result, DispatchReport, list[Offender]]:
    """Rounds of rewriting to a fixed point or to the bound; the verdict is the caller's."""
    total = Result.unchanged(graph)
    replaced: list[Dispatch] = []
    rounds = 0
    is_settled = False
    while not is_settled and rounds < dispatcher.config.rounds:
        step, rows = one_round(total.graph, dispatcher)
        is_settled = not rows
        if rows:
            rounds += 1
            replaced += rows
            total = total.then(step)
            total = total.then(sweep(total.graph))
    final, illegal = survey(total.graph, dispatcher)
    is_bounded = not is_settled and any(not o.answer.is_final for o in illegal)
    report = DispatchReport(dispatcher.target.name, (*replaced, *final), rounds, is_bounded)
    return total, report, illegal


def one_round(graph: Graph, dispatcher: Dispatcher) -> tuple[Result, list[Dispatch]]:
    """Every node that needs it replaced one level; the rows say which, in program order."""
    answers = {n: dispatcher.answer(n) for n in graph.nodes if not n.is_leaf}
    rows: list[Dispatch] = []
    bodies = {n: legal_bodies(n, dispatcher, rows) for n, a in answers.items() if enters_bodies(n, a, dispatcher)}
    changing = {n: a for n, a in answers.items() if a.means in ("rewritten", "common-ir")}
    if not changing and not rows:
        return Result.unchanged(graph), []

    def replace(node: Node, operands: tuple[Value | None, ...]) -> Sequence[Value] | None:
        if node in changing:
            results, answer = replacement(node, operands, changing[node], dispatcher)
            if results is not None:
                rows.append(row_of(node, answer))
                return results
        if node in bodies and bodies[node] is not node.op:
            return emit_like(node, operands, op=bodies[node])
        return None

    rebuilt, values = rebuild(graph, replace, by=Legalize.name)
    counts = {means: sum(r.means == means for r in rows) for means in ("rewritten", "common-ir")}
    return Result(rebuilt, values, {k: v for k, v in counts.items() if v}), rows


def replacement(
    node: Node, operands: tuple[Value | None, ...], answer: Answer, dispatcher: Dispatcher
) -> tuple[Sequence[Value] | None, Answer]:
    """Return the results of `node` by its target rewrite or its decomposition, and the answer that was actually used."""
    if answer.means == "rewritten":
        for table in dispatcher.tables:
            rule = table.find(node.op)
            drafted = None if rule is None else rewritten(rule, node, operands, table)
            if drafted is not None:
                return place(drafted, node, table.name), evolve(answer, reason=f"by {table.name}")
        # Every rewrite declined this node, so it is handled as if the target had none.
        answer = dispatcher.without_kernel(node, answer.refusals)
    if answer.means != "common-ir":
        return None, answer
    decompose = node.op.decompose or node.op.loop_form
    assert decompose is not None, "common IR is the answer only for ops that decompose or have a form in loops"
    with contained("ops", node.op.name, "its decomposition"):
        drafted = draft(partial(decompose, *operands), node.op.name)
    if drafted is None:
        raise MissingRuleError(f"{node.op.name}: its decomposition returned None", Fact("node", node.label))
    return place(drafted, node, f"the decomposition of {node.op.name}"), answer


def rewritten(
    rule: Callable[..., Any], node: Node, operands: tuple[Value | None, ...], table: LegalizationTable
) -> Draft | None:
    """The replacement of a node by one table; `None` where the table declines it, or raises, which is warned of."""
    try:
        drafted = draft(partial(rule, node.op, *operands), table.name)
        if drafted is not None and drafted.types != node.types:
            raise TypeError(f"it changed the type from {listed(node.types)} to {listed(drafted.types)}")
    except Exception as error:
        if leave_row_out("legalizations", table.name, f"the rewrite of {node.op.name}", table.plugin, error) is None:
            raise
        return None
    return drafted


def place(drafted: Draft, node: Node, by: str) -> tuple[Value, ...]:
    """Insert the draft into the graph, once its types are known to be the node's own."""
    if drafted.types != node.types:
        raise VerifyError(
            f"{node.op.name}: {by} changed its type from {listed(node.types)} to {listed(drafted.types)}",
            Fact("node", node.label, node.origin.source),
        )
    return drafted.place(node)


# --------------------------------------------------------------------------------------- nested graphs


def enters_bodies(node: Node, answer: Answer, dispatcher: Dispatcher) -> bool:
    """Return whether the node's kernel runs its nested graphs as programs, so that they must be legal as well."""
    if answer.means != "native" or answer.kernel is None or not nested_graphs(node.op):
        return False
    return dispatcher.target.kernels.get(answer.kernel).runs_nested


def legal_bodies(node: Node, dispatcher: Dispatcher, rows: list[Dispatch]) -> Op:
    """The node's op with one round done in each of its nested graphs."""

    def change(body: Graph) -> Graph:
        step, inner = one_round(body, dispatcher)
        rows.extend(inner)
        return sweep(step.graph).graph if inner else body

    return with_bodies(node.op, change)


# --------------------------------------------------------------------------------------------- verdict


def survey(graph: Graph, dispatcher: Dispatcher) -> tuple[list[Dispatch], list[Offender]]:
    """Return the answers for a graph without rewriting it, and the nodes that cannot run."""
    rows: list[Dispatch] = []
    illegal: list[Offender] = []
    for node in graph.nodes:
        if node.is_leaf:
            continue
        answer = dispatcher.answer(node)
        if answer.means == "rewritten":
            answer = dispatcher.without_kernel(node, answer.refusals)
        if answer.means == "common-ir":
            answer = evolve(answer, means="unsupported", reason=f"{answer.reason}; rewriting stopped at its bound")
        if not answer.is_final:
            illegal.append(Offender(node, answer))
        rows.append(row_of(node, answer))
        if enters_bodies(node, answer, dispatcher):
            for body in nested_graphs(node.op).values():
                inner_rows, inner = survey(body, dispatcher)
                rows += inner_rows
                illegal += inner
    return rows, illegal


def require_legal(illegal: Sequence[Offender], target: Target) -> None:
    """Require that no illegal node is left.

    Raises:
        LegalizeError: A node is illegal; one fact a node, with the attempts and the module for a kernel or a decomposition.
    """
    if not illegal:
        return
    first = illegal[0].node
    more = "" if len(illegal) == 1 else f" and {len(illegal) - 1} more"
    types = ", ".join(str(v.type) for v in first.present())
    facts = [Fact(f"{o.node.label} {o.node.op.name}", o.tried, o.node.origin.source) for o in illegal]
    names = ", ".join(dict.fromkeys(type(o.node.op).__name__ for o in illegal))
    left_out = target.kernels.left_out
    raise LegalizeError(
        f"{target.name}: nothing runs {first.op.name} on {types or 'no operands'}{more}",
        *facts,
        *map(as_fact, left_out),
        hint=next((fault.mend for fault in left_out if fault.mend), None)
        or f"register a kernel for {names} in the table of {target.name} (hook rlx_kernels), write `decompose` in the op's "
        "class, or allow the host under dispatch.allow-host",
    ) from next((fault.error for fault in left_out), None)
