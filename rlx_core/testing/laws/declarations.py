"""The laws of an op's declarations, on which passes and plans rely without further checks."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from attrs import evolve

from rlx_core.errors import RlxError
from rlx_core.ir.dims import DimBinding, Expr
from rlx_core.ir.dtypes import dtype
from rlx_core.ir.graph import GraphArgument, Node
from rlx_core.ir.strides import Strides, dense_strides
from rlx_core.ir.types import TensorType
from rlx_core.plugins import default_host
from rlx_core.testing.about import about, runs
from rlx_core.testing.cases import OpProgram, typed, wide
from rlx_core.testing.judges import EXACT, close
from rlx_core.testing.symbolic import generalized
from rlx_core.testing.variants import accepted

Layout = tuple[np.ndarray, Strides, int]
"""Bytes, and where in them a value lies: its strides and the offset of its first element."""


def commutes(program: OpProgram) -> bool:
    return runs(program) and program.op.is_commutative and len(program.draw()) > 1


def is_elementwise(program: OpProgram) -> bool:
    return runs(program) and program.op.category == "elementwise" and bool(program.draw())


def is_view(program: OpProgram) -> bool:
    return runs(program) and program.op.view is not None and reads_arguments(program)


def is_assembled(program: OpProgram) -> bool:
    if program.op.parts is None or not (runs(program) and reads_arguments(program)):
        return False
    return rule_of(program.node, "parts")(*program.node.operand_types) is not None


def reads_arguments(program: OpProgram) -> bool:
    return all(isinstance(v.node.op, GraphArgument) for v in program.node.present())


def has_cost(program: OpProgram) -> bool:
    return cost_rule(program) is not None


def rule_of(node: Node, name: str) -> Any:
    """A rule that the op of a node is known to have."""
    return getattr(node.op, name)


class Declarations:
    """`is_commutative`, `category`, `cost`, `view` and `parts`, each tried."""

    @about(commutes)
    def test_commutative_op_is_the_same_either_way(self, program: OpProgram) -> None:
        for tried in [program, *mixed(program)]:
            for i, j in itertools.combinations(range(len(tried.sample.types)), 2):
                assert_commutes(tried, i, j)

    @about(is_elementwise, variants=["broadcasting"])
    def test_elementwise_op_computes_each_element_from_those_at_its_place(self, program: OpProgram) -> None:
        arrays, others = program.draw(), program.draw(1)
        before = wide(program.graph, arrays)
        for i, (array, other) in enumerate(zip(arrays, others, strict=True)):
            for is_moved in places(array.shape, program.rng()):
                moved = [*arrays[:i], np.where(is_moved, other, array), *arrays[i + 1 :]]
                for a, b in zip(before, wide(program.graph, moved), strict=True):
                    assert_depends_on(is_moved, a, b, f'{program.op.name} declares category = "elementwise", and', i)

    @about(has_cost, rules=["cost"], variants=["size", "rank"])
    def test_cost_is_a_finite_number(self, program: OpProgram) -> None:
        rule: Any = cost_rule(program)
        types = program.node.operand_types
        assert_cost(rule(*types), types)
        general = generalized(program) if runs(program) and not program.rule else None
        if general is None:
            return
        node = next(n for n in reversed(general.graph.nodes) if type(n.op) is program.op)
        try:
            cost: Any = rule_of(node, "cost")(*node.operand_types)
        except RlxError:
            return
        assert isinstance(cost, int | float | Expr), f"cost with symbols for sizes is {cost!r}"
        sizes = DimBinding.of(**general.bindings[0])
        actual = sizes.bind(cost) if isinstance(cost, Expr) else cost
        wide_node = program.widened.node
        expected = rule_of(wide_node, "cost")(*wide_node.operand_types)
        assert actual == expected, (
            f"cost with symbols for sizes, bound to sizes, is {actual}, and without symbols {expected}"
        )

    @about(is_view, variants=["size", "rank"])
    def test_view_is_what_the_reference_computes(self, program: OpProgram) -> None:
        node, arrays = program.node, program.draw()
        expected = typed(program.graph, arrays)
        for raw, strides, offset in layouts(arrays[0]):
            viewed = rule_of(node, "view")(node.operand_types[0], strides, offset)
            if viewed is None:
                continue
            pairs = [viewed] if len(node.types) == 1 else viewed
            for (start, steps), type, result in zip(pairs, node.types, expected, strict=True):
                where = (
                    f"view puts {type} at offset {start} with strides {tuple(steps)} in an operand of strides {strides}"
                )
                assert_same(read(raw, type, steps, start, where), result, where)

    @about(is_assembled, variants=["size"])
    def test_parts_are_where_the_reference_puts_the_operands(self, program: OpProgram) -> None:
        node, arrays = program.node, program.draw()
        (expected,) = typed(program.graph, arrays)
        places = rule_of(node, "parts")(*node.operand_types)
        present = [place for place, operand in zip(places, node.operands, strict=False) if operand is not None]
        inside = [(i, *both) for i, both in enumerate(zip(present, arrays, strict=True)) if both[0] is not None]
        # The bytes where no operand lies are written by the op's kernel.
        is_all = sum(array.nbytes for _, _, array in inside) == expected.nbytes
        raw = np.zeros(expected.nbytes, np.uint8) if is_all else np.frombuffer(expected.tobytes(), np.uint8).copy()
        for i, (offset, strides), array in inside:
            where = f"parts puts operand {i} at offset {offset} with strides {strides}"
            read(raw, TensorType(dtype(array.dtype), array.shape), strides, offset, where)[...] = array
        actual = read(raw, node.types[0], dense_strides(node.types[0]), 0, "the result")
        assert_same(actual, expected, "the operands, put where `parts` says")


# ---------------------------------------------------------------------------------------- commutativity


def mixed(program: OpProgram) -> Iterator[OpProgram]:
    """The sample with one operand of another dtype, or with fewer axes, as far as the op takes it."""
    for other in (program, *accepted(program)):
        for i, type in enumerate(program.sample.types):
            theirs = other.sample.types[i]
            if type is not None and theirs is not None and theirs != type:
                types = [*program.sample.types[:i], theirs, *program.sample.types[i + 1 :]]
                candidate = program.with_types(types)
                if not candidate.is_refused:
                    yield candidate


def assert_commutes(program: OpProgram, i: int, j: int) -> None:
    """Require the same type and, but for complex numbers, the same bits with operands i and j exchanged."""

    def exchanged(items: Sequence[Any]) -> list[Any]:
        order = list(items)
        order[i], order[j] = order[j], order[i]
        return order

    sample = program.sample.with_types(exchanged(program.sample.types))
    other = evolve(program, case=evolve(program.case, sample=sample))
    says = f"{program.op.name} declares is_commutative"
    assert not other.is_refused, f"{says}, and takes {program!r} but not {other!r}"
    assert program.graph.outputs[0].type == other.graph.outputs[0].type, (
        f"{says}, and {program!r} gives {program.graph.outputs[0].type} but {other!r} {other.graph.outputs[0].type}"
    )
    arrays = program.draw()
    actual, expected = typed(other.graph, exchanged(arrays)), typed(program.graph, arrays)
    what = f"{says}, and {program!r} and {other!r}, its operands exchanged, are not equal"
    if any(a.dtype.kind == "c" for a in (*arrays, *expected)):
        close(wide(other.graph, exchanged(arrays)), wide(program.graph, arrays), EXACT, what)
        return
    for a, b in zip(actual, expected, strict=True):
        assert_same(a, b, what)


# -------------------------------------------------------------------------------------------- category


def places(shape: tuple[int, ...], rng: np.random.Generator) -> Iterator[np.ndarray]:
    """Yield masks of the elements to change: the first, the last, and some."""
    for where in (0, -1):
        is_moved = np.zeros(shape, np.bool_)
        is_moved.reshape(-1)[where : where + 1 or None] = True
        yield is_moved
    yield rng.random(shape) < 0.5


def assert_depends_on(is_moved: np.ndarray, before: np.ndarray, after: np.ndarray, says: str, operand: int) -> None:
    """Require that only elements at the places of changed ones have changed."""
    try:
        may_differ = np.broadcast_to(is_moved, before.shape)
    except ValueError:
        raise AssertionError(
            f"{says} operand {operand} does not broadcast to the result: {list(is_moved.shape)} and {list(before.shape)}"
        ) from None
    same = (before == after) | ((before != before) & (after != after))
    assert np.all(same | may_differ), (
        f"{says} an element of its result depends on elements of operand {operand} at other places"
    )


# ------------------------------------------------------------------------------------------------ cost


def cost_rule(program: OpProgram) -> Any:
    """Return the cost rule under test: a contributed one, or the op's own; `None` if it has none."""
    if program.rule != "cost":
        return program.node.op.cost
    rule = default_host().registry().rules[f"{program.op.name}:cost"].load.resolve()
    return lambda *types: rule(program.node.op, *types)


def assert_cost(cost: Any, types: Sequence[TensorType | None]) -> None:
    is_number = isinstance(cost, int | float | np.integer | np.floating) and not isinstance(cost, bool)
    is_symbolic = isinstance(cost, Expr) and not all(t is None or t.is_static for t in types)
    assert is_number or is_symbolic, f"cost is {cost!r}, not a number of floating-point operations"
    assert is_symbolic or (math.isfinite(cost) and cost >= 0), f"cost is {cost}, not a finite number of at least 0"


# ----------------------------------------------------------------------------------------------- views


def layouts(array: np.ndarray) -> Iterator[Layout]:
    """A value as it may lie in memory: dense, with gaps behind an offset, and transposed."""
    dense = np.array(array, order="C")
    item = array.itemsize
    yield dense.reshape(-1).view(np.uint8), tuple(dense_strides(TensorType(dtype(array.dtype), array.shape))), 0
    spaced = np.zeros((*(2 * d + 1 for d in array.shape),), array.dtype)
    inside: tuple[Any, ...] = (
        *(slice(1, 2 * d + 1, 2) for d in array.shape),
        ...,
    )  # with the dots a scalar is a view too
    inner = spaced[inside]
    inner[...] = array
    start = inner.__array_interface__["data"][0] - spaced.__array_interface__["data"][0] if array.size else 0
    yield spaced.reshape(-1).view(np.uint8), tuple(inner.strides), start
    if array.ndim > 1 and array.size:
        transposed = np.array(array.T, order="C")
        yield transposed.reshape(-1).view(np.uint8), tuple(transposed.T.strides) if item else (), 0


def read(raw: np.ndarray, type: TensorType, strides: Sequence[int], offset: int, where: str) -> np.ndarray:
    """The value of this type that lies in the bytes."""
    shape = type.static_shape
    if 0 in shape:
        return np.empty(shape, type.dtype.numpy)
    try:
        return np.ndarray(shape, type.dtype.numpy, buffer=raw.data, offset=offset, strides=tuple(strides))
    except (TypeError, ValueError) as error:
        raise AssertionError(f"{where}: {error}") from None


def assert_same(actual: np.ndarray, expected: np.ndarray, what: str) -> None:
    """Require equal elements; a NaN equals any other."""
    assert actual.shape == expected.shape, f"{what}: shape {list(actual.shape)}, not {list(expected.shape)}"
    same = (actual == expected) | ((actual != actual) & (expected != expected))
    assert np.all(same), f"{what}: {int(np.sum(~np.atleast_1d(same)))} of {same.size} elements differ"
