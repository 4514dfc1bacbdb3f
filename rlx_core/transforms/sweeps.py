"""The two sweeps of differentiation: cotangents flow backwards over nodes, tangents forwards.

Both work on nodes of any builder, so a traced function and a finished graph are differentiated by the same code. A missing
cotangent or tangent is a symbolic zero that is never built, and contributions to one value are added in a fixed order (the
order of the sweep). A node without a rule is decomposed in place, or its rule is the transpose of the rule for the other mode;
since each sweep is the fallback of the other, both are in this module.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from attrs import field

from rlx_core.errors import DtypeError, Fact, ShapeError
from rlx_core.ir.graph import Builder, Node, Value, as_results
from rlx_core.ir.op import ZERO, Zero
from rlx_core.ir.rules import CustomDerivative, Kind
from rlx_core.ir.types import TensorType
from rlx_core.ops.padded_sums import is_padded, sum_of_padded
from rlx_core.ops.selection import StopGradient
from rlx_core.system.records import define
from rlx_core.transforms.engine import STANDARD, Engine, missing_rule, rule_for
from rlx_core.transforms.graphs import dependents, operand_name, padded, placeholder, zeros

Tangents = Sequence["Value | Zero"]


def backward(
    builder: Builder,
    nodes: Sequence[Node],
    cotangents: Mapping[Value, Value],
    *,
    wrt: Iterable[Value] | None = None,
    engine: Engine = STANDARD,
) -> dict[Value, Value]:
    """Sweep over `nodes` in reverse and return the cotangent of every value that one reaches.

    Args:
        builder: The destination of the derivative's nodes; `nodes` may be its own.
        nodes: The nodes to differentiate, in topological order.
        cotangents: The start of the sweep: the cotangent of each of these values.
        wrt: Only cotangents needed for these values are computed; `None` means all.
        engine: The source of rules.

    Raises:
        MissingRuleError: An op on the path has no rule and none can be derived, or its rule leaves out an operand.
    """
    sums = Sums(engine, builder, dict(cotangents))
    # Rules of nodes before a `StopGradient` are not called: they need not exist.
    active = None if wrt is None else dependents((n for n in nodes if not isinstance(n.op, StopGradient)), wrt)
    for node in reversed(nodes):
        g = [sums.get(r) for r in node.results]
        needed = [
            v is not None and v.dtype.is_differentiable and (active is None or v in active) for v in node.operands
        ]
        if not any(needed) or all(isinstance(c, Zero) for c in g):
            continue
        with rule_for(engine, builder, node, "vjp"):
            for operand, cotangent in pull(engine, builder, node, g, needed):
                sums.add(operand, cotangent)
    return sums.finished()


@define(eq=False)
class Sums:
    """The cotangents that a sweep has reached; contributions are added in the order of the sweep.

    Padded contributions are kept until the value itself is visited, because together they may be a concatenation
    (`ops/padded_sums.py`).
    """

    engine: Engine
    builder: Builder
    reached: dict[Value, Value]
    padded: dict[Value, list[Value]] = field(factory=dict)

    def add(self, value: Value, cotangent: Value) -> None:
        """Add a contribution; the nodes of the sum go to the builder of the rule."""
        if is_padded(cotangent):
            self.padded.setdefault(value, []).append(cotangent)
            return
        before = self.reached.get(value)
        self.reached[value] = cotangent if before is None else before + cotangent

    def get(self, value: Value) -> Value | Zero:
        """Return the cotangent of a value to which nothing more will be contributed."""
        parts = self.padded.pop(value, None)
        if parts is not None:
            with rule_for(self.engine, self.builder, value.node, "vjp"):
                total, before = sum_of_padded(parts), self.reached.get(value)
                self.reached[value] = total if before is None else before + total
        return self.reached.get(value, ZERO)

    def finished(self) -> dict[Value, Value]:
        """Return all cotangents, after adding the pending contributions."""
        for value in list(self.padded):
            self.get(value)
        return self.reached


def pull(
    engine: Engine, builder: Builder, node: Node, g: Tangents, needed: Sequence[bool]
) -> list[tuple[Value, Value]]:
    """Return the contributions of one node to the cotangents of its `needed` operands."""
    rule = engine.rule(node.op, "vjp")
    if rule is not None:
        return _by_rule(rule, builder, node, g, needed)
    is_transposed = _is_transposed(engine, node, "vjp", "jvp", needed.index(True))
    return (_by_transposition if is_transposed else _by_decomposition)(engine, builder, node, g, needed)


def _is_transposed(engine: Engine, node: Node, kind: Kind, other: Kind, operand: int) -> bool:
    """Return whether the missing rule of a node is the transpose of its rule for the other mode, or else its decomposition's.

    Raises:
        MissingRuleError: It has neither of these; the error names the operand of this number.
    """
    can_decompose = engine.rule(node.op, "decompose") is not None
    if engine.rule(node.op, other) is not None and (isinstance(node.op, CustomDerivative) or not can_decompose):
        return True
    if can_decompose:
        return False
    where = Fact("node", node.label, node.origin.source)
    raise missing_rule(node.op, kind, operand_name(node, operand), where, lost=engine.lost(node.op.name))


def _by_rule(rule: Any, builder: Builder, node: Node, g: Tangents, needed: Sequence[bool]) -> list[tuple[Value, Value]]:
    # Rules compute with cotangents, so absent ones are built here; a result without tangents keeps the symbolic zero.
    full = [
        zeros(builder, t) if isinstance(c, Zero) and t.dtype.is_differentiable else c
        for c, t in zip(g, node.types, strict=True)
    ]
    is_single = len(full) == 1
    operands = padded(node.op, node.operands)
    cotangents = as_results(
        rule(full[0] if is_single else tuple(full), *operands, y=node.results[0] if is_single else node.results)
    )
    if not len(node.operands) <= len(cotangents) <= len(operands):
        raise ShapeError(
            f"{node.op.name}: its vjp rule gives {len(cotangents)} cotangents for {len(node.operands)} operands",
            Fact("node", node.label, node.origin.source),
        )
    contributions = []
    for index, (operand, cotangent) in enumerate(zip(node.operands, cotangents, strict=False)):
        if not needed[index] or isinstance(cotangent, Zero):
            continue
        assert operand is not None
        name = operand_name(node, index)
        if cotangent is None:
            raise missing_rule(node.op, "vjp", name, Fact("node", node.label, node.origin.source))
        check_linear(node, "vjp", f"the cotangent of {name}", cotangent, operand.type)
        contributions.append((operand, cotangent))
    return contributions


def check_linear(node: Node, kind: str, what: str, actual: Any, expected: TensorType) -> None:
    """Require that each value that a rule returned has the type of the value that it belongs to.

    Raises:
        DtypeError, ShapeError: It has another dtype, or other dims.
    """
    where = Fact("node", node.label, node.origin.source)
    if not isinstance(actual, Value):
        raise DtypeError(f"{node.op.name}.{kind}: {what} must be a value or ZERO, not {type(actual).__name__}", where)
    if actual.dtype is not expected.dtype:
        raise DtypeError(f"{node.op.name}.{kind}: {what} must be {expected}, not {actual.type}", where)
    if actual.shape != expected.shape and actual.type.is_static and expected.is_static:
        raise ShapeError(f"{node.op.name}.{kind}: {what} must be {expected}, not {actual.type}", where)


def _by_decomposition(
    engine: Engine, builder: Builder, node: Node, g: Tangents, needed: Sequence[bool]
) -> list[tuple[Value, Value]]:
    decompose = engine.rule(node.op, "decompose")
    assert decompose is not None
    start = len(builder.nodes)
    results = as_results(decompose(*padded(node.op, node.operands)))
    seeds = _paired(results, g)
    # One entry per operand value, however often the node reads it: the inner sweep has summed its uses.
    targets = list(dict.fromkeys(v for v, w in zip(node.operands, needed, strict=True) if w and v is not None))
    reached = backward(builder, builder.nodes[start:], seeds, wrt=targets, engine=engine)
    return [(v, reached[v]) for v in targets if v in reached]


def _by_transposition(
    engine: Engine, builder: Builder, node: Node, g: Tangents, needed: Sequence[bool]
) -> list[tuple[Value, Value]]:
    """Return the VJP as the transpose of the op's JVP: the tangent map is recorded on placeholders and swept backwards."""
    inner = engine.deriving_from_other_mode("vjp", node.op, operand_name(node, needed.index(True)))
    tangents: list[Value | Zero] = [
        placeholder(builder, v.type) if w and v is not None else ZERO
        for v, w in zip(node.operands, needed, strict=True)
    ]
    start = len(builder.nodes)
    seeds = _paired(push(inner, builder, node, tangents), g)
    targets = [t for t in tangents if not isinstance(t, Zero)]
    reached = backward(builder, builder.nodes[start:], seeds, wrt=targets, engine=inner)
    return [
        (v, reached[t])
        for v, t in zip(node.operands, tangents, strict=True)
        if v is not None and not isinstance(t, Zero) and t in reached
    ]


def _paired(values: Tangents, cotangents: Tangents) -> dict[Value, Value]:
    """Return each value's cotangent; for a value that occurs at several positions, their sum."""
    seeds: dict[Value, Value] = {}
    for value, cotangent in zip(values, cotangents, strict=True):
        if not isinstance(value, Zero) and not isinstance(cotangent, Zero):
            seeds[value] = seeds[value] + cotangent if value in seeds else cotangent
    return seeds


def pushforward(
    builder: Builder,
    nodes: Sequence[Node],
    tangents: Mapping[Value, Value],
    *,
    engine: Engine = STANDARD,
) -> dict[Value, Value]:
    """Sweep over `nodes` forwards and return the tangent of every value that one reaches.

    Args:
        builder: The destination of the derivative's nodes; `nodes` may be its own.
        nodes: The nodes to differentiate, in topological order.
        tangents: The start of the sweep. A tangent given for the result of one of `nodes` is added to the computed one.
        engine: The source of rules.

    Raises:
        MissingRuleError: An op on the path has no rule and none can be derived.
    """
    reached = dict(tangents)
    for node in nodes:
        t = [ZERO if v is None else reached.get(v, ZERO) for v in node.operands]
        has_derivative = any(type.dtype.is_differentiable for type in node.types)
        if not has_derivative or all(isinstance(x, Zero) for x in t):
            continue
        with rule_for(engine, builder, node, "jvp"):
            for result, tangent in zip(node.results, push(engine, builder, node, t), strict=True):
                if not isinstance(tangent, Zero):
                    before = reached.get(result)
                    reached[result] = tangent if before is None else before + tangent
    return reached


def push(engine: Engine, builder: Builder, node: Node, t: Tangents) -> Tangents:
    """Return the tangents of one node's results."""
    rule = engine.rule(node.op, "jvp")
    if rule is not None:
        return _push_by_rule(rule, node, t)
    first = next(i for i, x in enumerate(t) if not isinstance(x, Zero))
    is_transposed = _is_transposed(engine, node, "jvp", "vjp", first)
    return (_push_by_transposition if is_transposed else _push_by_decomposition)(engine, builder, node, t)


def _push_by_rule(rule: Callable[..., Any], node: Node, t: Tangents) -> Tangents:
    operands = padded(node.op, node.operands)
    tangents = (*t, *[ZERO] * (len(operands) - len(t)))
    y = node.results[0] if len(node.results) == 1 else node.results
    outputs = as_results(rule(tangents, *operands, y=y))
    if len(outputs) != len(node.results):
        raise ShapeError(
            f"{node.op.name}: its jvp rule gives {len(outputs)} tangents for {len(node.results)} results",
            Fact("node", node.label, node.origin.source),
        )
    for index, (tangent, type) in enumerate(zip(outputs, node.types, strict=True)):
        if tangent is None:
            raise missing_rule(node.op, "jvp", None, Fact("result", index), Fact("node", node.label))
        if not isinstance(tangent, Zero):
            check_linear(node, "jvp", f"the tangent of result {index}", tangent, type)
    return outputs


def _push_by_decomposition(engine: Engine, builder: Builder, node: Node, t: Tangents) -> Tangents:
    decompose = engine.rule(node.op, "decompose")
    assert decompose is not None
    start = len(builder.nodes)
    results = as_results(decompose(*padded(node.op, node.operands)))
    # An operand that is read twice has one tangent, so the pairs may repeat it.
    seeds = {v: x for v, x in zip(node.operands, t, strict=True) if v is not None and not isinstance(x, Zero)}
    reached = pushforward(builder, builder.nodes[start:], seeds, engine=engine)
    return [reached.get(r, ZERO) for r in results]


def _push_by_transposition(engine: Engine, builder: Builder, node: Node, t: Tangents) -> Tangents:
    """Return the JVP as the transpose of the op's VJP, which is linear in the cotangent."""
    needed = [not isinstance(x, Zero) for x in t]
    inner = engine.deriving_from_other_mode("jvp", node.op, operand_name(node, needed.index(True)))
    g: list[Value | Zero] = [
        placeholder(builder, type) if type.dtype.is_differentiable else ZERO for type in node.types
    ]
    start = len(builder.nodes)
    of_operand = {v: x for v, x in zip(node.operands, t, strict=True) if v is not None and not isinstance(x, Zero)}
    pulled = pull(inner, builder, node, g, needed)
    seeds = _paired([cotangent for _, cotangent in pulled], [of_operand[operand] for operand, _ in pulled])
    targets = [c for c in g if not isinstance(c, Zero)]
    reached = backward(builder, builder.nodes[start:], seeds, wrt=targets, engine=inner)
    return [ZERO if isinstance(c, Zero) else reached.get(c, ZERO) for c in g]
