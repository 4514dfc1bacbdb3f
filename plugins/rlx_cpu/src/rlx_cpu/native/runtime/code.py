"""The code of the runtime: functions that run steps, enter programs and allocate results, in three modules.

It is shared by all programs of a process, because the spinning threads of several pools would compete for processors. It is
compiled once per process if llvmlite is available; modules that a package contains are used if none is loaded.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Protocol

STEPS, ENTRY, RESULT_MEMORY = "runtime", "entry", "result memory"

VERSION: Final = 4
"""Version of the interface between Python and this code: the words of a control block, of a step, of an entry, and the
functions' arguments. It is incremented when one of them changes, so that the code of an older package is not called."""


class ProgramCode(Protocol):
    """Machine code in this process."""

    def address(self, function: str) -> int:
        """Return the address of a function; KeyError if no function has that name."""


codes: dict[str, ProgramCode] = {}
"""The loaded modules, by name."""


def bring(modules: Mapping[str, ProgramCode]) -> None:
    """Register the modules by name; modules that are already loaded are kept."""
    for name, code in modules.items():
        codes.setdefault(name, code)
