"""Long reductions with few rows as several kernels: partial reductions of rows first, then their combination.

Every loop over the row becomes two kernels. The first has an additional axis of parts of the row, and stores the partial result
of each part; the second reduces over the parts. Per-row results are stored by the last of these; results along the row are
stored by a kernel without rows, all of whose points are computed at once, so that nothing is written twice. All are kernels of
the loop language, whose buffers are those of the complete kernel and then its workspaces.
The number of parts follows from the shape alone, so that a sum keeps its order on every device.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod

from attrs import evolve, field

from rlx_core.codegen.layout import renumbered
from rlx_core.codegen.loops import Apply, Buffer, Index, Kernel, Load, Reduce, Scalar, Store, operands_of
from rlx_core.codegen.schedule import levels
from rlx_core.ops.conversion import Cast
from rlx_core.system.records import define, frozen
from rlx_gpu.codegen.walks import Machine, walk_of


@frozen
class Stage:
    """A kernel with a separate launch.

    Attributes:
        parts: If set, the first axis counts this many parts of the rows.
        flat_axes: Number of the grid's last axes that are rows of the complete kernel.
    """

    kernel: Kernel
    parts: int = 0
    flat_axes: int = 0


@frozen
class Staged:
    """The stages that compute a kernel, and the bytes of each workspace, whose numbers follow those of the kernel's buffers."""

    stages: tuple[Stage, ...]
    workspaces: tuple[int, ...] = ()


def stages_of(kernel: Kernel, machine: Machine) -> Staged:
    """The kernel itself, or the kernels that compute it in parts."""
    parts = _parts(kernel, machine)
    return Staged((Stage(kernel),)) if parts < 2 else _Stager(kernel, parts).staged()


def _parts(kernel: Kernel, machine: Machine) -> int:
    """Return the number of parts of rows, for rows that are long and too few to occupy a device."""
    if not kernel.row_axes or not kernel.grid_size or not any(isinstance(v, Reduce) for v in kernel.values):
        return 0
    rows, size = kernel.grid_size, kernel.row_size
    few, long, part, many = machine.few_rows, machine.long_row, machine.part, machine.many_groups
    if walk_of(kernel, machine) == "row_thread":
        # Threads, not groups, have a row each, and a part of one is as short as a row may be.
        few, many = few * machine.group, many * machine.group
        long, part = 16 * machine.short_row, 4 * machine.short_row
    if rows >= few or size < long:
        return 0
    return min(-(-size // max(part, 1)), -(-many // rows))


@define(eq=False)
class _Stager:
    """Cuts one kernel; `totals` are the workspaces of finished reductions, by value."""

    kernel: Kernel
    parts: int
    buffers: list[Buffer] = field(factory=list)
    nbytes: list[int] = field(factory=list)
    totals: dict[int, int] = field(factory=dict)

    def staged(self) -> Staged:
        kernel, level = self.kernel, levels(self.kernel)
        reduces = [i for i, v in enumerate(kernel.values) if isinstance(v, Reduce)]
        along = [s for s in kernel.stores if kernel.is_along_rows(s)]
        once = [s for s in kernel.stores if not kernel.is_along_rows(s)]
        stages: list[Stage] = []
        depths = sorted({level[r] for r in reduces})
        for depth in depths:
            group = [r for r in reduces if level[r] == depth]
            partial = {r: self._workspace(r, self.parts) for r in group}
            stages.append(evolve(self._first(partial), parts=self.parts))
            is_last = depth == depths[-1]
            stages.append(self._second(partial, once if is_last else (), goes_on=bool(along) or not is_last))
        if along:
            stages.append(evolve(self._last(along), flat_axes=len(kernel.row_axes)))
        buffers = (*kernel.buffers, *self.buffers)
        # A kernel lists all buffers, so that their numbers are those of the whole.
        final = [evolve(s, kernel=_with_buffers(s.kernel, buffers)) for s in stages]
        return Staged(tuple(final), tuple(self.nbytes))

    def _workspace(self, reduce: int, count: int) -> int:
        dtype = self.kernel.values[reduce].dtype
        # Sums of narrow floats are f32, and so are partial sums.
        self.buffers.append(Buffer(f"w{len(self.buffers)}", dtype.accumulator))
        self.nbytes.append(count * self.kernel.grid_size * dtype.accumulator.itemsize)
        return len(self.kernel.buffers) + len(self.buffers) - 1

    def _dense(self, dtype_size: int) -> tuple[int, ...]:
        """Strides of one element a point of the grid."""
        sizes = self.kernel.extents[: self.kernel.grid]
        return tuple(dtype_size * prod(sizes[a + 1 :]) for a in range(len(sizes)))

    def _load(self, reduce: int, buffer: int, strides: tuple[int, ...]) -> Load:
        return Load(buffer, self.kernel.values[reduce].dtype.accumulator, strides)

    def _finished(self, extra: tuple[int, ...], before: tuple[int, ...] = ()) -> dict[int, Scalar]:
        """Loads of the reductions that are complete, for kernels with some axes before or after those of the grid."""
        values: dict[int, Scalar] = {}
        for r, buffer in self.totals.items():
            size = self.kernel.values[r].dtype.accumulator.itemsize
            values[r] = self._load(r, buffer, (*before, *self._dense(size), *extra))
        return values

    def _first(self, partial: Mapping[int, int]) -> Stage:
        kernel, rows = self.kernel, (0,) * len(self.kernel.row_axes)
        stores = []
        for r, buffer in partial.items():
            size = kernel.values[r].dtype.accumulator.itemsize
            stores.append(Store(buffer, r, (kernel.grid_size * size, *self._dense(size), *rows)))
        axes = (None, *range(len(kernel.extents)))
        return self._rebuilt(axes, kernel.grid + 1, self._finished(rows, (0,)), stores)

    def _second(self, partial: Mapping[int, int], once: Sequence[Store], *, goes_on: bool) -> Stage:
        """Return the stage of the totals of all parts: stored if the kernel goes on after them, together with per-row
        results."""
        kernel = self.kernel
        known = self._finished((0,))
        for r, buffer in partial.items():
            size = kernel.values[r].dtype.accumulator.itemsize
            known[r] = self._load(r, buffer, (*self._dense(size), kernel.grid_size * size))
        stores = [evolve(s, strides=(*s.strides[: kernel.grid], 0)) for s in once]
        for r in partial if goes_on else ():
            self.totals[r] = self._workspace(r, 1)
            size = kernel.values[r].dtype.accumulator.itemsize
            stores.append(Store(self.totals[r], r, (*self._dense(size), 0)))
        return self._rebuilt((*kernel.grid_axes, None), kernel.grid, known, stores, reduced=frozenset(partial))

    def _last(self, along: Sequence[Store]) -> Stage:
        rank, rows = len(self.kernel.extents), (0,) * len(self.kernel.row_axes)
        return self._rebuilt(tuple(range(rank)), rank, self._finished(rows), along)

    def _rebuilt(
        self,
        axes: tuple[int | None, ...],
        grid: int,
        known: Mapping[int, Scalar],
        stores: Sequence[Store],
        reduced: frozenset[int] = frozenset(),
    ) -> Stage:
        """Return the computation of `stores`, in other axes; `known` values are loaded, and the `reduced` ones reduced.

        Args:
            axes: For each axis, the axis of the complete kernel that it is; `None` for the axis of the parts.
        """
        kernel = self.kernel
        extents = tuple(self.parts if a is None else kernel.extents[a] for a in axes)
        needed: set[int] = set()
        waiting = [s.value for s in stores]
        while waiting:
            v = waiting.pop()
            if v not in needed:
                needed.add(v)
                waiting += () if v in known else operands_of(kernel.values[v])
        values: list[Scalar] = []
        number: dict[int, int] = {}
        for v in sorted(needed):
            term = kernel.values[v]
            if v in known:
                values.append(known[v])
                if v in reduced:
                    assert isinstance(term, Reduce), "what is reduced is a reduction"
                    values.append(Reduce(values[-1].dtype, term.combine, len(values) - 1))
                if values[-1].dtype is not term.dtype:
                    values.append(Apply(term.dtype, Cast(term.dtype), (len(values) - 1,)))
            elif isinstance(term, Index):
                values.append(evolve(term, axis=axes.index(term.axis)))
            else:
                term = renumbered(term, number)
                if isinstance(term, Load):
                    term = evolve(term, strides=tuple(0 if a is None else term.strides[a] for a in axes))
                values.append(term)
            number[v] = len(values) - 1
        moved = []
        for s in stores:
            dtype = kernel.values[s.value].dtype.accumulator
            if s.buffer >= len(kernel.buffers) and values[number[s.value]].dtype is not dtype:
                values.append(Apply(dtype, Cast(dtype), (number[s.value],)))
                number[s.value] = len(values) - 1
            moved.append(evolve(s, value=number[s.value]))
        return Stage(Kernel(kernel.name, extents, grid, (), tuple(values), tuple(moved)))


def _with_buffers(kernel: Kernel, buffers: Sequence[Buffer]) -> Kernel:
    stored = {s.buffer for s in kernel.stores}
    return evolve(kernel, buffers=tuple(evolve(b, is_result=i in stored) for i, b in enumerate(buffers)))
