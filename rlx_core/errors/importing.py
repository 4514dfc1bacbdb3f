"""Errors of importers: operations of another system that rlx does not support."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rlx_core.errors.base import Fact, RlxError

__all__ = ["UnsupportedError", "unsupported"]

SHOWN = 3


class UnsupportedError(RlxError, NotImplementedError):
    """A program of another system uses operations that have no equivalent in rlx.

    All of them are listed at once, each with where it is used and a possible
    replacement, so that one error shows whether a model can be imported.

    >>> from rlx_core.errors import unsupported
    >>> uses = {"Lower": ["node words"], "Unique": ["node 7", "node 9"]}
    >>> raise unsupported("tagger.onnx", uses, {"Lower": "texts in lower case"})
    Traceback (most recent call last):
        ...
    UnsupportedError: tagger.onnx: 2 operations are not supported: Lower, Unique

    >>> unsupported("tagger.onnx", uses, {"Lower": "texts in lower case"}).facts[0]
    Fact('Lower', 'node words; instead: texts in lower case', None)
    """


def unsupported(
    what: str, uses: Mapping[str, Sequence[str]], instead: Mapping[str, str] | None = None
) -> UnsupportedError:
    """Return the error for all operations of a program that rlx does not support.

    Args:
        what: The program: a file, a module, a function; empty where the code that catches the error adds it.
        uses: Operation → where it is used, in the words of the system that it comes from.
        instead: Operation → a replacement, where one is known.
    """
    known = instead or {}
    facts = []
    for name, places in uses.items():
        more = f" and {len(places) - SHOWN} more" if len(places) > SHOWN else ""
        serves = f"; instead: {known[name]}" if name in known else ""
        facts.append(Fact(name, ", ".join(places[:SHOWN]) + more + serves))
    verb = "operation is" if len(uses) == 1 else "operations are"
    about = f"{what}: " if what else ""
    return UnsupportedError(f"{about}{len(uses)} {verb} not supported: {', '.join(uses)}", *facts)
