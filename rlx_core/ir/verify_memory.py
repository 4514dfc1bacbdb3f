"""Lifetimes of the bytes of an execution plan: which step writes them, and which steps still need them.

Two values that are both needed at one step must not share a byte, unless the step declares that one takes over from the other
and no operand reads those bytes in another order; weights and inputs that were not donated are never written; a returned
buffer belongs to the caller alone.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import pairwise

from attrs import field

from rlx_core.ir.dims import DimBinding
from rlx_core.ir.graph import Constant, GraphArgument, Node, Value
from rlx_core.ir.lir import Lir, Step, covers_root, placement
from rlx_core.ir.strides import extent, is_dense
from rlx_core.ir.verify import RuleViolation, fault_at
from rlx_core.system.records import define, frozen


def memory_faults(lir: Lir) -> list[RuleViolation]:
    """Every rule about bytes that a planned program breaks while it runs; its schedule, slots and deliveries are in order."""
    return [*_written(lir), *_Story(lir).faults()]


def nbytes_of(value: Value) -> int:
    """The bytes of a value of a planned program."""
    return value.type.bind(DimBinding()).nbytes.__index__()


# ------------------------------------------------------------------------------------------ deliveries


def delivery_faults(lir: Lir) -> Iterator[RuleViolation]:
    """Check that a caller receives each buffer once: one made for the output and nothing else, or one that the caller donated."""
    handed = Counter(id(v) for v in lir.own_roots)
    returned = Counter(id(d.donor) for d in lir.deliveries if d.donor is not None)
    for entry, delivery in zip(lir.manifest.outputs, lir.deliveries, strict=True):
        value, donor = entry.value, delivery.donor
        root = lir.root_of(value)

        def fault(message: str, value: Value = value, name: str = entry.name) -> RuleViolation:
            return fault_at(value.node, f"output {name} {message}")

        if delivery.kind == "own" and root.node.is_leaf:
            yield fault(f"is handed out as {root.node.label}, which is the caller's or the program's")
        elif delivery.kind == "own" and root in lir.slots:
            yield fault(f"is handed out as {root!r}, which lies in the arena")
        elif delivery.kind == "own" and not covers_root(value, lir.aliases):
            yield fault(f"is handed out as {root!r}, of which it is a part")
        elif delivery.kind == "own" and handed[id(root)] > 1:
            yield fault(f"is handed out as {root!r}, and so is another")
        if (donor is None) != (delivery.kind != "donor"):
            yield fault(f"is delivered as {delivery.kind}, which {'needs a' if donor is None else 'has no'} donor")
        elif donor is not None and donor not in lir.donated:
            yield fault(f"comes back in {donor.node.label}, which nobody donated")
        elif donor is not None and donor.type != value.type:
            yield fault(f"is {value.type} and comes back in {donor.node.label}, which is {donor.type}")
        elif donor is not None and returned[id(donor)] > 1:
            yield fault(f"comes back in {donor.node.label}, and so does another")


# -------------------------------------------------------------------------------------- writes of steps


def _written(lir: Lir) -> Iterator[RuleViolation]:
    """Results lie densely or in rows, and where a step takes over an operand's bytes it reads them as it writes them."""
    for step in lir.steps:
        for value in step.node.results:
            place = placement(value, lir.aliases)
            if nbytes_of(value) and not is_dense(value.type, place.strides) and _Rows.of(lir, value) is None:
                yield fault_at(step.node, f"{value!r} is written with strides {place.strides}, which are not rows")
        for result, operand in step.in_place.items():
            yield from _taken(lir, step, step.node.results[result], step.node.operands[operand])


def _taken(lir: Lir, step: Step, result: Value, operand: Value | None) -> Iterator[RuleViolation]:
    """Yield the faults of a result that takes over an operand."""
    assert operand is not None, "a schedule without faults takes over operands that are there"
    if not nbytes_of(result):
        return
    result_bytes = _bytes_of(lir, result)
    if result_bytes != _bytes_of(lir, operand) or not is_dense(operand.type, placement(operand, lir.aliases).strides):
        yield fault_at(step.node, f"in place: {result!r} takes over {operand!r} and does not lie where it does")
    for other in step.node.present():
        if other is not operand and _meet(result_bytes, _bytes_of(lir, other)) and not _is_alike(lir, other, operand):
            yield fault_at(step.node, f"in place: {result!r} takes over {operand!r}, which it reads as {other!r} too")


def _is_alike(lir: Lir, other: Value, operand: Value) -> bool:
    """Return whether both are the same elements at the same places."""
    return other.type == operand.type and is_dense(other.type, placement(other, lir.aliases).strides)


# ------------------------------------------------------------------------------------------- the story

_Place = tuple[object, int, int]
"""A buffer (`None` for the arena, else the identity of a root), the first byte in it and the byte after the last."""


@frozen(eq=False)
class _Life:
    """Bytes whose content is needed from step `birth` to step `death`."""

    node: Node
    place: _Place
    birth: int
    death: int
    value: Value | None = None
    rows: _Rows | None = None

    def clashes_with(self, other: _Life) -> bool:
        is_apart = self.rows is not None and other.rows is not None and self.rows.lie_between(other.rows)
        return _meet(self.place, other.place) and not is_apart


@frozen
class _Rows:
    """The bytes of a value with gaps: `width` of every `period`, from byte `start` of a buffer on."""

    period: int
    start: int
    width: int

    @classmethod
    def of(cls, lir: Lir, value: Value) -> _Rows | None:
        """The rows of a strided value; `None` if it is dense, or if its rows do not follow at one distance."""
        place, width = placement(value, lir.aliases), value.type.dtype.itemsize
        axes = [(d, s) for d, s in zip(value.type.static_shape, place.strides, strict=True) if d != 1]
        while axes and axes[-1][1] == width:
            width *= axes.pop()[0]
        period = axes[-1][1] if axes else 0
        is_nested = all(outer >= d * inner for (_, outer), (d, inner) in pairwise(axes))
        if period < width or not is_nested or any(s % period for _, s in axes):
            return None
        return cls(period, _bytes_of(lir, value)[1], width)

    def lie_between(self, other: _Rows) -> bool:
        """Return whether these rows lie in the other's gaps."""
        ahead = (other.start - self.start) % self.period
        return self.period == other.period and self.width <= ahead <= self.period - other.width


def _meet(x: _Place, y: _Place) -> bool:
    """Return whether two places have a byte in common."""
    (a, a_low, a_high), (b, b_low, b_high) = x, y
    return a == b and max(a_low, b_low) < min(a_high, b_high)


def _bytes_of(lir: Lir, value: Value) -> _Place:
    """The bytes from the first to the last that a value has."""
    place = placement(value, lir.aliases)
    low, high = extent(value.type, place.strides)
    slot = lir.slots.get(place.root)
    buffer, start = (id(place.root), 0) if slot is None else (None, slot.offset)
    return buffer, start + place.byte_offset + low, start + place.byte_offset + high


@define(eq=False)
class _Active:
    """The lifetimes in one buffer, by their first byte; lifetimes that have ended are dropped during look-ups.

    Attributes:
        longest: The maximum size in bytes, which bounds how far before a byte a lifetime that reaches it may begin.
    """

    lives: list[_Life] = field(factory=list)
    longest: int = 0

    def add(self, life: _Life) -> None:
        insort(self.lives, life, key=_first_byte)
        self.longest = max(self.longest, life.place[2] - life.place[1])

    def around(self, life: _Life) -> list[_Life]:
        """Return the lifetimes that have not ended when `life` begins, among them all that share a byte with it."""
        _, low, high = life.place
        first = bisect_left(self.lives, low - self.longest, key=_first_byte)
        last = bisect_left(self.lives, high, lo=first, key=_first_byte)
        alive = [x for x in self.lives[first:last] if x.death >= life.birth]
        self.lives[first:last] = alive
        return alive


def _first_byte(life: _Life) -> int:
    return life.place[1]


class _Story:
    """The lifetimes of all bytes of a plan."""

    def __init__(self, lir: Lir) -> None:
        self.lir = lir
        self.end = len(lir.steps)
        self.step_of = {id(s.node): i for i, s in enumerate(lir.steps)}
        self.written = self._written()
        self.deaths = self._deaths()

    def _written(self) -> Mapping[Value, tuple[Value, ...]]:
        """Value → the values whose writing filled its bytes: itself, or the roots of its views and parts."""
        written: dict[Value, tuple[Value, ...]] = {}
        for node in self.lir.graph.nodes:
            for value in node.results:
                if node.is_leaf or id(node) in self.step_of:
                    written[value] = (value,)
                else:
                    same = [v for v in node.present() if self.lir.root_of(v) is self.lir.root_of(value)]
                    written[value] = tuple({id(w): w for v in same for w in written[v]}.values())
        return written

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

    def _lives(self) -> Iterator[_Life]:
        for node in self.lir.graph.nodes:
            if node.is_leaf:
                value = node.results[0]
                is_kept = isinstance(node.op, GraphArgument | Constant) and value not in self.lir.donated
                death = self.end if is_kept else self.deaths.get(value, -1)
                yield _Life(node, _bytes_of(self.lir, value), -1, death, value)
        for index, step in enumerate(self.lir.steps):
            for value in step.node.results:
                rows = _Rows.of(self.lir, value)
                yield _Life(step.node, _bytes_of(self.lir, value), index, self.deaths[value], value, rows)
            if step.workspace is not None:
                yield _Life(step.node, (None, step.workspace.offset, step.workspace.end), index, index)

    def faults(self) -> Iterator[RuleViolation]:
        active: dict[object, _Active] = {}
        for life in sorted((x for x in self._lives() if x.place[1] < x.place[2]), key=lambda x: x.birth):
            group = active.setdefault(life.place[0], _Active())
            for other in group.around(life):
                if life.clashes_with(other) and not self._takes_over(life, other):
                    yield self._clash(life, other)
            group.add(life)

    def _takes_over(self, new: _Life, old: _Life) -> bool:
        """Return whether `new` may use the bytes of `old`: they are a part of it, or its step declares so, reads it last, and
        both lie in the same place.
        """
        if new.value is None or old.value is None or new.birth < 0 or old.birth == new.birth:
            return False
        step = self.lir.steps[new.birth]
        parts = (step.node.operands[i] for i in self.lir.parts_in(step.node))
        if any(w is old.value for v in parts if v is not None for w in self.written[v]):
            return True
        if old.death != new.birth:
            return False
        operand = step.in_place.get(new.value.index)
        source = None if operand is None else step.node.operands[operand]
        if source is None or not any(w is old.value for w in self.written[source]):
            return False
        return _bytes_of(self.lir, source) == new.place

    def _clash(self, new: _Life, old: _Life) -> RuleViolation:
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
