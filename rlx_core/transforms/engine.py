"""How a transformation finds the rule of an op, and what every sweep over a graph has in common.

A rule is, in this order: one contributed for the op by name, the op's own method, or nothing, in which case the sweep
derives it. An `Engine` is a value: it holds the contributed rules and goes along into nested graphs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, Final

from attrs import evolve, field, frozen

import rlx_core.ops.array_api  # noqa: F401  gives values their operators, which rules are written with
from rlx_core.errors import DtypeError, Fact, MissingRuleError, UnknownNameError
from rlx_core.ir.dims import Dim
from rlx_core.ir.graph import (
    Argument,
    Builder,
    Constant,
    Graph,
    Node,
    Value,
    as_results,
    building,
    decomposition,
    literal,
)
from rlx_core.ir.op import Op, operand_names
from rlx_core.ir.provenance import originating
from rlx_core.ir.rewrite import copy_node
from rlx_core.ir.rules import Kind, Rules, transforming
from rlx_core.ir.types import TensorType
from rlx_core.ops.structural import expand
from rlx_core.plugins.faults import Fault, as_fact

__all__ = ["STANDARD", "Engine", "dependents", "differentiable", "find_value", "fresh_name", "live_nodes", "zeros"]

_METHODS: Final[Mapping[Kind, str]] = {
    "vjp": "vjp(self, g, {operands}, *, y)",
    "jvp": "jvp(self, t, {operands}, *, y)",
    "batch": "batch(self, size, x, is_batched)",
    "decompose": "decompose(self, {operands})",
}


@frozen(eq=False)
class Engine:
    """Where rules come from while a graph is transformed.

    Attributes:
        rules: Contributed rules by (kind, op name); they stand in for the op's own.
        ignoring: (kind, op name) of rules to derive although they are written, which is how the laws compare the two.
        deriving: Ops whose rule is being derived from the other mode's, so that a circle is noticed.
        lost: The contributed rules for an op, by its name, that cannot be used.
    """

    rules: Rules = field(factory=dict)
    ignoring: frozenset[tuple[str, str]] = frozenset()
    deriving: tuple[tuple[Kind, Op], ...] = ()
    lost: Callable[[str], Sequence[Fault]] = field(default=lambda name: ())

    def rule(self, op: Op, kind: Kind) -> Callable[..., Any] | None:
        """The rule as a function of everything but the op; `None` means "derive it"."""
        key = (kind, op.name)
        if key in self.ignoring:
            return None
        if key in self.rules:
            return partial(self.rules[key], op)
        found: Callable[..., Any] | None = getattr(op, kind)
        return found

    def decomposition(self, op: Op, types: Sequence[TensorType | None]) -> Graph:
        """The op's meaning as a graph, by the rule this engine finds for it."""
        rule = self.rule(op, "decompose")
        if ("decompose", op.name) not in self.rules or rule is None:
            return decomposition(op, types)
        builder = Builder(op.name)
        with building(builder):
            names = operand_names(op, len(types))
            operands = [None if t is None else builder.input(n, t) for n, t in zip(names, types, strict=True)]
            results = as_results(rule(*operands))
        return builder.finish(results)

    def deriving_from_other_mode(self, kind: Kind, op: Op, operand: str | None = None) -> Engine:
        """The engine for a derivation from the other mode.

        Raises:
            MissingRuleError: The derivation has come back to the op it started from.
        """
        if any(k == kind and o == op for k, o in self.deriving):
            raise missing_rule(op, kind, operand, lost=self.lost(op.name))
        return evolve(self, deriving=(*self.deriving, (kind, op)))

    def vjp_of(self, body: Graph, wrt: Sequence[str]) -> Graph:
        from rlx_core.transforms.vjp import cotangents_of  # the engine is what the sweeps recurse through

        return cotangents_of(body, wrt, engine=self)

    def jvp_of(self, body: Graph, wrt: Sequence[str]) -> Graph:
        from rlx_core.transforms.jvp import tangents_of  # as above

        return tangents_of(body, wrt, engine=self)

    def batch_of(self, body: Graph, size: Dim, is_batched: Sequence[bool]) -> tuple[Graph, tuple[bool, ...]]:
        from rlx_core.transforms.batch import batched_body  # as above

        return batched_body(body, size, is_batched, engine=self)


STANDARD: Final = Engine()
"""The engine with the ops' own rules only."""


def missing_rule(op: Op, kind: Kind, operand: str | None, *facts: Fact, lost: Sequence[Fault] = ()) -> MissingRuleError:
    """The error for an op without a rule: op, transformation, operand, and the method to write.

    Args:
        lost: Contributed rules for the op that cannot be used; where there are some, mending them is the advice.
    """
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
    """Run a rule of `node`: what it makes goes to `builder` and inherits where `node` came from."""
    origin = evolve(node.origin, created_by=by)
    with building(builder), originating(origin), transforming(engine):
        yield


def padded(node_op: Op, operands: Sequence[Value | None]) -> tuple[Value | None, ...]:
    """The operands with absent trailing ones spelt out, so that a rule sees as many as the op declares."""
    if any(o.is_variadic for o in node_op.operands):
        return tuple(operands)
    return (*operands, *[None] * (len(node_op.operands) - len(operands)))


def operand_name(node: Node, index: int) -> str:
    return operand_names(node.op, len(node.operands))[index]


def zeros(builder: Builder, type: TensorType) -> Value:
    """A materialised zero, in the dtype and dims of what it stands for."""
    with building(builder):
        scalar = builder.constant(0, type.dtype)
        return expand(scalar, type.shape) if type.rank else scalar


def ones(builder: Builder, type: TensorType) -> Value:
    with building(builder):
        scalar = builder.constant(1, type.dtype)
        return expand(scalar, type.shape) if type.rank else scalar


def placeholder(builder: Builder, type: TensorType) -> Value:
    """A zero that is shared with nobody, to stand for the argument of a linear map while it is recorded."""
    with building(builder):
        (scalar,) = builder.emit(Constant(literal(0, type.dtype)), ())
        return expand(scalar, type.shape) if type.rank else scalar


def dependents(nodes: Iterable[Node], sources: Iterable[Value]) -> set[Value]:
    """`sources` and every differentiable value that is computed from one of them through differentiable values."""
    found = set(sources)
    for node in nodes:
        if any(v in found for v in node.present()):
            found.update(r for r in node.results if r.dtype.is_differentiable)
    return found


def live_nodes(nodes: Sequence[Node], outputs: Iterable[Value]) -> list[Node]:
    """The nodes that `outputs` depend on, in order: what nobody reads is not worth differentiating."""
    needed = set(outputs)
    kept: list[Node] = []
    for node in reversed(nodes):
        if any(r in needed for r in node.results):
            needed.update(node.present())
            kept.append(node)
    return kept[::-1]


def find_value(graph: Graph, handle: str | Value) -> Value:
    """The value that a name or a handle means in `graph`.

    Raises:
        UnknownNameError: The graph has no such name, or the handle is a value of another graph.
    """
    if isinstance(handle, str):
        return graph.find(handle)
    node = handle.node
    if node.index < len(graph.nodes) and graph.nodes[node.index] is node:
        return handle
    raise UnknownNameError(
        f"graph {graph.name}: {handle!r} is a value of graph {node.owner.name}",
        Fact("value", handle.type, node.origin.source),
        hint="carry it through the value map of the pass that made this graph, or use its name",
    )


def differentiable(graph: Graph, handle: str | Value, transformation: str, derivative: str) -> Value:
    """The value that a handle names, which must have derivatives.

    Args:
        transformation: Who asks (`grad`), and `derivative`, what for (`gradient`): for the error.

    Raises:
        DtypeError: It holds integers or booleans. And see `find_value`.
    """
    value = find_value(graph, handle)
    if not value.dtype.is_differentiable:
        name = handle if isinstance(handle, str) else repr(handle)
        raise DtypeError(
            f"{transformation}: {name} is {value.type}; {value.dtype} has no {derivative}",
            Fact("value", value.type, value.node.origin.source),
        )
    return value


def fresh_name(taken: Iterable[str], name: str) -> str:
    """`name`, or `name` with the first number that makes it new."""
    known = set(taken)
    count, candidate = 1, name
    while candidate in known:
        count += 1
        candidate = f"{name}__{count}"
    return candidate


def pruned(graph: Graph, outputs: Sequence[Value], *, name: str | None = None, without: Iterable[str] = ()) -> Graph:
    """The graph with these outputs, and of its nodes only what they need and the leaves that are fed.

    Args:
        graph: What to copy.
        outputs: Values of it.
        name: Another name for the copy.
        without: Inputs to leave out although they are fed; nothing the outputs need may read them.
    """
    builder = Builder(name or graph.name)
    builder.add_guards(graph.guards)
    live = {n.index for n in live_nodes(graph.nodes, outputs)}
    dropped = set(without)
    values: dict[Value, Value] = {}
    for node in graph.nodes:
        is_fed = isinstance(node.op, Argument) and node.op.label not in dropped
        if node.index in live or is_fed:
            operands = [None if v is None else values[v] for v in node.operands]
            values.update(zip(node.results, copy_node(builder, node, operands), strict=True))
    return builder.finish(values[v] for v in outputs)
