"""Out-of-memory errors and half-imported modules, detected from any exception and raised as typed errors."""

from __future__ import annotations

import sys
from contextlib import ContextDecorator

from rlx_core.errors.base import Fact, RlxError
from rlx_core.errors.running import DeadlockError, OutOfMemoryError

_LOADERS_WORDS = ("cannot allocate memory", "failed to map segment", "out of memory", "not enough memory")
"""Messages of a system's loader, in an ImportError or an OSError, where a library does not fit into memory."""


def is_lack(error: BaseException | None) -> bool:
    """Return whether an error is an out-of-memory error: Python's own, or the loader's about a library.

    A package that reports a failed import in its own words raises that while it handles the loader's error.
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
    """Return the error for an operation for which Python or a library had no memory left."""
    return OutOfMemoryError(
        f"{what}: the machine has no memory left for it",
        *([Fact("cause", error)] if str(error) else []),
        hint="free memory, or raise the limit (`ulimit -v`), and call again",
    )


def in_our_words(what: str, error: BaseException) -> RlxError | None:
    """Return the typed error for a lack of memory or a half-imported module; `None` for other exceptions."""
    if isinstance(error, RlxError):  # a failed plugin's error has its cause
        is_shortage = not isinstance(error, OutOfMemoryError) and is_lack(error.__cause__)
        return lacking(what, error) if is_shortage else None
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
    """Return the module in which a name is missing because its import is not done."""
    if isinstance(error, ImportError):
        module = sys.modules.get(error.name or "")
    elif isinstance(error, AttributeError) and isinstance(error.obj, type(sys)):
        module = error.obj
    else:
        return None
    spec = getattr(module, "__spec__", None)
    return str(spec.name) if spec is not None and getattr(spec, "_initializing", False) else None


class typed_lacks(ContextDecorator):
    """Context manager or decorator that translates out-of-memory errors of rlx's own allocations and imports into typed errors.

    Raises:
        OutOfMemoryError: There was no memory left.
        DeadlockError: Called by a signal handler that interrupted the import of a module which the block needs.
    """

    def __init__(self, what: str) -> None:
        self.what = what

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        translated = None if error is None else in_our_words(self.what, error)
        if translated is not None:
            raise translated from error
