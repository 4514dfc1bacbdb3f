"""The laws of every op of the dense families, on every sample: types, derivatives against differences, batching.

Derivatives are taken with the transformations, so a rule that is derived is tried like one that is written. Values are held
in f64 (`wide`), which narrow dtypes do not survive: their casts round. Those are tried for type and value only.
"""

from __future__ import annotations

import zlib
from typing import Any

import numpy as np
import pytest

from rlx_core.ir.dtypes import DType
from rlx_core.ir.graph import Builder, Graph, as_results, decomposition
from rlx_core.ir.interpret import interpret
from rlx_core.ir.op import Op
from rlx_core.ir.samples import Case, Rejected, Sample, draw
from rlx_core.ir.types import TensorType
from rlx_core.ops import (
    attention,
    batch_norm,
    batch_norm_backward,
    blocks,
    einsum,
    fused,
    fused_layers,
    linalg,
    loss,
    normalization,
    normalization_backward,
    products,
    rope,
    softmax,
    solve,
)
from rlx_core.transforms.batch import vmap_graph
from rlx_core.transforms.engine import Engine
from rlx_core.transforms.jvp import jvp_graph
from rlx_core.transforms.vjp import vjp_graph

MODULES = (
    fused,
    fused_layers,
    linalg,
    products,
    einsum,
    solve,
    softmax,
    normalization,
    normalization_backward,
    batch_norm,
    batch_norm_backward,
    blocks,
    rope,
    attention,
    loss,
)
CASES = [Case(op, s) for m in MODULES for op in m.OPS for s in op.samples()]
ACCEPTED = [c for c in CASES if isinstance(c.sample, Sample)]
REJECTED = [c for c in CASES if isinstance(c.sample, Rejected)]
SMOOTH = [
    c
    for c in ACCEPTED
    if c.sample.is_smooth
    and any(t is not None and t.dtype.is_differentiable for t in c.sample.types)
    and len({t.dtype for t in c.sample.types if t is not None and t.dtype.is_differentiable}) == 1
    and not any(t is not None and t.dtype.is_narrow for t in c.sample.types)
]
STEP = 1e-6


def graph_of(case: Case) -> Graph:
    """The op alone, with one input an operand: `x0`, `x1`, …"""
    builder = Builder("case")
    types = case.sample.types
    operands = [None if t is None else builder.input(f"x{i}", t) for i, t in enumerate(types)]
    return builder.finish(as_results(case.op(**case.sample.attributes)(*operands)))


def fed(case: Case) -> dict[str, np.ndarray]:
    arrays = case.sample.arrays(case.op)
    return {f"x{i}": np.asarray(a).astype(np_wide(a)) for i, a in enumerate(arrays) if a is not None}


def np_wide(a: np.ndarray) -> Any:
    return {"f": np.float64, "c": np.complex128}.get(a.dtype.kind, a.dtype)


def random_like(case: Case, tag: str, type: TensorType) -> np.ndarray:
    rng = np.random.default_rng(zlib.crc32(f"{case!r}{tag}".encode()))
    wide: DType = type.dtype.wide
    return draw(rng, type.with_dtype(wide), -1.0, 1.0)


def pairing(u: np.ndarray, v: np.ndarray) -> float:
    """SPEC 3.0 contract 8: 2·Re Σ conj(u)·v on complex tensors, Σ u·v on real ones."""
    both = np.sum(np.conj(u) * v)
    return float(2 * both.real if np.iscomplexobj(both) else both)


def differences(graph: Graph, point: dict[str, np.ndarray], along: dict[str, np.ndarray]) -> list[np.ndarray]:
    """Central differences of all outputs along a direction: error h² and eps/h, both about 1e-10."""
    ahead, behind = ({**point, **{n: point[n] + s * STEP * t for n, t in along.items()}} for s in (1, -1))
    f, b = interpret(graph, ahead, mode="wide"), interpret(graph, behind, mode="wide")
    return [(p - m) / (2 * STEP) for p, m in zip(f, b, strict=True)]


def moving(graph: Graph) -> list[str]:
    return [n for n, t in graph.input_types.items() if t.dtype.is_differentiable]


@pytest.mark.parametrize("case", ACCEPTED, ids=repr)
class TestEverySample:
    def test_inferred_type_is_the_type_computed(self, case: Case) -> None:
        graph = graph_of(case)
        arrays = {f"x{i}": a for i, a in enumerate(case.sample.arrays(case.op)) if a is not None}
        for value, found in zip(graph.outputs, interpret(graph, arrays), strict=True):
            assert (value.dtype.numpy, value.type.static_shape) == (found.dtype, found.shape)

    def test_decomposition_has_the_inferred_types(self, case: Case) -> None:
        node = graph_of(case).outputs[0].node
        if node.op.decompose is None:
            pytest.skip("it is a primitive")
        body = decomposition(node.op, [None if v is None else v.type for v in node.operands])
        assert body.output_types == node.types

    def test_vmap_agrees_with_a_loop(self, case: Case) -> None:
        graph, point = graph_of(case), fed(case)
        if any(t is not None and t.dtype.is_narrow for t in case.sample.types):
            pytest.skip("a narrow result differs by a rounding")
        names = list(point)
        for mapped in [names, *([n] for n in names if len(names) > 1)]:
            stacked = {n: np.stack([point[n], again(case, n, point[n])]) for n in mapped}
            batched = vmap_graph(graph, dict.fromkeys(mapped, 0), 0, 2)
            found = interpret(batched, {**point, **stacked}, mode="wide")
            singles = [
                interpret(graph, {**point, **{n: s[i] for n, s in stacked.items()}}, mode="wide") for i in (0, 1)
            ]
            for y, first, second in zip(found, *singles, strict=True):
                np.testing.assert_allclose(y, np.stack([first, second]), rtol=1e-9, atol=1e-10)  # f64, sums reordered


def again(case: Case, name: str, array: np.ndarray) -> np.ndarray:
    """Another example of an operand: the same numbers in another order, so that index operands stay in range."""
    if case.sample.make is not None:
        return array * 1.25
    rng = np.random.default_rng(zlib.crc32(f"{case!r}{name}".encode()))
    return rng.permutation(array.ravel()).reshape(array.shape)


@pytest.mark.parametrize("case", SMOOTH, ids=repr)
class TestDerivatives:
    def test_vjp_of_each_operand_agrees_with_differences(self, case: Case) -> None:
        graph, point = graph_of(case), fed(case)
        names = moving(graph)
        backward = vjp_graph(graph, names)
        seeds = {n: random_like(case, n, t) for n, t in backward.input_types.items() if n not in point}
        cotangents = interpret(backward, {**point, **seeds}, mode="wide")[len(graph.outputs) :]
        for name, found in zip(names, cotangents, strict=True):
            t = random_like(case, f"t{name}", graph.input_types[name])
            slopes = differences(graph, point, {name: t})
            expected = sum(pairing(g, s) for g, s in zip(seeds.values(), slopes, strict=True))
            assert pairing(found, t) == pytest.approx(expected, rel=2e-6, abs=2e-7)

    def test_jvp_of_each_operand_agrees_with_differences(self, case: Case) -> None:
        graph, point = graph_of(case), fed(case)
        names = moving(graph)
        for wrt in [names, *([n] for n in names if len(names) > 1)]:
            forward = jvp_graph(graph, wrt)
            along = {n: random_like(case, f"t{n}", graph.input_types[n]) for n in wrt}
            tangents = {f"tangent_{n}": t for n, t in along.items()}
            found = interpret(forward, {**point, **tangents}, mode="wide")[len(graph.outputs) :]
            for t, slope in zip(found, differences(graph, point, along), strict=True):
                np.testing.assert_allclose(t, slope, rtol=2e-6, atol=2e-7)

    @pytest.mark.parametrize("kind", ["vjp", "jvp"])
    def test_own_rule_agrees_with_the_derived_rule(self, case: Case, kind: str) -> None:
        graph, point = graph_of(case), fed(case)
        op: Op = graph.outputs[0].node.op
        if op.decompose is None or getattr(op, kind) is None:
            pytest.skip("there is one rule only")
        names = moving(graph)
        engine = Engine(ignoring=frozenset({(kind, op.name)}))
        if kind == "vjp":
            own, derived = vjp_graph(graph, names), vjp_graph(graph, names, engine=engine)
        else:
            own, derived = jvp_graph(graph, names), jvp_graph(graph, names, engine=engine)
        extra = {n: random_like(case, n, t) for n, t in own.input_types.items() if n not in point}
        a, b = (interpret(g, {**point, **extra}, mode="wide") for g in (own, derived))
        for x, y in zip(a, b, strict=True):
            np.testing.assert_allclose(x, y, rtol=1e-8, atol=1e-9)  # f64 with cancellation in the projections


@pytest.mark.parametrize("case", REJECTED, ids=repr)
def test_rejection_says_what_it_promised(case: Case) -> None:
    assert isinstance(case.sample, Rejected)
    with pytest.raises(case.sample.error) as caught:
        graph_of(case)
    assert case.sample.says in caught.value.message
