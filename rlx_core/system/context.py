"""Context variables that have a value inside a block."""

from __future__ import annotations

from contextvars import ContextVar, Token
from typing import Any, Generic, TypeVar

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
