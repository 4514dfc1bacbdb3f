"""Comparisons for the laws: tolerances of results, derivatives by differences, and the test for transposes.

Every judge describes the failure in words, because its reader wrote an op and does not know the laws.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from attrs import evolve

from rlx_core.errors import MissingRuleError
from rlx_core.ir.dtypes import dtype
from rlx_core.ir.graph import Graph
from rlx_core.ir.interpret import interpret, stored
from rlx_core.testing.cases import OpProgram, wide
from rlx_core.testing.differences import directional, pairing, random_like
from rlx_core.testing.yardstick import precision
from rlx_core.transforms.engine import STANDARD, Engine
from rlx_core.transforms.jvp import jvp_graph
from rlx_core.transforms.prepare import prepare
from rlx_core.transforms.vjp import vjp_graph

EXACT = 1e-9
"""Two derivations of one value in float64 differ by rounding only: a few thousand operations at 2**-53."""
DIFFERENCES = 1e-6
"""Extrapolated differences (see STEP): 1e-16 / 1e-4 from rounding, as much again from truncation at |f⁽⁵⁾| ~ 1e5."""
MODES = 1e-8
"""Of the summed magnitudes: whole programs multiply roundings by up to 512 before they are dropped."""


def spread(node: Any, arrays: Sequence[np.ndarray]) -> list[np.ndarray | None]:
    """One entry an operand place, `None` where an optional operand is absent."""
    remaining = iter(arrays)
    return [None if v is None else next(remaining) for v in node.operands]


def decomposed(program: OpProgram, graph: Graph | None = None) -> Graph:
    """The program (or `graph`, another program of its op) with the op replaced by its decomposition."""
    engine = evolve(program.engine, ignoring=frozenset({("batch", program.op.name)}))
    graph = program.graph if graph is None else graph
    return prepare(graph, "batch", list(graph.input_types), engine=engine)[0]


def subsets(names: Sequence[str]) -> list[tuple[str, ...]]:
    """Every non-empty choice of up to three operands; of more, each alone and all."""
    if len(names) <= 3:
        return [c for n in range(1, len(names) + 1) for c in itertools.combinations(names, n)]
    return [*((n,) for n in names), tuple(names)]


def widened(array: np.ndarray) -> np.ndarray:
    return array.astype(stored(dtype(array.dtype), "wide").numpy)


def chosen(graph: Graph, arrays: Sequence[np.ndarray], names: Sequence[str]) -> list[np.ndarray]:
    return [a for n, a in zip(graph.input_types, arrays, strict=True) if n in names]


def differentiable_outputs(graph: Graph, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
    return [a for a, v in zip(wide(graph, arrays), graph.outputs, strict=True) if v.dtype.is_differentiable]


def agrees_with_differences(
    graph: Graph,
    names: Sequence[str],
    arrays: Sequence[np.ndarray],
    rng: np.random.Generator,
    *,
    engine: Engine = STANDARD,
) -> None:
    """<cotangent, J·u> by differences equals <Jᵀ·cotangent, u> by the rule, for random directions and cotangents."""
    point = [widened(a) for a in arrays]
    along = [
        random_like(rng, a) if n in names else np.zeros_like(a) for n, a in zip(graph.input_types, point, strict=True)
    ]
    with np.errstate(invalid="ignore"):
        moved = directional(lambda x: differentiable_outputs(graph, x), point, along)
    # Nothing has a derivative where it is infinite or NaN: the mean of no elements, say.
    seeds = [np.where(np.isfinite(y), random_like(rng, y), 0) for y in moved]
    moved = [np.where(np.isfinite(y), y, 0) for y in moved]
    count = len(graph.outputs)
    cotangents = wide(vjp_graph(graph, names, engine=engine), [*point, *seeds])[count:]
    actual = pairing(cotangents, chosen(graph, along, names))
    expected = pairing(seeds, moved)
    # The pairing sums terms of both signs: the error is measured against the sum of their sizes.
    size = 1 + sum(float(np.sum(np.abs(s) * np.abs(m))) for s, m in zip(seeds, moved, strict=True))
    assert abs(actual - expected) <= DIFFERENCES * size, (
        f"the derivative with respect to {', '.join(names)} is {actual:.10g} by the vjp rule and {expected:.10g} by differences"
        " (where the function has a kink, say is_smooth=False in the sample, or draw from another range)"
    )


def transposes(
    graph: Graph,
    names: Sequence[str],
    arrays: Sequence[np.ndarray],
    rng: np.random.Generator,
    *,
    engine: Engine = STANDARD,
) -> None:
    """<g, J·t> by the JVP equals <Jᵀ·g, t> by the VJP."""
    fed = dict(zip(graph.input_types, arrays, strict=True))
    tangents, seeds, pushed, pulled = both_modes(graph, names, fed, rng, engine=engine)
    actual, expected = pairing(pulled, tangents), pairing(seeds, pushed)
    size = 1 + sum(float(np.sum(np.abs(s) * np.abs(t))) for s, t in zip(seeds, pushed, strict=True))
    assert abs(actual - expected) <= EXACT * size, (
        f"vjp and jvp with respect to {', '.join(names)} are not transposes: <vjp(g), t> = {actual}, <g, jvp(t)> = {expected}"
    )


def mode_complaint(graph: Graph, fed: Mapping[str, np.ndarray], seed: int) -> str | None:
    """Return the difference of the two modes for a whole program, in one line; `None` if they agree, or one of them has no rule
    for an op.

    No rule is compared with itself: loops, branches and batches are gone through by other code in either direction.
    """
    names = [n for n, t in {**graph.input_types, **graph.param_types}.items() if t.dtype.is_differentiable]
    if not names or not any(v.dtype.is_differentiable for v in graph.outputs):
        return None
    try:
        tangents, seeds, pushed, pulled = both_modes(graph, names, fed, np.random.default_rng(abs(seed)))
    except MissingRuleError:
        return None
    actual, expected = pairing(pulled, tangents), pairing(seeds, pushed)
    if not np.isfinite(actual) or not np.isfinite(expected):
        return None  # a value at which a derivative is infinite
    size = sum(
        float(np.sum(np.abs(a) * np.abs(b)))
        for a, b in (*zip(seeds, pushed, strict=True), *zip(pulled, tangents, strict=True))
    )
    if abs(actual - expected) <= MODES * (1e-6 + size):
        return None
    return f"vjp and jvp are not transposes: ⟨vjp(g), t⟩ = {actual:.9g}, ⟨g, jvp(t)⟩ = {expected:.9g}"


def both_modes(
    graph: Graph,
    names: Sequence[str],
    fed: Mapping[str, np.ndarray],
    rng: np.random.Generator,
    *,
    engine: Engine = STANDARD,
) -> tuple[list[np.ndarray], list[np.ndarray], list[np.ndarray], list[np.ndarray]]:
    """Return random tangents t and cotangents g, and what J·t and Jᵀ·g are by the rules of either mode, in float64.

    Raises:
        MissingRuleError: An op has no rule for a mode.
    """
    forwards, backwards = jvp_graph(graph, names, engine=engine), vjp_graph(graph, names, engine=engine)
    count = len(graph.outputs)
    tangents = [random_like(rng, widened(fed[name])) for name in names]
    results = interpret(forwards, with_new(forwards, fed, tangents), mode="wide")[count:]
    pushed = [t for t, v in zip(results, graph.outputs, strict=True) if v.dtype.is_differentiable]
    seeds = [random_like(rng, t) for t in pushed]
    pulled = interpret(backwards, with_new(backwards, fed, seeds), mode="wide")[count:]
    return tangents, seeds, pushed, list(pulled)


def with_new(graph: Graph, fed: Mapping[str, np.ndarray], arrays: Sequence[np.ndarray]) -> dict[str, np.ndarray]:
    """`fed`, and arrays for the inputs that a transformation added, in their order."""
    added = [name for name in graph.input_types if name not in fed]
    return {**fed, **dict(zip(added, arrays, strict=True))}


def close(actual: Sequence[np.ndarray], expected: Sequence[np.ndarray], tolerance: float, what: str) -> None:
    """Equal integers, and floats equal relative to the largest element (below 1e-6, to that).

    Args:
        what: The meaning of a difference, for the message.
    """
    assert len(actual) == len(expected), f"{what}: {len(actual)} results, not {len(expected)}"
    for a, b in zip(actual, expected, strict=True):
        assert a.shape == b.shape, f"{what}: a result has shape {list(a.shape)}, not {list(b.shape)}"
        if not dtype(b.dtype).is_differentiable:
            near(a, b, 0.0, 0.0, what)
            continue
        near(a, b, tolerance, tolerance * max(largest([b]), 1e-6), what)


def near_oracle(
    graph: Graph,
    actual: Sequence[np.ndarray],
    oracle: Sequence[np.ndarray],
    fed: Sequence[np.ndarray],
    what: str = "the result differs from the float64 oracle",
) -> None:
    """Each result is the oracle's to the accuracy of the narrowest float that goes in or comes out.

    The model: k roundings of size ε relative to the largest number in sight, and sums of n terms that lose √n of them.
    """
    floats = [v.dtype for v in (*graph.inputs, *graph.outputs) if v.dtype.is_differentiable]
    epsilon = max((precision(d) for d in floats), default=0.0)
    sizes = [t.static_shape for n in graph.nodes for t in n.types if t.is_static]
    terms = max([int(np.prod(shape)) for shape in sizes] + [1])
    roundings = 8 + len(graph.nodes)
    assert len(actual) == len(oracle), f"{what}: {len(actual)} results, not {len(oracle)}"
    for a, b in zip(actual, oracle, strict=True):
        assert a.shape == b.shape, f"{what}: a result has shape {list(a.shape)}, not {list(b.shape)}"
        if not dtype(b.dtype).is_differentiable:
            near(a, b, 0.0, 0.0, what)
            continue
        scale = max(1.0, largest([b]), largest([x for x in fed if dtype(x.dtype).is_differentiable]))
        atol = roundings * epsilon * scale * float(np.sqrt(terms))
        near(widened(a), b, roundings * epsilon, atol, what)


def near(actual: np.ndarray, expected: np.ndarray, rtol: float, atol: float, what: str) -> None:
    """Require that each element equals the expected one within the tolerance; NaN is NaN, and an infinity itself.

    Args:
        what: The meaning of a difference: the message begins with it.
    """
    with np.errstate(all="ignore"):
        is_near = (actual == expected) | ((actual != actual) & (expected != expected))
        if rtol or atol:
            is_near |= np.abs(actual - expected) <= atol + rtol * np.abs(np.where(np.isfinite(expected), expected, 0))
    if not np.all(is_near):
        first = tuple(int(i) for i in np.argwhere(~np.atleast_1d(is_near))[0])[: actual.ndim]
        raise AssertionError(
            f"{what}: element {list(first)} is {actual[first]}, not {expected[first]}; {int(np.sum(~is_near))} of {is_near.size}"
            f" elements differ by more than {rtol:.2g} of themselves and {atol:.2g}"
        )


def largest(arrays: Sequence[np.ndarray]) -> float:
    """The largest finite magnitude."""
    sizes = [np.abs(widened(a))[np.isfinite(widened(a))] for a in arrays]
    return max((float(s.max()) for s in sizes if s.size), default=0.0)
