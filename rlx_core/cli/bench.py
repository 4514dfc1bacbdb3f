"""`rlx bench`: rlx timed beside what a user would pick instead. The programs are in the checkout's `benchmarks/`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from rlx_core.cli.checkout import from_checkout
from rlx_core.cli.session import Session

__all__ = ["bench"]


def bench(
    ctx: typer.Context,
    cases: Annotated[
        list[str] | None,
        typer.Argument(help="minilm gpt-train mlp-train call chain memory gemm math compile, or a case's full name."),
    ] = None,
    peers: Annotated[bool, typer.Option("--peers", help="Time every installed peer beside rlx.")] = False,
    threads: Annotated[int, typer.Option(min=1, help="Threads for everybody.")] = 2,
    seconds: Annotated[float, typer.Option(min=0.0, help="How long each case is timed.")] = 10.0,
    rounds: Annotated[int, typer.Option(min=1, help="The fewest rounds of a case, however long they take.")] = 5,
    json_file: Annotated[
        Path | None, typer.Option("--json", metavar="FILE", help="Write the numbers to this file.")
    ] = None,
    profile: Annotated[bool, typer.Option("--profile", help="List what every step of each case takes.")] = False,
    out: Annotated[Path, typer.Option(metavar="DIR", help="Where the bar chart goes.")] = Path("bench-out"),
) -> None:
    """Time rlx, and with --peers what a user would pick instead."""
    session = Session.of(ctx)
    root = str(from_checkout("bench"))
    if root not in sys.path:
        sys.path.insert(0, root)
    from benchmarks.measure import limit_threads

    limit_threads(threads)  # before anything that makes a pool of threads is imported
    from rich.console import Console

    from benchmarks.runner import Settings, run
    from rlx_core.plugins import set_default_host

    set_default_host(session.host)
    settings = Settings(tuple(cases or ()), peers, threads, seconds, rounds, out, json_file, profile)
    run(settings, Console(no_color=session.is_plain or None))
