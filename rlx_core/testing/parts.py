"""Parts of generated programs: small programs in loops that carry values, differentiated, batched, and put into loops again.

Every wrapping is written twice: as it is placed, and written out flat, without loops. The flat one is judged when a program
grows, because an evaluation in float64 can look at all of its values; both are the same function.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from rlx_core.ir.graph import Builder, Graph, Value, as_results, building, leaf_name
from rlx_core.ir.rewrite import inline
from rlx_core.ops.control.scan import Scan
from rlx_core.ops.movement import Narrow
from rlx_core.ops.sorting import SearchSorted
from rlx_core.ops.structural import reshape
from rlx_core.system.records import frozen
from rlx_core.testing.nesting import Move, nested
from rlx_core.transforms.batch import vmap_graph
from rlx_core.transforms.jvp import jvp_graph
from rlx_core.transforms.vjp import vjp_graph

STEPS = 3
EXAMPLES = 3
WRAPPINGS = 3  # around one part, at most


@frozen(eq=False)
class Part:
    """A program to be placed inside another.

    Attributes:
        graph: The graph as it is placed, with loops.
        flat: The same function without those loops.
        fed: An array for every input.
    """

    graph: Graph
    flat: Graph
    fed: Mapping[str, np.ndarray]


def placed(graph: Graph) -> Move:
    """Return a move that copies a graph into the graph of its operands."""

    def move(values: Sequence[Value]) -> tuple[Value, ...]:
        builder = values[0].node.owner
        assert isinstance(builder, Builder), "values of a graph being made"
        return inline(builder, graph, dict(zip(graph.input_types, values, strict=True)))

    return move


def wrapped(rng: np.random.Generator, graph: Graph, fed: Mapping[str, np.ndarray]) -> Part:
    """The graph in one to three wrappings: a choice, a loop that repeats it or carries its results, a derivative, a batch.

    Raises:
        RlxError: There is no such derivative or batch.
    """
    part = Part(graph, graph, fed)
    for _ in range(int(rng.integers(1, WRAPPINGS + 1))):
        wrap = (again, carried, backwards, along, mapped)[int(rng.choice(5, p=[0.2, 0.25, 0.3, 0.15, 0.1]))]
        part = wrap(rng, part)
    return part


def again(rng: np.random.Generator, part: Part) -> Part:
    """Return the part in a loop or a conditional that changes none of its values."""
    if not part.graph.inputs:
        return part
    return Part(made(part.graph, nested(rng, placed(part.graph))), part.flat, part.fed)


def carried(rng: np.random.Generator, part: Part) -> Part:
    """Return the part in a loop in which results become operands of the next step; the part itself if no types match."""
    carries: dict[int, int] = {}
    for i, value in enumerate(part.graph.outputs):
        fitting = [k for k, v in enumerate(part.graph.inputs) if v.type == value.type and k not in carries.values()]
        if fitting:
            carries[i] = fitting[int(rng.integers(len(fitting)))]
    if not carries:
        return part
    reverse = bool(rng.integers(2))
    flat = made(part.flat, lambda values: repeated(part.flat, values, carries))
    return Part(made(part.graph, lambda values: looped(part.graph, values, carries, reverse)), flat, part.fed)


def repeated(graph: Graph, values: Sequence[Value], carries: Mapping[int, int]) -> tuple[Value, ...]:
    """Return the results of the last of some steps, unrolled."""
    move, values = placed(graph), list(values)
    results = as_results(move(values))
    for _ in range(STEPS - 1):
        for output, operand in carries.items():
            values[operand] = results[output]
        results = as_results(move(values))
    return results


def looped(graph: Graph, values: Sequence[Value], carries: Mapping[int, int], reverse: bool) -> tuple[Value, ...]:
    """The same in a loop: results that are no carries are stacked, and the one of the last step is taken."""
    operands, others = list(carries.values()), [i for i in range(len(graph.outputs)) if i not in carries]
    order = [*operands, *(k for k in range(len(values)) if k not in operands)]
    builder = Builder("step")
    with building(builder):
        inputs = {k: builder.input(f"x{k}", values[k].type) for k in order}
        results = inline(
            builder, graph, dict(zip(graph.input_types, (inputs[k] for k in range(len(values))), strict=True))
        )
    step = builder.finish([results[i] for i in (*carries, *others)])
    loop_results = as_results(
        Scan(step, len(operands), len(order) - len(operands), STEPS, reverse)(*(values[k] for k in order))
    )
    last = 0 if reverse else STEPS - 1
    stacked = [reshape(Narrow(0, last, 1)(y), y.shape[1:]) for y in loop_results[len(operands) :]]
    by_output = dict(zip((*carries, *others), (*loop_results[: len(operands)], *stacked), strict=True))
    return tuple(by_output[i] for i in range(len(graph.outputs)))


def backwards(rng: np.random.Generator, part: Part) -> Part:
    """Return the part with the cotangents of its floating-point operands, some or all."""
    wrt = chosen(rng, part)
    if not wrt or not any(v.dtype.is_differentiable for v in part.graph.outputs):
        return part
    return extended(rng, part, lambda graph: vjp_graph(graph, wrt))


def along(rng: np.random.Generator, part: Part) -> Part:
    """Return the part with the tangents of its results."""
    names = chosen(rng, part)
    return extended(rng, part, lambda graph: jvp_graph(graph, names)) if names else part


def mapped(rng: np.random.Generator, part: Part) -> Part:
    """Return the part over some examples, whose floats are permutations of the first's, unless an op needs them in order."""
    axes = {name: 0 for name in part.graph.input_types if rng.random() < 0.7}
    if not axes:
        return part
    ordered = in_order(part.flat)

    def batch(name: str, array: np.ndarray) -> np.ndarray:
        others = [
            rng.permutation(array.ravel()).reshape(array.shape)
            if array.dtype.kind == "f" and name not in ordered
            else array
            for _ in range(EXAMPLES - 1)
        ]
        return np.stack([array, *others])

    fed = {name: batch(name, array) if name in axes else array for name, array in part.fed.items()}
    graph, flat = (vmap_graph(g, axes, 0, EXAMPLES) for g in (part.graph, part.flat))
    return Part(graph, flat, fed)


def in_order(graph: Graph) -> frozenset[str]:
    """Return the names of the inputs that are sorted, because an op's results depend on that."""
    inputs = {value: leaf_name(value) for value in graph.inputs}
    searched = (node.operands[0] for node in graph.nodes if isinstance(node.op, SearchSorted))
    return frozenset(inputs[value] for value in searched if value in inputs)


def chosen(rng: np.random.Generator, part: Part) -> list[str]:
    """Return some of the differentiable operands; one of them at least."""
    names = [name for name, type in part.graph.input_types.items() if type.dtype.is_differentiable]
    some = [name for name in names if rng.random() < 0.7]
    return some or names[:1]


def extended(rng: np.random.Generator, part: Part, transform: Callable[[Graph], Graph]) -> Part:
    """Both graphs transformed, with arrays for the inputs that this adds."""
    graph, flat = transform(part.graph), transform(part.flat)
    fed = dict(part.fed)
    for name, type in graph.input_types.items():
        if name not in fed:
            fed[name] = (rng.integers(-8, 9, type.static_shape) / 4).astype(type.dtype.numpy)
    return Part(graph, flat, fed)


def made(model: Graph, move: Move) -> Graph:
    """The graph of a move on the operands of another."""
    builder = Builder(model.name)
    with building(builder):
        results = as_results(move([builder.input(name, type) for name, type in model.input_types.items()]))
    return builder.finish(results)
