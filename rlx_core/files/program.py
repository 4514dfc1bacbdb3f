"""`.rlx` files: programs, with their weights or without, as `rlx_core.ir.serialize` writes them. Nothing in them is executed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rlx_core.errors import Fact, FormatError, RlxError
from rlx_core.files.reading import mapped
from rlx_core.ir.bundle import Bundle, Bundled
from rlx_core.ir.graph import Graph
from rlx_core.ir.module import Module
from rlx_core.ir.serialize import Program, load, save_chunks
from rlx_core.pipeline.contributed import HostOps
from rlx_core.plugins import PluginHost
from rlx_core.system.private import replace_file


def import_file(path: Path, host: PluginHost) -> Program:
    """The program in a file, verified; its ops are those of `host`, and its arrays lie in the mapped file.

    Raises:
        FormatError, UnknownNameError, VerifyError: As `rlx_core.ir.serialize.load`, with the file.
    """
    data = mapped(path).data
    try:
        return load(data, HostOps(host))
    except RlxError as error:
        raise error.with_fact(Fact("file", path)) from None


def export_file(path: Path, value: Any, host: PluginHost) -> None:
    """Write a compiled function, a module or a graph.

    Raises:
        FormatError: It is none of these, or contains a value that cannot be stored.
    """
    if not isinstance(value, Module | Graph | Bundle | Bundled):
        raise FormatError(
            f"{path.name}: such a file holds a compiled function, a module or a graph, not a {type(value).__name__}",
            hint="rlx.compile(function, ...) makes a function with its weights, rlx.trace(function, ...) its graph",
        )
    try:
        chunks = save_chunks(value.bundle() if isinstance(value, Bundled) else value)
    except RlxError as error:
        raise error.with_fact(Fact("file", path)) from None
    replace_file(path, chunks)
