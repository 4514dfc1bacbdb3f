"""Text views of graphs: contents, sizes, and the difference of two graphs. (`svg.py` draws them.)"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher

from rlx_core.draw.svg import svg
from rlx_core.ir.dims import Dim
from rlx_core.ir.graph import Constant, Graph, GraphArgument, Node, Value, nested_graphs
from rlx_core.ir.text import print_node, value_names
from rlx_core.pipeline.report import human_bytes

__all__ = ["describe_counts", "diff", "human_bytes", "summary", "svg"]


def describe_counts(graph: Graph) -> str:
    """Return the number of nodes of each op, most frequent first: `matmul 4, add 3`."""
    counts = Counter(n.op.name.removeprefix("rlx.") for n in graph.nodes if not n.is_leaf)
    ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return ", ".join(f"{name} {count}" for name, count in ordered)


def _total(values: tuple[Value, ...]) -> Dim:
    total: Dim = 0
    for value in values:
        total = total + value.type.nbytes
    return total


def summary(graph: Graph) -> str:
    """The graph as a page: totals, op counts, then each node with its bytes; outputs are marked with their number."""
    constants = tuple(n.results[0] for n in graph.nodes if isinstance(n.op, Constant))
    computed = tuple(v for n in graph.nodes if not n.is_leaf for v in n.results)
    rows = [
        ("inputs", graph.inputs),
        ("params", graph.params),
        ("constants", constants),
        ("computed", computed),
    ]
    lines = [f"graph {graph.name}: {len(graph.nodes)} nodes, {len(graph.outputs)} outputs"]
    lines += [f"  {label:<10} {len(values):>5}  {human_bytes(_total(values))}" for label, values in rows]
    if computed:
        lines.append(f"  ops        {describe_counts(graph)}")
    lines += [f"  guard      {guard}" for guard in graph.guards]
    return "\n".join([*lines, "", *_rows(graph, "  ")]) + "\n"


def _rows(graph: Graph, indent: str) -> Iterator[str]:
    names = value_names(graph)
    marks: dict[Value, list[str]] = {}
    for i, value in enumerate(graph.outputs):
        marks.setdefault(value, []).append(f"out{i}")
    body = [(node, _row(node, names)) for node in graph.nodes]
    width = min(max((len(text) for _, text in body), default=0), 90)
    for node, text in body:
        outputs = [m for v in node.results for m in marks.get(v, ())]
        mark = f"  -> {', '.join(outputs)}" if outputs else ""
        yield f"{indent}{text:<{width}}  {human_bytes(_total(node.results)):>10}{mark}"
        for name, nested in nested_graphs(node.op).items():
            yield f"{indent}  {name}:"
            yield from _rows(nested, indent + "    ")


def _row(node: Node, names: dict[Value, str]) -> str:
    called = ", ".join(names[v] for v in node.results) or node.label
    types = ", ".join(map(str, node.types))
    if isinstance(node.op, GraphArgument | Constant):
        return f"{called} : {types}  {type(node.op).__name__.lower()}"
    operands = ", ".join("_" if v is None else names[v] for v in node.operands)
    return f"{called} = {node.op.name.removeprefix('rlx.')}({operands}) : {types}"


# ------------------------------------------------------------------------------------------ difference


def diff(before: Graph, after: Graph) -> str:
    """Return the differences between `before` and `after`, node by node; empty if they are equal.

    Nodes are matched by op, attributes and types in order, so one inserted node does not mark all that follow it: `-` was
    removed, `+` was added, `~` is the same op on other operands.
    """
    old, new = value_names(before), value_names(after)
    matched, lines = _matched(before, after, old, new)
    expected = [matched.get(v) for v in before.outputs]
    if len(before.outputs) != len(after.outputs) or any(
        a is not b for a, b in zip(expected, after.outputs, strict=True)
    ):
        lines.append((len(after.nodes), f"- return {', '.join(old[v] for v in before.outputs)}"))
        lines.append((len(after.nodes), f"+ return {', '.join(new[v] for v in after.outputs)}"))
    removed = [g for g in before.guards if g not in after.guards]
    added = [g for g in after.guards if g not in before.guards]
    guards = [f"- guard {g}" for g in removed] + [f"+ guard {g}" for g in added]
    text = guards + [line for _, line in sorted(lines, key=lambda item: item[0])]
    return "\n".join(text) + "\n" if text else ""


def _matched(
    before: Graph, after: Graph, old: dict[Value, str], new: dict[Value, str]
) -> tuple[dict[Value, Value], list[tuple[int, str]]]:
    matched: dict[Value, Value] = {}
    lines: list[tuple[int, str]] = []
    for kind, a, b, c, d in _changes(list(map(_signature, before.nodes)), list(map(_signature, after.nodes))):
        if kind == "equal":
            for one, other in zip(before.nodes[a:b], after.nodes[c:d], strict=True):
                if not _same_operands(one, other, matched):
                    lines.append((other.index, f"~ {print_node(one, old)}  ->  {print_node(other, new)}"))
                matched.update(zip(one.results, other.results, strict=True))
        else:
            lines += [(c, f"- {print_node(n, old)}") for n in before.nodes[a:b]]
            lines += [(c, f"+ {print_node(n, new)}") for n in after.nodes[c:d]]
    return matched, lines


def _changes(old: Sequence[object], new: Sequence[object]) -> Iterator[tuple[str, int, int, int, int]]:
    """The opcodes of difflib. What both begin and end with is set aside first: alike nodes take difflib quadratic time."""
    shorter = min(len(old), len(new))
    start = next((i for i in range(shorter) if old[i] != new[i]), shorter)
    end = next((i for i in range(shorter - start) if old[-1 - i] != new[-1 - i]), shorter - start)
    old_end, new_end = len(old) - end, len(new) - end
    yield "equal", 0, start, 0, start
    for kind, a, b, c, d in SequenceMatcher(None, old[start:old_end], new[start:new_end], False).get_opcodes():
        yield kind, a + start, b + start, c + start, d + start
    yield "equal", old_end, len(old), new_end, len(new)


def _signature(node: Node) -> tuple[object, ...]:
    return node.op, node.types, len(node.operands)


def _same_operands(one: Node, other: Node, matched: dict[Value, Value]) -> bool:
    pairs = zip(one.operands, other.operands, strict=True)
    return all((a is None and b is None) or (a is not None and matched.get(a) is b) for a, b in pairs)
