"""The result of a compilation, for people and as data: stages, passes, memory, kernels of each op, and times."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from attrs import field

from rlx_core.ir.dims import Dim
from rlx_core.ir.graph import Graph, Param
from rlx_core.ir.lir import Lir
from rlx_core.ir.protocols import Shown
from rlx_core.system.records import frozen

if TYPE_CHECKING:
    from rlx_core.passes.engine.base import Conversion
    from rlx_core.passes.engine.fusion_report import FusionReport
    from rlx_core.passes.engine.runner import PassRun
    from rlx_core.pipeline.backend import Target, Traffic
    from rlx_core.pipeline.dispatch import DispatchReport
    from rlx_core.pipeline.tiers import Tiers
    from rlx_core.plugins import ContributionFault
    from rlx_core.tuning.tuner import TunedProblem


@frozen
class Expansion:
    """A weight that is stored wider than the parameters that it is computed from.

    Attributes:
        name: These parameters.
        type: The type of the wide weight.
        before, after: Bytes of the parameters, and of the weight.
    """

    name: str
    type: str
    before: int
    after: int

    def __str__(self) -> str:
        sizes = f"{human_bytes(self.before)} to {human_bytes(self.after)}"
        return f"expanded {self.name} to {self.type}, {sizes} (option passes.fuse-weight-loads.weights)"


@frozen(eq=False, repr=False)
class CompilationReport(Shown):
    """The record of one compilation.

    Attributes:
        name: The program.
        target: The device it was compiled for.
        stages: Stage → number of nodes (LIR: steps).
        passes: The changes of each pass.
        survey: Computes `dispatch` on demand: the nodes of a program from a cache have not been dispatched.
        lir: The plan; a template if sizes are still unknown.
        cache: The origin of the program: "compiled", "memory" or "disk".
        code: The origin of its machine code, once this process compiled or read it: "compiled" or "cached",
            and how much of it serves all sizes.
        checked: The reason why all calls take the checked path in Python, if other programs have a fast path.
        seconds: Times of the parts of the compilation, by part.
        fusion: Fusions and near misses; `None` for a program that was read from a cache.
        conversions: Operations that passes compute in narrower numbers, and operations that they considered and kept; `None`
            for a program that was read from a cache.
        device: The target itself, which knows on which tier each kernel runs.
        traffic: Bytes transferred between the host and the device of the program, once it ran; `None` for a target in the
            host's memory.
        tuned: The problems with several schedules, once this process compiled or read the machine code; empty unless the
            target's option enables tuning.
        left_out: Contributions that could not be used, by kind and name; it grows while others are discovered.
    """

    name: str
    target: str
    stages: Mapping[str, int]
    passes: tuple[PassRun, ...]
    survey: Callable[[], DispatchReport]
    lir: Lir
    cache: str = "compiled"
    code: str | None = None
    checked: str | None = None
    seconds: Mapping[str, float] = field(factory=dict)
    fusion: FusionReport | None = None
    conversions: tuple[Conversion, ...] | None = None
    device: Target | None = None
    traffic: Traffic | None = None
    tuned: Sequence[TunedProblem] = ()
    left_out: Mapping[tuple[str, str], ContributionFault] = field(factory=dict)

    @cached_property
    def dispatch(self) -> DispatchReport:
        """The dispatch of each op, with the candidates that were skipped."""
        return self.survey()

    @property
    def plan_hash(self) -> str:
        """The resolved pipeline's hash, as `rlx plan` prints it."""
        from rlx_core.pipeline.plan import plan_hash  # here, as below: few reports are read, and every program has one

        return plan_hash(self.lir.options)

    @property
    def graph(self) -> Graph:
        """The program that runs, as MIR."""
        return self.lir.graph

    @property
    def arena_nbytes(self) -> int:
        return self.lir.arena_nbytes

    @property
    def unshared_nbytes(self) -> int:
        return self.lir.unshared_nbytes

    @property
    def lower_bound_nbytes(self) -> int:
        """The most bytes that are alive at one time: no arena can be smaller for this schedule."""
        from rlx_core.pipeline.planning.memory import live_ranges, lower_bound  # as above

        return lower_bound(live_ranges(self.lir)) if self.lir.is_planned else 0

    @property
    def prepared_nbytes(self) -> int:
        """Bytes of values computed from parameters when they are bound, as far as sizes are known."""
        outputs = () if self.lir.prepare is None else self.lir.prepare.outputs
        return sum(v.type.static_nbytes for v in outputs if not isinstance(v.node.op, Param) and v.type.is_static)

    @cached_property
    def expansions(self) -> tuple[Expansion, ...]:
        """The weights that are wider when they are bound than the parameters that they are computed from."""
        from rlx_core.passes.engine.bound_values import expands, leaves_of  # as above

        expansions = []
        for value in () if self.lir.prepare is None else self.lir.prepare.outputs:
            sources = [] if isinstance(value.node.op, Param) else leaves_of(value)
            is_known = all(v.type.is_static for v in (value, *sources))
            if is_known and expands(value.type.static_nbytes, [v.type for v in sources]):
                params = [v.node for v in sources if isinstance(v.node.op, Param)]
                name = ", ".join(n.label for n in sorted(params, key=lambda n: n.index)) or value.node.label
                before = sum(v.type.static_nbytes for v in sources)
                expansions.append(Expansion(name, str(value.type), before, value.type.static_nbytes))
        return tuple(expansions)

    @property
    def _preparation(self) -> str:
        """A description of the values computed from parameters: their bytes, and the device that computes them."""
        place = "the host" if self.device is None or self.device.device is None else self.device.device.name
        return f"{human_bytes(self.prepared_nbytes)} computed on {place} from parameters when they are bound"

    @cached_property
    def tiers(self) -> Tiers | None:
        """The number of steps on each tier of the target, and the reasons for lower tiers; `None` if the target has no tiers."""
        from rlx_core.pipeline.tiers import tiers_of  # as above

        return None if self.device is None else tiers_of(self.lir, self.device)

    @property
    def kernels(self) -> Counter[tuple[str, str, str]]:
        """(op, kernel, plugin) → how many steps run it."""
        return Counter((s.node.op.name, s.kernel, self._plugin_of(s.kernel)) for s in self.lir.steps)

    def _plugin_of(self, kernel: str) -> str:
        """Return the plugin of a kernel; empty for kernels that run on the host."""
        from rlx_core.pipeline.kernels import HOST  # as above

        return "" if self.device is None or kernel == HOST else self.device.kernels.get(kernel).plugin or ""

    def to_json(self) -> dict[str, Any]:
        """The numbers, with stable keys."""
        return {
            "name": self.name,
            "target": self.target,
            "plan": self.plan_hash,
            "cache": self.cache,
            "code": self.code,
            "checked": self.checked,
            "stages": dict(self.stages),
            "seconds": dict(self.seconds),
            "passes": [
                {"name": p.name, "seconds": p.seconds, "before": p.nodes_before, "after": p.nodes_after}
                for p in self.passes
            ],
            "memory": {
                "arena": self.arena_nbytes,
                "unshared": self.unshared_nbytes,
                "lower_bound": self.lower_bound_nbytes,
                "prepared": self.prepared_nbytes,
            },
            "expansions": [
                {"weight": e.name, "type": e.type, "before": e.before, "after": e.after} for e in self.expansions
            ],
            "conversions": None
            if self.conversions is None
            else [
                {
                    "pass": c.name,
                    "node": c.node,
                    "what": c.what,
                    "kept": c.reason,
                    "before": c.before,
                    "after": c.after,
                    "details": dict(c.details),
                }
                for c in self.conversions
            ],
            "kernels": [
                {"op": op, "kernel": kernel, "plugin": plugin, "steps": count}
                for (op, kernel, plugin), count in sorted(self.kernels.items())
            ],
            "traffic": None if self.traffic is None else self.traffic.to_json(),
            "tiers": None if self.tiers is None else self.tiers.to_json(),
            "tuned": [each.to_json() for each in self.tuned],
            "left_out": [str(fault) for fault in self.left_out.values()],
        }

    def __str__(self) -> str:
        lines = [f"{self.name} on {self.target}: " + ", ".join(f"{n} {s}" for s, n in self.stages.items())]
        total = sum(self.seconds.values()) * 1e3
        code = f", code {self.code}" if self.code else ""
        lines.append(f"  compiled in {total:.1f} ms ({self.cache}{code}), plan {self.plan_hash[:12]}")
        if self.checked:
            lines.append(f"  every call is checked in Python: {self.checked}")
        if self.lir.is_planned:
            lines.append(
                f"  arena {human_bytes(self.arena_nbytes)}, {human_bytes(self.unshared_nbytes)} without sharing, "
                f"at least {human_bytes(self.lower_bound_nbytes)}"
            )
        else:
            unknown = ", ".join(sorted(str(s) for s in self.graph.symbols))
            lines.append(f"  memory is planned when {unknown} {'is' if ',' not in unknown else 'are'} bound")
        if self.tiers is not None:
            lines += [f"  {self.tiers.summary}", *(f"    {line}" for line in self.tiers.lines())]
        if self.prepared_nbytes:
            lines.append(f"  {self._preparation}")
        lines += [f"  {expansion}" for expansion in self.expansions]
        lines += [f"  {conversion}" for conversion in self.conversions or ()]
        if self.traffic is not None:
            lines.append(f"  {self.traffic}")
        for (op, kernel, plugin), count in self.kernels.most_common():
            lines.append(f"  {count:4d} × {op:<28} {kernel} ({plugin})")
        lines += [f"  tuned: {each}" for each in self.tuned]
        lines += [f"  left out: {fault}" for fault in self.left_out.values()]
        return "\n".join(lines)

    __repr__ = __str__

    def rows(self) -> Iterator[tuple[str, str]]:
        """The numbers of the compilation, each with its name, for tables."""
        yield "stages", ", ".join(f"{count} {stage}" for stage, count in self.stages.items())
        parts = ", ".join(f"{part} {seconds * 1e3:.0f} ms" for part, seconds in self.seconds.items())
        yield "time", f"{parts} ({self.cache})" if parts else self.cache
        yield "plan", self.plan_hash[:12]
        if self.lir.is_planned:
            arena, bound = self.arena_nbytes, self.lower_bound_nbytes
            over = f", {arena / bound:.3f} of the least possible" if bound else ""
            yield "arena", f"{human_bytes(arena)}, instead of {human_bytes(self.unshared_nbytes)} without sharing{over}"
        else:
            symbols = ", ".join(sorted(map(str, self.graph.symbols)))
            yield "arena", f"planned when the sizes are known ({symbols})"
        if self.tiers is not None:
            yield "tiers", self.tiers.summary
        if self.prepared_nbytes:
            yield "prepared", self._preparation
        for expansion in self.expansions:
            yield "expanded", str(expansion).removeprefix("expanded ")
        for conversion in self.conversions or ():
            yield "conversion", str(conversion)
        if self.traffic is not None:
            yield "traffic", str(self.traffic)
        if self.tuned:
            changed = sum(each.candidate.name != each.default for each in self.tuned)
            yield "tuned", f"{changed} of {len(self.tuned)} schedules differ from the default"
        if self.checked:
            yield "calls", f"are checked in Python: {self.checked}"


_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB")


def human_bytes(nbytes: Dim) -> str:
    """Return a number of bytes in human-readable form; an unknown size as its expression.

    >>> human_bytes(12), human_bytes(1536), human_bytes(87_400_000)
    ('12 B', '1.5 KiB', '83.4 MiB')
    """
    if not isinstance(nbytes, int):
        return f"({nbytes}) B"
    size, unit = float(nbytes), 0
    # 1023.95 would print as 1024.0 of the smaller unit.
    while size >= 1023.95 and unit < len(_UNITS) - 1:
        size /= 1024
        unit += 1
    return f"{nbytes} B" if unit == 0 else f"{size:.1f} {_UNITS[unit]}"
