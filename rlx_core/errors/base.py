"""The parts of an error, their layout in lines, and its traceback.

The traceback of a user error has the user's frames and one of rlx's, or all frames with `RLX_TRACEBACK=full`. Faults of rlx
itself, which are no `RlxError`, keep all frames.
"""

from __future__ import annotations

import difflib
import os
import warnings
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import ClassVar, Final

__all__ = ["Fact", "RlxError", "nearest"]

TRACEBACK_VARIABLE: Final = "RLX_TRACEBACK"
"""The environment variable: `short` (the default) or `full`."""

_PACKAGE_FOLDER: Final = f"{Path(__file__).resolve().parents[1]}{os.sep}"
_BETWEEN: Final = frozenset(("contextlib.py",))
"""Files of the standard library that may have frames between rlx's."""


class Fact:
    """One labelled line of an error: its subject, the actual value, and the location.

    Args:
        label: A word or two in the user's terms ("lhs", "file", "key").
        value: The actual value; printed with `str`.
        where: A source line or another place, or `None`.
    """

    __slots__ = ("label", "value", "where")

    def __init__(self, label: str, value: object, where: object = None) -> None:
        self.label = label
        self.value = value
        self.where = where

    def __repr__(self) -> str:
        return f"Fact({self.label!r}, {str(self.value)!r}, {self.where!r})"


class RlxError(Exception):
    """rlx cannot do what the program requested; the subclasses distinguish the reasons.

    `except rlx_core.errors.RlxError` catches every one of them. Each is also the
    builtin exception of its kind, and keeps its parts as fields.

    >>> from rlx_core.errors import RlxError
    >>> try:
    ...     rlx.add(np.ones(3), np.ones(4))
    ... except RlxError as error:
    ...     print(error.message, [fact.label for fact in error.facts][:2])
    add: shapes [3] and [4] do not broadcast (3 and 4 do not broadcast) ['a', 'b']

    >>> rlx.add(np.ones(3), np.ones(3))
    Array([2., 2., 2.])

    In these pages `np` is NumPy, `rlx` is `rlx_core` and `nn` is `rlx_core.nn`.

    Args:
        message: One line: the operation first, then the difference.
        facts: The evidence for the message, one line each.
        hint: A change that would work, if one is known; never a guess.
    """

    page: ClassVar[str] = "error"

    def __init__(self, message: str, *facts: Fact, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.facts = list(facts)
        self.hint = hint

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        words = cls.__name__.removesuffix("Error")
        cls.page = "".join("-" + c.lower() if c.isupper() else c for c in words).lstrip("-")

    def with_fact(self, *facts: Fact) -> RlxError:
        """Add facts known only to an outer layer (the file, the plugin, the pass); returns the same error."""
        self.facts.extend(facts)
        return self

    def about(self, what: str) -> RlxError:
        """Prefix the message with its subject, unless it begins with that already; returns the same error."""
        if not self.message.startswith(f"{what}: "):
            self.message = f"{what}: {self.message}"
            self.args = (self.message,)
        return self

    def __str__(self) -> str:
        rows = [(f.label, str(f.value), "" if f.where is None else str(f.where)) for f in self.facts]
        label_width = max([len(label) for label, _, _ in rows] + [4])
        value_width = min(max([len(value) for _, value, where in rows if where] + [0]), 48)
        lines = [self.message]
        lines += [f"  {label:<{label_width}}  {value:<{value_width}}  {where}".rstrip() for label, value, where in rows]
        if self.hint:
            lines.append(f"  {'hint':<{label_width}}  {self.hint}")
        lines.append(f"  {'more':<{label_width}}  rlx explain {self.page}")
        return "\n".join(lines)


def nearest(name: str, known: Iterable[str], *, cutoff: float = 0.6) -> str | None:
    """The hint for a misspelt name: the closest known one, or `None` if nothing is close.

    >>> nearest("sotfmax", ["softmax", "exp"])
    'did you mean `softmax`?'
    """
    close = difflib.get_close_matches(name, list(known), n=1, cutoff=cutoff)
    return f"did you mean `{close[0]}`?" if close else None


def shorten(error: BaseException, *, limit: int = 1) -> None:
    """Keep the user's frames in the traceback of an error, and the outermost of rlx's.

    Args:
        error: An error on its way to the user; one that rlx did not mean, raised by rlx's own code, is left as it is.
        limit: How many frames of rlx's are kept: none where the caller is a function of rlx that users call.
    """
    frames = list(_frames(error.__traceback__))
    is_meant = isinstance(error, RlxError) or not (frames and _is_own(frames[-1]))
    if not is_meant or _wants_all():
        return
    short: TracebackType | None = None
    package_frames = [each for each in frames if _is_own(each)][:limit]
    for each in reversed(frames):
        if each in package_frames or not (_is_own(each) or Path(each.tb_frame.f_code.co_filename).name in _BETWEEN):
            short = TracebackType(short, each.tb_frame, each.tb_lasti, each.tb_lineno)
    error.__traceback__ = short


def _frames(traceback: TracebackType | None) -> list[TracebackType]:
    result = []
    while traceback is not None:
        result.append(traceback)
        traceback = traceback.tb_next
    return result


def _is_own(traceback: TracebackType) -> bool:
    return traceback.tb_frame.f_code.co_filename.startswith(_PACKAGE_FOLDER)


def _wants_all() -> bool:
    value = os.environ.get(TRACEBACK_VARIABLE, "short")
    if value not in ("short", "full"):
        warnings.warn(
            f"{TRACEBACK_VARIABLE}={value!r} is neither short nor full; tracebacks are full",
            RuntimeWarning,
            stacklevel=3,
        )
    return value != "short"
