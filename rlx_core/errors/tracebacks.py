"""Tracebacks of user errors: the user's frames and one of rlx's, or all frames with `RLX_TRACEBACK=full`.

Read when a call has failed, and at no other time. Faults of rlx itself, which are no `RlxError`, keep all frames.
"""

from __future__ import annotations

import os
import warnings
from pathlib import Path
from types import TracebackType
from typing import Final

from rlx_core.errors.base import RlxError

VARIABLE: Final = "RLX_TRACEBACK"
"""The environment variable: `short` (the default) or `full`."""

_PACKAGE_FOLDER: Final = f"{Path(__file__).resolve().parents[1]}{os.sep}"
_BETWEEN: Final = frozenset(("contextlib.py",))
"""Files of the standard library that may have frames between rlx's."""


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
    value = os.environ.get(VARIABLE, "short")
    if value not in ("short", "full"):
        warnings.warn(
            f"{VARIABLE}={value!r} is neither short nor full; tracebacks are full", RuntimeWarning, stacklevel=3
        )
    return value != "short"
