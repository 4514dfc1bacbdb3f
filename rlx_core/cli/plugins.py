"""`rlx plugins`: every known plugin, its state with the reason, and its contributions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Annotated, Any

import typer
from attrs import evolve

from rlx_core.cli.session import CliSession
from rlx_core.plugins import ContributionFault, PluginStatus
from rlx_core.system.records import frozen


@frozen
class Survey:
    """The listing, and irregularities of the metadata and the policy."""

    rows: tuple[PluginStatus, ...]
    notes: tuple[str, ...]
    index_faults: tuple[str, ...]


def plugins(
    ctx: typer.Context,
    no_load: Annotated[
        bool, typer.Option("--no-load", help="Import no plugin; what each provides stays unknown.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """List plugins with their states, reasons and contributions."""
    session = CliSession.of(ctx)
    session.answer(lambda: survey(session, not no_load), survey_json if as_json else None, layout)


def survey(session: CliSession, load: bool) -> Survey:
    """Every plugin of the session's host."""
    rows = session.host.survey(load)
    if not load:
        return Survey(tuple(rows), session.host.notes, session.host.index_faults)
    from rlx_core.cli.checking.contributions import contribution_faults  # imports everything there is

    faults = contribution_faults(session.host)
    completed = tuple(evolve(row, faults=tuple(faults_of(row, faults))) for row in rows)
    return Survey(completed, session.host.notes, session.host.index_faults)


def faults_of(row: PluginStatus, faults: Iterable[ContributionFault]) -> Iterator[ContributionFault]:
    """Faults of the contributions of one plugin."""
    return (each for each in faults if (each.owner.plugin, each.owner.distribution) == (row.name, row.distribution))


def survey_json(result: Survey) -> dict[str, Any]:
    """The listing with stable keys."""
    return {
        "plugins": [status_json(row) for row in result.rows],
        "notes": list(result.notes),
        "unreadable": list(result.index_faults),
    }


def status_json(row: PluginStatus) -> dict[str, Any]:
    """One plugin."""
    return {
        "name": row.name,
        "state": row.label,
        "reason": row.reason,
        "where": row.failure.where if row.failure else None,
        "mend": row.mend,
        "distribution": row.distribution,
        "version": row.version,
        "file": row.file,
        "provides": {kind: list(names) for kind, names in row.provides.items()},
        "contested": list(row.contested),
        "overrides": dict(row.overrides),
        "overridden": dict(row.overridden),
        "faults": [fault_json(each) for each in row.faults],
    }


def fault_json(fault: ContributionFault) -> dict[str, Any]:
    """One contribution that cannot be used."""
    return {
        "kind": fault.kind,
        "name": fault.name,
        "reason": fault.reason,
        "where": fault.where or None,
        "mend": fault.mend,
        "wrong": fault.is_wrong,
    }


def layout(result: Survey) -> Iterator[Any]:
    """A line for each, then those about which there is more to say."""
    from rlx_core.cli.tables import counted, facts, heading, listing  # rich is not needed for JSON

    rows = [
        (row.name, row.label, f"{row.distribution} {row.version}", provided(row, counted(row.counts)))
        for row in result.rows
    ]
    yield listing(("plugin", "state", "distribution", "provides"), rows, unwrapped_columns=2)
    for row in result.rows:
        if row.reason or row.mend or row.faults:
            yield ""
            yield heading(f"{row.name} ({row.label})")
            yield facts(remarks(row))
    for note in result.notes:
        yield f"note: {note}"
    for fault in result.index_faults:
        yield f"wrong: a distribution's plugins cannot be read: {fault}"


def remarks(row: PluginStatus) -> Iterator[tuple[str, object]]:
    """Why a plugin is in the state it is in, and what would change it."""
    yield "why", row.reason
    yield "where", row.failure.where if row.failure else ""
    yield "file", row.file
    yield "mend", row.mend or ""
    for fault in row.faults:
        yield "left out" if fault.is_wrong else "note", f"{fault.what}: {fault.reason}"
        yield "where", fault.where
        yield "mend", fault.mend or ""


def provided(row: PluginStatus, counts: str) -> str:
    """The contributions of a plugin, and the number of unusable ones."""
    wrong = sum(fault.is_wrong for fault in row.faults)
    return (counts or "—") + (f"; {wrong} cannot be used" if wrong else "")
