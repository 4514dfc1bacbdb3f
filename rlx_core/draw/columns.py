"""The last step of a layered layout: horizontal coordinates of cells whose orders in their rows are known.

Cells of adjoining rows that belong together are aligned first: a chain is one column, a long edge one straight line. Aligned
cells are placed as one block, first as far left as the neighbours allow and then nearer to the cells they connect to. Blocks
of aligned cells are from Brandes and Köpf 2001, "Fast and Simple Horizontal Coordinate Assignment".
"""

from __future__ import annotations

from bisect import bisect, insort
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from statistics import median
from typing import Final

from attrs import field

from rlx_core.system.records import define

_SWEEPS: Final = 12
_GAP: Final = 18.0  # between boxes of a row, and next to a box that an edge passes
_TRUNK_GAP: Final = 5.0  # between two edges that pass a row side by side


@define(eq=False)
class ColumnCell:
    """A box or a waypoint in a row; waypoints have no box. `above` and `below` are its neighbours in the next rows."""

    row: int
    width: float
    box: int | None = None
    above: list[int] = field(factory=list)
    below: list[int] = field(factory=list)
    x: float = 0.0


def place(cells: Sequence[ColumnCell], rows: Sequence[Sequence[int]]) -> None:
    """Give each cell a centre: aligned cells have the same, and no two of a row touch."""
    column = _columns(cells, rows)
    members: dict[int, list[int]] = {}
    for i, c in enumerate(column):
        members.setdefault(c, []).append(i)
    right: dict[int, dict[int, float]] = {c: {} for c in members}  # column → those right of it, with the least distance
    left: dict[int, dict[int, float]] = {c: {} for c in members}
    for row in rows:
        for i, j in pairwise(row):
            a, b, distance = column[i], column[j], _distance(cells[i], cells[j])
            right[a][b] = left[b][a] = max(distance, right[a].get(b, 0.0))
    order = _left_to_right(right, left)
    x = dict.fromkeys(order, 0.0)
    for c in order:
        x[c] = max((x[a] + d for a, d in left[c].items()), default=0.0)
    for sweep in range(_SWEEPS):
        for c in order if sweep % 2 else reversed(order):
            near = [x[column[k]] for i in members[c] for k in (*cells[i].above, *cells[i].below) if column[k] != c]
            if near:
                low = max((x[a] + d for a, d in left[c].items()), default=-float("inf"))
                high = min((x[b] - d for b, d in right[c].items()), default=float("inf"))
                x[c] = min(max(median(near), low), high)
    for cell, c in zip(cells, column, strict=True):
        cell.x = x[c]


def _distance(a: ColumnCell, b: ColumnCell) -> float:
    gap = _TRUNK_GAP if a.box is None and b.box is None else _GAP
    return (a.width + b.width) / 2 + gap


def _columns(cells: Sequence[ColumnCell], rows: Sequence[Sequence[int]]) -> list[int]:
    """For each cell the topmost cell that it is aligned with; no two alignments cross, so columns keep their order."""
    rank = {i: k for row in rows for k, i in enumerate(row)}
    taken: list[list[tuple[int, int]]] = [[] for _ in rows]  # under each row, the ranks that are aligned
    heir: dict[int, int] = {}
    aligned: set[int] = set()
    preference = _preferences(cells, rows)
    pairs = ((i, k) for i, cell in enumerate(cells) for k in cell.below)
    for upper, lower in sorted(pairs, key=lambda pair: (*preference(*pair), pair)):
        if upper in heir or lower in aligned:
            continue
        ranks, known = (rank[upper], rank[lower]), taken[cells[upper].row]
        index = bisect(known, ranks)
        if (index and known[index - 1][1] > ranks[1]) or (index < len(known) and known[index][1] < ranks[1]):
            continue
        insort(known, ranks)
        heir[upper] = lower
        aligned.add(lower)
    column = list(range(len(cells)))
    for i in (i for row in rows for i in row):
        if i in heir:
            column[heir[i]] = column[i]
    return column


def _preferences(cells: Sequence[ColumnCell], rows: Sequence[Sequence[int]]) -> Callable[[int, int], tuple[int, int]]:
    """Return the order of alignment: two boxes, then the segments of a long edge; of these, cells on the longest path first."""
    depth, height = [0] * len(cells), [0] * len(cells)
    for i in (i for row in rows for i in row):
        depth[i] = 1 + max((depth[k] for k in cells[i].above), default=0)
    for i in (i for row in reversed(rows) for i in row):
        height[i] = 1 + max((height[k] for k in cells[i].below), default=0)

    def preference(upper: int, lower: int) -> tuple[int, int]:
        boxes = (cells[upper].box is not None) + (cells[lower].box is not None)
        return {2: 0, 0: 1, 1: 2}[boxes], -depth[upper] - height[lower]

    return preference


def _left_to_right(right: Mapping[int, Mapping[int, float]], left: Mapping[int, Mapping[int, float]]) -> list[int]:
    """Return the columns in an order in which all left neighbours of a column come before it."""
    waiting = {c: len(neighbours) for c, neighbours in left.items()}
    ready = deque(c for c, count in waiting.items() if count == 0)
    order: list[int] = []
    while ready:
        order.append(c := ready.popleft())
        for b in right[c]:
            waiting[b] -= 1
            if waiting[b] == 0:
                ready.append(b)
    assert len(order) == len(waiting), "columns that do not cross have an order"
    return order
