"""The laws on one target, program by program: results and gradients, if the target declines nothing.

This process determines the declined programs. A function runs the laws, here or in separate processes.
"""

from __future__ import annotations

from collections.abc import Iterator

from attrs import evolve, field

from rlx_core.cli.conforming.laws import (
    Law,
    Laws,
    LawTask,
    Status,
    TryLaws,
    cases_of,
    dtypes_of,
    gradient_of,
    in_this_process,
)
from rlx_core.cli.conforming.levels import LEVELS, NO_LEVEL, ConformanceLevel
from rlx_core.cli.op_rows import OpRow
from rlx_core.cli.plan import configuration_of, target_of
from rlx_core.cli.session import CliSession
from rlx_core.cli.why_kernel import asked
from rlx_core.ir.graph import Graph
from rlx_core.pipeline.dispatch import Dispatcher
from rlx_core.pipeline.legalize import rewrite
from rlx_core.plugins import set_default_host
from rlx_core.system.records import frozen
from rlx_core.testing.about import smooth
from rlx_core.testing.cases import OpProgram


@frozen
class LawRow:
    """One law on one program.

    Attributes:
        status: "host": the target declines it. "unclaimed": it has a dtype that the target does not claim. "untried": too many
            processes had ended before it.
        reason: Why it failed, is declined or was not run.
    """

    family: str
    op: str
    program: str
    law: Law
    dtypes: frozenset[str]
    status: Status
    reason: str = ""


@frozen
class TargetTrial:
    """All laws on one target.

    Attributes:
        dtypes: The dtypes that the target claims: those of programs of one dtype that it runs without the host.
    """

    target: str
    dtypes: tuple[str, ...]
    rows: tuple[LawRow, ...] = field(repr=False)

    def of_level(self, level: ConformanceLevel) -> list[LawRow]:
        """The rows that a level is about."""
        claimed = frozenset(self.dtypes) | level.dtypes
        laws = ("results", "gradients") if level.has_gradients else ("results",)
        return [r for r in self.rows if level.covers(r.family) and r.law in laws and r.dtypes <= claimed]

    @property
    def level(self) -> str:
        """The highest level that the target conforms to, all lower ones included."""
        best = NO_LEVEL
        for level in LEVELS:
            if any(row.status != "passed" for row in self.of_level(level)):
                break
            best = level.name
        return best

    @property
    def host_ops(self) -> dict[str, list[str]]:
        """Family → ops that the target declines for at least one program of claimed dtypes."""
        by_family: dict[str, list[str]] = {}
        for row in self.rows:
            if row.status == "host" and row.op not in by_family.setdefault(row.family, []):
                by_family[row.family].append(row.op)
        return {family: sorted(ops) for family, ops in by_family.items()}


def conformance_of(
    session: CliSession, target: str, *, is_quick: bool, try_laws: TryLaws = in_this_process
) -> TargetTrial:
    """Try a target on samples of every op.

    Args:
        is_quick: Whether to try the first sample of each op only.
        try_laws: Gives the verdicts of laws, in their order.

    Raises:
        DeviceError, DeviceUnavailableError: The target does not exist, or cannot be used here.
    """
    configuration = configuration_of(session, target)
    dispatcher = asked(configuration, *target_of(session, configuration))
    dispatcher = evolve(dispatcher, config=evolve(dispatcher.config, allow_host=()))
    cases = cases_of(session, is_quick=is_quick)
    declined = [refusal(program.graph, dispatcher) for _, program in cases]
    pairs = zip(cases, declined, strict=True)
    claimed = {name for (_, p), reason in pairs if reason is None for name in claimed_by(p, dispatcher)}
    rows: list[LawRow] = []
    tasks: dict[int, LawTask] = {}  # by the place of the row
    before = set_default_host(session.host)
    try:
        for case, ((row, program), reason) in enumerate(zip(cases, declined, strict=True)):
            for law_row in rows_of(row, program, reason, claimed, dispatcher):
                if law_row.status == "untried":
                    tasks[len(rows)] = LawTask(case, law_row.law)
                rows.append(law_row)
    finally:
        set_default_host(before)
    trial = Laws(dispatcher.target.name, is_quick, len(cases), tuple(tasks.values()))
    for place, verdict in zip(tasks, try_laws(session, trial), strict=True):
        rows[place] = evolve(rows[place], status=verdict.status, reason=verdict.reason)
    return TargetTrial(target, tuple(sorted(claimed)), tuple(rows))


def claimed_by(program: OpProgram, dispatcher: Dispatcher) -> frozenset[str]:
    """The dtype of a program of one dtype whose op has a kernel, as a set; empty for others: views run in every dtype."""
    dtypes = dtypes_of(program.graph)
    is_native = dispatcher.answer(program.node).means == "native"
    return dtypes if is_native and len(dtypes) == 1 else frozenset()


def refusal(graph: Graph, dispatcher: Dispatcher) -> str | None:
    """Why the target does not run a program without the host; `None` if it does."""
    _, report, illegal = rewrite(graph, dispatcher)
    if illegal:
        return f"{illegal[0].node.op.name}: {illegal[0].tried}"
    return f"{report.host[0].op}: {report.host[0].reason}" if report.host else None


def rows_of(
    row: OpRow, program: OpProgram, reason: str | None, claimed: set[str], dispatcher: Dispatcher
) -> Iterator[LawRow]:
    """The laws on one program, with the verdict `untried` for those to be run."""
    law_row = LawRow(row.family, row.name, repr(program), "results", dtypes_of(program.graph), "untried")
    if reason is not None:
        is_claimed = law_row.dtypes <= claimed
        yield evolve(law_row, status="host" if is_claimed else "unclaimed", reason=reason)
        return
    yield law_row
    if smooth(program):
        graph = gradient_of(program)
        law_row = evolve(law_row, law="gradients", dtypes=dtypes_of(graph))
        declined = refusal(graph, dispatcher)
        yield law_row if declined is None else evolve(law_row, status="host", reason=declined)
