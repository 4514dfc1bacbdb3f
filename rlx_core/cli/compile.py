"""`rlx compile`: a program on its way to a target, printed at any level, or the report of the whole way."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rlx_core.cli.session import CliSession


def compile_program(
    ctx: typer.Context,
    program: Annotated[
        str,
        typer.Argument(metavar="PROGRAM", help="A saved program or its text, or MODULE:FUNCTION, FILE.py:FUNCTION."),
    ] = "",
    types: Annotated[
        list[str] | None, typer.Argument(metavar="TYPE", help="The types of a function's arguments: f32[64,128].")
    ] = None,
    op: Annotated[
        str, typer.Option(metavar="'OP TYPES'", help="A program of this op alone; without types those of a sample.")
    ] = "",
    attr: Annotated[
        list[str] | None, typer.Option(metavar="NAME=VALUE", help="An attribute of --op; may be repeated.")
    ] = None,
    level: Annotated[
        str,
        typer.Option(
            "--emit", metavar="LEVEL", help="Print it at this level: hir mir lir loops, then the target's own."
        ),
    ] = "",
    step: Annotated[
        str, typer.Option(metavar="N|NAME", help="Only this step of the plan, or those of an op or a kernel.")
    ] = "",
    bind: Annotated[
        list[str] | None, typer.Option(metavar="SYMBOL=SIZE", help="The size of a symbolic dim; may be repeated.")
    ] = None,
    target: Annotated[
        str | None, typer.Option(metavar="NAME", help="The device; by default what the configuration says.")
    ] = None,
    arch: Annotated[
        str | None, typer.Option(metavar="NAME", help="What to compile for: the target's option `arch`, sm_90 say.")
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "-o", "--out", metavar="FILE", help="Write it to this file; without --emit, the plan as a program."
        ),
    ] = None,
    is_complete: Annotated[bool, typer.Option("--all", help="List the passes that had no effect too.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Compile a program, and print it at a level on its way or the report of all of it.

    \b
    rlx compile --op 'softmax f32[64,128]' --emit loops
    rlx compile model.py:predict 'f32[n,64]' --bind n=8 --emit asm --step softmax
    rlx compile program.rlx -o plan.rlx
    """
    from rlx_core.cli import compiling  # a listing of commands need not wait for the compiler

    session = CliSession.of(ctx)
    request = compiling.Asked(program, tuple(types or ()), op, tuple(attr or ()), tuple(bind or ()), target, arch)
    if level:
        session.answer(
            lambda: compiling.emitted(session, request, level, step, out),
            compiling.text_json if as_json else None,
            compiling.text_layout,
        )
    else:
        session.answer(
            lambda: compiling.compiled(session, request, step, out),
            compiling.report_json if as_json else None,
            compiling.complete_layout if is_complete else compiling.report_layout,
        )
