"""Source text that grows line by line, with its indentation and with names that are not used twice."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Final

from attrs import field

from rlx_core.system.records import define
from rlx_gpu.codegen.languages import GpuDialect

TYPE_NAMES: Final = frozenset(f"{kind}{bits}" for kind in "iuf" for bits in (8, 16, 32, 64))
"""Names of number types in the preludes of the languages."""


@define(eq=False)
class Writer:
    """The body of one function in a language."""

    language: GpuDialect
    lines: list[str] = field(factory=list, init=False)
    depth: int = field(default=1, init=False)
    _count: int = field(default=0, init=False)

    def fresh(self, prefix: str = "v") -> str:
        """A name that this function does not have yet, and that no type of the preludes has."""
        name = f"{prefix}{self._count}"
        self._count += 1
        return f"{prefix}_{self._count - 1}" if name in TYPE_NAMES else name

    def line(self, text: str) -> None:
        self.lines.append("  " * self.depth + text)

    def let(self, name: str, text: str, kind: str = "u32") -> None:
        """Declare a constant of a type."""
        self.line(self.language.declared(kind, name, text))

    def barrier(self) -> None:
        """All threads of a group wait for each other."""
        self.line(self.language.barrier)

    @contextmanager
    def block(self, head: str, end: str = "}") -> Iterator[None]:
        """Lines between `head`, which ends in a brace, and its end."""
        self.line(head)
        self.depth += 1
        yield
        self.depth -= 1
        self.line(end)

    def when(self, condition: str) -> AbstractContextManager[None]:
        """Lines that are executed if a condition holds."""
        return self.block(f"if ({condition}) {{")

    def loop(
        self, name: str, start: str, stop: str, step: str = "1u", kind: str = "u32", *, is_unrolled: bool = False
    ) -> AbstractContextManager[None]:
        """Lines that are repeated for each value of a variable."""
        head = self.language.loop(kind, name, start, stop, step)
        return self.block(self.language.unrolled + head if is_unrolled else head)

    def unrolled(self, name: str, count: int) -> AbstractContextManager[None]:
        """Lines that are repeated `count` times, so that the variable is a constant in each of them."""
        return self.loop(name, "0u", f"{count}u", is_unrolled=True)

    @property
    def text(self) -> str:
        return "\n".join(self.lines)
