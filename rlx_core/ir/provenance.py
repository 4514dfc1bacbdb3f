"""The origin of a node: the user's line, the HIR block, the pass and the plugin that made it."""

from __future__ import annotations

import linecache
import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from types import FrameType, TracebackType

from attrs import evolve

from rlx_core.errors import Fact, RlxError
from rlx_core.system.context import assigned
from rlx_core.system.records import frozen


@frozen(repr=False)
class Source:
    """A line of the user's program."""

    file: str
    line: int

    @property
    def text(self) -> str:
        """The text of the line, without indentation; empty if the file cannot be read."""
        return linecache.getline(self.file, self.line).strip()

    def __repr__(self) -> str:
        short = self.file.rsplit("/", 1)[-1]
        return f"{short}:{self.line}  {self.text}".rstrip()


Lines = Sequence[Source | None]
"""The lines of a program: each node's, in the order of `lines_of`."""


@frozen
class Origin:
    """The provenance of a node. It never takes part in equality or fingerprints of graphs.

    Attributes:
        source: The user's line that created it.
        block: The HIR block it was lowered from ("layer0.attention").
        label: A name for people.
        created_by: The pass that put it there.
        plugin: The plugin that the op or the rewrite came from.
    """

    source: Source | None = None
    block: str | None = None
    label: str | None = None
    created_by: str | None = None
    plugin: str | None = None

    def by(self, created_by: str) -> Origin:
        """Return this origin, for a node that a pass made. (Not with `evolve`: a walk calls it for every node.)"""
        return Origin(self.source, self.block, self.label, created_by, self.plugin)

    def inheriting(self, other: Origin) -> Origin:
        """Return this origin, with missing fields taken from `other`."""
        return Origin(
            self.source or other.source,
            self.block or other.block,
            self.label or other.label,
            self.created_by or other.created_by,
            self.plugin or other.plugin,
        )


NOWHERE = Origin()
_current: ContextVar[Origin | None] = ContextVar("origin", default=None)


def current_origin() -> Origin:
    """The origin that new nodes get: the enclosing `originating` block's, or the user's own line."""
    ambient = _current.get()
    if ambient is None:
        return Origin(source=here())
    return ambient if ambient.source is not None else evolve(ambient, source=here())


def originating(origin: Origin) -> assigned[Origin]:
    """Give nodes created inside the block this origin; missing fields come from the enclosing block."""
    outer = _current.get()
    return assigned(_current, origin if outer is None else origin.inheriting(outer))


@cache
def _is_library(module: str) -> bool:
    """Modules whose frames are not the user's: rlx itself, and modules that set `__rlx_library__`."""
    if module.split(".", 1)[0] in {"rlx_core", "attr", "attrs", "optree", "functools", "contextlib"}:
        return True
    return bool(getattr(sys.modules.get(module), "__rlx_library__", False))


def here() -> Source | None:
    """The innermost line on the stack that belongs to the user rather than to a library of rlx.

    In a program that the command line made there is no such line: rlx is called there by the library that reads its options.
    """
    frame = user_frame()
    if frame is None or frame.f_globals.get("__name__", "").partition(".")[0] == "typer":
        return None
    return Source(frame.f_code.co_filename, frame.f_lineno)


def user_frame() -> FrameType | None:
    """The innermost frame on the stack that is the user's."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and _is_library(frame.f_globals.get("__name__", "")):
        frame = frame.f_back
    return frame


@contextmanager
def locating() -> Iterator[None]:
    """Add the user's line, and the function that was called there, to errors raised inside the block.

    Errors of an op's inference have both already; this is for everything that is refused before there is a node.
    """
    try:
        yield
    except RlxError as error:
        if not any(fact.label == "at" for fact in error.facts):
            source, called = _raised_at(error.__traceback__)
            if called is not None and not re.match(r"[^\s:]+( [^\s:]+)?: ", error.message):
                error.message = f"{called}: {error.message}"
            if source is not None and all(fact.where != source for fact in error.facts):
                error.with_fact(Fact("at", repr(source)))
        raise


def _raised_at(traceback: TracebackType | None) -> tuple[Source | None, str | None]:
    """The innermost line of the user that an error passed, and the name of the library's function that it called."""
    source: Source | None = None
    called: str | None = None
    while traceback is not None:
        code, module = traceback.tb_frame.f_code, traceback.tb_frame.f_globals.get("__name__", "")
        if not _is_library(module):
            source, called = Source(code.co_filename, traceback.tb_lineno), None
        elif source is not None and called is None:
            called = code.co_name
        traceback = traceback.tb_next
    return source, called if called is not None and not called.startswith("_") else None
