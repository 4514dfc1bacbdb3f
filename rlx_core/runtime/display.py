"""Compiled programs as a notebook shows them; see `rlx_core.ir.display`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rlx_core.ir.display import page, section, table
from rlx_core.pipeline.report_html import report_parts

if TYPE_CHECKING:
    from rlx_core.runtime.executable import Executable

__all__ = ["executable_html", "page"]

_SHOWN = 12  # inputs, parameters or outputs that stand there unfolded


def executable_html(executable: Executable, outputs: Sequence[str] | None = None, above: str = "") -> str:
    """What goes in and comes out, and the report.

    Args:
        executable: The program.
        outputs: What its outputs are called, where the caller knows more than it.
        above: The title; by default its own.
    """
    report = executable.report
    names = list(executable.outputs) if outputs is None else list(outputs)
    results = dict(zip(names, executable.outputs.values(), strict=True))
    title = above or f"{report.name}, compiled for {report.target}"
    groups = {"inputs": executable.inputs, "parameters": executable.params, "outputs": results}
    return page(title, *_signature(groups), *report_parts(report, names))


def _signature(groups: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    for what, types in groups.items():
        if types:
            called = what if len(types) != 1 else what.removesuffix("s")
            yield section(f"{len(types)} {called}", table(("", ""), types.items()), is_open=len(types) <= _SHOWN)
