"""Readers of the forms of packed programs: numbers within bounds, static types, source lines."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, TypeVar

from rlx_core.errors import Fact, FormatError
from rlx_core.ir.forms import Json, items, need, quoted
from rlx_core.ir.provenance import Source
from rlx_core.ir.types import TensorType, spec

_MOST_NBYTES: Final = 1 << 47

T = TypeVar("T")


def number(form: Json, what: str, *, low: int = 0, high: int = _MOST_NBYTES) -> int:
    """A number from `low` to `high` - 1.

    Raises:
        FormatError: It is not one.
    """
    value: int = need(form, int, what)
    if not low <= value < high:
        raise FormatError(f"package: {what} is {value}, not from {low} to {high - 1}")
    return value


def every(form: Json, read: Callable[[Json], T]) -> tuple[T, ...]:
    """The parts of a list.

    Raises:
        FormatError: It is not one.
    """
    return tuple(read(each) for each in need(form, list, "a part of a program"))


def known_type(form: Json) -> TensorType:
    """A type without symbols.

    Raises:
        FormatError: It is not one.
    """
    result: TensorType = quoted(spec, need(form, str, "a type"))
    if not result.is_static:
        raise FormatError(f"package: {result} has sizes that are not known")
    return result


def node_form(fact: Fact) -> dict[str, Json]:
    """The fact about a node and the user's line, as `node_from` reads it."""
    source = fact.where
    return {"label": fact.value, "line": [source.file, source.line] if isinstance(source, Source) else None}


def node_from(row: Mapping[str, Json]) -> Fact:
    """The fact about a node, for errors.

    Raises:
        FormatError: It is something else.
    """
    label, line = need(row.get("label"), str, "a label"), row.get("line")
    if line is None:
        return Fact("node", label)
    file, place = items(line, 2, "a line")
    return Fact("node", label, Source(need(file, str, "a file"), number(place, "a line")))
