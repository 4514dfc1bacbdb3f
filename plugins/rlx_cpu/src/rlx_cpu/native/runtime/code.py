"""The code of the run-time itself: what runs steps, enters programs and gives results their memory, in three modules.

It serves all programs of a process, because threads that several pools kept spinning would take each other's processors. It is
compiled where llvmlite is, once a process; what a package brings is taken where nothing is there yet.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Protocol

__all__ = ["ENTRY", "RESULT_MEMORY", "STEPS", "VERSION", "ProgramCode", "bring", "codes"]

STEPS, ENTRY, RESULT_MEMORY = "runtime", "entry", "result memory"

VERSION: Final = 4
"""Of what Python and this code say to each other: the words of a control block, of a step, of an entry, and the functions'
arguments. Raised when one of them changes, so that the code of a package from before is not called."""


class ProgramCode(Protocol):
    """Machine code in this process."""

    def address(self, function: str) -> int:
        """Where a function starts; KeyError if none has that name."""


codes: dict[str, ProgramCode] = {}
"""The modules that are here, by name."""


def bring(modules: Mapping[str, ProgramCode]) -> None:
    """Offer the modules by name; those that are here already stay."""
    for name, code in modules.items():
        codes.setdefault(name, code)
