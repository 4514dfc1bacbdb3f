"""The entry point: the global options, and how a run of the command ends."""

from __future__ import annotations

import os
import platform
import sys
import warnings
from pathlib import Path
from typing import Annotated, Any

import typer

from rlx_core.cli.commands import COMMANDS
from rlx_core.cli.lazy import LazyGroup
from rlx_core.hooks import API_VERSION


class Rlx(LazyGroup):
    """The program itself."""

    core_commands = {spec.name: spec for spec in COMMANDS}  # noqa: RUF012 - declared once in the base, never mutated


def print_version(requested: bool) -> None:
    if requested:
        typer.echo(f"rlx {API_VERSION} (Python {platform.python_version()})")
        raise typer.Exit


app = typer.Typer(
    cls=Rlx,
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


# The options that decide which plugins may be imported are eager, so that they are known when `--help` or the name of a
# command first requests a plugin.
@app.callback()
def options(
    plugin: Annotated[
        list[str] | None,
        typer.Option(metavar="FILE|MODULE", is_eager=True, help="Use a plugin that is not installed; may be repeated."),
    ] = None,
    block: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", is_eager=True, help="Never import this plugin; patterns such as * work."),
    ] = None,
    allow: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", is_eager=True, help="Import no plugin but this one; may be repeated."),
    ] = None,
    config: Annotated[
        Path | None,
        typer.Option(metavar="FILE", is_eager=True, help="Read this configuration instead of the nearest one."),
    ] = None,
    no_color: Annotated[bool, typer.Option("--no-color", is_eager=True, help="Print without colours.")] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
    version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=print_version, help="Print the version.")
    ] = False,
) -> None:
    """rlx: an ML compiler whose ops, passes and devices are plugins."""


def print_warning(message: Warning | str, *_place: Any, **_more: Any) -> None:
    """Print the message of a warning, without the source line in rlx that raised it."""
    print(f"warning: {message}", file=sys.stderr)


def main(args: list[str] | None = None) -> None:
    """Run the command line and exit: 0, 1 if something is wrong, 2 if it was refused, 130 after Ctrl-C."""
    for stream in (sys.stdout, sys.stderr):
        reconfigure: Any = getattr(stream, "reconfigure", None)  # a stream that a test or a notebook put there has none
        if reconfigure is not None:
            reconfigure(errors="replace")  # a terminal that cannot show a letter is no reason to stop
    try:
        try:
            with warnings.catch_warnings():
                warnings.showwarning = print_warning
                app(args, prog_name="rlx")
        finally:
            sys.stdout.flush()
    except BrokenPipeError:
        # The reader has gone, as `head` does. Nothing may be written while the interpreter shuts down either.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
