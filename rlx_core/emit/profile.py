"""Where the time of runs on a device goes, by the device's own clock.

>>> with profiled() as profile:                                # doctest: +SKIP
...     fast(x)
>>> print(profile)                                             # doctest: +SKIP

Launches are submitted one by one and waited for, so a profiled run is slower than others; each launch's own time is what the
device says of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar

from attrs import field

from rlx_core.device.driver import Driver
from rlx_core.emit.frames import Frame, Part
from rlx_core.emit.steps import Emissions
from rlx_core.ir.graph import Node
from rlx_core.ir.lir import Lir, Step
from rlx_core.system.records import define, frozen

__all__ = ["DeviceProfile", "StepTime", "active", "profiled"]


@frozen(eq=False)
class StepTime:
    """A step in one run: the seconds of all its launches on the device."""

    step: Step
    seconds: float

    @property
    def nbytes(self) -> int:
        """Bytes of all operands and results, each counted once."""
        node = self.step.node
        return sum(v.type.static_nbytes for v in {*node.present(), *node.results})

    @property
    def signature(self) -> str:
        """The kernel, with the types of its operands and results."""
        node = self.step.node
        operands = ", ".join("-" if v is None else str(v.type) for v in node.operands)
        return f"{self.step.kernel}({operands}) -> {', '.join(map(str, node.types))}"


@define(eq=False)
class DeviceProfile:
    """Step times in the order in which they were taken; grows while runs are profiled."""

    times: list[StepTime] = field(factory=list)

    def launch(self, driver: Driver, lir: Lir, emissions: Emissions, part: Part, frame: Frame) -> None:
        """Run a part launch by launch."""
        place = part.first
        for number in part.steps:
            count = len(emissions.steps[number].calls)
            seconds = sum(driver.timed(launch) for launch in frame.launches[place : place + count])
            self.times.append(StepTime(lir.steps[number], seconds))
            place += count

    def table(self) -> str:
        """Each step at its fastest over the runs, longest first; equal steps (one kernel, equal types) are one line."""
        best: dict[Node, StepTime] = {}
        for each in self.times:
            node = each.step.node
            if node not in best or each.seconds < best[node].seconds:
                best[node] = each
        lines: dict[str, list[StepTime]] = {}
        for each in best.values():
            lines.setdefault(each.signature, []).append(each)
        total = sum(t.seconds for t in best.values())
        rows = sorted(lines.items(), key=lambda line: -sum(t.seconds for t in line[1]))
        head = f"{'share':>6} {'us':>9} {'steps':>5} {'GB/s':>6}  kernel"
        return "\n".join([head, *(_line(*row, total) for row in rows), f"{'':6} {total * 1e6:9.1f}  in all"])

    def __str__(self) -> str:
        return self.table()


def _line(signature: str, times: Sequence[StepTime], total: float) -> str:
    seconds, nbytes = sum(t.seconds for t in times), sum(t.nbytes for t in times)
    rate = 1e-9 * nbytes / max(seconds, 1e-9)
    return f"{seconds / max(total, 1e-9):6.1%} {seconds * 1e6:9.1f} {len(times):5} {rate:6.1f}  {signature}"


_active: ContextVar[DeviceProfile | None] = ContextVar("device_profile", default=None)


def active() -> DeviceProfile | None:
    """The profile that runs of this context are added to, if there is one."""
    return _active.get()


@contextmanager
def profiled() -> Iterator[DeviceProfile]:
    """Profile the runs on devices that are started inside `with`, by this thread."""
    profile = DeviceProfile()
    token = _active.set(profile)
    try:
        yield profile
    finally:
        _active.reset(token)
