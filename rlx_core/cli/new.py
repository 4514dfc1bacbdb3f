"""`rlx new`: a package with one thing in it that works, to change into one's own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from rlx_core.cli.scaffold import Names, names_for, write
from rlx_core.cli.session import CliSession


def new(
    ctx: typer.Context,
    kind: Annotated[str, typer.Argument(metavar="op|pass|backend|plugin", help="What the package offers.")],
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="domain.name for an op or a pass, one word for a backend or a plugin.")
    ],
    into: Annotated[Path, typer.Option(metavar="DIR", help="Where the package's folder is made.")] = Path(),
    package: Annotated[
        str | None, typer.Option(metavar="NAME", help="What the package is called; the domain and -rlx by default.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Write a package that installs, passes its tests and is listed by `rlx plugins`."""
    session = CliSession.of(ctx)

    def made() -> tuple[Names, list[Path]]:
        taken = {entry.name: f"{entry.distribution} {entry.version}" for entry in session.host.entries}
        names = names_for(kind, name, package, taken)
        return names, write(names, into)

    session.answer(
        made, (lambda created: as_table(*created)) if as_json else None, lambda created: layout(*created, into)
    )


def as_table(names: Names, files: list[Path]) -> dict[str, Any]:
    """The written files, with stable keys."""
    return {
        "kind": names.kind,
        "name": names.name,
        "distribution": names.distribution,
        "package": names.package,
        "files": [str(file) for file in files],
    }


def layout(names: Names, files: list[Path], into: Path) -> Iterator[Any]:
    """The files, and the next commands."""
    from rlx_core.cli.tables import heading

    yield heading(f"{names.distribution}: {names.values['summary']}")
    for file in files:
        yield f"  {file}"
    yield ""
    yield f"cd {into / names.distribution}"
    yield 'python -m pip install -e ".[testing]"'
    yield "python -m pytest"
    yield "rlx check"
