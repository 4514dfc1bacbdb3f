"""Output of a compilation for `[printing]` in a configuration, while it runs and afterwards."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from rlx_core import ir
from rlx_core.errors import FileError
from rlx_core.ir.graph import Graph
from rlx_core.ir.lir import Lir
from rlx_core.passes import engine
from rlx_core.pipeline.config.records import PrintingConfig
from rlx_core.pipeline.events import Events
from rlx_core.system.private import is_foreign, write_own

if TYPE_CHECKING:  # a program from the cache runs no pass, and `compile` imports this module
    from rlx_core.passes.engine.runner import PassesRun, Watch
    from rlx_core.pipeline.compiled import CompiledProgram


def watch_for(printing: PrintingConfig, events: Events) -> Watch:
    """Return the observer of a run of passes: listeners, and graphs printed around the named passes."""

    def show_graph(heading: str, graph: Graph) -> None:
        print(f"== {heading}\n{ir.text.print_graph(graph)}")

    return engine.runner.Watch(
        listeners=(events.on_pass,), show=show_graph, before=frozenset(printing.before), after=frozenset(printing.after)
    )


def show(compiled: CompiledProgram, printing: PrintingConfig) -> None:
    """Print the parts of a compilation that the configuration selects."""
    if printing.verbose:
        for done in compiled.report.passes:
            print(f"{done.name:<28} {done.seconds * 1e3:8.2f} ms  {done.nodes_before} -> {done.nodes_after} nodes")
        print(compiled.report)
    if printing.dispatch_report:
        print(compiled.report.dispatch)
    if printing.fusion_report and compiled.report.fusion is not None:
        print(compiled.report.fusion)


def dump(directory: Path, source_graph: Graph, run: PassesRun, lir: Lir) -> None:
    """Write a program under its name as it was given, before and after the passes of MIR, and its plan.

    A link with the name of a file is replaced, never followed; other users cannot read the files.

    Raises:
        FileError: The system refuses that, or the directory is another user's link.
    """
    levels = {
        "hir": ir.text.print_graph(source_graph),
        "mir-before": ir.text.print_graph(run.lowered or source_graph),
        "mir": ir.text.print_graph(lir.graph),
        "lir": ir.text_lir.print_lir(lir),
    }
    name = re.sub(r"[^\w.-]", "_", source_graph.name)
    try:
        if directory.is_symlink() and is_foreign(directory.lstat()):
            raise FileError(
                f"printing.ir-dump: {directory} is a link that belongs to user {directory.lstat().st_uid}",
                hint="name the directory that it leads to, or another one",
            )
        directory.mkdir(parents=True, exist_ok=True)
        for level, text in levels.items():
            write_own(directory / f"{name}.{level}.txt", text.encode())
    except OSError as error:
        raise FileError(f"printing.ir-dump: {directory} cannot be written ({error.strerror or error})") from error
