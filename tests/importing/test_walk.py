"""The walk of a small importer: results, locations in errors, and reports of everything that is not supported."""

from __future__ import annotations

import numpy as np
import pytest

from rlx_core.errors import (
    BudgetError,
    FormatError,
    OutOfMemoryError,
    PromotionError,
    RlxError,
    ShapeError,
    UnsupportedError,
)
from rlx_core.system.budget import Budget, working

from .toy import ToyWalk, imported, program


def test_a_program_is_walked_in_order() -> None:
    model = imported("toy", program("h = double x\ny = add h x"), x="f32[n]")
    assert np.asarray(model(np.float32([1, 2]))).tolist() == [3, 6]


def test_every_operation_without_a_handler_is_reported_at_once() -> None:
    nodes = program("a = hash x\nb = double a\nc = sort_words b\nd = hash c")
    with pytest.raises(UnsupportedError) as caught:
        imported("toy", nodes, x="f32[n]")
    assert str(caught.value).splitlines() == [
        "toy: 2 operations are not supported: hash, sort_words",
        "  hash        2 uses                   first: line a",
        "  sort_words  1 use; instead: numbers  line c",
        '  hint        @toy.TABLE.register("hash") registers a function of the operands',
        "  more        rlx explain unsupported",
    ]


def test_every_refusal_of_operands_is_reported_at_once() -> None:
    """The walk continues with placeholders; no hint suggests a handler, because there is one."""
    model = imported("toy", program("a = halve x\nb = double a\nc = halve b"), x="i32[n]")
    with pytest.raises(UnsupportedError) as caught:
        model.trace()
    assert str(caught.value).splitlines()[:2] == [
        "toy: 1 operation is not supported: halve of integers",
        "  halve of integers  2 uses; instead: f32  first: line a",
    ]
    assert caught.value.hint is None


def test_after_the_walk_a_refusal_is_an_error_immediately() -> None:
    walk = ToyWalk("toy")
    walk.finish()
    with pytest.raises(UnsupportedError, match="halve of integers"):
        walk.nodes(program("a = halve x"), {"x": np.zeros(3, np.int32)})


@pytest.mark.parametrize(
    ("line", "error", "message"),
    [
        ("b = add x w", (ShapeError, PromotionError), "do not broadcast"),
        ("b = fail x", FormatError, "line b: its operands and attributes do not fit"),
        ("b = large x", OutOfMemoryError, "line b: the machine has no memory left"),
    ],
)
def test_errors_of_handlers_name_the_node(line: str, error: type[RlxError], message: str) -> None:
    with pytest.raises(error, match=message) as caught:
        ToyWalk("toy").nodes(program(line), {"x": np.zeros(3, np.float32), "w": np.zeros(4, np.float32)})
    assert "line b" in str(caught.value)


def test_an_error_names_the_innermost_node_only() -> None:
    walk = ToyWalk("toy")

    def body() -> None:
        walk.nodes(program("inner = add x w"), {"x": np.zeros(3), "w": np.zeros(4)})

    with pytest.raises(RlxError) as caught:
        walk.nodes(program("outer = apply f"), {"f": body})
    assert [str(fact.value) for fact in caught.value.facts if fact.label == "node"] == ["line inner"]


def test_the_number_of_nodes_has_a_budget() -> None:
    nodes = program("a = double x\nb = double a\nc = double b")
    with working(Budget(nodes=2), "reading toy"), pytest.raises(BudgetError, match="more than 2 nodes"):
        ToyWalk("toy").nodes(nodes, {"x": np.zeros(3, np.float32)})
