"""The laws of conformance, each on one program and target."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final, Literal

from rlx_core.cli.op_rows import OpRow, rows
from rlx_core.cli.session import CliSession
from rlx_core.errors import LegalizeError
from rlx_core.ir.graph import Graph
from rlx_core.plugins import set_default_host
from rlx_core.system.records import frozen
from rlx_core.testing.cases import OpProgram, programs, wide
from rlx_core.testing.judges import near_oracle
from rlx_core.testing.targets import TargetRun
from rlx_core.transforms.vjp import vjp_graph

Law = Literal["results", "gradients"]
Status = Literal["passed", "failed", "host", "unclaimed", "untried"]

FILE: Final = "verdicts.jsonl"
"""The file of the verdicts of separate processes."""


@frozen
class LawTask:
    """One law to be tried.

    Attributes:
        case: The place of its program among `cases_of` the session.
    """

    case: int
    law: Law


@frozen
class Laws:
    """Laws to be tried on one target.

    Attributes:
        is_quick: Whether there is the first sample of each op only.
        count: The number of `cases_of` the session.
    """

    target: str
    is_quick: bool
    count: int
    tasks: tuple[LawTask, ...]


@frozen
class LawVerdict:
    """The outcome of a law that was tried.

    Attributes:
        reason: Why it failed or is declined.
    """

    status: Status
    reason: str = ""


TryLaws = Callable[[CliSession, Laws], Iterator[LawVerdict]]


def in_this_process(session: CliSession, laws: Laws) -> Iterator[LawVerdict]:
    """Try laws one after the other."""
    return tried(session, laws, cases_of(session, is_quick=laws.is_quick))


def tried(
    session: CliSession, laws: Laws, cases: Sequence[tuple[OpRow, OpProgram]], first: int = 0
) -> Iterator[LawVerdict]:
    """Try laws on cases that are there, from the task `first` on."""
    assert len(cases) == laws.count, "the same plugins give the same samples"
    before = set_default_host(session.host)
    try:
        for task in laws.tasks[first:]:
            _, program = cases[task.case]
            yield verdict_of(program, task.law, laws.target)
    finally:
        set_default_host(before)


def cases_of(session: CliSession, *, is_quick: bool) -> list[tuple[OpRow, OpProgram]]:
    """Every op with each of its programs that is tried, in an order that is the same in every process."""
    return [(row, p) for row in rows(session.host, "rlx.") for p in samples_of(row, is_quick=is_quick)]


def samples_of(row: OpRow, *, is_quick: bool) -> Sequence[OpProgram]:
    """The programs of an op that have sizes and work."""
    if row.op is None:
        return ()
    candidates = [each for each in programs((row.op,)) if each.is_static and each.failure is None]
    first = [each for each in candidates if "f32" in dtypes_of(each.graph)] or candidates
    return first[:1] if is_quick else candidates


def dtypes_of(graph: Graph) -> frozenset[str]:
    """The dtypes of a program's values."""
    return frozenset(v.dtype.name for n in graph.nodes for v in n.results)


def gradient_of(program: OpProgram) -> Graph:
    """The program that computes its gradient."""
    return vjp_graph(program.graph, program.differentiable, engine=program.engine)


def verdict_of(program: OpProgram, law: Law, target: str) -> LawVerdict:
    """The law of backends on one program: the interpreter's results, and the same bits in a second run."""
    graph = program.graph if law == "results" else gradient_of(program)
    rng = program.rng()
    arrays = program.draw()
    seeds = list(graph.input_types.values())[len(arrays) :]
    arrays += [rng.normal(size=t.static_shape).astype(t.dtype.numpy) for t in seeds]
    try:
        outputs = list(TargetRun(target)(graph, arrays))
        near_oracle(graph, outputs, wide(graph, arrays), arrays)
    except LegalizeError as error:  # a pass made a node that the target declines
        return LawVerdict("host", error.message)
    except Exception as error:  # noqa: BLE001 - whatever a backend raises is a failed law of it
        first = (str(error).strip().splitlines() or [""])[0]
        return LawVerdict("failed", f"{type(error).__name__}: {first}")
    return LawVerdict("passed")
