"""`rlx ops --targets`: how each op runs on each target, determined with its samples; every empty cell has a reason.

A target may run an op on integers and not on floats, so samples are grouped by kind of number, and a cell lists the kinds
that nothing runs.

A target that cannot be used here is queried as `TARGET:absent`: kernels follow from its language, not from a device.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from attrs import evolve, field

from rlx_core.cli.op_rows import OpRow, rows
from rlx_core.cli.plan import configuration_of, target_of
from rlx_core.cli.session import CliSession
from rlx_core.cli.why_kernel import KernelChoice, asked, decided, working_samples
from rlx_core.errors import DeviceError, DeviceUnavailableError, RlxError
from rlx_core.ir.dtypes import DType, bool_, f32, f64
from rlx_core.ir.op import Op
from rlx_core.ir.types import TensorType
from rlx_core.ops.samples import Sample
from rlx_core.pipeline.backend import ABSENT, Target
from rlx_core.pipeline.dispatch import Dispatcher
from rlx_core.pipeline.kernels import Kernel
from rlx_core.system.records import frozen

HOW: Final = {
    "generated": "a loop kernel made from what the op means",
    "structured": "a template of its own: a product, attention, a sort, a scan, a copy",
    "library": "a library's function",
    "host": "the host's reference, with NumPy",
    "view": "nothing runs; it is another look at its operand",
    "decomposed": "what it decomposes into has kernels",
    "absent": "nothing runs it",
}
"""The ways with their meanings; cells show their first letters, and a dash for the last."""


PARTLY: Final = "*"
"""Mark next to the letter of a way that some kinds of number do not have."""

KINDS: Final[Mapping[str, Callable[[DType], bool]]] = {
    "floats": lambda dtype: dtype.is_float,
    "integers": lambda dtype: dtype.is_integer,
    "booleans": lambda dtype: dtype is bool_,
    "numbers": lambda dtype: False,
    "complex numbers": lambda dtype: dtype.is_complex,
}
"""Kinds of number of samples, in the order of preference for the letter of a cell; `numbers` if unspecified."""


@frozen
class Cell:
    """How a target runs an op.

    Attributes:
        how: One of `HOW`.
        kernel: The kernel, if one does.
        reason: Why nothing does, or not for all samples, or why it is the host.
        refused: Why nothing does for numbers of a kind, where there is a way for others.
    """

    how: str
    kernel: str | None = None
    reason: str = ""
    refused: Mapping[str, str] = field(factory=dict)


@frozen
class Grid:
    """Ops and targets.

    Attributes:
        targets: Name → the queried target: itself, `TARGET:absent`, or the reason why it cannot be queried.
        cells: Op → target → way.
    """

    targets: Mapping[str, str]
    cells: Mapping[str, Mapping[str, Cell]]


def grid(session: CliSession, pattern: str) -> Grid:
    """Every op whose name has `pattern` in it, on every target that a plugin brings.

    Raises:
        UnknownNameError: There is no such op.
    """
    op_rows = rows(session.host, pattern)
    registry = session.host.activate_all()
    names = sorted({*registry.backends, *(name for kind, name in registry.refused if kind == "backends")})
    targets: dict[str, str] = {}
    cells: dict[str, dict[str, Cell]] = {row.name: {} for row in op_rows}
    for name in names:
        try:
            targets[name], dispatcher = chooser(session, name)
        except RlxError as error:
            targets[name] = "; ".join([error.message, *(str(fact.value) for fact in error.facts)])
            for row in op_rows:
                cells[row.name][name] = Cell("absent", reason=targets[name])
            continue
        for row in op_rows:
            cells[row.name][name] = cell_of(row, dispatcher)
    return Grid(targets, cells)


def chooser(session: CliSession, name: str) -> tuple[str, Dispatcher]:
    """The name and the target that is queried: the target, or only its code if it cannot be used here.

    Raises:
        RlxError: It cannot be queried at all.
    """
    try:
        return name, dispatcher_of(session, name)
    except (DeviceError, DeviceUnavailableError) as error:
        absent = f"{name}:{ABSENT}"
        try:
            return absent, dispatcher_of(session, absent)
        except RlxError:
            raise error from None


def dispatcher_of(session: CliSession, name: str) -> Dispatcher:
    configuration = configuration_of(session, name)
    return asked(configuration, *target_of(session, configuration))


def cell_of(row: OpRow, dispatcher: Dispatcher) -> Cell:
    """How one target runs one op: as it runs floats, if it does, else the first kind of `KINDS` that it runs."""
    if row.op is None:
        return Cell("absent", reason=row.fault or "it cannot be imported")
    op, samples = row.op, working_samples(row.op)
    if not samples:
        return Cell("absent", reason="passes make it, and it has no sample to ask with")
    by_kind = {kind: [each for each in samples if kind_of(each) == kind] for kind in KINDS}
    cells = {kind: first_that_runs(op, of_kind, dispatcher) for kind, of_kind in by_kind.items() if of_kind}
    refused = {kind: cell.reason for kind, cell in cells.items() if cell.how == "absent"}
    usable = next((cell for kind, cell in cells.items() if kind not in refused), None)
    return next(iter(cells.values())) if usable is None else evolve(usable, refused=refused)


def first_that_runs(op: type[Op], samples: Sequence[Sample], dispatcher: Dispatcher) -> Cell:
    """The way of the first sample that runs, f32 before other dtypes; samples in f64 only are also tried in f32."""
    refused = ""
    narrow = (Sample(*narrowed(each.types), **each.attributes) for each in samples)
    for sample in (*samples, *narrow):
        cell = asked_with(op, sample, dispatcher)
        if cell.how != "absent":
            return evolve(cell, reason=cell.reason or (refused and f"not all: {refused}"))
        refused = refused or cell.reason
    return Cell("absent", reason=refused)


def kind_of(sample: Sample) -> str:
    """The kind of number of a call: complex if any operand is, else float if any is (indices may be integers)."""
    dtypes = [t.dtype for t in sample.types if t is not None]
    dtypes += [each for each in sample.attributes.values() if isinstance(each, DType)]
    if any(dtype.is_complex for dtype in dtypes):
        return "complex numbers"
    return next((kind for kind, holds in KINDS.items() if any(map(holds, dtypes))), "numbers")


def narrowed(types: Sequence[TensorType | None]) -> tuple[TensorType | None, ...]:
    return tuple(evolve(t, dtype=f32) if t is not None and t.dtype is f64 else t for t in types)


def asked_with(op: type[Op], sample: Sample, dispatcher: Dispatcher) -> Cell:
    try:
        choice = decided(dispatcher, op, dict(sample.attributes), list(sample.types))
    except RlxError as error:
        return Cell("absent", reason=error.message)
    way = way_of(choice, dispatcher.target)
    return Cell(way, None if choice.kernel is None else choice.kernel.name, reason_of(choice))


def way_of(choice: KernelChoice, target: Target) -> str:
    if choice.answer.means in ("view", "host"):
        return choice.answer.means
    if choice.kernel is None:
        return "decomposed" if choice.can_run else "absent"
    tier = tier_of(choice.kernel, target)
    return "view" if tier == "host" and choice.is_view else tier


def tier_of(kernel: Kernel, target: Target) -> str:
    """The way of a kernel: the best tier of a target generates, its last one computes on the host."""
    tier = target.tier(kernel)
    if tier == "library":
        return "library"
    if target.falls_back(tier):
        return "host"
    return "generated" if kernel.is_generated else "structured"


def reason_of(choice: KernelChoice) -> str:
    """The reason why there is no kernel, from the candidate rows, or from the ops of the decomposition."""
    if choice.kernel is not None or choice.answer.means in ("view", "host"):
        return choice.below or (choice.answer.reason if choice.answer.means == "host" else "")
    missing = [row for row in choice.becomes if row.means == "unsupported"]
    if not missing:
        return choice.answer.reason or "it has no kernel"
    refused = [each.reason for each in missing[0].refusals]
    reason = (refused or [missing[0].reason or "no kernel"])[0]
    return reason if missing[0].op == choice.op else f"{missing[0].op}: {reason}"


# --------------------------------------------------------------------------------------------------- output


def grid_json(table: Grid) -> dict[str, Any]:
    """The same with stable keys."""
    return {
        "targets": dict(table.targets),
        "ops": {
            op: {
                name: {"how": c.how, "kernel": c.kernel, "reason": c.reason, "refused": dict(c.refused)}
                for name, c in cells.items()
            }
            for op, cells in table.cells.items()
        },
    }


def letter(cell: Cell) -> str:
    return "–" if cell.how == "absent" else cell.how[0].upper() + (PARTLY if cell.refused else "")


def grid_layout(table: Grid) -> Iterator[Any]:
    """One letter per cell, their legend, and the reasons of empty cells."""
    from rlx_core.cli.tables import cell, counted, listing

    lines = [(op, *(letter(each) for each in cells.values())) for op, cells in table.cells.items()]
    yield listing(("op", *table.targets), lines, unwrapped_columns=1)
    yield ""
    yield f"{counted({'ops': len(table.cells)})}."
    for how, meaning in HOW.items():
        yield f"  {letter(Cell(how))}  {how}: {meaning}"
    yield f"  {PARTLY}  not for numbers of each kind that the op takes"
    absent = [(name, requested) for name, requested in table.targets.items() if requested != name]
    for name, requested_target in absent:
        reason = f"asked as {requested_target}" if requested_target.endswith(f":{ABSENT}") else requested_target
        yield f"{name} is not here: {reason}"
    present = {name for name, requested in table.targets.items() if requested in (name, f"{name}:{ABSENT}")}
    missing: dict[tuple[str, str], list[str]] = {}
    for op, cells in table.cells.items():
        reasons: dict[tuple[str, str], list[str]] = {}
        for name in present & cells.keys():
            each = cells[name]
            for kind, reason in ({"": each.reason} if each.how == "absent" else each.refused).items():
                reasons.setdefault((kind, reason), []).append(name)
        for (kind, reason), names in reasons.items():
            missing.setdefault((", ".join(sorted(names)), reason), []).append(f"{op} of {kind}" if kind else op)
    if missing:
        yield ""
        why = [(names, cell(reason), ", ".join(ops)) for (names, reason), ops in missing.items()]
        yield listing(("not on", "because", "op"), why)
