"""`.rlx` files: a module or a graph as `rlx_core.ir.serialize` writes it. Nothing in them is executed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rlx_core.errors import Fact, FormatError, RlxError
from rlx_core.formats.writing import replace_file
from rlx_core.ir.graph import Graph
from rlx_core.ir.module import Module
from rlx_core.ir.serialize import load, save
from rlx_core.pipeline.op_table import HostOps
from rlx_core.plugins import PluginHost

__all__ = ["export_file", "import_file"]


def import_file(path: Path, host: PluginHost) -> Module | Graph:
    """The program in a file, verified; its ops are those of `host`.

    Raises:
        FormatError, UnknownNameError, VerifyError: As `rlx_core.ir.serialize.load`, with the file.
    """
    data = path.read_bytes()
    try:
        return load(data, HostOps(host))
    except RlxError as error:
        raise error.with_fact(Fact("file", path)) from None


def export_file(path: Path, value: Any, host: PluginHost) -> None:
    """Write a module or a graph.

    Raises:
        FormatError: It is neither, or holds an attribute that cannot be stored.
    """
    if not isinstance(value, Module | Graph):
        raise FormatError(
            f"{path.name}: such a file holds a module or a graph, not a {type(value).__name__}",
            hint="rlx.trace(function, ...) makes the graph of a function",
        )
    try:
        data = save(value)
    except RlxError as error:
        raise error.with_fact(Fact("file", path)) from None
    replace_file(path, [data])
