"""`concat(f(x[:n]), f(x[n:]))` is `f(x)`: what counts as slices in order, what may be read beside them, what stays."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest

from rlx_core.ir.dtypes import f64
from rlx_core.ir.interpret import interpret
from rlx_core.ops.activation import exp, tanh
from rlx_core.ops.conversion import cast
from rlx_core.ops.cumulative import Cumsum
from rlx_core.ops.movement import concat, narrow
from rlx_core.ops.selection import where
from rlx_core.ops.structural import reshape
from rlx_core.passes.algebra import algebra
from rlx_core.passes.cse import CommonSubexpressions
from rlx_core.passes.engine.apply_rules import explain, pass_of
from rlx_core.passes.joined_slices import DEEPEST

from .programs import arrays, ops, program, run

SIMPLIFY = [CommonSubexpressions(), pass_of(algebra)()]
TYPES = {"x": "f32[4, 6]", "y": "f32[4, 6]", "s": "f32[4, 1]", "m": "bool[6]"}


def cut(x: Any, start: int, end: int, axis: int = 1) -> Any:
    return narrow(x, axis=axis, start=start, length=end - start)


def pieces(f: Callable[..., Any], *x: Any, at: tuple[int, ...] = (0, 2, 6), axis: int = 1) -> Any:
    """`f` of each slice of the operands, joined."""
    return concat(
        [f(*(cut(v, a, b, axis) for v in x)) for a, b in pairwise(at)],
        axis=axis,
    )


def steps(x: Any, count: int) -> Any:
    for _ in range(count):
        x = exp(x)
    return x


JOINED: dict[str, tuple[Callable[..., Any], list[str]]] = {
    "slices alone": (lambda x, y, s, m: pieces(lambda v: v, x), []),
    "a chain": (lambda x, y, s, m: pieces(lambda v: tanh(exp(v) + v), x), ["exp", "add", "tanh"]),
    "rows": (lambda x, y, s, m: pieces(exp, x, at=(0, 1, 2, 3, 4), axis=0), ["exp"]),
    "from within": (lambda x, y, s, m: pieces(exp, x, at=(1, 2, 5)), ["narrow", "exp"]),
    "two values": (lambda x, y, s, m: pieces(lambda v, w: v * w - v, x, y), ["mul", "sub"]),
    "a repeated column": (lambda x, y, s, m: pieces(lambda v: v * s, x), ["mul"]),
    "a scalar": (lambda x, y, s, m: pieces(lambda v: v * 0.5 + 1.0, x), ["mul", "add"]),
    "a computed column": (lambda x, y, s, m: pieces(lambda v: v * exp(s), x), ["exp", "mul"]),
    "a row of fewer axes": (
        lambda x, y, s, m: concat([where(cut(m, a, b, 0), cut(x, a, b), cut(y, a, b)) for a, b in ((0, 3), (3, 6))], axis=1),
        ["where"],
    ),
    "a row that all rows read": (
        lambda x, y, s, m: concat([where(m, cut(x, a, a + 1, 0), 0.0) for a in range(4)]),
        ["where"],
    ),
    "another dtype": (lambda x, y, s, m: pieces(lambda v: cast(v, to=f64), x), ["cast"]),
    "as deep as is looked": (lambda x, y, s, m: pieces(lambda v: steps(v, DEEPEST), x), ["exp"] * DEEPEST),
}  # fmt: skip

APART: dict[str, Callable[..., Any]] = {
    "in another order": lambda x, y, s, m: concat([cut(x, 2, 6), cut(x, 0, 2)], axis=1),
    "with a gap": lambda x, y, s, m: concat([cut(x, 0, 2), cut(x, 3, 6)], axis=1),
    "twice the same": lambda x, y, s, m: concat([cut(x, 0, 3), cut(x, 0, 3)], axis=1),
    "along another axis": lambda x, y, s, m: concat([cut(x, 0, 3), cut(x, 3, 6)], axis=0),
    "with a step": lambda x, y, s, m: concat([narrow(x, axis=1, start=a, length=3, step=2) for a in (0, 1)], axis=1),
    "of two values": lambda x, y, s, m: concat([cut(x, 0, 3), cut(y, 3, 6)], axis=1),
    "by two ops": lambda x, y, s, m: concat([exp(cut(x, 0, 3)), tanh(cut(x, 3, 6))], axis=1),
    "with two scalars": lambda x, y, s, m: concat([cut(x, 0, 3) * 2.0, cut(x, 3, 6) * 3.0], axis=1),
    "with the same slice on each": lambda x, y, s, m: concat([cut(x, a, a + 3) * cut(y, 0, 3) for a in (0, 3)], axis=1),
    "with the columns of a repeated value": lambda x, y, s, m: concat(
        [cut(x, 0, 3) * cut(y, 0, 1), cut(x, 3, 6) * cut(y, 1, 2)], axis=1
    ),
    "of rows that only broadcasting makes": lambda x, y, s, m: concat([exp(s), exp(s)], axis=1),
    "by an op along the axis": lambda x, y, s, m: pieces(Cumsum(axis=1), x),
    "in other dims": lambda x, y, s, m: concat([reshape(cut(x, 0, 3), (3, 4)), reshape(cut(x, 3, 6), (3, 4))], axis=1),
    "deeper than is looked": lambda x, y, s, m: pieces(lambda v: steps(v, DEEPEST + 1), x),
}


@pytest.mark.parametrize("name", JOINED)
def test_chains_on_slices_run_once_on_the_whole_and_keep_every_bit(name: str) -> None:
    make, left = JOINED[name]
    graph = program(make, **TYPES)
    result = run(SIMPLIFY, graph)
    assert ops(result.graph) == left
    assert_same_bits(graph, result.graph)


@pytest.mark.parametrize("name", APART)
def test_what_is_not_the_whole_stays_apart(name: str) -> None:
    graph = program(APART[name], **TYPES)
    result = run(SIMPLIFY, graph)
    assert "concat" in ops(result.graph)
    assert_same_bits(graph, result.graph)


def test_a_part_that_others_read_is_kept_and_said() -> None:
    def make(x: Any) -> Any:
        parts = [exp(cut(x, 0, 3)), exp(cut(x, 3, 6))]
        return concat(parts, axis=1), parts[0]

    graph = program(make, x="f32[4, 6]")
    assert ops(run(SIMPLIFY, graph).graph) == ops(graph)
    (said,) = [m.reason for m in explain(graph, algebra, graph.outputs[0]) if m.rule == "algebra/concat-of-slices"]
    assert "is an output" in said


def test_slices_that_others_read_may_stay() -> None:
    def make(x: Any) -> Any:
        part = cut(x, 0, 3)
        return concat([exp(part), exp(cut(x, 3, 6))], axis=1), part

    assert ops(run(SIMPLIFY, program(make, x="f32[4, 6]")).graph) == ["narrow", "exp"]


def test_a_value_that_is_read_twice_on_the_way_is_joined_once() -> None:
    """Thirty doublings: 2³⁰ paths, and thirty additions."""

    def doubled(x: Any) -> Any:
        for _ in range(30):
            x = x + x
        return x

    assert ops(run(SIMPLIFY, program(lambda x: pieces(doubled, x), x="f32[4, 6]")).graph) == ["add"] * 30


def test_symbolic_sizes_join_where_they_add_up() -> None:
    graph = program(
        lambda x: concat([exp(cut(x, 0, 2, axis=0)), exp(narrow(x, axis=0, start=2, length=x.shape[0] - 2))]),
        x="f32[n, 4]",
    )
    assert ops(run(SIMPLIFY, graph).graph) == ["exp"]


def assert_same_bits(before: Any, after: Any) -> None:
    fed = arrays(before)
    for a, b in zip(interpret(before, fed), interpret(after, fed), strict=True):
        assert a.tobytes() == b.tobytes()
