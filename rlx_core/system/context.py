"""Context variables that have a value inside a block, and the number of blocks that observe runs."""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar, Token
from typing import Any, Final, Generic, TypeVar

from rlx_core.system.locks import Lock

T = TypeVar("T")


class assigned(Generic[T]):
    """Give a context variable a value inside the block, and at its end the previous one again; `with` returns the value.

    A class, because a generator with `contextlib.contextmanager` takes three times as long, and every op enters one.
    """

    __slots__ = ("_token", "_value", "_variable")

    _token: Token[Any]

    def __init__(self, variable: ContextVar[Any], value: T) -> None:
        self._variable, self._value = variable, value

    def __enter__(self) -> T:
        self._token = self._variable.set(self._value)
        return self._value

    def __exit__(self, *raised: object) -> None:
        self._variable.reset(self._token)


watchers: Final = array("q", [0])
"""The number of contexts in this process that observe runs; native entries read it and leave such runs to the checked path."""

_watchers_lock: Final = Lock("the number of observers")


@contextmanager
def watching() -> Iterator[None]:
    """Have all runs take the checked path inside `with`, where they can be observed."""
    with _watchers_lock:
        watchers[0] += 1
    try:
        yield
    finally:
        with _watchers_lock:
            watchers[0] -= 1
