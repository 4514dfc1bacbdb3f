"""Layered layout: boxes in rows so that edges run downwards, with few crossings.

The classic four steps (Sugiyama, Tagawa, Toda 1981): longest-path rows, waypoints where an edge passes a row, orders by the mean
place of neighbours, and positions that pull boxes under what they are connected to. Everything is deterministic.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from statistics import fmean

from attrs import define, field, frozen

__all__ = ["Box", "Layout", "Route", "lay_out"]

_SWEEPS = 8
_GAP = 18.0  # between boxes of a row
_LANE = 7.0  # between parallel horizontal pieces of edges
_MARGIN = 20.0


@frozen
class Box:
    """Something to place: its size, and the boxes whose edges come into it, in order."""

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
class Layout:
    """Where everything is: the centre and the top of each box, the corners of each edge, the size of the page."""

    centres: tuple[float, ...]
    tops: tuple[float, ...]
    routes: tuple[Route, ...]
    width: float
    height: float


@define
class _Cell:
    """A box or a waypoint in a row; waypoints have no box."""

    row: int
    width: float
    box: int | None = None
    above: list[int] = field(factory=list)
    below: list[int] = field(factory=list)
    x: float = 0.0


def lay_out(boxes: Sequence[Box]) -> Layout:
    """A layout for boxes whose sources come before them."""
    if not boxes:
        return Layout((), (), (), 2 * _MARGIN, 2 * _MARGIN)
    cells, chains = _cells(boxes)
    rows = _ordered_rows(cells)
    _place(cells, rows)
    leftmost = min(c.x - c.width / 2 for c in cells)
    for cell in cells:
        cell.x += _MARGIN - leftmost
    return _drawn(boxes, cells, rows, chains)


def _rows_of(boxes: Sequence[Box]) -> list[int]:
    """Longest path from the top; a box without sources moves down to just above its first reader."""
    rows: list[int] = []
    for box in boxes:
        rows.append(1 + max((rows[s] for s in box.sources), default=-1))
    first_reader: dict[int, int] = {}
    for i, box in enumerate(boxes):
        for s in box.sources:
            first_reader[s] = min(first_reader.get(s, rows[i]), rows[i])
    return [first_reader.get(i, row + 1) - 1 if not boxes[i].sources else row for i, row in enumerate(rows)]


def _cells(boxes: Sequence[Box]) -> tuple[list[_Cell], dict[tuple[int, int], list[int]]]:
    """A cell for each box and for each row that an edge passes; edge → its cells from source to target."""
    rows = _rows_of(boxes)
    cells = [_Cell(rows[i], box.width, i) for i, box in enumerate(boxes)]
    chains: dict[tuple[int, int], list[int]] = {}
    for target, box in enumerate(boxes):
        for source in dict.fromkeys(box.sources):
            chain = [source]
            for row in range(rows[source] + 1, rows[target]):
                cells.append(_Cell(row, 4.0))
                chain.append(len(cells) - 1)
            chain.append(target)
            chains[source, target] = chain
            for upper, lower in pairwise(chain):
                cells[upper].below.append(lower)
                cells[lower].above.append(upper)
    return cells, chains


def _ordered_rows(cells: Sequence[_Cell]) -> list[list[int]]:
    rows: list[list[int]] = [[] for _ in range(1 + max(c.row for c in cells))]
    for i, cell in enumerate(cells):
        rows[cell.row].append(i)
    rank = {i: float(k) for row in rows for k, i in enumerate(row)}
    for sweep in range(_SWEEPS):
        is_down = sweep % 2 == 0
        for row in rows if is_down else reversed(rows):
            neighbours = {i: cells[i].above if is_down else cells[i].below for i in row}
            wanted = {i: fmean(rank[n] for n in near) if near else rank[i] for i, near in neighbours.items()}
            row.sort(key=lambda i, wanted=wanted: (wanted[i], rank[i], i))  # type: ignore[misc]
            rank.update({i: float(k) for k, i in enumerate(row)})
    return rows


def _place(cells: Sequence[_Cell], rows: Sequence[Sequence[int]]) -> None:
    """Give each cell a centre: wanted under the mean of its neighbours, kept apart within its row."""
    for row in rows:
        _spread(cells, row, dict.fromkeys(row, 0.0))
    for sweep in range(_SWEEPS):
        is_down = sweep % 2 == 0
        for row in rows if is_down else reversed(rows):
            wanted = {}
            for i in row:
                near = (cells[i].above if is_down else cells[i].below) or cells[i].above or cells[i].below
                wanted[i] = fmean(cells[n].x for n in near) if near else cells[i].x
            _spread(cells, row, wanted)


def _spread(cells: Sequence[_Cell], row: Sequence[int], wanted: Mapping[int, float]) -> None:
    """Centres in the order of the row, near what is wanted, no two closer than their widths allow.

    Runs that want to overlap are merged and centred on the mean of what they want (pool adjacent violators).
    """
    offsets: list[float] = []
    reach = 0.0
    for k, i in enumerate(row):
        reach += (cells[row[k - 1]].width + cells[i].width) / 2 + _GAP if k else 0.0
        offsets.append(reach)
    pools: list[tuple[float, int]] = []
    for k, i in enumerate(row):
        pools.append((wanted[i] - offsets[k], 1))
        while len(pools) > 1 and pools[-2][0] > pools[-1][0]:
            (a, m), (b, n) = pools[-2:]
            pools[-2:] = [((a * m + b * n) / (m + n), m + n)]
    starts = [start for start, count in pools for _ in range(count)]
    for i, start, offset in zip(row, starts, offsets, strict=True):
        cells[i].x = start + offset


# --------------------------------------------------------------------------------------------- drawing


def _drawn(
    boxes: Sequence[Box],
    cells: Sequence[_Cell],
    rows: Sequence[Sequence[int]],
    chains: Mapping[tuple[int, int], Sequence[int]],
) -> Layout:
    lanes, depth = _lanes(cells, rows, chains)
    heights = [max((boxes[b].height for i in row if (b := cells[i].box) is not None), default=0.0) for row in rows]
    row_tops, y = [], _MARGIN
    for row, height in enumerate(heights):
        row_tops.append(y)
        y += height + 14 + _LANE * (depth.get(row, 0) + 1)
    routes = tuple(
        Route(source, target, _corners(boxes, cells, chain, lanes, row_tops, heights))
        for (source, target), chain in chains.items()
    )
    right = max(c.x + c.width / 2 for c in cells) + _MARGIN
    tops = tuple(row_tops[cells[i].row] for i in range(len(boxes)))
    return Layout(
        tuple(cells[i].x for i in range(len(boxes))), tops, routes, right, row_tops[-1] + heights[-1] + _MARGIN
    )


_Lanes = dict[tuple[int, int], int]


def _lanes(
    cells: Sequence[_Cell], rows: Sequence[Sequence[int]], chains: Mapping[tuple[int, int], Sequence[int]]
) -> tuple[_Lanes, dict[int, int]]:
    """For each piece of an edge that runs sideways, a lane in the gap under its row; edges of one source share theirs."""
    spans: dict[int, dict[int, tuple[float, float]]] = {}
    for chain in chains.values():
        for upper, lower in pairwise(chain):
            a, b = sorted((cells[upper].x, cells[lower].x))
            known = spans.setdefault(cells[upper].row, {}).get(upper, (a, b))
            spans[cells[upper].row][upper] = (min(a, known[0]), max(b, known[1]))
    lanes: _Lanes = {}
    depth: dict[int, int] = {}
    for row, found in spans.items():
        ends: list[float] = []
        for cell, (a, b) in sorted(found.items(), key=lambda item: (item[1], item[0])):
            lane = next((k for k, end in enumerate(ends) if end + 6 < a), len(ends))
            ends[lane : lane + 1] = [b]
            lanes[row, cell] = lane
        depth[row] = len(ends)
    return lanes, depth


def _corners(
    boxes: Sequence[Box],
    cells: Sequence[_Cell],
    chain: Sequence[int],
    lanes: _Lanes,
    tops: Sequence[float],
    heights: Sequence[float],
) -> tuple[tuple[float, float], ...]:
    first, last = cells[chain[0]], cells[chain[-1]]
    assert first.box is not None, "an edge starts at a box"
    points = [(first.x, tops[first.row] + boxes[first.box].height)]
    for upper, lower in pairwise(chain):
        a, b = cells[upper], cells[lower]
        if abs(a.x - b.x) > 0.5:
            y = tops[a.row] + heights[a.row] + 8 + _LANE * lanes[a.row, upper]
            points += [(a.x, y), (b.x, y)]
    points.append((last.x, tops[last.row]))
    return tuple(points)
