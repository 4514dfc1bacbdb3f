"""Scatter by owners: the thread of a result's element combines all updates that go there, in the order of the updates.

No two threads write one element, so the result does not depend on the order in which threads run. With few updates a thread
reads every index of its batch. Many are sorted first: one launch writes the axis position of each update as its key, a stable
sort puts updates of equal keys next to each other in order, and a binary search for each position of the axis returns where its
updates begin. A thread then reads only the updates of its element, in the same order: the bits are the same. With e elements, s
of them along the axis and u updates of one batch this takes O(e + s log u + u log u) steps, and not O(e u).
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Literal

from attrs import evolve

from rlx_core.codegen.faults import index_fault
from rlx_core.codegen.loops import Buffer, Combine
from rlx_core.codegen.ordering import Keys, Sorting
from rlx_core.codegen.places import Fault
from rlx_core.codegen.scalars.table import ScalarTable
from rlx_core.emit.emitters import Emitted
from rlx_core.ir.dtypes import i32, i64, u32
from rlx_core.system.records import frozen
from rlx_gpu.codegen.assembler import Register, TextAssembler
from rlx_gpu.codegen.indexing import INDEX_LIMIT, fault_place, index_refusal, reach
from rlx_gpu.codegen.languages import GpuDialect
from rlx_gpu.codegen.lines.keys import count_before
from rlx_gpu.codegen.lines.sorting import print_sorting
from rlx_gpu.codegen.lines.sorting import refusal as sorting_refusal
from rlx_gpu.codegen.lines.template import Template
from rlx_gpu.codegen.reductions import Reductions
from rlx_gpu.codegen.tiles import Factor
from rlx_gpu.codegen.walks import Machine

Outside = Literal["drop", "clip", "report"]
"""The effect of an update whose index is out of range: none, an update of the nearest element, or only a fault."""

_COMBINE: dict[str, Combine] = {"add": "sum", "mul": "prod", "max": "max", "min": "min"}


@frozen
class OwnedScatter:
    """`result[…, index[…, u], …]` combined with `updates[…, u, …]` for every update u; a factor's depth is along u.

    Attributes:
        extents: Extents of the result.
        axis: The axis of the result that indices count along.
        count: Updates of one index each.
        buffers: Buffers of the problem.
        base: The initial value of the result; by default zeros.
        mode: "set" keeps the last update.
        name: The op, for errors.
    """

    extents: tuple[int, ...]
    axis: int
    count: int
    buffers: tuple[Buffer, ...]
    index: Factor
    updates: Factor
    base: Factor | None
    result: Factor
    mode: Literal["set", "add", "mul", "max", "min"] = "add"
    outside: Outside = "report"
    name: str = "scatter"

    @property
    def points(self) -> int:
        """Elements of the result."""
        return prod(self.extents)

    @property
    def size(self) -> int:
        """Positions along the axis that indices count along."""
        return self.extents[self.axis]

    @property
    def batch(self) -> tuple[int, ...]:
        """The axes along which there are other indices."""
        return tuple(a for a, stride in enumerate(self.index.strides) if stride)

    @property
    def lines(self) -> int:
        """Number of groups of `count` indices."""
        return prod(self.extents[a] for a in self.batch)

    @property
    def factors(self) -> tuple[Factor, ...]:
        return tuple(f for f in (self.index, self.updates, self.base, self.result) if f is not None)

    @property
    def elements(self) -> int:
        """The most that a thread counts: elements of the result or of a buffer, or indices."""
        extents = (*self.extents, self.count)
        reached = (
            reach((*f.strides, f.depth), extents, self.buffers[f.buffer].dtype.itemsize, f.offset) for f in self.factors
        )
        return max(self.points, self.lines * self.count, *reached)


def refusal(problem: OwnedScatter, language: GpuDialect) -> str | None:
    """Return why a language cannot index a scatter, as "needs …" would continue."""
    return index_refusal(language, problem.elements)


def print_scatter(problem: OwnedScatter, language: GpuDialect, machine: Machine, scalars: ScalarTable) -> Emitted:
    """Return the launches that scatter; the buffers are those of the problem."""
    assert (reason := refusal(problem, language)) is None, f"the scatter needs {reason}"
    if not problem.points:
        return Emitted((), ())
    owners = _Owners(problem, language, machine, scalars)
    return owners.sorted() if _is_sorted(problem, language, machine) else owners.searching()


def _is_sorted(p: OwnedScatter, language: GpuDialect, machine: Machine) -> bool:
    """Whether there are so many updates that sorting them pays, and not so many that none of the sort's templates takes them."""
    if p.count <= machine.few_updates or p.size >= INDEX_LIMIT:
        return False
    return sorting_refusal(_order(p), language) is None and index_refusal(language, p.lines * (p.size + 1)) is None


def _order(p: OwnedScatter) -> Sorting:
    """The stable sort of the keys of updates, with the number of each."""
    return Sorting(Keys(u32), p.lines, p.count, 1, p.count, i32, has_values=True)


@frozen(eq=False)
class _Owners:
    """The launches of one problem."""

    problem: OwnedScatter
    language: GpuDialect
    machine: Machine
    scalars: ScalarTable

    def _template(self, elements: int) -> Template:
        return Template(self.language, self.machine, self.scalars, self.machine.group, elements)

    # ---------------------------------------------------------------------------------- few updates

    def searching(self) -> Emitted:
        """Every element reads all indices of its batch."""
        p, t = self.problem, self._template(self.problem.elements)
        b = t.b
        with t.each_thread(p.points) as i:
            places = self._places(t, i, range(len(p.extents)))
            total = self._begun(t, places)
            position = Register(f"({places[p.axis]})", i32 if t.kind == "u32" else i64)
            owned = b.resized(position, i64, is_signed=False)
            with t.loop("0u", f"{p.count}u", stem="u", kind=t.kind) as u:
                index = self._index(t, places, u)
                if p.outside == "clip":
                    index = _held(b, index, p.size)
                elif p.outside == "report":
                    # The owners of the axis's first element report.
                    with t.b.when(f"{places[p.axis]} == 0u && !{_is_inside(b, index, p.size).text}"):
                        self._report(t, f"({self._line(places)}) * {p.count}u + {u}", index)
                with t.b.when(b.icmp_unsigned("==", index, owned).text):
                    self._combine(t, total, places, u)
            self._store(t, places, total)
        return t.done("scatter", self._faults)

    # --------------------------------------------------------------------------------- many updates

    def sorted(self) -> Emitted:
        """Updates sorted by where they go; every element reads its own."""
        p, first = self.problem, len(self.problem.buffers)
        keys, sorted_keys, numbers, starts = range(first, first + 4)
        order = print_sorting(_order(p), self.language, self.machine, self.scalars)
        renumbered = (keys, sorted_keys, numbers, *range(first + 4, first + 4 + len(order.workspaces)))
        calls = tuple(evolve(call, buffers=tuple(renumbered[n] for n in call.buffers)) for call in order.calls)
        parts = (
            self._keys(keys),
            evolve(order, calls=calls),
            self._starts(sorted_keys, starts),
            self._combined(numbers, starts),
        )
        nbytes = 4 * p.lines * p.count
        return Emitted.joined(parts, (nbytes, nbytes, nbytes, 4 * p.lines * (p.size + 1), *order.workspaces))

    def _keys(self, keys: int) -> Emitted:
        """The axis position of every update; of one that goes nowhere the largest number, which is sorted behind all."""
        p = self.problem
        t = self._template(max(p.lines * p.count, p.elements))
        b = t.b
        with t.each_thread(p.lines * p.count) as i:
            places = self._places(t, f"({i} / {p.count}u)", p.batch)
            index = self._index(t, places, t.number(f"{i} % {p.count}u", "u", t.kind))
            if p.outside == "clip":
                index = _held(b, index, p.size)
            else:
                is_inside = _is_inside(b, index, p.size)
                if p.outside == "report":
                    with t.b.when(f"!{is_inside.text}"):
                        self._report(t, i, index)
                index = b.select(is_inside, index, b.literal(i64, -1))
            t.memory.store(t.buffer(keys, i32, is_written=True), i32, i, b.resized(index, i32, is_signed=False))
        return t.done("scatter_keys", self._faults)

    def _starts(self, keys: int, starts: int) -> Emitted:
        """For every position of the axis, and for its end, how many updates go to those before it."""
        p = self.problem
        t = self._template(p.lines * max(p.size + 1, p.count))
        with t.each_thread(p.lines * (p.size + 1)) as i:
            base = t.number(f"({i} / {p.size + 1}u) * {p.count}u", "base", t.kind)
            position = f"{i} % {p.size + 1}u"
            key = t.word(t.number(position if t.kind == "u32" else f"(u32)({position})", "key"))
            lines = t.buffer(keys, i32)
            before = count_before(t, key, "false", f"{p.count}u", lambda k: t.memory.load(lines, i32, f"{base} + {k}"))
            t.memory.store(t.buffer(starts, i32, is_written=True), i32, i, t.word(before))
        return t.done("scatter_starts")

    def _combined(self, numbers: int, starts: int) -> Emitted:
        """Every element combines the updates that go there."""
        p = self.problem
        t = self._template(max(p.elements, p.lines * (p.size + 1)))
        with t.each_thread(p.points) as i:
            places = self._places(t, i, range(len(p.extents)))
            total = self._begun(t, places)
            line = t.number(self._line(places), "line", t.kind)
            start = t.number(f"{line} * {p.size + 1}u + {places[p.axis]}", "start", t.kind)
            name = t.buffer(starts, i32)
            ends = [t.memory.load(name, i32, index).text for index in (start, f"{start} + 1u")]
            with t.loop(ends[0], ends[1], stem="k") as k:
                number = t.memory.load(t.buffer(numbers, i32), i32, f"{line} * {p.count}u + {k}")
                self._combine(t, total, places, number.text)
            self._store(t, places, total)
        return t.done("scatter")

    # -------------------------------------------------------------------------------------- elements

    @property
    def _faults(self) -> tuple[Fault, ...]:
        p = self.problem
        return (index_fault(p.name, p.size),) if p.outside == "report" else ()

    def _places(self, t: Template, number: str, axes: Sequence[int]) -> dict[int, str]:
        """The index along each of some axes of the result, of a number that counts their points."""
        places: dict[int, str] = {}
        divisor = 1
        for axis in reversed(axes):
            size = self.problem.extents[axis]
            places[axis] = t.number(f"{number} / {divisor}u % {size}u", f"g{axis}", t.kind)
            divisor *= size
        return places

    def _line(self, places: dict[int, str]) -> str:
        """The number of a batch, of its places."""
        terms, step = ["0u"], 1
        for axis in reversed(self.problem.batch):
            terms.append(f"{places[axis]} * {step}u")
            step *= self.problem.extents[axis]
        return " + ".join(terms)

    def _at(self, t: Template, factor: Factor, places: dict[int, str], depth: str) -> str:
        itemsize = self.problem.buffers[factor.buffer].dtype.itemsize
        return factor.index({**places, len(self.problem.extents): depth}, itemsize, t.kind)

    def _load(self, t: Template, factor: Factor, places: dict[int, str], depth: str = "0u") -> Register:
        dtype = self.problem.buffers[factor.buffer].dtype
        return t.memory.load(t.buffer(factor.buffer, dtype), dtype, self._at(t, factor, places, depth))

    def _store(self, t: Template, places: dict[int, str], value: Register) -> None:
        factor = self.problem.result
        dtype = self.problem.buffers[factor.buffer].dtype
        name = t.buffer(factor.buffer, dtype, is_written=True)
        t.memory.store(name, dtype, self._at(t, factor, places, "0u"), value)

    def _index(self, t: Template, places: dict[int, str], u: str) -> Register:
        is_signed = self.problem.buffers[self.problem.index.buffer].dtype.kind == "int"
        return t.b.resized(self._load(t, self.problem.index, places, u), i64, is_signed=is_signed)

    def _begun(self, t: Template, places: dict[int, str]) -> Register:
        """Return a variable with the initial value of an element."""
        p = self.problem
        if p.base is not None:
            return t.b.variable(self._load(t, p.base, places))
        return t.b.variable(Reductions(t.b, self.scalars, 1, None).identity("sum", p.buffers[p.result.buffer].dtype))

    def _combine(self, t: Template, total: Register, places: dict[int, str], u: str) -> None:
        """One more update combined with an element."""
        p = self.problem
        update, dtype = self._load(t, p.updates, places, u), p.buffers[p.result.buffer].dtype
        if p.mode != "set":
            update = Reductions(t.b, self.scalars, 1, None).combined(_COMBINE[p.mode], dtype, total, update)
        t.b.assign(total, update)

    def _report(self, t: Template, number: str, index: Register) -> None:
        """An index outside is a fault at the number of its update among those of all batches."""
        t.b.line(self.language.fault(0, fault_place(number, t.kind), index.text))


def _is_inside(b: TextAssembler, index: Register, size: int) -> Register:
    return b.icmp_unsigned("<", index, b.literal(i64, size))


def _held(b: TextAssembler, index: Register, size: int) -> Register:
    """The nearest index inside an axis."""
    zero, last = b.literal(i64, 0), b.literal(i64, size - 1)
    low = b.select(b.icmp_signed("<", index, zero), zero, index)
    return b.select(b.icmp_signed(">", low, last), last, low)
