"""A report as a notebook shows it; see `rlx_core.ir.display`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from rlx_core.ir.display import page, program_parts, section, table

if TYPE_CHECKING:
    from rlx_core.pipeline.report import Report

__all__ = ["report_html", "report_parts"]


def report_html(report: Report) -> str:
    """The numbers, and folded below them what ran where, what passes did, and the program."""
    return page(f"{report.name} on {report.target}", *report_parts(report))


def report_parts(report: Report, outputs: Sequence[str] | None = None) -> Iterator[str]:
    """The parts of the page of a report, or of a program that has one."""
    yield table(("", ""), report.rows())
    kernels = [(count, op, kernel, plugin) for (op, kernel, plugin), count in report.kernels.most_common()]
    yield section(f"{len(report.lir.steps)} steps", table(("steps>", "op", "kernel", "plugin"), kernels))
    if report.tiers is not None and report.tiers.fallbacks:
        lower = [(f.op, f.tier, len(f.steps), f.reason) for f in report.tiers.fallbacks]
        yield section("steps on a lower tier", table(("op", "tier", "steps>", "because"), lower))
    effective = [run for run in report.passes if run.has_effect]
    if report.passes:
        rows = [
            (r.name, r.effect, f"{r.nodes_before} → {r.nodes_after}", f"{r.seconds * 1e3:.1f} ms") for r in effective
        ]
        title = f"{len(effective)} of {len(report.passes)} passes had an effect"
        yield section(title, table(("pass", "did", "nodes>", "time>"), rows))
    yield from program_parts(report.graph, outputs)
