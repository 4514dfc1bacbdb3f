"""Context of a handler in the walk that calls it: its node, and keys for random numbers."""

from __future__ import annotations

from contextvars import ContextVar
from typing import Any

from rlx_core import random
from rlx_core.importing.symbols import expect_relation
from rlx_core.importing.walk import refuse
from rlx_core.ir.dims import Dim, Relation

__all__ = ["Here", "expect", "expect_unread", "fresh_key", "here", "is_read", "refuse"]


class Here:
    """The state of a walk: the current node, and the key for random numbers."""

    def __init__(self, key: random.Key | None = None) -> None:
        self.node: Any = None
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
