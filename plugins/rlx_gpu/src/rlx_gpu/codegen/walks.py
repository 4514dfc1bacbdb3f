"""The iteration scheme of a kernel on a GPU: the mapping of points to threads, and the values of a row kept in registers.

point       a thread computes one point of the grid, or a few neighbours whose bytes are whole words
row_thread  a thread computes a row: short rows, and rows whose neighbours are neighbours in memory
row_group   the threads of a group share a row; reductions meet in shared memory
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from rlx_core.codegen.loops import Bound, Kernel, Load, Store
from rlx_core.system.records import frozen
from rlx_gpu.codegen.indexing import IndexType, index_type, reach
from rlx_gpu.codegen.memory import is_whole_words

Walk = Literal["point", "row_thread", "row_group"]


@frozen(kw_only=True)
class Machine:
    """Parameters of a device for schedules. The number of its units is not included, so that sums keep their order.

    Attributes:
        group: Threads of a group, a power of two.
        row_group: Threads that share a row, if fewer than a group's; only where there are no subgroups.
        subgroup: Threads that exchange registers, or `None` where the language or the device has no such thing.
        most_groups: Groups of one launch; where there is more to do, each takes several shares.
        shared_nbytes: Memory that the threads of a group share.
        access_nbytes: The widest access of one thread.
        wide_points: Elements from which a thread takes several neighbours; below, more threads are worth more.
        kept: Elements of a row that a thread holds in registers between loops; longer rows are read again.
        short_row: Elements up to which one thread computes a row.
        few_rows: Rows below which long ones are computed in parts, by two launches.
        long_row: Elements from which a row is long.
        part: Elements of a part, at least.
        few_updates: Updates of a scatter up to which each element of the result reads all their indices; more are sorted.
        many_groups: Groups that fill a large device: into so many all rows together are cut.
    """

    group: int = 256
    row_group: int | None = None
    subgroup: int | None = None
    most_groups: int = 65535
    shared_nbytes: int = 16384
    access_nbytes: int = 16
    wide_points: int = 1 << 16
    kept: int = 16
    short_row: int = 32
    few_rows: int = 256
    long_row: int = 1 << 14
    part: int = 4096
    many_groups: int = 1024
    few_updates: int = 32

    @property
    def min_group(self) -> int:
        """Threads of the smallest group that a short row or line has: a whole subgroup, whose threads exchange registers."""
        return max(32, self.subgroup or 0)


@frozen
class Schedule:
    """One launch of a kernel.

    Attributes:
        lanes: Neighbours along the last axis that a thread computes together.
        group: Threads of a group.
        groups: Groups of the launch.
        shares: Points, rows or, with lanes, runs of points, that the threads or groups of the launch divide.
        items: With rows in registers, how many runs of `lanes` a thread has; 0 where a row is read again.
        part: With a first axis that counts parts of rows, the runs of `lanes` in one; else 0.
        kind: The type of an index.
        flat_axes: Number of the grid's last axes that are rows of the complete kernel, of which this is a stage.
    """

    walk: Walk
    lanes: int
    group: int
    groups: int
    shares: int
    items: int = 0
    part: int = 0
    kind: IndexType = "u32"
    flat_axes: int = 0

    @property
    def is_looped(self) -> bool:
        """Whether a thread or group may have several shares."""
        return self.shares > self.groups * (1 if self.walk == "row_group" else self.group)


def schedule_of(kernel: Kernel, machine: Machine, parts: int = 0) -> Schedule:
    """Return the launch of a kernel; `parts` is the size of its first axis if that counts parts of rows."""
    walk = walk_of(kernel, machine) if kernel.row_axes else "point"
    lanes = _lanes(kernel, machine, walk)
    kind = index_type(index_count(kernel, parts))
    group, items = machine.group, 0
    if walk == "row_group":
        runs = kernel.row_size // lanes
        share = -(-runs // parts) if parts else runs
        group = min(group, machine.row_group or group)
        while group > machine.min_group and group // 2 >= share:
            group //= 2
        shares = kernel.grid_size
        items = -(-runs // group)
        if parts or items * lanes > machine.kept:
            items = 0
        groups = shares
        part = share if parts else 0
    else:
        shares = kernel.grid_size // (lanes if walk == "point" else 1)
        groups = -(-shares // group)
        part = -(-kernel.row_size // parts) if parts else 0
    return Schedule(walk, lanes, group, max(min(groups, machine.most_groups), 1), shares, items, part, kind)


def walk_of(kernel: Kernel, machine: Machine) -> Walk:
    """A thread per row if rows are short or adjacent rows are contiguous in memory; else a group per row."""
    inner = len(kernel.extents) - 1
    if kernel.row_size <= machine.short_row:
        return "row_thread"
    last = kernel.grid - 1
    is_across = last >= 0 and any(
        load.strides[last] == load.dtype.itemsize and load.strides[inner] != load.dtype.itemsize
        for load in kernel.loads
        if load.strides[inner]
    )
    return "row_thread" if is_across and kernel.grid_size >= machine.group else "row_group"


def _lanes(kernel: Kernel, machine: Machine, walk: Walk) -> int:
    """Return how many neighbours a thread computes: those whose bytes are as many words as one access has."""
    if walk == "row_thread" or not kernel.extents:
        return 1
    axis = len(kernel.extents) - 1
    along = [a for a in kernel.accesses if a.strides[axis] == _itemsize(kernel, a)]
    elements = kernel.grid_size * kernel.row_size
    if not along or elements < machine.wide_points:
        return 1
    widest = max(_itemsize(kernel, a) for a in along)
    for lanes in (8, 4, 2):
        if (
            lanes * widest <= machine.access_nbytes
            and kernel.extents[axis] % lanes == 0
            and all(_is_aligned(kernel, a, axis, lanes) for a in along)
        ):
            return lanes
    return 1


def has_pairs(kernel: Kernel) -> bool:
    """Return whether the accesses of a kernel to two neighbours along the last axis are full words wherever possible."""
    axis = len(kernel.extents) - 1
    wide = [a for a in kernel.accesses if is_whole_words(kernel.buffers[a.buffer].dtype, 2)]
    along = [a for a in wide if a.strides[axis] == _itemsize(kernel, a)]
    return kernel.extents[axis] % 2 == 0 and all(_is_aligned(kernel, a, axis, 2) for a in along)


def _itemsize(kernel: Kernel, access: Load | Store) -> int:
    return kernel.buffers[access.buffer].dtype.itemsize


def _is_aligned(kernel: Kernel, access: Load | Store, axis: int, lanes: int) -> bool:
    """Return whether runs of lanes are whole words that begin at a multiple of their size."""
    dtype, begin = kernel.buffers[access.buffer].dtype, kernel.buffers[access.buffer].alignment
    nbytes = lanes * dtype.itemsize
    steps = [s for a, s in enumerate(access.strides) if a != axis]
    if isinstance(access, Load):
        steps += [s for _, s in access.dynamic]
    return is_whole_words(dtype, lanes) and all(s % nbytes == 0 for s in (*steps, access.offset, begin))


def index_count(kernel: Kernel, parts: int = 0) -> int:
    """The most that a thread of the kernel counts: points, or elements of a buffer; `parts` of a row are counted as one row."""
    return max(kernel.grid_size // max(parts, 1) * kernel.row_size, kernel_reach(kernel))


def kernel_reach(kernel: Kernel) -> int:
    """The elements of a buffer that a kernel reaches, at most."""
    farthest = 0
    for access in kernel.accesses:
        strides, extents = access.strides, kernel.extents
        if isinstance(access, Load):
            strides = (*strides, *(s for _, s in access.dynamic))
            extents = (*extents, *(_size(kernel, v) for v, _ in access.dynamic))
        farthest = max(farthest, reach(strides, extents, _itemsize(kernel, access), access.offset))
    return farthest


def _size(kernel: Kernel, value: int) -> int:
    bound = kernel.values[value]
    assert isinstance(bound, Bound), "an index is held inside its axis"
    return bound.size


def strides_fault(kernel: Kernel) -> str | None:
    """Return why a GPU cannot reach some elements, as "needs …" would continue."""
    for access in kernel.accesses:
        size = _itemsize(kernel, access)
        steps: Sequence[int] = (*access.strides, access.offset, *(s for _, s in getattr(access, "dynamic", ())))
        if any(s % size for s in steps):
            return f"{kernel.buffers[access.buffer].name} in steps of whole elements of {size} bytes"
    return None
