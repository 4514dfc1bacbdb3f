"""`rlx check`: what a user of a package would meet, said to its author before it is published."""

from __future__ import annotations

from typing import Annotated

import typer

from rlx_core.cli.session import Session

__all__ = ["check"]


def check(
    ctx: typer.Context,
    package: Annotated[
        str | None,
        typer.Argument(metavar="[PACKAGE]", help="A plugin, its distribution, module or file; else the project here."),
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="One sample an op and law, one hash seed.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Check a package: its plugin, contributions, laws and plans; exits with 1 if something is wrong."""
    from rlx_core.cli.checking.package import Package, findings
    from rlx_core.cli.doctor import findings_json, layout

    session = Session.of(ctx)
    found = session.answer(
        lambda: findings(Package.named(session, package), is_quick=quick), findings_json if as_json else None, layout
    )
    if any(each.verdict == "wrong" for each in found):
        raise typer.Exit(1)
