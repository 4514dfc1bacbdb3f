"""Interpreters: a process may have several, and rlx works in the main one alone.

NumPy does not support others. rlx keeps state of the process (locks, handlers of forks and signals, native code) that belongs to
one interpreter: in another one the first compilation waits for ever.
"""

from __future__ import annotations

import sys
from functools import cache
from importlib import import_module
from typing import Any


def expect_main_interpreter() -> None:
    """Refuse to be used by a subinterpreter.

    Raises:
        ImportError: This is one.
    """
    if not is_main_interpreter():
        raise ImportError(
            "rlx_core: it is used by a subinterpreter, and works in the main interpreter alone, as NumPy does; "
            "mod_wsgi uses that one with `WSGIApplicationGroup %{GLOBAL}`",
            name="rlx_core",
        )


@cache
def is_main_interpreter() -> bool:
    """Return whether the calling code runs in the main interpreter of the process."""
    try:
        interpreters: Any = import_module("_interpreters" if sys.version_info >= (3, 13) else "_xxsubinterpreters")
    except ImportError:  # this Python has no other interpreters
        return True
    return bool(interpreters.get_current() == interpreters.get_main())
