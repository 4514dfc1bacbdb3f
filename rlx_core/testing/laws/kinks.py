"""The laws of derivatives at non-differentiable points and at NaN: the derivative there is declared, or NaN.

Two judges: the numbers that an op declares, in every dtype that it takes and in both modes; and one-sided differences, which
check whether these numbers have the meaning of the declared word.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from rlx_core.errors import RlxError
from rlx_core.ir.dtypes import COMPLEXES, FLOATS, DType
from rlx_core.ir.graph import Graph, Value
from rlx_core.ir.interpret import stored
from rlx_core.ir.op import Kink, Op
from rlx_core.ir.types import TensorType
from rlx_core.ops.samples import Case, Sample
from rlx_core.testing.about import about, differentiable
from rlx_core.testing.cases import OpProgram, typed, wide
from rlx_core.testing.judges import differentiable_outputs, near, widened
from rlx_core.testing.yardstick import precision
from rlx_core.transforms.jvp import jvp_graph
from rlx_core.transforms.vjp import vjp_graph

STEP, AGREES = 1e-5, 1e-3
"""One-sided differences extrapolated from `STEP` and `STEP / 2` are right to about STEP²·f''' + 1e-16 / STEP."""


class Kinks:
    """An op declares its derivative at non-differentiable points, and the derivative at NaN is NaN."""

    def test_derivatives_at_kinks_are_the_declared_ones(self, op: type[Op]) -> None:
        for kink in op.kinks:
            tried = list(programs_at(op, kink))
            assert tried, f"{op.name} takes no operands of the kink {kink}"
            for program in tried:
                gives_what_it_declares(program, kink)

    def test_what_is_taken_at_a_kink_lies_between_the_sides(self, op: type[Op]) -> None:
        for kink in op.kinks:
            lies_between_the_sides(next(programs_at(op, kink)), kink)

    @about(lambda program: differentiable(program) and is_one_function(program), rules=["vjp", "jvp", "decompose"])
    def test_derivative_at_nan_is_nan(self, program: OpProgram) -> None:
        arrays = program.draw()
        for place, name in enumerate(program.graph.input_types):
            if name in program.differentiable and arrays[place].size:
                point = [np.full_like(a, np.nan) if i == place else a for i, a in enumerate(arrays)]
                (y,) = wide(program.graph, point)
                if y.size and np.isnan(y).all():  # a result that is a number does not depend on this operand
                    nan_has_no_number(program, name, point)


def is_one_function(program: OpProgram) -> bool:
    """Return whether the op is element-wise with one result; ops that move elements pass derivatives of NaN like any other."""
    return program.op.category == "elementwise" and len(program.graph.outputs) == 1


def programs_at(op: type[Op], kink: Kink) -> Iterator[OpProgram]:
    """The op at a kink, the widest dtype first, for every dtype that it takes."""
    is_complex = any(np.iscomplexobj(a) for a in kink.at)
    for d in reversed(COMPLEXES if is_complex else FLOATS):
        program = OpProgram(Case(op, sample_of(kink, d)))
        try:
            assert program.graph
        except RlxError:
            continue
        yield program


def sample_of(kink: Kink, dtype: DType) -> Sample:
    types = [TensorType(dtype, a.shape) for a in kink.at]
    return Sample(*types, make=lambda rng: kink.at, is_smooth=False, **kink.attributes)


def gives_what_it_declares(program: OpProgram, kink: Kink) -> None:
    """Require the declared cotangents of the VJP, and matching tangents of the JVP for a change of each element alone."""
    graph, arrays = program.graph, program.draw()
    tolerance = 4 * max(precision(a.dtype) for a in program.graph.inputs)
    where = f"{program!r} at {[a.tolist() for a in kink.at]}"
    seeds = [
        np.ones(v.static_shape, v.dtype.numpy) for v in (o.type for o in graph.outputs) if v.dtype.is_differentiable
    ]
    names = list(graph.input_types)
    cotangents = typed(vjp_graph(graph, names), [*arrays, *seeds])[len(graph.outputs) :]
    for name, actual, gives in zip(names, cotangents, kink.gives, strict=True):
        near(widened(actual), widened(gives), tolerance, tolerance, f"{where}: the vjp rule in {name}")
    for name, array, gives in zip(names, arrays, kink.gives, strict=True):
        forward = jvp_graph(graph, [name])
        for place in np.ndindex(array.shape):
            tangent = np.zeros_like(array)
            tangent[place] = 1
            pushed = typed(forward, [*arrays, tangent])[len(graph.outputs) :]
            kinds = [t for t, v in zip(pushed, graph.outputs, strict=True) if v.dtype.is_differentiable]
            actual = np.asarray(sum(np.sum(widened(t)) for t in kinds))
            near(actual, widened(gives[place]), tolerance, tolerance, f"{where}: the jvp rule in {name}{list(place)}")


def lies_between_the_sides(program: OpProgram, kink: Kink) -> None:
    """Require of each element that its derivative is the combination of the one-sided derivatives that the kink's word means."""
    for operand, (array, gives) in enumerate(zip(kink.at, kink.gives, strict=True)):
        for place in np.ndindex(array.shape):
            below, above = (one_sided(program.graph, kink, operand, place, side) for side in (-1, 1))
            declared = float(gives[place].real)
            says = (
                f"{program!r}: {declared} is declared where the derivative is {below:.6g} below and {above:.6g} above"
            )
            if kink.takes == "lower":
                assert abs(declared - below) <= AGREES, f"{says}, which is not the lower one"
            elif kink.takes == "mean":
                assert abs(declared - (below + above) / 2) <= AGREES, f"{says}, which is not their mean"
            elif kink.takes == "zero":
                assert declared == 0 or abs(below - above) <= AGREES >= abs(declared - below), f"{says}, and not 0"
            else:
                low, high = sorted((below, above))
                assert low - AGREES <= declared <= high + AGREES, f"{says}, which is outside of both"


def one_sided(graph: Graph, kink: Kink, operand: int, place: tuple[int, ...], side: int) -> float:
    """The derivative of the sum of the results when one element moves to one side, by extrapolated differences."""

    def total(step: float) -> float:
        moved = [np.array(a, stored(v.dtype, "wide").numpy) for a, v in zip(kink.at, graph.inputs, strict=True)]
        moved[operand][place] += side * step
        with np.errstate(all="ignore"):
            return float(sum(np.sum(y) for y in differentiable_outputs(graph, moved)))

    with np.errstate(all="ignore"):
        coarse, fine = (side * (total(h) - total(0.0)) / h for h in (STEP, STEP / 2))
        return 2 * fine - coarse


def nan_has_no_number(program: OpProgram, name: str, point: list[np.ndarray]) -> None:
    """Require that where `name` is NaN no derivative that depends on it is a number, in either mode."""
    graph, engine = program.graph, program.engine
    for wrt in program.differentiable:
        place = list(graph.input_types).index(wrt)
        for mode, derived, like in (
            ("vjp", vjp_graph(graph, [wrt], engine=engine), wide(graph, point)[0]),
            ("jvp", jvp_graph(graph, [wrt], engine=engine), point[place]),
        ):
            if not depends(derived.outputs[1], derived.find(name)):
                continue  # a constant: the derivative of a sum, or one that is 0 by definition
            derivative = wide(derived, [*point, np.ones_like(like)])[1]
            assert np.isnan(derivative).all(), (
                f"where {name} is NaN the {mode} rule in {wrt} gives {derivative[~np.isnan(derivative)].flat[0]}: NaN fails every"
                " comparison, so let it reach a branch that keeps it, or declare the derivative constant (a number, or ZERO)"
            )


def depends(value: Value, source: Value) -> bool:
    """Return whether a value is computed from another one."""
    seen: set[Value] = set()
    waiting = [value]
    while waiting:
        current = waiting.pop()
        if current is source:
            return True
        if current not in seen:
            seen.add(current)
            waiting += current.node.present()
    return False
