"""Reading dims as they are printed."""

from __future__ import annotations

import copyreg
import operator
import re
from collections.abc import Callable, Mapping
from typing import cast

from rlx_core.errors import ShapeError
from rlx_core.ir.dims.algebra import (
    Dim,
    Expr,
    exact_quotient,
    floor_quotient,
    product,
    smaller,
    symbol,
    symbol_numbered,
)
from rlx_core.ir.dims.atoms import MOST_NESTED

# A quotient that is multiplied is printed in two pairs of brackets.
_MAX_DEPTH, _MAX_POWER = 2 * MOST_NESTED + 2, 32
_DIM_TOKEN = re.compile(r"\s*(?:(\d+)|\?(\d+)|([A-Za-z_]\w*)|(//|.))")

_TIMES: Mapping[str | None, Callable[[Dim, Dim], Dim]] = {
    "*": operator.mul,
    "/": exact_quotient,
    "//": floor_quotient,
}


def parse_dim(text: str) -> Dim:
    """Read a dim as it is printed: `12`, `SEQ`, `?17`, `2*n + 1`, `(n*s)/(4)`, `(n + 1)//(2)`, `min(4, n)`.

    Raises:
        ShapeError: The text is not a size.
    """
    sizes = parse_dims(text)
    if len(sizes) != 1:
        raise _no_size(text)
    return sizes[0]


def _no_size(text: str) -> ShapeError:
    return ShapeError(f"size: {text!r} is not a size", hint="write 12, SEQ, 2*n + 1, n//2, min(n, 4)")


def parse_dims(text: str) -> list[Dim]:
    """Read dims as a type lists them, separated by commas.

    Raises:
        ShapeError: One of them is not a size.
    """
    tokens = [m.groups() for m in _DIM_TOKEN.finditer(text.strip())]
    position = depth = 0

    def peek() -> str | None:
        return tokens[position][3] if position < len(tokens) else None

    def fail() -> ShapeError:
        return _no_size(text)

    def skip(mark: str) -> None:
        nonlocal position
        if peek() != mark:
            raise fail()
        position += 1

    def atom() -> Dim:
        nonlocal depth
        # Texts come from files too: a text that no printer writes is refused before it costs memory or stack.
        if position >= len(tokens) or depth >= _MAX_DEPTH:
            raise fail()
        depth += 1
        read = bare_atom()
        depth -= 1
        return read

    def bare_atom() -> Dim:
        nonlocal position
        number, ident, name, mark = tokens[position]
        position += 1
        if len(number or ident or "") > 19:
            raise fail()
        if number is not None:
            return int(number)
        if ident is not None:
            return symbol_numbered(int(ident))
        if name == "min" and peek() == "(":
            skip("(")
            left = total()
            skip(",")
            right = total()
            skip(")")
            return smaller(left, right)
        if name is not None:
            return symbol(name)
        if mark == "(":
            inner = total()
            skip(")")
            return inner
        if mark == "-":
            return -1 * factor()
        raise fail()

    def factor() -> Dim:
        nonlocal position
        base = atom()
        if peek() == "^":
            position += 1
            exponent = atom()
            if not isinstance(exponent, int) or exponent > _MAX_POWER:
                raise fail()
            return product([base] * exponent)
        return base

    def term() -> Dim:
        nonlocal position
        value = factor()
        while (mark := peek()) in _TIMES:
            position += 1
            value = _TIMES[mark](value, factor())
        return value

    def total() -> Dim:
        nonlocal position
        value = term()
        while (mark := peek()) in ("+", "-"):
            position += 1
            value = value + term() if mark == "+" else value - term()
        return value

    sizes = [total()]
    while position != len(tokens):
        skip(",")
        sizes.append(total())
    return sizes


def _reduced(size: Expr) -> tuple[Callable[[str], Expr], tuple[str]]:
    return cast("Callable[[str], Expr]", parse_dim), (repr(size),)  # an expression's text parses to an expression


copyreg.pickle(Expr, _reduced)  # sizes travel by their text, in which files have them too
