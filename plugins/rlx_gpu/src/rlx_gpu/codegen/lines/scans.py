"""Running reductions: one thread per line, or one group per line in tiles of which threads have a few neighbours each.

A thread combines its elements, the threads' ranges are scanned in shared memory, and with the state before them the threads
process their elements again. Few long lines are cut into parts: first the total of each part, then the state carried into each,
and then the parts as if they were lines. Tiles and parts follow from shapes alone, and so does the order of every sum.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext

from rlx_core.codegen.scalars.table import ScalarTable
from rlx_core.codegen.scans import ScanProblem
from rlx_core.emit.emitters import Emitted
from rlx_core.ops.activation import exp, log
from rlx_core.ops.cumulative import CumLogSumExp, LinearRecurrence
from rlx_core.system.records import define, frozen
from rlx_gpu.codegen.assembler import Register
from rlx_gpu.codegen.indexing import index_refusal, length_refusal
from rlx_gpu.codegen.languages import GpuDialect
from rlx_gpu.codegen.lines.scan_rules import Rule, State, registers_of
from rlx_gpu.codegen.lines.template import Template
from rlx_gpu.codegen.walks import Machine

ITEMS = 4
"""Neighbours that a thread has of a tile."""


def refusal(problem: ScanProblem, language: GpuDialect, scalars: ScalarTable) -> str | None:
    """Return why a scan cannot be printed, as "needs …" would continue."""
    if (reason := language.refusal(problem.dtype)) is not None:
        return reason
    if problem.op is CumLogSumExp:
        for op in (exp.op(), log.op()):
            if (reason := scalars.refusal(op, (problem.dtype.accumulator,))) is not None:
                return reason
    return length_refusal("lines", problem.n) or index_refusal(language, problem.lines * problem.n)


def print_scan(problem: ScanProblem, language: GpuDialect, machine: Machine, scalars: ScalarTable) -> Emitted:
    """Return the launches that compute a scan; the buffers are the operands and the result."""
    assert (reason := refusal(problem, language, scalars)) is None, f"{problem} needs {reason}"
    if not problem.lines * problem.n:
        return Emitted((), ())
    is_group = problem.n > machine.short_row and (problem.inner == 1 or problem.lines < machine.group)
    parts, size = _parts(problem, machine, is_group)
    stages = _ScanStages(problem, language, machine, scalars, is_group, parts, size)
    if parts == 1:
        return stages.over_parts("scan", is_carried=False)
    launches = stages.over_parts("scan_totals"), stages.carries(), stages.over_parts("scan", is_carried=True)
    nbytes = problem.lines * parts * stages.itemsize
    return Emitted.joined(launches, (nbytes,) * registers_of(problem))


def _parts(problem: ScanProblem, machine: Machine, is_group: bool) -> tuple[int, int]:
    """Return how many parts a line has, and their size."""
    few, long, part = machine.few_rows, machine.long_row, machine.part
    if not is_group:
        few, long, part = few * machine.group, 16 * machine.short_row, 4 * machine.short_row
    if problem.lines >= few or problem.n < long:
        return 1, problem.n
    parts = min(-(-problem.n // part), -(-few // problem.lines))
    size = -(-problem.n // parts)
    return -(-problem.n // size), size


@define(eq=False)
class _Line:
    """The range of a line that a thread or group scans.

    Attributes:
        base: The index of the line's first element.
        first, end: Positions of the range in the direction of the scan.
        carried: The state before the next element; variables.
        has_carry: A condition under which there is one; a recurrence begins without state.
    """

    base: str
    first: str
    end: str
    carried: State
    has_carry: str


@frozen
class _ScanStages:
    problem: ScanProblem
    language: GpuDialect
    machine: Machine
    scalars: ScalarTable
    is_group: bool
    parts: int
    size: int

    @property
    def operands(self) -> int:
        return 2 if self.problem.op is LinearRecurrence else 1

    @property
    def itemsize(self) -> int:
        """The bytes of a register of the state."""
        dtype = self.problem.dtype
        return dtype.accumulator.itemsize if dtype.is_float else dtype.itemsize

    @property
    def workspaces(self) -> range:
        first = self.operands + 1
        return range(first, first + registers_of(self.problem))

    # ---------------------------------------------------------------------------------------- stages

    def carries(self) -> Emitted:
        """Return the function that computes the state carried into each part from the totals before it; one thread per line."""
        t = self._template(self.machine.group)
        rule, count = Rule(t.b, self.scalars, self.problem), self.problem.lines
        with t.each_thread(count) as i:
            state = tuple(t.b.variable(r) for r in rule.start())
            with t.loop("0u", f"{self.parts}u", stem="part") as part:
                share = t.number(f"{t.wide(part)} * {count}u + {i}", "share", t.kind)
                names = [t.buffer(w, rule.dtype, is_written=True) for w in self.workspaces]
                done = tuple(t.memory.load(name, rule.dtype, share) for name in names)
                for name, register in zip(names, state, strict=True):
                    t.memory.store(name, rule.dtype, share, register)
                self._carry(t, rule, state, done, f"{part} > 0u")
        return t.done("scan_carries")

    def over_parts(self, stem: str, *, is_carried: bool | None = None) -> Emitted:
        """Return the function that computes the results of every part.

        Args:
            is_carried: Whether the workspaces contain the state carried into a part; if `None`, the total of every part is
                computed, and written to them.
        """
        is_shown = is_carried is not None
        p, shares = self.problem, self.problem.lines * self.parts
        items = min(ITEMS, max(-(-self.size // 32), 1))
        group = self.machine.group
        while self.is_group and group > 32 and group // 2 * items >= self.size:
            group //= 2
        t = self._template(group)
        rule = Rule(t.b, self.scalars, self.problem)
        arrays = (
            [t.array(rule.register, group, "stretch") for _ in range(registers_of(self.problem))]
            if self.is_group
            else []
        )
        with t.each_group(shares) if self.is_group else t.each_thread(shares) as i:
            # Neighbours are neighbouring lines, at the same part.
            share = t.number(t.wide(i), "share", t.kind)
            number = t.number(f"{share} % {p.lines}u", "line", t.kind)
            part = f"{share} / {p.lines}u"
            first = t.number(f"{part} * {self.size}u" if t.kind == "u32" else f"(u32)({part}) * {self.size}u", "first")
            end = t.number(t.chosen(f"{first} + {self.size}u < {p.n}u", f"{first} + {self.size}u", f"{p.n}u"), "end")
            base = t.line(number, p.n, p.inner)
            start = rule.start() if is_shown else rule.identity()
            if is_carried:
                start = tuple(t.memory.load(t.buffer(w, rule.dtype), rule.dtype, share) for w in self.workspaces)
            begin = "0u" if is_shown else first
            line = _Line(base, first, end, tuple(t.b.variable(r) for r in start), f"{{0}} > {begin}")
            if self.is_group:
                self._by_group(t, rule, line, arrays, items, is_shown)
            else:
                self._by_thread(t, rule, line, is_shown)
            if not is_shown:
                with t.b.when(f"{t.thread} == 0u") if self.is_group else nullcontext():
                    for workspace, register in zip(self.workspaces, line.carried, strict=True):
                        name = t.buffer(workspace, rule.dtype, is_written=True)
                        t.memory.store(name, rule.dtype, share, register)
        return t.done(stem)

    def _template(self, group: int) -> Template:
        elements = self.problem.lines * self.problem.n
        return Template(self.language, self.machine, self.scalars, group, elements)

    # ----------------------------------------------------------------------------------------- walks

    def _by_thread(self, t: Template, rule: Rule, line: _Line, is_shown: bool) -> None:
        """One element after the other."""
        with t.loop(line.first, line.end, stem="j") as j:
            index = self._index(t, line, j)
            self._step(t, rule, line.carried, self._elements(t, rule, index), line.has_carry.format(j), index, is_shown)

    def _by_group(
        self, t: Template, rule: Rule, line: _Line, arrays: Sequence[str], items: int, is_shown: bool
    ) -> None:
        """Tiles of which each thread has `items` neighbours."""
        b, tile = t.b, t.group * items
        with t.loop(line.first, line.end, f"{tile}u", "tile") as start:
            begin = t.number(f"{start} + {t.thread} * {items}u", "own")
            indices, elements = [], []
            stretch = tuple(b.variable(r) for r in rule.identity())
            for item in range(items):
                j = t.number(f"{begin} + {item}u", "j")
                zero = b.literal(rule.register, 0)
                x = tuple(b.variable(zero) for _ in range(self.operands))
                index = t.variable("0u", "at", t.kind)
                with t.b.when(f"{j} < {line.end}"):
                    t.b.line(f"{index} = {self._index(t, line, j)};")
                    for name, value in zip(x, self._elements(t, rule, index), strict=True):
                        b.assign(name, value)
                    joined = rule.joined(stretch, rule.element(x)) if item else rule.element(x)
                    self._assign(t, stretch, joined)
                indices.append((j, index))
                elements.append(x)
            self._scanned(t, rule, arrays, stretch)
            before = tuple(b.variable(r) for r in line.carried)
            with t.b.when(f"{t.thread} > 0u"):
                preceding = tuple(t.read(a, rule.register, f"{t.thread} - 1u") for a in arrays)
                self._carry(t, rule, before, preceding, line.has_carry.format(start))
            if is_shown:
                for (j, index), x in zip(indices, elements, strict=True):
                    with t.b.when(f"{j} < {line.end}"):
                        self._step(t, rule, before, x, line.has_carry.format(j), index, True)
            carried = tuple(t.read(a, rule.register, f"{t.group - 1}u") for a in arrays)
            self._carry(t, rule, line.carried, carried, line.has_carry.format(start))
            t.b.barrier()

    def _scanned(self, t: Template, rule: Rule, arrays: Sequence[str], stretch: State) -> None:
        """Arrays that hold at each thread the stretches up to its own, joined: over 1, 2, 4, … threads."""
        for array, register in zip(arrays, stretch, strict=True):
            t.write(array, t.thread, register)
        t.b.barrier()
        distance = t.variable("1u", "distance")
        with t.forever_while(f"{distance} < {t.group}u"):
            with t.b.when(f"{t.thread} >= {distance}"):
                left = tuple(t.read(a, rule.register, f"{t.thread} - {distance}") for a in arrays)
                self._assign(t, stretch, rule.joined(left, stretch))
            t.b.barrier()
            for array, register in zip(arrays, stretch, strict=True):
                t.write(array, t.thread, register)
            t.b.line(f"{distance} = {distance} * 2u;")
            t.b.barrier()

    # -------------------------------------------------------------------------------------- elements

    def _step(
        self,
        t: Template,
        rule: Rule,
        carried: State,
        x: tuple[Register, ...],
        has_carry: str,
        index: str,
        is_shown: bool,
    ) -> None:
        """Update the state by one more element, and store its result."""
        if is_shown and self.problem.is_exclusive:
            self._store(t, rule, index, carried)
        self._carry(t, rule, carried, rule.element(x), has_carry)
        if is_shown and not self.problem.is_exclusive:
            self._store(t, rule, index, carried)

    def _carry(self, t: Template, rule: Rule, carried: State, stretch: State, has_carry: str) -> None:
        """`carried` behind a stretch. In front of a line a recurrence carries nothing, not 0: infinity times 0 is no number."""
        if self.problem.op is not LinearRecurrence:
            self._assign(t, carried, rule.joined(carried, stretch))
            return
        with t.b.block(f"if ({has_carry}) {{", "} else {"):
            self._assign(t, carried, rule.joined(carried, stretch))
        t.b.depth += 1
        self._assign(t, carried, stretch)
        t.b.depth -= 1
        t.b.line("}")

    @staticmethod
    def _assign(t: Template, names: State, values: State) -> None:
        for name, value in zip(names, values, strict=True):
            t.b.assign(name, value)

    def _index(self, t: Template, line: _Line, j: str) -> str:
        reversible = f"{self.problem.n - 1}u - {j}" if self.problem.is_reversed else j
        return t.number(t.element(line.base, f"({reversible})", self.problem.inner), "at", t.kind)

    def _elements(self, t: Template, rule: Rule, index: str) -> tuple[Register, ...]:
        dtype = self.problem.dtype
        return tuple(t.memory.load(t.buffer(k, dtype), dtype, index) for k in range(self.operands))

    def _store(self, t: Template, rule: Rule, index: str, state: State) -> None:
        dtype, number = self.problem.dtype, self.operands
        t.memory.store(t.buffer(number, dtype, is_written=True), dtype, index, rule.shown(state))
