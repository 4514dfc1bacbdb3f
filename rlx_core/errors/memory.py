"""Lack of memory, said as what it is wherever it comes up."""

from __future__ import annotations

from contextlib import ContextDecorator

from rlx_core.errors.base import Fact
from rlx_core.errors.running import OutOfMemoryError

__all__ = ["enough_memory", "is_lack", "lacking"]

_LOADERS_WORDS = ("cannot allocate memory", "failed to map segment")
"""What a system's loader says, in an ImportError or an OSError, where a library does not fit."""


def is_lack(error: BaseException | None) -> bool:
    """Whether an error is about memory that is not there: Python's own, or the loader's about a library."""
    if isinstance(error, MemoryError):
        return True
    return isinstance(error, ImportError | OSError) and any(words in str(error).lower() for words in _LOADERS_WORDS)


def lacking(what: str, error: BaseException) -> OutOfMemoryError:
    """The error for something that Python or a library had no memory left for."""
    return OutOfMemoryError(
        f"{what}: the machine has no memory left for it",
        *([Fact("cause", error)] if str(error) else []),
        hint="free memory, or raise the limit (`ulimit -v`), and call again",
    )


class enough_memory(ContextDecorator):
    """Around what needs memory for itself rather than for arrays of a known size; for `with`, or as a decorator.

    Raises:
        OutOfMemoryError: There was none left.
    """

    def __init__(self, what: str) -> None:
        self.what = what

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if isinstance(error, MemoryError) and not isinstance(error, OutOfMemoryError):
            raise lacking(self.what, error) from error
