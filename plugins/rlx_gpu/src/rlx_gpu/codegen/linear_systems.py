"""Linear systems by LU with partial pivoting, one group per system.

The matrix and its right sides are adjacent in a workspace. For each column the threads of the group select its largest element
(of equal ones the first), exchange rows, and subtract multiples of the pivot's row from those below; back substitution follows.
Every element is written by one thread between two barriers, so results do not depend on their order.
"""

from __future__ import annotations

import math

from rlx_core.codegen.linear_systems import LinearSystems
from rlx_core.codegen.scalars.floats import is_nan
from rlx_core.codegen.scalars.table import ScalarTable
from rlx_core.emit.emitters import Emitted
from rlx_core.ir.dtypes import bool_, i32
from rlx_core.system.records import frozen
from rlx_gpu.codegen.assembler import Register
from rlx_gpu.codegen.indexing import length_refusal
from rlx_gpu.codegen.languages import GpuDialect
from rlx_gpu.codegen.lines.template import Template
from rlx_gpu.codegen.walks import Machine

_MATRIX, _SIDES, _RESULT, _ROWS = range(4)
"""Buffers: the operands, the result, and the workspace."""


def refusal(problem: LinearSystems, language: GpuDialect) -> str | None:
    """Return why systems cannot be solved, as "needs …" would continue."""
    return length_refusal("systems", problem.elements) or language.refusal(problem.dtype)


def print_systems(problem: LinearSystems, language: GpuDialect, machine: Machine, scalars: ScalarTable) -> Emitted:
    """Return the launches that solve systems; the buffers are the matrices, the right sides and the solutions."""
    assert (reason := refusal(problem, language)) is None, f"{problem} needs {reason}"
    if not problem.stack * problem.n * problem.k:
        return Emitted((), ())
    group = machine.group
    while group > 32 and group // 2 >= problem.n * problem.width:
        group //= 2
    t = Template(language, machine, scalars, group, problem.elements)
    with t.each_group(problem.stack) as i:
        systems = _System(problem, t, t.buffer(_ROWS, problem.dtype, is_written=True), t.number(f"{i} * {problem.n}u"))
        systems.bring()
        systems.solve()
    return Emitted.joined((t.done("solve"),), (problem.elements * problem.dtype.itemsize,))


@frozen(eq=False)
class _System:
    """One system while its text is written.

    Attributes:
        rows: The workspace.
        first: The number of its first row among those of all systems.
    """

    problem: LinearSystems
    t: Template
    rows: str
    first: str

    def at(self, row: str, column: str) -> str:
        return f"({self.first} + {row}) * {self.problem.width}u + {column}"

    def load(self, row: str, column: str) -> Register:
        return self.t.memory.load(self.rows, self.problem.dtype, self.at(row, column))

    def store(self, row: str, column: str, value: Register) -> None:
        self.t.memory.store(self.rows, self.problem.dtype, self.at(row, column), value)

    def barrier(self) -> None:
        """Emit a barrier that makes all threads' writes visible."""
        self.t.b.line(self.t.language.memory_barrier)

    def bring(self) -> None:
        """The matrix and its right sides into the workspace."""
        p, t = self.problem, self.t
        for buffer, columns, start in ((_MATRIX, p.n, 0), (_SIDES, p.k, p.n)):
            name = t.buffer(buffer, p.dtype)
            with t.loop(t.thread, f"{p.n * columns}u", f"{t.group}u", "e") as e:
                element = t.memory.load(name, p.dtype, f"{self.first} * {columns}u + {e}")
                self.store(f"{e} / {columns}u", f"{e} % {columns}u + {start}u", element)
        self.barrier()

    def solve(self) -> None:
        p, t, b = self.problem, self.t, self.t.b
        is_singular = b.variable(b.literal(bool_, False))
        sizes, places = t.array(p.dtype, t.group, "sizes"), t.array(i32, t.group, "places")
        with t.loop("0u", f"{p.n}u", stem="c") as c:
            size, pivot = self._pivot(c, sizes, places)
            b.assign(is_singular, b.or_(is_singular, b.fcmp_ordered("==", size, b.constant(size, 0.0))))
            self._exchange(c, pivot.text)
            self._eliminate(c)
        with t.loop("0u", f"{p.n}u", stem="s") as s:
            self._substitute(t.number(f"{p.n - 1}u - {s}", "c"))
        result = t.buffer(_RESULT, p.dtype, is_written=True)
        with t.loop(t.thread, f"{p.n * p.k}u", f"{t.group}u", "e") as e:
            x = self.load(f"{e} / {p.k}u", f"{e} % {p.k}u + {p.n}u")
            solution = b.select(is_singular, b.constant(x, math.nan), x)
            t.memory.store(result, p.dtype, f"{self.first} * {p.k}u + {e}", solution)

    def _pivot(self, c: str, sizes: str, places: str) -> tuple[Register, Register]:
        """The size of the largest element of a column from its own row on, and its row; NaN is the largest."""
        p, t, b = self.problem, self.t, self.t.b
        best, place = b.variable(b.literal(p.dtype, -1.0)), b.variable(t.word(c))
        with t.loop(f"{c} + {t.thread}", f"{p.n}u", f"{t.group}u", "r") as r:
            element = self.load(r, c)
            size = b.select(is_nan(b, element), b.constant(element, math.inf), b.fabs(element))
            with t.b.when(b.fcmp_ordered(">", size, best).text):
                b.assign(best, size)
                b.assign(place, t.word(r))
        t.write(sizes, t.thread, best)
        t.write(places, t.thread, place)
        t.b.barrier()
        largest, row = b.variable(t.read(sizes, p.dtype, "0u")), b.variable(t.read(places, i32, "0u"))
        with t.loop("1u", f"{t.group}u", stem="o") as o:
            size, place = t.read(sizes, p.dtype, o), t.read(places, i32, o)
            is_first = b.and_(b.fcmp_ordered("==", size, largest), b.icmp_unsigned("<", place, row))
            with t.b.when(b.or_(b.fcmp_ordered(">", size, largest), is_first).text):
                b.assign(largest, size)
                b.assign(row, place)
        return largest, row

    def _exchange(self, c: str, pivot: str) -> None:
        """Exchange rows `c` and `pivot`, except for elements that are already 0."""
        t = self.t
        with (
            t.b.when(f"{pivot} != {c}"),
            t.loop(f"{c} + {t.thread}", f"{self.problem.width}u", f"{t.group}u", "j") as j,
        ):
            upper, lower = self.load(c, j), self.load(pivot, j)
            self.store(c, j, lower)
            self.store(pivot, j, upper)
        self.barrier()

    def _eliminate(self, c: str) -> None:
        """Multiples of row `c` subtracted from all below, so that nothing is left below the pivot."""
        p, t, b = self.problem, self.t, self.t.b
        pivot = self.load(c, c)
        with t.loop(f"{c} + 1u + {t.thread}", f"{p.n}u", f"{t.group}u", "r") as r:
            self.store(r, c, b.fdiv(self.load(r, c), pivot))
        self.barrier()
        columns = t.number(f"{p.width - 1}u - {c}", "columns")
        with t.loop(t.thread, f"({p.n - 1}u - {c}) * {columns}", f"{t.group}u", "e") as e:
            r, j = t.number(f"{c} + 1u + {e} / {columns}", "r"), t.number(f"{c} + 1u + {e} % {columns}", "j")
            self.store(r, j, b.fma(b.fneg(self.load(r, c)), self.load(c, j), self.load(r, j)))
        self.barrier()

    def _substitute(self, c: str) -> None:
        """Compute the unknown of row `c`, and eliminate it from all equations above."""
        p, t, b = self.problem, self.t, self.t.b
        pivot = self.load(c, c)
        with t.loop(t.thread, f"{p.k}u", f"{t.group}u", "j") as j:
            place = t.number(f"{p.n}u + {j}", "x")
            self.store(c, place, b.fdiv(self.load(c, place), pivot))
        self.barrier()
        with t.loop(t.thread, f"{c} * {p.k}u", f"{t.group}u", "e") as e:
            r, j = t.number(f"{e} / {p.k}u", "r"), t.number(f"{e} % {p.k}u + {p.n}u", "x")
            self.store(r, j, b.fma(b.fneg(self.load(r, c)), self.load(c, j), self.load(r, j)))
        self.barrier()
