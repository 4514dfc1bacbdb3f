"""`rlx plugins`: every plugin that is known, its state and the reason, and what it provides."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any

import typer
from attrs import frozen

from rlx_core.cli.session import Session
from rlx_core.plugins import PluginStatus

__all__ = ["plugins"]


@frozen
class Survey:
    """The listing, and what was odd about the metadata and the policy."""

    rows: tuple[PluginStatus, ...]
    notes: tuple[str, ...]


def plugins(
    ctx: typer.Context,
    no_load: Annotated[
        bool, typer.Option("--no-load", help="Import no plugin; what each provides stays unknown.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """List plugins: their state, why, and what they provide."""
    session = Session.of(ctx)
    session.answer(lambda: survey(session, not no_load), survey_json if as_json else None, layout)


def survey(session: Session, load: bool) -> Survey:
    """Every plugin of the session's host."""
    return Survey(tuple(session.host.survey(load)), session.host.notes)


def survey_json(found: Survey) -> dict[str, Any]:
    """The listing with stable keys."""
    return {"plugins": [status_json(row) for row in found.rows], "notes": list(found.notes)}


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
    }


def layout(found: Survey) -> Iterator[Any]:
    """A line for each, then those about which there is more to say."""
    from rlx_core.cli.tables import counted, facts, heading, listing  # rich is not needed for JSON

    rows = [
        (row.name, row.label, f"{row.distribution} {row.version}", counted(row.counts) or "—") for row in found.rows
    ]
    yield listing(("plugin", "state", "distribution", "provides"), rows, whole=2)
    for row in found.rows:
        if row.reason or row.mend:
            yield ""
            yield heading(f"{row.name} ({row.label})")
            yield facts(remarks(row))
    for note in found.notes:
        yield f"note: {note}"


def remarks(row: PluginStatus) -> Iterator[tuple[str, object]]:
    """Why a plugin is in the state it is in, and what would change it."""
    yield "why", row.reason
    yield "where", row.failure.where if row.failure else ""
    yield "file", row.file
    yield "mend", row.mend or ""
