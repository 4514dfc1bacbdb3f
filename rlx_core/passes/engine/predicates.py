"""Conditions that rules share, each with the name that an explanation prints."""

from __future__ import annotations

from collections.abc import Callable

from rlx_core.ir.dtypes import DType
from rlx_core.passes.engine.rules import Match, Predicate, kept_for, predicate


@predicate("every inner value to have one use and to be no output")
def only_use(match: Match) -> bool:
    return all(kept_for(match.graph, node) is None for node in match.inner)


def root_dtype(name: str, accepts: Callable[[DType], bool]) -> Predicate:
    """The condition that the root's dtype is of a kind: `root_dtype("an integer", ...)`."""
    return Predicate(f"the result to be {name}", lambda match: all(accepts(t.dtype) for t in match.root.types))


is_integer = root_dtype("an integer", lambda d: d.is_integer)
is_not_complex = root_dtype("real", lambda d: not d.is_complex)
is_float = root_dtype("a float", lambda d: d.is_float)
