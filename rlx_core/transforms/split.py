"""Reverse mode as two programs: a forward program that also returns residuals, and a backward program that reads them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from rlx_core.errors import UnknownNameError, nearest
from rlx_core.ir.dims import SizeSymbol, free_symbols
from rlx_core.ir.graph import Builder, Graph, GraphArgument, Node, Value, leaf_name, symbols_inside
from rlx_core.ir.module import expect_graph
from rlx_core.ir.rewrite import copy_nodes
from rlx_core.ir.solve import plain_symbol
from rlx_core.system.records import frozen
from rlx_core.transforms.engine import STANDARD, Engine
from rlx_core.transforms.graphs import fresh_name, live_nodes
from rlx_core.transforms.vjp import vjp_graph


@frozen(eq=False)
class Split:
    """A program and its reverse derivative, which share some of their inputs.

    Attributes:
        forward: The shared inputs and the program's other ones in, [outputs.., residuals..] out.
        backward: The shared inputs, the residuals and one cotangent for each differentiated output in, cotangents out.
        shared: The names of the inputs that both programs read; they come first in both.
        saved: The names of the residuals among the inputs of `backward`; they are the last outputs of `forward`.
        cotangents: The names of the cotangents among the inputs of `backward`, in the order of the outputs.
    """

    forward: Graph
    backward: Graph
    shared: tuple[str, ...]
    saved: tuple[str, ...]
    cotangents: tuple[str, ...]


def split_vjp(
    graph: Graph,
    wrt: Sequence[str | Value],
    shared: Iterable[str],
    *,
    outputs: Sequence[int] | None = None,
    engine: Engine = STANDARD,
) -> Split:
    """Return a program and its reverse derivative as two programs.

    Forward values that the derivative reads are outputs of the first and inputs of the second. Recomputed are only values
    without cost (operations without operands, and views that are not larger than their operand) and those selected by
    `rlx.checkpoint`.

    Args:
        graph: HIR or MIR, before fusion for a target.
        wrt: Names or values whose cotangents are computed.
        shared: The names of inputs and params that both programs have as inputs, in this order: weights.
        outputs: The positions of the outputs to differentiate; `None` means all.
        engine: The source of rules.

    Raises:
        WrongStageError: The argument is not a graph.
        UnknownNameError: A shared name is not an input or param. See also `vjp_graph`.
        DtypeError, MissingRuleError: As for `vjp_graph`.
    """
    expect_graph("split_vjp", graph)
    both = vjp_graph(graph, wrt, outputs=outputs, engine=engine)
    names = tuple(shared)
    own_names = [leaf_name(v) for v in (*graph.inputs, *graph.params)]
    for name in names:
        if name not in own_names:
            raise UnknownNameError(
                f"split_vjp: {graph.name} has no input or param {name!r}", hint=nearest(name, own_names)
            )
    cotangents = tuple(name for name in both.input_types if name not in own_names)
    count = len(graph.outputs)
    backward_nodes, saved = _divided(both, both.outputs[count:], {*names}, cotangents)
    saved += _sizes(both, backward_nodes, saved, {*names, *cotangents})
    results = [*both.outputs[:count], *saved]
    behind = {n.index for n in backward_nodes}
    effects = [n for n in both.nodes if not n.op.is_pure and n.index not in behind]
    needed = live_nodes(both.nodes, [*results, *(r for n in effects for r in n.results)])
    forward = _program(f"{graph.name}_forward", both, names, own_names, needed, results)

    taken = {*both.names}
    labels = {value: fresh_name(taken, f"saved_{k}") for k, value in enumerate(saved)}
    backward = _program(f"{graph.name}_backward", both, names, cotangents, backward_nodes, both.outputs[count:], labels)
    return Split(forward, backward, names, tuple(labels.values()), cotangents)


def _divided(
    both: Graph, gradients: Iterable[Value], shared: Collection[str], cotangents: Collection[str]
) -> tuple[list[Node], list[Value]]:
    """Return the nodes of the backward program, in order, and the residuals that it reads."""
    behind: set[Value] = set()
    for node in both.nodes:
        is_source = isinstance(node.op, GraphArgument) and node.op.label in cotangents
        if is_source or any(v in behind for v in node.present()):
            behind.update(node.results)
    needed = set(gradients)
    nodes, saved = [], []
    for node in reversed(both.nodes):
        needed_results = [r for r in node.results if r in needed]
        is_behind = any(r in behind for r in node.results)
        if not (needed_results or (is_behind and not node.op.is_pure)):
            continue
        if isinstance(node.op, GraphArgument):
            saved += needed_results if node.op.label not in shared and not is_behind else []
        elif is_behind or _costs_nothing(node):
            needed.update(node.present())
            nodes.append(node)
        else:
            saved += needed_results
    return nodes[::-1], saved[::-1]


def _sizes(both: Graph, nodes: Sequence[Node], values: Sequence[Value], labels: Collection[str]) -> list[Value]:
    """Return additional inputs that define the sizes which no other input of the program defines."""

    def told(values: Iterable[Value]) -> set[SizeSymbol | None]:
        return {plain_symbol(dim) for v in values for dim in v.shape}

    inputs = {n.op.label: n.result for n in both.nodes if isinstance(n.op, GraphArgument)}
    read = [*values, *(inputs[label] for label in labels)]
    known = told(read)
    dims = (d for v in (*read, *(r for n in nodes for r in n.results)) for d in v.shape)
    required = free_symbols(*dims).union(*(symbols_inside(n.op) for n in nodes))
    result: list[Value] = []
    for value in inputs.values():
        if (required - known) & told([value]):
            result.append(value)
            known |= told([value])
    return result


def _costs_nothing(node: Node) -> bool:
    """Return whether a value is recomputed instead of saved: it reads nothing, or it is a view not larger than its operand."""
    op, operands = node.op, tuple(node.present())
    if not operands:
        return op.is_pure
    if op.view is None or op.is_barrier or len(operands) > 1 or len(node.results) > 1:
        return False
    larger, smaller = node.result.type.nbytes, operands[0].type.nbytes
    return smaller == larger or (isinstance(smaller, int) and isinstance(larger, int) and smaller < larger)


def _program(
    name: str,
    both: Graph,
    shared: Sequence[str],
    own_inputs: Collection[str],
    nodes: Iterable[Node],
    outputs: Iterable[Value],
    value_labels: Mapping[Value, str] | None = None,
) -> Graph:
    """Return a subprogram: the shared inputs first, then the values that it receives precomputed, then its other inputs."""
    builder = Builder(name)
    inputs = {n.op.label: n.result for n in both.nodes if isinstance(n.op, GraphArgument)}
    labels = {inputs[label]: label for label in shared} | dict(value_labels or {})
    labels |= {v: label for label, v in inputs.items() if label in own_inputs and v not in labels}
    values = {v: builder.input(label, v.type, origin=v.node.origin) for v, label in labels.items()}
    known_sizes = {plain_symbol(dim) for v in values for dim in v.shape}
    builder.add_guards(g for g in both.guards if free_symbols(g.left, g.right) <= known_sizes)
    copy_nodes(builder, (node for node in nodes if not isinstance(node.op, GraphArgument)), values)
    return builder.finish(values[v] for v in outputs)
