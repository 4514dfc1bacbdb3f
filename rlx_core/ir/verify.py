"""The rules for a graph at its stage: every fault, with its node and the user's line, all at once.

`verify` reports and never raises; `check` raises one VerifyError that lists them. A pass that breaks a program is detected
here, before its mistake becomes a wrong number.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final

from attrs import field

from rlx_core.errors import Fact, RlxError, VerifyError
from rlx_core.ir.attributes import Encoder
from rlx_core.ir.block import Block
from rlx_core.ir.declared_kinds import kind_faults
from rlx_core.ir.dims import collecting_guards, free_symbols
from rlx_core.ir.graph import Graph, GraphArgument, Node, Value, infer, nested_graphs, symbols_inside
from rlx_core.ir.lir import IrStage
from rlx_core.ir.op import Op, check_operand_count, operand_names
from rlx_core.ir.types import TensorType
from rlx_core.system.records import frozen

__all__ = ["IrStage", "RuleViolation", "check", "fault_at", "raise_faults", "verify"]


@frozen(repr=False)
class RuleViolation:
    """One broken rule.

    Attributes:
        node: The node as the text form calls it ("%3 = rlx.matmul"), with the attribute for a nested graph; empty for
            the graph as a whole.
        message: The rule and both sides of the difference.
        source: The user's line, if it is known.
    """

    node: str
    message: str
    source: object = field(default=None, eq=False)

    def __repr__(self) -> str:
        place = f"{self.node}: " if self.node else ""
        line = f"  ({self.source!r})" if self.source is not None else ""
        return f"{place}{self.message}{line}"


_FOUND_RIGHT: Final = "_found_right"


def check(graph: Graph, stage: IrStage, *, after: str | None = None) -> None:
    """Require that `verify` finds nothing.

    Args:
        graph: The graph to check.
        stage: Its expected stage.
        after: The pass that made it, for the message.

    Raises:
        VerifyError: It finds something; every fault is a fact.
    """
    faults = verify(graph, stage)
    raise_faults(faults, f"{stage.name} graph {graph.name}{f' after {after}' if after else ''}")


def raise_faults(faults: Sequence[RuleViolation], what: str) -> None:
    """Raise one VerifyError with all faults, or do nothing without faults."""
    if faults:
        count = "1 fault" if len(faults) == 1 else f"{len(faults)} faults"
        raise VerifyError(
            f"verify: {what} has {count}",
            *(Fact(f.node or "graph", f.message, f.source) for f in faults),
        )


def verify(graph: Graph, stage: IrStage) -> list[RuleViolation]:
    """Every rule that `graph` breaks."""
    return [
        *_structure(graph),
        *_names(graph),
        *(fault for node in graph.nodes for fault in _node(node, stage)),
        *(_guards(graph, known=_known_symbols(graph)) if graph.guards else ()),
    ]


def fault_at(node: Node, message: str) -> RuleViolation:
    """A fault of one node."""
    return RuleViolation(f"{node.label} = {node.op.name}", message, node.origin.source)


# ------------------------------------------------------------------------------------------- structure


def _structure(graph: Graph) -> Iterator[RuleViolation]:
    """Yield the faults of graph structure: operands exist and come first, indices are right, outputs exist."""
    members = {id(node) for node in graph.nodes}
    seen: set[Value] = set()
    for place, node in enumerate(graph.nodes):
        if node.index != place:
            yield fault_at(node, f"its number is {node.index}, and it stands at {place}")
        for number, value in enumerate(node.operands):
            problem = None if value is None else _reference(value, members, seen)
            if problem:
                name = operand_names(node.op, len(node.operands))[number]
                yield fault_at(node, f"operand {name} ({value!r}) {problem}")
        seen.update(node.results)
    for i, value in enumerate(graph.outputs):
        problem = _reference(value, members, seen)
        if problem:
            yield RuleViolation("", f"output {i} ({value!r}) {problem}", value.node.origin.source)


def _reference(value: Value, members: set[int], seen: set[Value]) -> str | None:
    if id(value.node) not in members:
        return f"belongs to another graph ({value.node.owner.name})"
    if not 0 <= value.index < len(value.node.results):
        return f"is result {value.index} of a node with {len(value.node.results)}"
    return None if value in seen else "is used before it is computed"


def _names(graph: Graph) -> Iterator[RuleViolation]:
    leaves = [n for n in graph.nodes if isinstance(n.op, GraphArgument)]
    counts = Counter(n.op.label for n in leaves if isinstance(n.op, GraphArgument))
    for node in leaves:
        assert isinstance(node.op, GraphArgument)
        if counts[node.op.label] > 1:
            yield fault_at(node, f"{counts[node.op.label]} inputs or params are called {node.op.label!r}")


# ----------------------------------------------------------------------------------------------- nodes


def _node(node: Node, stage: IrStage) -> Iterator[RuleViolation]:
    """The faults of an op on operands of these types.

    An op, types and nested graphs never change, so a result without faults is valid in every graph that passes make of it.
    """
    key = stage is IrStage.HIR, node.operand_types, node.types
    right: set[object] = vars(node.op).setdefault(_FOUND_RIGHT, set())
    if key in right:
        return
    faults = list(_faults(node, stage))
    yield from faults
    if not faults:
        right.add(key)


def _faults(node: Node, stage: IrStage) -> Iterator[RuleViolation]:
    if stage is not IrStage.HIR and isinstance(node.op, Block):
        yield fault_at(node, f"it is a block, which {stage.name} does not have; lower the module first")
    wrong = list(_attributes(node))
    if wrong:  # rules may trip over attributes of another kind, which would only repeat the fault
        yield from wrong
        return
    yield from _operand_kinds(node)
    yield from _types(node)
    for name, body in nested_graphs(node.op).items():
        yield from _nested(node, name, body, stage)


def _attributes(node: Node) -> Iterator[RuleViolation]:
    try:
        Encoder(blob=lambda _: None, keeps_names=False).op(node.op)
    except RlxError as error:
        yield fault_at(node, error.message)
        return
    for problem in kind_faults(node.op):
        yield fault_at(node, problem)


def _operand_kinds(node: Node) -> Iterator[RuleViolation]:
    try:
        check_operand_count(node.op, node.operands)
    except RlxError as error:
        yield fault_at(node, error.message)
    if node.operands and node.operands[-1] is None:
        yield fault_at(node, "its last operand is absent; absent operands at the end are left out")


def _types(node: Node) -> Iterator[RuleViolation]:
    for problem in type_faults(node.op, node.operand_types, node.types):
        yield fault_at(node, problem)


def type_faults(op: Op, operands: Sequence[TensorType | None], types: Sequence[TensorType]) -> Iterator[str]:
    """Yield a line for each difference between declared and inferred types: dtype and dims; rank 0 and [1] are different."""
    try:
        with collecting_guards():
            inferred = infer(op, operands)
    except RlxError as error:
        yield error.message
        return
    except (TypeError, ValueError, IndexError, AttributeError, KeyError, AssertionError) as error:
        # An inference rule that cannot even look at these operands: the fault is the node's, not the verifier's.
        yield f"its inference fails ({type(error).__name__}: {error})"
        return
    if len(inferred) != len(types):
        yield f"it declares {len(types)} results, and {len(inferred)} are inferred"
    for i, (declared, actual) in enumerate(zip(types, inferred, strict=False)):
        if declared != actual:
            which = f" of result {i}" if len(inferred) > 1 else ""
            yield f"the declared type{which} is {declared}, the inferred one {actual}"


def _nested(node: Node, name: str, body: Graph, stage: IrStage) -> Iterator[RuleViolation]:
    place = f"{node.label}.{name}"
    for fault in verify(body, stage):
        yield RuleViolation(f"{place} {fault.node}".rstrip(), fault.message, fault.source or node.origin.source)
    if body.params:
        listed = ", ".join(body.param_types)
        yield RuleViolation(place, f"a nested graph takes inputs, not params ({listed})", node.origin.source)


# ---------------------------------------------------------------------------------------------- guards


def _known_symbols(graph: Graph) -> frozenset[object]:
    """Return the symbols in inputs, params and sizes among the attributes: those that a binding may have to provide."""
    return frozenset(s for node in graph.nodes for s in symbols_inside(node.op))


def _guards(graph: Graph, known: frozenset[object]) -> Iterator[RuleViolation]:
    for guard in graph.guards:
        unknown = sorted(s.name for s in free_symbols(guard.left, guard.right) - known)
        if unknown:
            yield RuleViolation(
                guard.node or "", f"guard {guard} is over {', '.join(unknown)}, unknown here", guard.source
            )
        elif not free_symbols(guard.left, guard.right):
            yield RuleViolation(
                guard.node or "", f"guard {guard} is over numbers, and is decided when it is made", guard.source
            )
