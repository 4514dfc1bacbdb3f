"""The laws of an op's semantics: types, references, decompositions, sizes, axes, batches."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from rlx_core.errors import RlxError
from rlx_core.ir.dtypes import dtype
from rlx_core.ir.graph import Graph, Node, Value, as_results
from rlx_core.ir.rewrite import rebuild
from rlx_core.ir.types import TensorType, listed
from rlx_core.passes.engine.splice import draft
from rlx_core.testing.about import EVERY, about, differentiable, has_loop_form, has_two_meanings, runs
from rlx_core.testing.cases import OpProgram, typed, wide
from rlx_core.testing.differences import random_like
from rlx_core.testing.judges import (
    EXACT,
    chosen,
    close,
    decomposed,
    differentiable_outputs,
    near_oracle,
    spread,
    subsets,
)
from rlx_core.testing.symbolic import Generalized, generalized
from rlx_core.testing.variants import has_axis, with_negative_axes
from rlx_core.testing.yardstick import precision
from rlx_core.transforms.batch import vmap_graph
from rlx_core.transforms.jvp import jvp_graph
from rlx_core.transforms.vjp import vjp_graph

ROUNDINGS = 8
"""Number of roundings of constants that a derivative in a narrow dtype may show."""
BATCH = 3
OTHER_BATCHES = (1, 5)
"""Further batch sizes that are tried, with every operand mapped."""


class Meaning:
    """One value computed in several ways: by inference, by the reference, in other dtypes, with symbolic sizes, in a batch."""

    @about(runs, variants=EVERY)
    def test_inferred_type_is_the_type_computed(self, program: OpProgram) -> None:
        node, arrays = program.node, program.draw()
        for array, output in zip(typed(program.graph, arrays), program.graph.outputs, strict=True):
            computed = TensorType(dtype(array.dtype), array.shape)
            assert computed == output.type, f"infer says {output.type}, computed is {computed}"
        for result, type in zip(referred(program), node.types, strict=False):
            assert_kind(result, type, node)

    @about(runs)
    def test_reference_leaves_its_operands_alone(self, program: OpProgram) -> None:
        reference = program.node.op.reference
        if reference is None:
            return
        operands = accumulating(program)
        copies = [None if a is None else a.copy() for a in operands]
        results = refer(reference, operands)
        for i, (now, before) in enumerate(zip(operands, copies, strict=True)):
            assert now is None or same_bits(now, before), f"the reference overwrites operand {i}; write to a new array"
        if program.op.view is None and program.op.category != "movement":
            for r, result in enumerate(results):
                is_shared = any(a is not None and a.size and np.shares_memory(result, a) for a in operands)
                assert not is_shared, (
                    f"the reference returns an operand, or a view of one, as result {r}: who writes to the result would change"
                    " the operand; copy it, or declare the op a `view`"
                )
        again = refer(reference, copies)
        assert all(same_bits(a, b) for a, b in zip(results, again, strict=True)) or not program.op.is_pure, (
            "the reference gives other results the second time, on equal operands"
        )

    @about(has_two_meanings, rules=["decompose"], widens=True, variants=["size", "rank", "broadcasting"])
    def test_decomposition_means_the_same(self, program: OpProgram) -> None:
        program = program.widened
        arrays = program.draw()
        what = "the decomposition means something else than the reference"
        close(wide(decomposed(program), arrays), wide(program.graph, arrays), EXACT, what)

    @about(has_loop_form, variants=EVERY)
    def test_loop_form_means_the_same(self, program: OpProgram) -> None:
        node, arrays = program.node, program.draw()
        form: Any = node.op.loop_form
        drafted = draft(partial(form, *node.operands), node.op.name)
        assert drafted is not None, "the form in loops is None"
        assert drafted.types == node.types, f"the form in loops is {listed(drafted.types)}, not {listed(node.types)}"

        def replace(each: Node, operands: tuple[Value | None, ...]) -> Sequence[Value] | None:
            return as_results(form(*operands)) if each is node else None

        graph, _ = rebuild(program.graph, replace, by="loop form")
        near_oracle(program.graph, typed(graph, arrays), wide(program.graph, arrays), arrays)

    @about(runs, variants=["dtype", "size"])
    def test_typed_result_is_close_to_the_float64_oracle(self, program: OpProgram) -> None:
        arrays = program.draw()
        near_oracle(program.graph, typed(program.graph, arrays), wide(program.graph, arrays), arrays)

    @about(differentiable, rules=["vjp", "jvp", "batch", "decompose"], variants=["dtype"])
    def test_rules_are_the_same_in_every_dtype(self, program: OpProgram) -> None:
        other = program.widened
        if other is program or [t.dtype.wide for t in program.node.types] != [t.dtype for t in other.node.types]:
            return  # the dtype is part of the op's semantics
        arrays, engine = program.draw(), program.engine
        where = f"in {program.node.operand_types[0]} differs from that in f64 by more than rounding"
        near_oracle(
            program.graph, wide(program.graph, arrays), wide(other.graph, arrays), arrays, f"the meaning {where}"
        )
        seeds = [random_like(program.rng(), y) for y in differentiable_outputs(program.graph, arrays)]
        graphs = [vjp_graph(p.graph, p.differentiable, engine=engine) for p in (program, other)]
        fed = [*arrays, *seeds]
        near_oracle(graphs[0], wide(graphs[0], fed), wide(graphs[1], fed), fed, f"the gradient by vjp {where}")
        graphs = [jvp_graph(p.graph, p.differentiable, engine=engine) for p in (program, other)]
        fed = [*arrays, *(random_like(program.rng(), a) for a in chosen(program.graph, arrays, program.differentiable))]
        # Both are evaluated in float64, so the constants of the rule alone are rounded to the dtype.
        rounding = ROUNDINGS * max(precision(v.dtype) for v in program.graph.inputs if v.dtype.is_differentiable)
        close(wide(graphs[0], fed), wide(graphs[1], fed), rounding, f"the tangent by jvp {where}")
        names = list(program.graph.input_types)
        graphs = [vmap_graph(p.graph, dict.fromkeys(names, 0), 0, 1, engine=engine) for p in (program, other)]
        fed = [a[None] for a in arrays]
        near_oracle(graphs[0], wide(graphs[0], fed), wide(graphs[1], fed), fed, f"the batch rule {where}")

    @about(runs, rules=["vjp", "batch", "decompose"], widens=True)
    def test_symbolic_sizes_mean_the_same(self, program: OpProgram) -> None:
        if (general := generalized(program)) is None:
            return  # every size is 0 or 1, or the op refuses symbols with a typed error
        for sizes in general.bindings:
            means_the_same(general, sizes, program)

    @about(has_axis)
    def test_negative_axis_means_the_same(self, program: OpProgram) -> None:
        expected = wide(program.graph, program.draw())
        accepted = list(with_negative_axes(program))
        meanings = [wide(other.graph, program.draw()) for other in accepted]
        assert not accepted or any(equal(actual, expected) for actual in meanings), (
            f"{' and '.join(map(repr, accepted))} mean something else than {program!r}: take negative axes with"
            " `normalize_axis`, or refuse them with an AxisError"
        )

    @about(runs, rules=["batch", "decompose"], widens=True, variants=["rank", "broadcasting"])
    def test_vmap_agrees_with_a_loop(self, program: OpProgram) -> None:
        program = program.widened
        names = list(program.graph.input_types)
        for mapped, size in [*((each, BATCH) for each in subsets(names)), *((tuple(names), n) for n in OTHER_BATCHES)]:
            if not mapped:
                continue
            examples = [program.draw(variant) for variant in range(size)]
            batched = vmap_graph(program.graph, dict.fromkeys(mapped, 0), 0, size, engine=program.engine)
            fed = [
                np.stack([example[i] for example in examples]) if name in mapped else examples[0][i]
                for i, name in enumerate(names)
            ]
            loop = [
                wide(program.graph, [examples[b if n in mapped else 0][i] for i, n in enumerate(names)])
                for b in range(size)
            ]
            what = f"vmap over {', '.join(mapped)} differs from a loop over the examples, of which there are {size}"
            close(wide(batched, fed), [np.stack(results) for results in zip(*loop, strict=True)], EXACT, what)


def means_the_same(general: Generalized, sizes: dict[str, int], program: OpProgram) -> None:
    """Require that type, value, decomposition, gradient and batch with symbols, bound to sizes, are those without."""
    static = general.at(sizes)
    if static is None:
        return  # the op refuses these sizes
    where = f"with symbols for sizes ({', '.join(f'{n} = {s}' for n, s in sizes.items())})"
    for declared, output in zip(general.outputs(sizes), static.graph.outputs, strict=True):
        assert declared == output.type, (
            f"infer {where} says {declared}, without symbols {output.type}: a size was taken for a number"
        )
    arrays, engine, names = static.draw(), program.engine, list(static.graph.input_types)
    agree(general.graph, static.graph, arrays, f"the meaning {where} is another")
    if engine.rule(program.node.op, "decompose") is not None:
        graphs = attempt(lambda g: decomposed(program, g), general.graph, static.graph)
        agree(*graphs, arrays, f"the decomposition {where} is another")
    if static.is_differentiable and (program.rule != "batch"):
        seeds = [random_like(static.rng(), y) for y in differentiable_outputs(static.graph, arrays)]
        graphs = attempt(lambda g: vjp_graph(g, static.differentiable, engine=engine), general.graph, static.graph)
        agree(*graphs, [*arrays, *seeds], f"the gradient {where} is another")
    if names and (program.rule != "vjp"):
        stacked = [np.stack([a, a]) for a in arrays]
        graphs = attempt(lambda g: vmap_graph(g, 0, 0, 2, engine=engine), general.graph, static.graph)
        agree(*graphs, stacked, f"the batch rule {where} gives something else")


def attempt(transform: Any, *graphs: Graph) -> tuple[Graph | None, Graph | None]:
    """The graphs transformed; none where the one with symbols is refused with a typed error."""
    try:
        return transform(graphs[0]), transform(graphs[1])
    except RlxError:
        return None, None


def agree(general: Graph | None, static: Graph | None, arrays: Sequence[np.ndarray], what: str) -> None:
    if general is None or static is None:
        return
    try:
        actual = wide(general, arrays)
    except RlxError:
        return  # a guard that these sizes break
    close(actual, wide(static, arrays), EXACT, what)


# ------------------------------------------------------------------------------------------ references


def accumulating(program: OpProgram) -> list[np.ndarray | None]:
    """Return the operands as a reference gets them: narrow floats in f32, and each in separate memory."""
    arrays = [a.astype(v.dtype.accumulator.numpy) for a, v in zip(program.draw(), program.node.present(), strict=False)]
    return spread(program.node, arrays)


def refer(reference: Any, operands: Sequence[np.ndarray | None]) -> list[np.ndarray]:
    with np.errstate(all="ignore"):
        return [np.asarray(r) for r in as_results(reference(*operands))]


def referred(program: OpProgram) -> list[np.ndarray]:
    """Return the results of the op's own reference; empty if it has none."""
    reference = program.node.op.reference
    return [] if reference is None else refer(reference, accumulating(program))


def assert_kind(result: np.ndarray, type: TensorType, node: Node) -> None:
    """A reference may leave rounding and wrapping to the interpreter, but must return the declared kind of number.

    Nor may a type lose the digits that an operand has and the reference keeps, unless an attribute requests that.
    """
    operands = node.operand_types
    computed, declared = dtype(result.dtype), type.dtype
    assert list(result.shape) == list(type.static_shape), (
        f"the reference gives {list(result.shape)}, declared is {type}"
    )
    assert computed.kind == declared.kind, f"the reference gives {computed}, declared is {declared}"
    widths = [t.dtype.component.itemsize for t in operands if t is not None and t.dtype.is_differentiable]
    is_asked = declared in node.op.attributes().values()
    loses = computed.is_differentiable and declared.component.itemsize < min(widths, default=0) and not is_asked
    assert not loses or computed.itemsize <= declared.accumulator.itemsize, (
        f"the reference gives {computed} for {', '.join(map(str, operands))}, and infer declares {declared}: digits are lost"
    )


def same_bits(a: np.ndarray | None, b: np.ndarray | None) -> bool:
    if a is None or b is None:
        return a is b
    return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()


def equal(actual: Sequence[np.ndarray], expected: Sequence[np.ndarray]) -> bool:
    return len(actual) == len(expected) and all(
        a.shape == b.shape and np.array_equal(a, b, equal_nan=a.dtype.kind in "fc")
        for a, b in zip(actual, expected, strict=True)
    )
