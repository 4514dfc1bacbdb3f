"""From HIR to MIR: every block becomes ops, by the lowering that the fusion policy selects.

Each op of a block carries the block's id, its label and its name, so that a report, a profile or an error can speak of
"layer0.attention" long after the block is gone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from attrs import evolve, field

from rlx_core.errors import RlxError
from rlx_core.errors.contained import contained
from rlx_core.ir.block import Block, FusionPolicy, lower_block
from rlx_core.ir.graph import (
    Builder,
    Graph,
    Input,
    Node,
    Value,
    ValueMap,
    ambient_builder,
    graph_of,
    nested_graphs,
)
from rlx_core.ir.op import Op, operand_names
from rlx_core.ir.provenance import Origin
from rlx_core.ir.rewrite import rebuild
from rlx_core.ir.types import TensorType
from rlx_core.system.records import define

__all__ = ["FusionPolicy", "has_blocks", "lower_hir"]

_PASS = "lower-hir"
_Key = tuple[int | None, ...]
_Emitted = dict[tuple[Op, _Key], tuple[Value, ...]]


def has_blocks(graph: Graph) -> bool:
    """Return whether the graph, or a graph nested in it, holds a block."""
    return any(isinstance(n.op, Block) or any(map(has_blocks, nested_graphs(n.op).values())) for n in graph.nodes)


def lower_hir(graph: Graph, policy: FusionPolicy = "direct") -> tuple[Graph, ValueMap]:
    """The graph with every block replaced by ops, in nested graphs too.

    Args:
        graph: HIR; a graph without blocks is returned as it is.
        policy: `direct` uses fused ops where a block knows one, `fusable` leaves chains for the fusion passes to find.

    Returns:
        The MIR graph and the map from old to new values.

    Raises:
        WrongInputCountError, MissingBiasError: A block's operands do not fit its attributes.
        ShapeError, DtypeError, AxisError: From the ops it becomes.
    """
    if not has_blocks(graph):
        return graph, {v: v for node in graph.nodes for v in node.results}
    lowering = _Lowering(policy)
    return rebuild(graph, lowering.replace)


@define
class _Lowering:
    """One walk over a graph.

    Attributes:
        policy: Which lowering blocks get.
        emitted: (kind of block, its operands) → the nodes that such blocks have emitted so far, by op and operands.
        bodies: (block, types of its operands) → its lowering: layers are alike.
    """

    policy: FusionPolicy
    emitted: dict[tuple[type[Block], _Key], _Emitted] = field(factory=dict)
    bodies: dict[tuple[Block, tuple[TensorType | None, ...]], Graph] = field(factory=dict)
    _ids: set[str] = field(factory=set)

    def replace(self, node: Node, operands: tuple[Value | None, ...]) -> Sequence[Value] | None:
        builder = ambient_builder()
        assert builder is not None, "rebuild makes its builder the ambient one"
        if isinstance(node.op, Block):
            return self._block(builder, node, node.op, operands)
        bodies = {k: lower_hir(g, self.policy)[0] for k, g in nested_graphs(node.op).items() if has_blocks(g)}
        if not bodies:
            return None
        return builder.emit(evolve(node.op, **bodies), operands, name=node.name, origin=node.origin)

    def _block(
        self, builder: Builder, node: Node, block: Block, operands: tuple[Value | None, ...]
    ) -> tuple[Value, ...]:
        try:
            body = self._body(block, tuple(None if v is None else v.type for v in operands))
        except RlxError as error:
            called = f" {node.name!r}" if node.name else ""
            raise type(error)(f"block {block.kind}{called}: {error.message}", *error.facts, hint=error.hint) from None
        origin = Origin(
            source=node.origin.source,
            block=node.origin.block or self._new_id(node.name or block.kind),
            label=node.origin.label or node.name or block.kind,
            created_by=_PASS,
            plugin=node.origin.plugin,
        )
        # Blocks of one kind on the same operands are slots of one computation (a shared pair of projections, say):
        # their common nodes are emitted once.
        known = self.emitted.setdefault((type(block), _key(operands)), {})
        return _copy(builder, body, operands, node.name, origin, known)

    def _body(self, block: Block, types: tuple[TensorType | None, ...]) -> Graph:
        if (block, types) not in self.bodies:
            self.bodies[block, types] = _body(block, types, self.policy)
        return self.bodies[block, types]

    def _new_id(self, name: str) -> str:
        """Return `name`, numbered if another block of the graph has it already."""
        unique = next(i for i in _numbered(name) if i not in self._ids)
        self._ids.add(unique)
        return unique


def _copy(
    builder: Builder, body: Graph, operands: Sequence[Value | None], name: str | None, origin: Origin, known: _Emitted
) -> tuple[Value, ...]:
    """The outputs of a block's body with its nodes copied, named and tagged."""
    present = (v for v in operands if v is not None)
    values: dict[Value, Value] = dict(zip(body.inputs, present, strict=True))
    builder.add_guards(evolve(g, node=g.node or origin.label, source=origin.source) for g in body.guards)
    for node in body.nodes:
        if isinstance(node.op, Input):
            continue
        new_operands = [None if v is None else values[v] for v in node.operands]
        results = known.get((node.op, _key(new_operands))) if node.op.is_pure else None
        if results is None:
            results = builder.emit(node.op, new_operands, name=name, origin=origin, types=node.types)
            known[node.op, _key(new_operands)] = results
        values.update(zip(node.results, results, strict=True))
    return tuple(values[v] for v in body.outputs)


def _key(values: Sequence[Value | None]) -> _Key:
    return tuple(None if v is None else id(v) for v in values)  # by identity: `==` on values builds a node


def _numbered(name: str) -> Iterator[str]:
    yield name
    count = 2
    while True:
        yield f"{name}#{count}"
        count += 1


def _body(block: Block, types: Sequence[TensorType | None], policy: FusionPolicy) -> Graph:
    """Return the block's lowering as a separate graph without blocks, with one input for each operand that is present."""
    with contained("blocks", block.name, "its lowering"):
        names = operand_names(block, len(types))
        body = graph_of(block.kind, types, lambda *operands: lower_block(block, operands, policy), names)
    return lower_hir(body, policy)[0]
