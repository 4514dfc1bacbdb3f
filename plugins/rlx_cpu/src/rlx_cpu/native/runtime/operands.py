"""Which addresses native steps read: where in a table, and of which place of a frame."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rlx_core.pipeline.planning.alias import placement

if TYPE_CHECKING:
    from rlx_cpu.frames import Frames
    from rlx_cpu.native.runtime.steps import CompiledSteps

__all__ = ["PerRun", "Static", "read_addresses"]

Static = list[tuple[int, int, int]]
"""Word, place of the root, bytes from its start."""

PerRun = dict[int, tuple[np.ndarray, np.ndarray]]
"""Place of the root → words, and bytes from its start for each."""


def read_addresses(frames: Frames, compiled: CompiledSteps) -> tuple[Static, PerRun]:
    """What is filled in once for a frame, and what each run brings."""
    lir = frames.lir
    brought = set(frames.inputs) | {place for place, *_ in frames.fresh}
    static: Static = []
    per_run: dict[int, list[tuple[int, int]]] = {}
    for each in compiled.steps.values():
        node = each.step.node
        for i, value in enumerate((*node.operands, *node.results)):
            if value is None:
                continue
            at = placement(value, lir.aliases)
            place = frames.places[at.root]
            offset = at.byte_offset if value.type.size else 0
            if place in brought:
                per_run.setdefault(place, []).append((each.first + i, offset))
            else:
                static.append((each.first + i, place, offset))
        if each.arena is not None:
            static.append((each.arena, frames.workspaces[id(each.step)], 0))
    return static, {
        place: (np.array([w for w, _ in rows]), np.array([o for _, o in rows])) for place, rows in per_run.items()
    }
