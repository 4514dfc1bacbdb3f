"""The arena: how long each storage is needed, and offsets under which no two that are needed together share bytes.

`live_ranges` reads the facts off a program, a strategy chooses offsets, `with_offsets` writes them down. The choice is an
old packing problem, hard in general, so several greedy orders are tried and the best is improved until it meets the lower
bound or a fixed number of tries is spent. Nothing depends on time or on hashing: equal programs get equal plans.
"""

from __future__ import annotations

import random
from bisect import insort
from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate
from operator import add
from typing import Final

import numpy as np

from rlx_core.ir.graph import Value
from rlx_core.ir.lir import Lir, Slot, root_of
from rlx_core.system.records import evolve, frozen


@frozen(eq=False)
class LiveRange:
    """Bytes that are live from step `birth` to step `death`, both included.

    Attributes:
        nbytes: Number of bytes.
        birth: The first step that writes them.
        death: The last step that reads them; the number of steps for values that are read when the run ends.
        values: The values in these bytes, in turn; empty for a workspace.
        step: The step that a workspace belongs to.
    """

    nbytes: int
    birth: int
    death: int
    values: tuple[Value, ...] = ()
    step: int | None = None


Strategy = Callable[[Sequence[LiveRange], int], list[int]]
"""Live ranges and an alignment in bytes → an offset for each."""


def live_ranges(lir: Lir, resident: frozenset[Value] = frozenset()) -> tuple[LiveRange, ...]:
    """Return the live ranges of the values in the arena of `lir`; existing offsets are ignored.

    Args:
        lir: A program with static types.
        resident: Leaves that occupy arena bytes for the whole run.
    """
    aliases, own_roots = lir.aliases, frozenset(lir.own_roots)
    births: dict[Value, int] = {}
    deaths: dict[Value, int] = {}
    taken_from: dict[Value, Value] = {}
    workspaces: list[LiveRange] = []
    for index, step in enumerate(lir.steps):
        for value in step.node.present():
            deaths[root_of(value, aliases)] = index
        for value in step.node.results:
            root = root_of(value, aliases)
            births.setdefault(root, index)
            deaths[root] = max(deaths.get(root, index), index)
        for result, operand in step.in_place.items():
            source = step.node.operands[operand]
            assert source is not None, f"{step.node!r} takes over an operand that is there"
            taken_from[root_of(step.node.results[result], aliases)] = root_of(source, aliases)
        if step.workspace:
            workspaces.append(LiveRange(step.workspace.nbytes, index, index, step=index))
    for value in lir.graph.outputs:
        deaths[root_of(value, aliases)] = len(lir.steps)

    chains: dict[Value, list[Value]] = {}
    for root in births:
        if root in own_roots or root.node.is_leaf or not root.type.nbytes:
            continue
        source = taken_from.get(root, root)
        chain = chains.get(source) if source is not root else None
        chain = [] if chain is None else chain
        chain.append(root)
        chains[root] = chain
    distinct = {id(chain): tuple(chain) for chain in chains.values()}.values()
    ranges = [LiveRange(c[0].type.static_nbytes, births[c[0]], deaths[c[-1]], c) for c in distinct]
    ranges += [
        LiveRange(v.type.static_nbytes, 0, len(lir.steps), (v,))
        for v in _leaves(lir)
        if v in resident and v.type.nbytes
    ]
    return (*ranges, *workspaces)


def lower_bound(ranges: Sequence[LiveRange], alignment: int = 1) -> int:
    """The largest sum of bytes that are needed together, each range rounded up to the alignment: no arena is smaller."""
    changes: dict[int, int] = {}
    for r in ranges:
        nbytes = _aligned(r.nbytes, alignment)
        changes[r.birth] = changes.get(r.birth, 0) + nbytes
        changes[r.death + 1] = changes.get(r.death + 1, 0) - nbytes
    live = peak = 0
    for step in sorted(changes):
        live += changes[step]
        peak = max(peak, live)
    return peak


def _aligned(nbytes: int, alignment: int) -> int:
    return -(-nbytes // alignment) * alignment


def plan_memory(
    lir: Lir, strategy: str = "best", alignment: int | None = None, resident: frozenset[Value] = frozenset()
) -> Lir:
    """Return `lir` with an offset for everything that the arena holds; `strategy` is a name of `STRATEGIES`."""
    step_bytes = alignment or lir.alignment
    ranges = live_ranges(lir, resident)
    offsets = STRATEGIES[strategy](ranges, step_bytes)
    return with_offsets(lir, dict(zip(ranges, map(Slot, offsets, (r.nbytes for r in ranges)), strict=True)), step_bytes)


def with_offsets(lir: Lir, placed: Mapping[LiveRange, Slot], alignment: int) -> Lir:
    """Return `lir` with the slots of its live ranges at the offsets in `placed`."""
    slots = {value: slot for r, slot in placed.items() for value in r.values}
    workspaces = {r.step: slot for r, slot in placed.items() if r.step is not None}
    steps = tuple(
        evolve(step, workspace=workspaces[i]) if i in workspaces else step for i, step in enumerate(lir.steps)
    )
    end = max((slot.end for slot in placed.values()), default=0)
    return evolve(lir, slots=slots, steps=steps, arena_nbytes=end, alignment=alignment)


# -------------------------------------------------------------------------------------------- strategies


FEW_RANGES: Final = 128
"""Ranges up to which placing them one by one in Python is quicker than with arrays."""


class _Packer:
    """Places ranges one after another at the lowest offset where they fit: first fit in a given order."""

    def __init__(self, ranges: Sequence[LiveRange], alignment: int) -> None:
        self.births = [r.birth for r in ranges]
        self.deaths = [r.death for r in ranges]
        # Sizes are rounded up once, so that every end is an aligned offset for the next one.
        self.sizes = [_aligned(r.nbytes, alignment) for r in ranges]

    def place(self, order: Sequence[int]) -> list[int]:
        """An offset for each range, when they are placed in `order`."""
        return self._place_few(order) if len(self.sizes) <= FEW_RANGES else self._place_many(order)

    def _place_few(self, order: Sequence[int]) -> list[int]:
        """Place them without NumPy, whose calls would take longer than the arithmetic."""
        placed: list[tuple[int, int, int, int]] = []  # by start: (start, end, birth, death)
        offsets = [0] * len(self.sizes)
        for index in order:
            birth, death, size = self.births[index], self.deaths[index], self.sizes[index]
            offset = 0
            for start, end, other_birth, other_death in placed:
                if other_birth > death or other_death < birth:
                    continue
                if start - offset >= size:
                    break
                if end > offset:
                    offset = end
            offsets[index] = offset
            insort(placed, (offset, offset + size, birth, death))
        return offsets

    def _place_many(self, order: Sequence[int]) -> list[int]:
        count = len(self.sizes)
        offsets = [0] * count
        births, deaths = np.empty(count, np.int64), np.empty(count, np.int64)
        starts, ends = np.empty(count, np.int64), np.empty(count, np.int64)
        for done, index in enumerate(order):
            birth, death, size = self.births[index], self.deaths[index], self.sizes[index]
            together = (births[:done] <= death) & (deaths[:done] >= birth)
            lows, highs = starts[:done][together], ends[:done][together]
            offset = _first_gap(lows, highs, size)
            offsets[index] = offset
            births[done], deaths[done], starts[done], ends[done] = birth, death, offset, offset + size
        return offsets

    def height(self, offsets: Sequence[int]) -> int:
        return max(map(add, offsets, self.sizes), default=0)

    def tops(self, offsets: Sequence[int], height: int) -> list[int]:
        """The ranges that end at `height`."""
        return [i for i, (offset, size) in enumerate(zip(offsets, self.sizes, strict=True)) if offset + size == height]


def _first_gap(lows: np.ndarray, highs: np.ndarray, size: int) -> int:
    """Return the lowest offset at which `size` bytes do not overlap the given ranges."""
    if not len(lows):
        return 0
    order = np.argsort(lows, kind="stable")
    reach = np.maximum.accumulate(highs[order])
    gaps = np.flatnonzero(lows[order][1:] - reach[:-1] >= size)
    if lows[order[0]] >= size:
        return 0
    return int(reach[gaps[0]] if len(gaps) else reach[-1])


def _by_size(ranges: Sequence[LiveRange]) -> list[int]:
    return sorted(range(len(ranges)), key=lambda i: (-ranges[i].nbytes, ranges[i].birth, i))


def _by_birth(ranges: Sequence[LiveRange]) -> list[int]:
    return sorted(range(len(ranges)), key=lambda i: (ranges[i].birth, -ranges[i].death, i))


def _by_weight(ranges: Sequence[LiveRange]) -> list[int]:
    def weight(i: int) -> int:
        return ranges[i].nbytes * (ranges[i].death - ranges[i].birth + 1)

    return sorted(range(len(ranges)), key=lambda i: (-weight(i), ranges[i].birth, i))


def _greedy(order: Callable[[Sequence[LiveRange]], list[int]]) -> Strategy:
    return lambda ranges, alignment: _Packer(ranges, alignment).place(order(ranges))


_WORK: Final = 60_000
"""Placements that the local search may spend: a program of 1000 ranges gets 60 tries."""


def _best(ranges: Sequence[LiveRange], alignment: int) -> list[int]:
    """Return the best greedy order, improved by moving ranges at the top to an earlier place in the order."""
    if len(ranges) < 2:
        return [0] * len(ranges)
    packer = _Packer(ranges, alignment)
    bound = lower_bound(ranges, alignment)
    best_order: list[int] = []
    best: list[int] = []
    height = -1
    for order in (_by_size(ranges), _by_weight(ranges), _by_birth(ranges)):
        offsets = packer.place(order)
        if height < 0 or packer.height(offsets) < height:
            best_order, best, height = order, offsets, packer.height(offsets)
        if height <= bound:
            return best
    rng = random.Random(len(ranges))  # seeded: the same program gets the same plan in every process
    for _ in range(_WORK // max(len(ranges), 1)):
        if height <= bound:
            break
        tops = packer.tops(best, height)
        moved = tops[rng.randrange(len(tops))]
        order = [i for i in best_order if i != moved]
        order.insert(rng.randrange(best_order.index(moved) + 1), moved)
        offsets = packer.place(order)
        if packer.height(offsets) <= height:  # equal ones too, so that the search can leave a plateau
            best_order, best, height = order, offsets, packer.height(offsets)
    return best


def _none(ranges: Sequence[LiveRange], alignment: int) -> list[int]:
    """One after another: no two ranges share bytes, whenever they are needed."""
    sizes = (_aligned(r.nbytes, alignment) for r in ranges)
    return list(accumulate(sizes, initial=0))[:-1]


STRATEGIES: Final[Mapping[str, Strategy]] = {
    "best": _best,
    "by-size": _greedy(_by_size),
    "by-birth": _greedy(_by_birth),
    "by-weight": _greedy(_by_weight),
    "none": _none,
}


def _leaves(lir: Lir) -> list[Value]:
    return [n.result for n in lir.graph.nodes if n.is_leaf]
