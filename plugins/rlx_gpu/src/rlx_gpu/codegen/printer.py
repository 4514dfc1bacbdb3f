"""Prints a loop kernel with its schedule as a function of a GPU language.

A row kernel is a few loops over the row (`codegen/schedule.py`). A thread combines its share of each reduction in registers; a
group adds up the shares of its threads in a fixed order, so that every run gives the same bits. Values that a later loop needs
again are kept in registers where the schedule requires it, and otherwise loaded or computed again.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from math import prod

from attrs import evolve, field

from rlx_core.codegen.loops import Index, Kernel, Reduce
from rlx_core.codegen.scalars.table import ScalarTable
from rlx_core.codegen.schedule import Nest
from rlx_core.codegen.schedule import schedule as loops_of
from rlx_core.emit.emitters import Emitted
from rlx_core.system.records import define
from rlx_gpu.codegen.assembler import Register, TextAssembler
from rlx_gpu.codegen.functions import assembled
from rlx_gpu.codegen.keeping import kept_values, uniform_values
from rlx_gpu.codegen.languages import Argument, GpuDialect
from rlx_gpu.codegen.reductions import Reductions
from rlx_gpu.codegen.registers import register_dtype
from rlx_gpu.codegen.values import ElementRun, Values
from rlx_gpu.codegen.walks import Machine, Schedule


def print_function(
    kernel: Kernel, schedule: Schedule, language: GpuDialect, machine: Machine, scalars: ScalarTable
) -> Emitted:
    """Return the launch of a kernel that obeys `check_kernel` and that nothing refuses."""
    b = TextAssembler(language)
    # Equal kernels share a function whatever their buffers are called.
    used = sorted({a.buffer for a in kernel.accesses})
    names = {buffer: f"m{i}" for i, buffer in enumerate(used)}
    plain = renamed(kernel, names)
    reductions = Reductions(b, scalars, schedule.group, machine.subgroup)
    values = Values(b, plain, schedule, scalars)
    _Printing(plain, schedule, values, reductions).write()
    arguments = {i: Argument(names[i], kernel.buffers[i].dtype, kernel.buffers[i].is_result) for i in used}
    return assembled(kernel.name, b, arguments, reductions.shared, schedule.group, schedule.groups, values.faults)


def renamed(kernel: Kernel, names: dict[int, str]) -> Kernel:
    """The kernel with other names for the buffers that it touches."""
    buffers = tuple(evolve(buffer, name=names.get(i, f"unused{i}")) for i, buffer in enumerate(kernel.buffers))
    return evolve(kernel, buffers=buffers)


@define(eq=False)
class _Printing:
    """The text of one kernel while it is written."""

    kernel: Kernel
    schedule: Schedule
    values: Values
    reductions: Reductions
    used_axes: frozenset[int] = field(init=False)

    def __attrs_post_init__(self) -> None:
        axes = {i for a in self.kernel.accesses for i, s in enumerate(a.strides) if s}
        axes |= {v.axis for v in self.kernel.values if isinstance(v, Index)}
        self.used_axes = frozenset(axes | ({0} if self.schedule.part else set()))

    @property
    def b(self) -> TextAssembler:
        return self.values.b

    @property
    def language(self) -> GpuDialect:
        return self.b.language

    def write(self) -> None:
        """All shares of a thread or group."""
        s, kind = self.schedule, self.schedule.kind
        group, thread = self.language.group, self.language.thread
        wide = f"({kind}){group}" if kind == "u64" else group
        is_group = s.walk == "row_group"
        first = wide if is_group else f"{wide} * {s.group}u + {thread}"
        total = s.groups * (1 if is_group else s.group)
        if s.is_looped:
            with self.b.loop("i", first, f"{s.shares}u", f"{total}u", kind):
                self._share()
                if is_group:  # reused in the next iteration only after all threads have read it
                    self.b.barrier()
            return
        self.b.let("i", first, kind)
        if s.shares == total:
            self._share()
            return
        with self.b.when(f"i < {s.shares}u"):
            self._share()

    def _share(self) -> None:
        """One point, run of points or row."""
        if self.kernel.row_axes:
            self._row(self._coordinates(self.kernel.grid_axes, "i", "g", 1))
            return
        s = self.schedule
        runs = prod(self.kernel.extents[-s.flat_axes :]) // s.lanes if s.flat_axes else 1
        row_place = "i" if runs == 1 else f"i / {runs}u"
        point = ElementRun(self._coordinates(self.kernel.grid_axes, "i", "g", s.lanes), "i", row_place, None, {})
        self.values.store(self.kernel.stores, point)

    def _coordinates(self, axes: range, flat: str, prefix: str, lanes: int) -> dict[int, str]:
        """Return the index along each required axis, from a number that counts vectors of neighbours along the last one."""
        coordinates: dict[int, str] = {}
        divisor = 1
        for axis in reversed(axes):
            runs = self.kernel.extents[axis] // (lanes if axis == axes[-1] else 1)
            text = flat if divisor == 1 else f"{flat} / {divisor}u"
            if axis != axes[0]:
                text = f"{text} % {runs}u"
            if axis == axes[-1] and lanes > 1:
                text = f"{text} * {lanes}u" if text == flat else f"({text}) * {lanes}u"
            if axis in self.used_axes:
                coordinates[axis] = f"{prefix}{axis}"
                self.b.let(coordinates[axis], text, self.schedule.kind)
            divisor *= runs
        return coordinates

    # -------------------------------------------------------------------------------------- rows

    def _row(self, grid: dict[int, str]) -> None:
        kernel, plan = self.kernel, loops_of(self.kernel)
        uniform: dict[int, Register] = {}
        row_place = f"i % {kernel.grid_size // kernel.extents[0]}u" if self.schedule.part else "i"
        bounds = self._bounds(grid)
        outside = ElementRun(grid, row_place, row_place, None, uniform, uniform)
        for depth, nest in enumerate(plan.nests):
            for v in uniform_values(
                kernel, nest, {*uniform, *self.values.kept_arrays}
            ):  # computed once, before the loop
                self.values.value(v, 0, outside)
            keeps = kept_values(kernel, plan.nests, depth, self.values.kept_arrays) if self.schedule.items else ()
            arrays = {v: self._arrays(v) for v in keeps}
            shares = {r: self._accumulators(r) for r in nest.reduces}

            def run(point: ElementRun, nest: Nest = nest, arrays=arrays, shares=shares) -> None:  # type: ignore[no-untyped-def]
                self._combine(shares, point)
                for v, names in arrays.items():
                    for lane, name in enumerate(names):
                        self.b.line(f"{name}[{point.slot}] = {self.values.value(v, lane, point).text};")
                self.values.store([kernel.stores[number] for number in nest.stores], point)

            self._runs(bounds, outside, run)
            self.values.kept_arrays.update(arrays)
            uniform.update(self._totals(shares))
        self.values.kept_arrays.clear()
        if not plan.finish:
            return
        point = ElementRun(grid, row_place, row_place, None, uniform)
        is_group = self.schedule.walk == "row_group"
        with self.b.when(f"{self.language.thread} == 0u") if is_group else nullcontext():
            self.values.store([kernel.stores[number] for number in plan.finish], point)

    def _bounds(self, grid: dict[int, str]) -> tuple[str, str]:
        """The first run of the row and the end of the runs that this thread or group is given."""
        runs = self.kernel.row_size // self.schedule.lanes
        if not self.schedule.part:
            return "0u", f"{runs}u"
        kind, part = self.schedule.kind, self.schedule.part
        self.b.let("start", f"{grid[0]} * {part}u", kind)
        is_last = f"start + {part}u < {runs}u"
        self.b.let("stop", self.language.select(is_last, f"start + {part}u", f"{runs}u"), kind)
        return "start", "stop"

    def _runs(self, bounds: tuple[str, str], outside: ElementRun, body: Callable[[ElementRun], None]) -> None:
        """`body` at every run of neighbours that is this thread's."""
        s, kind, thread = self.schedule, self.schedule.kind, self.language.thread
        runs = self.kernel.row_size // s.lanes
        start, stop = bounds
        if s.items:
            with self.b.loop("j", "0u", f"{s.items}u", kind=kind, is_unrolled=True):
                self.b.let("r", f"j * {s.group}u + {thread}", kind)
                with nullcontext() if s.items * s.group == runs else self.b.when(f"r < {runs}u"):
                    body(self._inside(outside, "j"))
            return
        first, step = (
            (thread if start == "0u" else f"{start} + {thread}", s.group) if s.walk == "row_group" else (start, 1)
        )
        with self.b.loop("r", first, stop, f"{step}u", kind):
            body(self._inside(outside, None))

    def _inside(self, outside: ElementRun, slot: str | None) -> ElementRun:
        runs = self.kernel.row_size // self.schedule.lanes
        row = self._coordinates(self.kernel.row_axes, "r", "r", self.schedule.lanes)
        number = outside.place if outside.place.isalnum() else f"({outside.place})"
        place = f"{number} * {runs}u + r"
        return ElementRun({**outside.coordinates, **row}, place, outside.place, slot, outside.uniform)

    def _arrays(self, value: int) -> list[str]:
        type = self.language.type(register_dtype(self.kernel.values[value].dtype))
        lanes = self.schedule.lanes if self.values.varies_lane[value] else 1
        names = [f"kept{value}_{lane}" for lane in range(lanes)]
        for name in names:
            self.b.line(self.language.array(type, name, self.schedule.items))
        return names

    def _reduce(self, number: int) -> Reduce:
        term = self.kernel.values[number]
        assert isinstance(term, Reduce), "a loop reduces what is a reduction"
        return term

    def _accumulators(self, reduce: int) -> list[Register]:
        term = self._reduce(reduce)
        start = self.reductions.identity(term.combine, term.dtype)
        return [self.b.variable(start, "a") for _ in range(self.schedule.lanes)]

    def _combine(self, shares: dict[int, list[Register]], point: ElementRun) -> None:
        for r, lanes in shares.items():
            term = self._reduce(r)
            for lane, share in enumerate(lanes):
                value = self.values.value(term.arg, lane, point)
                self.b.assign(share, self.reductions.combined(term.combine, term.dtype, share, value))

    def _totals(self, shares: dict[int, list[Register]]) -> dict[int, Register]:
        reduced = []
        for r, lanes in shares.items():
            term = self._reduce(r)
            reduced.append((term.combine, term.dtype, self.reductions.folded(term.combine, term.dtype, lanes)))
        if self.schedule.walk == "row_group" and reduced:
            return dict(zip(shares, self.reductions.totals(reduced), strict=True))
        return dict(zip(shares, [f[2] for f in reduced], strict=True))
