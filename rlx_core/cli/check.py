"""`rlx check`: tests of a package before it is published, from its users' perspective; or a device's validation."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rlx_core.cli.session import CliSession
from rlx_core.errors import ConfigError


def check(
    ctx: typer.Context,
    package: Annotated[
        str | None,
        typer.Argument(metavar="[PACKAGE]", help="A plugin, its distribution, module or file; else the project here."),
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="One sample an op and law, one hash seed.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    target: Annotated[
        str | None, typer.Option("--target", help="Validate this target's device instead, in at most ten minutes.")
    ] = None,
    report: Annotated[Path, typer.Option("--report", help="The zip of a validation.")] = Path("rlx-check.zip"),
    step: Annotated[list[str] | None, typer.Option("--step", help="Only this step or family of steps.")] = None,
    limit: Annotated[float, typer.Option("--limit", min=1.0, help="Seconds that a step may take at most.")] = 600.0,
) -> None:
    """Check a package: its plugin, contributions, laws and plans; exits with 1 if there is a problem.

    With --target, validate a device: kernels, memory, threads, recordings and speed, each step in a separate process.
    """
    session = CliSession.of(ctx)
    if target is not None:
        from rlx_core.cli.validating.command import validate_target

        if package is not None:
            raise ConfigError("check: --target validates a device, and takes no package", hint="leave one of them out")
        if not validate_target(session, target, report, step or (), limit, as_json=as_json):
            raise typer.Exit(1)
        return
    if step:
        raise ConfigError("check: --step is a step of --target", hint="rlx check --target NAME")
    from rlx_core.cli.checking.package import Package, findings
    from rlx_core.cli.doctor import findings_json, layout

    results = session.answer(
        lambda: findings(Package.named(session, package), is_quick=quick), findings_json if as_json else None, layout
    )
    if any(each.verdict == "wrong" for each in results):
        raise typer.Exit(1)
