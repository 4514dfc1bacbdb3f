"""Estimates of the time of steps on one thread: enough to detect programs that end before another thread has started.

To wake a sleeping thread takes 50 to 800 µs, to share a step among threads that are awake about half a microsecond.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from rlx_core import codegen
from rlx_core.ir.dims import RecordedSize
from rlx_core.ir.graph import Graph
from rlx_core.ir.lir import Step
from rlx_core.ir.op import Op
from rlx_core.ir.types import known_size
from rlx_core.ops import control
from rlx_core.pipeline.profile import bytes_of
from rlx_cpu.native.contract import Emitted
from rlx_cpu.native.machine import Speed

_LOOP: Final = "native_loop"
"""Prefix of the names of loop kernels, after the package's prefix."""

UNKNOWN_ROUNDS: Final = 1000
"""Assumed iterations of a loop with a data-dependent end: many enough that other threads do not wait for it."""

ORDER_FLOPS: Final[Mapping[str, int]] = {
    "rlx.sort": 150,
    "rlx.arg_sort": 150,
    "rlx.top_k": 10,
    "rlx.search_sorted": 250,
}
"""Operations that take as long as an element that is put in order, or looked for."""


def takes_longer(
    steps: Iterable[tuple[Step, Emitted]], microseconds: float, speed: Speed, template: Graph | None = None
) -> bool:
    """Return whether steps take one thread longer than that; no more of them are looked at than it takes to know.

    Args:
        steps: The steps, each with the result of its emitter.
        template: The graph with unknown sizes that theirs was bound from, whose formulas are known by now.
    """
    total = 0.0
    for step, emitted in steps:
        total += estimated_us(step, speed, template, emitted.flops)
        if not isinstance(total, RecordedSize) and total > microseconds:
            return True
    return total > microseconds  # recorded: one answer, not one for each step


def estimated_us(step: Step, speed: Speed, template: Graph | None = None, per_element: int | None = None) -> float:
    """Microseconds of a step on one thread.

    Args:
        template: As in `takes_longer`.
        per_element: The operations of its loop kernel on one element, if they are known.
    """
    if step.nested:
        inner = (each for plan in step.nested.values() for each in plan.steps)
        return rounds(step.node.op) * sum(estimated_us(each, speed) for each in inner)
    return max(flops(step, template, per_element) / speed.flops_per_us, bytes_of(step.node) / speed.bytes_per_us)


def rounds(op: Op) -> int:
    """Return how often the graphs inside an op are run, as far as that is known."""
    if isinstance(op, control.loop.While):
        return UNKNOWN_ROUNDS if op.max_steps is None else op.max_steps
    return int(op.length) if isinstance(op, control.scan.Scan) else 1


def flops(step: Step, template: Graph | None = None, per_element: int | None = None) -> int:
    """Floating-point operations of a step: by its formula if it is a loop, else by the op's own `cost`."""
    node, types = step.node, step.node.operand_types
    if node.op.name in ORDER_FLOPS:
        return ORDER_FLOPS[node.op.name] * max(known_size(t.size) for t in types if t is not None)
    if _LOOP not in step.kernel:
        per_element = None
    elif per_element is None or template is not None:
        described = node if template is None else template.nodes[node.index]
        per_element = codegen.flops_of(described.op, described.operand_types)
    if per_element is not None:
        return per_element * max(known_size(v.type.size) for v in (*node.present(), *node.results))
    return 0 if node.op.cost is None else known_size(node.op.cost(*types))
