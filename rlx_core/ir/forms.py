"""Reading untrusted input: each function takes a part of a JSON form and checks its shape.

A file may hold anything, so nothing is indexed, unpacked or trusted before one of these has checked it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rlx_core.errors import FormatError, RlxError

Json = Any
"""Values that `json.dumps` writes without loss: None, bool, int, str, lists, and dictionaries with string keys."""


def need(form: Json, kind: type[Any], what: str) -> Any:
    """`form`, which must be of this kind (a bool is no int)."""
    if not isinstance(form, kind) or (kind is int and isinstance(form, bool)):
        raise FormatError(f"{what} must be {kind.__name__}, not {type(form).__name__}")
    return form


def optional(form: Json, kind: type[Any], what: str) -> Any:
    return None if form is None else need(form, kind, what)


def items(form: Json, count: int, what: str) -> list[Any]:
    """A list of exactly `count` items."""
    if not isinstance(form, list) or len(form) != count:
        raise FormatError(f"{what} must be a list of {count}, not {str(form)[:60]}")
    return form


def pair(form: Json, what: str) -> list[Any]:
    return items(form, 2, what)


def quoted(read: Callable[[str], Any], text: str) -> Any:
    """Return `read(text)`; its exceptions about the text are raised as a FormatError."""
    try:
        return read(text)
    except FormatError:
        raise
    except RlxError as error:
        raise FormatError(error.message, *error.facts, hint=error.hint) from None
