"""Pages of notebooks: programs and reports as small, self-contained HTML, in the page's own colours, dark or light.

Everything that comes from a program is escaped. A large program is drawn with its blocks as boxes, then with its chains
joined, and beyond that as a count of its ops, with its text cut. Graphs, modules and reports find their pages here by their
class (see `rlx_core/ir/protocols.py`); the layers above, which call programs, request the page of one by name.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from html import escape
from typing import Any, Final

from rlx_core.draw.svg import Picture, picture, svg
from rlx_core.ir.graph import Constant, Graph
from rlx_core.ir.lir import Lir
from rlx_core.ir.module import Module
from rlx_core.ir.protocols import PAGES, PICTURES
from rlx_core.ir.text import print_graph
from rlx_core.ir.text_lir import print_lir
from rlx_core.pipeline.profile import Profile, signature_of
from rlx_core.pipeline.report import CompilationReport, human_bytes

_ALL, _BLOCKS, _CHAINS = 60, 120, 250
"""Maximum number of boxes of a full picture, of one with blocks, and of one with chains."""

_NODES: Final = 5_000  # up to which a program is printed and laid out at all
_LINES: Final = 200  # of text
_SHOWN: Final = 12  # inputs, parameters or outputs that are shown unfolded
# Notebooks style tables themselves, and that style must not win.
_STYLE = """
.rlx-page { font: 13px/1.45 system-ui, sans-serif; color: inherit }
.rlx-page table { border-collapse: collapse; margin: 4px 0; font-size: 12px; color: inherit; border: none }
.rlx-page tr { background: none !important }
.rlx-page th, .rlx-page td { padding: 2px 12px 2px 0; text-align: left !important; vertical-align: top; border: none }
.rlx-page th { font-weight: 600; opacity: .75 } .rlx-page .number { text-align: right !important }
.rlx-page summary { cursor: pointer; opacity: .85 } .rlx-page details { margin: 3px 0 }
.rlx-page pre { font-size: 11px; line-height: 1.35; overflow: auto; max-height: 36em; color: inherit; background: none }
.rlx-page .picture { overflow: auto; max-height: 44em }
"""


def page(title: str, *parts: str) -> str:
    """One object: its name above its parts, which are HTML already."""
    return f'<div class="rlx-page"><style>{_STYLE}</style><div><b>{escape(title)}</b></div>{"".join(parts)}</div>'


def section(title: str, body: str, *, is_open: bool = False) -> str:
    """A part that opens and closes."""
    return f"<details{' open' if is_open else ''}><summary>{escape(title)}</summary>{body}</details>"


def table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Records; a column that ends with `>` is of numbers."""
    kinds = [' class="number"' if name.endswith(">") else "" for name in columns]
    head = "".join(f"<th{k}>{escape(c.removesuffix('>'))}</th>" for k, c in zip(kinds, columns, strict=True))
    body = "".join(
        f"<tr>{''.join(f'<td{k}>{escape(str(cell))}</td>' for k, cell in zip(kinds, row, strict=True))}</tr>"
        for row in rows
    )
    return f"<table>{f'<thead><tr>{head}</tr></thead>' if any(columns) else ''}<tbody>{body}</tbody></table>"


def program_html(program: Graph | Lir, title: str, outputs: Sequence[str] | None = None) -> str:
    """A graph or a plan: its types, its picture and its text."""
    return page(title, *program_parts(program, outputs, is_open=True))


def program_parts(
    program: Graph | Lir, outputs: Sequence[str] | None = None, *, is_open: bool = False
) -> Iterator[str]:
    """The picture and the text of a graph or a plan."""
    graph = program.graph if isinstance(program, Lir) else program
    drawing = drawable(program, outputs)
    if drawing is None:
        counts = Counter(n.op.name.removeprefix("rlx.") for n in graph.nodes if not n.is_leaf)
        yield section(f"{len(graph.nodes)} nodes, too many to draw", table(("op", "nodes>"), counts.most_common()))
    else:
        drawn, how = drawing
        yield section(f"picture{how}", f'<div class="picture">{drawn.svg(embedded=True)}</div>', is_open=is_open)
    if len(graph.nodes) <= _NODES:
        lines = (print_lir(program) if isinstance(program, Lir) else print_graph(program)).splitlines()
        left = f"\n… and {len(lines) - _LINES} more lines; print it to see them" if len(lines) > _LINES else ""
        yield section("text", f"<pre>{escape(chr(10).join(lines[:_LINES]))}{left}</pre>")


def program_svg(program: Graph | Lir, outputs: Sequence[str] | None = None) -> str:
    """Return the picture without a page: in the form of the HTML, or with chains joined if the HTML has no picture."""
    drawing = drawable(program, outputs)
    return svg(program, collapse=True, chains=True, outputs=outputs) if drawing is None else drawing[0].svg()


def drawable(program: Graph | Lir, outputs: Sequence[str] | None = None) -> tuple[Picture, str] | None:
    """Return the picture with as much detail as fits, and a note of the joined nodes; `None` if there is too much."""
    graph = program.graph if isinstance(program, Lir) else program
    count = sum(not isinstance(n.op, Constant) for n in graph.nodes)
    if count > _NODES:
        return None
    for limit, collapse, chains, how in (
        (_ALL, False, False, ""),
        (_BLOCKS, True, False, ", a box a block"),
        (_CHAINS, True, True, ", a box a block or a chain of ops"),
    ):
        drawn = picture(program, collapse=collapse, chains=chains, outputs=outputs)
        if len(drawn.items) <= limit:
            return drawn, how
    return None


# ------------------------------------------------------------------------------------------------ compilation reports


def report_html(report: CompilationReport) -> str:
    """Return the numbers, and folded below them the steps by target, the passes, and the program."""
    return page(f"{report.name} on {report.target}", *report_parts(report))


def report_parts(report: CompilationReport, outputs: Sequence[str] | None = None) -> Iterator[str]:
    """The parts of the page of a report, or of a program that has one."""
    yield table(("", ""), report.rows())
    kernels = [(count, op, kernel, plugin) for (op, kernel, plugin), count in report.kernels.most_common()]
    yield section(f"{len(report.lir.steps)} steps", table(("steps>", "op", "kernel", "plugin"), kernels))
    if report.tiers is not None and report.tiers.fallbacks:
        lower = [(f.op, f.tier, len(f.steps), f.reason) for f in report.tiers.fallbacks]
        yield section("steps on a lower tier", table(("op", "tier", "steps>", "because"), lower))
    effective = [run for run in report.passes if run.has_effect]
    if report.passes:
        rows = [
            (r.name, r.effect, f"{r.nodes_before} → {r.nodes_after}", f"{r.seconds * 1e3:.1f} ms") for r in effective
        ]
        title = f"{len(effective)} of {len(report.passes)} passes had an effect"
        yield section(title, table(("pass", "did", "nodes>", "time>"), rows))
    yield from program_parts(report.graph, outputs)


def callable_html(
    report: CompilationReport, groups: Mapping[str, Mapping[str, Any]], outputs: Sequence[str], title: str = ""
) -> str:
    """Return the page of a callable program: inputs and outputs, and the report.

    Args:
        report: The compilation report.
        groups: Inputs, parameters and outputs, each by name with its type.
        outputs: Names of its outputs.
        title: By default the program's name and its target.
    """
    named = title or f"{report.name}, compiled for {report.target}"
    return page(named, *_signature(groups), *report_parts(report, outputs))


def _signature(groups: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    for what, types in groups.items():
        if types:
            called = what if len(types) != 1 else what.removesuffix("s")
            yield section(f"{len(types)} {called}", table(("", ""), types.items()), is_open=len(types) <= _SHOWN)


def profile_html(profile: Profile) -> str:
    """The user's lines by time, and folded below them steps, programs and their memory."""
    total = profile.seconds or 1.0
    lines = [(f"{s / total:.1%}", f"{s * 1e6:.1f}", n, source or "") for source, s, n in profile.by_line()]
    steps = [
        (f"{t.seconds / total:.1%}", f"{t.seconds * 1e6:.1f}", signature_of(t.step), t.source or "")
        for t, _ in sorted(profile.fastest(), key=lambda pair: -pair[0].seconds)
    ]
    runs = [
        (r.name, f"{r.seconds * 1e6:.1f}", human_bytes(r.lir.arena_nbytes), human_bytes(r.peak_nbytes), r.traffic or "")
        for r in profile.runs
    ]
    return page(
        f"{profile.seconds * 1e6:.1f} µs in {len(profile.times)} steps",
        section("lines", table(("share>", "µs>", "steps>", "line"), lines), is_open=True),
        section("steps", table(("share>", "µs>", "kernel", "line"), steps)),
        section("programs", table(("program", "µs>", "arena>", "peak>", "transferred"), runs)),
    )


PAGES[Profile] = profile_html
PAGES[Graph] = lambda graph: program_html(graph, repr(graph))
PAGES[Module] = lambda module: program_html(module.content, repr(module))
PAGES[CompilationReport] = report_html
PICTURES[Graph] = program_svg
PICTURES[Module] = lambda module: program_svg(module.content)
