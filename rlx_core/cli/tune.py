"""`rlx tune`: schedules that were selected by measurement."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Annotated, Any

import typer
from attrs import asdict
from rich.padding import Padding

from rlx_core.cli.session import CliSession
from rlx_core.cli.tables import heading, listing
from rlx_core.errors import CacheError
from rlx_core.tuning.store import ChoiceStore, StoredChoice


def tune(
    ctx: typer.Context,
    clear: Annotated[
        bool, typer.Option("--clear", help="Remove all of them, so that the next programs are measured again.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """List the schedules that were selected by measurement, for each problem and machine. A target's option `tune` enables
    their use: "stored" uses those in the list, "measure" also measures problems without one. The list belongs to this user.

    \b
    rlx tune
    rlx tune --clear
    """
    CliSession.of(ctx).answer(lambda: remaining(ChoiceStore(), clear=clear), rows_json if as_json else None, layout)


def remaining(store: ChoiceStore, *, clear: bool) -> Sequence[StoredChoice]:
    """Return the choices of a store, after removing them if requested.

    Raises:
        CacheError: The file cannot be written, or others can write to its directory.
    """
    if clear:
        try:
            store.clear()
        except OSError as error:
            raise CacheError(f"tune: {store.path} cannot be written ({error.strerror or error})") from error
    return store.choices()


def rows_json(choices: Sequence[StoredChoice]) -> list[dict[str, Any]]:
    return [asdict(each) for each in choices]


def layout(choices: Sequence[StoredChoice]) -> Iterator[Any]:
    """One table per machine."""
    if not choices:
        yield "no schedules were selected by measurement"
    for machine, group in groupby(choices, key=lambda each: each.machine):
        yield heading(machine)
        rows = [(each.candidate, each.default, each.times, each.problem) for each in group]
        yield Padding(listing(["schedule", "default", "times", "problem"], rows, unwrapped_columns=2), (0, 0, 0, 2))
