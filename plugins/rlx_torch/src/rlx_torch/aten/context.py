"""Context of a handler in the walk that calls it: its node, and keys for random numbers."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

import numpy as np

from rlx_core import random
from rlx_core.importing.symbols import expect_relation
from rlx_core.importing.walk import refuse
from rlx_core.ir.dims import Dim, Relation

__all__ = ["Here", "expect", "expect_unread", "fresh_key", "here", "is_read", "on_host", "refuse"]


class Here:
    """The state of a walk: the current node, the key for random numbers, and a function that adds a step on the host."""

    def __init__(self, key: random.Key | None = None, on_host: Callable[..., Any] | None = None) -> None:
        self.node: Any = None
        self.on_host = on_host
        self._key = key
        self._drawn = 0

    def fresh_key(self) -> random.Key:
        """A key that nothing else is drawn from."""
        assert self._key is not None, f"{self.node} draws, and the caller passed no key"
        self._drawn += 1
        return random.fold_in(self._key, self._drawn)


here: ContextVar[Here] = ContextVar("here")


def fresh_key() -> random.Key:
    """A key for the node that is being handled."""
    return here.get().fresh_key()


def on_host(function: Callable[..., np.ndarray], *operands: Any, instead: str) -> Any:
    """Return the result of the node, whose size is data-dependent, computed by a function of arrays between two programs.

    Args:
        function: A function of arrays, and of `None` for omitted operands.
        operands: Operands of the node.
        instead: An alternative, where the caller of the walk compiles one program.

    Raises:
        OperandRefusal: The caller compiles one program, or the node is in a graph inside of another.
    """
    add_step = here.get().on_host
    return refuse(instead) if add_step is None else add_step(function, operands, instead)


def expect(relation: Relation, left: Dim, right: Dim) -> None:
    """Require a relation of sizes; one that is not decided yet becomes a guard of the program.

    Raises:
        ShapeError: It does not hold.
    """
    expect_relation(relation, left, right, f"node {here.get().node}")


def expect_unread(*places: int, instead: str) -> None:
    """Refuse if a result that is not computed is used."""
    if any(map(is_read, places)):
        refuse(instead)


def is_read(place: int) -> bool:
    """Return whether anything reads a result of the node, of which there are several."""
    return any(user.args[1:] == (place,) or "getitem" not in str(user.target) for user in here.get().node.users)
