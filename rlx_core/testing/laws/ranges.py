"""The laws of inputs that samples leave out: tails, special values, many elements, and gradients in a batch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np
from attrs import evolve

from rlx_core.ops.samples import Case, Sample
from rlx_core.testing.about import about, differentiable, has_own_derivative, has_two_meanings
from rlx_core.testing.cases import OpProgram, wide
from rlx_core.testing.differences import random_like
from rlx_core.testing.judges import EXACT, close, decomposed, differentiable_outputs, transposes
from rlx_core.testing.variants import replaced
from rlx_core.transforms.batch import vmap_graph
from rlx_core.transforms.vjp import vjp_graph

DEFAULT_RANGE: Final = (-2.0, 2.0)
TAILS: Final = ((3.0, 12.0), (-12.0, -3.0), (12.0, 40.0), (-40.0, -12.0))
"""Each is drawn in a separate array: results are compared relative to the largest, which would hide an error next to it."""
SPECIAL: Final = (np.nan, np.inf, -np.inf, 0.0, -0.0, 3.5, -7.25, 30.0, -30.0, 2.0**-1040)
MIN_MANY: Final = 2**16 + 1
"""Minimum number of elements of an operand for the law of large operands: more than 16 bits count."""
MAX_MANY: Final = 2**19
"""Maximum number of elements of all values of a program there: products of large operands take minutes."""
BATCH: Final = 3


class Ranges:
    """The definition of an op is valid for all values, not only for the ranges of its samples."""

    @about(has_two_meanings, rules=["decompose"], widens=True)
    def test_decomposition_means_the_same_in_the_tails(self, program: OpProgram) -> None:
        for tail in tails(program.widened):
            arrays = tail.draw()
            what = f"with operands in {tail.sample.low:g}..{tail.sample.high:g} the decomposition differs from the reference"
            close(wide(decomposed(tail), arrays), wide(tail.graph, arrays), EXACT, what)

    @about(has_two_meanings, rules=["decompose"], widens=True)
    def test_decomposition_means_the_same_at_special_values(self, program: OpProgram) -> None:
        program = program.widened
        if program.op.category not in ("elementwise", "movement") or program.sample.make is not None:
            return  # sums of infinities depend on the order of their terms
        for number in range(2):
            arrays = [special(program.rng(), a, number) for a in program.draw()]
            actual, expected = wide(decomposed(program), arrays), wide(program.graph, arrays)
            what = "at NaN, infinities and zeros the decomposition differs from the reference"
            close(actual, expected, EXACT, what)
            for a, b in zip(actual, expected, strict=True):
                if a.dtype.kind == "f":
                    is_other = (a == 0) & (b == 0) & (np.signbit(a) != np.signbit(b))
                    assert not is_other.any(), f"{what}: a zero has the other sign"

    @about(has_two_meanings, rules=["decompose"], widens=True)
    def test_decomposition_means_the_same_of_many_elements(self, program: OpProgram) -> None:
        if (large := enlarged(program.widened)) is not None:
            arrays = large.draw()
            what = f"of more than 2**16 elements ({large!r}) the decomposition differs from the reference"
            close(wide(decomposed(large), arrays), wide(large.graph, arrays), EXACT, what)

    @about(has_own_derivative, rules=["vjp", "jvp", "decompose"], widens=True)
    def test_derivatives_agree_in_the_tails(self, program: OpProgram) -> None:
        engine, op = program.engine, program.node.op
        derived = evolve(engine, ignoring=frozenset({("vjp", op.name), ("jvp", op.name)}))
        for tail in tails(program.widened):
            where = f"with operands in {tail.sample.low:g}..{tail.sample.high:g}"
            arrays, rng = tail.draw(), tail.rng()
            seeds = [random_like(rng, y) for y in differentiable_outputs(tail.graph, arrays)]
            actual, expected = (vjp_graph(tail.graph, tail.differentiable, engine=e) for e in (engine, derived))
            what = f"{where} the vjp rule differs from what follows from the decomposition"
            close(wide(actual, [*arrays, *seeds]), wide(expected, [*arrays, *seeds]), EXACT, what)
            if all(np.isfinite(a).all() for a in wide(actual, [*arrays, *seeds])):
                try:
                    transposes(tail.graph, tail.differentiable, arrays, rng, engine=engine)
                except AssertionError as error:
                    error.add_note(where)
                    raise

    @about(differentiable, rules=["vjp", "batch", "decompose"], widens=True)
    def test_vmap_of_the_gradient_agrees_with_a_loop(self, program: OpProgram) -> None:
        program, examples = program.widened, []
        gradient, rng = vjp_graph(program.graph, program.differentiable, engine=program.engine), program.rng()
        for number in range(BATCH):
            arrays = program.draw(number)
            examples.append([*arrays, *(random_like(rng, y) for y in differentiable_outputs(program.graph, arrays))])
        batched = vmap_graph(gradient, dict.fromkeys(gradient.input_types, 0), 0, BATCH, engine=program.engine)
        actual = wide(batched, [np.stack(each) for each in zip(*examples, strict=True)])
        loop = zip(*(wide(gradient, example) for example in examples), strict=True)
        what = "vmap of the gradient differs from a loop over the examples"
        close(actual, [np.stack(results) for results in loop], EXACT, what)


def tails(program: OpProgram) -> Iterator[OpProgram]:
    """Yield the program with operands from other ranges; nothing where the author chose the range, maybe the whole domain."""
    sample = program.sample
    if sample.make is None and not sample.ranges and (sample.low, sample.high) == DEFAULT_RANGE:
        for low, high in TAILS:
            ranged = Sample(*sample.types, low=low, high=high, is_smooth=sample.is_smooth, **sample.attributes)
            tail = evolve(program, case=evolve(program.case, sample=ranged))
            if tail.failure is None:
                yield tail


def special(rng: np.random.Generator, array: np.ndarray, number: int) -> np.ndarray:
    """An array of special values in another order for each number; integers and complex numbers as they are."""
    if array.dtype.kind != "f":
        return array
    table = np.roll(np.array(SPECIAL), 5 * number)
    return rng.permutation(np.resize(table, array.size)).reshape(array.shape).astype(array.dtype)


def enlarged(program: OpProgram) -> OpProgram | None:
    """The program with one size so large that an operand has more than 2**16 elements; `None` where the op takes none."""
    sample = program.sample
    if sample.make is not None:
        return None
    static = [t for t in sample.types if t is not None and t.is_static]
    for size in dict.fromkeys(d for t in static for d in t.static_shape if d > 1):
        others = max(int(np.prod(t.static_shape)) // size for t in static if size in t.static_shape)
        types = replaced(sample.types, size, -(-MIN_MANY // max(others, 1)))
        large = OpProgram(Case(program.op, sample.with_types(types)), program.rule)
        if sum(int(np.prod(t.static_shape)) for t in types if t is not None) > MAX_MANY:
            continue
        try:
            count = sum(int(np.prod(t.static_shape)) for node in large.graph.nodes for t in node.types)
        except Exception:  # noqa: BLE001  the law of refusals judges the exceptions of calls
            continue
        if count <= MAX_MANY and large.failure is None:
            return large
    return None
