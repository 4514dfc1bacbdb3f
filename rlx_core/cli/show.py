"""`rlx show`: a saved program as text."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from attrs import evolve

from rlx_core.cli.session import CliSession
from rlx_core.errors import FormatError
from rlx_core.files.load_save import reading
from rlx_core.ir.bundle import Bundle
from rlx_core.ir.module import IrStage, Module
from rlx_core.ir.parse import parse_graph
from rlx_core.ir.serialize import MAGIC, Program, load
from rlx_core.ir.text import print_graph
from rlx_core.ir.text_lir import parse_lir
from rlx_core.pipeline.contributed import HostOps
from rlx_core.plugins import PluginHost


def show(
    ctx: typer.Context,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A program that was saved, or its text.")],
    origins: Annotated[bool, typer.Option("--origins", help="Say where each node comes from.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Print a saved program as text: a graph, or a plan with its offsets and steps; the options that it was compiled
    with are in the JSON only. The text has the number of a compiled function's weights."""
    session = CliSession.of(ctx)
    session.answer(
        lambda: read("show", session.host, file),
        (lambda program: program_json(program, origins)) if as_json else None,
        lambda program: [text(brief(program), origins).rstrip("\n")],
    )


def brief(program: Program) -> Program:
    """The program without the options of its compilation: one line that is longer than the rest, and `rlx plan` has them."""
    if isinstance(program, Module) and program.stage is IrStage.LIR:
        return Module.of_lir(evolve(program.lir, options={}))
    return program


def read(command: str, host: PluginHost, file: Path) -> Program:
    """The program in a file that was saved or is text; text is parsed and printed again, so that the output is well formed.

    Raises:
        FormatError, UnknownNameError, VerifyError: It is not a program, or cannot be read here.
    """
    data = read_bytes(command, file)
    ops = HostOps(host)
    if data.startswith(MAGIC):
        return load(data, ops)
    try:
        words = data.decode()
    except UnicodeDecodeError:
        raise FormatError(f"{command}: {file} is neither a saved program nor text") from None
    return Module.of_lir(parse_lir(words, ops)) if is_plan(words) else parse_graph(words, ops)


def read_bytes(command: str, file: Path) -> bytes:
    """The content of a file.

    Raises:
        FileError: The file cannot be read.
    """
    with reading(command, file):
        return file.read_bytes()


def is_plan(words: str) -> bool:
    """Return whether a text begins like a plan; comments may come first."""
    lines = (line.strip() for line in words.splitlines())
    return next((line.startswith("lir ") for line in lines if line and not line.startswith("#")), False)


def text(program: Program, origins: bool) -> str:
    """The program in the form that parses back."""
    if isinstance(program, Bundle):
        return f"# {weights(program)}\n{print_graph(program.graph, origins=origins)}"
    return program.inspect(origins=origins) if isinstance(program, Module) else print_graph(program, origins=origins)


def weights(program: Bundle) -> str:
    """The content of a file in addition to the graph."""
    count = len(program.params)
    return f"a compiled function with {count} {'array' if count == 1 else 'arrays'} bound, {program.nbytes:,} bytes"


def program_json(program: Program, origins: bool) -> dict[str, Any]:
    """Its kind, and its text."""
    stage = program.stage.name if isinstance(program, Module) else type(program).__name__.lower()
    return {"stage": stage, "text": text(program, origins)}
