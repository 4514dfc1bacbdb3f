"""Errors of importers: operations of another system that rlx does not support."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rlx_core.errors.base import Fact, RlxError

__all__ = ["UnsupportedError", "unsupported"]


class UnsupportedError(RlxError, NotImplementedError):
    """A program of another system uses operations that have no equivalent in rlx.

    All of them are listed at once, each with the number of its uses, the first of
    them and a possible replacement, so that one error shows whether a model can be
    imported. Where an operation has no handler, the hint shows how to register one.

    >>> from rlx_core.errors import unsupported
    >>> uses = {"Lower": ["node words"], "Unique": ["node 7", "node 9"]}
    >>> raise unsupported("tagger.onnx", uses, {"Lower": "texts in lower case"})
    Traceback (most recent call last):
        ...
    UnsupportedError: tagger.onnx: 2 operations are not supported: Lower, Unique

    >>> unsupported("tagger.onnx", uses).facts[1]
    Fact('Unique', '2 uses', 'first: node 7')
    """


def unsupported(
    what: str,
    uses: Mapping[str, Sequence[str]],
    instead: Mapping[str, str] | None = None,
    registration: str | None = None,
) -> UnsupportedError:
    """Return the error for all operations of a program that rlx does not support.

    Args:
        what: The program: a file, a module, a function; empty where the code that catches the error adds it.
        uses: Operation → where it is used, in the words of the system that it comes from.
        instead: Operation → a replacement, where one is known.
        registration: How to register a handler for an operation without one, as the hint.
    """
    known = instead or {}
    facts = []
    for name, locations in uses.items():
        count = "1 use" if len(locations) == 1 else f"{len(locations)} uses"
        alternative = f"; instead: {known[name]}" if name in known else ""
        first = locations[0] if len(locations) == 1 else f"first: {locations[0]}"
        facts.append(Fact(name, count + alternative, first))
    verb = "operation is" if len(uses) == 1 else "operations are"
    about = f"{what}: " if what else ""
    message = f"{about}{len(uses)} {verb} not supported: {', '.join(uses)}"
    return UnsupportedError(message, *facts, hint=registration)
