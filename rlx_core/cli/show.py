"""`rlx show`: a saved program as text."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from rlx_core.cli.session import Session
from rlx_core.errors import FormatError
from rlx_core.ir.graph import Graph
from rlx_core.ir.module import Module
from rlx_core.ir.parse import parse_graph
from rlx_core.ir.serialize import MAGIC, load
from rlx_core.ir.text import print_graph
from rlx_core.ir.text_lir import parse_lir, print_lir
from rlx_core.pipeline.op_table import HostOps
from rlx_core.plugins import PluginHost

__all__ = ["is_plan", "read_bytes", "show"]


def show(
    ctx: typer.Context,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A program that was saved, or its text.")],
    origins: Annotated[bool, typer.Option("--origins", help="Say where each node comes from.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Print a saved program as text: a graph, or a plan with its offsets and steps."""
    session = Session.of(ctx)
    session.answer(
        lambda: read(session.host, file),
        (lambda program: program_json(program, origins)) if as_json else None,
        lambda program: [text(program, origins).rstrip("\n")],
    )


def read(host: PluginHost, file: Path) -> Module | Graph | str:
    """The program in a file; text is parsed and printed again, so that what is shown is known to be well formed.

    Raises:
        FormatError, UnknownNameError, VerifyError: It is no program, or one that cannot be read here.
    """
    data = read_bytes("show", file)
    ops = HostOps(host)
    if data.startswith(MAGIC):
        return load(data, ops)
    try:
        words = data.decode()
    except UnicodeDecodeError:
        raise FormatError(f"show: {file} is neither a saved program nor text") from None
    return print_lir(parse_lir(words, ops)) if is_plan(words) else parse_graph(words, ops)


def read_bytes(command: str, file: Path) -> bytes:
    """What is in a file.

    Raises:
        FormatError: It cannot be read.
    """
    try:
        return file.read_bytes()
    except OSError as error:
        raise FormatError(f"{command}: {file} cannot be read ({error.strerror})") from None


def is_plan(words: str) -> bool:
    """Whether a text begins as a plan does; comments may come first."""
    lines = (line.strip() for line in words.splitlines())
    return next((line.startswith("lir ") for line in lines if line and not line.startswith("#")), False)


def text(program: Module | Graph | str, origins: bool) -> str:
    """The program in the form that parses back."""
    if isinstance(program, str):
        return program
    return program.inspect(origins=origins) if isinstance(program, Module) else print_graph(program, origins=origins)


def program_json(program: Module | Graph | str, origins: bool) -> dict[str, Any]:
    """What it is, and its text."""
    stage = "LIR" if isinstance(program, str) else program.stage.name if isinstance(program, Module) else "graph"
    return {"stage": stage, "text": text(program, origins)}
