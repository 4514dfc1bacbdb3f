"""Lack of memory, or of a module that a signal handler found half imported, said as what it is wherever it comes up."""

from __future__ import annotations

import sys
from contextlib import ContextDecorator

from rlx_core.errors.base import Fact, RlxError
from rlx_core.errors.running import DeadlockError, OutOfMemoryError

__all__ = ["in_our_words", "is_lack", "lacking", "typed_lacks"]

_LOADERS_WORDS = ("cannot allocate memory", "failed to map segment", "out of memory", "not enough memory")
"""What a system's loader says, in an ImportError or an OSError, where a library does not fit."""


def is_lack(error: BaseException | None) -> bool:
    """Whether an error is about memory that is not there: Python's own, or the loader's about a library.

    A package that says in words of its own why its library cannot be loaded says it while it handles the loader's error.
    """
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        if isinstance(error, MemoryError):
            return True
        if not isinstance(error, ImportError | OSError):
            return False
        if any(words in str(error).lower() for words in _LOADERS_WORDS):
            return True
        seen.add(id(error))
        error = error.__cause__ or error.__context__
    return False


def lacking(what: str, error: BaseException) -> OutOfMemoryError:
    """The error for something that Python or a library had no memory left for."""
    return OutOfMemoryError(
        f"{what}: the machine has no memory left for it",
        *([Fact("cause", error)] if str(error) else []),
        hint="free memory, or raise the limit (`ulimit -v`), and call again",
    )


def in_our_words(what: str, error: BaseException) -> RlxError | None:
    """The typed error for what memory or a half imported module was lacking for; `None` if it is neither."""
    if isinstance(error, RlxError):  # a plugin's that failed says why
        lacks = not isinstance(error, OutOfMemoryError) and is_lack(error.__cause__)
        return lacking(what, error) if lacks else None
    if is_lack(error):
        return lacking(what, error)
    module = _half_imported(error)
    if module is None:
        return None
    return DeadlockError(
        f"{what}: {module} is being imported by what this interrupted, which goes on when this has returned",
        Fact("asked from", "a signal handler, most likely: it came while rlx did this for the first time"),
        hint="let the handler set a flag, or call once before the first signal can come",
    )


def _half_imported(error: BaseException) -> str | None:
    """The module whose name was not there yet, because its import is not done."""
    if isinstance(error, ImportError):
        module = sys.modules.get(error.name or "")
    elif isinstance(error, AttributeError) and isinstance(error.obj, type(sys)):
        module = error.obj
    else:
        return None
    spec = getattr(module, "__spec__", None)
    return str(spec.name) if spec is not None and getattr(spec, "_initializing", False) else None


class typed_lacks(ContextDecorator):
    """Around what needs memory for itself rather than for arrays of a known size, and imports; for `with`, or as a decorator.

    Raises:
        OutOfMemoryError: There was no memory left.
        DeadlockError: A module is being imported by what a signal handler, which asks for this, interrupted.
    """

    def __init__(self, what: str) -> None:
        self.what = what

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        found = None if error is None else in_our_words(self.what, error)
        if found is not None:
            raise found from error
