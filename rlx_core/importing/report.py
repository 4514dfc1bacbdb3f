"""The report of operations that an importer does not support: all of a program at once."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from rlx_core.errors import unsupported
from rlx_core.importing.table import HandlerTable


class UnsupportedReport:
    """Operations of a program without a handler, or with operands that their handlers do not support.

    Attributes:
        uses: Operation → locations of the nodes that use it.
    """

    def __init__(self, table: HandlerTable[Any]) -> None:
        self.uses: dict[str, list[str]] = {}
        self._table = table
        self._alternatives = dict(table.alternatives)

    def add(self, operation: str, location: str, alternative: str | None = None) -> None:
        """Add a use of an operation."""
        self.uses.setdefault(operation, []).append(location)
        if alternative is not None:
            self._alternatives[operation] = alternative

    def expect_empty(self, program: str, registration: str | None = None) -> None:
        """Require that all operations are supported.

        Args:
            program: The program in the message; empty where the code that catches the error adds it.
            registration: How to register a handler, if one is missing.

        Raises:
            UnsupportedError: They are not; it lists each with the number of its uses and the first of them.
        """
        if self.uses:
            raise unsupported(program, self.uses, self._alternatives, registration)


def expect_handlers(program: str, table: HandlerTable[Any], uses: Iterable[tuple[str, str]]) -> None:
    """Require that every operation of a program has a handler.

    Args:
        program: The program in the message; empty where the code that catches the error adds it.
        table: The handlers.
        uses: Operation and location of each node.

    Raises:
        UnsupportedError: Operations have none; it lists all of them, with the way to register a handler.
    """
    report = UnsupportedReport(table)
    for operation, location in uses:
        if operation not in table:
            report.add(operation, location)
    report.expect_empty(program, table.registration.format(next(iter(report.uses), "")))
