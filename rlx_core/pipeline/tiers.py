"""The tiers of a plan's steps on a target, and the reasons for steps on the last tier.

The reasons are those of the rows of the target's kernel table, asked again about the nodes as they are planned: the passes
after legalisation may have made other nodes than the dispatch report knows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from attrs import asdict

from rlx_core.ir.graph import Node
from rlx_core.ir.lir import Lir, Step
from rlx_core.pipeline.backend import Target
from rlx_core.pipeline.kernels import HOST
from rlx_core.system.records import frozen


@frozen
class Fallback:
    """Steps of one op that run on the last tier for one reason."""

    op: str
    kernel: str
    tier: str
    reason: str
    steps: tuple[int, ...]


@frozen
class Tiers:
    """The number of steps on each tier, best first, and the reasons for steps on the last.

    Attributes:
        counts: Tier → number of steps, for every tier of the target.
        fallbacks: Most steps first.
        note: The target's reason for having no better tier here, if any.
    """

    counts: dict[str, int]
    fallbacks: tuple[Fallback, ...]
    note: str = ""

    @property
    def summary(self) -> str:
        """`177 of 190 steps native, 13 numpy`"""
        (best, count), *others = self.counts.items()
        total = sum(self.counts.values())
        text = f"{count} of {total} steps {best}" + "".join(f", {n} {tier}" for tier, n in others if n)
        return f"{text} ({self.note})" if self.note else text

    def lines(self) -> Iterator[str]:
        """One line a reason: `12 pad: no native kernel for it`."""
        for each in self.fallbacks:
            yield f"{len(each.steps)} {each.op.removeprefix('rlx.')}: {each.reason}"

    def to_json(self) -> dict[str, Any]:
        """The same with stable keys."""
        return {
            "steps": self.counts,
            "note": self.note,
            "fallbacks": [asdict(each) for each in self.fallbacks],
        }


def tiers_of(lir: Lir, target: Target) -> Tiers | None:
    """Return the tiers of the steps of a plan; `None` for a target that has no tiers."""
    if not target.tiers:
        return None
    counts: Counter[str] = Counter()
    reasons: dict[tuple[str, str, str, str], list[int]] = {}
    for number, step in enumerate(lir.steps):
        tier = tier_of_step(step, target)
        counts[tier] += 1
        if target.falls_back(tier):
            reason = why_step(step, target)
            reasons.setdefault((step.node.op.name, step.kernel, tier, reason), []).append(number)
    fallbacks = [Fallback(*key, tuple(numbers)) for key, numbers in reasons.items()]
    fallbacks.sort(key=lambda f: (-len(f.steps), f.steps))
    note = target.properties.get("why", "") if len(target.tiers) == 1 else ""
    return Tiers({tier: counts[tier] for tier in target.tiers}, tuple(fallbacks), note)


def tier_of_step(step: Step, target: Target) -> str:
    """Return the tier of a step; for a step with nested graphs, the lowest tier of their steps."""
    last = target.tiers[-1]
    step_tier = last if step.kernel == HOST else target.tier(target.kernels.get(step.kernel)) or last
    inner = (tier_of_step(each, target) for plan in step.nested.values() for each in plan.steps)
    return max((step_tier, *inner), key=target.tiers.index)


def why_step(step: Step, target: Target) -> str:
    """Return the reason why a step falls back to the last tier."""
    reason = why_not_best(step.node, step.kernel, target)
    if not step.nested or target.falls_back(target.tier(target.kernels.get(step.kernel)) or target.tiers[-1]):
        return reason
    inner = (each for plan in step.nested.values() for each in plan.steps)
    worst = next(each for each in inner if target.falls_back(tier_of_step(each, target)))
    return f"in its body, {worst.node.op.title}: {why_step(worst, target)}"


def why_not_best(node: Node, kernel: str, target: Target) -> str:
    """Return the reason why no kernel of the best tier runs a node that `kernel` runs, from those kernels' own rows."""
    if node.op.calls_host:
        return "it calls a Python function"
    best = target.tiers[0]
    rows = [row for row in target.kernels.candidates(type(node.op)) if target.tier(row) == best]
    reasons = [f"{row.name} {reason}" for row in rows if (reason := row.refusal(node)) is not None]
    if not rows:
        return f"no {best} kernel for it"
    return "; ".join(reasons) if len(reasons) == len(rows) else f"{kernel} comes before the {best} kernels"
