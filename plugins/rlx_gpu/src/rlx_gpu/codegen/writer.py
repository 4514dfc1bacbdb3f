"""Source text that grows line by line, with its indentation and with names that are not used twice."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from attrs import field

from rlx_core.system.records import define

__all__ = ["TYPE_NAMES", "Writer"]

TYPE_NAMES: Final = frozenset(f"{kind}{bits}" for kind in "iuf" for bits in (8, 16, 32, 64))
"""Names of number types in the preludes of the languages."""


@define(eq=False)
class Writer:
    """The body of one function."""

    lines: list[str] = field(factory=list)
    depth: int = 1
    _count: int = 0

    def fresh(self, prefix: str = "v") -> str:
        """A name that this function does not have yet, and that no type of the preludes has."""
        name = f"{prefix}{self._count}"
        self._count += 1
        return f"{prefix}_{self._count - 1}" if name in TYPE_NAMES else name

    def line(self, text: str) -> None:
        self.lines.append("  " * self.depth + text)

    @contextmanager
    def block(self, head: str, end: str = "}") -> Iterator[None]:
        """Lines between `head`, which ends in a brace, and its end."""
        self.line(head)
        self.depth += 1
        yield
        self.depth -= 1
        self.line(end)

    @property
    def text(self) -> str:
        return "\n".join(self.lines)
