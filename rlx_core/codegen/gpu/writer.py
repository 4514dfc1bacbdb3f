"""Source text that grows line by line, with its indentation and with names that are not used twice."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from attrs import field

from rlx_core.system.records import define

__all__ = ["Writer"]


@define(eq=False)
class Writer:
    """The body of one function."""

    lines: list[str] = field(factory=list)
    depth: int = 1
    _count: int = 0

    def fresh(self, prefix: str = "v") -> str:
        """A name that this function does not have yet."""
        self._count += 1
        return f"{prefix}{self._count - 1}"

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
