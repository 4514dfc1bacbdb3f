"""What must hold of an execution plan, checked without believing the planner.

The plan is read as a story: who writes which bytes at which step, and until when somebody reads them. Two values that are
both needed at one step must not share a byte, unless the step says that one takes over from the other; weights and inputs
that nobody donated are never written; views stay inside their roots.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from attrs import frozen

from rlx_core.ir.dims import DimBinding
from rlx_core.ir.graph import Constant, Graph, Input, Node, Param, Value, leaf_name, nested_graphs
from rlx_core.ir.lir import Entry, Lir, Slot, Step
from rlx_core.ir.strides import extent
from rlx_core.ir.verify import Fault, Stage, fault_at, raise_faults, verify

__all__ = ["check_lir", "verify_lir"]


def check_lir(lir: Lir) -> None:
    """Require that `verify_lir` finds nothing.

    Raises:
        VerifyError: It finds something; every fault is a fact.
    """
    raise_faults(verify_lir(lir), f"LIR program {lir.graph.name} for {lir.target}")


def verify_lir(lir: Lir) -> list[Fault]:
    """Every rule that `lir` breaks: those of its graphs first, then schedule, manifest and memory."""
    faults = verify(lir.graph, Stage.LIR)
    if lir.prepare is not None:
        faults += [Fault(f"prepare {f.node}", f.message, f.source) for f in verify(lir.prepare, Stage.LIR)]
    faults += [*_manifest(lir), *_members(lir)]
    if faults:
        return faults  # offsets of values that do not exist mean nothing
    faults += [*_schedule(lir), *_nested(lir)]
    if not lir.is_planned:
        return faults + list(_template(lir))
    return [*faults, *_aliases(lir), *_slots(lir)] or list(_Story(lir).faults())


# -------------------------------------------------------------------------------------------- manifest


def _manifest(lir: Lir) -> Iterator[Fault]:
    """Inputs, params and outputs are those of the graphs, in order and with their types."""
    owner = lir.prepare or lir.graph
    yield from _leaves("input", lir.manifest.inputs, lir.graph.inputs)
    yield from _leaves("param", lir.manifest.params, owner.params)
    outputs = [e.value for e in lir.manifest.outputs]
    if [id(v) for v in outputs] != [id(v) for v in lir.graph.outputs]:
        yield Fault(
            "manifest", f"its {len(outputs)} outputs are not the {len(lir.graph.outputs)} of the graph, in order"
        )
    for e in (*lir.manifest.inputs, *lir.manifest.params, *lir.manifest.outputs):
        if e.type != e.value.type:
            yield Fault("manifest", f"{e.name} is listed as {e.type} and is {e.value.type}")
    if len(lir.deliveries) != len(lir.graph.outputs):
        yield Fault("manifest", f"it says how {len(lir.deliveries)} of {len(lir.graph.outputs)} outputs are delivered")


def _leaves(kind: str, entries: Sequence[Entry], leaves: Sequence[Value]) -> Iterator[Fault]:
    listed, found = [e.name for e in entries], [leaf_name(v) for v in leaves]
    if listed != found:
        yield Fault("manifest", f"its {kind}s are {listed}, those of the graph {found}")
    elif [id(e.value) for e in entries] != [id(v) for v in leaves]:
        yield Fault("manifest", f"its {kind}s are values of another graph")


def _members(lir: Lir) -> Iterator[Fault]:
    """Steps, slots and aliases speak of this graph's nodes and values."""
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
    wanted = {id(v.node) for v in graph.outputs}
    for node in reversed(graph.nodes):
        if id(node) in wanted or not node.op.is_pure:
            wanted.add(id(node))
            wanted |= {id(v.node) for v in node.present()}
    return [n for n in graph.nodes if id(n) in wanted and not n.is_leaf]


def _is_view(node: Node, lir: Lir) -> bool:
    """Whether a node without a step may have none: its result lies where its operands are, or they lie inside it."""
    roots = {id(lir.root_of(v)) for v in node.present() if v.type.nbytes}
    return all(not v.type.nbytes or roots == {id(lir.root_of(v))} for v in node.results)


def _schedule(lir: Lir) -> Iterator[Fault]:
    """Every node that is needed runs once, after what it reads; only views need no step."""
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
        own = places.get(id(node))
        if own is not None and waits >= own:
            yield fault_at(node, f"it runs as step {own}, and an operand is computed by step {waits}")
        ready[id(node)] = waits if own is None else own


def _in_place(step: Step) -> Iterator[Fault]:
    for result, operand in step.in_place.items():
        if not 0 <= result < len(step.node.results):
            yield fault_at(step.node, f"in place: it has {len(step.node.results)} results, not {result + 1}")
        elif not 0 <= operand < len(step.node.operands) or step.node.operands[operand] is None:
            yield fault_at(step.node, f"in place: it has no operand {operand} to take over")


def _nested(lir: Lir) -> Iterator[Fault]:
    for step in lir.steps:
        bodies = nested_graphs(step.node.op)
        for name, plan in step.nested.items():
            if name not in bodies or bodies[name] != plan.graph:
                yield fault_at(step.node, f"the plan nested as {name} is for another graph")
            for fault in verify_lir(plan):
                yield Fault(f"{step.node.label}.{name} {fault.node}", fault.message, fault.source)
            room = 0 if step.workspace is None else step.workspace.nbytes - step.nested_offset
            if plan.arena_nbytes > room:
                yield fault_at(step.node, f"the plan nested as {name} needs {plan.arena_nbytes} bytes, and has {room}")


def _template(lir: Lir) -> Iterator[Fault]:
    for value in (*lir.slots, *lir.aliases):
        yield fault_at(value.node, "it has an offset although sizes are unknown")


# ---------------------------------------------------------------------------------- aliases and slots


def _nbytes(value: Value) -> int:
    return value.type.bind(DimBinding()).static_nbytes


def _aliases(lir: Lir) -> Iterator[Fault]:
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
        if first < 0 or last > _nbytes(alias.root):
            yield fault_at(
                value.node, f"alias covers bytes {first}..{last} of {alias.root!r}, which has {_nbytes(alias.root)}"
            )


def _slots(lir: Lir) -> Iterator[Fault]:
    if lir.alignment < 1:
        yield Fault("plan", f"the alignment is {lir.alignment} bytes")
        return
    for value, slot in lir.slots.items():
        if slot.nbytes != _nbytes(value):
            yield fault_at(
                value.node, f"{value!r} is {value.type} of {_nbytes(value)} bytes, and its slot has {slot.nbytes}"
            )
        yield from _slot(value.node, slot, lir)
    for step in lir.steps:
        if step.workspace is not None:
            yield from _slot(step.node, step.workspace, lir)
    own = {id(v) for v in lir.own_roots}
    for step in lir.steps:
        for value in step.node.results:
            root = lir.root_of(value)
            is_placed = root in lir.slots or root.node.is_leaf or id(root) in own or not _nbytes(root)
            if not is_placed:
                yield fault_at(step.node, f"{value!r} has no bytes to be written to")


def _slot(node: Node, slot: Slot, lir: Lir) -> Iterator[Fault]:
    if slot.offset % lir.alignment:
        yield fault_at(node, f"offset {slot.offset} is not a multiple of the alignment {lir.alignment}")
    if slot.offset < 0 or slot.end > lir.arena_nbytes:
        yield fault_at(node, f"bytes {slot.offset}..{slot.end} are outside the arena of {lir.arena_nbytes}")


# ---------------------------------------------------------------------------------------------- memory

_Place = tuple[object, int, int]
"""A buffer (`None` for the arena, else the identity of a root), the first byte in it and the byte after the last."""


@frozen(eq=False)
class _Life:
    """Bytes with content that somebody needs from step `birth` to step `death`."""

    node: Node
    place: _Place
    birth: int
    death: int
    value: Value | None = None

    def clashes_with(self, other: _Life) -> bool:
        (a, a_low, a_high), (b, b_low, b_high) = self.place, other.place
        return a == b and a_low < b_high and b_low < a_high


class _Story:
    """Who needs which bytes when."""

    def __init__(self, lir: Lir) -> None:
        self.lir = lir
        self.end = len(lir.steps)
        self.step_of = {id(s.node): i for i, s in enumerate(lir.steps)}
        self.written = self._written()
        self.deaths = self._deaths()
        donors = {id(e.value) for e in (*lir.manifest.inputs, *lir.manifest.params) if e.is_donated}
        self.donated = donors | {id(d.donor) for d in lir.deliveries if d.donor is not None}

    def _written(self) -> Mapping[Value, tuple[Value, ...]]:
        """Value → the values whose writing filled its bytes: itself, or what its views and parts go back to."""
        found: dict[Value, tuple[Value, ...]] = {}
        for node in self.lir.graph.nodes:
            for value in node.results:
                if node.is_leaf or id(node) in self.step_of:
                    found[value] = (value,)
                else:
                    same = [v for v in node.present() if self.lir.root_of(v) is self.lir.root_of(value)]
                    found[value] = tuple({id(w): w for v in same for w in found[v]}.values())
        return found

    def _deaths(self) -> dict[Value, int]:
        last: dict[Value, int] = {}
        for index, step in enumerate(self.lir.steps):
            for value in (*step.node.present(), *step.node.results):
                for source in self.written[value]:
                    last[source] = max(last.get(source, index), index)
        for value in self.lir.graph.outputs:
            for source in self.written[value]:
                last[source] = self.end
        return last

    def _place(self, value: Value) -> _Place:
        root = self.lir.root_of(value)
        alias = self.lir.aliases.get(value)
        low, high = (0, _nbytes(value)) if alias is None else extent(value.type, alias.strides)
        start = 0 if alias is None else alias.byte_offset
        slot = self.lir.slots.get(root)
        if slot is not None:
            return None, slot.offset + start + low, slot.offset + start + high
        return id(root), start + low, start + high

    def _lives(self) -> Iterator[_Life]:
        for node in self.lir.graph.nodes:
            if node.is_leaf:
                value = node.results[0]
                kept = isinstance(node.op, Input | Param | Constant) and id(value) not in self.donated
                death = self.end if kept else self.deaths.get(value, -1)
                yield _Life(node, self._place(value), -1, death, value)
        for index, step in enumerate(self.lir.steps):
            for value in step.node.results:
                yield _Life(step.node, self._place(value), index, self.deaths[value], value)
            if step.workspace is not None:
                yield _Life(step.node, (None, step.workspace.offset, step.workspace.end), index, index)

    def faults(self) -> Iterator[Fault]:
        active: list[_Life] = []
        for life in sorted((x for x in self._lives() if x.place[1] < x.place[2]), key=lambda x: x.birth):
            active = [x for x in active if x.death >= life.birth]
            for other in active:
                if life.clashes_with(other) and not self._takes_over(life, other):
                    yield self._clash(life, other)
            active.append(life)

    def _takes_over(self, new: _Life, old: _Life) -> bool:
        """Whether `new` may use the bytes of `old`: its step says so, reads it last, and both lie in the same place."""
        if new.value is None or old.value is None or new.birth < 0 or old.death != new.birth or old.birth == new.birth:
            return False
        step = self.lir.steps[new.birth]
        operand = step.in_place.get(new.value.index)
        source = None if operand is None else step.node.operands[operand]
        if source is None or not any(w is old.value for w in self.written[source]):
            return False
        return self._place(source) == new.place

    def _clash(self, new: _Life, old: _Life) -> Fault:
        low, high = max(new.place[1], old.place[1]), min(new.place[2], old.place[2])
        where = "arena" if new.place[0] is None else f"{old.node.label}'s buffer"
        if old.node.is_leaf and old.death == self.end:
            kind = type(old.node.op).__name__.lower()
            return fault_at(new.node, f"it writes bytes {low}..{high} of {kind} {old.node.label}, which nobody donated")
        what = "its workspace" if new.value is None else repr(new.value)
        return fault_at(
            new.node,
            f"{what} (step {new.birth}) shares bytes {low}..{high} of {where} with {old.node.label}, "
            f"needed until step {old.death}",
        )
