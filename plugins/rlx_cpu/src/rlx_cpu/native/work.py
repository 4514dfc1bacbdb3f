"""Estimates of the time of steps on one thread: enough to detect programs that end before another thread has started.

To wake a sleeping thread takes 50 to 800 µs, to share a step among threads that are awake about half a microsecond.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from rlx_core.codegen import formula_of
from rlx_core.codegen.loops import Apply
from rlx_core.codegen.scalars.long import LONG
from rlx_core.ir.graph import Graph
from rlx_core.ir.lir import Step
from rlx_core.ir.op import Op
from rlx_core.ops.control.loop import While
from rlx_core.ops.control.scan import Scan
from rlx_core.ops.sorting import ArgSort, SearchSorted, Sort, TopK
from rlx_core.pipeline.profile import bytes_of
from rlx_cpu.native.machine import Speed

__all__ = ["estimated_us", "takes_longer"]

FUNCTION_FLOPS: Final = 10
"""Operations of a transcendental function."""

_LOOP: Final = "native_loop"
"""Prefix of the names of loop kernels, after the package's prefix."""

UNKNOWN_ROUNDS: Final = 1000
"""Assumed iterations of a loop with a data-dependent end: many enough that other threads do not wait for it."""

ORDER_FLOPS: Final[Mapping[type[Op], int]] = {Sort: 150, ArgSort: 150, TopK: 10, SearchSorted: 250}
"""Operations that take as long as an element that is put in order, or looked for."""


def takes_longer(steps: Iterable[Step], microseconds: float, speed: Speed, template: Graph | None = None) -> bool:
    """Return whether steps take one thread longer than that; no more of them are looked at than it takes to know.

    Args:
        template: The graph with unknown sizes that theirs was bound from, whose formulas are known by now.
    """
    total = 0.0
    for step in steps:
        total += estimated_us(step, speed, template)
        if total > microseconds:
            return True
    return False


def estimated_us(step: Step, speed: Speed, template: Graph | None = None) -> float:
    """Microseconds of a step on one thread; `template` as in `takes_longer`."""
    if step.nested:
        inner = (each for plan in step.nested.values() for each in plan.steps)
        return rounds(step.node.op) * sum(estimated_us(each, speed) for each in inner)
    return max(flops(step, template) / speed.flops_per_us, bytes_of(step.node) / speed.bytes_per_us)


def rounds(op: Op) -> int:
    """Return how often the graphs inside an op are run, as far as that is known."""
    if isinstance(op, While):
        return UNKNOWN_ROUNDS if op.max_steps is None else op.max_steps
    return int(op.length) if isinstance(op, Scan) else 1


def flops(step: Step, template: Graph | None = None) -> int:
    """Floating-point operations of a step: by its formula if it is a loop, else by the op's own `cost`."""
    node, types = step.node, step.node.operand_types
    if type(node.op) in ORDER_FLOPS:
        return ORDER_FLOPS[type(node.op)] * max(int(t.size) for t in types if t is not None)
    described = node if template is None else template.nodes[node.index]
    formula = formula_of(described.op, described.operand_types) if _LOOP in step.kernel else None
    if formula is not None:
        applied = [type(t.op) for t in formula.terms if isinstance(t, Apply)]
        weight = sum(FUNCTION_FLOPS if op in LONG else 1 for op in applied)
        return weight * max(int(v.type.size) for v in (*node.present(), *node.results))
    return 0 if node.op.cost is None else int(node.op.cost(*types))
