"""`rlx trust`: packages whose code may run."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.padding import Padding

from rlx_core.cli.session import CliSession
from rlx_core.cli.tables import listing
from rlx_core.errors import FileError
from rlx_core.files.load_save import path_of, reading
from rlx_core.files.packages.consent import TrustedPackage, forget, remember, trusted_packages
from rlx_core.plugins import PluginHost


def trust(
    ctx: typer.Context,
    file: Annotated[Path | None, typer.Argument(metavar="FILE", help="A package that you agree to run.")] = None,
    remove: Annotated[
        str | None, typer.Option("--remove", metavar="SHA256", help="Remove a package from the list by its digest.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Allow the code of a package on this machine; without FILE, list the known packages. The list belongs to this user.

    \b
    rlx package --show model.rlxpack
    rlx trust model.rlxpack
    """
    session = CliSession.of(ctx)
    session.answer(lambda: changed(session.host, file, remove), rows_json if as_json else None, layout)


def changed(host: PluginHost, file: Path | None, remove: str | None) -> Sequence[TrustedPackage]:
    """Add or remove a package; returns the added one, or all known ones.

    Raises:
        FileError, FormatError: The file is no package, is damaged, or others may have written it; no entry has that digest.
        CacheError: The list is not this user's alone, or cannot be written.
    """
    if remove is not None:
        forget(remove)
    if file is None:
        return trusted_packages()
    from rlx_core.files.packages.opening import import_file  # the list alone needs no compiler

    path = path_of("trust", file)
    with reading("trust", path):
        container = import_file(path, host)
    container.blobs.expect_whole()
    if container.reason is not None:
        raise FileError(
            f"trust: {path} {container.reason}", hint=f"chmod go-w {path}, after a look at who has written it"
        )
    added = TrustedPackage(container.identity, container.sha256, os.path.abspath(path), "rlx trust")
    remember(added)
    return [added]


def rows_json(rows: Sequence[TrustedPackage]) -> list[dict[str, Any]]:
    return [{"file": row.file, "sha256": row.sha256, "origin": row.origin} for row in rows]


def layout(rows: Sequence[TrustedPackage]) -> Iterator[Any]:
    yield Padding(
        listing(["sha256", "origin", "file"], [(row.sha256, row.origin, row.file) for row in rows]), (0, 0, 0, 2)
    )
