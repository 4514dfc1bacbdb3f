"""Where the time of a run goes: what every step took on every thread, measured inside the native call.

>>> with profiled() as profile:                                # doctest: +SKIP
...     fast(x)
>>> print(profile)                                             # doctest: +SKIP

A step's *time* is from when the first thread began it until the last one had done its share; *idle* is how much of it the threads
spent at the barrier, on average. Speeds are what the op's `cost` and the bytes of its operands and results amount to over that
time, so a step that reads an operand twice shows less than the memory delivered.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from itertools import groupby
from typing import Any

import numpy as np
from attrs import field

from rlx_core.ir.graph import Node
from rlx_core.ir.lir import Step
from rlx_core.system.locks import Lock
from rlx_core.system.records import define, frozen

__all__ = ["Profile", "StepTime", "active", "bytes_of", "profiled", "watchers"]


def bytes_of(node: Node) -> int:
    """Bytes of all operands and results of a node with known sizes, each counted once."""
    return sum(v.type.static_nbytes for v in {*node.present(), *node.results})


@frozen(eq=False)
class StepTime:
    """One step in one run.

    Attributes:
        step: Which one.
        seconds: From the first thread's start to the last thread's end.
        idle: Seconds that a thread waited for the others, on average.
    """

    step: Step
    seconds: float
    idle: float

    @property
    def flops(self) -> int:
        """Floating-point operations by the op's own `cost`; 0 where it has none."""
        node = self.step.node
        cost = node.op.cost
        return 0 if cost is None else int(cost(*node.operand_types))

    @property
    def nbytes(self) -> int:
        """Bytes of all operands and results, each counted once."""
        return bytes_of(self.step.node)


@define(eq=False)
class Profile:
    """Step times in the order in which they were taken; grows while runs are profiled."""

    times: list[StepTime] = field(factory=list)

    def add_native(self, steps: Sequence[Step], stamps: np.ndarray) -> None:
        """Times of a native run; what one step does in several calls counts together.

        Args:
            stamps: `[threads, calls, 3]` nanoseconds: begun, done or 0 for a thread that had no part in it, met.
        """
        had_part = stamps[:, :, 1] > 0
        begun = np.where(had_part, stamps[:, :, 0], np.iinfo(np.int64).max).min(0)
        done = stamps[:, :, 1].max(0)
        idle = np.where(had_part, done - stamps[:, :, 1], done - begun).mean(0)
        calls = zip(steps, 1e-9 * (done - begun), 1e-9 * idle, strict=True)
        for step, group in groupby(calls, key=lambda call: call[0]):
            own = list(group)
            self.times.append(StepTime(step, float(sum(c[1] for c in own)), float(sum(c[2] for c in own))))

    @contextmanager
    def timing(self, step: Step) -> Iterator[None]:
        """Time one step that runs with NumPy."""
        start = time.perf_counter()
        yield
        self.times.append(StepTime(step, time.perf_counter() - start, 0.0))

    @property
    def seconds(self) -> float:
        """All steps of all runs together."""
        return sum(t.seconds for t in self.times)

    def fastest(self) -> list[tuple[StepTime, int]]:
        """Every step at its fastest over the runs, in program order, with how often it ran."""
        best: dict[Node, StepTime] = {}
        count: dict[Node, int] = {}
        for each in self.times:
            node = each.step.node
            count[node] = count.get(node, 0) + 1
            if node not in best or each.seconds < best[node].seconds:
                best[node] = each
        return [(each, count[node]) for node, each in best.items()]

    def table(self, *, groups: bool = True) -> str:
        """The times as text, longest first.

        Args:
            groups: Equal steps (one kernel, equal types) in one line; otherwise each has its own, in program order.
        """
        steps = [t for t, _ in self.fastest()]
        lines: dict[object, list[StepTime]] = {}
        for number, each in enumerate(steps):
            lines.setdefault(_kind(each.step) if groups else number, []).append(each)
        total = sum(t.seconds for t in steps) or 1.0
        rows = list(lines.values())
        if groups:
            rows.sort(key=lambda line: -sum(t.seconds for t in line))
        head = f"{'share':>6} {'us':>9} {'idle':>5} {'steps':>5} {'GFLOP/s':>8} {'GB/s':>6}  kernel"
        return "\n".join([head, *(_line(line, total) for line in rows), f"{'':6} {total * 1e6:9.1f}  in all"])

    def __str__(self) -> str:
        return self.table()


_active: ContextVar[Profile | None] = ContextVar("profile", default=None)

watchers = np.zeros(1, np.int64)
"""How many profiles are being taken in this process; native code reads it to stay off a run that is to be measured."""

_watchers_lock = Lock("the number of profiles")


def active() -> Profile | None:
    """The profile that runs of this context are added to, if there is one."""
    return _active.get()


@contextmanager
def profiled() -> Iterator[Profile]:
    """Profile the runs that are started inside `with`, by this thread."""
    profile = Profile()
    token = _active.set(profile)
    with _watchers_lock:
        watchers[0] += 1
    try:
        yield profile
    finally:
        _active.reset(token)
        with _watchers_lock:
            watchers[0] -= 1


def _kind(step: Step) -> object:
    node = step.node
    types = tuple(None if v is None else str(v.type) for v in node.operands)
    return step.kernel, types, tuple(str(v.type) for v in node.results)


def _line(line: Sequence[StepTime], total: float) -> str:
    seconds = sum(t.seconds for t in line)
    idle = sum(t.idle for t in line)
    flops, nbytes = sum(t.flops for t in line), sum(t.nbytes for t in line)
    rate = 1e-9 / max(seconds, 1e-9)
    return (
        f"{seconds / total:6.1%} {seconds * 1e6:9.1f} {idle / max(seconds, 1e-9):5.0%} {len(line):5}"
        f" {flops * rate:8.1f} {nbytes * rate:6.1f}  {_signature(line[0].step)}"
    )


def _signature(step: Step) -> str:
    node: Any = step.node
    operands = ", ".join("-" if v is None else str(v.type) for v in node.operands)
    return f"{step.kernel}({operands}) -> {', '.join(str(v.type) for v in node.results)}"
