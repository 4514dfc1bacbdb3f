"""Context of a handler in the walk that calls it: its node, and keys for random numbers."""

from __future__ import annotations

from contextvars import ContextVar
from typing import Any, NoReturn

from rlx_core import random
from rlx_core.errors import ShapeError
from rlx_core.ir.dims import Dim, Relation, collecting_guards, require
from rlx_core.ir.graph import ambient_builder

__all__ = ["Here", "Refused", "expect", "expect_unread", "fresh_key", "here", "is_read", "refuse"]


class Refused(Exception):
    """A handler does not support these operands; the walk adds the node.

    Args:
        instead: A supported alternative.
    """

    def __init__(self, instead: str) -> None:
        super().__init__(instead)
        self.instead = instead


class Here:
    """The state of a walk: the current node, and the key for random numbers."""

    def __init__(self, key: random.Key | None = None) -> None:
        self.node: Any = None
        self._key = key
        self._drawn = 0

    def fresh_key(self) -> random.Key:
        """A key that nothing else is drawn from."""
        assert self._key is not None, f"{self.node} draws, and whoever walks gave no key"
        self._drawn += 1
        return random.fold_in(self._key, self._drawn)


here: ContextVar[Here] = ContextVar("here")


def fresh_key() -> random.Key:
    """A key for the node that is being handled."""
    return here.get().fresh_key()


def refuse(instead: str) -> NoReturn:
    """Say that these operands have no translation, and what would serve."""
    raise Refused(instead)


def expect(relation: Relation, left: Dim, right: Dim) -> None:
    """Require a relation of sizes; one that is not decided yet becomes a guard of the program.

    Raises:
        ShapeError: It does not hold.
    """
    with collecting_guards() as guards:
        if not require(relation, left, right):
            raise ShapeError(f"torch: the program requires {left} {relation} {right}")
    builder = ambient_builder()
    assert builder is not None, "sizes are required of a program, while it is traced"
    builder.add_guards(guards)


def expect_unread(*places: int, instead: str) -> None:
    """Refuse if a result that is not computed is used."""
    if any(map(is_read, places)):
        refuse(instead)


def is_read(place: int) -> bool:
    """Return whether anything reads a result of the node, of which there are several."""
    return any(user.args[1:] == (place,) or "getitem" not in str(user.target) for user in here.get().node.users)
