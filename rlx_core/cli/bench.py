"""`rlx bench`: times of rlx and of alternative systems. The programs are in the checkout's `benchmarks/`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rlx_core.cli.checkout import from_checkout, loaded
from rlx_core.cli.session import CliSession


def bench(
    ctx: typer.Context,
    cases: Annotated[
        list[str] | None,
        typer.Argument(
            help="minilm gpt-train mlp-train resnet18 mobilenet cnn-train call chain memory gemm math compile, "
            "or a case's full name."
        ),
    ] = None,
    target: Annotated[
        str | None,
        typer.Option(help="Where rlx runs: TARGET or TARGET:NUMBER; on a device the data lies there from the start."),
    ] = None,
    peers: Annotated[bool, typer.Option("--peers", help="Time every installed peer beside rlx.")] = False,
    threads: Annotated[int, typer.Option(min=1, help="Threads for everybody.")] = 2,
    seconds: Annotated[float, typer.Option(min=0.0, help="How long each case is timed.")] = 10.0,
    rounds: Annotated[int, typer.Option(min=1, help="The fewest rounds of a case, however long they take.")] = 5,
    json_file: Annotated[
        Path | None, typer.Option("--json", metavar="FILE", help="Write the numbers to this file.")
    ] = None,
    profile: Annotated[
        bool, typer.Option("--profile", help="List what every step of each case takes, on a device by its own clock.")
    ] = False,
    out: Annotated[Path, typer.Option(metavar="DIR", help="Where the bar chart goes.")] = Path("bench-out"),
) -> None:
    """Time rlx, and with --peers alternative systems."""
    session = CliSession.of(ctx)
    program = loaded(from_checkout("bench") / "benchmarks" / "command.py", "rlx_benchmarks")
    program.bench(
        session.host,
        is_plain=session.is_plain,
        cases=tuple(cases or ()),
        peers=peers,
        threads=threads,
        seconds=seconds,
        least=rounds,
        out=out,
        json_file=json_file,
        profiles=profile,
        target=target,
    )
