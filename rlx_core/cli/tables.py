"""Layout of tables: one style for all commands, readable at 80 columns, on a terminal and in a file.

Every cell is a `Text`, never a string with markup, because types such as `f32[batch, 64]` would be read as markup.
Words are folded, not cut: output that is piped to another program must be complete.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from rich.box import SIMPLE_HEAD
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from rlx_core.passes.engine.runner import PassRun
    from rlx_core.pipeline.report import CompilationReport

STYLES: Final[Mapping[str, str]] = {
    "active": "green",
    "ok": "green",
    "failed": "bold red",
    "wrong": "bold red",
    "incompatible": "red",
    "refused": "red",
    "unavailable": "yellow",
    "shadowed": "yellow",
    "note": "yellow",
    "blocked": "dim",
    "idle": "dim",
}
"""Words that carry their own colour wherever they are a cell."""


def cell(words: object, style: str = "") -> Text:
    """A cell with exactly these words; a state has its own colour."""
    text = str(words)
    return Text(text, style or STYLES.get(text, ""), overflow="fold")


def heading(words: str) -> Text:
    """A line above a table."""
    return Text(words, "bold", overflow="fold")


def listing(
    columns: Sequence[str], rows: Iterable[Sequence[object]], *, title: str = "", unwrapped_columns: int = 1
) -> Table:
    """A table of records.

    Args:
        columns: The headings; one that ends with `>` is of numbers, and right-aligned.
        rows: The cells of each; a `Text` is taken as it is.
        title: A line above it.
        unwrapped_columns: How many columns from the left are never folded, because they are names.
    """
    table = Table(
        title=title or None,
        title_justify="left",
        title_style="bold",
        box=SIMPLE_HEAD,
        show_edge=False,
        pad_edge=False,
        header_style="bold",
    )
    for index, name in enumerate(columns):
        justify = "right" if name.endswith(">") else "left"
        table.add_column(name.removesuffix(">"), justify=justify, no_wrap=index < unwrapped_columns, overflow="fold")  # type: ignore[arg-type]
    for row in rows:
        table.add_row(*(each if isinstance(each, Text | Group) else cell(each) for each in row))
    return table


def facts(rows: Iterable[tuple[str, object]], indent: int = 2) -> Padding:
    """Labels and what they are about, below a heading; rows without content are left out."""
    table = Table.grid(padding=(0, 2), pad_edge=False)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for label, content in rows:
        if content:
            table.add_row(cell(label, "dim"), content if isinstance(content, Text) else cell(content))
    return Padding(table, (0, 0, 0, indent))


def entry(name: str, *below: RenderableType) -> Group:
    """A cell of several lines: a name, and under it what belongs to it."""
    return Group(cell(name, "bold"), *(Padding(each, (0, 0, 0, 2)) for each in below))


def counted(counts: Mapping[str, int]) -> str:
    """`{"ops": 3, "passes": 1}` as `3 ops, 1 pass`."""
    return ", ".join(f"{count} {kind if count != 1 else one_of(kind)}" for kind, count in counts.items())


def one_of(kind: str) -> str:
    """The singular of a kind."""
    return "pass" if kind == "passes" else kind.removesuffix("s")


# ----------------------------------------------------------------------------------------- compile reports


def report_tables(report: CompilationReport, *, is_complete: bool = False) -> Iterator[Padding]:
    """The result of a compilation: stages and memory, then passes, then the kernel and plugin of each op.

    Passes without an effect are listed only in the complete form.
    """
    yield below(heading(f"{report.name} on {report.target}"), facts(report.rows(), indent=0))
    if report.passes:
        shown = report.passes if is_complete else [run for run in report.passes if run.has_effect]
        rows = [
            (run.name, run.effect, f"{run.nodes_before} → {run.nodes_after}", f"{run.seconds * 1e3:.1f} ms")
            for run in shown
        ]
        yield below(
            listing(("pass", "did", "nodes>", "time>"), rows),
            *([cell(idle_text, "dim")] if (idle_text := idle(report, shown)) else []),
        )
    if report.tiers is not None and report.tiers.fallbacks:
        lower = [(f.op, f.tier, len(f.steps), f.reason) for f in report.tiers.fallbacks]
        yield below(listing(("op", "tier", "steps>", "because"), lower))
    kernels = [
        (op, kernel, plugin or "(unknown)", count) for (op, kernel, plugin), count in report.kernels.most_common()
    ]
    yield below(listing(("op", "kernel", "plugin", "steps>"), kernels))


def idle(report: CompilationReport, shown: Sequence[PassRun]) -> str:
    """How many passes a table leaves out, and how long they took."""
    left = len(report.passes) - len(shown)
    seconds = sum(run.seconds for run in report.passes) - sum(run.seconds for run in shown)
    passes = "1 pass" if left == 1 else f"{left} passes"
    return f"and {passes} without an effect, {seconds * 1e3:.1f} ms; --all lists them" if left else ""


def below(*parts: RenderableType) -> Padding:
    """These, after an empty line."""
    return Padding(Group(*parts), (1, 0, 0, 0))
