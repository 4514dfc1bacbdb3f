"""Lack of memory, said as what it is wherever it comes up."""

from __future__ import annotations

from contextlib import ContextDecorator

from rlx_core.errors.base import Fact
from rlx_core.errors.running import OutOfMemoryError

__all__ = ["enough_memory"]


class enough_memory(ContextDecorator):
    """Around what needs memory for itself rather than for arrays of a known size; for `with`, or as a decorator.

    Raises:
        OutOfMemoryError: Python or a library had none left.
    """

    def __init__(self, what: str) -> None:
        self.what = what

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if isinstance(error, MemoryError) and not isinstance(error, OutOfMemoryError):
            raise OutOfMemoryError(
                f"{self.what}: the machine has no memory left for it",
                *([Fact("cause", error)] if str(error) else []),
                hint="free memory, or raise the limit (`ulimit -v`), and call again",
            ) from error
