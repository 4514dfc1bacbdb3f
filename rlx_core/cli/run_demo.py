"""`rlx demo`: the command, which runs `demo.py` and needs the packages of the extra `demo`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rlx_core.cli.checkout import from_checkout
from rlx_core.cli.session import CliSession


def demo(
    ctx: typer.Context,
    json_file: Annotated[
        Path | None, typer.Option("--json", metavar="FILE", help="Write the numbers to this file.")
    ] = None,
    out: Annotated[Path, typer.Option(metavar="DIR", help="Where the pictures go.")] = Path("demo-out"),
    target: Annotated[str | None, typer.Option(metavar="NAME", help="The device to compile for.")] = None,
) -> None:
    """Embed sentences, train a classifier, draw both programs."""
    from_checkout("demo")
    from rich.console import Console

    from rlx_core.cli.demo import run_demo
    from rlx_core.plugins import set_default_host

    session = CliSession.of(ctx)
    before = set_default_host(session.host)  # the programs of the demo compile as anyone's do: with the default host
    try:
        run_demo(Console(no_color=session.is_plain or None), out, json_file, target)
    finally:
        set_default_host(before)
