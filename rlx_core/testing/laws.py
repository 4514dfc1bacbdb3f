"""The laws, each stated once. Every op, standard or a plugin's, is tried on its own samples.

A law takes a `program` (see `cases.py`) and is asked only of programs that it is about: `@about` says which. Three judges
take part and none is derived from another: the NumPy reference in float64, differences, and the op's decomposition.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, TypeVar

import numpy as np

from rlx_core.ir.dtypes import dtype
from rlx_core.ir.graph import Graph, as_results
from rlx_core.ir.interpret import stored
from rlx_core.ir.op import Op
from rlx_core.ir.parse import parse_graph
from rlx_core.ir.samples import Case
from rlx_core.ir.text import print_graph
from rlx_core.ir.types import TensorType
from rlx_core.testing.cases import Program, refusal, typed, wide
from rlx_core.testing.differences import directional, pairing, random_like
from rlx_core.testing.yardstick import precision
from rlx_core.transforms.batch import vmap_graph
from rlx_core.transforms.engine import STANDARD, Engine
from rlx_core.transforms.jvp import jvp_graph
from rlx_core.transforms.prepare import prepare
from rlx_core.transforms.vjp import vjp_graph

__all__ = ["EveryOp", "Run", "about"]

Run = Callable[[Graph, Sequence[np.ndarray]], Sequence[np.ndarray]]
"""A backend under test: the outputs of a graph on arrays in the order of its inputs."""

_F = TypeVar("_F", bound=Callable[..., None])

# Two derivations of one derivative in float64 differ by rounding only: a few thousand operations at 2**-53.
EXACT = 1e-9
# Extrapolated differences (see STEP): 1e-16 / 1e-4 from rounding, as much again from truncation at |f⁽⁵⁾| ~ 1e5.
DIFFERENCES = 1e-6
BATCH = 3


def about(predicate: Callable[[Program], bool]) -> Callable[[_F], _F]:
    """Ask a law only of programs that it is about."""

    def mark(law: _F) -> _F:
        law.is_about = predicate  # type: ignore[attr-defined]
        return law

    return mark


def runs(program: Program) -> bool:
    return program.is_static


def differentiable(program: Program) -> bool:
    return runs(program) and program.is_differentiable


def smooth(program: Program) -> bool:
    return differentiable(program) and program.sample.is_smooth and not program.is_narrow


def has_two_meanings(program: Program) -> bool:
    return (
        runs(program)
        and not program.is_narrow
        and program.op.reference is not None
        and program.op.decompose is not None
    )


def has_own_derivative(program: Program) -> bool:
    op = program.node.op
    return (
        differentiable(program)
        and not program.is_narrow
        and op.decompose is not None
        and (op.vjp is not None or op.jvp is not None)
    )


class EveryOp:
    """The laws as tests; subclass it with a name that starts with `Test`, and with `ops` to choose what it is about."""

    ops: ClassVar[Sequence[type[Op]] | None] = None

    @about(runs)
    def test_inferred_type_is_the_type_computed(self, program: Program) -> None:
        node = program.node
        arrays = typed(program.graph, program.draw())
        for found, output in zip(arrays, program.graph.outputs, strict=True):
            assert TensorType(dtype(found.dtype), found.shape) == output.type
        reference = node.op.reference
        if reference is None:
            return
        operands = [a.astype(v.dtype.accumulator.numpy) for a, v in zip(program.draw(), node.present(), strict=True)]
        with np.errstate(all="ignore"):
            results = as_results(reference(*spread(node, operands)))
        for result, type in zip(results, node.types, strict=True):
            assert_kind(np.asarray(result), type)

    @about(has_two_meanings)
    def test_decomposition_means_the_same(self, program: Program) -> None:
        program = program.widened
        arrays = program.draw()
        close(wide(decomposed(program), arrays), wide(program.graph, arrays), EXACT)

    @about(runs)
    def test_typed_result_is_close_to_the_float64_oracle(self, program: Program) -> None:
        arrays = program.draw()
        near_oracle(program.graph, typed(program.graph, arrays), wide(program.graph, arrays), arrays)

    @about(smooth)
    def test_vjp_agrees_with_finite_differences(self, program: Program) -> None:
        program = program.widened
        for name in program.differentiable:
            agrees_with_differences(program.graph, [name], program.draw(), program.rng())

    @about(differentiable)
    def test_vjp_and_jvp_are_transposes(self, program: Program) -> None:
        program = program.widened
        transposes(program.graph, program.differentiable, program.draw(), program.rng())

    @about(has_own_derivative)
    def test_own_rule_agrees_with_derived_rule(self, program: Program) -> None:
        program = program.widened
        derived = Engine(ignoring=frozenset({("vjp", program.op.name), ("jvp", program.op.name)}))
        arrays, rng = program.draw(), program.rng()
        if program.node.op.vjp is not None:
            own, other = (vjp_graph(program.graph, program.differentiable, engine=e) for e in (STANDARD, derived))
            seeds = [random_like(rng, y) for y in differentiable_outputs(program.graph, arrays)]
            close(wide(own, [*arrays, *seeds]), wide(other, [*arrays, *seeds]), EXACT)
        if program.node.op.jvp is not None:
            own, other = (jvp_graph(program.graph, program.differentiable, engine=e) for e in (STANDARD, derived))
            tangents = [random_like(rng, widened(a)) for a in chosen(program.graph, arrays, program.differentiable)]
            close(wide(own, [*arrays, *tangents]), wide(other, [*arrays, *tangents]), EXACT)

    @about(smooth)
    def test_second_derivative_agrees_with_differences_of_the_gradient(self, program: Program) -> None:
        program = program.widened
        arrays, rng = program.draw(), program.rng()
        gradient = vjp_graph(program.graph, program.differentiable)
        seeds = [random_like(rng, y) for y in differentiable_outputs(program.graph, arrays)]
        names = [n for n, t in gradient.input_types.items() if t.dtype.is_differentiable]
        agrees_with_differences(gradient, names, [*arrays, *seeds], rng)
        transposes(gradient, names, [*arrays, *seeds], rng)

    @about(differentiable)
    def test_gradient_is_close_to_its_float64_oracle(self, program: Program) -> None:
        gradient = vjp_graph(program.graph, program.differentiable)
        arrays, rng = program.draw(), program.rng()
        kinds = [o.dtype for o in program.graph.outputs if o.dtype.is_differentiable]
        seeds = [
            random_like(rng, y).astype(kind.numpy)
            for y, kind in zip(differentiable_outputs(program.graph, arrays), kinds, strict=True)
        ]
        fed = [*arrays, *seeds]
        near_oracle(gradient, typed(gradient, fed), wide(gradient, fed), fed)

    @about(runs)
    def test_vmap_agrees_with_a_loop(self, program: Program) -> None:
        program = program.widened
        names = list(program.graph.input_types)
        examples = [program.draw(variant) for variant in range(BATCH)]
        for mapped in subsets(names):
            batched = vmap_graph(program.graph, dict.fromkeys(mapped, 0), 0, BATCH)
            fed = [
                np.stack([example[i] for example in examples]) if name in mapped else examples[0][i]
                for i, name in enumerate(names)
            ]
            loop = [
                wide(program.graph, [examples[b if n in mapped else 0][i] for i, n in enumerate(names)])
                for b in range(BATCH)
            ]
            close(wide(batched, fed), [np.stack(results) for results in zip(*loop, strict=True)], EXACT)

    @about(lambda program: True)
    def test_prints_and_parses_back(self, program: Program, op_table: dict[str, type[Op]]) -> None:
        text = print_graph(program.graph)
        assert parse_graph(text, op_table) == program.graph
        assert print_graph(parse_graph(text, op_table)) == text

    def test_rejection_says_what_it_promised(self, rejected: Case) -> None:
        error = refusal(rejected)
        assert error is not None, f"{rejected} is accepted"
        sample: Any = rejected.sample
        assert isinstance(error, sample.error), f"{rejected} raises {type(error).__name__}: {error.message}"
        assert sample.says in str(error)

    @about(runs)
    def test_backend_agrees_with_the_interpreter(self, program: Program, backend: Run) -> None:
        arrays = program.draw()
        found = [np.asarray(a) for a in backend(program.graph, arrays)]
        for array, output in zip(found, program.graph.outputs, strict=True):
            assert TensorType(dtype(array.dtype), array.shape) == output.type
        near_oracle(program.graph, found, wide(program.graph, arrays), arrays)


# ------------------------------------------------------------------------------------ what the laws share


def spread(node: Any, arrays: Sequence[np.ndarray]) -> list[np.ndarray | None]:
    """One entry an operand place, `None` where an optional operand is absent."""
    given = iter(arrays)
    return [None if v is None else next(given) for v in node.operands]


def assert_kind(result: np.ndarray, type: TensorType) -> None:
    """A reference may leave rounding and wrapping to the interpreter, but nothing that changes what kind of number it is."""
    found, declared = dtype(result.dtype), type.dtype
    assert result.shape == type.static_shape
    assert found.kind == declared.kind, f"the reference gives {found}, declared is {declared}"


def decomposed(program: Program) -> Graph:
    """The program with the op replaced by its decomposition."""
    engine = Engine(ignoring=frozenset({("batch", program.op.name)}))
    return prepare(program.graph, "batch", list(program.graph.input_types), engine=engine)[0]


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
    graph: Graph, names: Sequence[str], arrays: Sequence[np.ndarray], rng: np.random.Generator
) -> None:
    """<cotangent, J·u> by differences equals <Jᵀ·cotangent, u> by the rule, for random directions and cotangents."""
    at = [widened(a) for a in arrays]
    along = [
        random_like(rng, a) if n in names else np.zeros_like(a) for n, a in zip(graph.input_types, at, strict=True)
    ]
    moved = directional(lambda x: differentiable_outputs(graph, x), at, along)
    seeds = [random_like(rng, y) for y in moved]
    count = len(graph.outputs)
    cotangents = wide(vjp_graph(graph, names), [*at, *seeds])[count:]
    found = pairing(cotangents, chosen(graph, along, names))
    wanted = pairing(seeds, moved)
    # The pairing sums terms of both signs: the error is measured against the sum of their sizes.
    size = 1 + sum(float(np.sum(np.abs(s) * np.abs(m))) for s, m in zip(seeds, moved, strict=True))
    assert abs(found - wanted) <= DIFFERENCES * size, f"{names}: the rule says {found}, differences say {wanted}"


def transposes(graph: Graph, names: Sequence[str], arrays: Sequence[np.ndarray], rng: np.random.Generator) -> None:
    """<g, J·t> by the JVP equals <Jᵀ·g, t> by the VJP."""
    count = len(graph.outputs)
    tangents = [random_like(rng, widened(a)) for a in chosen(graph, arrays, names)]
    forward = wide(jvp_graph(graph, names), [*arrays, *tangents])[count:]
    pushed = [t for t, v in zip(forward, graph.outputs, strict=True) if v.dtype.is_differentiable]
    seeds = [random_like(rng, t) for t in pushed]
    pulled = wide(vjp_graph(graph, names), [*arrays, *seeds])[count:]
    found, wanted = pairing(pulled, tangents), pairing(seeds, pushed)
    size = 1 + sum(float(np.sum(np.abs(s) * np.abs(t))) for s, t in zip(seeds, pushed, strict=True))
    assert abs(found - wanted) <= EXACT * size, f"{names}: <vjp(g), t> = {found}, <g, jvp(t)> = {wanted}"


def close(found: Sequence[np.ndarray], wanted: Sequence[np.ndarray], tolerance: float) -> None:
    """Equal integers, and floats equal relative to the largest element (below 1e-6, to that)."""
    assert len(found) == len(wanted)
    for a, b in zip(found, wanted, strict=True):
        assert a.shape == b.shape
        if not dtype(b.dtype).is_differentiable:
            np.testing.assert_array_equal(a, b)
            continue
        np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance * max(largest([b]), 1e-6))


def near_oracle(
    graph: Graph, found: Sequence[np.ndarray], oracle: Sequence[np.ndarray], fed: Sequence[np.ndarray]
) -> None:
    """Each result is the oracle's to the accuracy of the narrowest float on the way.

    The model: k roundings of size ε relative to the largest number in sight, and sums of n terms that lose √n of them.
    """
    floats = [t.dtype for n in graph.nodes for t in n.types if t.dtype.is_differentiable]
    epsilon = max((precision(d) for d in floats), default=0.0)
    terms = max([int(np.prod(t.static_shape)) for n in graph.nodes for t in n.types] + [1])
    roundings = 8 + len(graph.nodes)
    for a, b in zip(found, oracle, strict=True):
        assert a.shape == b.shape
        if not dtype(b.dtype).is_differentiable:
            np.testing.assert_array_equal(a, b)
            continue
        scale = max(1.0, largest([b]), largest([x for x in fed if dtype(x.dtype).is_differentiable]))
        np.testing.assert_allclose(
            widened(a), b, rtol=roundings * epsilon, atol=roundings * epsilon * scale * float(np.sqrt(terms))
        )


def largest(arrays: Sequence[np.ndarray]) -> float:
    """The largest finite magnitude."""
    sizes = [np.abs(widened(a))[np.isfinite(widened(a))] for a in arrays]
    return max((float(s.max()) for s in sizes if s.size), default=0.0)
