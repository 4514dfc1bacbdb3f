"""Profiles: the time of each step of each run, collected by the executors of steps, on the host and on devices.

>>> with profiled() as profile:                                # doctest: +SKIP
...     fast(x)
>>> print(profile)                                             # doctest: +SKIP

`rlx.profile` is the public form. An executor calls `active()` once per run if `system.context.watchers` is not 0, and reports to
the profile that it returns; without one it measures nothing. Rates are computed from the op's `cost` and from the bytes of its
operands and results, so a step that reads an operand twice shows a lower rate than the memory delivered.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attrs import field

from rlx_core.errors import FileError
from rlx_core.hints.keywords import checked_call
from rlx_core.ir.graph import Node
from rlx_core.ir.protocols import Shown
from rlx_core.ir.provenance import Source
from rlx_core.system.context import assigned, watching
from rlx_core.system.records import define, frozen

if TYPE_CHECKING:
    from rlx_core.ir.lir import Lir, Step
    from rlx_core.pipeline.backend import Traffic


def bytes_of(node: Node) -> int:
    """Bytes of all operands and results of a node with known sizes, each counted once."""
    return sum(v.type.static_nbytes for v in {*node.present(), *node.results})


def signature_of(step: Step) -> str:
    """The kernel of a step with the types of its operands and results."""
    operands = ", ".join("-" if v is None else str(v.type) for v in step.node.operands)
    return f"{step.kernel}({operands}) -> {', '.join(map(str, step.node.types))}"


@frozen(eq=False)
class StepTime:
    """One step in one run.

    Attributes:
        step: The step.
        seconds: From the first thread's start to the last thread's end; on a device, the time of all its launches.
        idle: Seconds that a thread waited for the others, on average.
        start: Seconds of the profile's clock at which it began.
        depth: In how many loops and branches it ran that Python drives; the time of the enclosing step contains its time.
    """

    step: Step
    seconds: float
    idle: float = 0.0
    start: float = 0.0
    depth: int = 0

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

    @property
    def source(self) -> Source | None:
        """Return the user's line of the step; of several lines in one fused step, the line of its result."""
        return self.step.node.origin.source


@frozen(eq=False)
class RunTime:
    """One run of a compiled program.

    Attributes:
        name: The program.
        lir: Its plan.
        start, seconds: When the run began, by the profile's clock, and how long the caller waited for it.
        traffic: Bytes transferred between the host and the device; `None` for a program in the host's memory.
    """

    name: str
    lir: Lir
    start: float
    seconds: float
    traffic: Traffic | None = None

    @property
    def peak_nbytes(self) -> int:
        """Bytes that the run needs: the arena, the inputs and parameters, and the outputs that it allocates."""
        values = {*self.lir.graph.inputs, *self.lir.graph.params, *self.lir.own_roots}
        return self.lir.arena_nbytes + sum(v.type.static_nbytes for v in values)

    def live_nbytes(self) -> Iterator[int]:
        """Bytes of the arena that hold a value still needed, while each step runs."""
        from rlx_core.pipeline.planning.memory import live_ranges  # here, because few programs are profiled

        ranges = live_ranges(self.lir)
        for number in range(len(self.lir.steps)):
            yield sum(r.nbytes for r in ranges if r.birth <= number <= r.death)


@define(eq=False)
class Profile(Shown):
    """Times of steps and runs in the order in which they were taken; grows while runs are profiled.

    Attributes:
        times: Of steps.
        runs: Of whole programs.
        result: The result of the profiled call, if `rlx.profile` made the profile.
        origin: The time of `time.perf_counter` that is zero in traces.
    """

    times: list[StepTime] = field(factory=list)
    runs: list[RunTime] = field(factory=list)
    result: Any = None
    origin: float = field(factory=time.perf_counter)
    _depth: int = 0

    def add(self, step: Step, seconds: float, idle: float = 0.0, start: float | None = None) -> None:
        """Report the time of a step; without `start` it is taken to have ended now."""
        begun = time.perf_counter() - seconds if start is None else start
        self.times.append(StepTime(step, seconds, idle, begun, self._depth))

    @contextmanager
    def timing(self, step: Step) -> Iterator[None]:
        """Time one step that Python runs; steps that run inside it are nested in it."""
        place, start = len(self.times), time.perf_counter()
        self._depth += 1
        try:
            yield
        finally:
            self._depth -= 1
        self.times.insert(place, StepTime(step, time.perf_counter() - start, 0.0, start, self._depth))

    def run(self, name: str, lir: Lir, start: float, traffic: Traffic | None) -> None:
        """Report a run that has just ended."""
        self.runs.append(RunTime(name, lir, start, time.perf_counter() - start, traffic))

    @property
    def seconds(self) -> float:
        """The sum over all steps of all runs."""
        return sum(t.seconds for t in self.times if not t.depth)

    @property
    def peak_nbytes(self) -> int:
        """The largest number of bytes that one of the runs needed."""
        return max((run.peak_nbytes for run in self.runs), default=0)

    @property
    def transferred_nbytes(self) -> int:
        """Bytes transferred between the host and devices by all runs."""
        return sum(r.traffic.inputs + r.traffic.outputs + r.traffic.steps for r in self.runs if r.traffic is not None)

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
        """The times as text, longest first; nested steps are left out, because the enclosing step contains them.

        Args:
            groups: Equal steps (one kernel, equal types) in one line; otherwise each has its own, in program order.
        """
        lines = self._grouped(lambda t: signature_of(t.step)) if groups else [[t] for t in self._outermost]
        total = sum(t.seconds for line in lines for t in line)
        head = f"{'share':>6} {'us':>9} {'idle':>5} {'steps':>5} {'GFLOP/s':>8} {'GB/s':>6}  kernel"
        return "\n".join([head, *(_line(line, total) for line in lines), f"{'':6} {total * 1e6:9.1f}  in all"])

    def by_line(self) -> list[tuple[Source | None, float, int]]:
        """Return the user's lines with the seconds and the number of their steps, longest first."""
        rows = self._grouped(lambda t: t.source)
        return [(line[0].source, sum(t.seconds for t in line), len(line)) for line in rows]

    def line_table(self) -> str:
        """The times of the user's lines as text."""
        total = sum(t.seconds for t in self._outermost)
        rows = [
            f"{s / (total or 1):6.1%} {s * 1e6:9.1f} {n:5}  {source or '(no line)'}" for source, s, n in self.by_line()
        ]
        return "\n".join([f"{'share':>6} {'us':>9} {'steps':>5}  line", *rows])

    def memory_table(self) -> str:
        """Each program's memory and transfers as text."""
        rows = [f"{'arena':>12} {'peak':>12} {'to device':>12} {'from device':>12}  program"]
        for run in {r.lir: r for r in self.runs}.values():
            moved = (run.traffic.inputs, run.traffic.outputs) if run.traffic is not None else (0, 0)
            rows.append(f"{run.lir.arena_nbytes:12} {run.peak_nbytes:12} {moved[0]:12} {moved[1]:12}  {run.name}")
        return "\n".join(rows)

    def trace(self) -> dict[str, Any]:
        """The runs and steps as a trace that Chrome (chrome://tracing) and Perfetto open, ready for `json.dump`.

        Source: "Trace Event Format", Google, complete ("X") and counter ("C") events; times in microseconds.
        """
        events: list[dict[str, Any]] = [
            {"ph": "M", "pid": 1, "tid": 1, "name": "thread_name", "args": {"name": "steps"}},
            {"ph": "M", "pid": 1, "tid": 0, "name": "thread_name", "args": {"name": "runs"}},
        ]
        for run in self.runs:
            facts = {"arena bytes": run.lir.arena_nbytes, "peak bytes": run.peak_nbytes, "target": run.lir.target}
            if run.traffic is not None:
                facts |= {f"bytes transferred, {name}": n for name, n in run.traffic.to_json().items()}
            events.append(self._event(run.name, 0, run.start, run.seconds, facts))
        live = {step: n for run in self.runs for step, n in zip(run.lir.steps, run.live_nbytes(), strict=True)}
        for each in self.times:
            facts = {"kernel": signature_of(each.step), "flops": each.flops, "bytes": each.nbytes}
            if each.source is not None:
                facts["line"] = repr(each.source)
            events.append(self._event(each.step.kernel, 1, each.start, each.seconds, facts))
            if each.step in live:
                timestamp = (each.start - self.origin) * 1e6
                events.append(
                    {"ph": "C", "pid": 1, "name": "live bytes", "ts": timestamp, "args": {"bytes": live[each.step]}}
                )
        return {"traceEvents": events, "displayTimeUnit": "ns"}

    def _event(self, name: str, lane: int, start: float, seconds: float, facts: Mapping[str, Any]) -> dict[str, Any]:
        begin = (start - self.origin) * 1e6
        return {"ph": "X", "pid": 1, "tid": lane, "name": name, "ts": begin, "dur": seconds * 1e6, "args": dict(facts)}

    @property
    def _outermost(self) -> list[StepTime]:
        return [t for t, _ in self.fastest() if not t.depth]

    def _grouped(self, key: Callable[[StepTime], object]) -> list[list[StepTime]]:
        lines: dict[object, list[StepTime]] = {}
        for each in self._outermost:
            lines.setdefault(key(each), []).append(each)
        return sorted(lines.values(), key=lambda line: -sum(t.seconds for t in line))

    def save_trace(self, path: str | os.PathLike[str]) -> None:
        """Write `trace()` as JSON.

        Raises:
            FileError: The file cannot be written.
        """
        try:
            Path(path).write_text(json.dumps(self.trace()), encoding="utf-8")
        except OSError as error:
            raise FileError(f"profile: the trace cannot be written to {os.fspath(path)} ({error})") from None

    def __str__(self) -> str:
        parts = (self.table(), self.line_table(), self.memory_table())
        return "\n\n".join(parts) if self.times else "no compiled step was run"

    __repr__ = __str__


_active: ContextVar[Profile | None] = ContextVar("profile", default=None)


def active() -> Profile | None:
    """The profile to which runs of this context are reported, or `None`."""
    return _active.get()


@checked_call
@contextmanager
def profiled() -> Iterator[Profile]:
    """Profile the runs that this thread starts inside `with`."""
    with assigned(_active, Profile()) as profile, watching():
        yield profile


def _line(line: Sequence[StepTime], total: float) -> str:
    seconds, idle = sum(t.seconds for t in line), sum(t.idle for t in line)
    flops, nbytes = sum(t.flops for t in line), sum(t.nbytes for t in line)
    rate = 1e-9 / max(seconds, 1e-9)
    return (
        f"{seconds / (total or 1.0):6.1%} {seconds * 1e6:9.1f} {idle / max(seconds, 1e-9):5.0%} {len(line):5}"
        f" {flops * rate:8.1f} {nbytes * rate:6.1f}  {signature_of(line[0].step)}"
    )
