"""The laws of rules on every sample of the ops that move, index, reduce, accumulate, sort and create.

Written rules are called by hand here, without the transformation engines: what fails is the rule itself.
"""

from __future__ import annotations

import itertools
import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from rlx_core.errors import RlxError
from rlx_core.ir.apply import as_array
from rlx_core.ir.graph import Builder, Value, as_results, building, decomposition
from rlx_core.ir.interpret import interpret
from rlx_core.ir.op import Op, Zero, operand_names
from rlx_core.ir.samples import Case, Rejected, Sample, draw
from rlx_core.ir.types import TensorType
from rlx_core.ops import (
    along_axis,
    counting,
    creation,
    cumulative,
    dynamic,
    gather_nd,
    indexing,
    movement,
    operators,
    rearrange,
    reduction,
    scatter,
    sorting,
    structural,
)

MODULES = (
    structural,
    creation,
    movement,
    rearrange,
    indexing,
    scatter,
    along_axis,
    gather_nd,
    dynamic,
    reduction,
    counting,
    cumulative,
    sorting,
)
assert operators.install, "rules are written with operators"

CASES = [Case(op, s) for m in MODULES for op in m.OPS for s in op.samples()]
ACCEPTED = [c for c in CASES if isinstance(c.sample, Sample)]
REJECTED = [c for c in CASES if isinstance(c.sample, Rejected)]
EXTRA = 3  # the size of the batch axis: unlike most dims of the samples


class Trial:
    """One op on one sample: its graph, its arrays, and what its rules add to the graph."""

    def __init__(self, case: Case) -> None:
        assert isinstance(case.sample, Sample)
        self.sample = case.sample
        self.op: Op = case.op(**case.sample.attributes)
        self.cls = case.op
        self.rng = np.random.default_rng(zlib.crc32(repr(case).encode()))
        self.builder = Builder("trial")
        self.fed: dict[str, np.ndarray] = {}
        self.x = [None if t is None else self.input(f"x{i}", t) for i, t in enumerate(case.sample.types)]
        for value, array in zip(self.x, case.sample.arrays(case.op), strict=True):
            if value is not None:
                self.fed[value.node.op.label] = np.asarray(array)
        with building(self.builder):
            self.y = as_results(self.op(*self.x))

    def input(self, name: str, type: TensorType) -> Value:
        return self.builder.input(name, type)

    def random(self, name: str, type: TensorType) -> Value | Zero:
        """A new input with random values: a tangent or a cotangent."""
        self.fed[name] = draw(self.rng, type, -1, 1)
        return self.input(name, type)

    def run(self, *values: Value) -> list[np.ndarray]:
        return list(interpret(self.graph(*values), self.fed, mode="wide"))

    def graph(self, *values: Any) -> Any:
        with building(self.builder):
            lifted = [v if isinstance(v, Value) else self.builder.constant(as_array(v)) for v in values]
        return self.builder.finish(lifted)

    @property
    def primals(self) -> tuple[Value | None, ...]:
        """The operands after promotion."""
        given = self.y[0].node.operands
        return (*given, *(None,) * (len(self.x) - len(given)))

    def differentiable(self) -> list[int]:
        """Operands that carry tangents and were not cast on the way in."""
        return [i for i, v in enumerate(self.primals) if v is not None and v is self.x[i] and v.dtype.is_differentiable]


def redraw(sample: Sample, op: type[Op], rng: np.random.Generator) -> list[np.ndarray | None]:
    if sample.make is not None:
        return [np.asarray(a).astype(t.dtype.numpy) for a, t in zip(sample.make(rng), sample.types, strict=True)]
    names = operand_names(op, len(sample.types))
    return [
        None if t is None else draw(rng, t, *sample.ranges.get(n, (sample.low, sample.high)))
        for n, t in zip(names, sample.types, strict=True)
    ]


def pairing(u: np.ndarray, v: np.ndarray) -> float:
    """SPEC 3.0 contract 8: 2·Re Σ conj(u)·v on complex tensors, Σ u·v on real ones."""
    both = np.sum(np.conj(u) * v)
    return float(2 * both.real if np.iscomplexobj(u) else both)


@pytest.mark.parametrize("case", ACCEPTED, ids=repr)
class TestEveryOp:
    def test_inferred_type_is_the_type_computed(self, case: Case) -> None:
        trial = Trial(case)
        graph = trial.graph(*trial.y)

        for value, array in zip(trial.y, interpret(graph, trial.fed), strict=True):
            assert (value.dtype.numpy, value.shape) == (array.dtype, array.shape)

    def test_decomposition_means_the_same_as_the_reference(self, case: Case) -> None:
        if case.op.decompose is None or case.op.reference is None:
            pytest.skip("it has one meaning only")
        trial = Trial(case)
        body = decomposition(trial.op, [None if v is None else v.type for v in trial.primals])
        operands = trial.run(*[v for v in trial.primals if v is not None]) if trial.x else []
        found = interpret(body, dict(zip(body.input_types, operands, strict=True)), mode="wide")

        for a, b in zip(found, self.results(case), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-12)  # f64: a few hundred ulp

    @staticmethod
    def results(case: Case) -> list[np.ndarray]:
        trial = Trial(case)
        return trial.run(*trial.y)

    def test_jvp_agrees_with_finite_differences(self, case: Case) -> None:
        trial = Trial(case)
        moving = trial.differentiable()
        if case.op.jvp is None or not moving or not case.sample.is_smooth:
            pytest.skip("there is no written rule to check, or no derivative")
        t: list[Any] = [
            trial.random(f"t{i}", v.type) if i in moving else Zero()
            for i, v in enumerate(trial.primals)
            if v is not None
        ]
        tangents = self.jvp(trial, t)
        live = [(y, s) for y, s in zip(trial.y, tangents, strict=True) if not isinstance(s, Zero)]
        assert all(s.type == y.type for y, s in live)
        graph = trial.graph(*(v for pair in live for v in pair))

        def at(step: float) -> list[np.ndarray]:
            moved = {
                f"x{i}": trial.fed[f"x{i}"].astype(wide(trial, i)) + step * trial.fed[f"t{i}"].astype(wide(trial, i))
                for i in moving
            }
            return list(interpret(graph, {**trial.fed, **moved}, mode="wide"))

        h = 1e-6
        here, ahead, behind = at(0), at(h), at(-h)
        for k in range(0, len(here), 2):
            slope = (ahead[k] - behind[k]) / (2 * h)
            # Central differences in f64: truncation h² and rounding eps/h, both about 1e-10, times the scale of values.
            np.testing.assert_allclose(here[k + 1], slope, rtol=1e-6, atol=1e-7)

    @staticmethod
    def jvp(trial: Trial, t: Sequence[Any]) -> tuple[Any, ...]:
        y = trial.y if len(trial.y) > 1 else trial.y[0]
        with building(trial.builder):
            return as_results(trial.op.jvp(t, *trial.primals[: len(t)], y=y))

    def test_vjp_and_jvp_are_transposes(self, case: Case) -> None:
        trial = Trial(case)
        moving = trial.differentiable()
        if case.op.jvp is None or case.op.vjp is None or not moving:
            pytest.skip("a rule is derived")
        t: list[Any] = [
            trial.random(f"t{i}", v.type) if i in moving else Zero()
            for i, v in enumerate(trial.primals)
            if v is not None
        ]
        tangents = self.jvp(trial, t)
        g = [trial.random(f"g{k}", y.type) if y.dtype.is_differentiable else Zero() for k, y in enumerate(trial.y)]
        y = trial.y if len(trial.y) > 1 else trial.y[0]
        with building(trial.builder):
            back = as_results(trial.op.vjp(g[0] if len(g) == 1 else tuple(g), *trial.primals[: len(t)], y=y))
        assert len(back) == len(t)
        forward = [(u, v) for u, v in zip(g, tangents, strict=True) if isinstance(u, Value) and isinstance(v, Value)]
        backward = [(b, t[i]) for i, b in enumerate(back) if isinstance(t[i], Value) and isinstance(b, Value)]
        for i, b in enumerate(back):
            assert isinstance(b, Zero) or b.type == trial.primals[i].type
        values = trial.run(*(v for pair in (*forward, *backward) for v in pair))
        pairs = [pairing(u, v) for u, v in zip(values[::2], values[1::2], strict=True)]

        left, right = sum(pairs[: len(forward)]), sum(pairs[len(forward) :])
        assert left == pytest.approx(right, rel=1e-10, abs=1e-10)  # f64, a few hundred terms

    def test_batching_agrees_with_a_stack(self, case: Case) -> None:
        if case.op.batch is None:
            pytest.skip("batching is derived")
        count = len(case.sample.types)
        choices = [c for c in itertools.product((True, False), repeat=count) if any(c)] or [()]
        for chosen in choices:
            self.check_batch(case, chosen)

    def check_batch(self, case: Case, chosen: tuple[bool, ...]) -> None:
        op = case.op(**case.sample.attributes)
        rng = np.random.default_rng(zlib.crc32(repr((case, chosen)).encode()))
        shared = redraw(case.sample, case.op, rng)
        rows = [redraw(case.sample, case.op, rng) for _ in range(EXTRA)]
        builder = Builder("batched")
        fed = {}
        values: list[Any] = []
        for i, (t, b) in enumerate(zip(case.sample.types, chosen, strict=True)):
            if t is None:
                values.append(None)
                continue
            values.append(builder.input(f"x{i}", t.with_shape((EXTRA, *t.shape) if b else t.shape)))
            fed[f"x{i}"] = np.stack([r[i] for r in rows]) if b else shared[i]
        with building(builder):
            values = list(as_results(op.prepare(*values))) if op.prepare is not None else values
            batched = as_results(op.batch(EXTRA, values, list(chosen)))
        graph = builder.finish(batched)
        found = interpret(graph, fed, mode="wide")

        single = Trial(case)
        body = single.graph(*single.y)
        for n in range(EXTRA):
            row = {f"x{i}": rows[n][i] if b else shared[i] for i, b in enumerate(chosen) if values[i] is not None}
            for a, b in zip(found, interpret(body, row, mode="wide"), strict=True):
                np.testing.assert_allclose(a[n], b, rtol=1e-12, atol=1e-12)  # the same sums, possibly in another order


def wide(trial: Trial, i: int) -> np.dtype:
    value = trial.x[i]
    assert value is not None
    return value.dtype.wide.numpy


@pytest.mark.parametrize("case", REJECTED, ids=repr)
def test_rejection_says_what_it_promised(case: Case) -> None:
    assert isinstance(case.sample, Rejected)
    builder = Builder("rejected")
    with pytest.raises(case.sample.error) as caught, building(builder):
        operands = [None if t is None else builder.input(f"x{i}", t) for i, t in enumerate(case.sample.types)]
        case.op(**case.sample.attributes)(*operands)

    assert isinstance(caught.value, RlxError)
    assert case.sample.says in str(caught.value)
