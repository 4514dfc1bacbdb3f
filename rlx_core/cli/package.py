"""`rlx package`: a saved function as a file with its code, and what such a file holds."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rlx_core.cli.session import CliSession


def package(
    ctx: typer.Context,
    file: Annotated[
        Path,
        typer.Argument(metavar="FILE", help="A compiled function that was saved, or a model; with --show a package."),
    ],
    out: Annotated[
        Path | None,
        typer.Option("-o", "--out", metavar="FILE", help="Write it here; by default beside FILE, as .rlxpack."),
    ] = None,
    target: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME[:VARIANT]", help="What to have code for: gpu, cpu:avx2; may be repeated, best first."
        ),
    ] = None,
    sizes: Annotated[
        list[str] | None,
        typer.Option(metavar="SYMBOL=SIZE,…", help="A combination of sizes to have a program for; may be repeated."),
    ] = None,
    code_only: Annotated[
        bool,
        typer.Option("--code-only", help="Leave out the program, which other sizes and machines are compiled from."),
    ] = False,
    show: Annotated[
        bool, typer.Option("--show", help="Check a package and say what it holds, without running it.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Write a saved function to a file that runs where nothing is compiled, or show what such a file holds.

    \b
    rlx package model.rlx --target cpu:avx512 --target cpu:avx2 --sizes batch=1 --sizes batch=8
    rlx package --show model.rlxpack
    """
    from rlx_core.cli import packaging  # a listing of commands need not wait for the compiler

    session = CliSession.of(ctx)
    session.answer(
        (lambda: packaging.found(session, file))
        if show
        else (lambda: packaging.made(session, file, out, tuple(target or ()), tuple(sizes or ()), code_only)),
        packaging.package_json if as_json else None,
        packaging.package_layout,
    )
