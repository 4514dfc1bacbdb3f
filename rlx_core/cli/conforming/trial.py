"""The laws on one target, program by program: results and gradients, where the target declines nothing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal

from attrs import evolve, field

from rlx_core.cli.conforming.levels import LEVELS, NO_LEVEL, ConformanceLevel
from rlx_core.cli.op_rows import OpRow, rows
from rlx_core.cli.plan import configuration_of, target_of
from rlx_core.cli.session import Session
from rlx_core.cli.why_kernel import asked
from rlx_core.errors import LegalizeError
from rlx_core.ir.graph import Graph
from rlx_core.pipeline.legalize import rewrite
from rlx_core.pipeline.select.dispatch import Dispatcher
from rlx_core.plugins import set_default_host
from rlx_core.system.records import frozen
from rlx_core.testing.about import smooth
from rlx_core.testing.cases import Program, programs, wide
from rlx_core.testing.judges import near_oracle
from rlx_core.testing.targets import TargetRun
from rlx_core.transforms.vjp import vjp_graph

__all__ = ["LawRow", "TargetTrial", "conformance_of"]

Law = Literal["results", "gradients"]


@frozen
class LawRow:
    """One law on one program.

    Attributes:
        status: "host": the target declines it. "unclaimed": it has a dtype that the target does not claim.
        reason: Why it failed or is declined.
    """

    family: str
    op: str
    program: str
    law: Law
    dtypes: frozenset[str]
    status: Literal["passed", "failed", "host", "unclaimed"]
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
        found: dict[str, list[str]] = {}
        for row in self.rows:
            if row.status == "host" and row.op not in found.setdefault(row.family, []):
                found[row.family].append(row.op)
        return {family: sorted(ops) for family, ops in found.items()}


def conformance_of(session: Session, target: str, *, is_quick: bool) -> TargetTrial:
    """Try a target on samples of every op.

    Args:
        is_quick: Whether to try the first sample of each op only.

    Raises:
        DeviceError, DeviceUnavailableError: There is no such target, or it cannot be used here.
    """
    configuration = configuration_of(session, target)
    dispatcher = asked(configuration, *target_of(session, configuration))
    dispatcher = evolve(dispatcher, config=evolve(dispatcher.config, allow_host=()))
    cases = [(row, program) for row in rows(session.host, "rlx.") for program in samples_of(row, is_quick=is_quick)]
    declined = [(row, p, refusal(p.graph, dispatcher)) for row, p in cases]
    claimed = {name for _, p, reason in declined if reason is None for name in claimed_by(p, dispatcher)}
    found: list[LawRow] = []
    before = set_default_host(session.host)
    try:
        for row, program, reason in declined:
            found += rows_of(row, program, reason, claimed, dispatcher)
    finally:
        set_default_host(before)
    return TargetTrial(target, tuple(sorted(claimed)), tuple(found))


def samples_of(row: OpRow, *, is_quick: bool) -> Sequence[Program]:
    """The programs of an op that have sizes and work."""
    if row.op is None:
        return ()
    found = [each for each in programs((row.op,)) if each.is_static and each.failure is None]
    first = [each for each in found if "f32" in dtypes_of(each.graph)] or found
    return first[:1] if is_quick else found


def dtypes_of(graph: Graph) -> frozenset[str]:
    """The dtypes of a program's values."""
    return frozenset(v.dtype.name for n in graph.nodes for v in n.results)


def claimed_by(program: Program, dispatcher: Dispatcher) -> frozenset[str]:
    """The dtype of a program of one dtype whose op has a kernel, as a set; empty for others: views run in every dtype."""
    found = dtypes_of(program.graph)
    is_native = dispatcher.answer(program.node).means == "native"
    return found if is_native and len(found) == 1 else frozenset()


def refusal(graph: Graph, dispatcher: Dispatcher) -> str | None:
    """Why the target does not run a program without the host; `None` if it does."""
    _, report, illegal = rewrite(graph, dispatcher)
    if illegal:
        return f"{illegal[0].node.op.name}: {illegal[0].tried}"
    return f"{report.host[0].op}: {report.host[0].reason}" if report.host else None


def rows_of(
    row: OpRow, program: Program, reason: str | None, claimed: set[str], dispatcher: Dispatcher
) -> Iterator[LawRow]:
    """The laws on one program."""
    made = LawRow(row.family, row.name, repr(program), "results", dtypes_of(program.graph), "passed")
    if reason is not None:
        is_claimed = made.dtypes <= claimed
        yield evolve(made, status="host" if is_claimed else "unclaimed", reason=reason)
        return
    yield tried(made, program.graph, program, dispatcher)
    if smooth(program):
        graph = vjp_graph(program.graph, program.differentiable, engine=program.engine)
        made = evolve(made, law="gradients", dtypes=dtypes_of(graph))
        declined = refusal(graph, dispatcher)
        yield (
            tried(made, graph, program, dispatcher)
            if declined is None
            else evolve(made, status="host", reason=declined)
        )


def tried(row: LawRow, graph: Graph, program: Program, dispatcher: Dispatcher) -> LawRow:
    """The law of backends on one graph: the interpreter's results, and the same bits in a second run."""
    rng = program.rng()
    arrays = program.draw()
    seeds = list(graph.input_types.values())[len(arrays) :]
    arrays += [rng.normal(size=t.static_shape).astype(t.dtype.numpy) for t in seeds]
    try:
        found = list(TargetRun(dispatcher.target.name)(graph, arrays))
        near_oracle(graph, found, wide(graph, arrays), arrays)
    except LegalizeError as error:  # a pass made a node that the target declines
        return evolve(row, status="host", reason=error.message)
    except Exception as error:  # noqa: BLE001 - whatever a backend raises is a failed law of it
        first = (str(error).strip().splitlines() or [""])[0]
        return evolve(row, status="failed", reason=f"{type(error).__name__}: {first}")
    return row
