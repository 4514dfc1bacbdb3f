"""`rlx ops --targets`: how each op runs on each target, asked with samples of the op; no cell is empty without a reason.

A target that cannot be used here is asked as `TARGET:absent`: what has a kernel follows from its language and not from a device.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from attrs import evolve, frozen

from rlx_core.cli.op_rows import OpRow, rows
from rlx_core.cli.plan import configuration_of, target_of
from rlx_core.cli.session import Session
from rlx_core.cli.why_kernel import Choice, asked, decided, working_samples
from rlx_core.errors import DeviceError, DeviceUnavailableError, RlxError
from rlx_core.ir.op import Op
from rlx_core.ops.samples import Sample
from rlx_core.pipeline.select.backend import ABSENT, Target
from rlx_core.pipeline.select.dispatch import Dispatcher
from rlx_core.pipeline.select.kernels import Kernel

__all__ = ["Cell", "Grid", "grid", "grid_json", "grid_layout"]

HOW: Final = {
    "generated": "a loop kernel made from what the op means",
    "structured": "a template of its own: a product, attention, a sort, a scan, a copy",
    "library": "a library's function",
    "host": "the host's reference, with NumPy",
    "view": "nothing runs; it is another look at its operand",
    "decomposed": "what it decomposes into has kernels",
    "absent": "nothing runs it",
}
"""The ways, and what they mean; their first letters stand for them, and a dash for the last."""


@frozen
class Cell:
    """How a target runs an op.

    Attributes:
        how: One of `HOW`.
        kernel: The kernel, if one does.
        reason: Why nothing does, or not for all samples, or why it is the host.
    """

    how: str
    kernel: str | None = None
    reason: str = ""


@frozen
class Grid:
    """Ops and targets.

    Attributes:
        targets: Name → what was asked: the target itself, `TARGET:absent`, or why it could not be.
        cells: Op → target → how.
    """

    targets: Mapping[str, str]
    cells: Mapping[str, Mapping[str, Cell]]


def grid(session: Session, pattern: str) -> Grid:
    """Every op whose name has `pattern` in it, on every target that a plugin brings.

    Raises:
        UnknownNameError: There is no such op.
    """
    found = rows(session.host, pattern)
    registry = session.host.activate_all()
    names = sorted({*registry.backends, *(name for kind, name in registry.refused if kind == "backends")})
    targets: dict[str, str] = {}
    cells: dict[str, dict[str, Cell]] = {row.name: {} for row in found}
    for name in names:
        try:
            targets[name], dispatcher = chooser(session, name)
        except RlxError as error:
            targets[name] = "; ".join([error.message, *(str(fact.found) for fact in error.facts)])
            for row in found:
                cells[row.name][name] = Cell("absent", reason=targets[name])
            continue
        for row in found:
            cells[row.name][name] = cell_of(row, dispatcher)
    return Grid(targets, cells)


def chooser(session: Session, name: str) -> tuple[str, Dispatcher]:
    """What was asked about ops, and what answers: the target, or its code alone where it cannot be used here.

    Raises:
        RlxError: It cannot be asked at all.
    """
    try:
        return name, dispatcher_of(session, name)
    except (DeviceError, DeviceUnavailableError) as error:
        absent = f"{name}:{ABSENT}"
        try:
            return absent, dispatcher_of(session, absent)
        except RlxError:
            raise error from None


def dispatcher_of(session: Session, name: str) -> Dispatcher:
    configuration = configuration_of(session, name)
    return asked(configuration, *target_of(session, configuration))


def cell_of(row: OpRow, dispatcher: Dispatcher) -> Cell:
    """How one target runs one op: the first of its samples that it runs, those in f32 before others."""
    if row.op is None:
        return Cell("absent", reason=row.fault or "it cannot be imported")
    samples = working_samples(row.op)
    if not samples:
        return Cell("absent", reason="passes make it, and it has no sample to ask with")
    refused = ""
    for sample in samples:
        found = asked_with(row.op, sample, dispatcher)
        if found.how != "absent":
            return evolve(found, reason=found.reason or (refused and f"not all: {refused}"))
        refused = refused or found.reason
    return Cell("absent", reason=refused)


def asked_with(op: type[Op], sample: Sample, dispatcher: Dispatcher) -> Cell:
    try:
        choice = decided(dispatcher, op, dict(sample.attributes), list(sample.types))
    except RlxError as error:
        return Cell("absent", reason=error.message)
    way = way_of(choice, dispatcher.target)
    return Cell(way, None if choice.kernel is None else choice.kernel.name, reason_of(choice))


def way_of(choice: Choice, target: Target) -> str:
    if choice.kernel is not None:
        return tier_of(choice.kernel, target)
    if not choice.can_run:
        return "absent"
    return choice.answer.means if choice.answer.means in ("view", "host") else "decomposed"


def tier_of(kernel: Kernel, target: Target) -> str:
    """The way of a kernel: the best tier of a target generates, its last one computes on the host."""
    tier = target.tier(kernel)
    if tier == "library":
        return "library"
    if target.falls_back(tier):
        return "host"
    return "generated" if kernel.is_generated else "structured"


def reason_of(choice: Choice) -> str:
    """Why there is no kernel, in the words of the rows that might have been, or of what it decomposes into."""
    if choice.kernel is not None or choice.answer.means in ("view", "host"):
        return choice.below or ""
    missing = [row for row in choice.becomes if row.means == "unsupported"]
    if not missing:
        return choice.answer.reason or "it has no kernel"
    refused = [each.reason for each in missing[0].refusals]
    said = (refused or [missing[0].reason or "no kernel"])[0]
    return said if missing[0].op == choice.op else f"{missing[0].op}: {said}"


# --------------------------------------------------------------------------------------------------- output


def grid_json(found: Grid) -> dict[str, Any]:
    """The same with stable keys."""
    return {
        "targets": dict(found.targets),
        "ops": {
            op: {name: {"how": c.how, "kernel": c.kernel, "reason": c.reason} for name, c in cells.items()}
            for op, cells in found.cells.items()
        },
    }


def letter(cell: Cell) -> str:
    return "–" if cell.how == "absent" else cell.how[0].upper()


def grid_layout(found: Grid) -> Iterator[Any]:
    """A letter a cell, what the letters mean, and why cells have none."""
    from rlx_core.cli.tables import cell, counted, listing

    lines = [(op, *(letter(each) for each in cells.values())) for op, cells in found.cells.items()]
    yield listing(("op", *found.targets), lines, whole=1)
    yield ""
    yield f"{counted({'ops': len(found.cells)})}."
    for how, meaning in HOW.items():
        yield f"  {letter(Cell(how))}  {how}: {meaning}"
    absent = [(name, asked) for name, asked in found.targets.items() if asked != name]
    for name, said in absent:
        yield f"{name} is not here: {'asked as ' + said if said.endswith(f':{ABSENT}') else said}"
    reasons: dict[tuple[str, str], list[str]] = {}
    for op, cells in found.cells.items():
        for name, each in cells.items():
            if each.how == "absent" and found.targets[name] in (name, f"{name}:{ABSENT}"):
                reasons.setdefault((op, each.reason), []).append(name)
    if reasons:
        yield ""
        why = [(op, ", ".join(names), cell(reason)) for (op, reason), names in reasons.items()]
        yield listing(("op", "not on", "because"), why, whole=1)
