"""Report of fusion: the ops of a program before and after, how often each rule fired, and the near misses.

A near miss is a place that matched the core of a pattern and failed one condition. It names the value that was in the way,
so that the person who wrote the model can move it; `assert_fusion_clean` makes that a test.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from attrs import asdict

from rlx_core.errors import Fact, VerifyError
from rlx_core.ir.graph import Graph
from rlx_core.passes.engine.base import Miss, PassRecord
from rlx_core.passes.engine.runner import PassesRun
from rlx_core.system.records import frozen

HINTS: Mapping[str, str] = {
    "MultiConsumer": "something else reads the inner value; compute it there again, or let both read the fused result",
    "IsOutput": "an inner value is an output of the program; return it only where it is needed",
    "BiasRankTooHigh": "a bias has one element a column, [n] or [1, .., n]",
    "DtypeMismatch": "cast the operands to one dtype before the pattern",
    "AxisNotLast": "the fused op works on the last axis; transpose before, not inside",
    "SharedMatmulCount": "bind the weights as parameters, so that joining them happens once",
    "SwigluNotSharedInput": "both products have to read the same value",
    "NoKernel": "`rlx why kernel` says what the target takes",
}
"""The usual remedy, by kind of miss."""


@frozen
class FusionMiss:
    """A near miss: a place where a pattern almost matched.

    Attributes:
        pattern: The rule.
        node: The node at that place.
        reason: The failed condition, in a word.
        label: The same in words, with the values in the way.
        hint: The usual remedy; empty if there is no general one.
    """

    pattern: str
    node: str
    reason: str
    label: str
    hint: str = ""

    @classmethod
    def of(cls, miss: Miss) -> FusionMiss:
        return cls(miss.rule, miss.node, miss.kind, miss.reason, HINTS.get(miss.kind, ""))


@frozen
class FusionReport:
    """The whole account.

    Attributes:
        before, after: Op → number of nodes, leaves left out.
        fired: Rule → how often it fired.
        misses: Near misses in the program as it was when the rules had finished.
    """

    before: Mapping[str, int]
    after: Mapping[str, int]
    fired: Mapping[str, int]
    misses: tuple[FusionMiss, ...]

    @property
    def is_clean(self) -> bool:
        return not self.misses

    def to_json(self) -> dict[str, object]:
        """The report as plain data."""
        return asdict(self)

    def __str__(self) -> str:
        lines = [f"fusion: {sum(self.fired.values())} rules fired, {len(self.misses)} near misses"]
        lines += [f"  {count:4d} × {rule}" for rule, count in sorted(self.fired.items())]
        changed = [op for op in sorted({*self.before, *self.after}) if self.before.get(op, 0) != self.after.get(op, 0)]
        width = max([len(op) for op in changed] + [4])
        lines += [f"  {op:<{width}}  {self.before.get(op, 0):4d} → {self.after.get(op, 0)}" for op in changed]
        for miss in self.misses:
            lines.append(f"  missed {miss.pattern} at {miss.node}: {miss.reason}, {miss.label}")
            lines += [f"    hint: {miss.hint}"] if miss.hint else []
        return "\n".join(lines)


def fusion_report(graph: Graph, run: PassesRun, passes: Iterable[PassRecord]) -> FusionReport:
    """The account of a run of `passes` on `graph`."""
    fusions = {p.name for p in passes if p.is_fusion}
    groups = {name.partition(".")[2] for name in fusions}
    fired: Counter[str] = Counter()
    for each in run.passes:
        if each.name in fusions:
            short = each.name.partition(".")[2]
            fired.update({r if "/" in r else f"{short}/{r}": n for r, n in each.counts.items()})
    missed = [m for m in run.misses if m.rule.partition("/")[0] in groups]
    # A pass that runs twice meets the same places twice.
    misses = tuple(dict.fromkeys(map(FusionMiss.of, missed)))
    return FusionReport(op_counts(graph), op_counts(run.graph), dict(fired), misses)


def op_counts(graph: Graph) -> dict[str, int]:
    return dict(sorted(Counter(n.op.name for n in graph.nodes if not n.is_leaf).items()))


def assert_fusion_clean(report: FusionReport, allowed: Sequence[str] = ()) -> None:
    """Require that there is no near miss, except for the reasons or patterns in `allowed`.

    Raises:
        VerifyError: Something was; one fact a place.
    """
    left = [m for m in report.misses if m.reason not in allowed and m.pattern not in allowed]
    if left:
        facts = [Fact(f"{m.pattern} at {m.node}", f"{m.reason}: {m.label}") for m in left]
        places = "place was" if len(left) == 1 else "places were"
        hint = f"{left[0].hint or 'move what is in the way'}, or allow it by its reason under fusion.allowed-misses"
        raise VerifyError(f"fusion: {len(left)} {places} nearly fused", *facts, hint=hint)
