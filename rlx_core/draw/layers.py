"""Layered layout: boxes in rows so that edges run downwards, with few crossings.

The classic four steps (Sugiyama, Tagawa, Toda 1981): rows, waypoints where an edge passes a row, orders by the mean place of
neighbours, and places across the page (`columns.py`). All edges of one source share a trunk and leave it where they are
needed. Everything is deterministic.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Mapping, Sequence
from itertools import pairwise
from statistics import fmean
from typing import Final

from rlx_core.draw.columns import ColumnCell, place
from rlx_core.system.records import frozen

_SWEEPS: Final = 8
_LANE: Final = 7.0  # between parallel horizontal pieces of edges
_MARGIN: Final = 20.0
_ABOVE, _BELOW = 10.0, 14.0  # between a box and the nearest horizontal piece of an edge under it, and over it


@frozen
class LayoutNode:
    """A box to place: its size, and the boxes whose edges come into it, in order."""

    width: float
    height: float
    sources: tuple[int, ...] = ()


@frozen
class Route:
    """The corners of one edge, from the bottom of its source to the top of its target."""

    source: int
    target: int
    points: tuple[tuple[float, float], ...]


@frozen
class DrawingLayout:
    """The coordinates of a drawing: the centre and the top of each box, the corners of each edge, the size of the page."""

    centres: tuple[float, ...]
    tops: tuple[float, ...]
    routes: tuple[Route, ...]
    width: float
    height: float


_Chains = Mapping[tuple[int, int], Sequence[int]]
"""Edge → its cells from source to target."""


def lay_out(boxes: Sequence[LayoutNode]) -> DrawingLayout:
    """Return a layout for boxes whose sources come before them."""
    if not boxes:
        return DrawingLayout((), (), (), 2 * _MARGIN, 2 * _MARGIN)
    cells, chains = _cells(boxes)
    rows = _ordered_rows(cells)
    place(cells, rows)
    leftmost = min(c.x - c.width / 2 for c in cells)
    for cell in cells:
        cell.x += _MARGIN - leftmost
    return _drawn(boxes, cells, rows, chains)


# ------------------------------------------------------------------------------------------------ rows


def _rows_of(boxes: Sequence[LayoutNode]) -> list[int]:
    """Longest path from the top; then boxes move down to their first reader where that makes the edges shorter in all."""
    rows: list[int] = []
    for box in boxes:
        rows.append(1 + max((rows[s] for s in box.sources), default=-1))
    readers: list[list[int]] = [[] for _ in boxes]
    for i, box in enumerate(boxes):
        for s in dict.fromkeys(box.sources):
            readers[s].append(i)
    for i in reversed(range(len(boxes))):
        if readers[i]:
            lowest = min(rows[r] for r in readers[i]) - 1
            # A trunk is as long as the way to its lowest reader.
            reach = [
                max((rows[r] for r in readers[s] if r != i), default=rows[s]) for s in dict.fromkeys(boxes[i].sources)
            ]
            longer = sum(max(0, lowest - max(end, rows[i])) for end in reach)
            if longer < lowest - rows[i]:
                rows[i] = lowest
    return rows


def _cells(boxes: Sequence[LayoutNode]) -> tuple[list[ColumnCell], _Chains]:
    """Return a cell for each box and for each row that a trunk passes; and their connections."""
    rows = _rows_of(boxes)
    cells = [ColumnCell(rows[i], box.width, i) for i, box in enumerate(boxes)]
    trunks: dict[int, list[int]] = {i: [i] for i in range(len(boxes))}
    chains: dict[tuple[int, int], list[int]] = {}
    for target, box in enumerate(boxes):
        for source in dict.fromkeys(box.sources):
            trunk = trunks[source]
            while rows[source] + len(trunk) < rows[target]:
                cells.append(ColumnCell(rows[source] + len(trunk), 4.0))
                _connect(cells, trunk[-1], len(cells) - 1)
                trunk.append(len(cells) - 1)
            chain = trunk[: rows[target] - rows[source]]
            _connect(cells, chain[-1], target)
            chains[source, target] = [*chain, target]
    return cells, chains


def _connect(cells: Sequence[ColumnCell], upper: int, lower: int) -> None:
    cells[upper].below.append(lower)
    cells[lower].above.append(upper)


# ---------------------------------------------------------------------------------------------- orders


def _ordered_rows(cells: Sequence[ColumnCell]) -> list[list[int]]:
    """Return the cells of each row from left to right: of several sweeps down and up, the orders with the fewest crossings."""
    rows: list[list[int]] = [[] for _ in range(1 + max(c.row for c in cells))]
    for i, cell in enumerate(cells):
        rows[cell.row].append(i)
    rank = {i: float(k) for row in rows for k, i in enumerate(row)}
    best, fewest_crossings = [list(row) for row in rows], _crossings(cells, rows)
    for sweep in range(_SWEEPS):
        if fewest_crossings == 0:
            break
        is_down = sweep % 2 == 0
        for row in rows if is_down else reversed(rows):
            neighbours = {i: cells[i].above if is_down else cells[i].below for i in row}
            barycenters = {i: fmean(rank[n] for n in near) if near else rank[i] for i, near in neighbours.items()}
            row.sort(key=lambda i, barycenters=barycenters: (barycenters[i], rank[i], i))  # type: ignore[misc]
            rank.update({i: float(k) for k, i in enumerate(row)})
        count = _crossings(cells, rows)
        if count < fewest_crossings:
            best, fewest_crossings = [list(row) for row in rows], count
    return best


def _crossings(cells: Sequence[ColumnCell], rows: Sequence[Sequence[int]]) -> int:
    rank = {i: k for row in rows for k, i in enumerate(row)}
    count = 0
    for row in rows:
        seen: list[int] = []
        for i in row:
            ends = [rank[k] for k in cells[i].below]
            count += sum(len(seen) - bisect_right(seen, end) for end in ends)
            for end in ends:
                insort(seen, end)
    return count


# --------------------------------------------------------------------------------------------- drawing


def _drawn(
    boxes: Sequence[LayoutNode], cells: Sequence[ColumnCell], rows: Sequence[Sequence[int]], chains: _Chains
) -> DrawingLayout:
    lanes = [_lanes(cells, row) for row in rows]
    heights = [max((boxes[b].height for i in row if (b := cells[i].box) is not None), default=0.0) for row in rows]
    tops, y = [], _MARGIN
    for row, height in enumerate(heights):
        tops.append(y)
        y += height + _ABOVE + _BELOW + _LANE * max(lanes[row].values(), default=0)
    routes = tuple(
        Route(source, target, _corners(boxes, cells, chain, lanes, tops, heights))
        for (source, target), chain in chains.items()
    )
    right = max(c.x + c.width / 2 for c in cells) + _MARGIN
    places = cells[: len(boxes)]
    return DrawingLayout(
        tuple(c.x for c in places), tuple(tops[c.row] for c in places), routes, right, tops[-1] + heights[-1] + _MARGIN
    )


def _is_straight(a: ColumnCell, b: ColumnCell) -> bool:
    return abs(a.x - b.x) <= 0.5


def _lanes(cells: Sequence[ColumnCell], row: Sequence[int]) -> dict[int, int]:
    """Return, for each cell whose edges run sideways under its row, the lane of these edges.

    Disjoint edges share a lane. An edge that leaves a cell bends above one that arrives in the same column; otherwise one
    would seem to continue the other.
    """
    spans, arrivals = {}, {}
    for i in row:
        aside = [cells[k].x for k in cells[i].below if not _is_straight(cells[i], cells[k])]
        if aside:
            spans[i] = (min(cells[i].x, *aside), max(cells[i].x, *aside))
            arrivals[i] = aside
    above = {
        i: [k for k in spans if k != i and any(abs(cells[k].x - x) < _LANE / 2 for x in arrivals[i])] for i in spans
    }
    lanes: dict[int, int] = {}
    ends: dict[int, list[tuple[float, float]]] = {}
    waiting = sorted(spans, key=lambda i: (spans[i], i))
    while waiting:
        free = (i for i in waiting if all(k in lanes for k in above[i]))
        i = next(free, waiting[0])  # two that exchange their columns cannot both be first
        waiting.remove(i)
        lane = 1 + max((lanes[k] for k in above[i] if k in lanes), default=-1)
        while any(a < spans[i][1] + 6 and spans[i][0] < b + 6 for a, b in ends.get(lane, ())):
            lane += 1
        lanes[i] = lane
        ends.setdefault(lane, []).append(spans[i])
    return lanes


def _corners(
    boxes: Sequence[LayoutNode],
    cells: Sequence[ColumnCell],
    chain: Sequence[int],
    lanes: Sequence[Mapping[int, int]],
    tops: Sequence[float],
    heights: Sequence[float],
) -> tuple[tuple[float, float], ...]:
    first, last = cells[chain[0]], cells[chain[-1]]
    assert first.box is not None, "an edge starts at a box"
    points = [(first.x, tops[first.row] + boxes[first.box].height)]
    for upper, lower in pairwise(chain):
        a, b = cells[upper], cells[lower]
        if not _is_straight(a, b):
            y = tops[a.row] + heights[a.row] + _ABOVE + _LANE * lanes[a.row][upper]
            points += [(a.x, y), (b.x, y)]
    points.append((last.x, tops[last.row]))
    return tuple(points)
