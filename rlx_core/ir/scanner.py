"""A position in a text: the base of every reader of rlx's text forms.

Patterns are matched at the position, space and comments before them are skipped, and every failure is a FormatError with
the line, the column and the unexpected text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any, NoReturn, TypeVar

from rlx_core.errors import Fact, FormatError, RlxError
from rlx_core.ir.types import TensorType, spec

_T = TypeVar("_T")

_SPACE = re.compile(r"(?:\s|#[^\n]*)*")
STRING = re.compile(r'"(?:[^"\\\n]|\\.)*"')
WORD = re.compile(r"[A-Za-z_]\w*(?:\.\w+)*", re.ASCII)
VALUE = re.compile(r'%(?:"(?:[^"\\\n]|\\.)*"(?:\.\d+)?|[A-Za-z0-9_][\w.]*)', re.ASCII)
TYPE = re.compile(r"[A-Za-z]\w*\s*\[[^\]]*\]")
NUMBER = re.compile(r"[+-]?(?:nan\(0x[0-9a-f]{16}\)|nan\b|inf\b|\d+(?:\.\d*)?(?:e[+-]?\d+)?)", re.ASCII)
INT = re.compile(r"[+-]?\d{1,4000}", re.ASCII)


class Scanner:
    """A position in a text, and reading at that position.

    Attributes:
        about: Subject of errors: the op or attribute being read.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        self.position = 0
        self.about = "text"

    def skip(self) -> None:
        match = _SPACE.match(self.text, self.position)
        assert match is not None, "space may be empty"
        self.position = match.end()

    def take(self, pattern: re.Pattern[str]) -> str | None:
        """The text that matches here, consumed; `None` if nothing does."""
        self.skip()
        match = pattern.match(self.text, self.position)
        if match is None:
            return None
        self.position = match.end()
        return match.group()

    def looks_at(self, mark: str) -> bool:
        self.skip()
        return self.text.startswith(mark, self.position)

    def accept(self, mark: str) -> bool:
        """Consume `mark` if it stands here; a word must end where `mark` ends."""
        if not self.looks_at(mark):
            return False
        after = self.position + len(mark)
        if mark[-1].isalnum() and after < len(self.text) and re.match(r"[\w.]", self.text[after]):
            return False
        self.position = after
        return True

    def expect(self, mark: str) -> None:
        if not self.accept(mark):
            self.fail(f"expected `{mark}`")

    def separated(self, close: str, read: Callable[[], _T]) -> list[_T]:
        """Return what `read` reads, again and again up to `close`, with commas in between; one may follow the last."""
        items: list[_T] = []
        while not self.accept(close):
            items.append(read())
            if not self.accept(",") and not self.looks_at(close):
                self.fail(f"expected `,` or `{close}`")
        return items

    def need(self, pattern: re.Pattern[str], what: str) -> str:
        match = self.take(pattern)
        return self.fail(f"expected {what}") if match is None else match

    def end(self) -> None:
        """Require that nothing is left."""
        self.skip()
        if self.position < len(self.text):
            self.fail("expected the end")

    def fail(self, problem: str, *, position: int | None = None, hint: str | None = None) -> NoReturn:
        space = _SPACE.match(self.text, self.position if position is None else position)
        assert space is not None, "space may be empty"
        place = space.end()
        line = self.text.count("\n", 0, place) + 1
        start = self.text.rfind("\n", 0, place) + 1
        row = self.text[start:].split("\n", 1)[0]
        match = re.match(r"\s*(\w+|.)?", self.text[place : place + 40])
        shown = match.group(1) if match and match.group(1) else "the end"
        raise FormatError(
            f"{self.about}: line {line}, column {place - start + 1}: {problem}, found `{shown}`",
            Fact("line", row.strip()[:120] or "the end"),
            hint=hint,
        ) from None

    def guarded(self, make: Callable[[], Any], position: int) -> Any:
        """Return `make()`, with the position in the text added to its errors."""
        try:
            return make()
        except RlxError as error:
            self.fail(error.message, position=position, hint=error.hint)

    def string(self, what: str = "a string") -> str:
        position = self.position
        return self.unquoted(self.need(STRING, what), position)

    def unquoted(self, text: str, position: int) -> str:
        try:
            return str(json.loads(text))
        except ValueError:
            self.fail(f"{text} is not a JSON string", position=position)

    def name(self, what: str) -> str:
        return self.string(what) if self.looks_at('"') else self.need(WORD, what)

    def type(self) -> TensorType:
        position = self.position
        text = self.need(TYPE, "a type such as f32[4, SEQ]")
        return self.guarded(lambda: spec(text), position)
