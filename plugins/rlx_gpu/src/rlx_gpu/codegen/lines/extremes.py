"""Position of a line's extreme: the smallest key of the line, and then the first position that has it.

Both are minima of whole numbers, so that the order in which threads meet changes nothing. Of few long lines every part finds its
own first, and these are the next line.
"""

from __future__ import annotations

from contextlib import nullcontext

from rlx_core.codegen.ordering import Extreme
from rlx_core.codegen.scalars.table import ScalarTable
from rlx_core.emit.emitters import Emitted
from rlx_core.ir.dtypes import DType, i32, u32, u64
from rlx_core.system.records import frozen
from rlx_gpu.codegen.assembler import Register
from rlx_gpu.codegen.indexing import index_refusal, length_refusal
from rlx_gpu.codegen.languages import GpuDialect
from rlx_gpu.codegen.lines.keys import key_dtype, load_key
from rlx_gpu.codegen.lines.template import Template, bits_dtype
from rlx_gpu.codegen.reductions import Reductions
from rlx_gpu.codegen.walks import Machine


def refusal(problem: Extreme, language: GpuDialect) -> str | None:
    """Return why an extreme cannot be computed, as "needs …" would continue."""
    return (
        length_refusal("lines", problem.n)
        or language.refusal(problem.keys.dtype)
        or index_refusal(language, problem.lines * problem.n)
    )


def print_extreme(problem: Extreme, language: GpuDialect, machine: Machine, scalars: ScalarTable) -> Emitted:
    """Return the launches that compute extremes; the buffers are the elements and the places."""
    assert (reason := refusal(problem, language)) is None, f"{problem} needs {reason}"
    if not problem.lines:
        return Emitted((), ())
    stages = _ExtremeStages(problem, language, machine, scalars)
    parts = _parts(problem, machine)
    if parts == 1:
        return stages.function(1, problem.n, True, True)
    first_stage = stages.function(parts, -(-problem.n // parts), True, False)
    count = problem.lines * parts
    return Emitted.joined(
        (first_stage, stages.function(1, parts, False, True)), (count * stages.key.itemsize, count * 4)
    )


def _parts(problem: Extreme, machine: Machine) -> int:
    if problem.lines >= machine.few_rows or problem.n < machine.long_row:
        return 1
    parts = min(-(-problem.n // machine.part), -(-machine.few_rows // problem.lines))
    # None of them is empty.
    return -(-problem.n // -(-problem.n // parts))


@frozen
class _ExtremeStages:
    problem: Extreme
    language: GpuDialect
    machine: Machine
    scalars: ScalarTable

    @property
    def key(self) -> DType:
        return key_dtype(self.problem.keys)

    def function(self, parts: int, size: int, is_first: bool, is_last: bool) -> Emitted:
        """The extreme of each part of `size` elements or, after the first stage, pairs of a line."""
        p, machine = self.problem, self.machine
        is_group = size > machine.short_row and (p.inner == 1 or p.lines < machine.group)
        group = machine.group
        while is_group and group > machine.min_group and group // 2 >= size:
            group //= 2
        t = Template(self.language, machine, self.scalars, group, p.lines * p.n)
        count = p.lines * parts
        with t.each_group(count) if is_group else t.each_thread(count) as i:
            line = t.number(f"{t.wide(i) if is_group else i} / {parts}u", "line", t.kind)
            start = t.number(
                f"({i} % {parts}u) * {size}u" if t.kind == "u32" else f"(u32)({i} % {parts}u) * {size}u", "start"
            )
            extent = p.n if is_first else size
            stop = t.number(t.chosen(f"{start} + {size}u < {extent}u", f"{start} + {size}u", f"{extent}u"), "stop")
            key, place = self._of_thread(t, line, start, stop, is_first, is_group)
            if is_group:
                key, place = self._of_group(t, key, place)
            with t.b.when(f"{t.thread} == 0u") if is_group else nullcontext():
                self._store(t, t.wide(i), line, key, place, is_last)
        return t.done("extreme")

    def _of_thread(
        self, t: Template, line: str, start: str, stop: str, is_first: bool, is_group: bool
    ) -> tuple[Register, Register]:
        """The best key of a thread's share, and the first place that has it."""
        b, p = t.b, self.problem
        best, place = b.variable(b.literal(self.key, -1)), b.variable(b.literal(i32, -1))
        base = t.line(line, p.n, p.inner) if is_first else t.number(f"{line} * {stop}", "base", t.kind)
        first, step = (f"{start} + {t.thread}", f"{t.group}u") if is_group else (start, "1u")
        with t.loop(first, stop, step, "j") as j:
            if is_first:
                index = t.element(base, j, p.inner)
                key, here = load_key(t, p.keys, t.buffer(0, bits_dtype(p.keys.dtype)), index), t.word(j)
            else:
                key = t.memory.load(t.buffer(2, self.key), self.key, f"{base} + {j}")
                here = t.memory.load(t.buffer(3, i32), i32, f"{base} + {j}")
            # The largest key can be an element's key too; its place is not yet known then.
            is_better = b.icmp_unsigned("<", key, best)
            is_earlier = b.and_(b.icmp_unsigned("==", key, best), b.icmp_unsigned("<", here, place))
            with t.b.when(f"{is_better.text} || {is_earlier.text}"):
                b.assign(best, key)
                b.assign(place, here)
        return best, place

    def _of_group(self, t: Template, key: Register, place: Register) -> tuple[Register, Register]:
        reductions = Reductions(t.b, self.scalars, t.group, self.machine.subgroup, shared=t.shared)
        dtype: DType = u64 if self.key.itemsize == 8 else u32
        (best,) = reductions.totals([("min", dtype, key)])
        candidate = t.b.select(t.b.icmp_unsigned("==", key, best), place, t.b.literal(i32, -1))
        (first,) = reductions.totals([("min", u32, candidate)])
        return best, first

    def _store(self, t: Template, share: str, line: str, key: Register, place: Register, is_last: bool) -> None:
        if is_last:
            stored = t.b.resized(place, self.problem.index, is_signed=False)
            places = t.buffer(1, self.problem.index, is_written=True)
            t.memory.store(places, self.problem.index, line, stored)
            return
        t.memory.store(t.buffer(2, self.key, is_written=True), self.key, share, key)
        t.memory.store(t.buffer(3, i32, is_written=True), i32, share, place)
