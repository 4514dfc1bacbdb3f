"""A memory plan as text: totals, then the slots."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rlx_core.ir.lir import Lir, Slot
from rlx_core.pipeline.planning.memory import LiveRange, live_ranges, lower_bound


def memory_report(lir: Lir) -> str:
    """Totals, then offset, size, life and values of everything in the arena, by offset.

    The lower bound is the largest sum of bytes that are needed at one step; no arena is smaller.
    """
    if not lir.is_planned:
        sizes = ", ".join(sorted(map(str, lir.graph.symbols)))
        return f"{lir.graph.name}: a template; bytes are known once {sizes} are bound\n"
    leaves = frozenset(v for v in lir.slots if v.node.is_leaf)
    ranges = live_ranges(lir, leaves)
    bound = lower_bound(ranges)
    ratio = f"{lir.arena_nbytes / bound:.3f} of the lower bound" if bound else "nothing to hold"
    lines = [
        f"arena      {lir.arena_nbytes:>12} bytes  {ratio} ({bound})",
        f"unshared   {lir.unshared_nbytes:>12} bytes  without sharing",
        f"saved      {lir.saved_nbytes:>12} bytes",
        f"views      {len(lir.aliases):>12} values  in the bytes of others",
        "",
        f"{'offset':>10} {'size':>12}  {'steps':<11}  value",
    ]
    rows = sorted(_rows(lir, ranges), key=lambda row: (row[0].offset, row[1], row[3]))
    lines += [
        f"{slot.offset:>10} {slot.nbytes:>12}  {f'{birth}..{death}':<11}  {who}" for slot, birth, death, who in rows
    ]
    return "\n".join(lines) + "\n"


def _rows(lir: Lir, ranges: Sequence[LiveRange]) -> Iterator[tuple[Slot, int, int, str]]:
    for r in ranges:
        if r.step is None:
            yield lir.slots[r.values[0]], r.birth, r.death, " → ".join(f"{v!r} : {v.type}" for v in r.values)
        else:
            step = lir.steps[r.step]
            assert step.workspace is not None, "a live range without values belongs to a workspace"
            yield step.workspace, r.birth, r.death, f"workspace of {step.node.label} ({step.kernel})"
