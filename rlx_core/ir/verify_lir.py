"""The rules for an execution plan, checked independently of the planner.

Needed nodes run once and in order, inputs and outputs are the graph's, views lie where their ops place them, slots lie in the
arena. The order of writes and reads of the same bytes is checked by `verify_memory`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rlx_core.ir.graph import Graph, Node, Value, leaf_name, nested_graphs
from rlx_core.ir.lir import Alias, Entry, Lir, Slot, Step, is_made_of_parts, parts_of, placement
from rlx_core.ir.rewrite import needed_nodes
from rlx_core.ir.strides import Strides, dense_strides, extent
from rlx_core.ir.verify import IrStage, RuleViolation, fault_at, raise_faults, verify
from rlx_core.ir.verify_memory import delivery_faults, memory_faults, nbytes_of


def check_lir(lir: Lir) -> None:
    """Require that `verify_lir` finds nothing.

    Raises:
        VerifyError: It finds something; every fault is a fact.
    """
    raise_faults(verify_lir(lir), f"LIR program {lir.graph.name} for {lir.target}")


def verify_lir(lir: Lir) -> list[RuleViolation]:
    """Every rule that `lir` breaks: those of its graphs first, then schedule, manifest and memory."""
    faults = verify(lir.graph, IrStage.LIR)
    if lir.prepare is not None:
        faults += [RuleViolation(f"prepare {f.node}", f.message, f.source) for f in verify(lir.prepare, IrStage.LIR)]
    faults += [*_manifest(lir), *_members(lir)]
    if faults:
        return faults  # offsets of values that do not exist mean nothing
    faults += [*_schedule(lir), *_nested(lir)]
    if not lir.is_planned:
        return faults + list(_template(lir))
    faults += _aliases(lir)
    if faults:
        return faults  # nor do places without a root
    return [*_slots(lir), *delivery_faults(lir)] or [*_views(lir), *memory_faults(lir)]


# -------------------------------------------------------------------------------------------- manifest


def _manifest(lir: Lir) -> Iterator[RuleViolation]:
    """Inputs, params and outputs are those of the graphs, in order and with their types."""
    owner = lir.prepare or lir.graph
    yield from _leaves("input", lir.manifest.inputs, lir.graph.inputs)
    yield from _leaves("param", lir.manifest.params, owner.params)
    outputs = [e.value for e in lir.manifest.outputs]
    if [id(v) for v in outputs] != [id(v) for v in lir.graph.outputs]:
        yield RuleViolation(
            "manifest", f"its {len(outputs)} outputs are not the {len(lir.graph.outputs)} of the graph, in order"
        )
    for e in (*lir.manifest.inputs, *lir.manifest.params, *lir.manifest.outputs):
        if e.type != e.value.type:
            yield RuleViolation("manifest", f"{e.name} is listed as {e.type} and is {e.value.type}")
    if len(lir.deliveries) != len(lir.graph.outputs):
        yield RuleViolation(
            "manifest", f"it says how {len(lir.deliveries)} of {len(lir.graph.outputs)} outputs are delivered"
        )


def _leaves(kind: str, entries: Sequence[Entry], leaves: Sequence[Value]) -> Iterator[RuleViolation]:
    listed, graph_names = [e.name for e in entries], [leaf_name(v) for v in leaves]
    if listed != graph_names:
        yield RuleViolation("manifest", f"its {kind}s are {listed}, those of the graph {graph_names}")
    elif [id(e.value) for e in entries] != [id(v) for v in leaves]:
        yield RuleViolation("manifest", f"its {kind}s are values of another graph")


def _members(lir: Lir) -> Iterator[RuleViolation]:
    """Check that steps, slots and aliases refer to this graph's nodes and values."""
    nodes = {id(n) for n in lir.graph.nodes}
    for step in lir.steps:
        if id(step.node) not in nodes:
            yield fault_at(step.node, "it is scheduled and belongs to another graph")
    donors = [d.donor for d in lir.deliveries if d.donor is not None]
    for value in (*lir.slots, *lir.aliases, *(a.root for a in lir.aliases.values()), *donors):
        if id(value.node) not in nodes:
            yield fault_at(value.node, "it has bytes in the plan and belongs to another graph")


# -------------------------------------------------------------------------------------------- schedule


def _needed(graph: Graph) -> list[Node]:
    """Nodes that a run must compute: those outputs depend on, and those with effects."""
    needed = needed_nodes(graph.nodes, graph.outputs, lambda node: not node.op.is_pure)
    return [n for n in graph.nodes if n in needed and not n.is_leaf]


def _is_view(node: Node, lir: Lir) -> bool:
    """Return whether a node needs no step: its result lies where its operands are, or they lie inside it."""
    # A view is one of its first operand.
    inside = [v for v, _ in parts_of(node)] if is_made_of_parts(node) else node.operands[:1]
    roots = {id(lir.root_of(v)) for v in inside if v is not None and v.type.nbytes}
    return all(not v.type.nbytes or roots == {id(lir.root_of(v))} for v in node.results)


def _schedule(lir: Lir) -> Iterator[RuleViolation]:
    """Check that every needed node runs once, after its operands; only views need no step."""
    places: dict[int, int] = {}
    for place, step in enumerate(lir.steps):
        if step.node.is_leaf:
            yield fault_at(step.node, "a leaf is scheduled, and there is nothing to run")
        if id(step.node) in places:
            yield fault_at(step.node, f"it is scheduled twice, as step {places[id(step.node)]} and {place}")
        places.setdefault(id(step.node), place)
        yield from _in_place(step)
    for node in _needed(lir.graph):
        if id(node) not in places and not (lir.is_planned and _is_view(node, lir)):
            yield fault_at(node, "it is needed, is no view, and is not scheduled")
    ready: dict[int, int] = {}  # node → the last step that its results wait for
    for node in lir.graph.nodes:
        waits = max((ready[id(v.node)] for v in node.present()), default=-1)
        position = places.get(id(node))
        if position is not None and waits >= position:
            yield fault_at(node, f"it runs as step {position}, and an operand is computed by step {waits}")
        ready[id(node)] = waits if position is None else position


def _in_place(step: Step) -> Iterator[RuleViolation]:
    for result, operand in step.in_place.items():
        if not 0 <= result < len(step.node.results):
            yield fault_at(step.node, f"in place: it has {len(step.node.results)} results, not {result + 1}")
        elif not 0 <= operand < len(step.node.operands) or step.node.operands[operand] is None:
            yield fault_at(step.node, f"in place: it has no operand {operand} to take over")


def _nested(lir: Lir) -> Iterator[RuleViolation]:
    for step in lir.steps:
        bodies = nested_graphs(step.node.op)
        for name, plan in step.nested.items():
            if name not in bodies or bodies[name] != plan.graph:
                yield fault_at(step.node, f"the plan nested as {name} is for another graph")
            for fault in verify_lir(plan):
                yield RuleViolation(f"{step.node.label}.{name} {fault.node}", fault.message, fault.source)
            capacity = 0 if step.workspace is None else step.workspace.nbytes - step.nested_offset
            if plan.arena_nbytes > capacity:
                yield fault_at(
                    step.node, f"the plan nested as {name} needs {plan.arena_nbytes} bytes, and has {capacity}"
                )


def _template(lir: Lir) -> Iterator[RuleViolation]:
    for value in (*lir.slots, *lir.aliases):
        yield fault_at(value.node, "it has an offset although sizes are unknown")


# ---------------------------------------------------------------------------------- aliases and slots


def _aliases(lir: Lir) -> Iterator[RuleViolation]:
    for value, alias in lir.aliases.items():
        if alias.root in lir.aliases:
            yield fault_at(value.node, f"its root {alias.root!r} is an alias itself")
        if value in lir.slots:
            yield fault_at(value.node, f"{value!r} has a slot and is an alias")
        if len(alias.strides) != value.type.rank:
            yield fault_at(value.node, f"alias has {len(alias.strides)} strides for {value.type}")
            continue
        low, high = extent(value.type, alias.strides)
        first, last = alias.byte_offset + low, alias.byte_offset + high
        if first < 0 or last > nbytes_of(alias.root):
            yield fault_at(
                value.node, f"alias covers bytes {first}..{last} of {alias.root!r}, which has {nbytes_of(alias.root)}"
            )


def _slots(lir: Lir) -> Iterator[RuleViolation]:
    if lir.alignment < 1:
        yield RuleViolation("plan", f"the alignment is {lir.alignment} bytes")
        return
    for value, slot in lir.slots.items():
        if slot.nbytes != nbytes_of(value):
            yield fault_at(
                value.node, f"{value!r} is {value.type} of {nbytes_of(value)} bytes, and its slot has {slot.nbytes}"
            )
        yield from _slot(value.node, slot, lir)
    for step in lir.steps:
        if step.workspace is not None:
            yield from _slot(step.node, step.workspace, lir)
    own_roots = {id(v) for v in lir.own_roots}
    for step in lir.steps:
        for value in step.node.results:
            root = lir.root_of(value)
            is_placed = root in lir.slots or root.node.is_leaf or id(root) in own_roots or not nbytes_of(root)
            if not is_placed:
                yield fault_at(step.node, f"{value!r} has no bytes to be written to")


def _slot(node: Node, slot: Slot, lir: Lir) -> Iterator[RuleViolation]:
    if slot.offset % lir.alignment:
        yield fault_at(node, f"offset {slot.offset} is not a multiple of the alignment {lir.alignment}")
    if slot.offset < 0 or slot.end > lir.arena_nbytes:
        yield fault_at(node, f"bytes {slot.offset}..{slot.end} are outside the arena of {lir.arena_nbytes}")


# ------------------------------------------------------------------------------------------------ views


def _views(lir: Lir) -> Iterator[RuleViolation]:
    """Check the locations of views: results inside the first operand, or operands in consecutive parts of the result."""
    scheduled = {id(step.node) for step in lir.steps}
    for node in _needed(lir.graph):
        if id(node) in scheduled and not lir.parts_in(node):
            continue
        ways = (_as_parts(lir, node),) if id(node) in scheduled else (_as_view(lir, node), _as_parts(lir, node))
        wrong = [_misplaced(lir, views) for views in ways if views is not None]
        if all(wrong):
            yield fault_at(node, (wrong or ["it has no step, and is neither a view nor made of its operands"])[0])


def _misplaced(lir: Lir, views: Sequence[tuple[Value, Alias]]) -> str:
    """Return a message for the first value at an unexpected location, or "". A value without elements may lie anywhere."""
    for value, expected in views:
        actual = placement(value, lir.aliases)
        shape = value.type.static_shape
        moves = [(a, b) for n, a, b in zip(shape, actual.strides, expected.strides, strict=True) if n > 1]
        is_there = actual.root is expected.root and actual.byte_offset == expected.byte_offset
        if nbytes_of(value) and not (is_there and all(a == b for a, b in moves)):
            return f"{value!r} lies at {_shown(actual)}, and by its op at {_shown(expected)}"
    return ""


def _shown(place: Alias) -> str:
    return f"{place.root!r} + {place.byte_offset} {place.strides}"


def _as_view(lir: Lir, node: Node) -> list[tuple[Value, Alias]] | None:
    """Return the location of each result of a view; `None` if the op gives no view of an operand at that location."""
    source = node.operands[0] if node.operands else None
    if node.op.view is None or source is None:
        return None
    place = placement(source, lir.aliases)
    view = node.op.view(source.type, place.strides, place.byte_offset)
    if view is None:
        return None
    pairs: Sequence[tuple[int, Strides]] = (view,) if len(node.types) == 1 else view
    return [(v, Alias(place.root, o, s)) for v, (o, s) in zip(node.results, pairs, strict=True)]


def _as_parts(lir: Lir, node: Node) -> list[tuple[Value, Alias]] | None:
    """Return the location of each operand of a concatenation, from the location of its result."""
    inside = parts_of(node)
    if not inside:
        return None
    source = placement(node.result, lir.aliases)
    pairs = [(node.result, (0, dense_strides(node.type))), *inside]
    return [(v, Alias(source.root, source.byte_offset + o, s)) for v, (o, s) in pairs]
