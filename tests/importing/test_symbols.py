"""Symbolic sizes of another system as dims, and dims as its sizes."""

from __future__ import annotations

from typing import Any

import pytest

import rlx_core as rlx
from rlx_core.errors import GuardError, ShapeError
from rlx_core.importing.symbols import SymbolTable, expect_relation, foreign_size
from rlx_core.ir.dims import smaller


def test_a_name_has_one_symbol_and_other_names_have_others() -> None:
    symbols = SymbolTable()
    assert symbols["batch"] == rlx.symbol("batch")
    assert symbols["a.b"] == symbols["a.b"] == rlx.symbol("a_b")
    assert symbols["a-b"] == rlx.symbol("a_b_")
    assert symbols["2n"] == rlx.symbol("n_2n")


def test_a_new_symbol_differs_from_assigned_ones() -> None:
    """A user's name of one size may be the other system's name of another."""
    symbols = SymbolTable(s0=rlx.symbol("s1"))
    assert symbols["s1"] != symbols["s0"]


class Size:
    """A size of another system, which prints its computation."""

    def __init__(self, text: str) -> None:
        self.text = text

    def _with(self, sign: str, other: Any) -> Size:
        return Size(f"({self.text} {sign} {other})")

    def __mul__(self, other: Any) -> Size:
        return self._with("*", other)

    def __rmul__(self, other: Any) -> Size:
        return Size(f"({other} * {self.text})")

    def __radd__(self, other: Any) -> Size:
        return self if other == 0 else Size(f"({other} + {self.text})")

    def __add__(self, other: Any) -> Size:
        return self._with("+", other)

    def __pow__(self, power: int) -> Size:
        return self if power == 1 else self._with("**", power)

    def __floordiv__(self, other: Any) -> Size:
        return self._with("//", other)

    def __repr__(self) -> str:
        return self.text


def test_a_dim_is_computed_with_the_operators_of_the_other_system() -> None:
    n, m = rlx.symbol("n"), rlx.symbol("m")
    for size in (5, n, 2 * n + 3, n * n * m, n // 3 + m, smaller(n, m) + 1):
        numbers = {"n": 17, "m": 4}
        expected = eval(str(size).replace("^", "**"), dict(numbers))
        assert foreign_size(size, numbers) == expected
        written = foreign_size(size, {"n": Size("n"), "m": Size("m")}, lambda a, b: Size(f"min({a}, {b})"))
        assert eval(str(written), dict(numbers)) == expected


def test_relations_are_decided_or_become_guards_that_name_their_subject() -> None:
    with pytest.raises(ShapeError, match="line h: 2 >= 3 does not hold"):
        expect_relation(">=", 2, 3, "line h")
    expect_relation("==", rlx.symbol("n"), rlx.symbol("n"), "line h")

    def function(x: Any) -> Any:
        expect_relation(">=", x.shape[0], 3, "line h")
        return x

    compiled = rlx.compile(function, rlx.spec("f32[n]"))
    assert compiled(rlx.zeros((3,))).shape == (3,)
    with pytest.raises(GuardError, match="n >= 3 does not hold") as caught:
        compiled(rlx.zeros((2,)))
    assert "line h" in str(caught.value)
