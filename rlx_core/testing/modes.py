"""Whether both modes of differentiation say the same of a whole program: ⟨g, J·t⟩ forwards is ⟨Jᵀ·g, t⟩ backwards.

No rule is compared with itself: loops, branches and batches are gone through by other code in either direction.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from rlx_core.errors import MissingRuleError
from rlx_core.ir.graph import Graph
from rlx_core.ir.interpret import interpret
from rlx_core.testing.differences import pairing, random_like
from rlx_core.transforms.jvp import jvp_graph
from rlx_core.transforms.vjp import vjp_graph

SHARE = 1e-8
"""Tolerance relative to the summed magnitudes, in float64: programs multiply roundings by up to 512 before they are dropped."""


def mode_complaint(graph: Graph, fed: Mapping[str, np.ndarray], seed: int) -> str | None:
    """Return the difference of the two modes, in one line; `None` if they agree, or if one of them has no rule for an op."""
    names = [n for n, t in {**graph.input_types, **graph.param_types}.items() if t.dtype.is_differentiable]
    smooth = [i for i, v in enumerate(graph.outputs) if v.dtype.is_differentiable]
    if not names or not smooth:
        return None
    try:
        forwards, backwards = jvp_graph(graph, names), vjp_graph(graph, names)
    except MissingRuleError:
        return None
    rng, count = np.random.default_rng(abs(seed)), len(graph.outputs)
    arrays = {name: np.asarray(a, widest(a)) if name in names else a for name, a in fed.items()}
    tangents = [random_like(rng, arrays[name]) for name in names]
    results = interpret(forwards, with_new(forwards, arrays, tangents), mode="wide")
    pushed = [results[count + i] for i in smooth]
    seeds = [random_like(rng, t) for t in pushed]
    pulled = interpret(backwards, with_new(backwards, arrays, seeds), mode="wide")[count:]
    actual, expected = pairing(pulled, tangents), pairing(seeds, pushed)
    if not np.isfinite(actual) or not np.isfinite(expected):
        return None  # a value at which a derivative is infinite
    size = sum(
        float(np.sum(np.abs(a) * np.abs(b)))
        for a, b in (*zip(seeds, pushed, strict=True), *zip(pulled, tangents, strict=True))
    )
    if abs(actual - expected) <= SHARE * (1e-6 + size):
        return None
    return f"vjp and jvp are not transposes: ⟨vjp(g), t⟩ = {actual:.9g}, ⟨g, jvp(t)⟩ = {expected:.9g}"


def widest(array: np.ndarray) -> np.dtype[np.float64] | np.dtype[np.complex128]:
    return np.dtype(np.complex128) if np.iscomplexobj(array) else np.dtype(np.float64)


def with_new(graph: Graph, fed: Mapping[str, np.ndarray], arrays: list[np.ndarray]) -> dict[str, np.ndarray]:
    """`fed`, and arrays for the inputs that a transformation added, in their order."""
    added = [name for name in graph.input_types if name not in fed]
    return {**fed, **dict(zip(added, arrays, strict=True))}
