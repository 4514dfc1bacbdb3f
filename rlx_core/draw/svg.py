"""A graph or a plan as a picture: one box per node, data flowing downwards, the same colours for the same ops everywhere.

Params and constants are written into the boxes that read them, so that edges show dependencies between computations. With
`collapse`, the consecutive ops of one HIR block become one box, and computations on params alone (the transpose of a
weight) are written into their reader, which keeps a model of hundreds of ops on a page; `chains` joins ops that only feed one
another. The colours are translucent, so the picture is readable on light and dark pages.
"""

from __future__ import annotations

import colorsys
import zlib
from collections.abc import Iterator, Mapping, Sequence
from html import escape

from rlx_core.draw.layers import DrawingLayout, LayoutNode, Route, lay_out
from rlx_core.ir.graph import Constant, Graph, Input, Node, Param, Value, ops_inside
from rlx_core.ir.lir import Lir
from rlx_core.ir.text import element_text, print_node
from rlx_core.system.records import frozen

_CHAR, _LINE, _PAD = 6.7, 15.0, 8.0  # of an 11 px monospace font
_LONGEST = 46  # characters of a line in a box
_TOOLTIP_LINES = 40
# Every rule is bound to the class: a style inside a page that embeds the picture holds for all of that page.
_STYLE = """
.rlx-graph text { font: 11px ui-monospace, Menlo, Consolas, "DejaVu Sans Mono", monospace; fill: currentColor }
.rlx-graph .title { font-weight: 600 } .rlx-graph .note { opacity: 0.72 }
.rlx-graph path { fill: none; stroke-width: 1.3 } .rlx-graph rect { stroke-width: 1.2 }
.rlx-graph .view { stroke-dasharray: 4 3 }
"""
_ALONE = """
.rlx-graph { color: #1f2328; background: #ffffff }
@media (prefers-color-scheme: dark) { .rlx-graph { color: #e6edf3; background: #0d1117 } }
"""


@frozen(eq=False)
class _Item:
    """The contents of one box: a node, or the nodes of a block; lines of text, a tooltip and a family that gives the colour."""

    nodes: tuple[Node, ...]
    title: str
    notes: tuple[str, ...]
    tooltip: str
    family: str
    is_view: bool = False


@frozen(eq=False)
class Picture:
    """A picture before layout: the contents of its boxes, and the edges that come into each."""

    name: str
    items: tuple[_Item, ...]
    sources: tuple[tuple[int, ...], ...]

    def svg(self, *, embedded: bool = False) -> str:
        """The picture as SVG text; an embedded one takes the text colour and the background of its page."""
        boxes = [LayoutNode(*_size(item), s) for item, s in zip(self.items, self.sources, strict=True)]
        return "\n".join(_page(self.name, self.items, boxes, lay_out(boxes), embedded)) + "\n"


def svg(
    program: Graph | Lir, *, collapse: bool = False, chains: bool = False, outputs: Sequence[str] | None = None
) -> str:
    """The picture as SVG text.

    Args:
        program: A HIR or MIR graph, or a plan, whose boxes also show arena bytes; views have a dashed border.
        collapse: Show the consecutive ops of one block as one box, and computations on params alone in their reader.
        chains: Show ops that only feed one another as one box.
        outputs: Names of the outputs; by default as in the plan, or the names of their values.
    """
    return picture(program, collapse=collapse, chains=chains, outputs=outputs).svg()


def picture(
    program: Graph | Lir, *, collapse: bool = False, chains: bool = False, outputs: Sequence[str] | None = None
) -> Picture:
    """The boxes of a picture; arguments as for `svg`."""
    graph = program.graph if isinstance(program, Lir) else program
    hidden = _held(graph) if collapse else {}
    drawn = [n for n in graph.nodes if not isinstance(n.op, Param | Constant) and n.index not in hidden]
    groups = list(_groups(drawn)) if collapse else [(n,) for n in drawn]
    groups = _chained(groups, graph) if chains else groups
    items = [_item(nodes, program, hidden) for nodes in groups]
    home = {v: i for i, item in enumerate(items) for n in item.nodes for v in n.results}
    items += [
        _output_item(n, i, v) for i, (n, v) in enumerate(zip(_outputs(program, outputs), graph.outputs, strict=True))
    ]
    sources = [_sources(item, home) for item in items[: len(groups)]]
    sources += [(home[v],) if v in home else () for v in graph.outputs]
    return Picture(graph.name, tuple(items), tuple(sources))


def _outputs(program: Graph | Lir, names: Sequence[str] | None) -> list[str]:
    if names is not None:
        return list(names)
    if isinstance(program, Lir):
        return [entry.name for entry in program.manifest.outputs]
    return [f"out{i}" for i in range(len(program.outputs))]


# ---------------------------------------------------------------------------------------------- groups


def _held(graph: Graph) -> dict[int, Node]:
    """Return the nodes that are written into their only reader, by number: computations on params and constants alone."""
    hidden: dict[int, Node] = {}
    for node in graph.nodes:
        operands = [v.node for v in node.present()]
        if node.is_leaf or not operands or any(v in graph.output_set for v in node.results):
            continue
        if all(isinstance(n.op, Param | Constant) or n.index in hidden for n in operands):
            readers = {user.index for v in node.results for user in graph.uses[v]}
            if len(readers) == 1:
                hidden[node.index] = node
    return hidden


def _block_of(node: Node) -> str | None:
    return None if node.is_leaf else node.origin.block or node.origin.label


def _groups(nodes: Sequence[Node]) -> Iterator[tuple[Node, ...]]:
    """Runs of nodes of one block. Only consecutive ones are joined, so that the joined graph has no cycle."""
    run: list[Node] = []
    for node in nodes:
        block = _block_of(node)
        if run and (block is None or block != _block_of(run[0])):
            yield tuple(run)
            run = []
        if block is None:
            yield (node,)
        else:
            run.append(node)
    if run:
        yield tuple(run)


def _chained(groups: Sequence[tuple[Node, ...]], graph: Graph) -> list[tuple[Node, ...]]:
    """Return the groups, joined where they only feed one another: one reads nothing else, the other has no other reader."""
    home = {v: i for i, nodes in enumerate(groups) for n in nodes for v in n.results}
    sources = [{home[v] for n in nodes for v in n.present() if v in home} - {i} for i, nodes in enumerate(groups)]
    readers: dict[int, set[int]] = {i: set() for i in range(len(groups))}
    for i, item_sources in enumerate(sources):
        for s in item_sources:
            readers[s].add(i)
    fixed = {home[v] for v in graph.outputs if v in home} | {i for i, nodes in enumerate(groups) if nodes[0].is_leaf}
    joined: dict[int, list[Node]] = {}
    end: dict[int, int] = {}
    for i, nodes in enumerate(groups):
        (only,) = sources[i] if len(sources[i]) == 1 else (None,)
        start = i if only is None or only in fixed or readers[only] != {i} else end[only]
        joined.setdefault(start, []).extend(nodes)
        end[i] = start
    # A chain is placed at its last node: by then all that it reads was placed, and nothing that reads it.
    return sorted((tuple(nodes) for nodes in joined.values()), key=lambda nodes: nodes[-1].index)


def _sources(item: _Item, home: Mapping[Value, int]) -> tuple[int, ...]:
    members = {id(n) for n in item.nodes}
    read = [home[v] for n in item.nodes for v in n.present() if v in home and id(v.node) not in members]
    return tuple(dict.fromkeys(read))


def _family(node: Node) -> str:
    """Return the colour family of a node: the module that defines its op, or the kind of leaf."""
    return node.op.name if node.is_leaf else type(node.op).__module__.rsplit(".", 1)[-1]


# ------------------------------------------------------------------------------------------------ text


def _item(nodes: tuple[Node, ...], program: Graph | Lir, hidden: Mapping[int, Node]) -> _Item:
    return _node_item(nodes[0], program, hidden) if len(nodes) == 1 else _group_item(nodes)


def _node_item(node: Node, program: Graph | Lir, hidden: Mapping[int, Node]) -> _Item:
    if isinstance(node.op, Input):
        return _Item((node,), node.op.label, (str(node.type),), _tooltip(node), "core.input")
    short = _short(node)
    title = f"{short}  {node.label}" if node.name else short
    inside = list(dict.fromkeys(op.name.removeprefix("rlx.") for op in ops_inside(node.op) if op is not node.op))
    notes = [", ".join(map(str, node.types))]
    notes += [_clipped(" ".join(inside))] if inside else []
    notes += [
        _held_note(v, hidden)
        for v in node.present()
        if isinstance(v.node.op, Param | Constant) or v.node.index in hidden
    ]
    is_view = False
    if isinstance(program, Lir):
        notes += _plan_notes(node, program)
        is_view = bool(node.results) and node.results[0] in program.aliases
    return _Item((node,), title, tuple(notes), _tooltip(node), _family(node), is_view)


def _short(node: Node) -> str:
    return node.op.name.removeprefix("rlx.")


def _held_note(value: Value, hidden: Mapping[int, Node]) -> str:
    op = value.node.op
    if isinstance(op, Constant):
        return f"const {_constant_text(value)}"
    around = f" {value.type}"
    if isinstance(op, Param):
        return f"{_tail(op.label, _LONGEST - len(around))}{around}"
    steps: list[str] = []
    node = value.node
    while node.index in hidden:  # through single operands to the param, whose name the reader knows
        steps.append(_short(node))
        first = next(node.present()).node
        if len(node.operands) > 1 or first.index not in hidden:
            break
        node = first
    leaf = next(node.present()).node
    name = leaf.op.label if isinstance(leaf.op, Param) else "…"
    called = ".".join(reversed(steps))
    return f"{_tail(name, _LONGEST - len(around) - len(called) - 1)}.{called}{around}"


def _tail(name: str, length: int) -> str:
    """Return the end of a long name, because the end distinguishes `encoder.layer.0.attention.weight` from its neighbours."""
    return name if len(name) <= length else f"…{name[len(name) - length + 1 :]}"


def _constant_text(value: Value) -> str:
    op = value.node.op
    assert isinstance(op, Constant)
    return element_text(op.value.array.reshape(-1)[0]) if op.value.array.size == 1 else str(value.type)


def _plan_notes(node: Node, lir: Lir) -> Iterator[str]:
    for value in node.results:
        alias, slot = lir.aliases.get(value), lir.slots.get(value)
        if alias is not None:
            yield f"view of {alias.root!r} + {alias.byte_offset}"
        elif slot is not None:
            yield f"bytes {slot.offset}..{slot.end}"


def _group_item(nodes: tuple[Node, ...]) -> _Item:
    blocks = {_block_of(n) for n in nodes}
    origin = nodes[0].origin
    params = {v.node.index: v for n in nodes for v in n.present() if isinstance(v.node.op, Param)}
    read = {id(v) for n in nodes for v in n.present()}
    results = [v for n in nodes for v in n.results if id(v) not in read] or list(nodes[-1].results)
    is_block = len(blocks) == 1 and None not in blocks
    names = list(dict.fromkeys(map(_short, nodes)))
    title = (origin.label or origin.block or "block") if is_block else _clipped(" ".join(names))
    notes = (f"{len(nodes)} ops, {len(params)} params", *(str(v.type) for v in results[:2]))
    lines = [print_node(n) for n in nodes[:_TOOLTIP_LINES]]
    lines += [f"… and {len(nodes) - len(lines)} more"] if len(nodes) > len(lines) else []
    return _Item(nodes, title, notes, "\n".join(lines), (origin.label if is_block else None) or "block")


def _output_item(name: str, index: int, value: Value) -> _Item:
    op = value.node.op
    leaf = [_held_note(value, {})] if isinstance(op, Param | Constant) else []
    called = f"{name}  {value.node.label}" if value.node.name and name == f"out{index}" else name
    return _Item((), called, (str(value.type), *leaf), f"output {index}: {value!r}", "output")


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


def _page(
    name: str, items: Sequence[_Item], boxes: Sequence[LayoutNode], layout: DrawingLayout, embedded: bool
) -> Iterator[str]:
    width, height = round(layout.width), round(layout.height)
    # Names hold for the whole page that embeds the picture, so they must differ between pictures.
    arrow = f"rlx-arrow-{zlib.crc32(repr((name, layout)).encode()):08x}"
    yield (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="rlx-graph" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}" role="img" aria-label="graph {escape(name)}">'
    )
    yield f"<style>{_STYLE}{'' if embedded else _ALONE}</style>"
    yield f'<marker id="{arrow}" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="6" markerHeight="6" orient="auto">'
    yield '<path d="M0 0 L8 4 L0 8 Z" style="fill:#7d8590;stroke:none"/></marker>'
    for route in layout.routes:
        yield _edge(route, items[route.source], arrow)
    for i, item in enumerate(items):
        yield from _box(item, boxes[i], layout.centres[i], layout.tops[i])
    yield "</svg>"


def _edge(route: Route, source: _Item, arrow: str) -> str:
    (x, y), *others = route.points
    path = f"M{x:.1f} {y:.1f}" + "".join(f" L{a:.1f} {b:.1f}" for a, b in others)
    return f'<path d="{path}" fill="none" stroke="{_colour(source.family, 0.5, 0.4)}" marker-end="url(#{arrow})"/>'


def _box(item: _Item, box: LayoutNode, centre: float, top: float) -> Iterator[str]:
    left = centre - box.width / 2
    kind = ' class="view"' if item.is_view else ""
    radius = box.height / 2 if item.family in ("core.input", "output") else 4
    yield f"<g><title>{escape(item.tooltip)}</title>"
    yield (
        f'<rect x="{left:.1f}" y="{top:.1f}" width="{box.width:.1f}" height="{box.height:.1f}" rx="{min(radius, 16):.0f}" '
        f'fill="{_colour(item.family, 0.55, 0.6)}" fill-opacity="0.13" stroke="{_colour(item.family, 0.5, 0.45)}"{kind}/>'
    )
    for k, line in enumerate((item.title, *item.notes)):
        y = top + _PAD / 2 + _LINE * (k + 0.75)
        style = "title" if k == 0 else "note"
        yield f'<text x="{centre:.1f}" y="{y:.1f}" text-anchor="middle" class="{style}">{escape(_clipped(line))}</text>'
    yield "</g>"
