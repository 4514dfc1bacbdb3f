"""A graph or a plan as a picture: one box a node, data flowing downwards, the same colours for the same ops everywhere.

Params and constants are written into the boxes that read them, so that edges show what is computed from what. With
`collapse`, the consecutive ops of one HIR block become one box, which keeps a model of hundreds of ops on a page.
"""

from __future__ import annotations

import colorsys
import zlib
from collections.abc import Iterator, Mapping, Sequence
from html import escape

from attrs import frozen

from rlx_core.ir.graph import Constant, Graph, Input, Node, Param, Value
from rlx_core.ir.layers import Box, Layout, Route, lay_out
from rlx_core.ir.lir import Lir
from rlx_core.ir.text import print_node

__all__ = ["svg"]

_CHAR, _LINE, _PAD = 6.7, 15.0, 8.0  # of an 11 px monospace font
_LONGEST = 46  # characters of a line in a box
_STYLE = """
text { font: 11px ui-monospace, Menlo, Consolas, "DejaVu Sans Mono", monospace; fill: #1f2328 }
.title { font-weight: 600 } .note { fill: #59636e }
path { fill: none; stroke-width: 1.3 } rect { stroke-width: 1.2 }
.view { stroke-dasharray: 4 3 }
"""


@frozen(eq=False)
class _Item:
    """What one box shows: a node, or the nodes of a block; lines of text, a tooltip and a family that gives the colour."""

    nodes: tuple[Node, ...]
    title: str
    notes: tuple[str, ...]
    tooltip: str
    family: str
    is_view: bool = False


def svg(program: Graph | Lir, *, collapse: bool = False) -> str:
    """The picture as SVG text.

    Args:
        program: A HIR or MIR graph, or a plan, whose boxes also show arena bytes; views have a dashed border.
        collapse: Show the consecutive ops of one block as one box.
    """
    graph = program.graph if isinstance(program, Lir) else program
    drawn = [n for n in graph.nodes if not isinstance(n.op, Param | Constant)]
    groups = list(_groups(drawn)) if collapse else [(n,) for n in drawn]
    items = [_item(nodes, program) for nodes in groups]
    home = {v: i for i, item in enumerate(items) for n in item.nodes for v in n.results}
    items += [_output_item(i, v) for i, v in enumerate(graph.outputs)]
    sources = [_sources(item, home) for item in items[: len(groups)]]
    sources += [(home[v],) if v in home else () for v in graph.outputs]
    boxes = [Box(*_size(item), s) for item, s in zip(items, sources, strict=True)]
    return "\n".join(_page(graph.name, items, boxes, lay_out(boxes))) + "\n"


def _groups(nodes: Sequence[Node]) -> Iterator[tuple[Node, ...]]:
    """Runs of nodes of one block. Only consecutive ones are joined, so that the joined graph has no cycle."""
    run: list[Node] = []
    for node in nodes:
        block = None if node.is_leaf else node.origin.block or node.origin.label
        if run and (block is None or block != (run[0].origin.block or run[0].origin.label)):
            yield tuple(run)
            run = []
        if block is None:
            yield (node,)
        else:
            run.append(node)
    if run:
        yield tuple(run)


def _sources(item: _Item, home: Mapping[Value, int]) -> tuple[int, ...]:
    own = {id(n) for n in item.nodes}
    read = [home[v] for n in item.nodes for v in n.present() if v in home and id(v.node) not in own]
    return tuple(dict.fromkeys(read))


def _family(node: Node) -> str:
    """What gives a node its colour: the module that defines its op, or which leaf it is."""
    return node.op.name if node.is_leaf else type(node.op).__module__.rsplit(".", 1)[-1]


# ------------------------------------------------------------------------------------------------ text


def _item(nodes: tuple[Node, ...], program: Graph | Lir) -> _Item:
    return _node_item(nodes[0], program) if len(nodes) == 1 else _block_item(nodes)


def _node_item(node: Node, program: Graph | Lir) -> _Item:
    if isinstance(node.op, Input):
        return _Item((node,), node.op.label, (str(node.type),), _tooltip(node), "core.input")
    short = node.op.name.removeprefix("rlx.")
    title = f"{short}  {node.label}" if node.name else short
    held = [_leaf_note(v) for v in node.present() if isinstance(v.node.op, Param | Constant)]
    notes = [", ".join(map(str, node.types)), *held]
    is_view = False
    if isinstance(program, Lir):
        notes += _plan_notes(node, program)
        is_view = bool(node.results) and node.results[0] in program.aliases
    return _Item((node,), title, tuple(notes), _tooltip(node), _family(node), is_view)


def _leaf_note(value: Value) -> str:
    op = value.node.op
    return f"{op.label} {value.type}" if isinstance(op, Param) else f"const {_constant_text(value)}"


def _constant_text(value: Value) -> str:
    op = value.node.op
    assert isinstance(op, Constant)
    return str(op.value.array.item()) if op.value.array.size == 1 else str(value.type)


def _plan_notes(node: Node, lir: Lir) -> Iterator[str]:
    for value in node.results:
        alias, slot = lir.aliases.get(value), lir.slots.get(value)
        if alias is not None:
            yield f"view of {alias.root!r} + {alias.byte_offset}"
        elif slot is not None:
            yield f"bytes {slot.offset}..{slot.end}"


def _block_item(nodes: tuple[Node, ...]) -> _Item:
    origin = nodes[0].origin
    own = {id(n) for n in nodes}
    params = {v.node.index: v for n in nodes for v in n.present() if isinstance(v.node.op, Param)}
    read = {id(v) for n in nodes for v in n.present()}
    results = [v for n in nodes for v in n.results if id(v) not in read] or list(nodes[-1].results)
    assert own, "a block has nodes"
    notes = (f"{len(nodes)} ops, {len(params)} params", *(str(v.type) for v in results[:2]))
    tooltip = "\n".join(print_node(n) for n in nodes)
    return _Item(nodes, origin.label or origin.block or "block", notes, tooltip, origin.label or "block")


def _output_item(index: int, value: Value) -> _Item:
    leaf = _leaf_note(value) if isinstance(value.node.op, Param | Constant) else ""
    notes = (str(value.type), leaf) if leaf else (str(value.type),)
    return _Item((), f"out{index}", notes, f"output {index}: {value!r}", "output")


def _tooltip(node: Node) -> str:
    origin = node.origin
    facts = {
        "block": origin.block,
        "label": origin.label,
        "made by": origin.created_by,
        "plugin": origin.plugin,
        "line": None if origin.source is None else repr(origin.source),
    }
    return "\n".join([print_node(node), *(f"{k}: {v}" for k, v in facts.items() if v)])


def _clipped(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"


def _size(item: _Item) -> tuple[float, float]:
    longest = max(len(_clipped(line)) for line in (item.title, *item.notes))
    return longest * _CHAR + 2 * _PAD, _LINE * (1 + len(item.notes)) + _PAD


# --------------------------------------------------------------------------------------------- picture


def _colour(family: str, lightness: float, saturation: float) -> str:
    # A checksum, not `hash`: the colour must be the same in every process. Hex, because every viewer reads it.
    hue = zlib.crc32(family.encode()) * 137 % 360 / 360
    return "#" + "".join(f"{round(255 * part):02x}" for part in colorsys.hls_to_rgb(hue, lightness, saturation))


def _page(name: str, items: Sequence[_Item], boxes: Sequence[Box], layout: Layout) -> Iterator[str]:
    width, height = round(layout.width), round(layout.height)
    yield (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" '
        f'role="img" aria-label="graph {escape(name)}">'
    )
    yield f"<style>{_STYLE}</style>"
    yield '<rect width="100%" height="100%" fill="#ffffff"/>'
    yield '<marker id="arrow" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="6" markerHeight="6" orient="auto">'
    yield '<path d="M0 0 L8 4 L0 8 Z" style="fill:#59636e;stroke:none"/></marker>'
    for route in layout.routes:
        yield _edge(route, items[route.source])
    for i, item in enumerate(items):
        yield from _box(item, boxes[i], layout.centres[i], layout.tops[i])
    yield "</svg>"


def _edge(route: Route, source: _Item) -> str:
    (x, y), *rest = route.points
    path = f"M{x:.1f} {y:.1f}" + "".join(f" L{a:.1f} {b:.1f}" for a, b in rest)
    return f'<path d="{path}" stroke="{_colour(source.family, 0.5, 0.4)}" marker-end="url(#arrow)"/>'


def _box(item: _Item, box: Box, centre: float, top: float) -> Iterator[str]:
    left = centre - box.width / 2
    kind = ' class="view"' if item.is_view else ""
    radius = box.height / 2 if item.family in ("core.input", "output") else 4
    yield f"<g><title>{escape(item.tooltip)}</title>"
    yield (
        f'<rect x="{left:.1f}" y="{top:.1f}" width="{box.width:.1f}" height="{box.height:.1f}" rx="{radius:.0f}" '
        f'fill="{_colour(item.family, 0.94, 0.65)}" stroke="{_colour(item.family, 0.45, 0.45)}"{kind}/>'
    )
    for k, line in enumerate((item.title, *item.notes)):
        y = top + _PAD / 2 + _LINE * (k + 0.75)
        style = "title" if k == 0 else "note"
        yield f'<text x="{centre:.1f}" y="{y:.1f}" text-anchor="middle" class="{style}">{escape(_clipped(line))}</text>'
    yield "</g>"
