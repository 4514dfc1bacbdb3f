"""Symbolic sizes of another system as dims of rlx, and dims as sizes of that system."""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Mapping
from typing import Any

from rlx_core.errors import ShapeError
from rlx_core.ir.dims import Dim, Relation, SizeGuard, SizeSymbol, free_symbols, holds, symbol
from rlx_core.ir.graph import ambient_builder


class SymbolTable(dict[str, Any]):
    """Name of a symbolic size in another system → dim of rlx.

    A missing name gets a symbol on first access: its own name, with other characters replaced, that no other entry has. Entries
    that are assigned may be any dim.
    """

    def __missing__(self, name: str) -> Dim:
        used = {each.name for each in free_symbols(*self.values())}
        created = self[name] = symbol(fresh_name(name, used))
        return created


def fresh_name(name: str, used: Container[str]) -> str:
    """Return a name of a symbol like `name` that is not among those used.

    >>> fresh_name("batch", {"n"}), fresh_name("a.b", {"a_b"}), fresh_name("3d", set())
    ('batch', 'a_b_', 'n_3d')
    """
    fresh = re.sub(r"\W", "_", name, flags=re.ASCII)
    fresh = fresh if fresh[:1].isalpha() or fresh[:1] == "_" else f"n_{fresh}"
    while fresh in used:
        fresh += "_"
    return fresh


def foreign_size(size: Dim, values: Mapping[str, Any], minimum: Callable[[Any, Any], Any] = min) -> Any:
    """Return a dim as a size of another system, computed with the operators of that system's sizes.

    Args:
        size: The dim.
        values: Name of a symbol of rlx → the other system's size.
        minimum: Returns the smaller of two sizes of the other system.
    """
    if isinstance(size, int):
        return size
    total: Any = 0
    for monomial, factor in size.terms:
        term: Any = factor
        for atom, power in monomial:
            term = term * _foreign_atom(atom, values, minimum) ** power
        total = total + term
    return total


def _foreign_atom(atom: Any, values: Mapping[str, Any], minimum: Callable[[Any, Any], Any]) -> Any:
    if isinstance(atom, SizeSymbol):
        return values[atom.name]
    left, right = (foreign_size(each, values, minimum) for each in (atom.left, atom.right))
    return minimum(left, right) if atom.kind == "min" else left // right


def expect_relation(relation: Relation, left: Dim, right: Dim, subject: str) -> None:
    """Require a relation of sizes; an undecided one becomes a guard of the program that is traced, which names the subject.

    Raises:
        ShapeError: It does not hold.
    """
    known = holds(relation, left, right)
    if known is False:
        raise ShapeError(f"{subject}: {left} {relation} {right} does not hold")
    if known is None:
        builder = ambient_builder()
        assert builder is not None, "undecided sizes occur in a trace only"
        builder.add_guards([SizeGuard(relation, left, right, subject)])
