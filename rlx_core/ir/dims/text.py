"""Reading dims as they are printed."""

from __future__ import annotations

import re

from rlx_core.errors import ShapeError
from rlx_core.ir.dims.algebra import MOST_NESTED, Dim, exact_quotient, product, symbol, symbol_numbered

__all__ = ["parse_dim"]

# A quotient beside other factors is printed in two pairs of brackets.
_MAX_DEPTH, _MAX_POWER = 2 * MOST_NESTED + 2, 32
_DIM_TOKEN = re.compile(r"\s*(?:(\d+)|\?(\d+)|([A-Za-z_]\w*)|(.))")


def parse_dim(text: str) -> Dim:
    """Read a dim as it is printed: `12`, `SEQ`, `?17`, `2*n + 1`, `(n*s)/(4)`.

    Raises:
        ShapeError: The text is not a size.
    """
    tokens = [m.groups() for m in _DIM_TOKEN.finditer(text.strip())]
    position = depth = 0

    def peek() -> str | None:
        return tokens[position][3] if position < len(tokens) else None

    def fail() -> ShapeError:
        return ShapeError(f"size: {text!r} is not a size", hint="write 12, SEQ, 2*n + 1")

    def atom() -> Dim:
        nonlocal depth
        # Texts come from files too: what no printer writes is refused before it costs memory or stack.
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
        if name is not None:
            return symbol(name)
        if mark == "(":
            inner = total()
            if peek() != ")":
                raise fail()
            position += 1
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
        while (mark := peek()) in ("*", "/"):
            position += 1
            value = value * factor() if mark == "*" else exact_quotient(value, factor())
        return value

    def total() -> Dim:
        nonlocal position
        value = term()
        while (mark := peek()) in ("+", "-"):
            position += 1
            value = value + term() if mark == "+" else value - term()
        return value

    result = total()
    if position != len(tokens):
        raise fail()
    return result
